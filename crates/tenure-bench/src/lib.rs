//! The commands `tenure bench` and `tenure demo`: the speed of the engine on a machine, and a
//! demonstration of leases. The program registers them; nothing else of Tenure depends on this
//! crate.
//!
//! - `bench/` measures the engine, alternating with the yardstick, or one build against another.
//! - `yardstick/` has SQL loops as a careful engineer writes them by hand, on the same database.
//! - `demo/` kills, pauses and delays real workers, and reads the results from the store.

mod bench;
mod demo;
mod host;
mod stop;
mod yardstick;

pub use bench::Bench;
pub use demo::Demo;
pub use host::{Completion, Console, Host};
pub use stop::{Failure, Stop};

//! The running of Tenure: the one worker loop that claims, handles and settles, the heartbeat that
//! renews what is held, the reaper, the pruner and shutdown.
//!
//! It knows a store and a publisher only as the ports of `tenure-core`, and no time but tokio's, so
//! that it can be simulated.

mod breaker;
mod config;
mod engine;
mod handler;
mod health;
mod relay;

pub use breaker::BreakerConfig;
pub use config::{Duties, Duty, EngineConfig, Keeper};
pub use engine::{Ended, Engine, Parts};
pub use handler::{Context, EventFn, Handler, Handling, Readiness, Topics};
pub use health::{Check, Health};
pub use relay::Relay;

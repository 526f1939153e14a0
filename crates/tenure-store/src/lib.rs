//! The stores of Tenure: PostgreSQL for many machines, an embedded SQLite file for one, and memory
//! for tests. The only crate that knows SQL or a database driver; no driver's error leaves it.
//!
//! Each store keeps the built-in outbox in the *queue layout* (append-only events, narrow ready
//! rows, one lease row per claim). The two databases also lease the rows of any table that a
//! [`LeaseTable`](tenure_core::LeaseTable) describes: the *row layout*.

#[cfg(not(all(feature = "postgres", feature = "sqlite")))]
mod absent;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod adopt;
#[cfg(feature = "bench")]
pub mod bench;
mod calls;
mod cluster;
mod complaint;
pub mod config;
mod error_text;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod headers;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod jobs;
mod lane;
mod limits;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod marks;
pub mod memory;
mod open;
mod page;
#[cfg(all(feature = "testing", any(feature = "postgres", feature = "sqlite")))]
mod planted;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod render;
mod replay_step;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod rows;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod second_look;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod seen;
mod sight;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "testing")]
pub mod testing;

pub use open::{Companion, Migrated, Opened, is_migrated, migrate, migration_sql, open};
#[cfg(all(feature = "testing", any(feature = "postgres", feature = "sqlite")))]
pub use planted::Planted;

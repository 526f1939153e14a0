//! The stores of Tenure: PostgreSQL for many machines, an embedded SQLite file for one, and memory
//! for tests. Only this crate contains SQL; no driver error leaves it.
//!
//! Each store holds the built-in outbox in the *queue layout* (append-only events, narrow ready
//! rows, one lease row per claim). The two databases also lease the rows of any table that a
//! [`LeaseTable`](tenure_core::LeaseTable) describes: the *row layout*.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod adopt;
mod calls;
mod claim_in_turn;
mod cluster;
pub mod config;
mod delay_answers;
mod enqueue_on;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod enqueue_statement;
mod error_text;
mod events;
mod explain;
#[cfg(not(all(feature = "postgres", feature = "sqlite")))]
mod feature_off;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod headers;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod jobs;
mod jobs_on;
mod lane;
mod limits;
pub mod memory;
mod messages;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod migration;
mod open;
mod page;
#[cfg(feature = "postgres")]
pub mod postgres;
mod queue_rules;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod refusal_reason;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod render;
mod replay_step;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod rows;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(feature = "testing")]
pub mod testing;
mod work_lease;

pub use claim_in_turn::claim_in_turn;
pub use enqueue_on::{EnqueueOn, EnqueuedOn};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub use enqueue_statement::EnqueueStatement;
pub use events::Events;
pub use explain::{explain_item, explain_job, explain_row};
pub use jobs_on::JobsOn;
pub use open::{
    Companion, Migrated, Opened, SchemaFit, SchemaVersion, migrate, migration_sql, open,
    schema_version,
};
pub use work_lease::stored::StoredWorkLease;

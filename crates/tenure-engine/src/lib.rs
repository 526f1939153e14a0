//! The engine of Tenure: claims items, runs handlers, settles outcomes, renews leases, reaps,
//! prunes, replays and shuts down.
//!
//! It reaches stores and publishers only through the ports of `tenure-core` and reads only tokio's
//! clock, so that a simulation can run it.
//!
//! ```text
//!            claim, settle                  step                 an item
//!   store ◄──────────────── 2 claim loops ◄──── held leases ────────────► executors ──► handler
//!     │                                                │ ▲ ◄────────────────
//!     ├─ settings, queues ──► settings watcher ────────┼─┤     its outcome
//!     ◄──── reap ──────────── reaper                   │ │
//!     ◄──── replay ────────── replayer                 │ │
//!     ◄──── prune ─────────── pruner                   ▼ │ renewed, lost, late, overdue
//!     ◄──── renew, report ─── keeper, on its own thread: heartbeat, watchdog, registry
//! ```
//!
//! `HeldLeases` connects the tasks: it has the leases of this worker behind one lock and decides
//! about them. It never waits. A claim loop that has claimed items wakes executors. A claim loop is
//! woken by an executor with an outcome, by an enqueue in this process ([`Engine::wake`]), by the
//! reaper and the replayer when their items are due, and by changed settings. The keeper has its
//! own clock and cancels work whose lease is over.
//!
//! A [`Handler`] works on items, [`Topics`] selects a handler by topic, [`Relay`] sends events to a
//! publisher, [`WithOptions::fan_out`] turns done events into deliveries, and [`Sender`] is the
//! handler and the [`Chooser`] of an engine that sends deliveries. Programs rarely start an
//! [`Engine`] themselves: the crate `tenure` assembles one.

mod attachment;
mod breaker;
mod chooser;
mod chunk_renewer;
mod claim_loop;
mod config;
mod engine;
mod executor;
mod handle_span;
mod handler;
mod health;
mod heartbeat;
mod held;
mod held_lease;
#[cfg(feature = "testing")]
mod inline;
mod item_label;
mod item_queues;
mod keeper;
pub mod metrics;
mod options;
mod orphaned_calls;
mod outcome_counts;
mod pace;
mod pruner;
mod reaper;
mod registry;
mod relay;
mod releaser;
mod replayer;
mod rng;
mod round;
mod run;
mod sender;
mod settings_watcher;
mod shared;
mod tasks;
mod watchdog;

pub use breaker::BreakerConfig;
pub use chooser::{Chooser, Room};
pub use chunk_renewer::{ChunkRenewer, ChunkThread, RenewedChunk};
pub use config::{Duties, Duty, EngineConfig, Keeper, Leases, Recovery, RowClaims};
pub use engine::{Engine, Parts, StopReport, Wake};
pub use handler::{
    Context, EventFn, Failed, Handler, Handling, JsonFn, Readiness, Rules, Topics, TopicsAnswer,
};
pub use health::{Check, Health};
#[cfg(feature = "testing")]
pub use inline::{Handled, Inline};
pub use options::{HandlerOptions, Limit, WithOptions};
pub use outcome_counts::OutcomeCounts;
pub use relay::Relay;
pub use sender::{Sender, SenderParts};
pub use tasks::Wrap;

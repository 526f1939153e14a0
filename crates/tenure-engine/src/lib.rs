//! The running of Tenure: the one worker loop that claims, handles and settles, the heartbeat that
//! renews what is held, the reaper, the pruner, the replayer and shutdown.
//!
//! It knows a store and a publisher only as the ports of `tenure-core`, and no time but tokio's, so
//! that it can be simulated.
//!
//! ```text
//!            claim, settle                what to say            an item
//!   store ◄──────────────── 2 hands ◄──────────────── desk ────────────────► slots ──► handler
//!     │                                                │ ▲ ◄────────────────
//!     ├─ settings, queues ──► live ────────────────────┼─┤     what it said
//!     ◄──── reap ──────────── reaper                   │ │
//!     ◄──── replay ────────── replayer                 │ │
//!     ◄──── prune ─────────── pruner                   ▼ │ renewed, lost, late, overdue
//!     ◄──── renew, report ─── keeper, on its own thread: heartbeat, watchdog, registry
//! ```
//!
//! Everything meets at the desk: what is in hand, behind one lock, and the decisions about it. It
//! never waits. A hand that claimed wakes slots; a slot that has an answer wakes a hand; so do an
//! enqueue in this process ([`Engine::wake`]), the reaper when what it ended is due, and a change
//! of the settings. The keeper wakes by its own clock and stops work whose hold is over.
//!
//! [`Handler`] is what items are handed to, [`Topics`] chooses one by topic, [`Relay`] is the one
//! that takes events to a publisher, [`FanOut`] has what is done become deliveries, and [`Sender`]
//! is the handler and the [`Chooser`] of an engine that delivers them. Programs rarely start an
//! [`Engine`] by themselves: the crate `tenure` puts one together.

mod beside;
mod breaker;
mod chooser;
mod chunks;
mod config;
mod desk;
mod dice;
mod engine;
mod fan_out;
mod handler;
mod health;
mod heartbeat;
mod hold;
mod keeper;
mod live;
pub mod metrics;
mod pace;
mod pruner;
mod reaper;
mod record;
mod registry;
mod relay;
mod replayer;
mod round;
mod row_store;
mod run;
mod sender;
mod shared;
mod slot;
mod tally;
mod tasks;
mod watchdog;
mod worker;

pub use breaker::BreakerConfig;
pub use chooser::{Chooser, Room};
pub use chunks::{ChunkKeeper, ChunkThread, KeptChunk};
pub use config::{Duties, Duty, EngineConfig, Keeper, Recovery, RowClaims};
pub use engine::{Ended, Engine, Parts, Wake};
pub use fan_out::{FanOut, Owed};
pub use handler::{Context, EventFn, Failed, Handler, Handling, Readiness, Topics};
pub use health::{Check, Health};
pub use relay::Relay;
pub use row_store::{LeaseRows, RowStore};
pub use sender::{Sender, SenderParts};
pub use tally::Tallied;
pub use tasks::Wrap;

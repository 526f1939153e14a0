//! Tenure hands every piece of work to exactly one holder for a limited time, takes it back when
//! the holder dies, and refuses the late answer of a holder who was replaced. It runs on the
//! database that you have: PostgreSQL when there are several machines, an SQLite file when there is
//! one, memory for tests.
//!
//! This crate is the front door: [`Tenure`] and the words of `tenure-core`. It holds no rules and
//! no SQL of its own. Features: `postgres`, `sqlite`, `server` (the HTTP API as a router to mount);
//! none by default.
//!
//! # The event exists if and only if the change does
//!
//! An event is enqueued in the transaction of the change that caused it.
//!
//! ```
//! use tenure::{Event, State, Tenure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let path = folder.path().join("shop.db");
//! let tenure = Tenure::open(&format!("sqlite://{}", path.display())).await?;
//!
//! let mut shop = rusqlite::Connection::open(&path)?;
//! shop.execute_batch("create table orders (id integer primary key, total integer)")?;
//! let tx = shop.transaction()?;
//! tx.execute("insert into orders (id, total) values (7, 990)", [])?;
//! let event = Event::new("order.paid", &serde_json::json!({"order": 7}))?;
//! let id = tenure.enqueue_on(&tx, event)?.id();
//! tx.commit()?;
//!
//! let record = tenure.find(&[id]).await?.pop().expect("it was committed");
//! assert_eq!(record.state, State::Pending);
//! # Ok(())
//! # }
//! ```
//!
//! On PostgreSQL it is `tenure.enqueue(&mut *tx, event).await?` with a transaction of sqlx. Without
//! a transaction of yours there is [`Tenure::enqueue_now`].
//!
//! # A worker
//!
//! Name a handler for the topics it takes; the worker claims, calls it, renews what is held,
//! settles, ends the leases of the dead and prunes, until it is told to stop.
//!
//! ```
//! use tenure::{Context, Event, Outcome, Tenure};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tenure = Tenure::open("memory:").await?;
//! let worker = tenure.worker().on("order.*", |event: Event, cx: Context| async move {
//!     let order: u64 = event.payload().parse()?; // `?` is a retry, with backoff
//!     println!("order {order}: try {}, fence {}", cx.attempt(), cx.fence());
//!     Ok(Outcome::Done)
//! });
//! # let ctrl_c = async {};
//! worker.run_until(ctrl_c).await?; // or `.run_until_signal()`, or `.start()` and `.stop()`
//! # Ok(())
//! # }
//! ```
//!
//! A handler says what came of an event as an [`Outcome`] or with an error. It is dropped at its
//! next await when its hold is over; what it has handed to others asks [`Context::cancelled`].
//!
//! # Claim, work, settle by hand
//!
//! ```
//! use tenure::{Event, Outcome, Settle, Tenure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tenure = Tenure::open("memory:").await?;
//! tenure.enqueue_now(Event::new("order.paid", &serde_json::json!({"order": 7}))?).await?;
//!
//! let held = tenure.claim(10).await?.expect("one event is due");
//! for item in &held.items {
//!     let event = item.content.event().expect("the outbox holds events");
//!     assert_eq!(event.topic(), "order.paid");
//!     // Work here, and hand `held.lease.fence` to the receiver: it refuses what is older.
//! }
//! let answer = tenure.settle(&Settle::new(held.lease.token.clone()).done(held.ids())).await?;
//! assert_eq!(answer.refused().count(), 0);
//! assert!(tenure.claim(10).await?.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! What is not done is said as an [`Outcome`]: [`Outcome::Retry`] with a delay that a
//! [`RetryPolicy`] computes, [`Outcome::Dead`], or [`Outcome::Release`]. Work that takes longer
//! than the term is kept with [`Tenure::renew`].
//!
//! # Refused is an answer
//!
//! A holder that stalls past its term is replaced, and what it says afterwards changes nothing. It
//! is told so, with the reason; there is no error to handle, only work to drop.
//!
//! ```
//! use std::time::Duration;
//! use tenure::{Claim, Clock, Event, LapsePolicy, Reap, Refusal, Settle, SystemClock, Tenure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tenure = Tenure::open("memory:").await?;
//! tenure.enqueue_now(Event::new("order.paid", &7)?).await?;
//! let stalled = tenure.claim(1).await?.expect("it is due");
//!
//! // A minute later the term of 30 s is over: the lease is ended, someone else takes the item.
//! let later = SystemClock.now().after(Duration::from_secs(60));
//! tenure.reap(&Reap::new(100, LapsePolicy::default()).at(later)).await?;
//! let next = Claim::new(tenure.token(), 1).at(later.after(Duration::from_secs(1)));
//! let successor = tenure.claim_with(&next).await?.expect("it is due again");
//! assert!(successor.lease.fence > stalled.lease.fence);
//!
//! // The first holder wakes up and says done.
//! let late = Settle::new(stalled.lease.token.clone()).done(stalled.ids());
//! let answer = tenure.settle(&late).await?;
//! assert_eq!(answer.refused().next(), Some((stalled.ids()[0], Refusal::Lost)));
//! # Ok(())
//! # }
//! ```
//!
//! # Long work, chunk by chunk
//!
//! A job is leased like an event, and its work is done in chunks, each with a lease and a
//! checkpoint of its own: whoever takes it up after a crash does only what is left.
//!
//! ```
//! use tenure::{ChunkAnswer, HeldJob, Outcome, Tenure};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
//! let tenure = Tenure::open(&url).await?;
//! let worker = tenure.jobs().on("import.orders", |job: HeldJob| async move {
//!     for month in 1..=12 {
//!         let ask = job.chunk(&format!("2026-{month:02}"));
//!         if let ChunkAnswer::Claimed(chunk) = ask.wait().await? {
//!             chunk.complete(1000).await?; // its rows
//!         }
//!     }
//!     Ok(Outcome::Done)
//! });
//! # let ctrl_c = async {};
//! worker.run_until(ctrl_c).await?;
//! # Ok(())
//! # }
//! ```
//!
//! See [`Jobs`], [`HeldJob`] and [`HeldChunk`]; the example `resumable_import` can be killed and
//! started again.
//!
//! # Offsets in order
//!
//! [`WorkLease`] keeps the order of what a log brings, in process and without a database: of each
//! domain one offset is in flight, the others wait for their turn, and none is worked twice. It
//! hands nothing off by itself: the next offset is told as a hint.
//!
//! ```
//! use tenure::{AcquireResult, DomainRules, FailResult, SucceedResult, WorkLease};
//!
//! let lease = WorkLease::new(DomainRules { max_retries: 0, ..DomainRules::default() });
//! let AcquireResult::Acquired(token) = lease.submit("customer-7", 1)? else {
//!     panic!("nothing was ahead of it");
//! };
//! assert_eq!(lease.submit("customer-7", 2)?, AcquireResult::Enqueued);
//! assert_eq!(lease.succeed("customer-7", &token)?, SucceedResult::NextHint(2));
//! assert_eq!(lease.submit("customer-7", 1)?, AcquireResult::AlreadyProcessed);
//!
//! let AcquireResult::Acquired(token) = lease.try_acquire("customer-7", 2)? else {
//!     panic!("it was at the head");
//! };
//! assert_eq!(lease.fail("customer-7", &token)?, FailResult::GiveUpNoBacklog);
//! let refused = lease.succeed("customer-7", &token).unwrap_err();
//! assert!(refused.is_illegal_state(), "it was ended already");
//! # Ok::<(), tenure::WorkLeaseError>(())
//! ```
//!
//! The example `partitioned_log` is a whole consumer with several threads.
//!
//! [`Tenure::work_lease`] keeps the same contract in the store, for all processes that share it:
//! see [`StoredWorkLease`].
//!
//! # Looking and repairing
//!
//! [`Tenure::list`], [`find`](Tenure::find), [`timeline`](Tenure::timeline) and
//! [`count`](Tenure::count) show; [`replay`](Tenure::replay) puts back what is done or dead,
//! [`bury`](Tenure::bury) settles an item dead, [`pause_queue`](Tenure::pause_queue) holds a queue
//! back. The program `tenure` does the same from a shell.

mod chunk;
mod claim;
mod held_job;
mod job_worker;
mod jobs;
mod matrix;
mod operate;
mod owed;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "postgres")]
mod postgres_jobs;
mod replays;
mod sender;
mod signal;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod sqlite_jobs;
mod table;
mod table_worker;
mod tenure;
pub mod webhook;
mod work_lease;
mod worker;

pub use tenure_core::domain;
pub use tenure_core::job;
pub use tenure_core::store::{
    Bury, ChangeEndpoint, ChangeSettings, Claim, ClaimChunk, ClusterSettings, Company, Counts,
    DeliveryCounts, DomainFilter, DomainRecord, DomainState, Enqueued, Filter, Finding, HeldChunks,
    JobFilter, Kind, NewReplay, Page, Pause, Presence, Prune, Pruned, Queue, QueueCounts, Rate,
    Reap, Reaped, Recovered, Renew, Renewed, Replay, ReplayOperation, ReplayState, Replayed, Rest,
    Settle, Settlement, Skip, StepReplay, Stepped, Store, StoreError, StoreErrorKind, Tell,
    Verdict, WhileHeld, WorkerRecord, WorkerReport,
};
pub use tenure_core::{
    AcquireResult, Addition, Adds, AdoptedTable, Again, Boundary, Clock, Content, Counters,
    DELAY_MAX, DomainName, DomainRules, Encoding, EndedHold, Event, Facts, FailResult, Failure,
    Fence, Guarded, HEADERS_BYTES_MAX, Held, Hold, Identifier, Indexes, Invalid, Item, ItemId,
    JobFacts, LapsePolicy, Lateness, Lease, LeaseTable, MapFault, NAME_BYTES_MAX, Obstacle, OnDead,
    Outcome, PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX, Plan, PlannedIndex, Priority, Publication,
    PublishError, PublishErrorKind, Publisher, Publishing, QueueName, Record, Refusal,
    ReplayResult, Reservation, RetryPolicy, Said, Setting, Settings, SpaceName, Stage, State,
    States, SucceedResult, SyncState, Term, Timestamp, Token, TopicPattern, Whereabouts, Why, Word,
    WorkLeaseError, WorkerId, brief_duration, duration_text, parse_duration, reason, why, why_job,
};
pub use tenure_engine::metrics as engine_metrics;
pub use tenure_engine::{
    Check, Context, Duties, Duty, Ended, Handler, Handling, Health, Readiness, Relay, Tallied,
    Topics,
};
pub use tenure_publish::{Exec, ExecCall, Lines};
#[cfg(feature = "server")]
pub use tenure_server as server;
/// What speed is measured against, and what is measured beside the front door.
#[cfg(feature = "bench")]
pub mod bench {
    pub use tenure_store::bench::*;
}
pub use tenure_store::config::{Planner, StoreConfig, Synchronous};
pub use tenure_store::memory::{SystemClock, WorkLease};
pub use tenure_store::{Migrated, is_migrated, migrate, migration_sql};

pub use crate::chunk::{ChunkAnswer, ChunkAsk, HeldChunk};
pub use crate::held_job::{HeldJob, HoldError};
pub use crate::job_worker::JobWorkerBuilder;
pub use crate::jobs::Jobs;
pub use crate::matrix::Matrix;
pub use crate::sender::SenderBuilder;
pub use crate::signal::Signals;
pub use crate::table::Table;
pub use crate::table_worker::TableWorkerBuilder;
pub use crate::tenure::{Tenure, new_worker_id};
pub use crate::work_lease::{StoredWorkLease, StoredWorkLeaseError};
pub use crate::worker::{Watch, Worker, WorkerBuilder, WorkerError};

/// The code of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// The code of the page on jobs compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/JOBS.md")]
struct JobsPage;

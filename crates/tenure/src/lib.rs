//! Tenure is a lease engine for background work. It leases each item to one worker at a time, for a
//! limited term; it makes the item available again when that worker dies; and it refuses the writes
//! of a worker that was replaced. It runs on your database: PostgreSQL for several machines, an
//! SQLite file for one machine, memory for tests.
//!
//! Start with [`Tenure`], [`NewEvent`] and [`WorkerBuilder`]. All other names are in modules by
//! subject: [`enqueue`], [`worker`], [`lease`], [`operate`], [`settings`], [`publish`], [`job`],
//! [`table`], [`webhook`], [`work_lease`], [`store`] and, for the tests of your own program,
//! `testing`.
//!
//! Features, all off by default:
//!
//! | feature | adds |
//! |---|---|
//! | `postgres`, `sqlite` | a store; the memory store needs no feature |
//! | `sqlx-sqlite` | enqueueing in transactions of sqlx on SQLite |
//! | `exec`, `lines` | publishers: a command per event or one that stays; a line of JSON per event |
//! | `webhook` | HTTP and TLS for the sender, and signatures |
//! | `server` | the HTTP API as a router to mount |
//! | `testing` | the test kit |
//!
//! # Enqueue in your transaction
//!
//! Enqueue an event in the transaction of the change that caused it: the event exists if and only
//! if the change does.
//!
//! ```
//! use tenure::{NewEvent, State, Tenure};
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
//! let event = NewEvent::new("order.paid", &serde_json::json!({"order": 7})).key("customer-7");
//! let id = tenure.enqueue(&tx, event)?.id();
//! tx.commit()?;
//!
//! let record = tenure.find(&[id]).await?.pop().expect("it was committed");
//! assert_eq!(record.state, State::Pending);
//! # Ok(())
//! # }
//! ```
//!
//! On PostgreSQL, call `tenure.enqueue(&mut *tx, event).await?` with a transaction of sqlx.
//! [`Tenure::enqueue_now`] needs no transaction, and `Tenure::enqueue_statement` serves all other
//! drivers.
//!
//! # Run a worker
//!
//! Register a handler for a topic pattern. The worker claims events, calls the handler, renews
//! leases, settles, reaps lapsed leases and prunes, until you stop it.
//!
//! ```
//! use tenure::{Context, Tenure};
//!
//! #[derive(serde::Serialize, serde::Deserialize)]
//! struct Order {
//!     id: u64,
//! }
//!
//! # async fn ship(order: Order) -> Result<(), std::io::Error> { Ok(drop(order)) }
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tenure = Tenure::open("memory:").await?;
//! let worker = tenure.worker().on_json("order.*", |order: Order, cx: Context| async move {
//!     println!("order {}: attempt {}, fence {}", order.id, cx.attempt(), cx.fence());
//!     ship(order).await?; // `?` is a retry, with backoff
//!     Ok(())
//! });
//! # let ctrl_c = async {};
//! worker.run_until(ctrl_c).await?; // or `.run_until_signal()`, or `.start()` and `.stop()`
//! # Ok(())
//! # }
//! ```
//!
//! A handler returns an [`Outcome`] or an error. When the hold is over, the worker drops the
//! handler at its next await; tasks that the handler spawned must watch [`Context::cancelled`].
//!
//! # Claim and settle manually
//!
//! ```
//! use tenure::lease::Settle;
//! use tenure::{NewEvent, Outcome, Tenure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tenure = Tenure::open("memory:").await?;
//! tenure.enqueue_now(NewEvent::new("order.paid", &serde_json::json!({"order": 7}))).await?;
//!
//! let held = tenure.claim(10).await?.expect("one event is due");
//! for item in &held.items {
//!     let event = item.content.event().expect("the outbox holds events");
//!     assert_eq!(event.topic(), "order.paid");
//!     // Work here, and send `held.lease.fence` along: the receiver can refuse older fences.
//! }
//! let answer = tenure.settle(&Settle::new(held.lease.token.clone()).done(held.ids())).await?;
//! assert_eq!(answer.refused().count(), 0);
//! assert!(tenure.claim(10).await?.is_none());
//! # Ok(())
//! # }
//! ```
//!
//! Report any other result as an [`Outcome`]: [`Outcome::Retry`] with a delay computed by a
//! [`RetryPolicy`](lease::RetryPolicy), [`Outcome::Dead`] or [`Outcome::Release`]. Work that takes
//! longer than the term needs [`Tenure::renew`].
//!
//! # A refused write is not an error
//!
//! A holder that stalls past its term is replaced. Its later writes change nothing, and the store
//! answers them with the reason of the refusal. Discard the work; there is no error to handle.
//!
//! ```
//! use std::time::Duration;
//! use tenure::lease::{Claim, LapsePolicy, Reap, Refusal, Settle};
//! use tenure::store::{Clock, SystemClock};
//! use tenure::{NewEvent, Tenure};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let tenure = Tenure::open("memory:").await?;
//! tenure.enqueue_now(NewEvent::new("order.paid", &7)).await?;
//! let stalled = tenure.claim(1).await?.expect("it is due");
//!
//! // A minute later, its term of 30 s is over: the lease is reaped, and the item claimed again.
//! let later = SystemClock.now().after(Duration::from_secs(60));
//! tenure.reap(&Reap::new(100, LapsePolicy::default()).at(later)).await?;
//! let next = Claim::new(tenure.token(), 1).at(later.after(Duration::from_secs(1)));
//! let successor = tenure.claim_with(&next).await?.expect("it is due again");
//! assert!(successor.lease.fence > stalled.lease.fence);
//!
//! // The first holder wakes up and settles: refused.
//! let late = Settle::new(stalled.lease.token.clone()).done(stalled.ids());
//! let answer = tenure.settle(&late).await?;
//! assert_eq!(answer.refused().next(), Some((stalled.ids()[0], Refusal::Lost)));
//! # Ok(())
//! # }
//! ```
//!
//! # Run long work in chunks
//!
//! A job is leased like an event. Its work is divided into chunks, each with its own lease and
//! checkpoint: after a crash, the next worker does only the remaining chunks.
//!
//! ```
//! use tenure::job::{ChunkAnswer, HeldJob};
//! use tenure::{Outcome, Tenure};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
//! let tenure = Tenure::open(&url).await?;
//! let worker = tenure.jobs().on("import.orders", |job: HeldJob| async move {
//!     for month in 1..=12 {
//!         let chunk = job.chunk(&format!("2026-{month:02}"));
//!         if let ChunkAnswer::Claimed(chunk) = chunk.wait().await? {
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
//! See [`Jobs`](job::Jobs), [`HeldJob`](job::HeldJob) and [`HeldChunk`](job::HeldChunk). You can
//! kill the example `resumable_import` at any time and start it again: it continues.
//!
//! # Process offsets in order
//!
//! A [`WorkLease`](work_lease::WorkLease) keeps the offsets of a log in order, in memory and
//! without a database: each domain has at most one offset in flight, the others wait, and no offset
//! is processed twice. It starts no work itself; it returns the next offset as a hint.
//!
//! ```
//! use tenure::work_lease::{AcquireResult, DomainRules, FailResult, SucceedResult, WorkLease};
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
//! # Ok::<(), tenure::work_lease::WorkLeaseError>(())
//! ```
//!
//! The example `partitioned_log` is a complete consumer with several threads.
//!
//! [`Tenure::work_lease`] has the same contract in the database, shared by all processes: see
//! [`StoredWorkLease`](work_lease::StoredWorkLease).
//!
//! # Inspect and repair
//!
//! [`Tenure::list`], [`find`](Tenure::find), [`timeline`](Tenure::timeline),
//! [`count`](Tenure::count) and [`why`](Tenure::why) inspect. [`replay`](Tenure::replay) makes done
//! or dead items pending again, [`bury`](Tenure::bury) settles an item as dead, and
//! [`pause_queue`](Tenure::pause_queue) pauses a queue. The program `tenure` does the same from a
//! shell.
//!
//! # Stability
//!
//! A minor version may add fields to structs that Tenure returns and variants to enums marked
//! `#[non_exhaustive]`. Build a struct with its constructor or with `..Default::default()`, and
//! match the fields you need with `..`. The crates below this one, such as `tenure-core`, are its
//! implementation: depend on `tenure` alone.

mod builder;
mod chunk;
pub mod enqueue;
mod held_job;
pub mod job;
mod job_transactions;
mod jobs;
pub mod lease;
mod matrix;
pub mod operate;
pub mod publish;
mod replays;
pub mod settings;
mod signal;
pub mod store;
mod subscribed_topics;
pub mod table;
mod tenure;
#[cfg(feature = "testing")]
pub mod testing;
pub mod trace;
pub mod webhook;
pub mod work_lease;
pub mod worker;

pub use tenure_core::store::{Enqueued, StoreError, StoreErrorKind};
pub use tenure_core::{
    Event, Failure, Fence, IntoOutcome, Invalid, ItemId, NewEvent, Outcome, PayloadError, Problems,
    Publisher, Settings, State, Term,
};
pub use tenure_engine::{Context, HandlerOptions, StopReport};
#[cfg(feature = "server")]
pub use tenure_server as server;
pub use tenure_store::config::StoreConfig;
pub use tenure_store::migrate;

pub use crate::builder::TenureBuilder;
pub use crate::signal::Signals;
pub use crate::tenure::Tenure;
pub use crate::worker::{Worker, WorkerBuilder, WorkerError};

/// Compiles the code of the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles the code of the page on usage.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/GUIDE.md")]
struct GuidePage;

/// Runs the code of the page on tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/TESTING.md")]
struct TestingPage;

/// Compiles the code of the page on jobs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/JOBS.md")]
struct JobsPage;

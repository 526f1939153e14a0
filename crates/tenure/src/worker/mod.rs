//! Workers: one builder for events, deliveries, jobs and rows of tables, and the running worker.

mod deliveries;
mod events;
mod jobs;
mod rows;
mod running;

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use tenure_core::store::Store;
use tenure_core::{Invalid, Sampling, Settings, Tracer, WorkerId};
use tenure_engine::{Engine, EngineConfig, Handler, Parts, StopReport};

pub use self::deliveries::DeliverySource;
pub use self::events::EventSource;
pub use self::jobs::JobSource;
pub use self::rows::RowSource;
pub use self::running::{Watch, Worker, WorkerError};
use crate::chunk::ChunkHome;
use crate::signal::Signals;
use crate::tenure::Tenure;
use private::Work;

/// Builder of a worker. Problems are collected and reported together by
/// [`start`](WorkerBuilder::start).
///
/// The source determines the items that are claimed, and the methods that register handlers:
///
/// | begun by | source | handlers by |
/// |---|---|---|
/// | [`Tenure::worker`] | events | topic: [`on`](WorkerBuilder::on), `on_json`, `publish` |
/// | [`Tenure::sender`] | deliveries to endpoints | the caller that is passed |
/// | [`Jobs::on`](crate::job::Jobs::on) | jobs | kind: `on` |
/// | [`Table::worker`](crate::table::Table::worker) | rows of a table | `on`, `on_json` |
///
/// ```
/// use std::time::Duration;
/// use tenure::{Context, Event, Outcome, Tenure};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tenure = Tenure::open("memory:").await?;
/// tenure
///     .worker()
///     .on("order.*", |event: Event, cx: Context| async move {
///         let order: u64 = event.json()?; // `?` is a retry
///         println!("order {order}, fence {}", cx.fence());
///         Ok(Outcome::Done)
///     })
///     .concurrency(4)
///     .run_until(tokio::time::sleep(Duration::from_millis(10)))
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "a worker does nothing until it is started"]
pub struct WorkerBuilder<S = EventSource> {
    tenure: Tenure,
    source: S,
    config: EngineConfig,
    concurrency: Option<u32>,
    problems: Vec<Invalid>,
}

/// Source of a worker's items. Implemented by the four sources of this module, and sealed.
pub trait Source: private::Source {}

impl<S: private::Source> Source for S {}

mod private {
    use super::{Arc, ChunkHome, EngineConfig, Handler, Invalid, Store, Tenure, WorkerId};

    pub trait Source: Sized {
        /// Concurrency and batch of this source, instead of those in the settings.
        const LIMITS: Option<(u32, u32)> = None;

        /// Part of the worker's name; `None`: the worker may have the id of the program.
        const TRADE: Option<&'static str>;

        /// Adds the problems of the source itself.
        fn check(&self, _tenure: &Tenure, _problems: &mut Vec<Invalid>) {}

        /// Returns the handler of the items, and completes the worker; called after `check`.
        fn into_handler(self, work: &mut Work) -> Result<Arc<dyn Handler>, Invalid>;
    }

    /// A worker to be started.
    #[derive(Debug)]
    pub struct Work {
        pub(crate) tenure: Tenure,
        pub(crate) worker: WorkerId,
        pub(crate) config: EngineConfig,
        /// The store through the keeper's own connections, if the source has opened them; `None`:
        /// the worker opens them.
        pub(crate) keeper_store: Option<Arc<dyn Store>>,
        /// The chunks that the handlers hold.
        pub(crate) chunks: Option<Arc<ChunkHome>>,
    }
}

impl<S: Source> WorkerBuilder<S> {
    fn of(tenure: Tenure, source: S, config: EngineConfig) -> Self {
        Self {
            tenure,
            source,
            config,
            concurrency: None,
            problems: Vec::new(),
        }
    }

    /// Sets the number of items worked on at once: 10 by default, 200 calls for a sender.
    pub fn concurrency(mut self, items: u32) -> Self {
        self.concurrency = Some(items);
        self
    }

    /// Sets the settings; those of the cluster take precedence.
    ///
    /// A sender and a worker on jobs have their own concurrency and batch, and a worker on jobs its
    /// own lease timing. Rows of a table with the columns of the preset `sync_jobs` are leased for
    /// 5 minutes and renewed every minute, those with the columns and the order of
    /// `sync_checkpoints` for 2 minutes and every 30 s, unless term or heartbeat are set.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.config.settings = settings;
        self
    }

    /// Sets the host name shown in lists of workers. Default: the name of this
    /// machine on Linux, otherwise `localhost`.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.config.host = Some(host.into());
        self
    }

    /// Sets the share of attempts that get a span. By default an attempt gets one if the event's
    /// `traceparent` is sampled, or if the event has none.
    ///
    /// The span is called `handle`, has the level INFO and the fields `item`, `event`, `topic`,
    /// `queue`, `key`, `attempt`, `fence` and `trace_id`; the log lines of the handler are in it.
    /// An attempt costs nothing if no subscriber takes the span; otherwise, the sampling is
    /// decided before the span is made.
    pub fn sampling(mut self, sampling: Sampling) -> Self {
        self.config.sampling = sampling;
        self
    }

    /// Records the spans of sampled attempts, whatever the subscriber of `tracing` takes, and
    /// passes them on: handlers find the header `traceparent` of their own span in the event and
    /// in [`Context::trace_parent`](tenure_engine::Context::trace_parent), receivers get it as
    /// their parent.
    pub fn tracer(mut self, tracer: Arc<dyn Tracer>) -> Self {
        self.config.tracer = Some(tracer);
        self
    }

    /// Starts the worker on the current runtime, which must have time and I/O enabled.
    ///
    /// # Errors
    /// All problems of the handlers, names and settings.
    #[expect(
        clippy::unused_async,
        reason = "it spawns tasks, so it must be called on a runtime"
    )]
    pub async fn start(mut self) -> Result<Worker, WorkerError> {
        self.check()?;
        let invalid = |problem| WorkerError::Invalid(vec![problem]);
        let mut work = Work {
            tenure: self.tenure.clone(),
            worker: self.tenure.next_worker_id(S::TRADE).map_err(invalid)?,
            config: self.config,
            keeper_store: None,
            chunks: None,
        };
        let handler = self.source.into_handler(&mut work).map_err(invalid)?;
        let keeper_store = work.keeper_store;
        let engine = Engine::start(Parts {
            store: self.tenure.shared(),
            keeper_store: keeper_store.unwrap_or_else(|| self.tenure.companion()),
            worker: work.worker,
            handler,
            config: work.config,
            wrap: None,
        });
        let worker = Worker::new(engine.map_err(WorkerError::Invalid)?, work.chunks);
        self.tenure.add_watch(worker.watch());
        Ok(worker)
    }

    /// Runs the worker until `end` completes, then stops it as [`Worker::stop`] does.
    ///
    /// # Errors
    /// As [`start`](Self::start), or an internal task panics (a bug).
    pub async fn run_until(self, end: impl Future) -> Result<StopReport, WorkerError> {
        let (report, _) = self.start().await?.until(end).await?;
        Ok(report)
    }

    /// Runs the worker until the process receives SIGINT or SIGTERM, then stops it as
    /// [`Worker::stop`] does. A second signal returns [`WorkerError::Interrupted`] at once; leases
    /// still held will lapse.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until), or the system refuses to deliver signals.
    pub async fn run_until_signal(self) -> Result<StopReport, WorkerError> {
        let mut signals = Signals::new().map_err(WorkerError::Signals)?;
        let mut again = Signals::new().map_err(WorkerError::Signals)?;
        let twice = async {
            again.next().await;
            again.next().await;
        };
        tokio::select! {
            report = self.run_until(signals.next()) => report,
            () = twice => Err(WorkerError::Interrupted),
        }
    }

    /// The checked value; otherwise keeps the problem.
    fn valid<T>(&mut self, checked: Result<T, Invalid>) -> Option<T> {
        checked.map_err(|problem| self.problems.push(problem)).ok()
    }

    /// Applies the limits of the source and reports every problem.
    fn check(&mut self) -> Result<(), WorkerError> {
        let settings = &mut self.config.settings;
        if let Some((concurrency, batch)) = S::LIMITS {
            settings.concurrency = concurrency;
            settings.batch = batch;
        }
        settings.concurrency = self.concurrency.unwrap_or(settings.concurrency);
        let mut problems = std::mem::take(&mut self.problems);
        self.source.check(&self.tenure, &mut problems);
        problems.extend(self.tenure.check_connections().err());
        problems.extend(self.config.settings.check().err().unwrap_or_default());
        if problems.is_empty() {
            return Ok(());
        }
        Err(WorkerError::Invalid(problems))
    }
}

impl<S> fmt::Debug for WorkerBuilder<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("tenure", &self.tenure)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Problem: options were set before any handler.
fn no_handler_yet() -> Invalid {
    let expected = "a handler before it: `.on(…).with(…)`";
    Invalid::new("the handler's options", "set before any handler", expected)
}

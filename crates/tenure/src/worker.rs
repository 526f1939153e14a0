//! Worker: handlers by topic, put together with a store and run by the engine.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};

use tenure_core::{Event, Failure, Invalid, Outcome, Publisher, QueueName, Settings, TopicPattern};
use tenure_engine::{
    Context, Duties, Ended, Engine, EngineConfig, EventFn, Handler, Health, Parts, Relay, Topics,
};
use tokio::sync::RwLock;

use crate::signal::Signals;
use crate::tenure::Tenure;

/// A worker that is being put together; [`Tenure::worker`] begins one.
///
/// ```
/// use std::time::Duration;
/// use tenure::{Context, Event, Outcome, Settings, Tenure};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tenure = Tenure::open("memory:").await?;
/// let settings = Settings { concurrency: 4, ..Settings::default() };
/// tenure
///     .worker()
///     .on("order.*", |event: Event, cx: Context| async move {
///         let order: u64 = event.payload().parse()?; // `?` is a retry
///         println!("order {order}, fence {}", cx.fence());
///         Ok(Outcome::Done)
///     })
///     .settings(settings)
///     .run_until(tokio::time::sleep(Duration::from_millis(10)))
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "it does nothing until it is started"]
pub struct WorkerBuilder {
    tenure: Tenure,
    topics: Topics,
    config: EngineConfig,
    /// What was wrong so far; told when it is started, all at once.
    problems: Vec<Invalid>,
}

impl WorkerBuilder {
    pub(crate) fn new(tenure: Tenure) -> Self {
        Self {
            tenure,
            topics: Topics::new(),
            config: EngineConfig::default(),
            problems: Vec::new(),
        }
    }

    /// Calls `function` with each event of these topics: `order.paid`, `order.*`, `*`. The first
    /// pattern that takes a topic has it.
    ///
    /// An error is a failure, to be tried again as the settings say; so is a panic. The same event
    /// may come again: after a crash, a lapse, a replay.
    pub fn on<F, Fut>(self, pattern: &str, function: F) -> Self
    where
        F: Fn(Event, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        self.handler(pattern, EventFn::new(function))
    }

    /// Hands each item of these topics to `handler`.
    pub fn handler(mut self, pattern: &str, handler: impl Handler) -> Self {
        match TopicPattern::new(pattern) {
            Ok(pattern) => self.topics.add(pattern, Arc::new(handler)),
            Err(problem) => self.problems.push(problem),
        }
        self
    }

    /// Hands each item of these topics to a handler that takes others, too.
    pub fn route(mut self, pattern: TopicPattern, handler: Arc<dyn Handler>) -> Self {
        self.topics.add(pattern, handler);
        self
    }

    /// Hands each event of these topics to `publisher`, which people know by `name`. While it is
    /// away its events are given back unsent and lose no retry; while all publishers and handlers
    /// of the worker are away, nothing is claimed.
    ///
    /// ```
    /// use tenure::{Lines, Tenure};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("events.jsonl");
    /// let tenure = Tenure::open("memory:").await?;
    /// let worker = tenure.worker().publish("*", "audit", Lines::file(&path)?);
    /// worker.run_until(async {}).await?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn publish(self, pattern: &str, name: &str, publisher: impl Publisher + 'static) -> Self {
        self.handler(pattern, Relay::new(name, Arc::new(publisher)))
    }

    /// Serves only these queues; without this all that there are, also those added later.
    pub fn queues(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        for name in names {
            match QueueName::new(name.as_ref()) {
                Ok(queue) => self.config.queues.push(queue),
                Err(problem) => self.problems.push(problem),
            }
        }
        self
    }

    /// Works as these settings say; what is set for the cluster stands over them.
    pub fn settings(mut self, settings: Settings) -> Self {
        self.config.settings = settings;
        self
    }

    /// Takes part in this beside its own work; without this in everything.
    pub fn duties(mut self, duties: Duties) -> Self {
        self.config.duties = duties;
        self
    }

    /// Shows this as its machine to people who look at the workers.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.config.host = host.into();
        self
    }

    /// Starts it on the current runtime, which is one with time and I/O enabled.
    ///
    /// # Errors
    /// Everything that is wrong with its patterns, queues and settings.
    #[expect(
        clippy::unused_async,
        reason = "it spawns, so it is to be called on a runtime"
    )]
    pub async fn start(mut self) -> Result<Worker, WorkerError> {
        if self.topics.is_empty() && self.problems.is_empty() {
            let expected = "one or more: `.on(\"order.*\", …)`";
            self.problems
                .push(Invalid::new("the worker's handlers", "none", expected));
        }
        if let Err(problem) = self.tenure.check_connections() {
            self.problems.push(problem);
        }
        if let Err(problems) = self.config.settings.check() {
            self.problems.extend(problems);
        }
        if !self.problems.is_empty() {
            return Err(WorkerError::Invalid(self.problems));
        }
        let worker = self.tenure.next_worker_id();
        let worker = worker.map_err(|problem| WorkerError::Invalid(vec![problem]))?;
        let parts = Parts {
            store: self.tenure.shared(),
            keeper_store: self.tenure.companion(),
            worker,
            handler: Arc::new(self.topics),
            config: self.config,
            wrap: None,
        };
        let engine = Engine::start(parts).map_err(WorkerError::Invalid)?;
        let slot = Arc::new(RwLock::new(Some(engine)));
        self.tenure.add_watch(Watch(Arc::downgrade(&slot)));
        Ok(Worker { slot })
    }

    /// Runs it until `end` comes, then stops it: what is in hand is finished or given back.
    ///
    /// # Errors
    /// As [`WorkerBuilder::start`], and when the worker fails, which it never should.
    pub async fn run_until(self, end: impl Future) -> Result<Ended, WorkerError> {
        let worker = self.start().await?;
        let failed = tokio::select! {
            _ = end => None,
            why = worker.failed() => Some(why),
        };
        let ended = worker.stop().await;
        match failed {
            None => Ok(ended),
            Some(why) => Err(WorkerError::Failed(why)),
        }
    }

    /// Runs it until the process is told to end (SIGINT, SIGTERM), then stops it: what is in hand
    /// is finished or given back. At a second signal it returns at once; what is held lapses.
    ///
    /// # Errors
    /// As [`WorkerBuilder::run_until`], and when signals cannot be received.
    pub async fn run_until_signal(self) -> Result<(), WorkerError> {
        let mut signals = Signals::new().map_err(WorkerError::Signals)?;
        let mut again = Signals::new().map_err(WorkerError::Signals)?;
        let twice = async {
            again.next().await;
            again.next().await;
        };
        tokio::select! {
            ended = self.run_until(signals.next()) => ended.map(|_| ()),
            () = twice => Ok(()),
        }
    }
}

impl fmt::Debug for WorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerBuilder")
            .field("tenure", &self.tenure)
            .field("topics", &self.topics)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// Empty once the worker is being stopped.
type Slot = RwLock<Option<Engine>>;

/// A running worker. Dropping it stops everything at once: what is held lapses.
#[derive(Debug)]
pub struct Worker {
    slot: Arc<Slot>,
}

impl Worker {
    /// Looks for work at once. [`Tenure::enqueue_now`] and [`Tenure::enqueue_all`] do so by
    /// themselves; after an enqueue in a transaction of your own, call it once that is committed.
    pub fn wake(&self) {
        self.watch().wake();
    }

    /// Where it stands.
    ///
    /// # Panics
    /// Never: a worker that is being stopped cannot be asked.
    pub fn health(&self) -> Health {
        self.watch()
            .health()
            .expect("only stop empties the slot, and takes the worker")
    }

    /// A handle that outlives it, to look at it from elsewhere.
    pub fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.slot))
    }

    /// Waits until a part of it fails, which it never should; answers which and why.
    pub async fn failed(&self) -> String {
        match self.slot.read().await.as_ref() {
            Some(engine) => engine.failed().await,
            None => std::future::pending().await,
        }
    }

    /// Stops claiming, gives back what was not started, lets what runs finish within the shutdown
    /// time, cancels and gives back the rest, takes its leave.
    ///
    /// # Panics
    /// Never: it can be stopped once.
    pub async fn stop(self) -> Ended {
        let engine = self.slot.write().await.take();
        engine
            .expect("only stop empties the slot, and takes the worker")
            .stop()
            .await
    }
}

/// Looks at a worker and keeps nothing of it alive.
#[derive(Clone, Debug)]
pub struct Watch(Weak<Slot>);

impl Watch {
    /// Where the worker stands; `None` once it is being stopped.
    pub fn health(&self) -> Option<Health> {
        let slot = self.0.upgrade()?;
        let engine = slot.try_read().ok()?;
        engine.as_ref().map(Engine::health)
    }

    /// Looks for work at once, if the worker is still there.
    pub fn wake(&self) {
        if let Some(slot) = self.0.upgrade()
            && let Ok(engine) = slot.try_read()
            && let Some(engine) = engine.as_ref()
        {
            engine.wake();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Why a worker does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// Its patterns, queues or settings; every problem.
    #[error("{}", listed(.0))]
    Invalid(Vec<Invalid>),
    /// The signals of the process.
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
    /// A part of it ended, which it never should.
    #[error("the worker failed: {0}")]
    Failed(String),
}

fn listed(problems: &[Invalid]) -> String {
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

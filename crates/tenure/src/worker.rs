//! Worker: handlers by topic, put together with a store and run by the engine.

use std::fmt;
use std::future::Future;
use std::sync::{Arc, Weak};

use tenure_core::{
    Event, Failure, Invalid, Outcome, Publisher, QueueName, Settings, TopicPattern, WorkerId,
};
use tenure_engine::{
    Context, Duties, Ended, Engine, EngineConfig, EventFn, FanOut, Handler, Health, Parts, Relay,
    Topics,
};
use tokio::sync::RwLock;

use crate::chunk::ChunkHome;
use crate::owed::{OwedTopics, Unowed};
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
    fan_out: FansOut,
    /// What was wrong so far; told when it is started, all at once.
    problems: Vec<Invalid>,
}

impl WorkerBuilder {
    pub(crate) fn new(tenure: Tenure) -> Self {
        Self {
            tenure,
            topics: Topics::new(),
            config: EngineConfig::default(),
            fan_out: FansOut::Not,
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

    /// Owes each event that is done to the endpoints that are subscribed to its topic: one delivery
    /// for each, written in the transaction that settles the event. Events that no handler takes
    /// are done at once if an endpoint is subscribed to them; a worker without any handler leaves
    /// the others waiting. What is owed is sent by a [`sender`](Tenure::sender), in this process
    /// or in another one.
    pub fn fan_out(mut self) -> Self {
        self.fan_out = FansOut::All;
        self
    }

    /// Wakes this sender when there is something for it to send.
    pub fn wakes(mut self, sender: &Worker) -> Self {
        if let Ok(engine) = sender.slot.try_read() {
            self.config.sender = engine.as_ref().map(Engine::waker);
        }
        self
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
        if self.topics.is_empty() && self.problems.is_empty() && self.fan_out == FansOut::Not {
            let expected = "one or more: `.on(\"order.*\", …)`";
            self.problems
                .push(Invalid::new("the worker's handlers", "none", expected));
        }
        check(&self.tenure, &self.config, self.problems)?;
        let worker = self.tenure.next_worker_id();
        let worker = worker.map_err(|problem| WorkerError::Invalid(vec![problem]))?;
        let handler: Arc<dyn Handler> = match self.fan_out {
            FansOut::Not => Arc::new(self.topics),
            FansOut::All => {
                let unowed = if self.topics.is_empty() {
                    Unowed::Waits
                } else {
                    Unowed::Fails
                };
                let owed = OwedTopics::new(self.tenure.shared(), unowed);
                self.topics.add(TopicPattern::any(), Arc::new(owed));
                Arc::new(FanOut::new(Arc::new(self.topics)))
            }
        };
        launch(&self.tenure, worker, handler, self.config)
    }

    /// Runs it until `end` comes, then stops it: what is in hand is finished or given back.
    ///
    /// # Errors
    /// As [`WorkerBuilder::start`], and when the worker fails, which it never should.
    pub async fn run_until(self, end: impl Future) -> Result<Ended, WorkerError> {
        self.start().await?.until(end).await
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

/// Whether what is done is owed to endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FansOut {
    Not,
    All,
}

/// Everything that is wrong, with what was wrong so far.
pub(crate) fn check(
    tenure: &Tenure,
    config: &EngineConfig,
    mut problems: Vec<Invalid>,
) -> Result<(), WorkerError> {
    problems.extend(tenure.check_connections().err());
    problems.extend(config.settings.check().err().unwrap_or_default());
    if problems.is_empty() {
        return Ok(());
    }
    Err(WorkerError::Invalid(problems))
}

/// Starts an engine.
pub(crate) fn launch(
    tenure: &Tenure,
    worker: WorkerId,
    handler: Arc<dyn Handler>,
    config: EngineConfig,
) -> Result<Worker, WorkerError> {
    launch_on(
        tenure,
        Parts {
            store: tenure.shared(),
            keeper_store: tenure.companion(),
            worker,
            handler,
            config,
            wrap: None,
        },
    )
}

/// Starts an engine of these parts.
pub(crate) fn launch_on(tenure: &Tenure, parts: Parts) -> Result<Worker, WorkerError> {
    let engine = Engine::start(parts).map_err(WorkerError::Invalid)?;
    let slot = Arc::new(RwLock::new(Some(engine)));
    tenure.add_watch(Watch(Arc::downgrade(&slot)));
    Ok(Worker { slot, chunks: None })
}

/// Empty once the worker is being stopped.
type Slot = RwLock<Option<Engine>>;

/// A running worker. Dropping it stops everything at once: what is held lapses.
#[derive(Debug)]
pub struct Worker {
    slot: Arc<Slot>,
    /// Where the chunks are that its handlers have in hand.
    chunks: Option<Arc<ChunkHome>>,
}

impl Worker {
    /// With chunks that are given back when it stops.
    pub(crate) fn with_chunks(mut self, home: Arc<ChunkHome>) -> Self {
        self.chunks = Some(home);
        self
    }

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

    /// Runs until `end` comes, then stops.
    pub(crate) async fn until(self, end: impl Future) -> Result<Ended, WorkerError> {
        let failed = tokio::select! {
            _ = end => None,
            why = self.failed() => Some(why),
        };
        let ended = self.stop().await;
        match failed {
            None => Ok(ended),
            Some(why) => Err(WorkerError::Failed(why)),
        }
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
        let ended = engine
            .expect("only stop empties the slot, and takes the worker")
            .stop()
            .await;
        if let Some(home) = &self.chunks {
            home.cleared().await;
        }
        ended
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

//! Worker on events: handlers by topic.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use serde::de::DeserializeOwned;
use tenure_core::store::StoreError;
use tenure_core::{Event, IntoOutcome, Invalid, Publisher, QueueName, TopicPattern};
use tenure_engine::{
    Context, Duties, EngineConfig, EventFn, Handler, HandlerOptions, JsonFn, Relay, StopReport,
    Topics, WithOptions,
};

use super::private::Work;
use super::{Watch, Worker, WorkerBuilder, WorkerError, no_handler_yet, private};
use crate::subscribed_topics::SubscribedTopics;
use crate::tenure::Tenure;

/// Interval between two polls of `run_until_idle`.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Consecutive idle polls that end `run_until_idle`.
const IDLE_POLLS: u32 = 2;

/// Events of the store's queues, with handlers by topic.
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "handlers are functions")]
pub struct EventSource {
    /// Handlers in the order of their registration. `None` stands for an invalid pattern, which has
    /// been reported as a problem.
    routes: Vec<(Option<TopicPattern>, Arc<dyn Handler>)>,
    does_fan_out: bool,
}

impl WorkerBuilder {
    pub(crate) fn events(tenure: Tenure) -> Self {
        Self::of(tenure, EventSource::default(), EngineConfig::default())
    }

    /// Calls `function` with each event whose topic matches: `order.paid`, `order.*`, `*`. The
    /// first matching pattern wins.
    ///
    /// An error is retried with backoff, as the settings say; so is a panic. The same event can
    /// arrive again after a crash, a lapse or a replay.
    pub fn on<F, Fut>(self, pattern: &str, function: F) -> Self
    where
        F: Fn(Event, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handler(pattern, EventFn::new(function))
    }

    /// Calls `function` with the payload of each matching event, deserialised as a `T`.
    ///
    /// A payload that is not a `T` is retried with backoff, because a later deployment may have the
    /// right type; `last_error` names the topic, the type and the position. To settle such an event
    /// as dead at once, take the event with [`on`](Self::on) and return
    /// [`Outcome::dead`](tenure_core::Outcome::dead) when [`Event::json`] fails.
    ///
    /// [`Context::event`] has the rest of the event: key, headers, `event_id`.
    ///
    /// ```
    /// use tenure::{Context, NewEvent, Tenure};
    ///
    /// #[derive(serde::Serialize, serde::Deserialize)]
    /// struct Order {
    ///     id: u64,
    ///     customer: String,
    /// }
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let order = Order { id: 7, customer: "ann".into() };
    /// tenure.enqueue_now(NewEvent::new("order.paid", &order).key(&order.customer)).await?;
    ///
    /// let (sender, mut received) = tokio::sync::mpsc::channel(1);
    /// let worker = tenure.worker().on_json("order.*", move |order: Order, cx: Context| {
    ///     let sender = sender.clone();
    ///     async move {
    ///         let key = cx.event().and_then(|event| event.key().map(str::to_owned));
    ///         sender.send((order.id, key)).await?; // `?` is a retry, with backoff
    ///         Ok(())
    ///     }
    /// });
    /// let worker = worker.start().await?;
    /// assert_eq!(received.recv().await, Some((7, Some("ann".into()))));
    /// worker.stop().await;
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_json<T, F, Fut>(self, pattern: &str, function: F) -> Self
    where
        T: DeserializeOwned + 'static,
        F: Fn(T, Context) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        self.handler(pattern, JsonFn::new(function))
    }

    /// Passes each matching item to `handler`.
    pub fn handler(mut self, pattern: &str, handler: impl Handler) -> Self {
        let pattern = self.valid(TopicPattern::new(pattern));
        self.source.routes.push((pattern, Arc::new(handler)));
        self
    }

    /// Passes each matching item to `handler`, which other patterns may share.
    pub fn route(mut self, pattern: TopicPattern, handler: Arc<dyn Handler>) -> Self {
        self.source.routes.push((Some(pattern), handler));
        self
    }

    /// Sets retries, timeout and concurrency of the handler that was registered last.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure::{Context, Event, HandlerOptions, Tenure};
    ///
    /// # async fn render(_: Event) -> Result<(), std::io::Error> { Ok(()) }
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let worker = tenure
    ///     .worker()
    ///     .on("report.*", |event: Event, _: Context| async move { Ok(render(event).await?) })
    ///     .with(HandlerOptions::new().retries(3).timeout(Duration::from_secs(300)).concurrency(2))
    ///     .on("*", |_: Event, _: Context| async { Ok(()) });
    /// worker.run_until(async {}).await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// `tenure why` shows the retries of the settings, not these.
    pub fn with(mut self, options: HandlerOptions) -> Self {
        match self.source.routes.pop() {
            Some((pattern, handler)) => {
                let handler = Arc::new(WithOptions::new(handler, options));
                self.source.routes.push((pattern, handler));
            }
            None => self.problems.push(no_handler_yet()),
        }
        self
    }

    /// Passes each matching event to `publisher`, shown as `name` in logs and metrics. While the
    /// publisher is not ready, its events are released and use up no retry; while no publisher or
    /// handler of the worker is ready, nothing is claimed.
    ///
    /// ```
    /// use tenure::publish::Lines;
    /// use tenure::Tenure;
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

    /// Creates a delivery for each endpoint subscribed to the topic of an event, in the transaction
    /// that settles the event as done. The worker also takes the topics that endpoints are
    /// subscribed to: their events are done at once if no handler matches. A
    /// [`sender`](Tenure::sender) of this or another process sends the deliveries.
    pub fn fan_out(mut self) -> Self {
        self.source.does_fan_out = true;
        self
    }

    /// Wakes this sender when deliveries are created.
    pub fn wakes(mut self, sender: &Worker) -> Self {
        self.config.sender = sender.waker();
        self
    }

    /// Serves only these queues. By default, a worker serves all queues, even those added later.
    pub fn queues(mut self, names: impl IntoIterator<Item = impl AsRef<str>>) -> Self {
        for name in names {
            let queue = self.valid(QueueName::new(name.as_ref()));
            self.config.queues.extend(queue);
        }
        self
    }

    /// Sets the duties of this worker; all of them by default.
    pub fn duties(mut self, duties: Duties) -> Self {
        self.config.duties = duties;
        self
    }

    /// Builds a worker for a test, which steps it and sets its clock. See
    /// [`testing`](crate::testing).
    ///
    /// # Errors
    /// As [`WorkerBuilder::start`].
    #[cfg(feature = "testing")]
    pub fn test(mut self) -> Result<crate::testing::TestWorker, WorkerError> {
        self.check()?;
        let handler = self.source.handler(&self.tenure);
        let EngineConfig {
            settings, queues, ..
        } = self.config;
        let worker = crate::testing::TestWorker::new(self.tenure, handler, settings, queues);
        Ok(worker)
    }

    /// Runs the worker until it holds nothing and nothing is due in its queues, then stops it. It
    /// does not wait for delayed events, retries, paused queues or items that other workers hold.
    ///
    /// ```
    /// use tenure::{Context, Event, NewEvent, Tenure};
    ///
    /// # #[tokio::main]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// tenure.enqueue_now(NewEvent::new("order.paid", &7)).await?;
    /// let report = tenure
    ///     .worker()
    ///     .on("order.*", |_: Event, _: Context| async { Ok(()) })
    ///     .run_until_idle()
    ///     .await?;
    /// assert_eq!((report.outcomes.done, report.left), (1, 0));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`WorkerBuilder::run_until`], or the store fails to count the due events.
    pub async fn run_until_idle(self) -> Result<StopReport, WorkerError> {
        let tenure = self.tenure.clone();
        let queues = self.config.queues.clone();
        let worker = self.start().await?;
        let watch = worker.watch();
        let idle = async {
            let mut polls = 0;
            while polls < IDLE_POLLS {
                // The store does not notify of changes, so poll.
                tokio::time::sleep(IDLE_POLL_INTERVAL).await;
                polls = match is_idle(&tenure, &watch, &queues).await {
                    Ok(true) => polls + 1,
                    Err(error) if !error.is_transient() => return Err(error),
                    Ok(false) | Err(_) => 0,
                };
            }
            Ok(())
        };
        let (report, idle) = worker.until(idle).await?;
        let failed = |error: StoreError| WorkerError::Failed(error.to_string());
        idle.map(|()| report).map_err(failed)
    }
}

impl private::Source for EventSource {
    const TRADE: Option<&'static str> = None;

    fn check(&self, _tenure: &Tenure, problems: &mut Vec<Invalid>) {
        // An invalid pattern has been reported already; its handler is not missing.
        if self.routes.is_empty() && !self.does_fan_out && problems.is_empty() {
            let expected = "one or more: `.on(\"order.*\", …)`";
            problems.push(Invalid::new("the worker's handlers", "none", expected));
        }
    }

    fn into_handler(self, work: &mut Work) -> Result<Arc<dyn Handler>, Invalid> {
        Ok(self.handler(&work.tenure))
    }
}

impl EventSource {
    /// Combines the routes into one handler for all topics.
    fn handler(self, tenure: &Tenure) -> Arc<dyn Handler> {
        let mut topics = Topics::new();
        for (pattern, handler) in self.routes {
            if let Some(pattern) = pattern {
                topics.add(pattern, handler);
            }
        }
        if !self.does_fan_out {
            return Arc::new(topics);
        }
        let subscribed = SubscribedTopics::new(tenure.shared());
        topics.add(TopicPattern::any(), Arc::new(subscribed));
        Arc::new(WithOptions::fan_out(Arc::new(topics)))
    }
}

/// Returns true if the worker holds nothing and nothing is due in these queues; an empty list
/// means all queues.
async fn is_idle(tenure: &Tenure, watch: &Watch, queues: &[QueueName]) -> Result<bool, StoreError> {
    let Some(health) = watch.health() else {
        return Ok(true);
    };
    if !health.is_idle {
        // Counting is expensive while many events wait.
        return Ok(false);
    }
    let is_due = tenure.has_due(queues, &health.topics).await?;
    // Read last: an item that is no longer due is claimed, held or settled by then.
    let is_busy = watch.health().is_some_and(|health| !health.is_idle);
    Ok(!is_due && !is_busy)
}

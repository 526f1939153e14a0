//! `Handler`, which works on claimed items, and `Topics`, which selects a handler by topic.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::webhook::{AttemptOutcome, Reply};
use tenure_core::{
    Content, Event, Failure, Fence, IntoOutcome, Item, ItemId, Outcome, RetryPolicy, RetryRules,
    Token, TopicPattern, TopicSet, TraceParent,
};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::attachment::CallSlot;
use crate::options::Limit;

/// Future of a handler's outcome.
pub type Handling<'a> = Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send + 'a>>;

/// Future of the topics that a handler takes.
pub type TopicsAnswer<'a> = Pin<Box<dyn Future<Output = TopicSet> + Send + 'a>>;

/// Works on claimed items.
///
/// The worker may call a handler again for the same item: after a failure, a release, a lapse or a
/// replay. It drops the handler's future at the next await when the lease is lost or `max_hold` has
/// passed, and settles no later answer.
///
/// ```
/// use tenure_core::{Content, Failure, Item, Outcome};
/// use tenure_engine::{Context, Handler, Handling};
///
/// /// Accepts numeric payloads.
/// struct Numbers;
///
/// impl Handler for Numbers {
///     fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
///         Box::pin(async move {
///             let Content::Event(event) = item.content else {
///                 return Err(Failure::new("the item is a row").never());
///             };
///             let Ok(number) = event.payload().parse::<u64>() else {
///                 return Ok(Outcome::dead("the payload is not a number")); // not retried
///             };
///             println!("{number}, claim {}, try {}", cx.fence(), cx.attempt());
///             Ok(Outcome::Done)
///         })
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Works on one item. After an error the retry policy decides.
    fn handle(&self, item: Item, cx: Context) -> Handling<'_>;

    /// Topics of the events that it takes: the worker claims no others. The worker asks before each
    /// claim.
    fn topics(&self) -> TopicsAnswer<'_> {
        Box::pin(std::future::ready(TopicSet::any()))
    }

    /// Pauses claiming unless it returns `Ready`. The worker calls it before each claim, so it must
    /// not block.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// True if this event, once done, is delivered to the endpoints that subscribe to its topic;
    /// see [`WithOptions::fan_out`](crate::WithOptions::fan_out).
    fn fans_out(&self, _event: &Event) -> bool {
        false
    }

    /// Pattern of the route that takes this item, for metrics; `None`: the handler has no routes.
    fn route_name(&self, _item: &Item) -> Option<&str> {
        None
    }

    /// Maximum run time of this item, if longer than the settings allow.
    fn max_hold(&self, _item: &Item) -> Option<Duration> {
        None
    }

    /// Outcome of a failed item; `None`: the retry policy decides. Must not block.
    fn judge(&self, _failed: &Failed<'_>) -> Option<Outcome> {
        None
    }

    /// Rules of this item that override the settings: see
    /// [`HandlerOptions`](crate::HandlerOptions).
    #[doc(hidden)]
    fn rules(&self, _item: &Item) -> Rules {
        Rules::default()
    }
}

impl fmt::Debug for dyn Handler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Handler")
    }
}

/// Rules of an item that override the settings of its worker.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rules {
    /// Retries.
    pub retry: RetryRules,
    /// Limit on items of this handler that run at once.
    pub limit: Option<Limit>,
}

/// A failed attempt.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// Failures before this attempt.
    pub failures: u32,
    /// Endpoint number of a delivery.
    pub endpoint: Option<u32>,
    /// The error, with the handler's retry advice.
    pub failure: &'a Failure,
    /// Rules of the handler and of the queue that override the settings.
    pub retry: RetryRules,
    /// Random number from 0 to 1, for jitter.
    pub chance: f64,
}

impl Failed<'_> {
    /// Outcome of the failure: the handler's own decision, or else the retry policy's.
    pub(crate) fn judge(&self, handler: &dyn Handler, policy: RetryPolicy) -> Outcome {
        let policy = policy.with(self.retry);
        let own = handler.judge(self);
        own.unwrap_or_else(|| policy.judge(self.failures, self.failure, self.chance))
    }
}

/// Answer of [`Handler::readiness`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Readiness {
    /// The worker may claim.
    Ready,
    /// The worker must not claim now: the receiver is down or has no capacity. The worker checks
    /// again soon.
    Away {
        /// Reason, shown in the log.
        reason: String,
    },
}

/// Context of an item for its handler.
#[derive(Clone)]
pub struct Context {
    pub(crate) id: ItemId,
    pub(crate) token: Token,
    pub(crate) fence: Fence,
    pub(crate) attempt: u32,
    pub(crate) deadline: Instant,
    pub(crate) cancel: CancellationToken,
    pub(crate) call: CallSlot,
    /// The event, for a handler that takes only its payload.
    pub(crate) event: Option<Arc<Event>>,
    pub(crate) trace_parent: Option<TraceParent>,
}

impl Context {
    /// Creates the context of an attempt at `item`, under the lease with this proof.
    pub(crate) fn new(item: &Item, (token, fence): (Token, Fence), deadline: Instant) -> Self {
        Self {
            id: item.id,
            token,
            fence,
            attempt: item.counters.attempts.saturating_add(1),
            deadline,
            cancel: CancellationToken::new(),
            call: CallSlot::of(item.id),
            event: None,
            trace_parent: item.content.event().and_then(Event::trace_parent),
        }
    }

    /// Id of the item.
    pub fn id(&self) -> ItemId {
        self.id
    }

    /// Number of the claim. Pass it to the receiver, which can then refuse calls with an older
    /// fence.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Proof of the lease for the store, for writes of the handler. It is a secret of this process:
    /// pass receivers the fence instead.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// Number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The event, with its topic, key, headers and `event_id`, for a handler that takes only the
    /// payload; `None` for a handler that takes the event itself.
    pub fn event(&self) -> Option<&Event> {
        self.event.as_deref()
    }

    /// Position in the trace, to be passed on as the header `traceparent`: the span of this attempt
    /// if a tracer records it, otherwise the producer's, if it gave one.
    pub fn trace_parent(&self) -> Option<TraceParent> {
        self.trace_parent
    }

    /// Time until the handler is cancelled.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Records that a webhook call starts now. The worker stores the call in any case: as aborted
    /// if [`replied`](Self::replied) is not called, as superseded if the lease is lost. Ignored for
    /// items that are not deliveries.
    pub fn calling(&self) {
        self.call.begin(self.fence, self.attempt);
    }

    /// Records the reply and the outcome of the call, delivered or failed.
    pub fn replied(&self, reply: Reply, outcome: AttemptOutcome) {
        self.call.end(reply, outcome);
    }

    /// True if the work is cancelled: its lease is over, it ran too long, or the worker stops.
    /// Another worker may do the same work.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until the work is cancelled. The worker then drops the handler's future; use this for
    /// work that the handler has spawned elsewhere.
    pub async fn cancelled(&self) {
        self.cancel.cancelled().await;
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("id", &self.id)
            .field("fence", &self.fence)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// Handlers by topic: the first pattern that matches an event's topic wins.
#[derive(Clone, Debug, Default)]
pub struct Topics {
    routes: Vec<(TopicPattern, Arc<dyn Handler>)>,
}

impl Topics {
    /// Creates an empty list of routes.
    pub fn new() -> Self {
        Self::default()
    }

    /// Routes events of these topics to `handler`, unless an earlier pattern matches.
    pub fn add(&mut self, pattern: TopicPattern, handler: Arc<dyn Handler>) {
        self.routes.push((pattern, handler));
    }

    /// True if there are no routes.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    fn of(&self, item: &Item) -> Option<&Arc<dyn Handler>> {
        let topic = item.content.event().map_or("", Event::topic);
        self.choose(topic).map(|(_, handler)| handler)
    }

    fn choose(&self, topic: &str) -> Option<&(TopicPattern, Arc<dyn Handler>)> {
        let mut routes = self.routes.iter();
        routes.find(|(pattern, _)| pattern.matches(topic))
    }
}

impl Handler for Topics {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        let topic = item.content.event().map_or("", Event::topic);
        if let Some((_, handler)) = self.choose(topic) {
            return handler.handle(item, cx);
        }
        // A failure instead of dead: a newer worker may know the topic.
        let error = format!("no handler takes the topic {topic:?}");
        Box::pin(async move { Err(Failure::new(error)) })
    }

    /// The patterns of the routes; for a route of all topics, those that its handler takes.
    fn topics(&self) -> TopicsAnswer<'_> {
        Box::pin(async {
            let mut all = Vec::new();
            for (pattern, handler) in &self.routes {
                if *pattern == TopicPattern::any() {
                    all.extend(handler.topics().await.patterns().iter().cloned());
                } else {
                    all.push(pattern.clone());
                }
            }
            all.into_iter().collect()
        })
    }

    /// Ready while at least one handler is ready; items of the other handlers fail or are released
    /// one by one.
    fn readiness(&self) -> Readiness {
        let mut away = None;
        for (_, handler) in &self.routes {
            match handler.readiness() {
                Readiness::Ready => return Readiness::Ready,
                not_now @ Readiness::Away { .. } => away = away.or(Some(not_now)),
            }
        }
        away.unwrap_or(Readiness::Ready)
    }

    fn fans_out(&self, event: &Event) -> bool {
        let route = self.choose(event.topic());
        route.is_some_and(|(_, handler)| handler.fans_out(event))
    }

    fn route_name(&self, item: &Item) -> Option<&str> {
        let (pattern, _) = self.choose(item.content.event()?.topic())?;
        Some(pattern.as_str())
    }

    fn max_hold(&self, item: &Item) -> Option<Duration> {
        self.of(item)?.max_hold(item)
    }

    fn rules(&self, item: &Item) -> Rules {
        self.of(item)
            .map_or_else(Rules::default, |handler| handler.rules(item))
    }
}

/// Handler from an async function of an event. The function returns `Result<Outcome, Failure>` or
/// `Result<(), Failure>`, where `Ok(())` means done.
pub struct EventFn<F>(F);

impl<F, Fut> EventFn<F>
where
    F: Fn(Event, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    /// Calls `function` with each event.
    pub fn new(function: F) -> Self {
        Self(function)
    }
}

impl<F> fmt::Debug for EventFn<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EventFn")
    }
}

impl<F, Fut> Handler for EventFn<F>
where
    F: Fn(Event, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        match item.content {
            Content::Event(event) => {
                let work = (self.0)(event, cx);
                Box::pin(async move { work.await.into_outcome() })
            }
            Content::Delivery(_) | Content::Row(_) => not_an_event(),
        }
    }
}

/// Handler from an async function of an event's payload, deserialized as `T`.
///
/// A payload that is not a valid `T` is an ordinary failure and is retried with backoff, because a
/// later deploy may know the new type. The error names the topic, the type and the position.
pub struct JsonFn<F, T> {
    function: F,
    payload: PhantomData<fn(T)>,
}

impl<F, T, Fut> JsonFn<F, T>
where
    F: Fn(T, Context) -> Fut + Send + Sync + 'static,
    T: serde::de::DeserializeOwned + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    /// Calls `function` with the payload of each event.
    pub fn new(function: F) -> Self {
        Self {
            function,
            payload: PhantomData,
        }
    }
}

impl<F, T> fmt::Debug for JsonFn<F, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "JsonFn<{}>", std::any::type_name::<T>())
    }
}

impl<F, T, Fut> Handler for JsonFn<F, T>
where
    F: Fn(T, Context) -> Fut + Send + Sync + 'static,
    T: serde::de::DeserializeOwned + 'static,
    Fut: Future<Output: IntoOutcome> + Send + 'static,
{
    fn handle(&self, item: Item, mut cx: Context) -> Handling<'_> {
        let Content::Event(event) = item.content else {
            return not_an_event();
        };
        match event.json::<T>() {
            Ok(payload) => {
                cx.event = Some(Arc::new(event));
                let work = (self.function)(payload, cx);
                Box::pin(async move { work.await.into_outcome() })
            }
            Err(problem) => Box::pin(async move { Err(problem.into()) }),
        }
    }
}

fn not_an_event() -> Handling<'static> {
    let error = "the item is not an event, and its handler takes events";
    Box::pin(async move { Err(Failure::new(error)) })
}

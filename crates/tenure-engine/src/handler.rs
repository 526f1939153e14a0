//! Handler: what a worker does with an item once it is claimed; and Topics, which chooses one.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::webhook::{AttemptOutcome, Reply};
use tenure_core::{Event, Failure, Fence, Item, ItemId, Outcome, Token, TopicPattern};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::beside::CallSlot;

/// The answer of a handler, on its way.
pub type Handling<'a> = Pin<Box<dyn Future<Output = Result<Outcome, Failure>> + Send + 'a>>;

/// What a worker does with an item.
///
/// It may be called again for the same item: after a crash, after a lapse, after a replay. It is
/// dropped at its next await when the lease is lost or the longest hold is over; what it answers
/// after that is not settled.
///
/// ```
/// use tenure_core::{Content, Failure, Item, Outcome};
/// use tenure_engine::{Context, Handler, Handling};
///
/// /// Takes payloads that are numbers.
/// struct Numbers;
///
/// impl Handler for Numbers {
///     fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
///         Box::pin(async move {
///             let Content::Event(event) = item.content else {
///                 return Err(Failure::new("the item is a row").never());
///             };
///             let Ok(number) = event.payload().parse::<u64>() else {
///                 return Ok(Outcome::dead("the payload is no number")); // no use to try again
///             };
///             println!("{number}, claim {}, try {}", cx.fence(), cx.attempt());
///             Ok(Outcome::Done)
///         })
///     }
/// }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Works on one item. An error is a failure; the retry policy says what follows.
    fn handle(&self, item: Item, cx: Context) -> Handling<'_>;

    /// Whether items should be claimed at all. Asked before each claim, so it answers at once.
    fn readiness(&self) -> Readiness {
        Readiness::Ready
    }

    /// Whether this event, once it is done, is owed to the endpoints that want its topic; see
    /// [`FanOut`](crate::FanOut).
    fn fans_out(&self, _event: &Event) -> bool {
        false
    }

    /// How long this item may be worked on, where that is longer than the settings say.
    fn max_hold(&self, _item: &Item) -> Option<Duration> {
        None
    }

    /// What follows a failure of an item; `None`: the retry policy says it. It answers at once.
    fn judge(&self, _failed: &Failed<'_>) -> Option<Outcome> {
        None
    }
}

/// An item that failed.
#[derive(Clone, Copy, Debug)]
pub struct Failed<'a> {
    /// How often it had failed before.
    pub failures: u32,
    /// The endpoint that it is owed to, by its number, if it is a delivery.
    pub endpoint: Option<u32>,
    /// What went wrong, and what the handler said of trying again.
    pub failure: &'a Failure,
    /// From 0 to 1, to spread the next try by.
    pub chance: f64,
}

/// Whether items should be claimed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They should.
    Ready,
    /// Not now: what they are handed to is down or has no room. It is asked again soon.
    Away {
        /// Why, for people.
        reason: String,
    },
}

/// What a handler is told beside its item.
#[derive(Clone)]
pub struct Context {
    pub(crate) id: ItemId,
    pub(crate) token: Token,
    pub(crate) fence: Fence,
    pub(crate) attempt: u32,
    pub(crate) deadline: Instant,
    pub(crate) cancel: CancellationToken,
    pub(crate) call: CallSlot,
}

impl Context {
    /// The item's handle.
    pub fn id(&self) -> ItemId {
        self.id
    }

    /// The number of the claim. Hand it to the receiver: it refuses what is older than what it has
    /// seen.
    pub fn fence(&self) -> Fence {
        self.fence
    }

    /// Proves the hold to the store, for what a handler writes there under it. It is a secret of
    /// this process: a receiver is handed the fence.
    pub fn token(&self) -> &Token {
        &self.token
    }

    /// How often the item was held before, and once more: 1 at the first try.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How long the handler may go on; then it is stopped.
    pub fn time_left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    /// Notes that a call leaves now for the delivery that is worked on. It is written down with the
    /// settle, however it ends: one that is stopped before [`replied`](Self::replied) as aborted,
    /// or as superseded when the hold was lost. For other items nothing is noted.
    pub fn calling(&self) {
        self.call.begin(self.fence, self.attempt);
    }

    /// Notes what came back, and how the call ended: delivered or failed.
    pub fn replied(&self, reply: Reply, outcome: AttemptOutcome) {
        self.call.end(reply, outcome);
    }

    /// Whether the hold on the item is over: what is done from now on may be done twice.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Waits until the hold on the item is over. A handler is dropped then by itself; this is for
    /// work that it has handed to others.
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

/// Handlers by topic: the first pattern that takes an event's topic has it.
#[derive(Clone, Default)]
pub struct Topics {
    routes: Vec<(TopicPattern, Arc<dyn Handler>)>,
}

impl Topics {
    /// None yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Hands events of these topics to `handler`, unless an earlier pattern takes them.
    pub fn add(&mut self, pattern: TopicPattern, handler: Arc<dyn Handler>) {
        self.routes.push((pattern, handler));
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.routes.is_empty()
    }

    fn choose(&self, topic: &str) -> Option<&Arc<dyn Handler>> {
        self.routes
            .iter()
            .find(|(pattern, _)| pattern.matches(topic))
            .map(|(_, handler)| handler)
    }
}

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list()
            .entries(self.routes.iter().map(|(pattern, _)| pattern))
            .finish()
    }
}

impl Handler for Topics {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        let topic = item.content.event().map_or("", Event::topic);
        if let Some(handler) = self.choose(topic) {
            return handler.handle(item, cx);
        }
        // A failure, not a death: a newer worker that knows the topic may come.
        let error = format!("no handler takes the topic {topic:?}");
        Box::pin(async move { Err(Failure::new(error)) })
    }

    /// Claims go on as long as one of the handlers can take something; the others' items fail or
    /// are given back by themselves.
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
        let handler = self.choose(event.topic());
        handler.is_some_and(|handler| handler.fans_out(event))
    }

    fn max_hold(&self, item: &Item) -> Option<Duration> {
        let topic = item.content.event().map_or("", Event::topic);
        self.choose(topic)?.max_hold(item)
    }
}

/// A handler made of an async function of an event.
pub struct EventFn<F>(F);

impl<F, Fut> EventFn<F>
where
    F: Fn(Event, Context) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, Failure>> + Send + 'static,
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
    Fut: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        match item.content {
            tenure_core::Content::Event(event) => Box::pin((self.0)(event, cx)),
            tenure_core::Content::Delivery(_) | tenure_core::Content::Row(_) => Box::pin(async {
                Err(Failure::new(
                    "the item is no event, and its handler takes events",
                ))
            }),
        }
    }
}

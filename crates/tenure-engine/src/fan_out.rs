//! Fan-out: a done event becomes a delivery for every subscribed endpoint, in the settle of the
//! event.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Event, Failure, Item, Outcome};

use crate::handler::{Context, Failed, Handler, Handling, Readiness, Rules};

/// Wraps a handler and fans out the events that it completes. The store writes the deliveries in
/// the transaction that settles the event, so there is exactly one delivery for each event and
/// subscribed endpoint, even after crashes.
///
/// ```
/// use std::sync::Arc;
/// use tenure_core::TopicPattern;
/// use tenure_engine::{FanOut, AcceptAll, Topics};
///
/// let mut topics = Topics::new();
/// // … routes to publishers; endpoints may subscribe to all other topics:
/// topics.add(TopicPattern::any(), Arc::new(AcceptAll));
/// let handler = FanOut::new(Arc::new(topics));
/// # drop(handler);
/// ```
#[derive(Clone)]
pub struct FanOut(Arc<dyn Handler>);

impl FanOut {
    /// Wraps `inner`.
    pub fn new(inner: Arc<dyn Handler>) -> Self {
        Self(inner)
    }
}

impl fmt::Debug for FanOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FanOut")
    }
}

impl Handler for FanOut {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        self.0.handle(item, cx)
    }

    fn readiness(&self) -> Readiness {
        self.0.readiness()
    }

    fn fans_out(&self, _: &Event) -> bool {
        true
    }

    fn route_name(&self, item: &Item) -> Option<&str> {
        self.0.route_name(item)
    }

    fn max_hold(&self, item: &Item) -> Option<Duration> {
        self.0.max_hold(item)
    }

    fn judge(&self, failed: &Failed<'_>) -> Option<Outcome> {
        self.0.judge(failed)
    }

    fn rules(&self, item: &Item) -> Rules {
        self.0.rules(item)
    }
}

/// Completes every event at once, for events that only go to endpoints. Use it as the last route,
/// within a [`FanOut`].
#[derive(Clone, Copy, Debug)]
pub struct AcceptAll;

impl Handler for AcceptAll {
    fn handle(&self, item: Item, _: Context) -> Handling<'_> {
        let is_event = item.content.event().is_some() && item.content.delivery().is_none();
        Box::pin(std::future::ready(if is_event {
            Ok(Outcome::Done)
        } else {
            Err(Failure::new("the item is not an event"))
        }))
    }

    fn fans_out(&self, _: &Event) -> bool {
        true
    }
}

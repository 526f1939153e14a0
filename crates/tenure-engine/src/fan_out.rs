//! Fan-out: an event that is done becomes a delivery for every endpoint that it is owed to, in the
//! settle of the event.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Event, Failure, Item, Outcome};

use crate::handler::{Context, Failed, Handler, Handling, Readiness};

/// Hands items to another handler; the events that it has done are fanned out. The deliveries are
/// written in the transaction that settles the event, so there is one for each event and endpoint,
/// whatever crashes.
///
/// ```
/// use std::sync::Arc;
/// use tenure_core::TopicPattern;
/// use tenure_engine::{FanOut, Owed, Topics};
///
/// let mut topics = Topics::new();
/// // … routes to publishers; what none of them takes may still be owed to endpoints:
/// topics.add(TopicPattern::any(), Arc::new(Owed));
/// let handler = FanOut::new(Arc::new(topics));
/// # drop(handler);
/// ```
#[derive(Clone)]
pub struct FanOut(Arc<dyn Handler>);

impl FanOut {
    /// Fans out what `inner` has done.
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

    fn max_hold(&self, item: &Item) -> Option<Duration> {
        self.0.max_hold(item)
    }

    fn judge(&self, failed: &Failed<'_>) -> Option<Outcome> {
        self.0.judge(failed)
    }
}

/// Is done with every event at once: for events that are only owed to endpoints. Stands behind the
/// routes, within a [`FanOut`].
#[derive(Clone, Copy, Debug)]
pub struct Owed;

impl Handler for Owed {
    fn handle(&self, item: Item, _: Context) -> Handling<'_> {
        let is_event = item.content.event().is_some() && item.content.delivery().is_none();
        Box::pin(std::future::ready(if is_event {
            Ok(Outcome::Done)
        } else {
            Err(Failure::new("the item is no event"))
        }))
    }

    fn fans_out(&self, _: &Event) -> bool {
        true
    }
}

//! Fallback handler of a worker that fans out: an event without a handler of its own is done at
//! once if an endpoint is subscribed to its topic.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Store, StoreError};
use tenure_core::webhook::{EndpointSettings, EndpointState};
use tenure_core::{Event, Failure, Item, Outcome};
use tenure_engine::{Context, Handler, Handling};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// Lifetime of the cached endpoints.
const KNOWN: Duration = Duration::from_secs(1);
/// Delay of an event without a subscribed endpoint: one may still be added.
const WAIT: Duration = Duration::from_mins(1);

/// Outcome of an event that no endpoint is subscribed to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsubscribed {
    /// It fails: its handler may be missing.
    Fails,
    /// It waits: this process has no handlers.
    Waits,
}

/// Settles events as done if an endpoint is subscribed to their topic.
pub(crate) struct SubscribedTopics {
    store: Arc<dyn Store>,
    unsubscribed: Unsubscribed,
    /// Endpoints, and the time at which they were read.
    known: Mutex<Option<(Instant, Vec<EndpointSettings>)>>,
}

impl SubscribedTopics {
    pub(crate) fn new(store: Arc<dyn Store>, unsubscribed: Unsubscribed) -> Self {
        Self {
            store,
            unsubscribed,
            known: Mutex::new(None),
        }
    }

    /// Returns true if an endpoint is subscribed to this topic, enabled or disabled.
    async fn takes(&self, topic: &str) -> Result<bool, StoreError> {
        let mut known = self.known.lock().await;
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() >= KNOWN) {
            let endpoints = read(self.store.as_ref()).await?;
            *known = Some((Instant::now(), endpoints));
        }
        let mut endpoints = known.iter().flat_map(|(_, endpoints)| endpoints);
        Ok(endpoints.any(|endpoint| endpoint.takes(topic)))
    }

    async fn judge(&self, event: &Event) -> Result<Outcome, Failure> {
        let topic = event.topic();
        // Tenure's own events need no receiver.
        let is_own = topic.split('.').next() == Some(EndpointSettings::OWN_TOPICS);
        if is_own || self.takes(topic).await? {
            return Ok(Outcome::Done);
        }
        match self.unsubscribed {
            // A failure, not dead: a newer worker may know the topic.
            Unsubscribed::Fails => Err(Failure::new(format!(
                "no handler takes the topic {topic:?}, and no endpoint is subscribed to it"
            ))),
            Unsubscribed::Waits => Ok(Outcome::snooze(WAIT)),
        }
    }
}

async fn read(store: &dyn Store) -> Result<Vec<EndpointSettings>, StoreError> {
    let all = store.webhooks().all_endpoints().await?.into_iter();
    let there = all.filter(|endpoint| !matches!(endpoint.state, EndpointState::Removed { .. }));
    Ok(there.map(|endpoint| endpoint.settings).collect())
}

impl Handler for SubscribedTopics {
    fn handle(&self, item: Item, _: Context) -> Handling<'_> {
        Box::pin(async move {
            match (item.content.event(), item.content.delivery()) {
                (Some(event), None) => self.judge(event).await,
                _ => Err(Failure::new("the item is not an event")),
            }
        })
    }

    fn fans_out(&self, _: &Event) -> bool {
        true
    }
}

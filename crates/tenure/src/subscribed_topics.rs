//! Fallback handler of a worker that fans out: takes the events that endpoints are subscribed to,
//! and settles them as done at once.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Store, StoreError};
use tenure_core::webhook::{EndpointSettings, EndpointState};
use tenure_core::{Event, Failure, Item, Outcome, TopicPattern};
use tenure_engine::{Context, Handler, Handling, TopicsAnswer};
use tokio::sync::{Mutex, MutexGuard};
use tokio::time::Instant;

/// Lifetime of the cached endpoints.
const KNOWN: Duration = Duration::from_secs(2);
/// Delay of an event whose last endpoint was removed after the claim.
const WAIT: Duration = Duration::from_mins(1);

/// Settles events as done if an endpoint is subscribed to their topic; takes no others.
pub(crate) struct SubscribedTopics {
    store: Arc<dyn Store>,
    /// Endpoints, and the time at which they were read.
    known: Mutex<Option<(Instant, Vec<EndpointSettings>)>>,
}

impl SubscribedTopics {
    pub(crate) fn new(store: Arc<dyn Store>) -> Self {
        Self {
            store,
            known: Mutex::new(None),
        }
    }

    /// Endpoints that are not removed, enabled or disabled. If the store fails, those of before.
    async fn known(&self) -> MutexGuard<'_, Option<(Instant, Vec<EndpointSettings>)>> {
        let mut known = self.known.lock().await;
        if known.as_ref().is_none_or(|(at, _)| at.elapsed() >= KNOWN)
            && let Ok(endpoints) = read(self.store.as_ref()).await
        {
            *known = Some((Instant::now(), endpoints));
        }
        known
    }

    async fn judge(&self, event: &Event) -> Outcome {
        let topic = event.topic();
        let known = self.known().await;
        let mut endpoints = known.iter().flat_map(|(_, endpoints)| endpoints);
        if is_own(topic) || endpoints.any(|endpoint| endpoint.takes(topic)) {
            return Outcome::Done;
        }
        Outcome::snooze(WAIT)
    }
}

/// Returns true for Tenure's own events, which need no receiver.
fn is_own(topic: &str) -> bool {
    topic.split('.').next() == Some(EndpointSettings::OWN_TOPICS)
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
                (Some(event), None) => Ok(self.judge(event).await),
                _ => Err(Failure::new("the item is not an event")),
            }
        })
    }

    fn topics(&self) -> TopicsAnswer<'_> {
        Box::pin(async {
            let known = self.known().await;
            let endpoints = known.iter().flat_map(|(_, endpoints)| endpoints);
            let subscribed = endpoints.flat_map(|endpoint| endpoint.topics.iter().cloned());
            let own = TopicPattern::new(&format!("{}.*", EndpointSettings::OWN_TOPICS));
            subscribed.chain(own).collect()
        })
    }

    fn fans_out(&self, _: &Event) -> bool {
        true
    }
}

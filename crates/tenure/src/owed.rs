//! The handler that stands behind all others of a worker that fans out: events that are owed to
//! endpoints and to nobody else are done at once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Store, StoreError};
use tenure_core::webhook::{EndpointSettings, EndpointState};
use tenure_core::{Event, Failure, Item, Outcome};
use tenure_engine::{Context, Handler, Handling};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// How long the endpoints are believed to be as they were read.
const KNOWN: Duration = Duration::from_secs(1);
/// How long an event waits that may be owed to an endpoint that is yet to come.
const WAIT: Duration = Duration::from_mins(1);

/// What becomes of an event that is owed to no endpoint, either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unowed {
    /// It fails: somebody forgot it.
    Fails,
    /// It waits: there is nobody else in this process that it could be for.
    Waits,
}

/// Is done with the events that some endpoint is subscribed to.
pub(crate) struct OwedTopics {
    store: Arc<dyn Store>,
    unowed: Unowed,
    known: Mutex<Option<Known>>,
}

struct Known {
    at: Instant,
    endpoints: Vec<EndpointSettings>,
}

impl OwedTopics {
    pub(crate) fn new(store: Arc<dyn Store>, unowed: Unowed) -> Self {
        Self {
            store,
            unowed,
            known: Mutex::new(None),
        }
    }

    /// Whether some endpoint is subscribed to this topic, now or once it is enabled again.
    async fn takes(&self, topic: &str) -> Result<bool, StoreError> {
        let mut known = self.known.lock().await;
        let is_fresh = known.as_ref().is_some_and(|it| it.at.elapsed() < KNOWN);
        if !is_fresh {
            let endpoints = read(self.store.as_ref()).await?;
            let at = Instant::now();
            *known = Some(Known { at, endpoints });
        }
        let mut endpoints = known.iter().flat_map(|known| &known.endpoints);
        Ok(endpoints.any(|endpoint| endpoint.takes(topic)))
    }

    async fn judge(&self, event: &Event) -> Result<Outcome, Failure> {
        let topic = event.topic();
        // What Tenure itself tells is nobody's duty.
        let is_own = topic.split('.').next() == Some(EndpointSettings::OWN_TOPICS);
        if is_own || self.takes(topic).await? {
            return Ok(Outcome::Done);
        }
        match self.unowed {
            // A failure, not a death: a newer worker that knows the topic may come.
            Unowed::Fails => Err(Failure::new(format!(
                "no handler takes the topic {topic:?}, and no endpoint is subscribed to it"
            ))),
            Unowed::Waits => Ok(Outcome::snooze(WAIT)),
        }
    }
}

async fn read(store: &dyn Store) -> Result<Vec<EndpointSettings>, StoreError> {
    let all = store.webhooks().all_endpoints().await?.into_iter();
    let there = all.filter(|endpoint| !matches!(endpoint.state, EndpointState::Removed { .. }));
    Ok(there.map(|endpoint| endpoint.settings).collect())
}

impl fmt::Debug for OwedTopics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwedTopics")
    }
}

impl Handler for OwedTopics {
    fn handle(&self, item: Item, _: Context) -> Handling<'_> {
        Box::pin(async move {
            match (item.content.event(), item.content.delivery()) {
                (Some(event), None) => self.judge(event).await,
                _ => Err(Failure::new("the item is no event")),
            }
        })
    }

    fn fans_out(&self, _: &Event) -> bool {
        true
    }
}

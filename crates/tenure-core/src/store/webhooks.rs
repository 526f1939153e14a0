//! Webhooks: the store operations for senders and operators.

use std::fmt;

use super::Answer;
use crate::guard::Guarded;
use crate::item::ItemId;
use crate::time::Timestamp;
use crate::webhook::{
    Call, CallRecord, Endpoint, EndpointHealth, EndpointId, EndpointSettings, EndpointState,
    NewEndpoint,
};

/// Replaces the settings, secrets and state of an endpoint, if its version has not changed.
#[derive(Clone)]
pub struct ChangeEndpoint {
    /// Name of the endpoint.
    pub id: EndpointId,
    /// Version that the change is based on.
    pub version: u64,
    /// New settings.
    pub settings: EndpointSettings,
    /// New secrets and headers, encrypted; see [`Endpoint::sealed`].
    pub sealed: String,
    /// New state. The store replaces the timestamp with its own current time.
    pub state: EndpointState,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl fmt::Debug for ChangeEndpoint {
    /// Omits the encrypted secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeEndpoint")
            .field("id", &self.id)
            .field("version", &self.version)
            .field("settings", &self.settings)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// Lanes with due deliveries, for a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// Time of the store.
    pub now: Timestamp,
    /// Rises with every change of any endpoint, including health.
    pub version: u64,
    /// Lanes of endpoints with due deliveries, unordered.
    pub lanes: Vec<EndpointLane>,
}

/// A lane of an endpoint: deliveries of one priority, or those that must be claimed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointLane {
    /// [Number](Endpoint::number) of the endpoint.
    pub endpoint: u32,
    /// Step: 0 to 7 by priority, most urgent first; 8 for deliveries to be claimed alone.
    pub step: u8,
}

impl EndpointLane {
    /// Step of the deliveries that must be claimed alone.
    pub const ALONE: u8 = 8;
}

/// Page size for reading all endpoints.
const PAGE: u32 = 1_000;

/// Store operations for endpoints and their deliveries.
pub trait Webhooks: Send + Sync + fmt::Debug {
    /// Adds an endpoint and returns it as stored; `None` if the name is in use, perhaps by a
    /// removed one.
    fn add_endpoint<'a>(
        &'a self,
        endpoint: &'a NewEndpoint,
        now: Option<Timestamp>,
    ) -> Answer<'a, Option<Endpoint>>;

    /// Lists endpoints by name, including removed ones, starting after `after`, at most `limit`.
    fn endpoints<'a>(
        &'a self,
        after: Option<&'a EndpointId>,
        limit: u32,
    ) -> Answer<'a, Vec<Endpoint>>;

    /// Reads all endpoints by name, including removed ones, page by page.
    fn all_endpoints(&self) -> Answer<'_, Vec<Endpoint>> {
        Box::pin(async move {
            let mut all: Vec<Endpoint> = Vec::new();
            loop {
                let after = all.last().map(|endpoint| endpoint.id.clone());
                let page = self.endpoints(after.as_ref(), PAGE).await?;
                let is_last = u32::try_from(page.len()).is_ok_and(|len| len < PAGE);
                all.extend(page);
                if is_last {
                    return Ok(all);
                }
            }
        })
    }

    /// Reads one endpoint, which may be a removed one.
    fn endpoint<'a>(&'a self, id: &'a EndpointId) -> Answer<'a, Option<Endpoint>>;

    /// Changes an endpoint. The store refuses the change if the endpoint is unknown or its version
    /// has changed. Enabling an endpoint clears its health. A removed endpoint stays removed.
    fn change_endpoint<'a>(&'a self, change: &'a ChangeEndpoint) -> Answer<'a, Guarded<Endpoint>>;

    /// Saves the health of an endpoint. The last write wins; processes need not agree exactly.
    fn keep_health<'a>(&'a self, id: &'a EndpointId, health: &'a EndpointHealth) -> Answer<'a, ()>;

    /// Reads the work for a sender. Touches only lanes with pending deliveries.
    fn due_deliveries(&self, now: Option<Timestamp>) -> Answer<'_, Due>;

    /// Records calls whose delivery could not be settled because the lease was lost. An existing
    /// record stays unchanged.
    fn record_calls<'a>(&'a self, calls: &'a [Call], now: Option<Timestamp>) -> Answer<'a, ()>;

    /// Calls of a delivery, ordered by fence.
    fn calls(&self, delivery: ItemId) -> Answer<'_, Vec<CallRecord>>;
}

/// A store that supports endpoints.
pub trait ProvidesWebhooks: Send + Sync + fmt::Debug {
    /// Webhooks of this store.
    fn webhooks(&self) -> &dyn Webhooks;
}

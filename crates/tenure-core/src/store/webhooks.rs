//! Webhooks: what the sender and operators ask of a store about endpoints and calls.

use std::fmt;

use super::Answer;
use crate::guard::Guarded;
use crate::item::ItemId;
use crate::time::Timestamp;
use crate::webhook::{
    Call, CallRecord, Endpoint, EndpointId, EndpointSettings, EndpointState, Health, NewEndpoint,
};

/// Changes an endpoint whole, if it is still as it was seen.
#[derive(Clone)]
pub struct ChangeEndpoint {
    /// Which.
    pub id: EndpointId,
    /// The version that was seen.
    pub version: u64,
    /// Its rules from now on.
    pub settings: EndpointSettings,
    /// What is sealed from now on.
    pub sealed: String,
    /// Its state from now on. The moment in it is the store's, whatever is said here.
    pub state: EndpointState,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl fmt::Debug for ChangeEndpoint {
    /// Without what is sealed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChangeEndpoint")
            .field("id", &self.id)
            .field("version", &self.version)
            .field("settings", &self.settings)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

/// What there is for a sender to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Due {
    /// The store's clock.
    pub now: Timestamp,
    /// Rises with every change of any endpoint, its health included.
    pub version: u64,
    /// The lanes of endpoints that have due deliveries, in no order.
    pub lanes: Vec<EndpointLane>,
}

/// A lane of an endpoint: the deliveries of one urgency, or those that must be claimed alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointLane {
    /// The endpoint's [number](Endpoint::number).
    pub endpoint: u32,
    /// Which lane: 0 to 7 by urgency, the most urgent first; 8 for those to be claimed alone.
    pub step: u8,
}

impl EndpointLane {
    /// The step of the deliveries that must be claimed alone.
    pub const ALONE: u8 = 8;
}

/// Endpoints that are read at a time, when all are.
const PAGE: u32 = 1_000;

/// Endpoints, and what is owed to them.
pub trait Webhooks: Send + Sync + fmt::Debug {
    /// Adds an endpoint and answers with it as it is kept; `None`: the name is taken, perhaps by
    /// one that was removed.
    fn add_endpoint<'a>(
        &'a self,
        endpoint: &'a NewEndpoint,
        now: Option<Timestamp>,
    ) -> Answer<'a, Option<Endpoint>>;

    /// Endpoints in the order of their names, those behind `after`, at most `limit`; also removed
    /// ones.
    fn endpoints<'a>(
        &'a self,
        after: Option<&'a EndpointId>,
        limit: u32,
    ) -> Answer<'a, Vec<Endpoint>>;

    /// All endpoints in the order of their names, also removed ones, read page by page.
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

    /// One endpoint, also a removed one.
    fn endpoint<'a>(&'a self, id: &'a EndpointId) -> Answer<'a, Option<Endpoint>>;

    /// Changes an endpoint. Refused as unknown, or as changed when the version is another. Enabling
    /// one clears its health. A removed one stays removed.
    fn change_endpoint<'a>(&'a self, change: &'a ChangeEndpoint) -> Answer<'a, Guarded<Endpoint>>;

    /// Writes down how an endpoint fares. The last one who says counts; that is good enough.
    fn keep_health<'a>(&'a self, id: &'a EndpointId, health: &'a Health) -> Answer<'a, ()>;

    /// What there is for a sender to do. Touches only lanes that have something in line.
    fn due_deliveries(&self, now: Option<Timestamp>) -> Answer<'_, Due>;

    /// Writes down calls that no settle goes with: the lease was lost. One that is on record
    /// already stays as it is.
    fn record_calls<'a>(&'a self, calls: &'a [Call], now: Option<Timestamp>) -> Answer<'a, ()>;

    /// The calls of a delivery, in the order of their fences.
    fn calls(&self, delivery: ItemId) -> Answer<'_, Vec<CallRecord>>;
}

/// A store that keeps endpoints.
pub trait KeepsWebhooks: Send + Sync + fmt::Debug {
    /// What keeps them.
    fn webhooks(&self) -> &dyn Webhooks;
}

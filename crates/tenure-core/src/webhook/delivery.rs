//! Delivery: one event owed to one endpoint.

use std::sync::Arc;

use crate::event::Event;
use crate::item::ItemId;

/// One event owed to one endpoint: what an item of an endpoint's line carries. The event is stored
/// once, however many endpoints it is owed to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The number of the endpoint's line; see [`Endpoint::number`](super::Endpoint::number).
    pub endpoint: u32,
    /// The event's handle.
    pub source: ItemId,
    /// The event.
    pub event: Arc<Event>,
}

impl Delivery {
    /// The ordering key of a delivery: events of one key keep their order per endpoint.
    ///
    /// ```
    /// use tenure_core::webhook::{Delivery, EndpointId};
    ///
    /// let endpoint = EndpointId::new("billing")?;
    /// assert_eq!(Delivery::key(&endpoint, "customer-7"), "billing/customer-7");
    /// # Ok::<(), tenure_core::Invalid>(())
    /// ```
    pub fn key(endpoint: &super::EndpointId, key: &str) -> String {
        format!("{endpoint}/{key}")
    }
}

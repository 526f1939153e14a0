//! Delivery: one event for one endpoint.

use std::sync::Arc;

use crate::event::Event;
use crate::item::ItemId;

/// Content of a delivery. Deliveries to several endpoints share one stored event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// Number of the endpoint's lane; see [`Endpoint::number`](super::Endpoint::number).
    pub endpoint: u32,
    /// Id of the event.
    pub source: ItemId,
    /// Event to deliver.
    pub event: Arc<Event>,
}

impl Delivery {
    /// Ordering key of a delivery: events of one key keep their order per endpoint.
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

//! Endpoints, and what is owed to them.

use tenure_core::store::{Answer, ChangeEndpoint, Due, KeepsWebhooks, StoreError, Webhooks};
use tenure_core::webhook::{Call, CallRecord, Endpoint, EndpointId, Health, NewEndpoint};
use tenure_core::{Guarded, Invalid, ItemId, Timestamp};

use super::MemoryStore;

fn unbuilt<T>() -> Answer<'static, T> {
    let problem = Invalid::new("webhooks", "not there yet", "a later version");
    Box::pin(async move { Err(StoreError::invalid("webhooks", &problem)) })
}

impl KeepsWebhooks for MemoryStore {
    fn webhooks(&self) -> &dyn Webhooks {
        self
    }
}

impl Webhooks for MemoryStore {
    fn add_endpoint<'a>(
        &'a self,
        _endpoint: &'a NewEndpoint,
        _now: Option<Timestamp>,
    ) -> Answer<'a, Option<Endpoint>> {
        unbuilt()
    }

    fn endpoints<'a>(
        &'a self,
        _after: Option<&'a EndpointId>,
        _limit: u32,
    ) -> Answer<'a, Vec<Endpoint>> {
        unbuilt()
    }

    fn endpoint<'a>(&'a self, _id: &'a EndpointId) -> Answer<'a, Option<Endpoint>> {
        unbuilt()
    }

    fn change_endpoint<'a>(&'a self, _change: &'a ChangeEndpoint) -> Answer<'a, Guarded<Endpoint>> {
        unbuilt()
    }

    fn keep_health<'a>(&'a self, _id: &'a EndpointId, _health: &'a Health) -> Answer<'a, ()> {
        unbuilt()
    }

    fn due_deliveries(&self, _now: Option<Timestamp>) -> Answer<'_, Due> {
        unbuilt()
    }

    fn record_calls<'a>(&'a self, _calls: &'a [Call], _now: Option<Timestamp>) -> Answer<'a, ()> {
        unbuilt()
    }

    fn calls(&self, _delivery: ItemId) -> Answer<'_, Vec<CallRecord>> {
        unbuilt()
    }
}

//! Endpoints and their deliveries.

use std::collections::BTreeMap;

use tenure_core::store::{Answer, ChangeEndpoint, Due, EndpointLane, ProvidesWebhooks, Webhooks};
use tenure_core::webhook::{
    Call, CallRecord, Disabled as Why, Endpoint, EndpointHealth, EndpointId, EndpointState,
    NewEndpoint,
};
use tenure_core::{Guarded, ItemId, Refusal, Timestamp};

use super::rules::Rules;
use super::{MemoryState, MemoryStore};
use crate::error_text::error_text;
use crate::lane::{queue_of, step_of};

/// All endpoints, including removed ones.
#[derive(Debug, Default)]
pub(super) struct Endpoints {
    by_id: BTreeMap<EndpointId, Endpoint>,
    /// Increases with every change of any endpoint.
    version: u64,
}

impl Endpoints {
    /// Iterates over the endpoints by name.
    pub(super) fn all(&self) -> impl Iterator<Item = &Endpoint> {
        self.by_id.values()
    }

    /// Iterates over the numbers of the endpoints, ascending.
    pub(super) fn numbers(&self) -> impl Iterator<Item = i32> {
        let mut numbers: Vec<u32> = self.all().map(|endpoint| endpoint.number).collect();
        numbers.sort_unstable();
        numbers.into_iter().map(u32::cast_signed)
    }

    fn change(&mut self, change: &ChangeEndpoint, now: Timestamp) -> Guarded<Endpoint> {
        let Some(endpoint) = self.by_id.get_mut(&change.id) else {
            return Guarded::Refused(Refusal::NotFound);
        };
        if endpoint.version != change.version {
            return Guarded::Refused(Refusal::Changed);
        }
        let state = state_after(&endpoint.state, &change.state, now);
        if state == EndpointState::Enabled && endpoint.state != EndpointState::Enabled {
            endpoint.health = EndpointHealth::default();
        }
        endpoint.state = state;
        endpoint.settings = change.settings.clone();
        endpoint.sealed.clone_from(&change.sealed);
        endpoint.version += 1;
        self.version += 1;
        Guarded::Accepted(endpoint.clone())
    }
}

/// Returns the state after a requested change. An endpoint that already is in that state keeps its
/// `since`.
fn state_after(before: &EndpointState, asked: &EndpointState, now: Timestamp) -> EndpointState {
    use EndpointState::{Disabled, Enabled, Removed};
    match (before, asked) {
        (Removed { since }, _) => Removed { since: *since },
        (_, Enabled) => Enabled,
        (before, Disabled { why, .. }) => Disabled {
            why: match why {
                Why::ByHand(words) => Why::ByHand(error_text(words)),
                Why::Gone | Why::Requested | Why::Failing => why.clone(),
            },
            since: match before {
                Disabled { since, .. } => *since,
                Enabled | Removed { .. } => now,
            },
        },
        (_, Removed { .. }) => Removed { since: now },
    }
}

impl ProvidesWebhooks for MemoryStore {
    fn webhooks(&self) -> &dyn Webhooks {
        self
    }
}

impl Webhooks for MemoryStore {
    fn add_endpoint<'a>(
        &'a self,
        endpoint: &'a NewEndpoint,
        now: Option<Timestamp>,
    ) -> Answer<'a, Option<Endpoint>> {
        Box::pin(async move {
            let now = self.moment(now);
            Ok(self.state().add_endpoint(endpoint, now))
        })
    }

    fn endpoints<'a>(
        &'a self,
        after: Option<&'a EndpointId>,
        limit: u32,
    ) -> Answer<'a, Vec<Endpoint>> {
        Box::pin(async move {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let state = self.state();
            let all = state.endpoints.all();
            let behind = all.filter(|endpoint| after.is_none_or(|after| endpoint.id > *after));
            Ok(behind.take(limit).cloned().collect())
        })
    }

    fn endpoint<'a>(&'a self, id: &'a EndpointId) -> Answer<'a, Option<Endpoint>> {
        Box::pin(async move { Ok(self.state().endpoints.by_id.get(id).cloned()) })
    }

    fn change_endpoint<'a>(&'a self, change: &'a ChangeEndpoint) -> Answer<'a, Guarded<Endpoint>> {
        Box::pin(async move {
            let now = self.moment(change.now);
            Ok(self.state().endpoints.change(change, now))
        })
    }

    fn keep_health<'a>(&'a self, id: &'a EndpointId, health: &'a EndpointHealth) -> Answer<'a, ()> {
        Box::pin(async move {
            let endpoints = &mut self.state().endpoints;
            if let Some(endpoint) = endpoints.by_id.get_mut(id) {
                endpoint.health = health.clone();
                endpoints.version += 1;
            }
            Ok(())
        })
    }

    fn due_deliveries(&self, now: Option<Timestamp>) -> Answer<'_, Due> {
        Box::pin(async move {
            let now = self.moment(now);
            Ok(self.state().due_deliveries(&self.rules, now))
        })
    }

    fn record_calls<'a>(&'a self, calls: &'a [Call], now: Option<Timestamp>) -> Answer<'a, ()> {
        Box::pin(async move {
            let now = self.moment(now);
            self.state().keep_calls(calls, |_| false, &self.rules, now);
            Ok(())
        })
    }

    fn calls(&self, delivery: ItemId) -> Answer<'_, Vec<CallRecord>> {
        Box::pin(async move {
            let state = self.state();
            let calls = state.items.get(&delivery).map(|kept| kept.calls.values());
            Ok(calls.into_iter().flatten().cloned().collect())
        })
    }
}

impl MemoryState {
    /// Allocates the number of a queue or an endpoint.
    pub(super) fn draw_number(&mut self) -> i32 {
        self.last_number += 1;
        self.last_number
    }

    fn add_endpoint(&mut self, new: &NewEndpoint, now: Timestamp) -> Option<Endpoint> {
        if self.endpoints.by_id.contains_key(&new.id) {
            return None;
        }
        let endpoint = Endpoint {
            id: new.id.clone(),
            number: self.draw_number().unsigned_abs(),
            settings: new.settings.clone(),
            sealed: new.sealed.clone(),
            state: EndpointState::Enabled,
            health: EndpointHealth::default(),
            version: 1,
            created_at: now,
        };
        let endpoints = &mut self.endpoints;
        endpoints.version += 1;
        endpoints.by_id.insert(new.id.clone(), endpoint.clone());
        Some(endpoint)
    }

    fn due_deliveries(&self, rules: &Rules, now: Timestamp) -> Due {
        let waiting = self.ready.iter();
        let due = waiting.filter(|(_, from, id)| id.is_delivery() && (rules.is_due)(*from, now));
        // In lane order, so that duplicates are adjacent.
        let mut lanes: Vec<EndpointLane> = due
            .map(|(lane, _, _)| EndpointLane {
                endpoint: queue_of(*lane).unsigned_abs(),
                step: step_of(*lane),
            })
            .collect();
        lanes.dedup();
        Due {
            now,
            version: self.endpoints.version,
            lanes,
        }
    }
}

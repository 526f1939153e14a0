//! Fan-out: writes a delivery of each done event for every subscribed endpoint, and records the
//! calls made for deliveries.

use std::sync::Arc;

use tenure_core::store::Settle;
use tenure_core::webhook::{Call, EndpointId};
use tenure_core::{ItemId, Timestamp};

use super::rules::{Owing, Rules};
use super::{MemoryState, StoredItem};
use crate::calls::kept_call;

impl MemoryState {
    /// Writes the deliveries of the events that a settle names for fan-out, in the order of the
    /// events, so that deliveries keep the order of their key.
    pub(super) fn fan_out(
        &mut self,
        settle: &Settle,
        is_done_now: impl Fn(&ItemId) -> bool,
        rules: &Rules,
        now: Timestamp,
    ) {
        let mut named = settle.fan_out.clone();
        named.retain(|(id, _)| !id.is_delivery());
        named.sort();
        for (event, topic) in named {
            let endpoints = self.endpoints.all().map(|endpoint| {
                let is_wanted = endpoint.receives(&topic);
                (endpoint.id.clone(), endpoint.number, is_wanted)
            });
            for (endpoint, number, is_wanted) in endpoints.collect::<Vec<_>>() {
                let number = number.cast_signed();
                let owing = Owing {
                    is_done_now: is_done_now(&event),
                    is_wanted,
                    is_owed: self.owed.contains(&(event, number)),
                };
                if (rules.owes)(owing) {
                    self.owe(event, (&endpoint, number), rules, now);
                }
            }
        }
    }

    fn owe(
        &mut self,
        source: ItemId,
        (endpoint, number): (&EndpointId, i32),
        rules: &Rules,
        now: Timestamp,
    ) {
        let Some(event) = self.items.get(&source).map(|kept| Arc::clone(&kept.event)) else {
            return;
        };
        let key = event.key();
        let delivery = StoredItem {
            source: Some(source),
            key: key.map(|key| (rules.delivery_key)(endpoint, key)),
            // The delay of the event is over already.
            available_at: now,
            ..StoredItem::new(Arc::clone(&event), number, now)
        };
        self.last_delivery += 1;
        let id = ItemId::new(self.last_delivery);
        self.owed.insert((source, number));
        self.items.insert(id, delivery);
        self.place(id, rules, now);
    }

    /// Returns whether an event has deliveries.
    pub(super) fn is_owed(&self, event: ItemId) -> bool {
        let all = (event, i32::MIN)..=(event, i32::MAX);
        self.owed.range(all).next().is_some()
    }

    /// Records calls, unless they are on record already.
    pub(super) fn keep_calls(
        &mut self,
        calls: &[Call],
        is_refused: impl Fn(&ItemId) -> bool,
        rules: &Rules,
        now: Timestamp,
    ) {
        for call in calls {
            let outcome = (rules.call_outcome)(call.outcome, is_refused(&call.delivery));
            if let Some(kept) = self.items.get_mut(&call.delivery) {
                let record = kept_call(call, outcome, now);
                kept.calls.entry(call.fence).or_insert(record);
            }
        }
    }
}

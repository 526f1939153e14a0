//! Fan-out: events that are done become deliveries, one for each endpoint that wants them; and the
//! calls that are made for deliveries are written down.

use std::sync::Arc;

use tenure_core::store::Settle;
use tenure_core::webhook::{Call, EndpointId};
use tenure_core::{ItemId, Timestamp};

use super::rules::{Owing, Rules};
use super::{Kept, Shelf};
use crate::calls::kept_call;

impl Shelf {
    /// Writes the deliveries of the events that a settle names for it, in the order of the events:
    /// those of one key keep theirs.
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
                let is_wanted = endpoint.is_owed(&topic);
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

    /// Writes a delivery.
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
        let key = event.ordering_key();
        let delivery = Kept {
            source: Some(source),
            key: key.map(|key| (rules.delivery_key)(endpoint, key)),
            // The event has waited its time.
            available_at: now,
            ..Kept::new(Arc::clone(&event), number, now)
        };
        self.last_delivery += 1;
        let id = ItemId::new(self.last_delivery);
        self.owed.insert((source, number));
        self.items.insert(id, delivery);
        self.place(id, rules, now);
    }

    /// Whether there are deliveries of an event.
    pub(super) fn is_owed(&self, event: ItemId) -> bool {
        let all = (event, i32::MIN)..=(event, i32::MAX);
        self.owed.range(all).next().is_some()
    }

    /// Writes calls down, unless they are on record.
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

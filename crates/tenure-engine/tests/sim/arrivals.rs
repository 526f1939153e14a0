//! Order of arrivals at a receiver. If a handler answers *done*, the event has arrived there.
//!
//! One receiver stores the highest fence of each key, refuses older fences and drops repeated
//! events: it must see each key in the order of its events. Another receiver accepts everything:
//! only repeats and late answers of replaced holders may be out of order there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_core::{Fence, ItemId, OutcomeKind};

use crate::log::Run;
use crate::model::Model;

/// All arrivals in order.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Vec<(ItemId, Fence)>);

/// State of a receiver for one key.
#[derive(Debug, Default)]
struct KeyArrivals {
    fence: Option<Fence>,
    ids: BTreeSet<ItemId>,
    /// Latest event that the fence let pass.
    last: Option<ItemId>,
}

impl Arrivals {
    pub(crate) fn add(&mut self, run: &Run) {
        self.0.push((run.id, run.fence));
    }

    /// Returns the violations of the order. Replayed events have a new position and are left out.
    pub(crate) fn check(&self, model: &Model) -> Vec<String> {
        let mut violations = Vec::new();
        let mut keys: BTreeMap<&Arc<str>, KeyArrivals> = BTreeMap::new();
        for (id, fence) in &self.0 {
            let Some(item) = model.items.get(id) else {
                continue;
            };
            let Some(key) = &item.key else { continue };
            if item.counters.generation > 0 {
                continue;
            }
            let arrived = keys.entry(key).or_default();
            let was_replaced = item.past_holds.iter().any(|past| {
                past.fence == *fence
                    && matches!(past.outcome, OutcomeKind::Lapsed | OutcomeKind::Buried)
            });
            let is_first = arrived.ids.insert(*id);
            let is_late = arrived.ids.last().is_some_and(|last| last > id);
            if is_first && is_late && !was_replaced {
                violations.push(format!(
                    "order: item {id} arrived after a later one of {key}"
                ));
            }
            if arrived.fence.is_some_and(|newest| *fence < newest) {
                continue;
            }
            arrived.fence = Some(*fence);
            if is_first && arrived.last.is_some_and(|last| last > *id) {
                violations.push(format!(
                    "order: item {id} of {key} passed the fence after a later one"
                ));
            }
            arrived.last = arrived.last.max(Some(*id));
        }
        violations
    }
}

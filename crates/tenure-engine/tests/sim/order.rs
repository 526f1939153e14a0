//! Order as a receiver sees it. What a handler answers as done has arrived there.
//!
//! A receiver that keeps the highest fence of each key, refuses what is older and drops the events
//! that it has had, sees each key in the order in which its events were written. One that takes
//! everything sees out of order only repeats, and late words of holders who had been replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tenure_core::{Fence, ItemId, Word};

use crate::log::Run;
use crate::shadow::Shadow;

/// Everything that has arrived, in order.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Vec<(ItemId, Fence)>);

/// What a receiver knows of a key.
#[derive(Debug, Default)]
struct Seen {
    fence: Option<Fence>,
    ids: BTreeSet<ItemId>,
    /// Taken by one that looks at fences, the last one.
    last: Option<ItemId>,
}

impl Arrivals {
    pub(crate) fn add(&mut self, run: &Run) {
        self.0.push((run.id, run.fence));
    }

    /// What is out of order. One that was replayed has a new place, so it is left out.
    pub(crate) fn check(&self, shadow: &Shadow) -> Vec<String> {
        let mut violations = Vec::new();
        let mut keys: BTreeMap<&Arc<str>, Seen> = BTreeMap::new();
        for (id, fence) in &self.0 {
            let Some(thing) = shadow.things.get(id) else {
                continue;
            };
            let Some(key) = &thing.key else { continue };
            if thing.counters.generation > 0 {
                continue;
            }
            let seen = keys.entry(key).or_default();
            let was_replaced = thing.ended.iter().any(|ended| {
                ended.fence == *fence && matches!(ended.word, Word::Lapsed | Word::Buried)
            });
            let is_first = seen.ids.insert(*id);
            let is_late = seen.ids.last().is_some_and(|last| last > id);
            if is_first && is_late && !was_replaced {
                violations.push(format!(
                    "order: item {id} arrived after a later one of {key}"
                ));
            }
            if seen.fence.is_some_and(|newest| *fence < newest) {
                continue;
            }
            seen.fence = Some(*fence);
            if is_first && seen.last.is_some_and(|last| last > *id) {
                violations.push(format!(
                    "order: item {id} of {key} passed the fence after a later one"
                ));
            }
            seen.last = seen.last.max(Some(*id));
        }
        violations
    }
}

//! Prune: deletes settled items past their retention, the oldest first.

use tenure_core::store::{Answer, Prune, Pruned, Pruner};
use tenure_core::{ItemId, State, Timestamp};

use super::rules::Rules;
use super::{MemoryState, MemoryStore};
use crate::cluster::WORKERS_KEPT;

impl Pruner for MemoryStore {
    fn prune<'a>(&'a self, prune: &'a Prune) -> Answer<'a, Pruned> {
        Box::pin(async move {
            let now = self.moment(prune.now);
            Ok(self.state().prune(prune, &self.rules, now))
        })
    }
}

impl MemoryState {
    fn prune(&mut self, prune: &Prune, rules: &Rules, now: Timestamp) -> Pruned {
        let limit = usize::try_from(prune.limit).unwrap_or(usize::MAX);
        if limit == 0 {
            return Pruned::default();
        }
        let (done, dead) = (now.before(prune.done), now.before(prune.dead));
        let done_ids = self.settled_before(State::Done, done, rules);
        let dead_ids = self.settled_before(State::Dead, dead, rules);
        // If the last delivery of an event was deleted, the next round can delete the event.
        let has_deliveries = |ids: &[ItemId]| ids.iter().any(|id| id.is_delivery());
        let more = done_ids.len() >= limit
            || dead_ids.len() >= limit
            || has_deliveries(&done_ids)
            || has_deliveries(&dead_ids);
        let mut pruned = Pruned {
            more,
            ..Pruned::default()
        };
        for id in done_ids.into_iter().take(limit) {
            self.forget(id);
            pruned.done += 1;
        }
        for id in dead_ids.into_iter().take(limit) {
            self.forget(id);
            pruned.dead += 1;
        }
        // The journal is kept for the longer of the two retentions.
        for kept in self.items.values_mut() {
            let is_recent = |settled_at: Timestamp| settled_at >= done.min(dead);
            kept.journal.retain(|line| is_recent(line.settled_at));
        }
        self.cluster.forget_workers(now.before(WORKERS_KEPT));
        pruned
    }

    /// Returns the items that reached `state` before a moment, the oldest first. Leaves out items
    /// that block their key, because an operator must decide about them, and events that still have
    /// deliveries, because the deliveries show the event's content.
    fn settled_before(&self, state: State, before: Timestamp, rules: &Rules) -> Vec<ItemId> {
        let mut found: Vec<(Timestamp, ItemId)> = self
            .items
            .iter()
            .filter_map(|(id, kept)| {
                let (is, since) = (rules.settled)(kept.settled(), kept.first_done())?;
                let is_over = is == state && (rules.is_past)(since, before);
                (is_over && !self.is_blocking(*id) && (rules.may_go)(self.is_owed(*id)))
                    .then_some((since, *id))
            })
            .collect();
        found.sort();
        found.into_iter().map(|(_, id)| id).collect()
    }

    /// Deletes an item with its dedupe key and its entry in `owed`.
    fn forget(&mut self, id: ItemId) {
        if let Some(kept) = self.items.remove(&id)
            && let Some(source) = kept.source
        {
            self.owed.remove(&(source, kept.queue));
        }
        self.dedupe.retain(|_, winner| *winner != id);
    }
}

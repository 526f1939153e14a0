//! The ordering keys of the outbox.

use tenure_core::store::{Answer, Bury, KeyFacts, KeyFilter, KeyRecord, Keys, Pause, Skip};
use tenure_core::{Guarded, ItemId, Refusal, Timestamp};

use super::rules::Rules;
use super::turns::KeyOrder;
use super::{MemoryState, MemoryStore, Place};
use crate::error_text::error_text;
use crate::page::page_limit;

impl Keys for MemoryStore {
    fn keys(&self, filter: KeyFilter, limit: u32) -> Answer<'_, Vec<KeyRecord>> {
        Box::pin(async move {
            let now = self.moment(None);
            Ok(self.state().keys(filter, limit, now))
        })
    }

    fn blocked_keys<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> Answer<'a, Vec<(String, ItemId)>> {
        Box::pin(async move {
            let state = self.state();
            let behind = state.keys.iter();
            let behind =
                behind.filter(|(key, order)| order.is_blocked && Some(key.as_str()) > after);
            let heads = behind.filter_map(|(key, order)| Some((key.clone(), order.head?)));
            Ok(heads
                .take(usize::try_from(page_limit(limit)).unwrap_or(usize::MAX))
                .collect())
        })
    }

    fn key<'a>(&'a self, key: &'a str) -> Answer<'a, Option<KeyRecord>> {
        Box::pin(async move {
            let now = self.moment(None);
            let state = self.state();
            let order = state.keys.get(key);
            Ok(order.map(|order| state.key_record(key, order, now)))
        })
    }

    fn pause_key<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        Box::pin(async move {
            let now = self.moment(None);
            let mut state = self.state();
            match pause {
                Pause::Begin => state.pause_key(key, now),
                Pause::End => state.resume_key(key, &self.rules, now),
            }
            Ok(())
        })
    }

    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        Box::pin(async move {
            let now = self.moment(skip.now);
            Ok(self.state().skip(skip, &self.rules, now))
        })
    }
}

impl MemoryState {
    fn keys(&self, filter: KeyFilter, limit: u32, now: Timestamp) -> Vec<KeyRecord> {
        let mut found: Vec<(&String, &KeyOrder)> = self
            .keys
            .iter()
            .filter(|(_, order)| filter == KeyFilter::Open || self.is_stuck(order, now))
            .collect();
        let is_last = |order: &KeyOrder| filter == KeyFilter::Stuck && !order.is_blocked;
        found.sort_by_key(|(key, order)| (is_last(order), order.since, *key));
        found
            .into_iter()
            .take(usize::try_from(limit).unwrap_or(usize::MAX))
            .map(|(key, order)| self.key_record(key, order, now))
            .collect()
    }

    fn is_stuck(&self, order: &KeyOrder, now: Timestamp) -> bool {
        let head = order.head.and_then(|id| self.items.get(&id));
        let is_long = head.is_some() && order.since < now.before(KeyFilter::LONG);
        order.is_blocked
            || head.is_some_and(|kept| kept.counters.failures + kept.counters.crashes > 0)
            || ((order.is_paused || is_long) && !order.backlog.is_empty())
    }

    fn key_record(&self, key: &str, order: &KeyOrder, now: Timestamp) -> KeyRecord {
        let facts = KeyFacts {
            name: key.to_owned(),
            since: Some(order.since),
            head: order.head.and_then(|id| self.record(id)),
            is_blocked: order.is_blocked,
            is_paused: order.is_paused,
            waiting: u64::try_from(order.backlog.len()).unwrap_or(u64::MAX),
        };
        facts.record(now)
    }

    fn pause_key(&mut self, key: &str, now: Timestamp) {
        let entry = self.keys.entry(key.to_owned());
        let order = entry.or_insert_with(|| KeyOrder::new(now));
        if order.is_paused {
            return;
        }
        order.is_paused = true;
        order.since = now;
        let Some(head) = order.head else {
            return;
        };
        let place = self.items.get(&head).map(|kept| &kept.place);
        if matches!(place, Some(Place::Ready(_))) {
            order.head = None;
            self.take_out(head);
            self.put_behind(head);
        }
    }

    fn resume_key(&mut self, key: &str, rules: &Rules, now: Timestamp) {
        let Some(order) = self.keys.get_mut(key).filter(|order| order.is_paused) else {
            return;
        };
        order.is_paused = false;
        if order.head.is_none() {
            order.since = now;
            self.promote(key, rules, now);
        }
    }

    /// Prefixes the last error of a dead head with a note about the operator who skipped it.
    fn note_skip(&mut self, skip: &Skip, id: ItemId, now: Timestamp) {
        let Some(kept) = self.items.get_mut(&id) else {
            return;
        };
        let before = match &kept.last_error {
            Some(error) => format!("{}{error}", Skip::BEFORE),
            None => String::new(),
        };
        let note = format!("{}{before}", error_text(&skip.note(now)));
        kept.last_error = Some(error_text(&note));
    }

    fn skip(&mut self, skip: &Skip, rules: &Rules, now: Timestamp) -> Guarded<ItemId> {
        let head = self.keys.get(&skip.key).and_then(|order| order.head);
        let Some(id) = head else {
            return Guarded::Refused(Refusal::NotFound);
        };
        if !skip.is_meant(id) {
            return Guarded::Refused(Refusal::Lost);
        }
        if self.unblock(&skip.key, id) {
            self.note_skip(skip, id, now);
            self.promote(&skip.key, rules, now);
            return Guarded::Accepted(id);
        }
        let bury = Bury {
            id,
            token: skip.token.clone(),
            reason: skip.reason.clone(),
            now: skip.now,
        };
        match self.bury(&bury, rules, now) {
            Guarded::Accepted(()) => Guarded::Accepted(id),
            Guarded::Refused(why) => Guarded::Refused(why),
        }
    }
}

//! Turns: the head of each key, the items behind it, and the next head.
//!
//! A key that has no head and is not paused is dropped. While a key has a head, all its other open
//! items are behind it: in its backlog, or with it under one lease.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::store::Claim;
use tenure_core::{Fate, ItemId, KeyStatus, RUN_MAX, Timestamp, Token};

use super::rules::Rules;
use super::{Destination, MemoryState, Place, StoredItem};

/// The waiting items of a key, as turn and id.
pub(crate) type Backlog = BTreeSet<(i64, ItemId)>;

/// An ordering key that has open items or is paused.
#[derive(Debug)]
pub(super) struct KeyOrder {
    /// The head: in `ready`, the first held item, or dead and blocking.
    pub(super) head: Option<ItemId>,
    /// The head is dead, and the other items wait for an operator.
    pub(super) is_blocked: bool,
    pub(super) is_paused: bool,
    /// Time at which the key got this head, or was paused.
    pub(super) since: Timestamp,
    /// The waiting items, by turn.
    pub(super) backlog: Backlog,
}

impl KeyOrder {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self {
            head: None,
            is_blocked: false,
            is_paused: false,
            since: now,
            backlog: Backlog::new(),
        }
    }

    /// Sets or clears the head.
    pub(super) fn turn_to(&mut self, head: Option<ItemId>, now: Timestamp) {
        if self.head != head && !self.is_paused {
            self.since = now;
        }
        self.head = head;
    }
}

impl StoredItem {
    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl MemoryState {
    pub(super) fn key_of(&self, id: ItemId) -> Option<String> {
        self.items.get(&id)?.key().map(str::to_owned)
    }

    /// Places a new or returned item: ready, or behind the head of its key.
    pub(super) fn place(&mut self, id: ItemId, rules: &Rules, now: Timestamp) {
        match self.key_of(id) {
            None => self.make_ready(id, rules),
            Some(key) if (rules.is_idle)(self.keys.get(&key).map(|of| of.is_paused)) => {
                let order = self.keys.entry(key).or_insert(KeyOrder::new(now));
                order.turn_to(Some(id), now);
                self.make_ready(id, rules);
            }
            Some(_) => self.put_behind(id),
        }
    }

    pub(super) fn put_behind(&mut self, id: ItemId) {
        let Some(kept) = self.items.get_mut(&id) else {
            return;
        };
        kept.place = Place::Backlog;
        let turn = kept.turn.unwrap_or(id.number());
        if let Some(order) = kept.key().and_then(|key| self.keys.get_mut(key)) {
            order.backlog.insert((turn, id));
        }
    }

    /// Removes an item from `ready` or from its backlog.
    pub(super) fn take_out(&mut self, id: ItemId) {
        let Some(kept) = self.items.get(&id) else {
            return;
        };
        if let Place::Ready(lane) = kept.place {
            self.ready.remove(&(lane, kept.available_at, id));
        }
        let order = kept.key().and_then(|key| self.keys.get_mut(key));
        if let (Place::Backlog, Some(order)) = (&kept.place, order) {
            let turn = kept.turn.unwrap_or(id.number());
            order.backlog.remove(&(turn, id));
        }
    }

    /// Promotes the first item of the backlog to head, unless the key is held back. A key without a
    /// backlog is idle and is dropped.
    pub(super) fn promote(&mut self, key: &str, rules: &Rules, now: Timestamp) {
        let Some(order) = self.keys.get_mut(key) else {
            return;
        };
        order.turn_to(None, now);
        if (rules.is_held_back)(order.is_paused) {
            return;
        }
        let Some((turn, id)) = (rules.next)(&order.backlog) else {
            self.keys.remove(key);
            return;
        };
        order.backlog.remove(&(turn, id));
        order.turn_to(Some(id), now);
        self.make_ready(id, rules);
    }

    /// Selects the items to claim from the due items, which are the first of their lanes: all items
    /// without a key, and as many heads as fit, each with the run behind it.
    pub(super) fn with_runs(
        &self,
        due: &[ItemId],
        (claim, most): (&Claim, usize),
        rules: &Rules,
        now: Timestamp,
    ) -> Vec<ItemId> {
        let is_keyed = |id: &ItemId| self.key_of(*id).is_some();
        let unkeyed = due.iter().filter(|id| !is_keyed(id)).count();
        let run_length = usize::try_from((rules.run_length)(claim)).unwrap_or(usize::MAX);
        let mut room = most.saturating_sub(unkeyed);
        let mut chosen = Vec::new();
        for id in due {
            if !is_keyed(id) {
                chosen.push(*id);
                continue;
            }
            let mut run = vec![*id];
            let followers = self.followers(*id, rules, now).into_iter();
            run.extend(followers.take_while(|id| self.stray(*id, claim).is_none()));
            run.truncate(run_length.min(room));
            room -= run.len();
            chosen.extend(run);
        }
        chosen
    }

    /// Returns the items that may be claimed together with a head, in order.
    fn followers(&self, head: ItemId, rules: &Rules, now: Timestamp) -> Vec<ItemId> {
        let Some(first) = self.items.get(&head) else {
            return Vec::new();
        };
        let order = first.key().and_then(|key| self.keys.get(key));
        let Some(order) = order.filter(|_| (rules.may_lead)(first.counters)) else {
            return Vec::new();
        };
        let may_follow = |id: ItemId| {
            self.items.get(&id).is_some_and(|kept| {
                kept.turn.is_none()
                    && kept.lane(rules) == first.lane(rules)
                    && (rules.is_due)(kept.available_at, now)
            })
        };
        let longest = usize::try_from(RUN_MAX).unwrap_or(usize::MAX);
        let behind: Vec<(ItemId, bool)> = order
            .backlog
            .iter()
            .take(longest)
            .map(|(_, id)| (*id, may_follow(*id)))
            .collect();
        (rules.run)(&behind)
    }

    /// Returns the items with a key that are held under a lease: by key, each in its order.
    pub(super) fn runs(&self, token: &Token) -> BTreeMap<String, Vec<ItemId>> {
        let mut runs: BTreeMap<String, Vec<ItemId>> = BTreeMap::new();
        let held = self.leases.get(token).map(|leased| &leased.ids);
        for id in held.into_iter().flatten() {
            if let Some(key) = self.key_of(*id) {
                runs.entry(key).or_default().push(*id);
            }
        }
        runs
    }

    /// Returns the destination of an item that becomes the head of its key again: the backlog while
    /// the key is held back.
    pub(super) fn back_of(
        &self,
        key: &str,
        from: Option<Timestamp>,
        rules: &Rules,
    ) -> Destination<'static> {
        match self.keys.get(key) {
            Some(order) if (rules.is_held_back)(order.is_paused) => Destination::Backlog(from),
            _ => Destination::Ready(from),
        }
    }

    /// Updates a key after the fates of its run have been applied.
    pub(super) fn go_on(
        &mut self,
        key: &str,
        (fates, standing): (&[(ItemId, Fate)], KeyStatus),
        rules: &Rules,
        now: Timestamp,
    ) {
        let first = fates.iter().find(|(_, fate)| *fate != Fate::Ended);
        match (first, self.keys.get_mut(key)) {
            (Some((id, _)), Some(order)) => {
                order.is_blocked = standing == KeyStatus::Blocked;
                let is_behind = self
                    .items
                    .get(id)
                    .is_some_and(|kept| matches!(kept.place, Place::Backlog));
                order.turn_to(Some(*id).filter(|_| !is_behind), now);
            }
            _ => self.promote(key, rules, now),
        }
    }

    /// Unblocks a key if this item is its dead head; returns whether it was.
    pub(super) fn unblock(&mut self, key: &str, id: ItemId) -> bool {
        let order = self.keys.get_mut(key);
        let blocked = order.filter(|order| order.is_blocked && order.head == Some(id));
        let is_blocking = blocked.is_some();
        if let Some(order) = blocked {
            order.is_blocked = false;
        }
        is_blocking
    }

    /// Returns whether an item is dead and blocks its key.
    pub(super) fn is_blocking(&self, id: ItemId) -> bool {
        let key = self.items.get(&id).and_then(StoredItem::key);
        key.and_then(|key| self.keys.get(key))
            .is_some_and(|order| order.is_blocked && order.head == Some(id))
    }

    /// Returns the first other item of the same key that is held under the same lease.
    pub(super) fn held_with(&self, id: ItemId) -> Option<ItemId> {
        let kept = self.items.get(&id)?;
        let Place::Leased(token) = &kept.place else {
            return None;
        };
        let mut run = self.runs(token).remove(kept.key()?)?.into_iter();
        run.find(|held| *held != id)
    }

    /// Updates a key after one of its items was buried; `rest` is the next item of the key held
    /// under the same lease.
    pub(super) fn close_ranks(
        &mut self,
        (key, id): (&str, ItemId),
        rest: Option<ItemId>,
        rules: &Rules,
        now: Timestamp,
    ) {
        match (rest, self.keys.get_mut(key)) {
            (_, Some(order)) if order.head != Some(id) => {}
            (Some(_), Some(order)) => order.turn_to(rest, now),
            _ => self.promote(key, rules, now),
        }
    }
}

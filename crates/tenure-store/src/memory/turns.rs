//! Turns: who is the head of its domain, who waits behind it, and who is the next.
//!
//! A domain has a head or is paused, or it is not kept. While it has a head, all its other open
//! items are behind it: in its backlog, or with it under one lease.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::store::Claim;
use tenure_core::{Fate, ItemId, RUN_MAX, Standing, Timestamp, Token};

use super::rules::Rules;
use super::{Kept, Place, Shelf, To};

/// What waits in a domain: turns and ids.
pub(super) type Backlog = BTreeSet<(i64, ItemId)>;

/// An ordering key of which something is open, or which is paused.
#[derive(Debug)]
pub(super) struct Domain {
    /// Whose turn it is: in `ready`, the first that is held, or dead and blocking.
    pub(super) head: Option<ItemId>,
    /// The head is dead, and the others wait for an operator.
    pub(super) is_blocked: bool,
    pub(super) is_paused: bool,
    /// When it got this head, or was paused.
    pub(super) since: Timestamp,
    /// What waits, by turn.
    pub(super) backlog: Backlog,
}

impl Domain {
    pub(super) const fn new(now: Timestamp) -> Self {
        Self {
            head: None,
            is_blocked: false,
            is_paused: false,
            since: now,
            backlog: Backlog::new(),
        }
    }

    /// Gives it this head, or none.
    pub(super) fn turn_to(&mut self, head: Option<ItemId>, now: Timestamp) {
        if self.head != head && !self.is_paused {
            self.since = now;
        }
        self.head = head;
    }
}

impl Kept {
    pub(super) fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }
}

impl Shelf {
    pub(super) fn key_of(&self, id: ItemId) -> Option<String> {
        self.items.get(&id)?.key().map(str::to_owned)
    }

    /// Gives an item that has come, or come back, its place.
    pub(super) fn place(&mut self, id: ItemId, rules: &Rules, now: Timestamp) {
        match self.key_of(id) {
            None => self.make_ready(id, rules),
            Some(key) if (rules.is_idle)(self.domains.get(&key)) => {
                let domain = self.domains.entry(key).or_insert(Domain::new(now));
                domain.turn_to(Some(id), now);
                self.make_ready(id, rules);
            }
            Some(_) => self.put_behind(id),
        }
    }

    /// Puts an item into the backlog of its domain.
    pub(super) fn put_behind(&mut self, id: ItemId) {
        let Some(kept) = self.items.get_mut(&id) else {
            return;
        };
        kept.place = Place::Backlog;
        let turn = kept.turn.unwrap_or(id.number());
        if let Some(domain) = kept.key().and_then(|key| self.domains.get_mut(key)) {
            domain.backlog.insert((turn, id));
        }
    }

    /// Takes an item out of where it waits.
    pub(super) fn take_out(&mut self, id: ItemId) {
        let Some(kept) = self.items.get(&id) else {
            return;
        };
        if let Place::Ready(lane) = kept.place {
            self.ready.remove(&(lane, kept.available_at, id));
        }
        let domain = kept.key().and_then(|key| self.domains.get_mut(key));
        if let (Place::Backlog, Some(domain)) = (&kept.place, domain) {
            let turn = kept.turn.unwrap_or(id.number());
            domain.backlog.remove(&(turn, id));
        }
    }

    /// Goes on with the first of the backlog, unless the domain is held back. Without any it is
    /// idle, and forgotten.
    pub(super) fn promote(&mut self, key: &str, rules: &Rules, now: Timestamp) {
        let Some(domain) = self.domains.get_mut(key) else {
            return;
        };
        domain.turn_to(None, now);
        if (rules.is_held_back)(domain) {
            return;
        }
        let Some((turn, id)) = (rules.next)(&domain.backlog) else {
            self.domains.remove(key);
            return;
        };
        domain.backlog.remove(&(turn, id));
        domain.turn_to(Some(id), now);
        self.make_ready(id, rules);
    }

    /// What is claimed of these items that are due, the first ones of their lanes: all that have no
    /// key, and of the heads as many as there is room for, each with a run behind it.
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
            run.extend(self.followers(*id, rules, now));
            run.truncate(run_length.min(room));
            room -= run.len();
            chosen.extend(run);
        }
        chosen
    }

    /// The items that may be claimed with a head, in their order.
    fn followers(&self, head: ItemId, rules: &Rules, now: Timestamp) -> Vec<ItemId> {
        let Some(first) = self.items.get(&head) else {
            return Vec::new();
        };
        let domain = first.key().and_then(|key| self.domains.get(key));
        let Some(domain) = domain.filter(|_| (rules.may_lead)(first.counters)) else {
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
        let behind: Vec<(ItemId, bool)> = domain
            .backlog
            .iter()
            .take(longest)
            .map(|(_, id)| (*id, may_follow(*id)))
            .collect();
        (rules.run)(&behind)
    }

    /// What is held of domains under a lease: by key, each in its order.
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

    /// Where an item of this domain goes that is its head again: nowhere but into the backlog while
    /// the domain is held back.
    pub(super) fn back_of(&self, key: &str, from: Option<Timestamp>, rules: &Rules) -> To<'static> {
        match self.domains.get(key) {
            Some(domain) if (rules.is_held_back)(domain) => To::Backlog(from),
            _ => To::Ready(from),
        }
    }

    /// What becomes of a domain whose run had these fates, which have been carried out.
    pub(super) fn go_on(
        &mut self,
        key: &str,
        (fates, standing): (&[(ItemId, Fate)], Standing),
        rules: &Rules,
        now: Timestamp,
    ) {
        let first = fates.iter().find(|(_, fate)| *fate != Fate::Ended);
        match (first, self.domains.get_mut(key)) {
            (Some((id, _)), Some(domain)) => {
                domain.is_blocked = standing == Standing::Blocked;
                let is_behind = self
                    .items
                    .get(id)
                    .is_some_and(|kept| matches!(kept.place, Place::Backlog));
                domain.turn_to(Some(*id).filter(|_| !is_behind), now);
            }
            _ => self.promote(key, rules, now),
        }
    }

    /// Ends the block of a domain by its dead head, if it is this one; whether it was.
    pub(super) fn unblock(&mut self, key: &str, id: ItemId) -> bool {
        let domain = self.domains.get_mut(key);
        let blocked = domain.filter(|domain| domain.is_blocked && domain.head == Some(id));
        let is_blocking = blocked.is_some();
        if let Some(domain) = blocked {
            domain.is_blocked = false;
        }
        is_blocking
    }

    /// Whether an item is dead and blocks its domain.
    pub(super) fn is_blocking(&self, id: ItemId) -> bool {
        let key = self.items.get(&id).and_then(Kept::key);
        key.and_then(|key| self.domains.get(key))
            .is_some_and(|domain| domain.is_blocked && domain.head == Some(id))
    }

    /// The first of what is held of an item's domain with that item.
    pub(super) fn held_with(&self, id: ItemId) -> Option<ItemId> {
        let kept = self.items.get(&id)?;
        let Place::Leased(token) = &kept.place else {
            return None;
        };
        let mut run = self.runs(token).remove(kept.key()?)?.into_iter();
        run.find(|held| *held != id)
    }

    /// What becomes of a domain without this item of it, which was buried; `rest` is what was held
    /// of it with that item.
    pub(super) fn close_ranks(
        &mut self,
        (key, id): (&str, ItemId),
        rest: Option<ItemId>,
        rules: &Rules,
        now: Timestamp,
    ) {
        match (rest, self.domains.get_mut(key)) {
            (_, Some(domain)) if domain.head != Some(id) => {}
            (Some(_), Some(domain)) => domain.turn_to(rest, now),
            _ => self.promote(key, rules, now),
        }
    }
}

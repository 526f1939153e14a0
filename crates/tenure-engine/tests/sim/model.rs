//! Model of the store, derived from the log alone, so that it does not trust the store.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Reaped, Rest};
use tenure_core::{
    Counters, Fate, Fence, Guarded, ItemId, OnDead, Outcome, OutcomeKind, State, Timestamp, Token,
    reason, settle_run,
};

use crate::log::Line;

/// An item of the model.
#[derive(Debug)]
pub(crate) struct ModelItem {
    pub(crate) key: Option<Arc<str>>,
    /// Position in its key.
    pub(crate) turn: u64,
    pub(crate) state: State,
    pub(crate) holder: Option<Token>,
    pub(crate) last_fence: Option<Fence>,
    pub(crate) available_at: Timestamp,
    pub(crate) counters: Counters,
    pub(crate) dead_reason: Option<String>,
    pub(crate) past_holds: Vec<PastHold>,
}

/// A past lease on an item.
#[derive(Clone, Debug)]
pub(crate) struct PastHold {
    pub(crate) token: Token,
    pub(crate) fence: Fence,
    pub(crate) outcome: OutcomeKind,
    pub(crate) settled_at: Timestamp,
    /// End of the lease on the world clock.
    pub(crate) at: Duration,
}

/// A lease of the model.
#[derive(Debug)]
pub(crate) struct ModelLease {
    pub(crate) worker: Arc<str>,
    pub(crate) fence: Fence,
    pub(crate) until: Timestamp,
    pub(crate) claimed_at: Duration,
    pub(crate) ids: BTreeSet<ItemId>,
}

/// Model of the store.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) items: BTreeMap<ItemId, ModelItem>,
    pub(crate) leases: BTreeMap<Token, ModelLease>,
    /// Keys blocked by a dead item, and that item.
    blocked: BTreeMap<Arc<str>, ItemId>,
    fence: Option<Fence>,
    turns: u64,
    pub(crate) violations: Vec<String>,
}

/// A claim, as logged.
pub(crate) struct Claimed<'a> {
    pub(crate) worker: &'a Arc<str>,
    pub(crate) token: &'a Token,
    pub(crate) fence: Fence,
    pub(crate) until: Timestamp,
    pub(crate) limit: u32,
    pub(crate) ids: &'a [ItemId],
}

/// A settle, as logged.
pub(crate) struct SettleFact<'a> {
    pub(crate) token: &'a Token,
    pub(crate) items: &'a [(ItemId, Outcome, Guarded)],
    pub(crate) rest: Rest,
    /// Number of settled items that the settle did not name.
    pub(crate) ended: u32,
    pub(crate) on_dead: OnDead,
}

impl Model {
    pub(crate) fn violation(&mut self, line: &Line, law: &str) {
        self.violations.push(format!("{law}: {line}"));
    }

    pub(crate) fn enqueued(&mut self, id: ItemId, key: Option<Arc<str>>, available_at: Timestamp) {
        let item = ModelItem {
            key,
            turn: self.turn(),
            state: State::Pending,
            holder: None,
            last_fence: None,
            available_at,
            counters: Counters::default(),
            dead_reason: None,
            past_holds: Vec::new(),
        };
        self.items.insert(id, item);
    }

    pub(crate) fn claimed(&mut self, line: &Line, claimed: &Claimed<'_>) {
        if self.fence.is_some_and(|last| claimed.fence <= last) {
            self.violation(line, "a fence did not rise");
        }
        self.fence = self.fence.max(Some(claimed.fence));
        if u32::try_from(claimed.ids.len()).is_ok_and(|count| count > claimed.limit) {
            self.violation(line, "a claim took more than its limit");
        }
        if self.leases.contains_key(claimed.token) {
            self.violation(line, "a token was used twice");
        }
        let mut laws = self.claimed_out_of_turn(claimed.ids);
        let mut lonely = 0;
        for id in claimed.ids {
            let Some(item) = self.items.get_mut(id) else {
                laws.push("a claim of an item that was never written");
                continue;
            };
            if item.state != State::Pending {
                laws.push("a claim of an item that is held or settled (one holder at a time)");
            }
            if item.available_at > line.now {
                laws.push("a claim of an item that is not due yet");
            }
            if item.last_fence.is_some_and(|last| claimed.fence <= last) {
                laws.push("a fence of an item did not rise");
            }
            lonely += u32::from(item.counters.crashes >= 2);
            item.state = State::Claimed;
            item.holder = Some(claimed.token.clone());
            item.last_fence = Some(claimed.fence);
        }
        if lonely > 0 && claimed.ids.len() > 1 {
            laws.push("an item that lapsed twice was claimed with others");
        }
        for law in laws {
            self.violation(line, law);
        }
        let lease = ModelLease {
            worker: Arc::clone(claimed.worker),
            fence: claimed.fence,
            until: claimed.until,
            claimed_at: line.at,
            ids: claimed.ids.iter().copied().collect(),
        };
        self.leases.insert(claimed.token.clone(), lease);
    }

    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    pub(crate) fn key(&self, id: ItemId) -> Option<&Arc<str>> {
        self.items.get(&id)?.key.as_ref()
    }

    /// Returns the items held under this token by key, in order.
    fn runs(&self, token: &Token) -> BTreeMap<Arc<str>, Vec<ItemId>> {
        let mut runs: BTreeMap<Arc<str>, Vec<ItemId>> = BTreeMap::new();
        for id in self.leases.get(token).iter().flat_map(|lease| &lease.ids) {
            if let Some(key) = self.key(*id) {
                runs.entry(Arc::clone(key)).or_default().push(*id);
            }
        }
        runs
    }

    /// Returns the rules broken by a claim: it must take a key from its head, in order, and only if
    /// no item of the key is held.
    fn claimed_out_of_turn(&self, ids: &[ItemId]) -> Vec<&'static str> {
        let mut taken: BTreeMap<&Arc<str>, Vec<ItemId>> = BTreeMap::new();
        for id in ids {
            if let Some(key) = self.key(*id) {
                taken.entry(key).or_default().push(*id);
            }
        }
        let mut laws = Vec::new();
        for (key, taken) in taken {
            let of_key = self.items.iter();
            let mut open: Vec<_> = of_key
                .filter(|(_, item)| item.key.as_ref() == Some(key) && !item.state.is_terminal())
                .collect();
            open.sort_by_key(|(_, item)| item.turn);
            if open.iter().any(|(_, item)| item.state == State::Claimed) {
                laws.push("law 1: a claim of a key while one of its items is held");
            }
            if !open.iter().map(|(id, _)| **id).take(taken.len()).eq(taken) {
                laws.push("law 7: a claim out of turn");
            }
            if self.blocked.contains_key(key) {
                laws.push("law 7: a claim of a key that is blocked");
            }
        }
        laws
    }

    pub(crate) fn renewed(
        &mut self,
        line: &Line,
        (token, term): (&Token, Duration),
        answer: Guarded<Timestamp>,
    ) {
        let law = match (self.leases.get_mut(token), answer) {
            (Some(lease), Guarded::Accepted(until)) if line.now < lease.until => {
                let right = lease.until.max(line.now.after(term));
                lease.until = until;
                (until != right).then_some("a renewal moved the end of a lease wrongly")
            }
            (Some(lease), Guarded::Accepted(until)) => {
                lease.until = until;
                Some("a renewal of a lease that was over was accepted")
            }
            (None, Guarded::Accepted(_)) => Some("a stale renewal was accepted"),
            (Some(lease), Guarded::Refused(_)) if line.now < lease.until => {
                Some("a renewal of a live lease was refused")
            }
            (_, Guarded::Refused(_)) => None,
        };
        if let Some(law) = law {
            self.violation(line, law);
        }
    }

    pub(crate) fn settled(&mut self, line: &Line, settle: &SettleFact<'_>) {
        let named: BTreeSet<ItemId> = settle.items.iter().map(|(id, ..)| *id).collect();
        let held = self.leases.get(settle.token).map(|lease| lease.ids.clone());
        let held = held.unwrap_or_default();
        let left: Vec<ItemId> = held.difference(&named).copied().collect();
        let fates = self.fates(settle);
        for (id, outcome, answer) in settle.items {
            let fate = fates.get(id).copied();
            self.settled_one(line, (*id, outcome, *answer), (settle.token, fate));
        }
        let right = match settle.rest {
            Rest::Release => left.len(),
            Rest::Keep | Rest::Done => 0,
        };
        if usize::try_from(settle.ended) != Ok(right) {
            self.violation(line, "a settle ended too many or too few unnamed items");
        }
        for id in left {
            let goes_back = matches!(fates.get(&id), Some(Fate::Behind));
            if settle.rest == Rest::Release || goes_back {
                self.end(line, id, &Outcome::RELEASE);
            }
        }
        let blocking = fates
            .into_iter()
            .filter(|(_, fate)| *fate == Fate::Blocking);
        for (id, _) in blocking {
            if let Some(key) = self.key(id).cloned() {
                self.blocked.insert(key, id);
            }
        }
    }

    /// Fates of the keyed items held under the token of a settle.
    fn fates(&self, settle: &SettleFact<'_>) -> BTreeMap<ItemId, Fate> {
        let unnamed = match settle.rest {
            Rest::Keep => None,
            Rest::Done => Some(OutcomeKind::Done),
            Rest::Release => Some(OutcomeKind::Release),
        };
        let mut fates = BTreeMap::new();
        for run in self.runs(settle.token).into_values() {
            let word = |id: &ItemId| {
                let named = settle.items.iter().find(|(named, ..)| named == id);
                named.map_or(unnamed, |(_, outcome, _)| Some(outcome.kind()))
            };
            let words: Vec<Option<OutcomeKind>> = run.iter().map(word).collect();
            fates.extend(run.into_iter().zip(settle_run(&words, settle.on_dead).0));
        }
        fates
    }

    fn settled_one(
        &mut self,
        line: &Line,
        (id, outcome, answer): (ItemId, &Outcome, Guarded),
        (token, fate): (&Token, Option<Fate>),
    ) {
        let Some(item) = self.items.get(&id) else {
            return self.violation(line, "a settle of an item that was never written");
        };
        let is_held = item.holder.as_ref() == Some(token);
        let is_repeat = item
            .past_holds
            .iter()
            .any(|hold| hold.token == *token && hold.outcome == outcome.kind());
        match (answer, is_held, is_repeat) {
            (_, true, _) if fate.is_some_and(Fate::is_refused) => {
                self.violation(line, "law 7: a settle out of turn");
                if fate == Some(Fate::OutOfTurnBehind) {
                    self.end(line, id, &Outcome::RELEASE);
                }
            }
            (Guarded::Accepted(()), true, _) => self.end(line, id, outcome),
            (Guarded::Accepted(()), false, true) | (Guarded::Refused(_), false, false) => {}
            (Guarded::Accepted(()), false, false) => {
                self.violation(line, "a stale settle was accepted");
                // The model follows the store, so that one fault is reported once.
                self.end(line, id, outcome);
            }
            (Guarded::Refused(_), true, _) => {
                self.violation(line, "a settle of the holder was refused");
            }
            (Guarded::Refused(_), false, true) => {
                self.violation(line, "the repeat of an accepted settle was refused");
            }
        }
    }

    fn end(&mut self, line: &Line, id: ItemId, outcome: &Outcome) {
        let (state, after) = match outcome {
            Outcome::Done => (State::Done, None),
            Outcome::Dead { .. } => (State::Dead, None),
            Outcome::Release { after } if after.is_zero() => (State::Pending, None),
            Outcome::Retry { after, .. } | Outcome::Release { after } => {
                (State::Pending, Some(*after))
            }
        };
        self.end_hold(line, id, (outcome.kind(), false), state);
        let Some(item) = self.items.get_mut(&id) else {
            return;
        };
        if let Some(after) = after {
            item.available_at = line.now.after(after);
        }
        if let Outcome::Dead { reason, .. } = outcome {
            item.dead_reason = Some(reason.clone());
        }
    }

    /// Ends the lease on an item.
    fn end_hold(
        &mut self,
        line: &Line,
        id: ItemId,
        (word, has_crashed): (OutcomeKind, bool),
        state: State,
    ) {
        let Some(item) = self.items.get_mut(&id) else {
            return;
        };
        item.state = state;
        let counters = &mut item.counters;
        counters.attempts += u32::from(word != OutcomeKind::Done);
        counters.failures += u32::from(matches!(word, OutcomeKind::Retry | OutcomeKind::Dead));
        counters.crashes += u32::from(has_crashed);
        let Some(token) = item.holder.take() else {
            return;
        };
        item.past_holds.push(PastHold {
            token: token.clone(),
            fence: item.last_fence.unwrap_or(Fence::new(0)),
            outcome: word,
            settled_at: line.now,
            at: line.at,
        });
        if let Some(lease) = self.leases.get_mut(&token) {
            lease.ids.remove(&id);
            if lease.ids.is_empty() {
                self.leases.remove(&token);
            }
        }
    }

    /// Returns the reaped items that count as crashed. An item that waited behind an earlier item
    /// of its key, under the same lease, does not: its handler had not started.
    pub(crate) fn crashed(&self, reaped: &[Reaped]) -> BTreeSet<ItemId> {
        let mut first: BTreeMap<(Fence, &Arc<str>), ItemId> = BTreeMap::new();
        let mut crashed = BTreeSet::new();
        for item in reaped {
            if let Some(key) = self.key(item.id) {
                let first = first.entry((item.fence, key)).or_insert(item.id);
                *first = item.id.min(*first);
            } else {
                crashed.insert(item.id);
            }
        }
        crashed.extend(first.into_values());
        crashed
    }

    /// Applies a reaped item. `budget` is `None` if the item did not crash; otherwise the number of
    /// crashes it may have, and whether its death blocks its key.
    pub(crate) fn reaped(&mut self, line: &Line, reaped: &Reaped, budget: Option<(u32, OnDead)>) {
        let Some(item) = self.items.get(&reaped.id) else {
            return self.violation(line, "a reap of an item that was never written");
        };
        let lease = item
            .holder
            .as_ref()
            .and_then(|token| self.leases.get(token));
        let law = match lease {
            None => Some("a reap of an item that is not held"),
            Some(lease) if lease.fence != reaped.fence => Some("a reap with another claim's fence"),
            Some(lease) if lease.until >= line.now => Some("a reap of a live lease (early steal)"),
            Some(_) => None,
        };
        let is_last = budget.is_some_and(|(most, _)| item.counters.crashes + 1 > most);
        let blocks = is_last && budget.is_some_and(|(_, on_dead)| on_dead == OnDead::Block);
        let blocked = item.key.clone().filter(|_| blocks);
        let right = if is_last { State::Dead } else { State::Pending };
        if let Some(law) = law {
            self.violation(line, law);
        }
        if reaped.state != right {
            self.violation(
                line,
                "an item died within its allowed crashes, or survived more than those",
            );
        }
        if let Some(key) = blocked {
            self.blocked.insert(key, reaped.id);
        }
        self.end_hold(
            line,
            reaped.id,
            (OutcomeKind::Lapsed, budget.is_some()),
            reaped.state,
        );
        if let Some(item) = self.items.get_mut(&reaped.id) {
            item.available_at = reaped.available_at.unwrap_or(item.available_at);
            if reaped.state == State::Dead {
                item.dead_reason = Some(reason::CRASH_LOOP.to_owned());
            }
        }
    }

    pub(crate) fn buried(&mut self, line: &Line, id: ItemId, token: &Token, answer: Guarded) {
        let Some(item) = self.items.get_mut(&id) else {
            return;
        };
        let may = !item.state.is_terminal();
        if answer.is_accepted() && item.state == State::Pending {
            // The operator claims the item for a moment.
            let fence = Fence::new(self.fence.map_or(1, |fence| fence.number() + 1));
            item.holder = Some(token.clone());
            item.last_fence = Some(fence);
            self.fence = Some(fence);
        }
        if answer.is_accepted() {
            item.dead_reason = Some(reason::BURIED.to_owned());
            self.end_hold(line, id, (OutcomeKind::Buried, false), State::Dead);
        }
        if answer.is_accepted() != may {
            self.violation(line, "a bury was answered wrongly");
        }
    }

    pub(crate) fn replayed(&mut self, line: &Line, id: ItemId, answer: Guarded) {
        let tail = self.turn();
        // An item that blocks its key becomes the head again; any other item goes to the tail.
        let count = self.blocked.len();
        if answer.is_accepted() {
            self.blocked.retain(|_, blocking| *blocking != id);
        }
        let is_head = self.blocked.len() < count;
        let Some(item) = self.items.get_mut(&id) else {
            return;
        };
        let may = item.state.is_terminal();
        if answer.is_accepted() {
            item.state = State::Pending;
            item.available_at = line.now;
            item.turn = if is_head { item.turn } else { tail };
            item.dead_reason = None;
            item.counters = Counters {
                generation: item.counters.generation + 1,
                ..Counters::default()
            };
        }
        if answer.is_accepted() != may {
            self.violation(line, "a replay was answered wrongly");
        }
    }

    pub(crate) fn skipped(&mut self, line: &Line, key: &Arc<str>, answer: Guarded<ItemId>) {
        let right = self.blocked.remove(key);
        let is_right = matches!(answer, Guarded::Accepted(id) if Some(id) == right);
        if !is_right {
            self.violation(line, "a skip was answered wrongly");
        }
    }
}

//! Shadow: the store as it must be, kept beside the real one by reading the log. It says by itself
//! who holds what, so it does not take the store's word for anything.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Reaped, Rest};
use tenure_core::{
    Counters, Fate, Fence, Guarded, ItemId, OnDead, Outcome, State, Timestamp, Token, Word, reason,
    settle_run,
};

use crate::log::Line;

/// An item as it must be.
#[derive(Debug)]
pub(crate) struct Thing {
    pub(crate) key: Option<Arc<str>>,
    /// Its place in the order of its domain.
    pub(crate) turn: u64,
    pub(crate) state: State,
    pub(crate) holder: Option<Token>,
    pub(crate) last_fence: Option<Fence>,
    pub(crate) available_at: Timestamp,
    pub(crate) counters: Counters,
    pub(crate) dead_reason: Option<String>,
    pub(crate) ended: Vec<Ended>,
}

/// A hold that ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) token: Token,
    pub(crate) fence: Fence,
    pub(crate) word: Word,
    pub(crate) settled_at: Timestamp,
    /// The same by the world's clock.
    pub(crate) at: Duration,
}

/// A lease as it must be.
#[derive(Debug)]
pub(crate) struct Grip {
    pub(crate) worker: Arc<str>,
    pub(crate) fence: Fence,
    pub(crate) until: Timestamp,
    pub(crate) claimed_at: Duration,
    pub(crate) ids: BTreeSet<ItemId>,
}

/// The store as it must be.
#[derive(Debug, Default)]
pub(crate) struct Shadow {
    pub(crate) things: BTreeMap<ItemId, Thing>,
    pub(crate) grips: BTreeMap<Token, Grip>,
    /// Domains that a dead item blocks, and that item.
    blocked: BTreeMap<Arc<str>, ItemId>,
    fence: Option<Fence>,
    turns: u64,
    pub(crate) violations: Vec<String>,
}

/// A claim as the log tells it.
pub(crate) struct Claimed<'a> {
    pub(crate) worker: &'a Arc<str>,
    pub(crate) token: &'a Token,
    pub(crate) fence: Fence,
    pub(crate) until: Timestamp,
    pub(crate) limit: u32,
    pub(crate) ids: &'a [ItemId],
}

/// A settle as the log tells it.
pub(crate) struct Said<'a> {
    pub(crate) token: &'a Token,
    pub(crate) items: &'a [(ItemId, Outcome, Guarded)],
    pub(crate) rest: Rest,
    /// How many that were not named were ended.
    pub(crate) ended: u32,
    pub(crate) on_dead: OnDead,
}

impl Shadow {
    pub(crate) fn wrong(&mut self, line: &Line, law: &str) {
        self.violations.push(format!("{law}: {line}"));
    }

    pub(crate) fn enqueued(&mut self, id: ItemId, key: Option<Arc<str>>, available_at: Timestamp) {
        let thing = Thing {
            key,
            turn: self.turn(),
            state: State::Pending,
            holder: None,
            last_fence: None,
            available_at,
            counters: Counters::default(),
            dead_reason: None,
            ended: Vec::new(),
        };
        self.things.insert(id, thing);
    }

    pub(crate) fn claimed(&mut self, line: &Line, claimed: &Claimed<'_>) {
        if self.fence.is_some_and(|last| claimed.fence <= last) {
            self.wrong(line, "a fence did not rise");
        }
        self.fence = self.fence.max(Some(claimed.fence));
        if u32::try_from(claimed.ids.len()).is_ok_and(|count| count > claimed.limit) {
            self.wrong(line, "a claim took more than it asked for");
        }
        if self.grips.contains_key(claimed.token) {
            self.wrong(line, "a token was used twice");
        }
        let mut laws = self.claimed_out_of_turn(claimed.ids);
        let mut lonely = 0;
        for id in claimed.ids {
            let Some(thing) = self.things.get_mut(id) else {
                laws.push("a claim of what was never written");
                continue;
            };
            if thing.state != State::Pending {
                laws.push("a claim of what is held or settled (one holder at a time)");
            }
            if thing.available_at > line.now {
                laws.push("a claim before its time");
            }
            if thing.last_fence.is_some_and(|last| claimed.fence <= last) {
                laws.push("a fence of an item did not rise");
            }
            lonely += u32::from(thing.counters.crashes >= 2);
            thing.state = State::Claimed;
            thing.holder = Some(claimed.token.clone());
            thing.last_fence = Some(claimed.fence);
        }
        if lonely > 0 && claimed.ids.len() > 1 {
            laws.push("an item that lapsed twice was claimed with others");
        }
        for law in laws {
            self.wrong(line, law);
        }
        let grip = Grip {
            worker: Arc::clone(claimed.worker),
            fence: claimed.fence,
            until: claimed.until,
            claimed_at: line.at,
            ids: claimed.ids.iter().copied().collect(),
        };
        self.grips.insert(claimed.token.clone(), grip);
    }

    fn turn(&mut self) -> u64 {
        self.turns += 1;
        self.turns
    }

    pub(crate) fn key(&self, id: ItemId) -> Option<&Arc<str>> {
        self.things.get(&id)?.key.as_ref()
    }

    /// What is held under this token, by domain, each in its order.
    fn runs(&self, token: &Token) -> BTreeMap<Arc<str>, Vec<ItemId>> {
        let mut runs: BTreeMap<Arc<str>, Vec<ItemId>> = BTreeMap::new();
        for id in self.grips.get(token).iter().flat_map(|grip| &grip.ids) {
            if let Some(key) = self.key(*id) {
                runs.entry(Arc::clone(key)).or_default().push(*id);
            }
        }
        runs
    }

    /// A claim takes a domain from its head on, in order, and only if nothing of it is held.
    fn claimed_out_of_turn(&self, ids: &[ItemId]) -> Vec<&'static str> {
        let mut taken: BTreeMap<&Arc<str>, Vec<ItemId>> = BTreeMap::new();
        for id in ids {
            if let Some(key) = self.key(*id) {
                taken.entry(key).or_default().push(*id);
            }
        }
        let mut laws = Vec::new();
        for (key, taken) in taken {
            let of_key = self.things.iter();
            let mut open: Vec<_> = of_key
                .filter(|(_, thing)| thing.key.as_ref() == Some(key) && !thing.state.is_terminal())
                .collect();
            open.sort_by_key(|(_, thing)| thing.turn);
            if open.iter().any(|(_, thing)| thing.state == State::Claimed) {
                laws.push("law 1: a claim of a domain of which something is held");
            }
            if !open.iter().map(|(id, _)| **id).take(taken.len()).eq(taken) {
                laws.push("law 7: a claim out of turn");
            }
            if self.blocked.contains_key(key) {
                laws.push("law 7: a claim of a domain that is blocked");
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
        let law = match (self.grips.get_mut(token), answer) {
            (Some(grip), Guarded::Kept(until)) if line.now < grip.until => {
                let right = grip.until.max(line.now.after(term));
                grip.until = until;
                (until != right).then_some("a renewal moved the end of a lease wrongly")
            }
            (Some(grip), Guarded::Kept(until)) => {
                grip.until = until;
                Some("a renewal of a lease that was over was kept")
            }
            (None, Guarded::Kept(_)) => Some("a stale renewal was kept"),
            (Some(grip), Guarded::Refused(_)) if line.now < grip.until => {
                Some("a renewal of a live lease was refused")
            }
            (_, Guarded::Refused(_)) => None,
        };
        if let Some(law) = law {
            self.wrong(line, law);
        }
    }

    pub(crate) fn settled(&mut self, line: &Line, said: &Said<'_>) {
        let named: BTreeSet<ItemId> = said.items.iter().map(|(id, ..)| *id).collect();
        let held = self.grips.get(said.token).map(|grip| grip.ids.clone());
        let held = held.unwrap_or_default();
        let left: Vec<ItemId> = held.difference(&named).copied().collect();
        let fates = self.fates(said);
        for (id, outcome, answer) in said.items {
            let fate = fates.get(id).copied();
            self.settled_one(line, (*id, outcome, *answer), (said.token, fate));
        }
        let right = match said.rest {
            Rest::Release => left.len(),
            Rest::Keep | Rest::Done => 0,
        };
        if usize::try_from(said.ended) != Ok(right) {
            self.wrong(line, "a settle ended what it did not name");
        }
        for id in left {
            let goes_back = matches!(fates.get(&id), Some(Fate::Behind));
            if said.rest == Rest::Release || goes_back {
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

    /// What becomes of the items of domains that are held under the token of a settle.
    fn fates(&self, said: &Said<'_>) -> BTreeMap<ItemId, Fate> {
        let unnamed = match said.rest {
            Rest::Keep => None,
            Rest::Done => Some(Word::Done),
            Rest::Release => Some(Word::Release),
        };
        let mut fates = BTreeMap::new();
        for run in self.runs(said.token).into_values() {
            let word = |id: &ItemId| {
                let named = said.items.iter().find(|(named, ..)| named == id);
                named.map_or(unnamed, |(_, outcome, _)| Some(outcome.word()))
            };
            let words: Vec<Option<Word>> = run.iter().map(word).collect();
            fates.extend(run.into_iter().zip(settle_run(&words, said.on_dead).0));
        }
        fates
    }

    fn settled_one(
        &mut self,
        line: &Line,
        (id, outcome, answer): (ItemId, &Outcome, Guarded),
        (token, fate): (&Token, Option<Fate>),
    ) {
        let Some(thing) = self.things.get(&id) else {
            return self.wrong(line, "a settle of what was never written");
        };
        let is_held = thing.holder.as_ref() == Some(token);
        let is_repeat = thing
            .ended
            .iter()
            .any(|ended| ended.token == *token && ended.word == outcome.word());
        match (answer, is_held, is_repeat) {
            (_, true, _) if fate.is_some_and(Fate::is_refused) => {
                self.wrong(line, "law 7: a settle out of turn");
                if fate == Some(Fate::OutOfTurnBehind) {
                    self.end(line, id, &Outcome::RELEASE);
                }
            }
            (Guarded::Kept(()), true, _) => self.end(line, id, outcome),
            (Guarded::Kept(()), false, true) | (Guarded::Refused(_), false, false) => {}
            (Guarded::Kept(()), false, false) => {
                self.wrong(line, "a stale settle was accepted");
                // As the store sees it, so that one fault is told once.
                self.end(line, id, outcome);
            }
            (Guarded::Refused(_), true, _) => {
                self.wrong(line, "a settle of the holder was refused");
            }
            (Guarded::Refused(_), false, true) => {
                self.wrong(line, "a repeated settle was answered otherwise");
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
        self.let_go(line, id, (outcome.word(), false), state);
        let Some(thing) = self.things.get_mut(&id) else {
            return;
        };
        if let Some(after) = after {
            thing.available_at = line.now.after(after);
        }
        if let Outcome::Dead { reason, .. } = outcome {
            thing.dead_reason = Some(reason.clone());
        }
    }

    /// Ends the hold on an item, whoever has it.
    fn let_go(&mut self, line: &Line, id: ItemId, (word, has_crashed): (Word, bool), state: State) {
        let Some(thing) = self.things.get_mut(&id) else {
            return;
        };
        thing.state = state;
        let counters = &mut thing.counters;
        counters.attempts += u32::from(word != Word::Done);
        counters.failures += u32::from(matches!(word, Word::Retry | Word::Dead));
        counters.crashes += u32::from(has_crashed);
        let Some(token) = thing.holder.take() else {
            return;
        };
        thing.ended.push(Ended {
            token: token.clone(),
            fence: thing.last_fence.unwrap_or(Fence::new(0)),
            word,
            settled_at: line.now,
            at: line.at,
        });
        if let Some(grip) = self.grips.get_mut(&token) {
            grip.ids.remove(&id);
            if grip.ids.is_empty() {
                self.grips.remove(&token);
            }
        }
    }

    /// The items of this reap that were being worked when their lease lapsed: all but those behind
    /// another of their domain.
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

    /// An item of a lease that was ended; `budget` are the crashes it may have and what a dead one
    /// does, if it crashed.
    pub(crate) fn reaped(&mut self, line: &Line, reaped: &Reaped, budget: Option<(u32, OnDead)>) {
        let Some(thing) = self.things.get(&reaped.id) else {
            return self.wrong(line, "a reap of what was never written");
        };
        let grip = thing
            .holder
            .as_ref()
            .and_then(|token| self.grips.get(token));
        let law = match grip {
            None => Some("a reap of what nobody holds"),
            Some(grip) if grip.fence != reaped.fence => Some("a reap of another hold"),
            Some(grip) if grip.until >= line.now => Some("a reap of a live lease (early steal)"),
            Some(_) => None,
        };
        let is_last = budget.is_some_and(|(most, _)| thing.counters.crashes + 1 > most);
        let blocks = is_last && budget.is_some_and(|(_, on_dead)| on_dead == OnDead::Block);
        let blocked = thing.key.clone().filter(|_| blocks);
        let right = if is_last { State::Dead } else { State::Pending };
        if let Some(law) = law {
            self.wrong(line, law);
        }
        if reaped.state != right {
            self.wrong(
                line,
                "a lapse within its budget was the last, or the last was not",
            );
        }
        if let Some(key) = blocked {
            self.blocked.insert(key, reaped.id);
        }
        self.let_go(
            line,
            reaped.id,
            (Word::Lapsed, budget.is_some()),
            reaped.state,
        );
        if let Some(thing) = self.things.get_mut(&reaped.id) {
            thing.available_at = reaped.available_at.unwrap_or(thing.available_at);
            if reaped.state == State::Dead {
                thing.dead_reason = Some(reason::CRASH_LOOP.to_owned());
            }
        }
    }

    pub(crate) fn buried(&mut self, line: &Line, id: ItemId, token: &Token, answer: Guarded) {
        let Some(thing) = self.things.get_mut(&id) else {
            return;
        };
        let may = !thing.state.is_terminal();
        if answer.is_kept() && thing.state == State::Pending {
            // Claimed by the operator for a moment.
            let fence = Fence::new(self.fence.map_or(1, |fence| fence.number() + 1));
            thing.holder = Some(token.clone());
            thing.last_fence = Some(fence);
            self.fence = Some(fence);
        }
        if answer.is_kept() {
            thing.dead_reason = Some(reason::BURIED.to_owned());
            self.let_go(line, id, (Word::Buried, false), State::Dead);
        }
        if answer.is_kept() != may {
            self.wrong(line, "a bury was answered wrongly");
        }
    }

    pub(crate) fn replayed(&mut self, line: &Line, id: ItemId, answer: Guarded) {
        let tail = self.turn();
        // The one that blocks its domain is its head again; any other goes to the tail.
        let count = self.blocked.len();
        if answer.is_kept() {
            self.blocked.retain(|_, blocking| *blocking != id);
        }
        let is_head = self.blocked.len() < count;
        let Some(thing) = self.things.get_mut(&id) else {
            return;
        };
        let may = thing.state.is_terminal();
        if answer.is_kept() {
            thing.state = State::Pending;
            thing.available_at = line.now;
            thing.turn = if is_head { thing.turn } else { tail };
            thing.dead_reason = None;
            thing.counters = Counters {
                generation: thing.counters.generation + 1,
                ..Counters::default()
            };
        }
        if answer.is_kept() != may {
            self.wrong(line, "a replay was answered wrongly");
        }
    }

    pub(crate) fn skipped(&mut self, line: &Line, key: &Arc<str>, answer: Guarded<ItemId>) {
        let right = self.blocked.remove(key);
        let is_right = matches!(answer, Guarded::Kept(id) if Some(id) == right);
        if !is_right {
            self.wrong(line, "a skip was answered wrongly");
        }
    }
}

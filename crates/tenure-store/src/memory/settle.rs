//! Settle: applies the outcomes that a holder reports; within a key, in its order.

use std::collections::{BTreeMap, BTreeSet};

use tenure_core::store::{Rest, Settle, Settlement};
use tenure_core::{
    Fate, Guarded, ItemId, Outcome, OutcomeKind, Refusal, Timestamp, Token, refusal_of,
};

use super::rules::Rules;
use super::{Destination, End, MemoryState, Place, StoredItem};

impl MemoryState {
    pub(super) fn settle(&mut self, settle: &Settle, rules: &Rules, now: Timestamp) -> Settlement {
        let leased = self.leases.get(&settle.token);
        let is_over = leased.is_some_and(|leased| !leased.lease.is_live(now));
        let rest = self.rest_of(settle, rules, now);
        let mut said: BTreeMap<ItemId, Outcome> = BTreeMap::new();
        let mut answers: BTreeMap<ItemId, Guarded> = BTreeMap::new();
        for (id, outcome) in &settle.items {
            match (rules.may_settle)(self.lease_on(*id), &settle.token, settle.lateness, now) {
                Guarded::Accepted(()) => {
                    said.insert(*id, outcome.clone());
                }
                Guarded::Refused(Refusal::Lapsed) => {
                    answers.insert(*id, Guarded::Refused(Refusal::Lapsed));
                }
                Guarded::Refused(_) => {
                    let answer = self.answer_unheld(*id, &settle.token, outcome.kind(), rules);
                    answers.insert(*id, answer);
                }
            }
        }
        said.extend(rest.iter().cloned());
        let refused = self.end_all(&said, settle, rules, now);
        let is_done_now =
            |id: &ItemId| said.get(id) == Some(&Outcome::Done) && !refused.contains(id);
        self.fan_out(settle, is_done_now, rules, now);
        answers.extend(said.keys().map(|id| {
            let answer = if refused.contains(id) {
                Guarded::Refused(Refusal::OutOfTurn)
            } else {
                Guarded::Accepted(())
            };
            (*id, answer)
        }));
        let is_refused = |id: &ItemId| answers.get(id).is_some_and(|answer| !answer.is_accepted());
        self.keep_calls(&settle.calls, is_refused, rules, now);
        let rest = rest.iter().filter(|(id, _)| !refused.contains(id)).count();
        let answer = |id: &ItemId| answers.get(id).copied();
        let items = settle.items.iter();
        Settlement {
            items: items
                .filter_map(|(id, _)| Some((*id, answer(id)?)))
                .collect(),
            rest: u32::try_from(rest).unwrap_or(u32::MAX),
            late: is_over && said.keys().any(|id| !refused.contains(id)),
            failed: Vec::new(),
        }
    }

    /// Returns the outcome for each unnamed item of the lease. One guard covers the whole lease: if
    /// a late settle is to be refused, it changes nothing.
    fn rest_of(&self, settle: &Settle, rules: &Rules, now: Timestamp) -> Vec<(ItemId, Outcome)> {
        let outcome = match (rules.rest)(settle.rest) {
            Rest::Keep => return Vec::new(),
            Rest::Done => Outcome::Done,
            Rest::Release => Outcome::RELEASE,
        };
        let Some(leased) = self.leases.get(&settle.token) else {
            return Vec::new();
        };
        let guard = (rules.may_settle)(Some(&leased.lease), &settle.token, settle.lateness, now);
        if !guard.is_accepted() {
            return Vec::new();
        }
        let named: BTreeSet<ItemId> = settle.items.iter().map(|(id, _)| *id).collect();
        let unnamed = leased.ids.difference(&named);
        unnamed.map(|id| (*id, outcome.clone())).collect()
    }

    /// Ends the leases of items with the given outcomes; returns the items refused because an
    /// earlier item of their key is not settled.
    fn end_all(
        &mut self,
        said: &BTreeMap<ItemId, Outcome>,
        settle: &Settle,
        rules: &Rules,
        now: Timestamp,
    ) -> BTreeSet<ItemId> {
        let mut tokens: BTreeSet<Token> = BTreeSet::new();
        for (id, outcome) in said {
            let kept = self.items.get(id);
            match kept.map(|kept| (kept.key(), &kept.place)) {
                Some((Some(_), Place::Leased(token))) => drop(tokens.insert(token.clone())),
                _ => self.end_hold(*id, &end_of(outcome, now), rules, now),
            }
        }
        let mut refused = BTreeSet::new();
        for token in tokens {
            for (key, run) in self.runs(&token) {
                let words: Vec<_> = run
                    .iter()
                    .map(|id| said.get(id).map(Outcome::kind))
                    .collect();
                let (fates, standing) = (rules.settle_run)(&words, settle.on_dead);
                let fates: Vec<(ItemId, Fate)> = run.into_iter().zip(fates).collect();
                for (id, fate) in &fates {
                    self.meet(&key, (*id, *fate, said.get(id)), rules, now);
                    if fate.is_refused() {
                        refused.insert(*id);
                    }
                }
                if words.iter().any(Option::is_some) {
                    self.go_on(&key, (&fates, standing), rules, now);
                }
            }
        }
        refused
    }

    /// Applies the fate of an item of a key, given its outcome.
    fn meet(
        &mut self,
        key: &str,
        (id, fate, said): (ItemId, Fate, Option<&Outcome>),
        rules: &Rules,
        now: Timestamp,
    ) {
        let released = Outcome::RELEASE;
        let outcome = match (fate, said) {
            (Fate::Held | Fate::OutOfTurn, _) => return,
            (Fate::OutOfTurnBehind, _) | (_, None) => &released,
            (_, Some(outcome)) => outcome,
        };
        let mut end = end_of(outcome, now);
        if let Destination::Ready(from) = end.to {
            end.to = if fate == Fate::Head {
                self.back_of(key, from, rules)
            } else {
                Destination::Backlog(from)
            };
        }
        self.end_hold(id, &end, rules, now);
    }

    /// Answers for an item that the token does not hold: a repeated settle gets its first answer.
    fn answer_unheld(
        &self,
        id: ItemId,
        token: &Token,
        word: OutcomeKind,
        rules: &Rules,
    ) -> Guarded {
        let kept = self.items.get(&id);
        let is_repeat = kept
            .into_iter()
            .flat_map(|kept| &kept.journal)
            .any(|line| (rules.is_repeat)((&line.token, line.word), (token, word)));
        if is_repeat {
            return Guarded::Accepted(());
        }
        Guarded::Refused(refusal_of(kept.map(StoredItem::state)))
    }
}

/// Maps an outcome to its journal entry and the destination of the item.
fn end_of(outcome: &Outcome, now: Timestamp) -> End<'_> {
    let (error, to) = match outcome {
        Outcome::Done => (None, Destination::Done),
        Outcome::Retry { after, error } => (
            Some(error.as_str()),
            Destination::Ready(Some(now.after(*after))),
        ),
        Outcome::Dead { reason, error } => (Some(error.as_str()), Destination::Dead(reason)),
        Outcome::Release { after } => {
            let from = (!after.is_zero()).then(|| now.after(*after));
            (None, Destination::Ready(from))
        }
    };
    End {
        word: outcome.kind(),
        counted: outcome.kind(),
        error,
        to,
    }
}

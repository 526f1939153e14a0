//! Claim, renew, settle, reap.

use std::collections::BTreeSet;

use tenure_core::store::{
    Answer, Claim, Company, LeaseStore, Reap, Reaped, Renew, Renewed, Rest, Settle, Settlement,
    StoreError,
};
use tenure_core::{
    Content, Guarded, Held, Item, ItemId, LapsePolicy, Lease, Outcome, Refusal, State, Timestamp,
    Token, Word, reason, refusal_of,
};

use super::rules::Rules;
use super::{End, Kept, Leased, MemoryStore, Place, Shelf, To};
use crate::complaint::{unknown_queue, used_before};
use crate::lane::{Lane, alone_lane, lanes};
use crate::limits::INLINE_REAP_LIMIT;

impl LeaseStore for MemoryStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        Box::pin(async move {
            let now = self.moment(claim.now);
            self.shelf().claim(claim, &self.rules, now)
        })
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        Box::pin(async move {
            let now = self.moment(renew.now);
            let until = now.after(renew.term.length());
            let mut shelf = self.shelf();
            Ok(renew
                .tokens
                .iter()
                .map(|token| (token.clone(), shelf.renew(token, until, &self.rules, now)))
                .collect())
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        Box::pin(async move {
            settle.check()?;
            let now = self.moment(settle.now);
            Ok(self.shelf().settle(settle, &self.rules, now))
        })
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        Box::pin(async move {
            settle.check()?;
            let (settled_at, claimed_at) = (self.moment(settle.now), self.moment(claim.now));
            let mut shelf = self.shelf();
            // Both or neither: a claim that cannot be carried out leaves the settle undone.
            shelf.lanes_of(claim)?;
            shelf.check_fresh(&claim.token, &self.rules)?;
            let settlement = shelf.settle(settle, &self.rules, settled_at);
            let held = shelf.claim(claim, &self.rules, claimed_at)?;
            Ok((settlement, held))
        })
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        Box::pin(async move {
            let now = self.moment(reap.now);
            Ok(self.shelf().reap(reap, &self.rules, now))
        })
    }
}

impl Shelf {
    fn claim(
        &mut self,
        claim: &Claim,
        rules: &Rules,
        now: Timestamp,
    ) -> Result<Option<Held>, StoreError> {
        let lanes = self.lanes_of(claim)?;
        let limit = (rules.most)(claim);
        if limit == 0 {
            return Ok(None);
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let mut chosen = self.choose(&lanes, limit, rules, now);
        if !chosen.is_empty() {
            self.check_fresh(&claim.token, rules)?;
        }
        if let (true, Some(policy)) = (chosen.len() < limit, &claim.recovery) {
            let reap = Reap::new(INLINE_REAP_LIMIT, policy.clone()).inline();
            self.reap(&reap, rules, now);
            // What was just put back joins an empty claim only: a lease that was already filled
            // in its order is not reopened.
            if chosen.is_empty() {
                chosen = self.choose(&lanes, limit, rules, now);
            }
        }
        if chosen.is_empty() {
            return Ok(None);
        }
        self.check_fresh(&claim.token, rules)?;
        Ok(Some(self.hand_out(claim, &chosen, rules, now)))
    }

    /// A token is issued once: one that has a lease is that of a claim whose answer was lost.
    fn check_fresh(&self, token: &Token, rules: &Rules) -> Result<(), StoreError> {
        let standing = self.leases.get(token).map(|leased| &leased.lease);
        if (rules.is_fresh)(standing) {
            return Ok(());
        }
        Err(used_before("claim"))
    }

    /// The lanes that a claim looks into, in order.
    fn lanes_of(&self, claim: &Claim) -> Result<Vec<Lane>, StoreError> {
        let mut all = Vec::new();
        for (nth, name) in claim.queues.iter().enumerate() {
            let line = self
                .queues
                .get(name)
                .ok_or_else(|| unknown_queue("claim", name))?;
            // A queue that was named twice is looked into once.
            let is_repeat = claim.queues.iter().take(nth).any(|seen| seen == name);
            match claim.company {
                _ if line.paused || is_repeat => {}
                Company::Together => all.extend(lanes(line.number)),
                Company::Alone => all.push(alone_lane(line.number)),
            }
        }
        Ok(all)
    }

    /// Up to `limit` items that are due, lane by lane, the oldest first.
    fn choose(
        &self,
        lanes: &[Lane],
        limit: usize,
        rules: &Rules,
        now: Timestamp,
    ) -> Vec<(Lane, Timestamp, ItemId)> {
        let first = (Timestamp::from_micros(i64::MIN), ItemId::new(i64::MIN));
        lanes
            .iter()
            .flat_map(|lane| {
                self.ready.range((*lane, first.0, first.1)..).take_while(
                    move |(of, available_at, _)| of == lane && (rules.is_due)(*available_at, now),
                )
            })
            .take(limit)
            .copied()
            .collect()
    }

    /// Moves items out of `ready` into a new lease.
    fn hand_out(
        &mut self,
        claim: &Claim,
        chosen: &[(Lane, Timestamp, ItemId)],
        rules: &Rules,
        now: Timestamp,
    ) -> Held {
        let lease = Lease {
            token: claim.token.clone(),
            fence: self.draw_fence(rules),
            claimed_at: now,
            until: now.after(claim.term.length()),
        };
        let mut items = Vec::with_capacity(chosen.len());
        for key in chosen {
            self.ready.remove(key);
            let (_, available_at, id) = *key;
            if let Some(kept) = self.items.get_mut(&id) {
                kept.place = Place::Leased(lease.token.clone());
                items.push(Item {
                    id,
                    content: Content::Event(kept.event.clone()),
                    available_at,
                    counters: kept.counters,
                });
            }
        }
        let leased = Leased {
            lease: lease.clone(),
            ids: items.iter().map(|item| item.id).collect(),
        };
        self.leases.insert(lease.token.clone(), leased);
        Held::new(lease, items, claim.most())
    }

    fn renew(
        &mut self,
        token: &Token,
        until: Timestamp,
        rules: &Rules,
        now: Timestamp,
    ) -> Guarded<Renewed> {
        let Some(leased) = self.leases.get_mut(token) else {
            return Guarded::Refused(Refusal::Lost);
        };
        if let Guarded::Refused(why) = (rules.may_renew)(Some(&leased.lease), token, now) {
            return Guarded::Refused(why);
        }
        leased.lease.until = (rules.prolong)(leased.lease.until, until);
        Guarded::Kept(Renewed {
            until: leased.lease.until,
            fence: leased.lease.fence,
            ids: leased.ids.iter().copied().collect(),
        })
    }

    fn settle(&mut self, settle: &Settle, rules: &Rules, now: Timestamp) -> Settlement {
        let leased = self.leases.get(&settle.token);
        let held: BTreeSet<ItemId> = leased.map(|leased| leased.ids.clone()).unwrap_or_default();
        let is_over = leased.is_some_and(|leased| !leased.lease.is_live(now));
        // One guard for the whole lease: a strict settle that comes late changes nothing.
        let may_end_rest = leased.is_some_and(|leased| {
            (rules.may_settle)(Some(&leased.lease), &settle.token, settle.lateness, now).is_kept()
        });
        let mut ended = 0_usize;
        let mut items = Vec::with_capacity(settle.items.len());
        for (id, outcome) in &settle.items {
            let guard = (rules.may_settle)(self.lease_on(*id), &settle.token, settle.lateness, now);
            let answer = match guard {
                Guarded::Kept(()) => {
                    self.end_hold(*id, &end_of(outcome, now), rules, now);
                    ended += 1;
                    Guarded::Kept(())
                }
                Guarded::Refused(Refusal::Lapsed) => Guarded::Refused(Refusal::Lapsed),
                Guarded::Refused(_) => {
                    self.answer_unheld(*id, &settle.token, outcome.word(), rules)
                }
            };
            items.push((*id, answer));
        }
        let outcome = match (rules.rest)(settle.rest) {
            Rest::Keep => None,
            Rest::Done => Some(Outcome::Done),
            Rest::Release => Some(Outcome::RELEASE),
        };
        let mut rest = 0;
        if let (true, Some(outcome)) = (may_end_rest, outcome) {
            let named: BTreeSet<ItemId> = settle.items.iter().map(|(id, _)| *id).collect();
            for id in held.difference(&named) {
                self.end_hold(*id, &end_of(&outcome, now), rules, now);
                rest += 1;
            }
        }
        Settlement {
            items,
            rest,
            late: is_over && (ended > 0 || rest > 0),
        }
    }

    /// What is said of an item that is not held under the token: as before, if this is a repeat.
    fn answer_unheld(&self, id: ItemId, token: &Token, word: Word, rules: &Rules) -> Guarded {
        let kept = self.items.get(&id);
        let is_repeat = kept
            .into_iter()
            .flat_map(|kept| &kept.journal)
            .any(|line| (rules.is_repeat)((&line.token, line.word), (token, word)));
        if is_repeat {
            return Guarded::Kept(());
        }
        Guarded::Refused(refusal_of(kept.map(Kept::state)))
    }

    fn reap(&mut self, reap: &Reap, rules: &Rules, now: Timestamp) -> Vec<Reaped> {
        let mut lapsed: Vec<(Timestamp, Token)> = self
            .leases
            .values()
            .map(|leased| &leased.lease)
            .filter(|lease| (rules.may_reap)(lease.until, reap.boundary, now))
            .map(|lease| (lease.until, lease.token.clone()))
            .collect();
        lapsed.sort();
        lapsed.truncate(usize::try_from(reap.limit).unwrap_or(usize::MAX));
        let mut reaped: Vec<(Timestamp, Reaped)> = Vec::new();
        for (until, token) in lapsed {
            let Some(leased) = self.leases.get(&token) else {
                continue;
            };
            let fence = leased.lease.fence;
            for id in leased.ids.clone() {
                self.lapse(id, &reap.policy, rules, now);
                let Some(kept) = self.items.get(&id) else {
                    continue;
                };
                let state = kept.state();
                let answer = Reaped {
                    id,
                    holder: token.holder().to_owned(),
                    fence,
                    stale: now.since(until),
                    state,
                    available_at: (state == State::Pending).then_some(kept.available_at),
                };
                reaped.push((until, answer));
            }
        }
        reaped.sort_by_key(|(until, item)| (*until, item.id));
        reaped.into_iter().map(|(_, item)| item).collect()
    }

    /// Ends the hold on an item whose lease lapsed.
    fn lapse(&mut self, id: ItemId, policy: &LapsePolicy, rules: &Rules, now: Timestamp) {
        let crashes = self.items.get(&id).map_or(0, |kept| kept.counters.crashes);
        let (error, to) = match policy.fate(crashes + 1) {
            Some(delay) => (LapsePolicy::ERROR, To::Ready(Some(now.after(delay)))),
            None => (LapsePolicy::DEAD_ERROR, To::Dead(reason::CRASH_LOOP)),
        };
        let end = End {
            word: Word::Lapsed,
            error: Some(error),
            to,
        };
        self.end_hold(id, &end, rules, now);
    }
}

/// Where an outcome takes an item.
fn end_of(outcome: &Outcome, now: Timestamp) -> End<'_> {
    let (error, to) = match outcome {
        Outcome::Done => (None, To::Done),
        Outcome::Retry { after, error } => {
            (Some(error.as_str()), To::Ready(Some(now.after(*after))))
        }
        Outcome::Dead { reason, error } => (Some(error.as_str()), To::Dead(reason)),
        Outcome::Release { after } => {
            let from = (!after.is_zero()).then(|| now.after(*after));
            (None, To::Ready(from))
        }
    };
    End {
        word: outcome.word(),
        error,
        to,
    }
}

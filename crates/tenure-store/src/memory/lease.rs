//! The four operations of the lease core; this file implements claim and renew.

use std::collections::BTreeSet;

use tenure_core::store::{
    Answer, Claim, EndpointLane, Isolation, LeaseStore, Reap, Reaped, Renew, Renewed, Settle,
    Settlement, StoreError,
};
use tenure_core::{Guarded, Held, Item, ItemId, Lease, QueueName, Refusal, Timestamp, Token};

use super::rules::Rules;
use super::{Leased, MemoryState, MemoryStore, Place};
use crate::lane::{Lane, alone_lane, lane_of, lanes};
use crate::limits::INLINE_REAP_LIMIT;
use crate::messages::{unknown_queue, used_before};

impl LeaseStore for MemoryStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        Box::pin(async move {
            let now = self.moment(claim.now);
            self.state().claim(claim, &self.rules, now)
        })
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        Box::pin(async move {
            let now = self.moment(renew.now);
            let until = now.after(renew.term.length());
            let mut state = self.state();
            Ok(renew
                .tokens
                .iter()
                .map(|token| (token.clone(), state.renew(token, until, &self.rules, now)))
                .collect())
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        Box::pin(async move {
            settle.check()?;
            let now = self.moment(settle.now);
            Ok(self.state().settle(settle, &self.rules, now))
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
            let mut state = self.state();
            // All or nothing: if the claim is invalid, the settle does not happen either.
            state.lines_of(claim, &self.rules)?;
            state.check_fresh(&claim.token, &self.rules)?;
            let settlement = state.settle(settle, &self.rules, settled_at);
            let held = state.claim(claim, &self.rules, claimed_at)?;
            Ok((settlement, held))
        })
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        Box::pin(async move {
            let now = self.moment(reap.now);
            Ok(self.state().reap(reap, &self.rules, now))
        })
    }
}

impl MemoryState {
    fn claim(
        &mut self,
        claim: &Claim,
        rules: &Rules,
        now: Timestamp,
    ) -> Result<Option<Held>, StoreError> {
        let lines = self.lines_of(claim, rules)?;
        let limit = (rules.most)(claim);
        if limit == 0 || claim.topics.is_empty() {
            return Ok(None);
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let choose = |state: &mut Self| {
            let mut chosen = Vec::new();
            for (lanes, most) in &lines {
                let room = limit.saturating_sub(chosen.len()).min(*most);
                let (due, strays) = state.due(lanes, (claim, room), rules, now);
                state.separate.extend(strays);
                chosen.extend(state.with_runs(&due, (claim, room), rules, now));
            }
            chosen
        };
        let mut chosen = choose(self);
        if !chosen.is_empty() {
            self.check_fresh(&claim.token, rules)?;
        }
        if let (true, Some(policy)) = (chosen.len() < limit, &claim.recovery) {
            let reap = Reap::new(INLINE_REAP_LIMIT, policy.clone()).inline();
            claim.tell_recovered(self.reap(&reap, rules, now));
            // Add reaped items only to an empty claim: added to other items, they would break the
            // order.
            if chosen.is_empty() {
                chosen = choose(self);
            }
        }
        if chosen.is_empty() {
            return Ok(None);
        }
        self.check_fresh(&claim.token, rules)?;
        Ok(Some(self.hand_out(claim, &chosen, rules, now)))
    }

    /// Refuses a token that already has a lease: a token is issued once, so this claim was made
    /// before and its answer was lost.
    fn check_fresh(&self, token: &Token, rules: &Rules) -> Result<(), StoreError> {
        let standing = self.leases.get(token).map(|leased| &leased.lease);
        if (rules.is_fresh)(standing) {
            return Ok(());
        }
        Err(used_before("claim"))
    }

    /// Returns the groups of lanes of a claim, in order, each with the maximum number of items.
    fn lines_of(
        &self,
        claim: &Claim,
        rules: &Rules,
    ) -> Result<Vec<(Vec<Lane>, usize)>, StoreError> {
        if claim.lanes.is_empty() {
            return Ok(vec![(self.lanes_of(claim)?, usize::MAX)]);
        }
        let line = |(lane, most): &(EndpointLane, u32)| {
            let most = (rules.lane_most)(*most);
            (
                vec![lane_of(*lane)],
                usize::try_from(most).unwrap_or(usize::MAX),
            )
        };
        Ok(claim.lanes.iter().map(line).collect())
    }

    /// Returns the lanes of the queues of a claim, in order.
    fn lanes_of(&self, claim: &Claim) -> Result<Vec<Lane>, StoreError> {
        let mut all = Vec::new();
        for (nth, name) in claim.queues.iter().enumerate() {
            let line = self
                .queues
                .get(name)
                .ok_or_else(|| unknown_queue("claim", name))?;
            // A queue named twice counts once.
            let is_repeat = claim.queues.iter().take(nth).any(|seen| seen == name);
            match claim.isolation {
                _ if line.paused || is_repeat => {}
                Isolation::Shared => all.extend(lanes(&[line.number])),
                Isolation::Isolated => all.push(alone_lane(line.number)),
            }
        }
        Ok(all)
    }

    /// Returns up to `limit` due items that the claim takes, lane by lane, the oldest first; and
    /// queue and topic of those that it skipped.
    fn due(
        &self,
        lanes: &[Lane],
        (claim, limit): (&Claim, usize),
        rules: &Rules,
        now: Timestamp,
    ) -> (Vec<ItemId>, BTreeSet<(QueueName, String)>) {
        let first = (Timestamp::from_micros(i64::MIN), ItemId::new(i64::MIN));
        let mut strays = BTreeSet::new();
        let due = lanes
            .iter()
            .flat_map(|lane| {
                self.ready.range((*lane, first.0, first.1)..).take_while(
                    move |(of, available_at, _)| of == lane && (rules.is_due)(*available_at, now),
                )
            })
            .map(|(_, _, id)| *id)
            .filter(|id| {
                let stray = self.stray(*id, claim);
                let is_taken = stray.is_none();
                strays.extend(stray);
                is_taken
            })
            .take(limit)
            .collect();
        (due, strays)
    }

    /// Returns queue and topic of an event that the claim does not take.
    pub(super) fn stray(&self, id: ItemId, claim: &Claim) -> Option<(QueueName, String)> {
        let content = self.items.get(&id)?.content();
        let event = content.event().filter(|_| claim.lanes.is_empty())?;
        let is_taken = claim.topics.takes(event.topic());
        (!is_taken).then(|| (event.queue().clone(), event.topic().to_owned()))
    }

    /// Moves items from their waiting place into a new lease.
    fn hand_out(
        &mut self,
        claim: &Claim,
        chosen: &[ItemId],
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
        for id in chosen {
            self.take_out(*id);
            if let Some(kept) = self.items.get_mut(id) {
                kept.place = Place::Leased(lease.token.clone());
                items.push(Item {
                    id: *id,
                    content: kept.content(),
                    available_at: kept.available_at,
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
        Guarded::Accepted(Renewed {
            until: leased.lease.until,
            fence: leased.lease.fence,
            ids: leased.ids.iter().copied().collect(),
        })
    }
}

//! The four verbs; and what claim and renew do.

use tenure_core::store::{
    Answer, Claim, Company, EndpointLane, LeaseStore, Reap, Reaped, Renew, Renewed, Settle,
    Settlement, StoreError,
};
use tenure_core::{Guarded, Held, Item, ItemId, Lease, Refusal, Timestamp, Token};

use super::rules::Rules;
use super::{Leased, MemoryStore, Place, Shelf};
use crate::complaint::{unknown_queue, used_before};
use crate::lane::{Lane, alone_lane, lane_of, lanes};
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
            shelf.lines_of(claim, &self.rules)?;
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
        let lines = self.lines_of(claim, rules)?;
        let limit = (rules.most)(claim);
        if limit == 0 {
            return Ok(None);
        }
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let choose = |shelf: &Self| {
            let mut chosen = Vec::new();
            for (lanes, most) in &lines {
                let room = limit.saturating_sub(chosen.len()).min(*most);
                let due = shelf.due(lanes, room, rules, now);
                chosen.extend(shelf.with_runs(&due, (claim, room), rules, now));
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
            // What was just put back joins an empty claim only: a lease that was already filled
            // in its order is not reopened.
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

    /// A token is issued once: one that has a lease is that of a claim whose answer was lost.
    fn check_fresh(&self, token: &Token, rules: &Rules) -> Result<(), StoreError> {
        let standing = self.leases.get(token).map(|leased| &leased.lease);
        if (rules.is_fresh)(standing) {
            return Ok(());
        }
        Err(used_before("claim"))
    }

    /// The lanes that a claim looks into, in order, with how many items may be taken of them.
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

    /// The lanes of the queues that a claim looks into, in order.
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
    fn due(&self, lanes: &[Lane], limit: usize, rules: &Rules, now: Timestamp) -> Vec<ItemId> {
        let first = (Timestamp::from_micros(i64::MIN), ItemId::new(i64::MIN));
        lanes
            .iter()
            .flat_map(|lane| {
                self.ready.range((*lane, first.0, first.1)..).take_while(
                    move |(of, available_at, _)| of == lane && (rules.is_due)(*available_at, now),
                )
            })
            .take(limit)
            .map(|(_, _, id)| *id)
            .collect()
    }

    /// Moves items from where they wait into a new lease.
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
        Guarded::Kept(Renewed {
            until: leased.lease.until,
            fence: leased.lease.fence,
            ids: leased.ids.iter().copied().collect(),
        })
    }
}

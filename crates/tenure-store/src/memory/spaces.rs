//! The work leases of the memory store: spaces of domains, each domain as the core keeps it.

use std::collections::BTreeMap;

use tenure_core::store::{Answer, Contract, DomainAsk, ProvidesWorkLeases, WorkLeases};
use tenure_core::work_lease::{Decided, Domain};
use tenure_core::{
    AcquireResult, DomainName, FailResult, ReplayResult, Reservation, SpaceName, SucceedResult,
    Timestamp, Token,
};

use super::{MemoryState, MemoryStore};
use crate::work_lease::inputs::{DecisionInputs, replay};

/// The domains under one watermark. Domains without content are dropped.
#[derive(Debug)]
pub(super) struct Space {
    watermark: i64,
    /// Failed offsets below both this offset and the watermark count as processed.
    forgiven: i64,
    domains: BTreeMap<DomainName, Domain>,
}

impl Default for Space {
    fn default() -> Self {
        Self {
            watermark: i64::MIN,
            forgiven: i64::MIN,
            domains: BTreeMap::new(),
        }
    }
}

impl Space {
    /// Returns the tokens in flight, which `Debug` hides.
    #[cfg(feature = "testing")]
    pub(super) fn tokens(&self) -> impl Iterator<Item = &Token> {
        let held = self.domains.values().filter_map(Domain::reservation);
        held.map(|reservation| &reservation.token)
    }

    /// Forgets everything that the watermark implies.
    fn prune(&mut self) {
        let (watermark, forgiven) = (self.watermark, self.forgiven);
        self.domains.retain(|_, domain| {
            domain.prune(watermark);
            domain.forget_failed_below(forgiven, watermark);
            !domain.is_blank()
        });
    }
}

impl ProvidesWorkLeases for MemoryStore {
    fn work_leases(&self) -> &dyn WorkLeases {
        self
    }
}

impl WorkLeases for MemoryStore {
    fn try_acquire<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        fresh: &'a Token,
    ) -> Answer<'a, Contract<AcquireResult>> {
        self.decide(ask, offset, |sight| sight.try_acquire(fresh))
    }

    fn submit<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        fresh: &'a Token,
    ) -> Answer<'a, Contract<AcquireResult>> {
        self.decide(ask, offset, |sight| sight.submit(fresh))
    }

    fn succeed<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<SucceedResult>> {
        self.decide(ask, i64::MIN, |sight| sight.succeed(token))
    }

    fn fail<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<FailResult>> {
        self.decide(ask, i64::MIN, |sight| sight.fail(token))
    }

    fn renew<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<Option<Timestamp>>> {
        self.decide(ask, i64::MIN, |sight| sight.renew(token))
    }

    fn replay<'a>(&'a self, ask: &'a DomainAsk, offset: i64) -> Answer<'a, Contract<ReplayResult>> {
        self.decide(ask, offset, replay)
    }

    fn reservation<'a>(&'a self, ask: &'a DomainAsk) -> Answer<'a, Option<Reservation>> {
        Box::pin(async move {
            let state = self.state();
            let space = state.spaces.get(&ask.space);
            let domain = space.and_then(|space| space.domains.get(&ask.domain));
            Ok(domain.and_then(Domain::reservation).cloned())
        })
    }

    fn idle_with_backlog<'a>(
        &'a self,
        space: &'a SpaceName,
        limit: u32,
    ) -> Answer<'a, Vec<(DomainName, i64)>> {
        let head = |domain: &Domain| match domain.reservation() {
            Some(_) => None,
            None => domain.backlog().head(),
        };
        Box::pin(async move { Ok(listed(limit, self.state().domains_where(space, head))) })
    }

    fn lapsed<'a>(
        &'a self,
        space: &'a SpaceName,
        limit: u32,
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<(DomainName, i64)>> {
        Box::pin(async move {
            let now = self.moment(now);
            let lapsed = |domain: &Domain| {
                let held = domain.reservation().filter(|held| held.lapsed(now))?;
                Some((held.until, held.offset))
            };
            let mut found = self.state().domains_where(space, lapsed);
            // Already sorted by name; the stable sort keeps that order among domains that lapsed
            // together.
            found.sort_by_key(|(_, (until, _))| *until);
            let found = found.into_iter();
            let found = found.map(|(domain, (_, offset))| (domain, offset));
            Ok(listed(limit, found.collect()))
        })
    }

    fn watermark<'a>(&'a self, space: &'a SpaceName) -> Answer<'a, i64> {
        Box::pin(async move {
            let state = self.state();
            let space = state.spaces.get(space);
            Ok(space.map_or(i64::MIN, |space| space.watermark))
        })
    }

    fn advance_watermark<'a>(&'a self, space: &'a SpaceName, offset: i64) -> Answer<'a, i64> {
        Box::pin(async move {
            let mut state = self.state();
            let space = state.spaces.entry(space.clone()).or_default();
            space.watermark = space.watermark.max(offset);
            space.prune();
            Ok(space.watermark)
        })
    }

    fn forget_failed_below<'a>(&'a self, space: &'a SpaceName, offset: i64) -> Answer<'a, ()> {
        Box::pin(async move {
            let mut state = self.state();
            let space = state.spaces.entry(space.clone()).or_default();
            space.forgiven = space.forgiven.max(offset);
            space.prune();
            Ok(())
        })
    }
}

impl MemoryStore {
    /// Returns a copy of every domain of a space, for tests.
    #[cfg(feature = "testing")]
    pub fn domains_of(&self, space: &SpaceName) -> Vec<(DomainName, Domain)> {
        self.state()
            .domains_where(space, |domain| Some(domain.clone()))
    }

    fn decide<'a, T: 'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        decision: impl FnOnce(&DecisionInputs<'_>) -> Decided<T> + Send + 'a,
    ) -> Answer<'a, Contract<T>> {
        Box::pin(async move {
            let now = self.moment(ask.now);
            Ok(self.state().decide(ask, offset, now, decision))
        })
    }
}

impl MemoryState {
    fn decide<T>(
        &mut self,
        ask: &DomainAsk,
        offset: i64,
        now: Timestamp,
        decision: impl FnOnce(&DecisionInputs<'_>) -> Decided<T>,
    ) -> Contract<T> {
        let space = self.spaces.get(&ask.space);
        let watermark = space.map_or(i64::MIN, |space| space.watermark);
        let known = space.and_then(|space| space.domains.get(&ask.domain));
        let blank = Domain::new(ask.domain.clone());
        let (view, at) = known.unwrap_or(&blank).look(offset, watermark);
        let sight = DecisionInputs {
            view,
            at,
            rules: &ask.rules,
            now,
        };
        let (answer, change) = decision(&sight)?;
        // A decision without a change does not create a domain.
        if !change.is_nothing() {
            let space = self.spaces.entry(ask.space.clone()).or_default();
            let domain = space.domains.entry(ask.domain.clone()).or_insert(blank);
            domain.apply(change);
            domain.forget_failed_below(space.forgiven, space.watermark);
            if domain.is_blank() {
                space.domains.remove(&ask.domain);
            }
        }
        Ok(answer)
    }

    /// Lists the domains of a space for which `tell` returns a value, by name.
    fn domains_where<T>(
        &self,
        space: &SpaceName,
        tell: impl Fn(&Domain) -> Option<T>,
    ) -> Vec<(DomainName, T)> {
        let domains = self.spaces.get(space).into_iter();
        let domains = domains.flat_map(|space| space.domains.iter());
        let told = domains.filter_map(|(name, domain)| Some((name.clone(), tell(domain)?)));
        told.collect()
    }
}

fn listed(limit: u32, mut found: Vec<(DomainName, i64)>) -> Vec<(DomainName, i64)> {
    found.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
    found
}

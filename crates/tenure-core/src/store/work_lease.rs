//! `WorkLeases`: the verbs of the work lease, kept by a store. The contract and its decisions are
//! those of [`crate::domain`]; a store shows the view, applies the change and lets nothing come
//! between.

use std::fmt;

use super::Answer;
use crate::domain::{
    AcquireResult, DomainName, DomainRules, FailResult, ReplayResult, Reservation, SpaceName,
    SucceedResult, WorkLeaseError,
};
use crate::time::Timestamp;
use crate::token::Token;

/// What the contract answers: a result, or the caller's mistake, which changed nothing.
pub type Contract<T> = Result<T, WorkLeaseError>;

/// Which domain is asked for, by which rules, and when.
#[derive(Clone, Debug)]
pub struct DomainAsk {
    /// The space that it is in.
    pub space: SpaceName,
    /// The domain.
    pub domain: DomainName,
    /// What the decision goes by. All callers of a space should say the same.
    pub rules: DomainRules,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl DomainAsk {
    /// Asks for a domain by the default rules.
    pub fn new(space: SpaceName, domain: DomainName) -> Self {
        Self {
            space,
            domain,
            rules: DomainRules::default(),
            now: None,
        }
    }

    /// By these rules.
    #[must_use]
    pub fn rules(mut self, rules: DomainRules) -> Self {
        self.rules = rules;
        self
    }

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// The work leases of a store, safe for any number of processes that use it.
///
/// Every verb takes effect whole or not at all, and every two on one domain one after the other.
/// When an answer was lost, ask again: `try_acquire` of the same offset says whether it is in
/// flight, under which token, or how it ended.
pub trait WorkLeases: Send + Sync + fmt::Debug {
    /// See [`try_acquire`](crate::domain::try_acquire). `fresh` is the token of the offset if it is
    /// acquired; it must never have been given out before.
    fn try_acquire<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        fresh: &'a Token,
    ) -> Answer<'a, Contract<AcquireResult>>;

    /// See [`submit`](crate::domain::submit).
    fn submit<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        fresh: &'a Token,
    ) -> Answer<'a, Contract<AcquireResult>>;

    /// See [`succeed`](crate::domain::succeed).
    fn succeed<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<SucceedResult>>;

    /// See [`fail`](crate::domain::fail).
    fn fail<'a>(&'a self, ask: &'a DomainAsk, token: &'a Token)
    -> Answer<'a, Contract<FailResult>>;

    /// See [`renew`](crate::domain::renew).
    fn renew<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<Option<Timestamp>>>;

    /// See [`replay`](crate::domain::replay).
    fn replay<'a>(&'a self, ask: &'a DomainAsk, offset: i64) -> Answer<'a, Contract<ReplayResult>>;

    /// What is in flight in a domain: since when, and how often it has failed. It holds the token,
    /// as `AlreadyAcquired` does.
    fn reservation<'a>(&'a self, ask: &'a DomainAsk) -> Answer<'a, Option<Reservation>>;

    /// Up to `limit` domains in which something waits and nothing is in flight, each with the head
    /// of its backlog, by name. A hint that was lost is found here: acquire the head.
    fn idle_with_backlog<'a>(
        &'a self,
        space: &'a SpaceName,
        limit: u32,
    ) -> Answer<'a, Vec<(DomainName, i64)>>;

    /// Up to `limit` domains whose reservation has lapsed, each with the offset in flight, those
    /// that lapsed first first. Whoever acquires the offset takes it over.
    fn lapsed<'a>(
        &'a self,
        space: &'a SpaceName,
        limit: u32,
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<(DomainName, i64)>>;

    /// Every offset below it is terminal, except what is still in flight or queued; `i64::MIN`
    /// where nobody has moved it.
    fn watermark<'a>(&'a self, space: &'a SpaceName) -> Answer<'a, i64>;

    /// Moves the watermark of a space forward, never back; answers with the one that stands. What
    /// it says of processed offsets is then forgotten, and so are domains of which nothing is left.
    fn advance_watermark<'a>(&'a self, space: &'a SpaceName, offset: i64) -> Answer<'a, i64>;

    /// Forgets the offsets below this one that were given up, each once the watermark has passed
    /// it: from then on they count as processed. Never taken back.
    fn forget_failed_below<'a>(&'a self, space: &'a SpaceName, offset: i64) -> Answer<'a, ()>;
}

/// A store that keeps work leases. They are asked through a door of their own: `renew` and
/// `replay` mean something else there.
pub trait KeepsWorkLeases: Send + Sync + fmt::Debug {
    /// The work leases of this store.
    fn work_leases(&self) -> &dyn WorkLeases;
}

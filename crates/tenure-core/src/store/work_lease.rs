//! `WorkLeases`: the store operations of the work lease. [`crate::work_lease`] defines the contract
//! and makes the decisions; a store reads the view and applies the change in one atomic step.

use std::fmt;

use super::Answer;
use crate::time::Timestamp;
use crate::token::Token;
use crate::work_lease::{
    AcquireResult, DomainName, DomainRules, FailResult, ReplayResult, Reservation, SpaceName,
    SucceedResult, WorkLeaseError,
};

/// Result of an operation, or a mistake of the caller, which changed nothing.
pub type Contract<T> = Result<T, WorkLeaseError>;

/// Domain, rules and time of a request.
#[derive(Clone, Debug)]
pub struct DomainAsk {
    /// The space of the domain.
    pub space: SpaceName,
    /// The domain.
    pub domain: DomainName,
    /// Rules for the decision. All callers of a space should use the same ones.
    pub rules: DomainRules,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl DomainAsk {
    /// Creates a request with the default rules.
    pub fn new(space: SpaceName, domain: DomainName) -> Self {
        Self {
            space,
            domain,
            rules: DomainRules::default(),
            now: None,
        }
    }

    /// Sets the rules.
    #[must_use]
    pub fn rules(mut self, rules: DomainRules) -> Self {
        self.rules = rules;
        self
    }

    /// Overrides the current time, for tests.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// The work leases of a store, safe for any number of processes.
///
/// Every operation takes effect as a whole or not at all; operations on one domain run one after
/// the other. If an answer is lost, call `try_acquire` for the same offset: it returns the token if
/// the offset is in flight, or its final state.
pub trait WorkLeases: Send + Sync + fmt::Debug {
    /// See [`try_acquire`](crate::work_lease::try_acquire). `fresh` becomes the token if the offset
    /// is acquired; it must never have been issued before.
    fn try_acquire<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        fresh: &'a Token,
    ) -> Answer<'a, Contract<AcquireResult>>;

    /// See [`submit`](crate::work_lease::submit).
    fn submit<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: i64,
        fresh: &'a Token,
    ) -> Answer<'a, Contract<AcquireResult>>;

    /// See [`succeed`](crate::work_lease::succeed).
    fn succeed<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<SucceedResult>>;

    /// See [`fail`](crate::work_lease::fail).
    fn fail<'a>(&'a self, ask: &'a DomainAsk, token: &'a Token)
    -> Answer<'a, Contract<FailResult>>;

    /// See [`renew`](crate::work_lease::renew).
    fn renew<'a>(
        &'a self,
        ask: &'a DomainAsk,
        token: &'a Token,
    ) -> Answer<'a, Contract<Option<Timestamp>>>;

    /// See [`replay`](crate::work_lease::replay).
    fn replay<'a>(&'a self, ask: &'a DomainAsk, offset: i64) -> Answer<'a, Contract<ReplayResult>>;

    /// Returns the reservation of a domain, with its start and its failures. It contains the live
    /// token, like `AlreadyAcquired`.
    fn reservation<'a>(&'a self, ask: &'a DomainAsk) -> Answer<'a, Option<Reservation>>;

    /// Lists up to `limit` domains, by name, that have a backlog but nothing in flight, each with
    /// its head. In these domains, a caller lost or ignored the next offset that `succeed` or
    /// `fail` returned: acquire the head.
    fn idle_with_backlog<'a>(
        &'a self,
        space: &'a SpaceName,
        limit: u32,
    ) -> Answer<'a, Vec<(DomainName, i64)>>;

    /// Lists up to `limit` domains whose reservation has lapsed, each with the offset in flight,
    /// earliest end first. The next caller to acquire the offset takes it over.
    fn lapsed<'a>(
        &'a self,
        space: &'a SpaceName,
        limit: u32,
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<(DomainName, i64)>>;

    /// Returns the watermark: every offset below it is terminal, unless it is in flight or queued.
    /// `i64::MIN` if it was never moved.
    fn watermark<'a>(&'a self, space: &'a SpaceName) -> Answer<'a, i64>;

    /// Moves the watermark of a space forward, never back, and returns the current one. Forgets the
    /// processed offsets below it, and domains that are then empty.
    fn advance_watermark<'a>(&'a self, space: &'a SpaceName, offset: i64) -> Answer<'a, i64>;

    /// Forgets each failed offset below this one as soon as the watermark has passed it; from then
    /// on it counts as processed. This cannot be undone.
    fn forget_failed_below<'a>(&'a self, space: &'a SpaceName, offset: i64) -> Answer<'a, ()>;
}

/// A store that supports work leases, in a trait object of their own: `renew` and `replay` mean
/// something else here than in [`LeaseStore`](super::LeaseStore) and
/// [`Operate`](super::Operate).
pub trait ProvidesWorkLeases: Send + Sync + fmt::Debug {
    /// The work leases of this store.
    fn work_leases(&self) -> &dyn WorkLeases;
}

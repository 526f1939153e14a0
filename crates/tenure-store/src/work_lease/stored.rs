//! `StoredWorkLease`: the work lease of a space in a store.

use std::sync::Arc;

use tenure_core::store::{DomainAsk, Store, StoreError, WorkLeases};
use tenure_core::work_lease::StoredWorkLeaseError;
use tenure_core::{
    AcquireResult, DomainName, DomainRules, FailResult, ReplayResult, Reservation, SpaceName,
    SucceedResult, Term, Timestamp, Token, Tokens, WorkLeaseError, WorkerId,
};

use crate::open::Opened;

impl Opened {
    /// Returns the work lease of a space. Its tokens name this worker.
    pub fn work_lease(
        &self,
        worker: WorkerId,
        tokens: Arc<Tokens>,
        space: SpaceName,
    ) -> StoredWorkLease {
        StoredWorkLease {
            store: self.shared(),
            worker,
            tokens,
            space,
            rules: DomainRules::default(),
        }
    }
}

/// Exclusive, first-in-first-out work on the offsets of a domain, across all processes of a store.
///
/// It starts no work and never waits. [`succeed`](Self::succeed) and [`fail`](Self::fail) return
/// the next offset as a hint, and the caller decides when to retry: `acquired_at` and `retry_count`
/// are in the [`reservation`](Self::reservation). A process may die with a hint or with an offset
/// in flight, so check [`idle_with_backlog`](Self::idle_with_backlog) and, with a term,
/// [`lapsed`](Self::lapsed) at the start and then regularly.
#[derive(Clone, Debug)]
pub struct StoredWorkLease {
    store: Arc<dyn Store>,
    worker: WorkerId,
    tokens: Arc<Tokens>,
    space: SpaceName,
    rules: DomainRules,
}

impl StoredWorkLease {
    /// Sets the rules. All processes that share a space should use the same.
    #[must_use]
    pub fn rules(mut self, rules: DomainRules) -> Self {
        self.rules = rules;
        self
    }

    /// Sets the maximum number of retries of an offset; 10 by default.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.rules.max_retries = retries;
        self
    }

    /// Sets the time after which another caller may take over an offset that is not renewed. No
    /// limit by default.
    #[must_use]
    pub fn term(mut self, term: Term) -> Self {
        self.rules.term = Some(term);
        self
    }

    /// Sets the maximum number of offsets in the backlog of a domain. No limit by default.
    #[must_use]
    pub fn backlog_limit(mut self, offsets: u64) -> Self {
        self.rules.backlog_limit = Some(offsets);
        self
    }

    /// Acquires an offset, or queues it behind the one in flight.
    ///
    /// With a term, a lapsed offset in flight is acquired again under a new token; its
    /// `acquired_at` and `retry_count` stay unchanged.
    ///
    /// # Errors
    /// Nothing is in flight and another offset is the head of the backlog, the backlog is at its
    /// limit, the domain name is not valid, or the store failed.
    pub async fn try_acquire(
        &self,
        domain: &str,
        offset: i64,
    ) -> Result<AcquireResult, StoredWorkLeaseError> {
        let (ask, fresh) = (self.ask(domain)?, self.fresh());
        Ok(self.leases().try_acquire(&ask, offset, &fresh).await??)
    }

    /// Acquires an offset if nothing is ahead of it, otherwise queues it, in one step. Submitted
    /// offsets of a domain are processed in the order of submission.
    ///
    /// # Errors
    /// The backlog is at its limit, the domain name is not valid, or the store failed.
    pub async fn submit(
        &self,
        domain: &str,
        offset: i64,
    ) -> Result<AcquireResult, StoredWorkLeaseError> {
        let (ask, fresh) = (self.ask(domain)?, self.fresh());
        Ok(self.leases().submit(&ask, offset, &fresh).await??)
    }

    /// Ends the offset in flight as processed, and returns the next one as a hint.
    ///
    /// # Errors
    /// Nothing is in flight, the token does not match, or the store failed.
    pub async fn succeed(
        &self,
        domain: &str,
        token: &Token,
    ) -> Result<SucceedResult, StoredWorkLeaseError> {
        let ask = self.ask(domain)?;
        Ok(self.leases().succeed(&ask, token).await??)
    }

    /// Counts a failure of the offset in flight. It stays in flight for a retry, or is given up
    /// after `max_retries` retries.
    ///
    /// # Errors
    /// As [`succeed`](Self::succeed).
    pub async fn fail(
        &self,
        domain: &str,
        token: &Token,
    ) -> Result<FailResult, StoredWorkLeaseError> {
        let ask = self.ask(domain)?;
        Ok(self.leases().fail(&ask, token).await??)
    }

    /// Restarts the term of the offset in flight, and returns its end; `None` if it has no end. A
    /// caller without a term leaves the end unchanged.
    ///
    /// # Errors
    /// As [`succeed`](Self::succeed).
    pub async fn renew(
        &self,
        domain: &str,
        token: &Token,
    ) -> Result<Option<Timestamp>, StoredWorkLeaseError> {
        let ask = self.ask(domain)?;
        Ok(self.leases().renew(&ask, token).await??)
    }

    /// Queues a processed or failed offset again, at the tail of the backlog: for operators.
    ///
    /// # Errors
    /// The backlog is at its limit, the domain name is not valid, or the store failed.
    pub async fn replay(
        &self,
        domain: &str,
        offset: i64,
    ) -> Result<ReplayResult, StoredWorkLeaseError> {
        let ask = self.ask(domain)?;
        Ok(self.leases().replay(&ask, offset).await??)
    }

    /// Returns the reservation of a domain, with the offset in flight.
    ///
    /// # Errors
    /// The domain name is not valid, or the store failed.
    pub async fn reservation(
        &self,
        domain: &str,
    ) -> Result<Option<Reservation>, StoredWorkLeaseError> {
        let ask = self.ask(domain)?;
        Ok(self.leases().reservation(&ask).await?)
    }

    /// Lists up to `limit` domains that have a backlog but nothing in flight, each with the head of
    /// its backlog. Their hints were lost: acquire these heads, at the start and then regularly.
    ///
    /// # Errors
    /// The store failed.
    pub async fn idle_with_backlog(
        &self,
        limit: u32,
    ) -> Result<Vec<(DomainName, i64)>, StoreError> {
        self.leases().idle_with_backlog(&self.space, limit).await
    }

    /// Lists up to `limit` domains whose offset in flight is past its term, each with that offset.
    /// Their holders are late or dead: acquire these offsets. The term of the reservation decides,
    /// not the term of this caller, so an offset acquired without a term never lapses.
    ///
    /// # Errors
    /// The store failed.
    pub async fn lapsed(&self, limit: u32) -> Result<Vec<(DomainName, i64)>, StoreError> {
        self.leases().lapsed(&self.space, limit, None).await
    }

    /// Returns the watermark: every offset below it is processed or failed, unless it is in flight
    /// or queued.
    ///
    /// # Errors
    /// The store failed.
    pub async fn watermark(&self) -> Result<i64, StoreError> {
        self.leases().watermark(&self.space).await
    }

    /// Declares every offset below this one processed or failed, in all domains of the space;
    /// offsets in flight or queued stay unchanged. Returns the current watermark, which never goes
    /// back.
    ///
    /// # Errors
    /// The store failed.
    pub async fn advance_watermark(&self, offset: i64) -> Result<i64, StoreError> {
        self.leases().advance_watermark(&self.space, offset).await
    }

    /// Forgets each failed offset below this one as soon as the watermark has passed it; from then
    /// on the answer for it is `AlreadyProcessed`.
    ///
    /// # Errors
    /// The store failed.
    pub async fn forget_failed_below(&self, offset: i64) -> Result<(), StoreError> {
        self.leases().forget_failed_below(&self.space, offset).await
    }

    fn leases(&self) -> &dyn WorkLeases {
        self.store.work_leases()
    }

    fn fresh(&self) -> Token {
        self.tokens.issue(&self.worker, rand::random())
    }

    fn ask(&self, domain: &str) -> Result<DomainAsk, WorkLeaseError> {
        let domain = DomainName::new(domain)?;
        Ok(DomainAsk::new(self.space.clone(), domain).rules(self.rules))
    }
}

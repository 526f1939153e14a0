//! Work leases: exclusive, first-in-first-out work on the offsets of a domain. [`WorkLease`] keeps
//! them in memory; [`StoredWorkLease`] has the same contract in the database, shared by all
//! processes that open it.

pub use tenure_core::work_lease::{
    AcquireResult, Backlog, BacklogChange, Change, Decided, Domain, DomainName, DomainRules,
    DomainView, FailResult, NearRanges, OffsetView, Offsets, RangesChange, ReplayResult,
    Reservation, ReservationChange, SpaceName, SucceedResult, Terminal, TerminalChange,
    TerminalRange, WorkLeaseError, fail, renew, replay, submit, succeed, try_acquire,
};
pub use tenure_store::memory::WorkLease;

use tenure_core::store::{DomainAsk, StoreError, WorkLeases};
use tenure_core::{Invalid, Term, Timestamp, Token};

use crate::tenure::Tenure;

/// Error of a call on a stored work lease: a mistake of the caller, which changed nothing, or a
/// failure of the store.
///
/// After a failure of the store the call may still have taken effect: call
/// [`try_acquire`](StoredWorkLease::try_acquire) for the same offset again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredWorkLeaseError {
    /// The contract of the work lease forbids the call.
    #[error(transparent)]
    Contract(#[from] WorkLeaseError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoredWorkLeaseError {
    /// Returns the caller's mistake, if it is one.
    pub fn contract(&self) -> Option<&WorkLeaseError> {
        match self {
            Self::Contract(mistake) => Some(mistake),
            Self::Store(_) => None,
        }
    }

    /// Returns true if the caller holds no offset of the domain: nothing is in flight, or the
    /// offset in flight has another token.
    pub fn is_illegal_state(&self) -> bool {
        self.contract()
            .is_some_and(WorkLeaseError::is_illegal_state)
    }
}

impl Tenure {
    /// Returns the work lease of a space: the domains of one log, or of one partition of it, which
    /// share a watermark. Writes nothing until the first offset is acquired.
    ///
    /// # Errors
    /// The name is empty, longer than 255 bytes, or has control characters.
    pub fn work_lease(&self, space: &str) -> Result<StoredWorkLease, Invalid> {
        Ok(StoredWorkLease {
            tenure: self.clone(),
            space: SpaceName::new(space)?,
            rules: DomainRules::default(),
        })
    }
}

/// Exclusive, first-in-first-out work on the offsets of a domain, across all processes of a store.
///
/// It starts no work and never waits. [`succeed`](Self::succeed) and [`fail`](Self::fail) return
/// the next offset as a hint, and the caller decides when to retry: `acquired_at` and `retry_count`
/// are in the [`reservation`](Self::reservation). A process may die with a hint or with an offset
/// in flight, so check [`idle_with_backlog`](Self::idle_with_backlog) and, with a term,
/// [`lapsed`](Self::lapsed) at the start and then regularly.
///
/// ```
/// use std::time::Duration;
/// use tenure::work_lease::{AcquireResult, DomainRules, SucceedResult};
/// use tenure::{Tenure, Term};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
/// let tenure = Tenure::open(&url).await?;
/// // All processes that share the space should use the same rules.
/// let rules = DomainRules {
///     max_retries: 5,
///     term: Some(Term::new(Duration::from_secs(60))?),
///     ..DomainRules::default()
/// };
/// let lease = tenure.work_lease("payments-3")?.rules(rules);
///
/// let AcquireResult::Acquired(token) = lease.try_acquire("customer-7", 1).await? else {
///     panic!("the offset was not acquired");
/// };
/// assert_eq!(lease.submit("customer-7", 2).await?, AcquireResult::Enqueued);
///
/// // Another process that has the token can end the lease.
/// let other = Tenure::open(&url).await?.work_lease("payments-3")?.rules(rules);
/// assert_eq!(other.succeed("customer-7", &token).await?, SucceedResult::NextHint(2));
///
/// // A second call has no lease to end.
/// let late = lease.succeed("customer-7", &token).await.unwrap_err();
/// assert!(late.is_illegal_state());
/// assert_eq!(lease.idle_with_backlog(10).await?[0].1, 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct StoredWorkLease {
    tenure: Tenure,
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
        let (ask, fresh) = (self.ask(domain)?, self.tenure.token());
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
        let (ask, fresh) = (self.ask(domain)?, self.tenure.token());
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
        self.tenure.store().work_leases()
    }

    fn ask(&self, domain: &str) -> Result<DomainAsk, WorkLeaseError> {
        let domain = DomainName::new(domain)?;
        Ok(DomainAsk::new(self.space.clone(), domain).rules(self.rules))
    }
}

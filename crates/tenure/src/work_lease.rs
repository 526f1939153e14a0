//! The work lease on a store: the same contract as in process, kept in the database and shared by
//! all processes that open it.

use tenure_core::store::{DomainAsk, StoreError, WorkLeases};
use tenure_core::{
    AcquireResult, DomainName, DomainRules, FailResult, Invalid, ReplayResult, Reservation,
    SpaceName, SucceedResult, Term, Timestamp, Token, WorkLeaseError,
};

use crate::tenure::Tenure;

/// What a call on a stored work lease came upon: the caller's mistake, by which nothing was
/// changed, or a store that could not answer.
///
/// When the store could not answer, the call may have taken effect all the same: ask
/// [`try_acquire`](StoredWorkLease::try_acquire) for the same offset again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoredWorkLeaseError {
    /// The contract does not allow it.
    #[error(transparent)]
    Contract(#[from] WorkLeaseError),
    /// The store could not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl StoredWorkLeaseError {
    /// The caller's mistake, if it is one.
    pub fn contract(&self) -> Option<&WorkLeaseError> {
        match self {
            Self::Contract(mistake) => Some(mistake),
            Self::Store(_) => None,
        }
    }

    /// Whether a holder ended what is not in its hand: no lease, or not its token.
    pub fn is_illegal_state(&self) -> bool {
        self.contract()
            .is_some_and(WorkLeaseError::is_illegal_state)
    }
}

impl Tenure {
    /// The work lease of a space: the domains of one log, or of one partition of it, under one
    /// watermark. Nothing is written before something is acquired.
    ///
    /// # Errors
    /// A space's name is 1 to 255 bytes without control characters.
    pub fn work_lease(&self, space: &str) -> Result<StoredWorkLease, Invalid> {
        Ok(StoredWorkLease {
            tenure: self.clone(),
            space: SpaceName::new(space)?,
            rules: DomainRules::default(),
        })
    }
}

/// Exclusive work on the offsets of a domain, first in, first out, for all processes of a store.
///
/// It hands nothing off and waits for nothing: [`succeed`](Self::succeed) and [`fail`](Self::fail)
/// tell the next offset as a hint, and when to try again is up to the caller, who reads
/// `acquired_at` and `retry_count` from the [`reservation`](Self::reservation). A process may die
/// with a hint or with an offset in its hand: look for
/// [`idle_with_backlog`](Self::idle_with_backlog) and, with a term, [`lapsed`](Self::lapsed) on
/// start and now and then.
///
/// ```
/// use std::time::Duration;
/// use tenure::{AcquireResult, DomainRules, SucceedResult, Tenure, Term};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
/// let tenure = Tenure::open(&url).await?;
/// // All who share the space say the same.
/// let rules = DomainRules {
///     max_retries: 5,
///     term: Some(Term::new(Duration::from_secs(60))?),
///     ..DomainRules::default()
/// };
/// let lease = tenure.work_lease("payments-3")?.rules(rules);
///
/// let AcquireResult::Acquired(token) = lease.try_acquire("customer-7", 1).await? else {
///     panic!("nothing of this domain was in flight");
/// };
/// assert_eq!(lease.submit("customer-7", 2).await?, AcquireResult::Enqueued);
///
/// // Another process, or this one after a crash, ends it by the token.
/// let other = Tenure::open(&url).await?.work_lease("payments-3")?.rules(rules);
/// assert_eq!(other.succeed("customer-7", &token).await?, SucceedResult::NextHint(2));
///
/// // Whoever says it again is told: No lease.
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
    /// By these rules. All who share a space should say the same.
    #[must_use]
    pub fn rules(mut self, rules: DomainRules) -> Self {
        self.rules = rules;
        self
    }

    /// So many failures of an offset are followed by another try.
    #[must_use]
    pub fn max_retries(mut self, retries: u32) -> Self {
        self.rules.max_retries = retries;
        self
    }

    /// After so long without a sign of its holder an offset may be taken over.
    #[must_use]
    pub fn term(mut self, term: Term) -> Self {
        self.rules.term = Some(term);
        self
    }

    /// So many offsets may wait in a domain.
    #[must_use]
    pub fn backlog_limit(mut self, offsets: u64) -> Self {
        self.rules.backlog_limit = Some(offsets);
        self
    }

    /// Acquires an offset, or queues it behind the one that is in flight.
    ///
    /// With a term, the offset in flight is acquired anew when its term is over: under a new token,
    /// with `acquired_at` and `retry_count` as they were.
    ///
    /// # Errors
    /// Nothing is in flight and the offset is not the head of the backlog; the backlog is at its
    /// limit; the domain's name cannot be one; or the store could not answer.
    pub async fn try_acquire(
        &self,
        domain: &str,
        offset: i64,
    ) -> Result<AcquireResult, StoredWorkLeaseError> {
        let (ask, fresh) = (self.ask(domain)?, self.tenure.token());
        Ok(self.leases().try_acquire(&ask, offset, &fresh).await??)
    }

    /// Acquires an offset if nothing is ahead of it, and else queues it, in one step. Submitted
    /// offsets of a domain are worked in the order in which they were submitted.
    ///
    /// # Errors
    /// The backlog is at its limit; the domain's name cannot be one; or the store could not answer.
    pub async fn submit(
        &self,
        domain: &str,
        offset: i64,
    ) -> Result<AcquireResult, StoredWorkLeaseError> {
        let (ask, fresh) = (self.ask(domain)?, self.tenure.token());
        Ok(self.leases().submit(&ask, offset, &fresh).await??)
    }

    /// Ends the offset in flight as processed, and tells the next one.
    ///
    /// # Errors
    /// Nothing is in flight, or it is so under another token; or the store could not answer.
    pub async fn succeed(
        &self,
        domain: &str,
        token: &Token,
    ) -> Result<SucceedResult, StoredWorkLeaseError> {
        let ask = self.ask(domain)?;
        Ok(self.leases().succeed(&ask, token).await??)
    }

    /// Counts a failure of the offset in flight: it stays so for a retry, or is given up when it
    /// had `max_retries` of them.
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

    /// Begins the term of the offset in flight anew, and tells until when it stands; `None`: for
    /// ever. Without a term of its own this caller leaves the end as it is.
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

    /// An operator's order: takes a terminal offset out of its set and queues it at the tail.
    ///
    /// # Errors
    /// The backlog is at its limit; the domain's name cannot be one; or the store could not answer.
    pub async fn replay(
        &self,
        domain: &str,
        offset: i64,
    ) -> Result<ReplayResult, StoredWorkLeaseError> {
        let ask = self.ask(domain)?;
        Ok(self.leases().replay(&ask, offset).await??)
    }

    /// What is in flight in a domain.
    ///
    /// # Errors
    /// The domain's name cannot be one; or the store could not answer.
    pub async fn reservation(
        &self,
        domain: &str,
    ) -> Result<Option<Reservation>, StoredWorkLeaseError> {
        let ask = self.ask(domain)?;
        Ok(self.leases().reservation(&ask).await?)
    }

    /// Up to `limit` domains of which nothing is in flight although something waits, each with the
    /// head of its backlog. Acquire those: on start, and now and then, in case a hint was lost.
    ///
    /// # Errors
    /// The store could not answer.
    pub async fn idle_with_backlog(
        &self,
        limit: u32,
    ) -> Result<Vec<(DomainName, i64)>, StoreError> {
        self.leases().idle_with_backlog(&self.space, limit).await
    }

    /// Up to `limit` domains whose offset in flight is past its term, each with that offset.
    /// Acquire those: their holders are late or dead. An offset that was acquired without a term is
    /// never among them, whatever the term of this caller; one that was acquired with a term is,
    /// also if this caller has none.
    ///
    /// # Errors
    /// The store could not answer.
    pub async fn lapsed(&self, limit: u32) -> Result<Vec<(DomainName, i64)>, StoreError> {
        self.leases().lapsed(&self.space, limit, None).await
    }

    /// Every offset below it is terminal, except what is in flight or queued.
    ///
    /// # Errors
    /// The store could not answer.
    pub async fn watermark(&self) -> Result<i64, StoreError> {
        self.leases().watermark(&self.space).await
    }

    /// Says that every offset below this one is terminal, in all domains of the space; what is in
    /// flight or queued stays as it is. Answers with the watermark that stands: it never goes back.
    ///
    /// # Errors
    /// The store could not answer.
    pub async fn advance_watermark(&self, offset: i64) -> Result<i64, StoreError> {
        self.leases().advance_watermark(&self.space, offset).await
    }

    /// Forgets the offsets below this one that were given up, each once the watermark has passed
    /// it; their answer is then `AlreadyProcessed`.
    ///
    /// # Errors
    /// The store could not answer.
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

//! Work leases: exclusive, first-in-first-out work on the offsets of a domain. [`WorkLease`] keeps
//! them in memory; [`StoredWorkLease`] has the same contract in the database, shared by all
//! processes that open it.

pub use tenure_core::work_lease::{
    AcquireResult, Backlog, BacklogChange, Change, Decided, Domain, DomainName, DomainRules,
    DomainView, FailResult, NearRanges, OffsetView, Offsets, RangesChange, ReplayResult,
    Reservation, ReservationChange, SpaceName, StoredWorkLeaseError, SucceedResult, Terminal,
    TerminalChange, TerminalRange, WorkLeaseError, fail, renew, replay, submit, succeed,
    try_acquire,
};
pub use tenure_store::StoredWorkLease;
pub use tenure_store::memory::WorkLease;

use tenure_core::Invalid;

use crate::tenure::Tenure;

impl Tenure {
    /// Returns the work lease of a space: the domains of one log, or of one partition of it, which
    /// share a watermark. Writes nothing until the first offset is acquired.
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
    ///
    /// # Errors
    /// The name is empty, longer than 255 bytes, or has control characters.
    pub fn work_lease(&self, space: &str) -> Result<StoredWorkLease, Invalid> {
        let space = SpaceName::new(space)?;
        let worker = self.worker_id().clone();
        Ok(self.opened().work_lease(worker, self.tokens(), space))
    }
}

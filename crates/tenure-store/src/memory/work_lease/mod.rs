//! The in-process work lease: works the offsets of a domain strictly in order, one at a time, none
//! twice.
//!
//! The rules are those of [`tenure_core::work_lease`]; this module adds a lock per domain, a clock
//! and tokens. Each operation decides and changes under the lock of its domain, and releases the
//! lock before it returns. So no lock is held while waiting for anything outside. Nothing outlives
//! the process.

#[cfg_attr(
    not(feature = "testing"),
    expect(
        unreachable_pub,
        reason = "only tests of this crate replace a decision"
    )
)]
mod decisions;
mod shards;

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tenure_core::work_lease::{Decided, Domain};
use tenure_core::{
    AcquireResult, Clock, DomainName, DomainRules, FailResult, ReplayResult, Reservation,
    SucceedResult, Timestamp, Token, WorkLeaseError, WorkerId,
};

use crate::memory::SystemClock;
#[cfg(feature = "testing")]
pub use decisions::Decisions;
#[cfg(not(feature = "testing"))]
use decisions::Decisions;
use shards::{Shards, lock};

/// Exclusive work on the offsets of a domain, first in, first out, for one process.
///
/// The work lease starts no work and never waits: `succeed` and `fail` return the next offset as a
/// hint, and the caller must acquire it. The caller also decides when to retry, from `acquired_at`
/// and `retry_count` of the [`reservation`](Self::reservation). If a caller loses a hint,
/// [`idle_with_backlog`](Self::idle_with_backlog) finds the domain that waits.
///
/// ```
/// use tenure_core::{AcquireResult, DomainRules, SucceedResult, WorkLeaseError};
/// use tenure_store::memory::WorkLease;
///
/// let lease = WorkLease::new(DomainRules::default());
/// let AcquireResult::Acquired(token) = lease.try_acquire("customer-7", 1)? else {
///     panic!("nothing of this domain was in flight");
/// };
/// assert_eq!(lease.try_acquire("customer-7", 2)?, AcquireResult::Enqueued);
/// assert_eq!(lease.succeed("customer-7", &token)?, SucceedResult::NextHint(2));
///
/// // 2 is the head now. A newcomer is out of order, unless it is submitted.
/// let refused = lease.try_acquire("customer-7", 3).unwrap_err();
/// assert!(matches!(refused, WorkLeaseError::BacklogOrdering { expected: 2, got: 3, .. }));
/// assert_eq!(lease.submit("customer-7", 3)?, AcquireResult::Enqueued);
/// assert!(matches!(lease.try_acquire("customer-7", 2)?, AcquireResult::Acquired(_)));
/// # Ok::<(), WorkLeaseError>(())
/// ```
///
/// # Retention
///
/// The work lease remembers every processed or failed offset until the watermark passes it:
/// adjacent offsets share one range, others take about 20 bytes each. All domains share one
/// watermark: the position up to which the log is committed. Processed offsets below it are
/// forgotten, because the watermark implies them. Failed offsets stay until
/// [`forget_failed_below`](Self::forget_failed_below), so that they are answered with
/// `AlreadyFailed` until then. A domain without content is evicted automatically when the work
/// lease makes room for new ones, or by [`evict`](Self::evict).
pub struct WorkLease {
    rules: DomainRules,
    clock: Arc<dyn Clock>,
    mint: Box<dyn Fn() -> Token + Send + Sync>,
    decisions: Decisions,
    shards: Shards,
    watermark: AtomicI64,
    /// Failed offsets below this one are forgotten once the watermark has passed them.
    forgiven: AtomicI64,
}

impl WorkLease {
    /// Creates a work lease with these rules, the system clock and random tokens.
    pub fn new(rules: DomainRules) -> Self {
        Self::decided_by(rules, Decisions::default())
    }

    /// Creates a work lease that decides by these functions.
    #[cfg(feature = "testing")]
    pub fn with_decisions(rules: DomainRules, decisions: Decisions) -> Self {
        Self::decided_by(rules, decisions)
    }

    fn decided_by(rules: DomainRules, decisions: Decisions) -> Self {
        Self {
            rules,
            clock: Arc::new(SystemClock),
            mint: Box::new(mint()),
            shards: Shards::new(decisions.may_evict),
            decisions,
            watermark: AtomicI64::new(i64::MIN),
            forgiven: AtomicI64::new(i64::MIN),
        }
    }

    /// Replaces the clock. The work lease reads it under a domain's lock, so it must not block.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Replaces the token source. Tokens must be unique. The work lease calls it under a domain's
    /// lock, so it must not block or call this work lease.
    #[must_use]
    pub fn mint(mut self, mint: impl Fn() -> Token + Send + Sync + 'static) -> Self {
        self.mint = Box::new(mint);
        self
    }

    /// Acquires an offset, or queues it behind the one in flight.
    ///
    /// With a term, the offset in flight can be acquired again once its term is over: under a new
    /// token, with `acquired_at` and `retry_count` unchanged.
    ///
    /// # Errors
    /// Nothing is in flight and the offset is not the head of the backlog; the backlog is at its
    /// limit; the domain name is invalid.
    pub fn try_acquire(&self, domain: &str, offset: i64) -> Result<AcquireResult, WorkLeaseError> {
        let record = self.record(domain)?;
        self.decide(&record, |kept, watermark| {
            let (view, at) = kept.look(offset, watermark);
            (self.decisions.try_acquire)(&view, at, &self.rules, self.clock.now(), &self.mint)
        })
    }

    /// Acquires an offset if nothing is ahead of it, otherwise queues it, in one step. Submitted
    /// offsets of a domain are worked in the order of submission.
    ///
    /// # Errors
    /// The backlog is at its limit; the domain name is invalid.
    pub fn submit(&self, domain: &str, offset: i64) -> Result<AcquireResult, WorkLeaseError> {
        let record = self.record(domain)?;
        self.decide(&record, |kept, watermark| {
            let (view, at) = kept.look(offset, watermark);
            (self.decisions.submit)(&view, at, &self.rules, self.clock.now(), &self.mint)
        })
    }

    /// Ends the offset in flight as processed and returns the next one as a hint.
    ///
    /// # Errors
    /// Nothing is in flight, or the offset in flight has another token.
    pub fn succeed(&self, domain: &str, token: &Token) -> Result<SucceedResult, WorkLeaseError> {
        let record = self.held(domain)?;
        self.decide(&record, |kept, watermark| {
            (self.decisions.succeed)(&kept.view(watermark), token)
        })
    }

    /// Counts a failure of the offset in flight: it stays in flight for a retry, or fails for good
    /// after `max_retries` retries.
    ///
    /// # Errors
    /// Nothing is in flight, or the offset in flight has another token.
    pub fn fail(&self, domain: &str, token: &Token) -> Result<FailResult, WorkLeaseError> {
        let record = self.held(domain)?;
        self.decide(&record, |kept, watermark| {
            let view = kept.view(watermark);
            (self.decisions.fail)(&view, token, &self.rules, self.clock.now())
        })
    }

    /// Restarts the term of the offset in flight and returns its new end; `None` without a term:
    /// the reservation never lapses.
    ///
    /// # Errors
    /// Nothing is in flight, or the offset in flight has another token.
    pub fn renew(&self, domain: &str, token: &Token) -> Result<Option<Timestamp>, WorkLeaseError> {
        let record = self.held(domain)?;
        self.decide(&record, |kept, watermark| {
            let view = kept.view(watermark);
            (self.decisions.renew)(&view, token, &self.rules, self.clock.now())
        })
    }

    /// Queues a processed or failed offset again, at the tail, on an operator's request.
    ///
    /// # Errors
    /// The backlog is at its limit; the domain name is invalid.
    pub fn replay(&self, domain: &str, offset: i64) -> Result<ReplayResult, WorkLeaseError> {
        let record = self.record(domain)?;
        self.decide(&record, |kept, watermark| {
            let (view, at) = kept.look(offset, watermark);
            (self.decisions.replay)(&view, at, &self.rules)
        })
    }

    /// Returns the reservation of the offset in flight in a domain.
    pub fn reservation(&self, domain: &str) -> Option<Reservation> {
        let record = self.shards.find(domain)?;
        lock(&record).reservation().cloned()
    }

    /// Returns a copy of a domain's record.
    pub fn domain(&self, domain: &str) -> Option<Domain> {
        let record = self.shards.find(domain)?;
        let mut kept = lock(&record);
        self.prune(&mut kept);
        Some(kept.clone())
    }

    /// Lists the domains that have a backlog but nothing in flight, each with the head of its
    /// backlog. Acquire these heads at the start and then regularly, in case a hint was lost.
    pub fn idle_with_backlog(&self) -> Vec<(DomainName, i64)> {
        self.shards.collect(|kept| match kept.reservation() {
            Some(_) => None,
            None => kept.backlog().head(),
        })
    }

    /// Lists the domains whose offset in flight is past its term, each with that offset. Acquire
    /// these offsets: their holders are late or dead. Without a term the list is empty.
    pub fn lapsed(&self) -> Vec<(DomainName, i64)> {
        let now = self.clock.now();
        self.shards.collect(|kept| {
            let late = kept.reservation().filter(|current| current.lapsed(now));
            late.map(|current| current.offset)
        })
    }

    /// Declares every offset below this one terminal, in all domains; offsets in flight or queued
    /// are not affected. The watermark never moves back.
    pub fn advance_watermark(&self, offset: i64) {
        self.watermark.fetch_max(offset, Ordering::AcqRel);
    }

    /// Returns the watermark: every offset below it is terminal, unless it is in flight or queued.
    pub fn watermark(&self) -> i64 {
        self.watermark.load(Ordering::Acquire)
    }

    /// Forgets each failed offset below this one as soon as the watermark has passed it; from then
    /// on the answer for it is `AlreadyProcessed`.
    pub fn forget_failed_below(&self, offset: i64) {
        self.forgiven.fetch_max(offset, Ordering::AcqRel);
    }

    /// Forgets everything that the watermark implies, and evicts the domains that have no content
    /// and that no caller is using at the moment. Returns the number of evicted domains.
    pub fn evict(&self) -> usize {
        self.shards.evict(&|kept| self.prune(kept))
    }

    /// Returns the number of domains in memory.
    pub fn domains(&self) -> usize {
        self.shards.len()
    }

    /// Returns the approximate size of all domains in bytes.
    pub fn footprint(&self) -> usize {
        self.shards.footprint()
    }

    /// Finds the record of a domain, or creates it.
    fn record(&self, domain: &str) -> Result<Arc<Mutex<Domain>>, WorkLeaseError> {
        self.shards.create(domain, &|kept| self.prune(kept))
    }

    /// Finds the record of a domain that should have an offset in flight. Never creates it.
    fn held(&self, domain: &str) -> Result<Arc<Mutex<Domain>>, WorkLeaseError> {
        match self.shards.find(domain) {
            Some(record) => Ok(record),
            None => Err(WorkLeaseError::LeaseNotFound {
                domain: DomainName::new(domain)?,
            }),
        }
    }

    fn decide<T>(
        &self,
        record: &Mutex<Domain>,
        decide: impl FnOnce(&Domain, i64) -> Decided<T>,
    ) -> Result<T, WorkLeaseError> {
        let mut kept = lock(record);
        self.prune(&mut kept);
        let (answer, change) = decide(&kept, self.watermark())?;
        kept.apply(change);
        Ok(answer)
    }

    /// Forgets everything that the watermark implies. The watermark is read under the domain's
    /// lock, so it is never lower than at an earlier prune: a forgotten offset stays terminal.
    fn prune(&self, kept: &mut Domain) {
        let watermark = self.watermark();
        kept.prune(watermark);
        kept.forget_failed_below(self.forgiven.load(Ordering::Acquire), watermark);
    }
}

impl fmt::Debug for WorkLease {
    /// Shows the settings, not the content: tokens do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkLease")
            .field("rules", &self.rules)
            .field("watermark", &self.watermark())
            .finish_non_exhaustive()
    }
}

/// Returns a source of tokens: one random worker id, and for each token a number and 128 random
/// bits.
fn mint() -> impl Fn() -> Token + Send + Sync {
    let worker =
        WorkerId::new("work-lease", rand::random()).expect("`work-lease` is a worker's name");
    let count = AtomicU64::new(0);
    move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        Token::new(&worker, number, rand::random())
    }
}

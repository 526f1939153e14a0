//! The work lease in process: the offsets of a domain strictly in order, one at a time, none twice.
//!
//! The rules are those of [`tenure_core::domain`]; here they get a lock per domain, a clock and
//! tokens. Each verb decides and changes under its domain's own lock, and no lock is held when it
//! returns, so nothing outside is ever waited for under one. Nothing outlives the process.

mod decisions;
#[cfg(feature = "testing")]
mod planted;
mod shards;

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tenure_core::domain::{Decided, Domain};
use tenure_core::{
    AcquireResult, Clock, DomainName, DomainRules, FailResult, ReplayResult, Reservation,
    SucceedResult, Timestamp, Token, WorkLeaseError, WorkerId,
};

use crate::memory::SystemClock;
use decisions::Decisions;
#[cfg(feature = "testing")]
pub use planted::WorkLeaseFault;
use shards::{Shards, lock};

/// Exclusive work on the offsets of a domain, first in, first out, for one process.
///
/// It hands nothing off and waits for nothing: `succeed` and `fail` tell the next offset as a
/// hint, and when to try again is up to the caller, who reads `acquired_at` and `retry_count` from
/// the [`reservation`](Self::reservation). Hints may be lost with their reader:
/// [`idle_with_backlog`](Self::idle_with_backlog) finds what waits for one.
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
/// # What is remembered
///
/// Every offset that succeeded or was given up, until the watermark has passed it: neighbours cost
/// nothing, others some 20 bytes. The watermark is one for all domains: the position that the log
/// is committed up to. Processed offsets below it are forgotten, since it says the same of them.
/// Those given up stay until [`forget_failed_below`](Self::forget_failed_below), so that
/// `AlreadyFailed` is their answer until then. A domain of which nothing is left is evicted by
/// itself when room for new ones is made, or by [`evict`](Self::evict).
pub struct WorkLease {
    rules: DomainRules,
    clock: Arc<dyn Clock>,
    mint: Box<dyn Fn() -> Token + Send + Sync>,
    decisions: Decisions,
    shards: Shards,
    watermark: AtomicI64,
    /// Up to here failures are forgotten once the watermark has passed them.
    forgiven: AtomicI64,
}

impl WorkLease {
    /// A work lease by these rules, with the machine's clock and random tokens.
    pub fn new(rules: DomainRules) -> Self {
        Self::with_decisions(rules, Decisions::default())
    }

    fn with_decisions(rules: DomainRules, decisions: Decisions) -> Self {
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

    /// The same, judging by another clock. It is read under a domain's lock and must not wait.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// The same, with tokens from elsewhere. No two may be equal. It is called under a domain's
    /// lock and must not wait, nor call this work lease.
    #[must_use]
    pub fn mint(mut self, mint: impl Fn() -> Token + Send + Sync + 'static) -> Self {
        self.mint = Box::new(mint);
        self
    }

    /// Acquires an offset, or queues it behind the one that is in flight.
    ///
    /// With a term, the offset in flight is acquired anew when its term is over: under a new token,
    /// with `acquired_at` and `retry_count` as they were.
    ///
    /// # Errors
    /// Nothing is in flight and the offset is not the head of the backlog; the backlog is at its
    /// limit; the domain's name cannot be one.
    pub fn try_acquire(&self, domain: &str, offset: i64) -> Result<AcquireResult, WorkLeaseError> {
        let record = self.record(domain)?;
        self.decide(&record, |kept, watermark| {
            let (view, at) = kept.look(offset, watermark);
            (self.decisions.try_acquire)(&view, at, &self.rules, self.clock.now(), &self.mint)
        })
    }

    /// Acquires an offset if nothing is ahead of it, and else queues it, in one step. Submitted
    /// offsets of a domain are worked in the order in which they were submitted.
    ///
    /// # Errors
    /// The backlog is at its limit; the domain's name cannot be one.
    pub fn submit(&self, domain: &str, offset: i64) -> Result<AcquireResult, WorkLeaseError> {
        let record = self.record(domain)?;
        self.decide(&record, |kept, watermark| {
            let (view, at) = kept.look(offset, watermark);
            (self.decisions.submit)(&view, at, &self.rules, self.clock.now(), &self.mint)
        })
    }

    /// Ends the offset in flight as processed, and tells the next one.
    ///
    /// # Errors
    /// Nothing is in flight, or it is so under another token.
    pub fn succeed(&self, domain: &str, token: &Token) -> Result<SucceedResult, WorkLeaseError> {
        let record = self.held(domain)?;
        self.decide(&record, |kept, watermark| {
            (self.decisions.succeed)(&kept.view(watermark), token)
        })
    }

    /// Counts a failure of the offset in flight: it stays so for a retry, or is given up when it
    /// had `max_retries` of them.
    ///
    /// # Errors
    /// Nothing is in flight, or it is so under another token.
    pub fn fail(&self, domain: &str, token: &Token) -> Result<FailResult, WorkLeaseError> {
        let record = self.held(domain)?;
        self.decide(&record, |kept, watermark| {
            let view = kept.view(watermark);
            (self.decisions.fail)(&view, token, &self.rules, self.clock.now())
        })
    }

    /// Begins the term of the offset in flight anew, and tells until when it stands; without a
    /// term it stands for ever.
    ///
    /// # Errors
    /// Nothing is in flight, or it is so under another token.
    pub fn renew(&self, domain: &str, token: &Token) -> Result<Option<Timestamp>, WorkLeaseError> {
        let record = self.held(domain)?;
        self.decide(&record, |kept, watermark| {
            let view = kept.view(watermark);
            (self.decisions.renew)(&view, token, &self.rules, self.clock.now())
        })
    }

    /// An operator's order: takes a terminal offset out of its set and queues it at the tail.
    ///
    /// # Errors
    /// The backlog is at its limit; the domain's name cannot be one.
    pub fn replay(&self, domain: &str, offset: i64) -> Result<ReplayResult, WorkLeaseError> {
        let record = self.record(domain)?;
        self.decide(&record, |kept, watermark| {
            let (view, at) = kept.look(offset, watermark);
            (self.decisions.replay)(&view, at, &self.rules)
        })
    }

    /// What is in flight in a domain.
    pub fn reservation(&self, domain: &str) -> Option<Reservation> {
        let record = self.shards.find(domain)?;
        lock(&record).reservation().cloned()
    }

    /// A copy of all that is kept of a domain.
    pub fn domain(&self, domain: &str) -> Option<Domain> {
        let record = self.shards.find(domain)?;
        let mut kept = lock(&record);
        self.prune(&mut kept);
        Some(kept.clone())
    }

    /// The domains of which nothing is in flight although something waits, each with the head of
    /// its backlog. Acquire those: on start, and now and then, in case a hint was lost.
    pub fn idle_with_backlog(&self) -> Vec<(DomainName, i64)> {
        self.shards.collect(|kept| match kept.reservation() {
            Some(_) => None,
            None => kept.backlog().head(),
        })
    }

    /// The domains whose offset in flight is past its term, each with that offset. Acquire those:
    /// their holders are late or dead. Without a term there are none.
    pub fn lapsed(&self) -> Vec<(DomainName, i64)> {
        let now = self.clock.now();
        self.shards.collect(|kept| {
            let late = kept.reservation().filter(|current| current.lapsed(now));
            late.map(|current| current.offset)
        })
    }

    /// Says that every offset below this one is terminal, in all domains; what is in flight or
    /// queued stays as it is. The watermark never goes back.
    pub fn advance_watermark(&self, offset: i64) {
        self.watermark.fetch_max(offset, Ordering::AcqRel);
    }

    /// Every offset below it is terminal, except what is in flight or queued.
    pub fn watermark(&self) -> i64 {
        self.watermark.load(Ordering::Acquire)
    }

    /// Forgets the offsets below this one that were given up, each once the watermark has passed
    /// it; their answer is then `AlreadyProcessed`.
    pub fn forget_failed_below(&self, offset: i64) {
        self.forgiven.fetch_max(offset, Ordering::AcqRel);
    }

    /// Forgets everything that the watermark says too, and evicts the domains of which nothing is
    /// left and that nobody is asking about just now. How many those were.
    pub fn evict(&self) -> usize {
        self.shards.evict(&|kept| self.prune(kept))
    }

    /// How many domains are kept.
    pub fn domains(&self) -> usize {
        self.shards.len()
    }

    /// The bytes that all domains take, about.
    pub fn footprint(&self) -> usize {
        self.shards.footprint()
    }

    /// The record of a domain; made, if there is none.
    fn record(&self, domain: &str) -> Result<Arc<Mutex<Domain>>, WorkLeaseError> {
        self.shards.create(domain, &|kept| self.prune(kept))
    }

    /// The record of a domain that something should be in flight of. It is not made for that.
    fn held(&self, domain: &str) -> Result<Arc<Mutex<Domain>>, WorkLeaseError> {
        match self.shards.find(domain) {
            Some(record) => Ok(record),
            None => Err(WorkLeaseError::LeaseNotFound {
                domain: DomainName::new(domain)?,
            }),
        }
    }

    /// Decides and applies, under the domain's lock.
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

    /// Forgets what the watermark says too. It is read under the domain's lock, and so never seen
    /// lower than by whoever pruned before: what was forgotten stays terminal.
    fn prune(&self, kept: &mut Domain) {
        let watermark = self.watermark();
        kept.prune(watermark);
        kept.forget_failed_below(self.forgiven.load(Ordering::Acquire), watermark);
    }
}

impl fmt::Debug for WorkLease {
    /// Shows how it is set, not what it keeps: tokens do not belong in a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkLease")
            .field("rules", &self.rules)
            .field("watermark", &self.watermark())
            .finish_non_exhaustive()
    }
}

/// Tokens of a boot of its own, each with a number and 128 random bits.
fn mint() -> impl Fn() -> Token + Send + Sync {
    let worker =
        WorkerId::new("work-lease", rand::random()).expect("`work-lease` is a worker's name");
    let count = AtomicU64::new(0);
    move || {
        let number = count.fetch_add(1, Ordering::Relaxed);
        Token::new(&worker, number, rand::random())
    }
}

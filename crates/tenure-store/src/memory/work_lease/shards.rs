//! The domains of a work lease by name: found and created under the lock of a shard, worked on
//! under their own lock.
//!
//! A record is never replaced while a caller may hold it: it is returned, created and evicted under
//! one lock, and evicted only when there is no other reference to it. So all callers of a domain
//! use the same lock. No lock is taken while another one is held: a busy domain does not block
//! others.

use std::collections::HashMap;
use std::hash::{BuildHasher as _, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tenure_core::work_lease::Domain;
use tenure_core::{DomainName, WorkLeaseError};

use super::decisions::MayEvict;

/// Number of shards: enough that threads seldom contend for one.
const SHARDS: usize = 64;

/// Minimum number of domains of a shard that is swept.
const SWEEP_MIN: usize = 64;

pub(super) struct Shards {
    all: Box<[Mutex<Shard>]>,
    hasher: RandomState,
    may_evict: MayEvict,
}

#[derive(Default)]
struct Shard {
    records: HashMap<DomainName, Arc<Mutex<Domain>>>,
    /// Number of domains at which the shard is swept before the next one is created.
    sweep_at: usize,
}

impl Shards {
    pub(super) fn new(may_evict: MayEvict) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::new(Shard::default()));
        Self {
            all: shards.collect(),
            hasher: RandomState::new(),
            may_evict,
        }
    }

    pub(super) fn find(&self, domain: &str) -> Option<Arc<Mutex<Domain>>> {
        lock(self.shard(domain)).records.get(domain).cloned()
    }

    /// Finds the record of a domain, or creates it; may prune and evict others to make room.
    pub(super) fn create(
        &self,
        domain: &str,
        prune: &dyn Fn(&mut Domain),
    ) -> Result<Arc<Mutex<Domain>>, WorkLeaseError> {
        let mut shard = lock(self.shard(domain));
        if let Some(record) = shard.records.get(domain) {
            return Ok(Arc::clone(record));
        }
        let name = DomainName::new(domain)?;
        if shard.records.len() >= shard.sweep_at.max(SWEEP_MIN) {
            // The next sweep comes after the shard has doubled, so that the cost of sweeps per new
            // domain is constant.
            shard.sweep(prune, self.may_evict);
        }
        let record = Arc::new(Mutex::new(Domain::new(name.clone())));
        shard.records.insert(name, Arc::clone(&record));
        Ok(record)
    }

    /// Collects the results of `look`, each with the name of its domain.
    pub(super) fn collect(&self, look: impl Fn(&Domain) -> Option<i64>) -> Vec<(DomainName, i64)> {
        let mut found = Vec::new();
        self.visit(|kept| {
            if let Some(offset) = look(kept) {
                found.push((kept.name().clone(), offset));
            }
        });
        found
    }

    /// Prunes every domain and evicts those without content; returns the number of evicted ones.
    pub(super) fn evict(&self, prune: &dyn Fn(&mut Domain)) -> usize {
        let mut evicted = 0;
        for shard in &self.all {
            evicted += lock(shard).sweep(prune, self.may_evict);
        }
        evicted
    }

    pub(super) fn len(&self) -> usize {
        let lengths = self.all.iter().map(|shard| lock(shard).records.len());
        lengths.sum()
    }

    /// Returns the approximate size of all domains in bytes.
    pub(super) fn footprint(&self) -> usize {
        let shards = self.all.iter().map(|shard| lock(shard).footprint());
        let mut bytes = size_of::<Mutex<Shard>>() * SHARDS + shards.sum::<usize>();
        self.visit(|kept| {
            let counts = 2 * size_of::<usize>();
            bytes += counts + size_of::<Mutex<Domain>>() + kept.footprint();
            bytes += counts + kept.name().as_str().len();
        });
        bytes
    }

    /// Calls `look` for every domain, each under its own lock and no other.
    fn visit(&self, mut look: impl FnMut(&Domain)) {
        for shard in &self.all {
            let records: Vec<_> = lock(shard).records.values().cloned().collect();
            for record in records {
                look(&lock(&record));
            }
        }
    }

    fn shard(&self, domain: &str) -> &Mutex<Shard> {
        let shards = u64::try_from(self.all.len()).unwrap_or(1);
        let number = usize::try_from(self.hasher.hash_one(domain) % shards).unwrap_or(0);
        let shard = self.all.get(number);
        shard.expect("a remainder is smaller than what it was divided by")
    }
}

impl Shard {
    /// Prunes the domains and evicts those that may go; returns the number of evicted ones.
    fn sweep(&mut self, prune: &dyn Fn(&mut Domain), may_evict: MayEvict) -> usize {
        let before = self.records.len();
        self.records.retain(|_, record| !may_evict(record, prune));
        let left = self.records.len();
        self.sweep_at = left.saturating_mul(2);
        // Keep capacity that will soon be needed again.
        if self.records.capacity() / 4 > left {
            self.records.shrink_to(left.saturating_mul(2));
        }
        before - left
    }

    /// Returns the approximate size of the table in bytes, without the records.
    fn footprint(&self) -> usize {
        // A hash map keeps an eighth of its slots free and one byte of metadata per slot.
        let place = size_of::<(DomainName, Arc<Mutex<Domain>>)>() + 1;
        self.records.capacity() * place * 8 / 7
    }
}

/// Locks a mutex, poisoned or not: decisions are made before anything is written, so a panic under
/// a lock leaves no partial change.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

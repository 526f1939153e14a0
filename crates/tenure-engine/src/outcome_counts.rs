//! Counters of settled items by outcome.

use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::OutcomeKind;

/// Counter shared by the tasks of a worker.
#[derive(Debug, Default)]
pub(crate) struct OutcomeCounter {
    done: AtomicU64,
    retried: AtomicU64,
    dead: AtomicU64,
    released: AtomicU64,
}

impl OutcomeCounter {
    pub(crate) fn add(&self, kind: OutcomeKind, items: u64) {
        let counter = match kind {
            OutcomeKind::Done => &self.done,
            OutcomeKind::Retry => &self.retried,
            OutcomeKind::Dead => &self.dead,
            OutcomeKind::Release => &self.released,
            // The reaper or an operator ended the lease; a worker never settles with these.
            OutcomeKind::Lapsed | OutcomeKind::Buried => return,
        };
        counter.fetch_add(items, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> OutcomeCounts {
        OutcomeCounts {
            done: self.done.load(Ordering::Relaxed),
            retried: self.retried.load(Ordering::Relaxed),
            dead: self.dead.load(Ordering::Relaxed),
            released: self.released.load(Ordering::Relaxed),
        }
    }
}

/// Items that a worker settled, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutcomeCounts {
    /// Items done.
    pub done: u64,
    /// Failed attempts that are retried; one item may count several times.
    pub retried: u64,
    /// Items settled as dead. Items that are dead after too many lapses are not included: the
    /// reaper counts them.
    pub dead: u64,
    /// Items released without a result: not started in time, cancelled by a shutdown, or postponed
    /// by their handler.
    pub released: u64,
}

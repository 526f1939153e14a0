//! Counts of settled items by outcome.

use tenure_core::OutcomeKind;

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

impl OutcomeCounts {
    pub(crate) fn add(&mut self, kind: OutcomeKind, items: u64) {
        match kind {
            OutcomeKind::Done => self.done += items,
            OutcomeKind::Retry => self.retried += items,
            OutcomeKind::Dead => self.dead += items,
            OutcomeKind::Release => self.released += items,
            // The reaper or an operator ended the lease; a worker never settles with these.
            OutcomeKind::Lapsed | OutcomeKind::Buried => {}
        }
    }
}

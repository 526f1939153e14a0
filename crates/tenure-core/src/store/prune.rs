//! Prune: deletes settled items past their retention.

use std::fmt;
use std::time::Duration;

use super::Answer;
use crate::time::Timestamp;

/// Asks to delete settled items past their retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// Done items go when they have been done this long.
    pub done: Duration,
    /// Dead items go when they have been dead this long.
    pub dead: Duration,
    /// About this many items of each kind in one round, so that no round is one giant transaction.
    pub limit: u32,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl Prune {
    /// Deletes what was done or is dead for longer than this, a thousand of each per round.
    pub fn new(done: Duration, dead: Duration) -> Self {
        Self {
            done,
            dead,
            limit: 1000,
            now: None,
        }
    }

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// What a round deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Done items, but for jobs.
    pub done: u64,
    /// Dead items, but for jobs.
    pub dead: u64,
    /// Jobs that were completed.
    pub jobs_completed: u64,
    /// Jobs that failed, or were cancelled.
    pub jobs_failed: u64,
    /// Whether another round may find more.
    pub more: bool,
}

/// Deletes what is past its retention.
pub trait Pruner: Send + Sync + fmt::Debug {
    /// One round. With an item go its counters, its dedupe key and, once nothing in them is kept,
    /// the journal's rows that name it; workers that left or fell silent long ago go, too.
    ///
    /// Laws: 4, 6. What is pending, claimed, or was replayed since is never deleted.
    fn prune<'a>(&'a self, prune: &'a Prune) -> Answer<'a, Pruned>;
}

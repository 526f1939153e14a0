//! Pruning: deletes settled items past their retention.

use std::fmt;
use std::time::Duration;

use super::Answer;
use crate::time::Timestamp;

/// One round of deleting settled items past their retention.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prune {
    /// Retention of done items.
    pub done: Duration,
    /// Retention of dead items.
    pub dead: Duration,
    /// Approximate limit per kind of item and round, which keeps transactions small.
    pub limit: u32,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl Prune {
    /// A round with these retentions and a limit of a thousand.
    pub fn new(done: Duration, dead: Duration) -> Self {
        Self {
            done,
            dead,
            limit: 1000,
            now: None,
        }
    }

    /// Overrides the current time, for tests.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// Numbers of deleted items of a round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Done items, without jobs.
    pub done: u64,
    /// Dead items, without jobs.
    pub dead: u64,
    /// Completed jobs.
    pub jobs_completed: u64,
    /// Failed or cancelled jobs.
    pub jobs_failed: u64,
    /// Another round may delete more.
    pub more: bool,
}

/// Store operation for pruning.
pub trait Pruner: Send + Sync + fmt::Debug {
    /// Runs one round. It deletes items with their counters and dedupe keys, journal rows that no
    /// kept item needs, and workers that stopped or fell silent long ago.
    ///
    /// Rules: 4, 6. Open items, including replayed ones, are never deleted.
    fn prune<'a>(&'a self, prune: &'a Prune) -> Answer<'a, Pruned>;
}

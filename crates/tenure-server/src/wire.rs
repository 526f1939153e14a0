//! The JSON shapes, and how they are made of the core's words. The field names are stable; none of
//! them is a token.

use std::time::Duration;

use serde::Serialize;
use tenure_core::QueueName;
use tenure_core::store::{Counts, Queue};

/// How many items stand where: `GET /v1/stats`, `tenure stats --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Waiting: due, delayed, or behind another one of their key.
    pub pending: u64,
    /// Held under a lease.
    pub claimed: u64,
    /// Of those claimed, the ones whose term is over.
    pub lapsed: u64,
    /// Settled with success.
    pub done: u64,
    /// Settled for good without success.
    pub dead: u64,
    /// What waits in each queue, by name.
    pub queues: Vec<QueueStats>,
}

/// What waits in a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueStats {
    /// Its name.
    pub queue: String,
    /// May be claimed now.
    pub due: u64,
    /// May be claimed later.
    pub delayed: u64,
    /// Wait behind another one of their key.
    pub behind: u64,
    /// How long the first that may be claimed has waited.
    pub oldest_due_ms: Option<u64>,
    /// Claims pass it by.
    pub paused: bool,
}

impl Stats {
    /// Of these counts and queues.
    pub fn new(counts: &Counts, queues: &[Queue]) -> Self {
        let is_paused = |name: &QueueName| {
            queues
                .iter()
                .any(|queue| queue.paused && queue.name == *name)
        };
        Self {
            pending: counts.pending(),
            claimed: counts.claimed,
            lapsed: counts.lapsed,
            done: counts.done,
            dead: counts.dead,
            queues: counts
                .queues
                .iter()
                .map(|(queue, waits)| QueueStats {
                    queue: queue.as_str().to_owned(),
                    due: waits.due,
                    delayed: waits.delayed,
                    behind: waits.behind,
                    oldest_due_ms: waits.oldest_due.map(millis),
                    paused: is_paused(queue),
                })
                .collect(),
        }
    }
}

/// Whether the process answers: `GET /health/live`.
#[derive(Debug, Serialize)]
pub(crate) struct Live {
    pub(crate) status: &'static str,
}

/// Whether the process does its work: `GET /health/ready`.
#[derive(Debug, Serialize)]
pub(crate) struct Ready {
    pub(crate) status: &'static str,
    pub(crate) checks: Vec<Check>,
}

/// One thing that is looked at.
#[derive(Debug, Serialize)]
pub(crate) struct Check {
    pub(crate) name: String,
    /// What is wrong; null: nothing.
    pub(crate) problem: Option<String>,
    /// How long ago it was last seen to work; null: never, or it is not known.
    pub(crate) last_seen_ms: Option<u64>,
}

/// What is answered when a request cannot be (RFC 9457).
#[derive(Debug, Serialize)]
pub(crate) struct Problem {
    pub(crate) title: &'static str,
    pub(crate) status: u16,
    /// For programs; it stays what it is.
    pub(crate) code: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) detail: Option<&'static str>,
}

pub(crate) fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

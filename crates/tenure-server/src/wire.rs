//! The JSON shapes, and how they are made of the core's words. The field names are stable; none of
//! them is a token.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tenure_core::QueueName;
use tenure_core::store::{Counts, DeliveryCounts, Queue, QueueCounts};
use tenure_core::webhook::Endpoint;

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
    /// What is owed to endpoints; the figures above are of events alone.
    pub deliveries: DeliveryStats,
    /// The jobs, if the store keeps some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobStats>,
}

/// How many jobs stand where, of all kinds together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobStats {
    /// May be claimed now.
    pub due: u64,
    /// May be claimed later.
    pub delayed: u64,
    /// Held under a lease.
    pub running: u64,
    /// Past their term: whoever claims next takes them up.
    pub lapsed: u64,
    /// Completed.
    pub completed: u64,
    /// Failed for good or cancelled.
    pub failed: u64,
}

impl JobStats {
    /// Of these counts.
    pub fn new(counts: &Counts) -> Self {
        let sum =
            |of: fn(&QueueCounts) -> u64| counts.queues.iter().map(|(_, line)| of(line)).sum();
        Self {
            due: sum(|line| line.due),
            delayed: sum(|line| line.delayed),
            running: counts.claimed.saturating_sub(counts.lapsed),
            lapsed: counts.lapsed,
            completed: counts.done,
            failed: counts.dead,
        }
    }
}

/// How many deliveries stand where.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeliveryStats {
    /// Waiting: due, delayed, or behind another one of their key.
    pub pending: u64,
    /// Held under a lease.
    pub claimed: u64,
    /// Of those claimed, the ones whose term is over.
    pub lapsed: u64,
    /// Settled with success.
    pub delivered: u64,
    /// Settled for good without success.
    pub dead: u64,
    /// The endpoints for which something waits, the longest line first.
    pub endpoints: Vec<EndpointStats>,
}

/// What waits for an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndpointStats {
    /// Its id.
    pub endpoint: String,
    /// May be claimed now.
    pub due: u64,
    /// May be claimed later.
    pub delayed: u64,
    /// Wait behind another one of their key.
    pub behind: u64,
    /// How long the first that may be claimed has waited.
    pub oldest_due_ms: Option<u64>,
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
    /// Of these counts, queues and endpoints.
    pub fn new<'a>(
        counts: &Counts,
        queues: &[Queue],
        endpoints: impl IntoIterator<Item = &'a Endpoint>,
    ) -> Self {
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
            deliveries: DeliveryStats::new(&counts.deliveries, endpoints),
            jobs: None,
        }
    }

    /// With these jobs beside them.
    #[must_use]
    pub fn jobs(mut self, jobs: JobStats) -> Self {
        self.jobs = Some(jobs);
        self
    }
}

impl DeliveryStats {
    fn new<'a>(counts: &DeliveryCounts, endpoints: impl IntoIterator<Item = &'a Endpoint>) -> Self {
        let waits = |line: &QueueCounts| line.due + line.delayed + line.behind;
        let by_number: BTreeMap<u32, &QueueCounts> = counts
            .endpoints
            .iter()
            .map(|(number, line)| (*number, line))
            .collect();
        let mut lines: Vec<_> = endpoints
            .into_iter()
            .filter_map(|endpoint| Some((endpoint, *by_number.get(&endpoint.number)?)))
            .collect();
        // By id among equals, so that two looks tell the same.
        lines.sort_by_key(|(endpoint, line)| (Reverse(waits(line)), &endpoint.id));
        Self {
            // Of every line, also of one whose endpoint came after the endpoints were read.
            pending: counts.endpoints.iter().map(|(_, line)| waits(line)).sum(),
            claimed: counts.claimed,
            lapsed: counts.lapsed,
            delivered: counts.delivered,
            dead: counts.dead,
            endpoints: lines
                .into_iter()
                .map(|(endpoint, line)| EndpointStats {
                    endpoint: endpoint.id.as_str().to_owned(),
                    due: line.due,
                    delayed: line.delayed,
                    behind: line.behind,
                    oldest_due_ms: line.oldest_due.map(millis),
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

#[cfg(test)]
mod tests {
    use tenure_core::testing::endpoint;

    use super::*;

    #[test]
    fn the_longest_line_is_told_first_and_every_line_is_counted() {
        let line = |due, delayed, behind| QueueCounts {
            due,
            delayed,
            behind,
            oldest_due: (due > 0).then_some(Duration::from_millis(1_500)),
        };
        let counts = DeliveryCounts {
            // Of number 9 nobody knows the name yet.
            endpoints: vec![(2, line(1, 0, 0)), (3, line(0, 2, 5)), (9, line(4, 0, 0))],
            claimed: 3,
            lapsed: 1,
            delivered: 8,
            dead: 6,
        };
        let endpoints = [endpoint("a", 1), endpoint("b", 2), endpoint("c", 3)];
        let stats = DeliveryStats::new(&counts, &endpoints);
        let figures = (stats.pending, stats.claimed, stats.lapsed);
        assert_eq!(figures, (12, 3, 1));
        assert_eq!((stats.delivered, stats.dead), (8, 6));
        let lines = stats.endpoints.iter().map(|line| {
            let waits = (line.due, line.delayed, line.behind);
            (line.endpoint.as_str(), waits, line.oldest_due_ms)
        });
        let expected = [("c", (0, 2, 5), None), ("b", (1, 0, 0), Some(1_500))];
        assert_eq!(lines.collect::<Vec<_>>(), expected);
    }
}

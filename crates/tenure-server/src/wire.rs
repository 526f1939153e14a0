//! JSON shapes, and their conversion from types of the core. Field names are stable; no field
//! contains a token.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use tenure_core::QueueName;
use tenure_core::store::{Counts, DeliveryCounts, Queue, QueueCounts, SeparateTopic};
use tenure_core::webhook::Endpoint;

/// Counts of items: `GET /v1/stats`, `tenure stats --json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stats {
    /// Waiting: due, delayed, or behind another item of their key.
    pub pending: u64,
    /// Held under a lease.
    pub claimed: u64,
    /// Claimed items whose term is over.
    pub lapsed: u64,
    /// Settled with success.
    pub done: u64,
    /// Settled for good without success.
    pub dead: u64,
    /// Waiting items of each queue, by name.
    pub queues: Vec<QueueStats>,
    /// Topics with due events that no active worker takes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub untaken_topics: Vec<TopicStats>,
    /// Deliveries; the counts above are of events alone.
    pub deliveries: DeliveryStats,
    /// Jobs, if the store supports them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<JobStats>,
}

/// Counts of jobs of all kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct JobStats {
    /// Claimable now.
    pub due: u64,
    /// Claimable later.
    pub delayed: u64,
    /// Held under a live lease.
    pub running: u64,
    /// Past their term; the next claim ends the lapsed leases.
    pub lapsed: u64,
    /// Completed.
    pub completed: u64,
    /// Failed for good or cancelled.
    pub failed: u64,
}

impl JobStats {
    /// Sums the counts of all queues.
    pub fn new(counts: &Counts) -> Self {
        let sum =
            |of: fn(&QueueCounts) -> u64| counts.queues.iter().map(|(_, lane)| of(lane)).sum();
        Self {
            due: sum(|lane| lane.due),
            delayed: sum(|lane| lane.delayed),
            running: counts.claimed.saturating_sub(counts.lapsed),
            lapsed: counts.lapsed,
            completed: counts.done,
            failed: counts.dead,
        }
    }
}

/// Counts of deliveries.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeliveryStats {
    /// Waiting: due, delayed, or behind another delivery of their key.
    pub pending: u64,
    /// Held under a lease.
    pub claimed: u64,
    /// Claimed deliveries whose term is over.
    pub lapsed: u64,
    /// Settled with success.
    pub delivered: u64,
    /// Settled for good without success.
    pub dead: u64,
    /// Endpoints with waiting deliveries, those with the most first.
    pub endpoints: Vec<EndpointStats>,
}

/// Waiting deliveries of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndpointStats {
    /// Id of the endpoint.
    pub endpoint: String,
    /// Claimable now.
    pub due: u64,
    /// Claimable later.
    pub delayed: u64,
    /// Behind another delivery of their key.
    pub behind: u64,
    /// Waiting time of the oldest due delivery; `None` if none is due.
    pub oldest_due_ms: Option<u64>,
}

/// Waiting items of a queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QueueStats {
    /// Name of the queue.
    pub queue: String,
    /// Claimable now.
    pub due: u64,
    /// Claimable later.
    pub delayed: u64,
    /// Behind another item of their key.
    pub behind: u64,
    /// Waiting time of the oldest due item; `None` if none is due.
    pub oldest_due_ms: Option<u64>,
    /// Claims skip the queue.
    pub paused: bool,
}

/// Waiting events of a topic.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TopicStats {
    /// Name of the queue.
    pub queue: String,
    /// The topic.
    pub topic: String,
    /// Claimable now.
    pub due: u64,
    /// Waiting time of the oldest due event; `None` if none is due.
    pub oldest_due_ms: Option<u64>,
}

impl Stats {
    /// Combines these counts, queues and endpoints.
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
            untaken_topics: Vec::new(),
            deliveries: DeliveryStats::new(&counts.deliveries, endpoints),
            jobs: None,
        }
    }

    /// Adds the topics that no active worker takes.
    #[must_use]
    pub fn untaken(mut self, topics: &[SeparateTopic]) -> Self {
        let stats = |of: &SeparateTopic| TopicStats {
            queue: of.queue.as_str().to_owned(),
            topic: of.topic.clone(),
            due: of.due,
            oldest_due_ms: of.oldest_due.map(millis),
        };
        self.untaken_topics = topics.iter().map(stats).collect();
        self
    }

    /// Adds the counts of jobs.
    #[must_use]
    pub fn jobs(mut self, jobs: JobStats) -> Self {
        self.jobs = Some(jobs);
        self
    }
}

impl DeliveryStats {
    fn new<'a>(counts: &DeliveryCounts, endpoints: impl IntoIterator<Item = &'a Endpoint>) -> Self {
        let waits = |lane: &QueueCounts| lane.due + lane.delayed + lane.behind;
        let by_number: BTreeMap<u32, &QueueCounts> = counts
            .endpoints
            .iter()
            .map(|(number, lane)| (*number, lane))
            .collect();
        let mut lanes: Vec<_> = endpoints
            .into_iter()
            .filter_map(|endpoint| Some((endpoint, *by_number.get(&endpoint.number)?)))
            .collect();
        // Endpoints with equal counts are ordered by id, so that the order is stable.
        lanes.sort_by_key(|(endpoint, lane)| (Reverse(waits(lane)), &endpoint.id));
        Self {
            // Also counts the deliveries of endpoints that are not in `endpoints`.
            pending: counts.endpoints.iter().map(|(_, lane)| waits(lane)).sum(),
            claimed: counts.claimed,
            lapsed: counts.lapsed,
            delivered: counts.delivered,
            dead: counts.dead,
            endpoints: lanes
                .into_iter()
                .map(|(endpoint, lane)| EndpointStats {
                    endpoint: endpoint.id.as_str().to_owned(),
                    due: lane.due,
                    delayed: lane.delayed,
                    behind: lane.behind,
                    oldest_due_ms: lane.oldest_due.map(millis),
                })
                .collect(),
        }
    }
}

/// Response of `GET /`.
#[derive(Debug, Serialize)]
pub(crate) struct Paths {
    pub(crate) paths: [&'static str; 4],
}

/// Response of `GET /health/live`.
#[derive(Debug, Serialize)]
pub(crate) struct Live {
    pub(crate) status: &'static str,
}

/// Response of `GET /health/ready`.
#[derive(Debug, Serialize)]
pub(crate) struct Ready {
    pub(crate) status: &'static str,
    pub(crate) checks: Vec<CheckView>,
}

/// Result of one check.
#[derive(Debug, Serialize)]
pub(crate) struct CheckView {
    pub(crate) name: String,
    /// Null if the check passed.
    pub(crate) problem: Option<String>,
    /// Milliseconds since the check last passed; null if never or unknown.
    pub(crate) last_seen_ms: Option<u64>,
}

/// Error response (RFC 9457).
#[derive(Debug, Serialize)]
pub(crate) struct ProblemView {
    pub(crate) title: &'static str,
    pub(crate) status: u16,
    /// Stable code, for programs.
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
    fn the_endpoint_with_the_most_waiting_deliveries_is_first_and_unnamed_ones_count() {
        let lane = |due, delayed, behind| QueueCounts {
            due,
            delayed,
            behind,
            oldest_due: (due > 0).then_some(Duration::from_millis(1_500)),
        };
        let counts = DeliveryCounts {
            // The name of endpoint 9 is not known yet.
            endpoints: vec![(2, lane(1, 0, 0)), (3, lane(0, 2, 5)), (9, lane(4, 0, 0))],
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
        let lanes = stats.endpoints.iter().map(|lane| {
            let waits = (lane.due, lane.delayed, lane.behind);
            (lane.endpoint.as_str(), waits, lane.oldest_due_ms)
        });
        let expected = [("c", (0, 2, 5), None), ("b", (1, 0, 0), Some(1_500))];
        assert_eq!(lanes.collect::<Vec<_>>(), expected);
    }
}

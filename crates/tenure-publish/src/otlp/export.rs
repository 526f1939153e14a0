//! Export: gathers spans into batches and sends them, until the tracer stops.

use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout_at};

use super::Counts;
use super::encode::{EndedSpan, rejected, request};
use super::post::{Collector, PostError};

/// Spans of one request.
const BATCH: usize = 512;
/// Time that the first span of a batch waits for more.
const GATHER_TIME: Duration = Duration::from_secs(1);
/// Delays before the second and the third attempt.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(2)];

/// A batch that is not exported yet; its spans count as dropped when it is abandoned.
struct Batch {
    spans: Vec<EndedSpan>,
    counts: Counts,
}

impl Batch {
    fn len(&self) -> u64 {
        u64::try_from(self.spans.len()).unwrap_or(u64::MAX)
    }

    /// The collector has taken the batch, but for the spans that it rejected.
    fn taken(&mut self, rejected: u64) {
        let rejected = rejected.min(self.len());
        self.counts.exported.increment(self.len() - rejected);
        self.counts.dropped.increment(rejected);
        self.spans.clear();
    }
}

impl Drop for Batch {
    fn drop(&mut self) {
        self.counts.dropped.increment(self.len());
    }
}

/// Spans in the queue; those that are left when the export is aborted count as dropped.
struct Waiting {
    queue: mpsc::Receiver<EndedSpan>,
    counts: Counts,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.queue.close();
        let left = std::iter::from_fn(|| self.queue.try_recv().ok());
        let left = u64::try_from(left.count()).unwrap_or(u64::MAX);
        self.counts.dropped.increment(left);
    }
}

/// Exports until the tracer stops and the queue is empty.
pub(super) async fn run(
    mut collector: Collector,
    resource: Vec<(String, String)>,
    counts: Counts,
    (queue, mut stopping): (mpsc::Receiver<EndedSpan>, watch::Receiver<bool>),
) {
    let mut waiting = Waiting {
        queue,
        counts: counts.clone(),
    };
    let mut is_failing = false;
    loop {
        let mut batch = Batch {
            spans: Vec::new(),
            counts: counts.clone(),
        };
        gather(&mut waiting.queue, &mut batch.spans, &mut stopping).await;
        if batch.spans.is_empty() {
            return;
        }
        let body = request(&resource, &batch.spans);
        match send(&mut collector, body, &mut stopping).await {
            Ok(answer) => {
                let rejected = rejected(&answer);
                batch.taken(rejected);
                if is_failing {
                    tracing::info!("spans are exported again");
                }
                is_failing = false;
            }
            Err(error) => {
                if !is_failing {
                    let error = error.text.as_str();
                    let collector = collector.name();
                    tracing::warn!(collector, error, "spans are dropped: the export failed");
                }
                is_failing = true;
            }
        }
    }
}

/// Takes spans until the batch is full or has waited long enough; without any, the tracer stops.
async fn gather(
    queue: &mut mpsc::Receiver<EndedSpan>,
    spans: &mut Vec<EndedSpan>,
    stopping: &mut watch::Receiver<bool>,
) {
    let first = tokio::select! {
        biased;
        first = queue.recv() => first,
        _ = stopping.wait_for(|stops| *stops) => queue.try_recv().ok(),
    };
    spans.extend(first);
    let until = Instant::now() + GATHER_TIME;
    while !spans.is_empty() && spans.len() < BATCH {
        let next = tokio::select! {
            biased;
            next = timeout_at(until, queue.recv()) => next.ok().flatten(),
            _ = stopping.wait_for(|stops| *stops) => queue.try_recv().ok(),
        };
        let Some(next) = next else { return };
        spans.push(next);
    }
}

/// Sends a batch, again if the collector was away or busy. A stop ends the delays.
async fn send(
    collector: &mut Collector,
    body: Vec<u8>,
    stopping: &mut watch::Receiver<bool>,
) -> Result<Vec<u8>, PostError> {
    let body = bytes::Bytes::from(body);
    for delay in RETRY_DELAYS {
        match collector.post(body.clone()).await {
            Err(error) if error.is_transient && !*stopping.borrow() => {
                tokio::select! {
                    () = sleep(delay) => {}
                    _ = stopping.wait_for(|stops| *stops) => {}
                }
            }
            answer => return answer,
        }
    }
    collector.post(body).await
}

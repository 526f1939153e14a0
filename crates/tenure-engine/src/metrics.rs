//! Every metric, once. Each carries the worker's id as the label `worker`.

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::webhook::AttemptOutcome;
use tenure_core::{Refusal, Word, WorkerId};

use crate::hold::Loss;

/// Items that were claimed.
pub const CLAIMED: &str = "tenure_items_claimed_total";
/// Items that were settled, by `outcome`.
pub const SETTLED: &str = "tenure_items_settled_total";
/// Settles that were refused, by `why`.
pub const REFUSED: &str = "tenure_settles_refused_total";
/// Settles that were accepted after the term, because nobody else had come.
pub const SETTLED_LATE: &str = "tenure_settles_late_total";
/// Items whose hold was lost, by `reason`: refused, failed, late, buried.
pub const LOST: &str = "tenure_holds_lost_total";
/// Items that were worked on for longer than the longest hold.
pub const OVERDUE: &str = "tenure_holds_overdue_total";
/// Handlers that panicked.
pub const PANICS: &str = "tenure_handler_panics_total";
/// How long handlers take.
pub const HANDLER_SECONDS: &str = "tenure_handler_seconds";
/// From the moment an item could be claimed to its claim, by the store's clock.
pub const PICKUP_SECONDS: &str = "tenure_pickup_seconds";
/// Items being worked on.
pub const RUNNING: &str = "tenure_items_running";
/// Items in hand, worked on or not.
pub const HELD: &str = "tenure_items_held";
/// Renewals, by `answer`: kept, refused, failed, busy.
pub const HEARTBEATS: &str = "tenure_heartbeats_total";
/// 1 while claiming is held back because what items are handed to takes none.
pub const HELD_BACK: &str = "tenure_claiming_held_back";
/// Calls of the store, by `verb`.
pub const STORE_CALLS: &str = "tenure_store_calls_total";
/// Calls of the store that failed, by `verb` and `kind`.
pub const STORE_ERRORS: &str = "tenure_store_errors_total";
/// The version of the cluster's settings in force.
pub const SETTINGS_VERSION: &str = "tenure_settings_version";
/// Settings of the cluster that this worker refused because they do not fit its own.
pub const SETTINGS_REFUSED: &str = "tenure_settings_refused_total";
/// Workers that ended, by `cause`.
pub const TERMINATED: &str = "tenure_worker_terminated_total";
/// Items that were deleted, by `state`.
pub const PRUNED: &str = "tenure_items_pruned_total";
/// Items that the reaper ended a lapsed lease of, or a claim where none runs: on jobs, and on
/// tables whose moments tell the state.
pub const REAPER_RECOVERED: &str = "reaper_recovered_count";
/// How long those leases had been over.
pub const REAPER_STALE: &str = "reaper_stale_duration";
/// Runs of the reaper.
pub const REAPER_RUNS: &str = "reaper_runs_total";

/// Calls that were made for deliveries, by `outcome`.
pub const DELIVERY_ATTEMPTS: &str = "tenure_delivery_attempts_total";
/// How long calls of endpoints take.
pub const DELIVERY_SECONDS: &str = "tenure_delivery_seconds";
/// Calls of endpoints under way.
pub const DELIVERIES_IN_FLIGHT: &str = "tenure_deliveries_in_flight";
/// 1 while an endpoint is left alone, by `endpoint`.
pub const ENDPOINT_PAUSED: &str = "tenure_endpoint_paused";

/// The chunks that this worker has in hand are renewed.
pub(crate) fn chunk_call(worker: &str) {
    let worker = worker.to_owned();
    counter!(STORE_CALLS, "worker" => worker, "verb" => "renew_chunks").increment(1);
}

/// What an engine asks of a store.
const VERBS: [&str; 12] = [
    "claim",
    "settle",
    "settle_and_claim",
    "renew",
    "reap",
    "prune",
    "step_replay",
    "report",
    "settings",
    "leave",
    "choose",
    "record_calls",
];

/// The metrics of one worker.
pub(crate) struct Metrics {
    worker: String,
    pub(crate) claimed: Counter,
    pub(crate) panics: Counter,
    pub(crate) overdue: Counter,
    pub(crate) settled_late: Counter,
    pub(crate) settings_refused: Counter,
    pub(crate) handler_seconds: Histogram,
    pub(crate) pickup_seconds: Histogram,
    pub(crate) running: Gauge,
    pub(crate) held: Gauge,
    pub(crate) held_back: Gauge,
    pub(crate) settings_version: Gauge,
    pub(crate) reaper_recovered: Counter,
    pub(crate) reaper_stale: Histogram,
    pub(crate) reaper_runs: Counter,
    settled: [(Word, Counter); 4],
    calls: [(&'static str, Counter); VERBS.len()],
    heartbeats: [(&'static str, Counter); 4],
}

impl Metrics {
    pub(crate) fn new(worker: &WorkerId) -> Self {
        let worker = worker.to_string();
        let count = |name: &'static str| counter!(name, "worker" => worker.clone());
        let measure = |name: &'static str| histogram!(name, "worker" => worker.clone());
        let level = |name: &'static str| gauge!(name, "worker" => worker.clone());
        let settled = |word: Word| {
            let outcome = word.as_str();
            let counter = counter!(SETTLED, "worker" => worker.clone(), "outcome" => outcome);
            (word, counter)
        };
        let heartbeat = |answer: &'static str| {
            let counter = counter!(HEARTBEATS, "worker" => worker.clone(), "answer" => answer);
            (answer, counter)
        };
        let call = |verb: &'static str| {
            let counter = counter!(STORE_CALLS, "worker" => worker.clone(), "verb" => verb);
            (verb, counter)
        };
        Self {
            calls: VERBS.map(call),
            claimed: count(CLAIMED),
            panics: count(PANICS),
            overdue: count(OVERDUE),
            settled_late: count(SETTLED_LATE),
            settings_refused: count(SETTINGS_REFUSED),
            handler_seconds: measure(HANDLER_SECONDS),
            pickup_seconds: measure(PICKUP_SECONDS),
            running: level(RUNNING),
            held: level(HELD),
            held_back: level(HELD_BACK),
            settings_version: level(SETTINGS_VERSION),
            reaper_recovered: count(REAPER_RECOVERED),
            reaper_stale: measure(REAPER_STALE),
            reaper_runs: count(REAPER_RUNS),
            settled: [Word::Done, Word::Retry, Word::Dead, Word::Release].map(settled),
            heartbeats: ["kept", "refused", "failed", "busy"].map(heartbeat),
            worker,
        }
    }

    /// Items were settled with this word.
    pub(crate) fn settled(&self, word: Word, items: u64) {
        if let Some((_, counter)) = self.settled.iter().find(|(kept, _)| *kept == word) {
            counter.increment(items);
        }
    }

    /// A settle was refused for one item.
    pub(crate) fn refused(&self, why: Refusal) {
        let worker = self.worker.clone();
        counter!(REFUSED, "worker" => worker, "why" => why.as_str()).increment(1);
    }

    /// Holds on this many items were lost.
    pub(crate) fn lost(&self, loss: Loss, items: usize) {
        let worker = self.worker.clone();
        let items = u64::try_from(items).unwrap_or(u64::MAX);
        counter!(LOST, "worker" => worker, "reason" => loss.as_str()).increment(items);
    }

    /// This many leases were answered so.
    pub(crate) fn heartbeats(&self, answer: &'static str, leases: u64) {
        if let Some((_, counter)) = self.heartbeats.iter().find(|(kept, _)| *kept == answer) {
            counter.increment(leases);
        }
    }

    /// The store is called; `verb` is one of [`VERBS`].
    pub(crate) fn call(&self, verb: &'static str) {
        if let Some((_, counter)) = self.calls.iter().find(|(known, _)| *known == verb) {
            counter.increment(1);
        }
    }

    /// A call of the store failed.
    pub(crate) fn store_error(&self, verb: &'static str, error: &StoreError) {
        let worker = self.worker.clone();
        let kind = kind_word(error.kind());
        counter!(STORE_ERRORS, "worker" => worker, "verb" => verb, "kind" => kind).increment(1);
    }

    /// A call of the store was not answered in time.
    pub(crate) fn store_silence(&self, verb: &'static str) {
        let worker = self.worker.clone();
        counter!(STORE_ERRORS, "worker" => worker, "verb" => verb, "kind" => "silent").increment(1);
    }

    /// A call that was made for a delivery ended so.
    pub(crate) fn attempt(&self, outcome: AttemptOutcome) {
        let worker = self.worker.clone();
        let outcome = outcome.as_str();
        counter!(DELIVERY_ATTEMPTS, "worker" => worker, "outcome" => outcome).increment(1);
    }

    /// The worker ended.
    pub(crate) fn terminated(&self, cause: &'static str) {
        let worker = self.worker.clone();
        counter!(TERMINATED, "worker" => worker, "cause" => cause).increment(1);
    }

    /// Items were deleted.
    pub(crate) fn pruned(&self, state: &'static str, items: u64) {
        let worker = self.worker.clone();
        counter!(PRUNED, "worker" => worker, "state" => state).increment(items);
    }

    /// How long the reaper's finds had been stale.
    pub(crate) fn stale(&self, stale: Duration) {
        self.reaper_stale.record(stale.as_secs_f64());
    }
}

/// The metrics of a sender.
pub(crate) struct SenderMetrics {
    worker: String,
    pub(crate) seconds: Histogram,
    pub(crate) in_flight: Gauge,
}

impl SenderMetrics {
    pub(crate) fn new(worker: &WorkerId) -> Self {
        let worker = worker.to_string();
        Self {
            seconds: histogram!(DELIVERY_SECONDS, "worker" => worker.clone()),
            in_flight: gauge!(DELIVERIES_IN_FLIGHT, "worker" => worker.clone()),
            worker,
        }
    }

    /// An endpoint is left alone from now on, or no longer.
    pub(crate) fn paused(&self, endpoint: &str, is_paused: bool) {
        let (worker, endpoint) = (self.worker.clone(), endpoint.to_owned());
        let gauge = gauge!(ENDPOINT_PAUSED, "worker" => worker, "endpoint" => endpoint);
        gauge.set(if is_paused { 1.0 } else { 0.0 });
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "a kind that comes later is a matter for people, too"
)]
fn kind_word(kind: StoreErrorKind) -> &'static str {
    match kind {
        StoreErrorKind::Unavailable => "unavailable",
        StoreErrorKind::Conflict => "conflict",
        StoreErrorKind::Invalid => "invalid",
        _ => "corrupt",
    }
}

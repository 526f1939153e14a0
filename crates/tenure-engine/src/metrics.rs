//! Metrics of an engine. Each has the labels `worker` (the worker's name) and `instance` (the
//! random part of its id, new at each start).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{
    Counter, Gauge, Histogram, Label, counter, describe_counter, describe_gauge,
    describe_histogram, gauge, histogram,
};
use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::webhook::AttemptOutcome;
use tenure_core::{OutcomeKind, Refusal, WorkerId};

use crate::held_lease::LossReason;

/// Defines the names with their help texts.
macro_rules! define {
    ($($describe:ident $name:ident = $text:literal, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $name: &str = $text;
        )*

        /// Passes the help texts to the recorder.
        fn describe() {
            $($describe!($name, $help);)*
        }
    };
}

define! {
    describe_counter CLAIMED = "tenure_items_claimed_total",
        "Items claimed.";
    describe_counter SETTLED = "tenure_items_settled_total",
        "Items settled, by queue and outcome (done, retry, dead, release).";
    describe_counter REFUSED = "tenure_settles_refused_total",
        "Settles refused because another worker has the item, by reason.";
    describe_counter SETTLED_LATE = "tenure_settles_late_total",
        "Settles accepted after the term, because no other worker had claimed the items.";
    describe_counter LOST = "tenure_holds_lost_total",
        "Items whose lease was lost, by reason (refused, failed, late, buried).";
    describe_counter OVERDUE = "tenure_holds_overdue_total",
        "Items whose handler exceeded the maximum hold.";
    describe_counter PANICS = "tenure_handler_panics_total",
        "Handlers that panicked.";
    describe_histogram HANDLER_SECONDS = "tenure_handler_seconds",
        "Run time of handlers, by the topic pattern of their route.";
    describe_histogram PICKUP_SECONDS = "tenure_pickup_seconds",
        "Time from the moment an item was due to its claim, by queue.";
    describe_gauge RUNNING = "tenure_items_running",
        "Items being worked on.";
    describe_gauge HELD = "tenure_items_held",
        "Items held, running or not.";
    describe_counter HEARTBEATS = "tenure_heartbeats_total",
        "Renewals per lease, by answer (renewed, refused, failed, busy).";
    describe_gauge CLAIMING_PAUSED = "tenure_claiming_paused",
        "1 while claiming is paused because the handler is not ready.";
    describe_counter STORE_CALLS = "tenure_store_calls_total",
        "Calls of the store, by verb.";
    describe_counter STORE_ERRORS = "tenure_store_errors_total",
        "Failed calls of the store, by verb and kind.";
    describe_gauge SETTINGS_VERSION = "tenure_settings_version",
        "Version of the cluster settings in force.";
    describe_counter SETTINGS_REFUSED = "tenure_settings_refused_total",
        "Cluster settings that this worker refused because they conflict with its own.";
    describe_counter TERMINATED = "tenure_worker_terminated_total",
        "Ends of the worker, by cause (shutdown, panic).";
    describe_counter PRUNED = "tenure_items_pruned_total",
        "Items deleted past their retention, by state.";
    describe_counter REAPED = "tenure_items_reaped_total",
        "Items whose lapsed lease the reaper or a claim ended.";
    describe_histogram REAPED_STALE_SECONDS = "tenure_reaped_stale_seconds",
        "Time from the end of a lease to its reap.";
    describe_counter REAPER_RUNS = "tenure_reaper_runs_total",
        "Completed runs of the reaper.";
    describe_counter RECOVERED_COUNT = "reaper_recovered_count",
        "Items reaped, under the name that the specification requires.";
    describe_histogram STALE_DURATION = "reaper_stale_duration",
        "Seconds from the end of a lease to its reap, under the name that the specification \
         requires.";
    describe_counter RUNS_TOTAL = "reaper_runs_total",
        "Completed runs of the reaper, under the name that the specification requires.";
    describe_counter DELIVERY_ATTEMPTS = "tenure_delivery_attempts_total",
        "Webhook calls, by outcome.";
    describe_histogram DELIVERY_SECONDS = "tenure_delivery_seconds",
        "Duration of webhook calls.";
    describe_gauge DELIVERIES_IN_FLIGHT = "tenure_deliveries_in_flight",
        "Webhook calls under way.";
    describe_gauge ENDPOINT_PAUSED = "tenure_endpoint_paused",
        "1 while an endpoint is paused, by endpoint.";
}

/// Counts a renewal of chunks; `holder` is the id of the worker that holds them.
pub(crate) fn chunk_call(holder: &str) {
    let labels = WorkerLabels::new(holder);
    labels
        .counter(STORE_CALLS, &[("verb", "renew_chunks")])
        .increment(1);
}

/// Verbs of an engine's calls of the store; [`chunk_call`] counts one more verb.
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

/// Outcomes that a worker settles.
const SETTLED_KINDS: [OutcomeKind; 4] = [
    OutcomeKind::Done,
    OutcomeKind::Retry,
    OutcomeKind::Dead,
    OutcomeKind::Release,
];

/// The labels of all metrics of one worker.
struct WorkerLabels {
    worker: String,
    instance: String,
}

impl WorkerLabels {
    /// Splits the id of a worker into its name and its random part.
    fn new(id: &str) -> Self {
        let (worker, instance) = id.rsplit_once('-').unwrap_or((id, ""));
        Self {
            worker: worker.to_owned(),
            instance: instance.to_owned(),
        }
    }

    fn with(&self, others: &[(&'static str, &str)]) -> Vec<Label> {
        let own = [("worker", &*self.worker), ("instance", &*self.instance)];
        let all = own.iter().chain(others);
        all.map(|(key, value)| Label::new(*key, (*value).to_owned()))
            .collect()
    }

    fn counter(&self, name: &'static str, others: &[(&'static str, &str)]) -> Counter {
        counter!(name, self.with(others))
    }

    fn gauge(&self, name: &'static str, others: &[(&'static str, &str)]) -> Gauge {
        gauge!(name, self.with(others))
    }

    fn histogram(&self, name: &'static str, others: &[(&'static str, &str)]) -> Histogram {
        histogram!(name, self.with(others))
    }
}

/// Histograms of one metric by the value of a label, cached because each item needs one.
struct HistogramsBy {
    name: &'static str,
    label: &'static str,
    known: Mutex<HashMap<String, Histogram>>,
}

impl HistogramsBy {
    fn new(name: &'static str, label: &'static str) -> Self {
        Self {
            name,
            label,
            known: Mutex::default(),
        }
    }

    fn record(&self, labels: &WorkerLabels, value: &str, length: Duration) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(histogram) = known.get(value) {
            return histogram.record(length.as_secs_f64());
        }
        let histogram = labels.histogram(self.name, &[(self.label, value)]);
        histogram.record(length.as_secs_f64());
        known.insert(value.to_owned(), histogram);
    }
}

/// The metrics of one worker.
pub(crate) struct Metrics {
    labels: WorkerLabels,
    pub(crate) claimed: Counter,
    pub(crate) panics: Counter,
    pub(crate) overdue: Counter,
    pub(crate) settled_late: Counter,
    pub(crate) settings_refused: Counter,
    pub(crate) running: Gauge,
    pub(crate) held: Gauge,
    pub(crate) claiming_paused: Gauge,
    pub(crate) settings_version: Gauge,
    handler_seconds: HistogramsBy,
    pickup_seconds: HistogramsBy,
    reaped: [Counter; 2],
    reaped_stale: [Histogram; 2],
    reaper_runs: [Counter; 2],
    calls: [(&'static str, Counter); VERBS.len()],
    heartbeats: [(&'static str, Counter); 4],
}

impl Metrics {
    pub(crate) fn new(worker: &WorkerId) -> Self {
        describe();
        let labels = WorkerLabels::new(worker.as_str());
        let count = |name| labels.counter(name, &[]);
        let heartbeat = |answer| (answer, labels.counter(HEARTBEATS, &[("answer", answer)]));
        Self {
            calls: VERBS.map(|verb| (verb, labels.counter(STORE_CALLS, &[("verb", verb)]))),
            claimed: count(CLAIMED),
            panics: count(PANICS),
            overdue: count(OVERDUE),
            settled_late: count(SETTLED_LATE),
            settings_refused: count(SETTINGS_REFUSED),
            running: labels.gauge(RUNNING, &[]),
            held: labels.gauge(HELD, &[]),
            claiming_paused: labels.gauge(CLAIMING_PAUSED, &[]),
            settings_version: labels.gauge(SETTINGS_VERSION, &[]),
            handler_seconds: HistogramsBy::new(HANDLER_SECONDS, "topic"),
            pickup_seconds: HistogramsBy::new(PICKUP_SECONDS, "queue"),
            reaped: [REAPED, RECOVERED_COUNT].map(count),
            reaped_stale: [REAPED_STALE_SECONDS, STALE_DURATION]
                .map(|name| labels.histogram(name, &[])),
            reaper_runs: [REAPER_RUNS, RUNS_TOTAL].map(count),
            heartbeats: ["renewed", "refused", "failed", "busy"].map(heartbeat),
            labels,
        }
    }

    /// Registers the counters of a queue at zero, so that their first increase is visible.
    pub(crate) fn register_queue(&self, queue: &str) {
        for kind in SETTLED_KINDS {
            self.settled(queue, kind, 0);
        }
    }

    pub(crate) fn settled(&self, queue: &str, kind: OutcomeKind, items: u64) {
        let labels = [("queue", queue), ("outcome", kind.as_str())];
        self.labels.counter(SETTLED, &labels).increment(items);
    }

    /// Records the run time of a handler; `topic` is the pattern of its route, which bounds the
    /// number of series.
    pub(crate) fn handled(&self, topic: &str, took: Duration) {
        self.handler_seconds.record(&self.labels, topic, took);
    }

    /// Records the time from the moment an item was due to its claim.
    pub(crate) fn picked_up(&self, queue: &str, waited: Duration) {
        self.pickup_seconds.record(&self.labels, queue, waited);
    }

    /// Counts a settle that was refused for one item.
    pub(crate) fn refused(&self, why: Refusal) {
        let labels = [("reason", why.as_str())];
        self.labels.counter(REFUSED, &labels).increment(1);
    }

    /// Counts items whose lease was lost.
    pub(crate) fn lost(&self, loss: LossReason, items: usize) {
        let items = u64::try_from(items).unwrap_or(u64::MAX);
        let labels = [("reason", loss.as_str())];
        self.labels.counter(LOST, &labels).increment(items);
    }

    /// Counts the answers of a renewal per lease.
    pub(crate) fn heartbeats(&self, answer: &'static str, leases: u64) {
        if let Some((_, counter)) = self.heartbeats.iter().find(|(known, _)| *known == answer) {
            counter.increment(leases);
        }
    }

    /// Counts a call of the store; `verb` is one of [`VERBS`].
    pub(crate) fn call(&self, verb: &'static str) {
        if let Some((_, counter)) = self.calls.iter().find(|(known, _)| *known == verb) {
            counter.increment(1);
        }
    }

    pub(crate) fn store_error(&self, verb: &'static str, error: &StoreError) {
        self.failed_call(verb, kind_label(error.kind()));
    }

    /// Counts a call of the store without an answer in time.
    pub(crate) fn store_timeout(&self, verb: &'static str) {
        self.failed_call(verb, "timeout");
    }

    fn failed_call(&self, verb: &'static str, kind: &'static str) {
        let labels = [("verb", verb), ("kind", kind)];
        self.labels.counter(STORE_ERRORS, &labels).increment(1);
    }

    /// Counts a webhook call.
    pub(crate) fn attempt(&self, outcome: AttemptOutcome) {
        let labels = [("outcome", outcome.as_str())];
        self.labels.counter(DELIVERY_ATTEMPTS, &labels).increment(1);
    }

    pub(crate) fn terminated(&self, cause: &'static str) {
        self.labels
            .counter(TERMINATED, &[("cause", cause)])
            .increment(1);
    }

    pub(crate) fn pruned(&self, state: &'static str, items: u64) {
        self.labels
            .counter(PRUNED, &[("state", state)])
            .increment(items);
    }

    /// Counts a reaped item whose lease had been over for `stale`.
    pub(crate) fn reaped(&self, stale: Duration) {
        self.reaped.iter().for_each(|counter| counter.increment(1));
        for histogram in &self.reaped_stale {
            histogram.record(stale.as_secs_f64());
        }
    }

    pub(crate) fn reaper_ran(&self) {
        self.reaper_runs
            .iter()
            .for_each(|counter| counter.increment(1));
    }
}

/// The metrics of a sender.
pub(crate) struct SenderMetrics {
    labels: WorkerLabels,
    pub(crate) seconds: Histogram,
    pub(crate) in_flight: Gauge,
}

impl SenderMetrics {
    pub(crate) fn new(worker: &WorkerId) -> Self {
        describe();
        let labels = WorkerLabels::new(worker.as_str());
        Self {
            seconds: labels.histogram(DELIVERY_SECONDS, &[]),
            in_flight: labels.gauge(DELIVERIES_IN_FLIGHT, &[]),
            labels,
        }
    }

    pub(crate) fn paused(&self, endpoint: &str, is_paused: bool) {
        let gauge = self
            .labels
            .gauge(ENDPOINT_PAUSED, &[("endpoint", endpoint)]);
        gauge.set(if is_paused { 1.0 } else { 0.0 });
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "later kinds count as corrupt"
)]
fn kind_label(kind: StoreErrorKind) -> &'static str {
    match kind {
        StoreErrorKind::Unavailable => "unavailable",
        StoreErrorKind::Conflict => "conflict",
        StoreErrorKind::Invalid => "invalid",
        _ => "corrupt",
    }
}

//! Metrics of an engine. Each has the labels `worker` (the worker's name) and `instance` (the
//! random part of its id, new at each start).

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{
    Gauge, Histogram, Label, counter, describe_counter, describe_gauge, describe_histogram, gauge,
    histogram,
};
use tenure_core::store::{Answer, StoreError, StoreErrorKind};
use tokio::time::{Instant, timeout_at};

/// Defines the names with their help texts.
macro_rules! define {
    ($($describe:ident $name:ident = $text:literal, $help:literal;)*) => {
        $(
            #[doc = $help]
            pub const $name: &str = $text;
        )*

        /// Passes the help texts to the recorder.
        pub(crate) fn describe() {
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

/// Counters without labels of an engine.
const COUNTERS: [&str; 9] = [
    CLAIMED,
    SETTLED_LATE,
    OVERDUE,
    PANICS,
    SETTINGS_REFUSED,
    REAPED,
    REAPER_RUNS,
    RECOVERED_COUNT,
    RUNS_TOTAL,
];

/// Verbs of an engine's calls of the store.
const VERBS: [&str; 13] = [
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
    "find",
];

type Labels<'a> = &'a [(&'static str, &'a str)];

/// The metrics of one worker.
#[derive(Debug)]
pub(crate) struct Metrics {
    worker: String,
    instance: String,
    /// Histograms by name and by the value of their label, cached because each item needs one.
    known: Mutex<HashMap<&'static str, HashMap<String, Histogram>>>,
}

impl Metrics {
    /// Splits the id of a worker into its name and its random part.
    pub(crate) fn new(id: &str) -> Self {
        let (worker, instance) = id.rsplit_once('-').unwrap_or((id, ""));
        Self {
            worker: worker.to_owned(),
            instance: instance.to_owned(),
            known: Mutex::default(),
        }
    }

    /// Registers the metrics of an engine at zero, so that their first increase is visible.
    pub(crate) fn register(&self) {
        describe();
        for name in COUNTERS {
            self.count(name, &[], 0);
        }
        for verb in VERBS {
            self.count(STORE_CALLS, &[("verb", verb)], 0);
        }
        for answer in ["renewed", "refused", "failed", "busy"] {
            self.count(HEARTBEATS, &[("answer", answer)], 0);
        }
        for name in [RUNNING, HELD, CLAIMING_PAUSED, SETTINGS_VERSION] {
            self.gauge(name, &[]).set(0.0);
        }
        for name in [REAPED_STALE_SECONDS, STALE_DURATION] {
            drop(self.histogram(name, &[]));
        }
    }

    /// Registers the counters of a queue at zero.
    pub(crate) fn register_queue(&self, queue: &str) {
        for outcome in ["done", "retry", "dead", "release"] {
            self.count(SETTLED, &[("queue", queue), ("outcome", outcome)], 0);
        }
    }

    fn with(&self, others: Labels<'_>) -> Vec<Label> {
        let own = [("worker", &*self.worker), ("instance", &*self.instance)];
        let all = own.iter().chain(others);
        all.map(|(key, value)| Label::new(*key, (*value).to_owned()))
            .collect()
    }

    pub(crate) fn count(&self, name: &'static str, labels: Labels<'_>, by: impl TryInto<u64>) {
        let by = by.try_into().unwrap_or(u64::MAX);
        counter!(name, self.with(labels)).increment(by);
    }

    pub(crate) fn gauge(&self, name: &'static str, labels: Labels<'_>) -> Gauge {
        gauge!(name, self.with(labels))
    }

    pub(crate) fn histogram(&self, name: &'static str, labels: Labels<'_>) -> Histogram {
        histogram!(name, self.with(labels))
    }

    /// Records a time of one item. The values of the label must be few, because each is a series.
    pub(crate) fn record(&self, name: &'static str, label: (&'static str, &str), time: Duration) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let known = known.entry(name).or_default();
        if let Some(histogram) = known.get(label.1) {
            return histogram.record(time.as_secs_f64());
        }
        let histogram = self.histogram(name, &[label]);
        histogram.record(time.as_secs_f64());
        known.insert(label.1.to_owned(), histogram);
    }

    /// Awaits an answer of the store until then; counts the call and its failure.
    pub(crate) async fn call<T>(
        &self,
        verb: &'static str,
        until: Instant,
        answer: Answer<'_, T>,
    ) -> Result<T, StoreError> {
        self.count(STORE_CALLS, &[("verb", verb)], 1);
        let (kind, error) = match timeout_at(until, answer).await {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(error)) => (format!("{:?}", error.kind()).to_lowercase(), error),
            Err(_) => {
                let message = "the store did not answer in time";
                let error = StoreError::new(verb, StoreErrorKind::Unavailable, message);
                ("timeout".to_owned(), error)
            }
        };
        self.count(STORE_ERRORS, &[("verb", verb), ("kind", &kind)], 1);
        Err(error)
    }

    /// Counts a reaped item whose lease had been over for `stale`.
    pub(crate) fn reaped(&self, stale: Duration) {
        self.count(REAPED, &[], 1);
        self.count(RECOVERED_COUNT, &[], 1);
        for name in [REAPED_STALE_SECONDS, STALE_DURATION] {
            self.histogram(name, &[]).record(stale.as_secs_f64());
        }
    }
}

//! What was measured: one recorder for all tests of this program, told apart by the worker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tenure_core::WorkerId;

/// The name of a metric, and its labels in order.
pub(crate) type Series = (String, BTreeMap<String, String>);

static METER: OnceLock<&'static Meter> = OnceLock::new();

#[derive(Debug, Default)]
pub(crate) struct Meter(Mutex<BTreeMap<Series, Arc<Value>>>);

/// What a series has come to; each kind uses its own part.
#[derive(Debug, Default)]
struct Value {
    count: AtomicU64,
    level: Mutex<f64>,
    seen: Mutex<Vec<f64>>,
}

/// The recorder of this program; from the first call on everything is measured.
pub(crate) fn meter() -> &'static Meter {
    METER.get_or_init(|| {
        let meter: &'static Meter = Box::leak(Box::default());
        metrics::set_global_recorder(meter).expect("nobody else sets a recorder");
        meter
    })
}

impl Meter {
    fn value(&self, key: &Key) -> Arc<Value> {
        let labels = key.labels();
        let labels = labels.map(|label| (label.key().to_owned(), label.value().to_owned()));
        let series = (key.name().to_owned(), labels.collect());
        Arc::clone(self.0.lock().unwrap().entry(series).or_default())
    }

    fn find(&self, worker: &WorkerId, name: &str, labels: &[(&str, &str)]) -> Option<Arc<Value>> {
        let all = self.0.lock().unwrap();
        let found = all.iter().find(|((found, given), _)| {
            found == name
                && given.get("worker").is_some_and(|id| id == worker.as_str())
                && labels
                    .iter()
                    .all(|(key, value)| given.get(*key).is_some_and(|v| v == value))
        });
        found.map(|(_, value)| Arc::clone(value))
    }

    /// What a counter of this worker has come to.
    pub(crate) fn count(&self, worker: &WorkerId, name: &str, labels: &[(&str, &str)]) -> u64 {
        self.find(worker, name, labels)
            .map_or(0, |value| value.count.load(Ordering::Relaxed))
    }

    /// Where a gauge of this worker stands.
    pub(crate) fn level(&self, worker: &WorkerId, name: &str) -> f64 {
        self.find(worker, name, &[])
            .map_or(f64::NAN, |value| *value.level.lock().unwrap())
    }

    /// Where one of several gauges of this worker stands.
    pub(crate) fn level_of(&self, worker: &WorkerId, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.find(worker, name, labels)
            .map_or(f64::NAN, |value| *value.level.lock().unwrap())
    }

    /// What a histogram of this worker has seen.
    pub(crate) fn seen(&self, worker: &WorkerId, name: &str) -> Vec<f64> {
        self.find(worker, name, &[])
            .map_or_else(Vec::new, |value| value.seen.lock().unwrap().clone())
    }

    /// Every series there is.
    pub(crate) fn series(&self) -> Vec<Series> {
        self.0.lock().unwrap().keys().cloned().collect()
    }
}

impl Recorder for Meter {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.value(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.value(key))
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.value(key))
    }
}

impl CounterFn for Value {
    fn increment(&self, value: u64) {
        self.count.fetch_add(value, Ordering::Relaxed);
    }

    fn absolute(&self, value: u64) {
        self.count.store(value, Ordering::Relaxed);
    }
}

impl GaugeFn for Value {
    fn increment(&self, value: f64) {
        *self.level.lock().unwrap() += value;
    }

    fn decrement(&self, value: f64) {
        *self.level.lock().unwrap() -= value;
    }

    fn set(&self, value: f64) {
        *self.level.lock().unwrap() = value;
    }
}

impl HistogramFn for Value {
    fn record(&self, value: f64) {
        self.seen.lock().unwrap().push(value);
    }
}

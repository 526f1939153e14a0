//! Captured metrics: one recorder for all tests of this program, indexed by worker.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder,
    SharedString, Unit,
};
use tenure_core::WorkerId;

/// Name and labels of a metric.
pub(crate) type Series = (String, BTreeMap<String, String>);

static METER: OnceLock<&'static Meter> = OnceLock::new();

#[derive(Debug, Default)]
pub(crate) struct Meter {
    series: Mutex<BTreeMap<Series, Arc<Value>>>,
    descriptions: Mutex<BTreeMap<String, (&'static str, String)>>,
}

/// True if a series has the labels of this worker.
pub(crate) fn is_of((_, labels): &Series, worker: &WorkerId) -> bool {
    let label = |name: &str| labels.get(name).map_or("", String::as_str);
    format!("{}-{}", label("worker"), label("instance")) == worker.as_str()
}

/// Value of a series; each kind of metric uses its own part.
#[derive(Debug, Default)]
struct Value {
    count: AtomicU64,
    level: Mutex<f64>,
    samples: Mutex<Vec<f64>>,
}

/// The recorder of this program, installed at the first call.
pub(crate) fn meter() -> &'static Meter {
    METER.get_or_init(|| {
        let meter: &'static Meter = Box::leak(Box::default());
        metrics::set_global_recorder(meter).expect("only this function sets a recorder");
        meter
    })
}

impl Meter {
    fn value(&self, key: &Key) -> Arc<Value> {
        let labels = key.labels();
        let labels = labels.map(|label| (label.key().to_owned(), label.value().to_owned()));
        let series = (key.name().to_owned(), labels.collect());
        Arc::clone(self.series.lock().unwrap().entry(series).or_default())
    }

    fn find(&self, worker: &WorkerId, name: &str, labels: &[(&str, &str)]) -> Vec<Arc<Value>> {
        let all = self.series.lock().unwrap();
        let matching = all.iter().filter(|(series, _)| {
            let has = |(key, value): &(&str, &str)| series.1.get(*key).is_some_and(|v| v == value);
            series.0 == name && is_of(series, worker) && labels.iter().all(has)
        });
        matching.map(|(_, value)| Arc::clone(value)).collect()
    }

    /// Sum of the counters of this worker with these labels.
    pub(crate) fn count(&self, worker: &WorkerId, name: &str, labels: &[(&str, &str)]) -> u64 {
        let counters = self.find(worker, name, labels);
        let counts = counters.iter();
        counts
            .map(|value| value.count.load(Ordering::Relaxed))
            .sum()
    }

    /// Value of a gauge of this worker.
    pub(crate) fn level(&self, worker: &WorkerId, name: &str) -> f64 {
        self.level_of(worker, name, &[])
    }

    /// Value of a gauge of this worker with these labels.
    pub(crate) fn level_of(&self, worker: &WorkerId, name: &str, labels: &[(&str, &str)]) -> f64 {
        let gauges = self.find(worker, name, labels);
        let first = gauges.first();
        first.map_or(f64::NAN, |value| *value.level.lock().unwrap())
    }

    /// Samples of the histograms of this worker with these labels.
    pub(crate) fn samples(
        &self,
        worker: &WorkerId,
        name: &str,
        labels: &[(&str, &str)],
    ) -> Vec<f64> {
        let histograms = self.find(worker, name, labels);
        let samples = histograms.iter();
        samples
            .flat_map(|value| value.samples.lock().unwrap().clone())
            .collect()
    }

    /// Kind and help text of a metric.
    pub(crate) fn description(&self, name: &str) -> Option<(&'static str, String)> {
        self.descriptions.lock().unwrap().get(name).cloned()
    }

    fn describe(&self, kind: &'static str, name: &KeyName, help: &SharedString) {
        let description = (kind, help.to_string());
        let mut descriptions = self.descriptions.lock().unwrap();
        descriptions.insert(name.as_str().to_owned(), description);
    }

    pub(crate) fn series(&self) -> Vec<Series> {
        self.series.lock().unwrap().keys().cloned().collect()
    }
}

impl Recorder for Meter {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe("counter", &name, &help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe("gauge", &name, &help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe("histogram", &name, &help);
    }

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
        self.samples.lock().unwrap().push(value);
    }
}

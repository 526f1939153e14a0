//! `/metrics`: metrics of the process, and gauges of the items in the store.

use std::fmt::{self, Display, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use tenure_core::store::{Counts, Store};

use crate::sampled::{Sample, Sampled};

/// Maximum age of the counts of the store.
const COUNTS_AGE_MAX: Duration = Duration::from_secs(10);

const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4";

/// Metrics of the process and of the store.
pub(crate) struct Metrics {
    store: Arc<dyn Store>,
    process: Arc<dyn Fn() -> String + Send + Sync>,
    counts: Sampled<Arc<Counts>>,
}

impl Metrics {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        process: Arc<dyn Fn() -> String + Send + Sync>,
    ) -> Self {
        Self {
            store,
            process,
            counts: Sampled::new(COUNTS_AGE_MAX),
        }
    }

    async fn text(&self) -> String {
        let query = async { self.store.count(None).await.map(Arc::new) };
        let (sample, _) = self.counts.get(query).await;
        let mut text = (self.process)();
        // Unknown counts are left out: an old value would look current.
        if let Sample::Answer(counts) = sample {
            text.push_str(&gauges(&counts));
        }
        text
    }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").finish_non_exhaustive()
    }
}

pub(crate) async fn metrics(State(metrics): State<Arc<Metrics>>) -> impl IntoResponse {
    let text = metrics.text().await;
    ([(header::CONTENT_TYPE, PROMETHEUS_TEXT)], text)
}

fn gauges(counts: &Counts) -> String {
    let mut page = Page::default();
    page.gauge("tenure_items", "Items by state.");
    for (state, number) in [
        ("pending", counts.pending()),
        ("claimed", counts.claimed),
        ("done", counts.done),
        ("dead", counts.dead),
    ] {
        page.value(&[("state", state)], number);
    }
    page.gauge(
        "tenure_items_lapsed",
        "Items held past the term and not reaped yet.",
    );
    page.value(&[], counts.lapsed);
    page.gauge(
        "tenure_keys_retried_long",
        "Keys whose head has been retried for over an hour with events behind it, up to 1000.",
    );
    page.value(&[], counts.retried_keys);
    page.gauge(
        "tenure_queue_items",
        "Pending items of a queue: due, delayed, or behind another item of their key.",
    );
    for (queue, waits) in &counts.queues {
        for (when, number) in [
            ("due", waits.due),
            ("delayed", waits.delayed),
            ("behind", waits.behind),
        ] {
            page.value(&[("queue", queue.as_str()), ("when", when)], number);
        }
    }
    page.gauge(
        "tenure_queue_oldest_due_seconds",
        "Time that the oldest due item has waited.",
    );
    for (queue, waits) in &counts.queues {
        let waited = waits.oldest_due.unwrap_or_default();
        page.value(&[("queue", queue.as_str())], waited.as_secs_f64());
    }
    page.text
}

/// Metrics in the text format of Prometheus.
#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    /// Starts a gauge; the next values belong to it.
    fn gauge(&mut self, name: &'static str, meaning: &str) {
        self.name = name;
        self.put(format_args!(
            "# HELP {name} {meaning}\n# TYPE {name} gauge\n"
        ));
    }

    fn value(&mut self, labels: &[(&str, &str)], value: impl Display) {
        let labels: Vec<_> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escaped(value)))
            .collect();
        let labels = match labels.as_slice() {
            [] => String::new(),
            labels => format!("{{{}}}", labels.join(",")),
        };
        let name = self.name;
        self.put(format_args!("{name}{labels} {value}\n"));
    }

    fn put(&mut self, text: fmt::Arguments<'_>) {
        self.text
            .write_fmt(text)
            .expect("writing to a string cannot fail");
    }
}

fn escaped(value: &str) -> String {
    value
        .replace('\\', "\\\\")
        .replace('"', "\\\"")
        .replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use tenure_core::QueueName;
    use tenure_core::store::QueueCounts;

    use super::*;

    #[test]
    fn every_count_is_a_gauge() {
        let waits = QueueCounts {
            due: 3,
            delayed: 2,
            behind: 8,
            oldest_due: Some(Duration::from_millis(1_500)),
        };
        let counts = Counts {
            queues: vec![(QueueName::new("mail").unwrap(), waits)],
            claimed: 4,
            lapsed: 1,
            done: 7,
            dead: 6,
            retried_keys: 5,
            ..Counts::default()
        };
        let text = gauges(&counts);
        for line in [
            "# TYPE tenure_items gauge",
            "tenure_items{state=\"pending\"} 13",
            "tenure_items{state=\"claimed\"} 4",
            "tenure_items{state=\"done\"} 7",
            "tenure_items{state=\"dead\"} 6",
            "tenure_items_lapsed 1",
            "tenure_keys_retried_long 5",
            "tenure_queue_items{queue=\"mail\",when=\"due\"} 3",
            "tenure_queue_items{queue=\"mail\",when=\"delayed\"} 2",
            "tenure_queue_items{queue=\"mail\",when=\"behind\"} 8",
            "tenure_queue_oldest_due_seconds{queue=\"mail\"} 1.5",
        ] {
            assert!(text.lines().any(|other| other == line), "{line} in {text}");
        }
    }

    #[test]
    fn quotes_backslashes_and_line_breaks_in_labels_are_escaped() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}

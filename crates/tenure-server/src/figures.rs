//! `/metrics`: the figures of the process, and gauges of what the store holds.

use std::fmt::{self, Display, Write};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::header;
use axum::response::IntoResponse;
use tenure_core::store::{Counts, Store};

use crate::sampled::{Sample, Sampled};

/// The store is counted at most this often.
const KEEP: Duration = Duration::from_secs(10);

const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4";

/// The figures of the process and of the store.
pub(crate) struct Figures {
    store: Arc<dyn Store>,
    metrics: Arc<dyn Fn() -> String + Send + Sync>,
    counts: Sampled<Arc<Counts>>,
}

impl Figures {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        metrics: Arc<dyn Fn() -> String + Send + Sync>,
    ) -> Self {
        Self {
            store,
            metrics,
            counts: Sampled::new(KEEP),
        }
    }

    async fn text(&self) -> String {
        let ask = async { self.store.count(None).await.map(Arc::new) };
        let (sample, _) = self.counts.get(ask).await;
        let mut text = (self.metrics)();
        // What is not known is left out: a gauge that stands still would be believed.
        if let Sample::Answer(counts) = sample {
            text.push_str(&gauges(&counts));
        }
        text
    }
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}

pub(crate) async fn metrics(State(figures): State<Arc<Figures>>) -> impl IntoResponse {
    let text = figures.text().await;
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
    page.gauge("tenure_items_lapsed", "Items held past the term.");
    page.value(&[], counts.lapsed);
    page.gauge("tenure_queue_items", "Items that wait in a queue.");
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
        "How long the first item that may be claimed has waited.",
    );
    for (queue, waits) in &counts.queues {
        let waited = waits.oldest_due.unwrap_or_default();
        page.value(&[("queue", queue.as_str())], waited.as_secs_f64());
    }
    page.text
}

/// Figures in the text format of Prometheus.
#[derive(Default)]
struct Page {
    text: String,
    name: &'static str,
}

impl Page {
    /// What follows are values of this gauge.
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
            .expect("a string takes everything");
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
            "tenure_queue_items{queue=\"mail\",when=\"due\"} 3",
            "tenure_queue_items{queue=\"mail\",when=\"delayed\"} 2",
            "tenure_queue_items{queue=\"mail\",when=\"behind\"} 8",
            "tenure_queue_oldest_due_seconds{queue=\"mail\"} 1.5",
        ] {
            assert!(text.lines().any(|found| found == line), "{line} in {text}");
        }
    }

    #[test]
    fn a_label_cannot_end_early() {
        assert_eq!(escaped("a\"b\\c\nd"), "a\\\"b\\\\c\\nd");
    }
}

//! Export of the handlers' spans to a collector, by OTLP over HTTP with protobuf.
//!
//! Work never waits for the collector: a bounded queue lies between, and what it cannot take is
//! dropped and counted.

mod encode;
mod export;
mod post;
mod protobuf;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::{Counter, counter, describe_counter};
use tenure_core::{Clock, HandleSpan, Invalid, Tracer};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use self::encode::EndedSpan;
use self::post::Collector;

/// Spans that wait for their export.
const QUEUE: usize = 4096;

/// Configuration of an [`Otlp`].
#[derive(Clone)]
pub struct OtlpConfig {
    /// Address of the collector, with the path: `http://127.0.0.1:4318/v1/traces`.
    pub endpoint: String,
    /// Headers of each request, which may hold secrets.
    pub headers: Vec<(String, String)>,
    /// Time limit of a request. Default: 10 s.
    pub timeout: Duration,
    /// Attributes of this process, such as `service.name`.
    pub resource: Vec<(String, String)>,
    /// Source of the ends of spans.
    pub clock: Arc<dyn Clock>,
}

impl OtlpConfig {
    /// Default configuration for a collector.
    pub fn new(endpoint: impl Into<String>, clock: Arc<dyn Clock>) -> Self {
        Self {
            endpoint: endpoint.into(),
            headers: Vec::new(),
            timeout: Duration::from_secs(10),
            resource: vec![("service.name".to_owned(), "tenure".to_owned())],
            clock,
        }
    }
}

impl fmt::Debug for OtlpConfig {
    /// Leaves out the address and the headers, which may hold secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OtlpConfig")
            .field("timeout", &self.timeout)
            .field("resource", &self.resource)
            .finish_non_exhaustive()
    }
}

/// Tracer that exports spans to an OpenTelemetry collector.
///
/// Spans are sent in batches of at most 512, at the latest a second after their end. A collector
/// that is away or busy is asked again twice; then the batch is dropped. Spans are also dropped
/// when 4096 wait. The metrics `tenure_spans_exported_total` and `tenure_spans_dropped_total` count
/// them; the log says once that the collector fails, and once that it is back.
pub struct Otlp {
    queue: mpsc::Sender<EndedSpan>,
    clock: Arc<dyn Clock>,
    counts: Counts,
    stopping: watch::Sender<bool>,
    exporter: Mutex<Option<JoinHandle<()>>>,
}

impl Otlp {
    /// Starts the export on the current runtime, which must have time and I/O enabled. Install the
    /// recorder of metrics before.
    ///
    /// # Errors
    /// The address is not one of http or https, or a header cannot be written.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn start(config: OtlpConfig) -> Result<Arc<Self>, Invalid> {
        let collector = Collector::new(&config)?;
        let (queue, spans) = mpsc::channel(QUEUE);
        let (stopping, is_stopping) = watch::channel(false);
        let counts = Counts::new();
        let export = export::run(
            collector,
            config.resource,
            counts.clone(),
            (spans, is_stopping),
        );
        Ok(Arc::new(Self {
            queue,
            clock: config.clock,
            counts,
            stopping,
            exporter: Mutex::new(Some(tokio::spawn(export))),
        }))
    }

    /// Exports the spans that wait, for at most this time, and ends the export. The rest is dropped
    /// and counted.
    pub async fn stop(&self, within: Duration) {
        self.stopping.send_replace(true);
        let exporter = self.take_exporter();
        let Some(mut exporter) = exporter else { return };
        if timeout(within, &mut exporter).await.is_err() {
            exporter.abort();
            tracing::warn!(
                "spans were dropped at the end: the collector did not take them in time"
            );
        }
    }

    fn take_exporter(&self) -> Option<JoinHandle<()>> {
        let mut exporter = self.exporter.lock().unwrap_or_else(PoisonError::into_inner);
        exporter.take()
    }
}

impl Tracer for Otlp {
    fn record(&self, span: HandleSpan) {
        let ended = (span, self.clock.now());
        if self.queue.try_send(ended).is_err() {
            self.counts.dropped.increment(1);
        }
    }
}

impl fmt::Debug for Otlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Otlp").finish_non_exhaustive()
    }
}

#[derive(Clone)]
struct Counts {
    exported: Counter,
    dropped: Counter,
}

impl Counts {
    fn new() -> Self {
        let (exported, dropped) = ("tenure_spans_exported_total", "tenure_spans_dropped_total");
        describe_counter!(exported, "Spans that the collector has taken.");
        describe_counter!(
            dropped,
            "Spans that were not exported: the queue was full, or the collector failed or refused."
        );
        let counts = Self {
            exported: counter!(exported),
            dropped: counter!(dropped),
        };
        // Registers both, so that they are shown from the start.
        counts.exported.increment(0);
        counts.dropped.increment(0);
        counts
    }
}

//! Captured log lines: one subscriber for all tests of this program, indexed by worker.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, OnceLock};

use tenure_core::WorkerId;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// A log line with the fields of its spans.
#[derive(Clone, Debug)]
pub(crate) struct LogLine {
    pub(crate) level: Level,
    pub(crate) text: String,
    pub(crate) fields: BTreeMap<String, String>,
}

impl LogLine {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

static LINES: OnceLock<Mutex<Vec<LogLine>>> = OnceLock::new();

fn all() -> &'static Mutex<Vec<LogLine>> {
    LINES.get_or_init(Mutex::default)
}

/// Installs the capture of the engine's log at the first call.
pub(crate) fn install() {
    static INSTALLED: OnceLock<()> = OnceLock::new();
    INSTALLED.get_or_init(|| {
        let subscriber = tracing_subscriber::registry().with(Capture);
        tracing::subscriber::set_global_default(subscriber).expect("only this function sets one");
    });
}

/// Log lines of this worker.
pub(crate) fn lines(worker: &WorkerId) -> Vec<LogLine> {
    let all = all().lock().unwrap();
    let own = all
        .iter()
        .filter(|line| line.field("worker") == worker.as_str());
    own.cloned().collect()
}

/// Log lines of this worker that contain `text`.
pub(crate) fn matching(worker: &WorkerId, text: &str) -> Vec<LogLine> {
    let lines = lines(worker);
    lines
        .into_iter()
        .filter(|line| line.text.contains(text))
        .collect()
}

/// Log lines of engines that name no worker.
pub(crate) fn nameless() -> Vec<LogLine> {
    let all = all().lock().unwrap();
    let nameless = all.iter().filter(|line| line.field("worker").is_empty());
    nameless.cloned().collect()
}

/// Captures the lines of the engine.
pub(crate) struct Capture;

#[derive(Default)]
struct Fields(BTreeMap<String, String>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.to_owned());
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Capture {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, cx: Context<'_, S>) {
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        if let Some(span) = cx.span(id) {
            span.extensions_mut().insert(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, cx: Context<'_, S>) {
        if !event.metadata().target().starts_with("tenure_engine") {
            return;
        }
        let mut fields = Fields::default();
        for span in cx.event_scope(event).into_iter().flatten() {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.0.extend(of_span.0.clone());
            }
        }
        event.record(&mut fields);
        let text = fields.0.remove("message").unwrap_or_default();
        all().lock().unwrap().push(LogLine {
            level: *event.metadata().level(),
            text,
            fields: fields.0,
        });
    }
}

//! What was logged: one subscriber for all tests of this program, told apart by the worker.

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

/// A line of the log, with the fields of the spans that it stands in.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) text: String,
    pub(crate) fields: BTreeMap<String, String>,
}

impl Line {
    pub(crate) fn field(&self, name: &str) -> &str {
        self.fields.get(name).map_or("", String::as_str)
    }
}

static LINES: OnceLock<Mutex<Vec<Line>>> = OnceLock::new();

fn all() -> &'static Mutex<Vec<Line>> {
    LINES.get_or_init(Mutex::default)
}

/// From the first call on everything that the engine logs is kept.
pub(crate) fn keep() {
    static KEPT: OnceLock<()> = OnceLock::new();
    KEPT.get_or_init(|| {
        let subscriber = tracing_subscriber::registry().with(Lines);
        tracing::subscriber::set_global_default(subscriber).expect("nobody else sets one");
    });
}

/// What this worker logged.
pub(crate) fn lines(worker: &WorkerId) -> Vec<Line> {
    let all = all().lock().unwrap();
    let own = all
        .iter()
        .filter(|line| line.field("worker") == worker.as_str());
    own.cloned().collect()
}

/// The lines of this worker that say so.
pub(crate) fn said(worker: &WorkerId, text: &str) -> Vec<Line> {
    let lines = lines(worker);
    lines
        .into_iter()
        .filter(|line| line.text.contains(text))
        .collect()
}

/// The lines of any engine that do not say which worker they are of.
pub(crate) fn nameless() -> Vec<Line> {
    let all = all().lock().unwrap();
    let nameless = all.iter().filter(|line| line.field("worker").is_empty());
    nameless.cloned().collect()
}

/// Keeps the lines of the engine.
pub(crate) struct Lines;

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

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Lines {
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
        all().lock().unwrap().push(Line {
            level: *event.metadata().level(),
            text,
            fields: fields.0,
        });
    }
}

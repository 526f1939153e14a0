//! Logs: lines on standard error, as text or as JSON, each with the time in UTC and, in a process
//! that works, the worker's id.

use std::fmt;
use std::io;

use anstyle::{AnsiColor, Style};
use tenure::Invalid;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::{Format, Json, JsonFields, Writer};
use tracing_subscriber::fmt::time::FormatTime;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{EnvFilter, fmt as lines};

use crate::config::{Log, LogFormat};
use crate::exit::Exit;
use crate::problem::Problem;
use crate::time;

/// Installs the logger; once per process.
pub(crate) fn init(log: &Log, worker: Option<&str>) -> Result<(), Problem> {
    let filter =
        filter(&log.level).map_err(|problem| Problem::new(Exit::Usage, problem.to_string()))?;
    let builder = lines().with_env_filter(filter).with_writer(io::stderr);
    let set = match log.format {
        LogFormat::Text => {
            let is_coloured =
                anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
            let moment = LogTime {
                worker: worker.map(str::to_owned),
            };
            builder
                .with_ansi(is_coloured)
                .event_format(TextLines(moment))
                .try_init()
        }
        LogFormat::Json => builder
            .fmt_fields(JsonFields::new())
            .event_format(JsonLines::new(worker))
            .try_init(),
    };
    set.map_err(|cause| Problem::new(Exit::Failed, "cannot set up the logs").cause(cause))
}

/// Logs the probable mistakes in the configuration.
pub(crate) fn warn_of_mistakes(warnings: &[String]) {
    for warning in warnings {
        tracing::warn!(warning, "the configuration may contain a mistake");
    }
}

/// Parses a log filter. A single word must be a level: the library would take a mistyped level for
/// the name of a module and log nothing.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, Invalid> {
    let wrong = || {
        let expected = "error, warn, info, debug, trace or off, also per module: \
                        info,tenure_engine=debug";
        Invalid::new("log.level", format!("{level:?}"), expected)
    };
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let is_valid = |part: &str| match part.rsplit_once('=') {
        Some((target, level)) => !target.is_empty() && is_level(level),
        None => is_level(part),
    };
    // Spans and fields in brackets may contain commas; those are left to the library.
    if !level.contains('[') && !level.split(',').all(is_valid) {
        return Err(wrong());
    }
    let filter = EnvFilter::try_new(level).map_err(|_cause| wrong())?;
    let names_driver = level.contains("sqlx");
    let is_brief = filter
        .max_level_hint()
        .is_some_and(|most| most <= LevelFilter::INFO);
    if names_driver || !is_brief {
        return Ok(filter);
    }
    let quiet = QUIETED
        .iter()
        .filter_map(|directive| directive.parse().ok());
    Ok(quiet.fold(filter, EnvFilter::add_directive))
}

/// Filters that silence two kinds of lines of the driver: a line per connection when the database
/// becomes unavailable, which Tenure logs once, and notices of the server, for example that a table
/// exists already.
const QUIETED: [&str; 3] = [
    "sqlx_core::pool=error",
    "sqlx::pool=error",
    "sqlx::postgres::notice=error",
];

/// The current time in UTC, followed by the worker's id.
#[derive(Debug)]
struct LogTime {
    worker: Option<String>,
}

impl LogTime {
    fn write(w: &mut Writer<'_>, worker: Option<&str>) -> fmt::Result {
        // Always in microseconds, so that lines align and sort as text.
        let micros = time::now().as_micros();
        match jiff::Timestamp::from_microsecond(micros) {
            Ok(moment) => write!(w, "{moment:.6}")?,
            Err(_) => write!(w, "{micros}us")?,
        }
        match worker {
            Some(worker) => write!(w, " {worker}"),
            None => Ok(()),
        }
    }
}

impl FormatTime for LogTime {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        Self::write(w, self.worker.as_deref())
    }
}

/// The worker whose span the event is in; a process may have several.
fn worker_of<S, N>(cx: &FmtContext<'_, S, N>) -> Option<String>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    let mut spans = cx.event_scope()?;
    let span = spans.find(|span| span.name() == "worker")?;
    let extensions = span.extensions();
    let fields = extensions.get::<FormattedFields<N>>()?;
    // The span's only field is the id; it may be wrapped in colours, which the id cannot contain.
    let plain = fields.fields.rsplit("\u{1b}[0m").next()?;
    let is_of_id = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let id = plain
        .rsplit(|c| !is_of_id(c))
        .find(|part| !part.is_empty())?;
    Some(id.to_owned())
}

/// The trace of the handler's span that the event is in, if it has one.
fn trace_of<S, N>(cx: &FmtContext<'_, S, N>) -> Option<String>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    let mut spans = cx.event_scope()?;
    let span = spans.find(|span| span.name() == "handle")?;
    let extensions = span.extensions();
    let fields = extensions.get::<FormattedFields<N>>()?;
    // The last field: its name, perhaps quotes or colours, and 32 digits.
    let (_, rest) = fields.fields.rsplit_once("trace_id")?;
    let mut words = rest.split(|c: char| !c.is_ascii_hexdigit());
    words.find(|word| word.len() == 32).map(str::to_owned)
}

/// Lines of text: time, worker, level, message, and the trace of the handler's span. Without the
/// spans, which would repeat the worker.
#[derive(Debug)]
struct TextLines(LogTime);

impl<S, N> FormatEvent<S, N> for TextLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        cx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let worker = worker_of(cx).or_else(|| self.0.worker.clone());
        LogTime::write(&mut writer, worker.as_deref())?;
        let level = *event.metadata().level();
        if writer.has_ansi_escapes() {
            let style = style(level);
            write!(writer, " {style}{level:>5}{style:#} ")?;
        } else {
            write!(writer, " {level:>5} ")?;
        }
        cx.format_fields(writer.by_ref(), event)?;
        if let Some(trace) = trace_of(cx) {
            write!(writer, " trace_id={trace}")?;
        }
        writeln!(writer)
    }
}

fn style(level: Level) -> Style {
    match level {
        Level::ERROR => AnsiColor::Red.on_default(),
        Level::WARN => AnsiColor::Yellow.on_default(),
        Level::INFO => AnsiColor::Green.on_default(),
        _ => AnsiColor::Blue.on_default(),
    }
}

/// Lines of JSON with the worker's id and the trace first.
#[derive(Debug)]
struct JsonLines {
    worker: Option<String>,
    inner: Format<Json, LogTime>,
}

impl JsonLines {
    fn new(worker: Option<&str>) -> Self {
        Self {
            worker: worker.map(str::to_owned),
            inner: Format::default()
                .json()
                .with_current_span(false)
                .with_span_list(false)
                .with_timer(LogTime { worker: None }),
        }
    }
}

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        cx: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.inner.format_event(cx, Writer::new(&mut line), event)?;
        let rest = line.strip_prefix('{').unwrap_or(&line);
        let trace = trace_of(cx);
        let trace = trace.map(|trace| format!("\"trace_id\":\"{trace}\","));
        let trace = trace.unwrap_or_default();
        match worker_of(cx).as_ref().or(self.worker.as_ref()) {
            Some(worker) => {
                let worker = serde_json::json!(worker);
                write!(writer, "{{\"worker\":{worker},{trace}{rest}")
            }
            None => write!(writer, "{{{trace}{rest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    #[derive(Clone, Default)]
    struct Captured(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Captured {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Captured {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    impl Captured {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn a_line_of_json_names_the_worker_and_the_moment() {
        let captured = Captured::default();
        let logs = lines()
            .with_writer(captured.clone())
            .fmt_fields(JsonFields::new())
            .event_format(JsonLines::new(Some("tenure-1f")))
            .finish();
        tracing::subscriber::with_default(logs, || tracing::warn!(count = 3, "reaped leases"));
        let line: serde_json::Value = serde_json::from_str(&captured.text()).unwrap();
        assert_eq!(line["worker"], "tenure-1f");
        assert_eq!(line["level"], "WARN");
        assert_eq!(line["fields"]["message"], "reaped leases");
        assert_eq!(line["fields"]["count"], 3);
        let moment = line["timestamp"].as_str().unwrap();
        assert_eq!(moment.len(), "2026-11-15T10:00:00.000000Z".len());
        assert!(moment.ends_with('Z') && moment.parse::<jiff::Timestamp>().is_ok());
    }

    #[test]
    fn a_line_of_text_names_the_worker_and_the_moment() {
        let captured = Captured::default();
        let worker = Some("tenure-1f".to_owned());
        let logs = lines()
            .with_writer(captured.clone())
            .with_ansi(false)
            .event_format(TextLines(LogTime { worker }))
            .finish();
        tracing::subscriber::with_default(logs, || tracing::info!(count = 3, "reaped leases"));
        let text = captured.text();
        let (moment, rest) = text.split_once(' ').unwrap();
        assert!(moment.parse::<jiff::Timestamp>().is_ok(), "{text}");
        assert_eq!(rest, "tenure-1f  INFO reaped leases count=3\n");
    }

    /// Goal: lines of two workers in one process name the right one. Method: the span of an engine,
    /// in both formats, with colours and without.
    #[test]
    fn a_line_of_a_second_worker_names_that_worker() {
        let log = || {
            let span = tracing::error_span!("worker", worker = %"tenure-sender-2f");
            span.in_scope(|| tracing::info!("stopped"));
        };
        for is_coloured in [true, false] {
            let captured = Captured::default();
            let worker = Some("tenure-1f".to_owned());
            let logs = lines()
                .with_writer(captured.clone())
                .with_ansi(is_coloured)
                .event_format(TextLines(LogTime { worker }))
                .finish();
            tracing::subscriber::with_default(logs, log);
            assert!(
                captured.text().contains("Z tenure-sender-2f "),
                "{}",
                captured.text()
            );
        }
        let captured = Captured::default();
        let logs = lines()
            .with_writer(captured.clone())
            .fmt_fields(JsonFields::new())
            .event_format(JsonLines::new(Some("tenure-1f")))
            .finish();
        tracing::subscriber::with_default(logs, log);
        let line: serde_json::Value = serde_json::from_str(&captured.text()).unwrap();
        assert_eq!(line["worker"], "tenure-sender-2f");
    }

    #[test]
    fn a_mistyped_level_is_refused() {
        for level in ["info", "OFF", "info,tenure_engine=debug", "warn,sqlx=off"] {
            assert!(filter(level).is_ok(), "{level}");
        }
        assert!(filter("info,tenure[claim{queue=mail}]=trace").is_ok());
        for level in ["", "infoo", "info,", "tenure=loud", "=info", "tenure[=info"] {
            assert!(filter(level).is_err(), "{level}");
        }
    }
}

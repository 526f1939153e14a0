//! Logs: lines on the error stream, as text for people or as JSON for programs, each with the
//! moment in UTC and, in a process that works, with the worker's id.

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

/// Lets the process log from now on; once per process.
pub(crate) fn init(log: &Log, worker: Option<&str>) -> Result<(), Problem> {
    let filter =
        filter(&log.level).map_err(|problem| Problem::new(Exit::Usage, problem.to_string()))?;
    let builder = lines().with_env_filter(filter).with_writer(io::stderr);
    let set = match log.format {
        LogFormat::Text => {
            let is_coloured =
                anstream::AutoStream::choice(&io::stderr()) != anstream::ColorChoice::Never;
            let moment = Moment {
                worker: worker.map(str::to_owned),
            };
            builder
                .with_ansi(is_coloured)
                .event_format(Plain(moment))
                .try_init()
        }
        LogFormat::Json => builder
            .fmt_fields(JsonFields::new())
            .event_format(Named::new(worker))
            .try_init(),
    };
    set.map_err(|cause| Problem::new(Exit::Failed, "the logs cannot be set up").cause(cause))
}

/// Tells what looks like an oversight in the configuration.
pub(crate) fn tell_remarks(remarks: &[String]) {
    for remark in remarks {
        tracing::warn!(remark, "the configuration may have an oversight");
    }
}

/// Reads what is to be logged. A word alone is a level: as the name of a part of the program, which
/// it could be, a mistyped level would silence everything.
pub(crate) fn filter(level: &str) -> Result<EnvFilter, Invalid> {
    let wrong = || {
        let expected = "error, warn, info, debug, trace or off, also per part: \
                        info,tenure_engine=debug";
        Invalid::new("log.level", format!("{level:?}"), expected)
    };
    let is_level = |part: &str| !part.is_empty() && part.parse::<LevelFilter>().is_ok();
    let is_sound = |part: &str| match part.rsplit_once('=') {
        Some((target, level)) => !target.is_empty() && is_level(level),
        None => is_level(part),
    };
    // Spans and fields in brackets may hold commas of their own; the library judges those alone.
    if !level.contains('[') && !level.split(',').all(is_sound) {
        return Err(wrong());
    }
    let filter = EnvFilter::try_new(level).map_err(|_cause| wrong())?;
    let is_asked = level.contains("sqlx");
    let is_brief = filter
        .max_level_hint()
        .is_some_and(|most| most <= LevelFilter::INFO);
    if is_asked || !is_brief {
        return Ok(filter);
    }
    let quiet = HUSHED.iter().filter_map(|directive| directive.parse().ok());
    Ok(quiet.fold(filter, EnvFilter::add_directive))
}

/// What the driver says beside us: of every single connection when a database goes away, which we
/// say once; and the notices of the server, such as that a table is there already.
const HUSHED: [&str; 3] = [
    "sqlx_core::pool=error",
    "sqlx::pool=error",
    "sqlx::postgres::notice=warn",
];

/// The present moment, in UTC, and behind it who says it.
#[derive(Debug)]
struct Moment {
    worker: Option<String>,
}

impl Moment {
    fn write(w: &mut Writer<'_>, worker: Option<&str>) -> fmt::Result {
        // Always to the microsecond, so that lines stand in columns and sort as text.
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

impl FormatTime for Moment {
    fn format_time(&self, w: &mut Writer<'_>) -> fmt::Result {
        Self::write(w, self.worker.as_deref())
    }
}

/// The worker that says this, where a process has several: the one whose span it is in.
fn speaker<S, N>(cx: &FmtContext<'_, S, N>) -> Option<String>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'w> FormatFields<'w> + 'static,
{
    let mut spans = cx.event_scope()?;
    let span = spans.find(|span| span.name() == "worker")?;
    let extensions = span.extensions();
    let fields = extensions.get::<FormattedFields<N>>()?;
    // Its only field is the id, which has none of these characters; colours may stand around it.
    let plain = fields.fields.rsplit("\u{1b}[0m").next()?;
    let is_of_id = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    let id = plain
        .rsplit(|c| !is_of_id(c))
        .find(|part| !part.is_empty())?;
    Some(id.to_owned())
}

/// Lines of text: moment, worker, level, what happened. Spans are left out: they would name the
/// worker again.
#[derive(Debug)]
struct Plain(Moment);

impl<S, N> FormatEvent<S, N> for Plain
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
        let speaker = speaker(cx).or_else(|| self.0.worker.clone());
        Moment::write(&mut writer, speaker.as_deref())?;
        let level = *event.metadata().level();
        if writer.has_ansi_escapes() {
            let style = style(level);
            write!(writer, " {style}{level:>5}{style:#} ")?;
        } else {
            write!(writer, " {level:>5} ")?;
        }
        cx.format_fields(writer.by_ref(), event)?;
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

/// Lines of JSON with the worker's id first.
#[derive(Debug)]
struct Named {
    worker: Option<String>,
    inner: Format<Json, Moment>,
}

impl Named {
    fn new(worker: Option<&str>) -> Self {
        Self {
            worker: worker.map(str::to_owned),
            inner: Format::default()
                .json()
                .with_current_span(false)
                .with_span_list(false)
                .with_timer(Moment { worker: None }),
        }
    }
}

impl<S, N> FormatEvent<S, N> for Named
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
        match speaker(cx).as_ref().or(self.worker.as_ref()) {
            Some(worker) => {
                let worker = serde_json::json!(worker);
                write!(writer, "{{\"worker\":{worker},{rest}")
            }
            None => write!(writer, "{{{rest}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::fmt::MakeWriter;

    use super::*;

    /// Keeps what is logged.
    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl<'a> MakeWriter<'a> for Kept {
        type Writer = Self;

        fn make_writer(&'a self) -> Self {
            self.clone()
        }
    }

    impl Kept {
        fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    #[test]
    fn a_line_of_json_names_the_worker_and_the_moment() {
        let kept = Kept::default();
        let logs = lines()
            .with_writer(kept.clone())
            .fmt_fields(JsonFields::new())
            .event_format(Named::new(Some("tenure-1f")))
            .finish();
        tracing::subscriber::with_default(logs, || tracing::warn!(count = 3, "reaped leases"));
        let line: serde_json::Value = serde_json::from_str(&kept.text()).unwrap();
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
        let kept = Kept::default();
        let worker = Some("tenure-1f".to_owned());
        let logs = lines()
            .with_writer(kept.clone())
            .with_ansi(false)
            .event_format(Plain(Moment { worker }))
            .finish();
        tracing::subscriber::with_default(logs, || tracing::info!(count = 3, "reaped leases"));
        let text = kept.text();
        let (moment, rest) = text.split_once(' ').unwrap();
        assert!(moment.parse::<jiff::Timestamp>().is_ok(), "{text}");
        assert_eq!(rest, "tenure-1f  INFO reaped leases count=3\n");
    }

    /// Goal: of two workers in one process each speaks for itself. Method: the span that an engine
    /// runs in, in both forms, with colours and without.
    #[test]
    fn a_line_of_another_worker_names_that_one() {
        let speak = || {
            let span = tracing::error_span!("worker", worker = %"tenure-sender-2f");
            span.in_scope(|| tracing::info!("stopped"));
        };
        for is_coloured in [true, false] {
            let kept = Kept::default();
            let worker = Some("tenure-1f".to_owned());
            let logs = lines()
                .with_writer(kept.clone())
                .with_ansi(is_coloured)
                .event_format(Plain(Moment { worker }))
                .finish();
            tracing::subscriber::with_default(logs, speak);
            assert!(
                kept.text().contains("Z tenure-sender-2f "),
                "{}",
                kept.text()
            );
        }
        let kept = Kept::default();
        let logs = lines()
            .with_writer(kept.clone())
            .fmt_fields(JsonFields::new())
            .event_format(Named::new(Some("tenure-1f")))
            .finish();
        tracing::subscriber::with_default(logs, speak);
        let line: serde_json::Value = serde_json::from_str(&kept.text()).unwrap();
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

//! `tenure enqueue`: writes an event, or one per line of the input.

mod line;
mod lines;

use std::io::{self, IsTerminal, Read};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::{Enqueued, Event, Invalid, PAYLOAD_BYTES_MAX, Priority, QueueName};

use super::Context;
use crate::database::Absent;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::time;

#[derive(Debug, Args)]
pub(crate) struct Enqueue {
    /// What the event is about, such as order.paid
    #[arg(required_unless_present = "lines")]
    topic: Option<String>,

    /// The payload; `-` or nothing reads it from the input
    #[arg(
        value_name = "JSON",
        allow_hyphen_values = true,
        conflicts_with = "lines"
    )]
    payload: Option<String>,

    /// Put it into this queue
    #[arg(
        long,
        value_name = "QUEUE",
        default_value = QueueName::DEFAULT,
        value_parser = QueueName::new
    )]
    queue: QueueName,

    /// Keep the order of the events with this key: one at a time, each after those before it
    #[arg(long, allow_hyphen_values = true)]
    key: Option<String>,

    /// Keep the order even among transactions that overlap: wait for other strict ones of this key
    #[arg(long)]
    strict: bool,

    /// Hold it back for this long: 30s, 5m, 1h 30m
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = time::duration,
        allow_hyphen_values = true
    )]
    delay: Option<Duration>,

    /// How urgent it is within its queue: 0 to 7, high first
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "0",
        value_parser = priority,
        allow_hyphen_values = true
    )]
    priority: Priority,

    /// Write it only if no event with this dedupe key is kept
    #[arg(long, value_name = "KEY", conflicts_with = "lines")]
    dedupe: Option<String>,

    /// Send this header along; may be given often
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,

    /// Read events from the input, one per line
    #[arg(long)]
    lines: bool,

    /// Go on at this line of the input; those before it are passed over
    #[arg(
        long,
        value_name = "N",
        requires = "lines",
        conflicts_with = "payload",
        default_value = "1",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    from_line: u64,

    /// Pass over lines that are no event, and tell which; exits with 1 when there were any
    // `requires` alone is waived by clap where a payload is given, which excludes `--lines`.
    #[arg(long, requires = "lines", conflicts_with = "payload")]
    skip_bad: bool,
}

/// The answer, in JSON.
#[derive(Serialize)]
struct Written {
    id: i64,
    /// Null when an event with the same dedupe key was there.
    event_id: Option<String>,
    /// Whether this call wrote it.
    fresh: bool,
}

pub(super) async fn run(cx: &Context, args: Enqueue) -> Result<Exit, Stop> {
    if args.lines {
        return lines::run(cx, &args).await;
    }
    // The event is read and checked before a database is opened, or made.
    let event = event(cx, &args)?;
    let tenure = cx.database.open(Absent::Make).await?;
    let answer = tenure.enqueue_now(event).await?;
    let event_id = match answer {
        Enqueued::Fresh { event_id, .. } => Some(event_id.to_string()),
        Enqueued::Existed { .. } => None,
    };
    let object = Written {
        id: answer.id().number(),
        event_id,
        fresh: answer.is_fresh(),
    };
    cx.output.either(&object, || {
        let id = answer.id();
        if answer.is_fresh() {
            format!("enqueued {id}")
        } else {
            format!("already there as {id}: nothing was written")
        }
    })?;
    Ok(Exit::Done)
}

fn event(cx: &Context, args: &Enqueue) -> Result<Event, Stop> {
    let topic = args.topic.as_deref().unwrap_or_default();
    // An empty topic or a wrong key is told before the input is waited for.
    args.ordered(Event::from_json(topic, "null")?, None, None)?;
    let payload = match args.payload.as_deref() {
        None | Some("-") => read_payload(cx)?,
        Some(json) => json.to_owned(),
    };
    let event = args.dress(Event::from_json(topic, payload)?)?;
    let event = args.ordered(event, None, None)?;
    Ok(match &args.dedupe {
        Some(key) => event.dedupe(key)?,
        None => event,
    })
}

impl Enqueue {
    /// The event with what the options say of every event.
    fn dress(&self, event: Event) -> Result<Event, Invalid> {
        let mut event = event.queue(self.queue.as_str())?.priority(self.priority);
        if let Some(delay) = self.delay {
            event = event.delay(delay)?;
        }
        for (name, value) in &self.headers {
            event = event.header(name, value)?;
        }
        Ok(event)
    }

    /// The event in the order of its key: its own, or that of the options.
    fn ordered(
        &self,
        event: Event,
        key: Option<&str>,
        strict: Option<bool>,
    ) -> Result<Event, Invalid> {
        let is_strict = strict.unwrap_or(self.strict);
        match (key.or(self.key.as_deref()), is_strict) {
            (Some(key), true) => event.key(key).map(Event::strict),
            (Some(key), false) => event.key(key),
            (None, false) => Ok(event),
            (None, true) => Err(Invalid::new(
                "strict",
                "said without a key",
                "a key, too: only events of one key wait for each other",
            )),
        }
    }
}

/// The report that the input cannot be read.
fn unreadable(error: &io::Error) -> Problem {
    Problem::new(Exit::Failed, "the input cannot be read").cause(error)
}

/// The payload from the input, read no further than it may be long.
pub(super) fn read_payload(cx: &Context) -> Result<String, Stop> {
    let input = io::stdin();
    if input.is_terminal() {
        cx.output.note("type the payload, then Ctrl-D");
    }
    let most = u64::try_from(PAYLOAD_BYTES_MAX).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    // One line break more than a payload: an editor and `echo` end a text with one.
    input
        .lock()
        .take(most.saturating_add(2))
        .read_to_end(&mut bytes)
        .map_err(|error| unreadable(&error))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let place = error.utf8_error().valid_up_to();
        Invalid::new("payload", format!("not UTF-8 (byte {place})"), "JSON text")
    })?;
    let text = text.trim();
    if text.len() > PAYLOAD_BYTES_MAX {
        let expected = "at most 1 MiB: keep the large part elsewhere and send its address";
        return Err(Invalid::new("payload", "over 1 MiB", expected).into());
    }
    Ok(text.to_owned())
}

fn priority(text: &str) -> Result<Priority, Invalid> {
    let level = text.parse().map_err(|cause| {
        Invalid::new(
            "priority",
            format!("{text:?} ({cause})"),
            "0 to 7, high first",
        )
    })?;
    Priority::new(level)
}

fn header(text: &str) -> Result<(String, String), Invalid> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| Invalid::new("the header", format!("{text:?}"), "NAME=VALUE"))
}

//! `tenure enqueue`: writes an event, or one per line of the input.

mod line;
mod lines;

use std::io::{self, IsTerminal, Read};
use std::time::Duration;

use clap::Args;
use serde::Serialize;
use tenure::store::{PAYLOAD_BYTES_MAX, Priority, QueueName};
use tenure::{Enqueued, Event, Invalid, NewEvent};

use super::Context;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::time;

#[derive(Debug, Args)]
pub(crate) struct Enqueue {
    /// The topic of the event, such as order.paid
    #[arg(required_unless_present = "lines")]
    topic: Option<String>,

    /// The payload; `-` or nothing reads it from the input
    #[arg(
        value_name = "JSON",
        allow_hyphen_values = true,
        conflicts_with = "lines"
    )]
    payload: Option<String>,

    /// Put the event into this queue
    #[arg(
        long,
        value_name = "QUEUE",
        default_value = QueueName::DEFAULT,
        value_parser = QueueName::new
    )]
    queue: QueueName,

    /// Ordering key: events with the same key are worked one at a time, in order
    #[arg(long, allow_hyphen_values = true)]
    key: Option<String>,

    /// Keep the order even among overlapping transactions: wait for other strict writers of this
    /// key
    #[arg(long)]
    strict: bool,

    /// Delay the event by this long: 30s, 5m, 1h 30m
    #[arg(
        long,
        value_name = "DURATION",
        value_parser = time::duration,
        allow_hyphen_values = true
    )]
    delay: Option<Duration>,

    /// The priority within the queue: 0 to 7, highest first
    #[arg(
        long,
        value_name = "LEVEL",
        default_value = "0",
        value_parser = priority,
        allow_hyphen_values = true
    )]
    priority: Priority,

    /// Write the event only if no event with this dedupe key exists
    #[arg(long, value_name = "KEY", conflicts_with = "lines")]
    dedupe: Option<String>,

    /// Add this header; repeatable
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = header)]
    headers: Vec<(String, String)>,

    /// Read events from the input, one per line
    #[arg(long)]
    lines: bool,

    /// Start at this line of the input
    #[arg(
        long,
        value_name = "N",
        requires = "lines",
        conflicts_with = "payload",
        default_value = "1",
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    from_line: u64,

    /// Skip invalid lines and report them; exits with 1 if there were any
    // clap does not enforce `requires` beside a payload, because a payload excludes `--lines`.
    #[arg(long, requires = "lines", conflicts_with = "payload")]
    skip_bad: bool,
}

/// The answer in JSON.
#[derive(Serialize)]
struct EnqueuedView {
    id: i64,
    /// Null when an event with the same dedupe key existed.
    event_id: Option<String>,
    /// This call wrote the event.
    fresh: bool,
}

pub(super) async fn run(cx: &Context, args: Enqueue) -> Result<Exit, Stop> {
    if args.lines {
        return lines::run(cx, &args).await;
    }
    // The event is read and checked before a database is opened or created.
    let event = event(cx, &args)?;
    let topic = event.topic().to_owned();
    let tenure = cx.database.open(IfMissing::Make).await?;
    let answer = tenure.enqueue_now(event).await?;
    let event_id = match answer {
        Enqueued::Fresh { event_id, .. } => Some(event_id.to_string()),
        Enqueued::Existed { .. } => None,
    };
    let object = EnqueuedView {
        id: answer.id().number(),
        event_id,
        fresh: answer.is_fresh(),
    };
    cx.output.either(&object, || {
        let id = answer.id();
        if answer.is_fresh() {
            format!("enqueued {id}")
        } else {
            format!("exists already as {id}: nothing was written")
        }
    })?;
    if topic.contains(char::is_whitespace) {
        cx.output.note(format_args!(
            "the topic {topic:?} has a blank: is it one word too many? words of a topic are \
             separated by dots"
        ));
    }
    Ok(Exit::Done)
}

fn event(cx: &Context, args: &Enqueue) -> Result<Event, Stop> {
    let topic = args.topic.as_deref().unwrap_or_default();
    // An invalid topic or key is reported before reading the input.
    let checked = args.ordered(NewEvent::from_json(topic, "null"), None, None)?;
    checked.build()?;
    let payload = match args.payload.as_deref() {
        None | Some("-") => read_payload(cx)?,
        Some(json) => json.to_owned(),
    };
    let event = args.apply_options(NewEvent::from_json(topic, payload));
    let mut event = args.ordered(event, None, None)?;
    if let Some(key) = &args.dedupe {
        event = event.dedupe(key);
    }
    Ok(event.build()?)
}

impl Enqueue {
    /// The event with the options that apply to every event.
    fn apply_options(&self, event: NewEvent) -> NewEvent {
        let event = event.queue(self.queue.as_str());
        let mut event = event.priority(self.priority.level());
        if let Some(delay) = self.delay {
            event = event.delay(delay);
        }
        for (name, value) in &self.headers {
            event = event.header(name, value);
        }
        event
    }

    /// The event with a key: its own, or that of the options.
    fn ordered(
        &self,
        event: NewEvent,
        key: Option<&str>,
        strict: Option<bool>,
    ) -> Result<NewEvent, Invalid> {
        let is_strict = strict.unwrap_or(self.strict);
        match (key.or(self.key.as_deref()), is_strict) {
            (Some(key), true) => Ok(event.key(key).strict()),
            (Some(key), false) => Ok(event.key(key)),
            (None, false) => Ok(event),
            (None, true) => Err(Invalid::new(
                "strict",
                "set without a key",
                "a key, too: --key",
            )),
        }
    }
}

fn unreadable(error: &io::Error) -> Problem {
    Problem::new(Exit::Failed, "cannot read the input").cause(error)
}

/// Reads the payload from the input, no further than its maximum size.
pub(super) fn read_payload(cx: &Context) -> Result<String, Stop> {
    let input = io::stdin();
    if input.is_terminal() {
        cx.output.note("type the payload, then Ctrl-D");
    }
    let most = u64::try_from(PAYLOAD_BYTES_MAX).unwrap_or(u64::MAX);
    let mut bytes = Vec::new();
    // Room for a line break, which editors and `echo` add.
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
            "0 to 7, highest first",
        )
    })?;
    Priority::new(level)
}

fn header(text: &str) -> Result<(String, String), Invalid> {
    text.split_once('=')
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .ok_or_else(|| Invalid::new("the header", format!("{text:?}"), "NAME=VALUE"))
}

//! Views of events: the JSON for scripts, and the row of a table. Field names are stable; no field
//! is a token.

use std::collections::BTreeMap;

use comfy_table::Cell;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use tenure::lease::{Content, PastHold, Record};
use tenure::store::{Encoding, Timestamp};
use tenure::{Event, ItemId, State};

use crate::output::{plain, state};
use crate::time::{brief, relative};

/// An id in JSON: a number, or `"d17"` for a delivery.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IdView(pub(crate) ItemId);

impl Serialize for IdView {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if self.0.is_delivery() {
            return serializer.collect_str(&self.0);
        }
        serializer.serialize_i64(self.0.number())
    }
}

/// An event in JSON. A field that does not apply is null.
#[derive(Serialize)]
pub(crate) struct EventView<'a> {
    id: i64,
    event_id: Option<String>,
    state: &'static str,
    topic: Option<&'a str>,
    queue: Option<&'a str>,
    key: Option<&'a str>,
    priority: Option<u8>,
    attempts: u32,
    failures: u32,
    crashes: u32,
    generation: u32,
    created_at: String,
    available_at: Option<String>,
    holder: Option<&'a str>,
    fence: Option<i64>,
    claimed_at: Option<String>,
    until: Option<String>,
    done_at: Option<String>,
    dead_at: Option<String>,
    dead_reason: Option<&'a str>,
    last_error: Option<&'a str>,
    headers: Option<&'a BTreeMap<String, String>>,
    encoding: Option<&'static str>,
    payload: Option<Box<RawValue>>,
    #[serde(flatten)]
    surroundings: Option<Surroundings<'a>>,
}

/// The history of an event and its place behind others, in JSON.
#[derive(Serialize)]
struct Surroundings<'a> {
    timeline: Vec<HoldView<'a>>,
    /// The event that it waits behind; null if there is none.
    behind: Option<i64>,
}

/// A past hold in JSON.
#[derive(Serialize)]
struct HoldView<'a> {
    holder: &'a str,
    fence: i64,
    outcome: &'static str,
    claimed_at: String,
    settled_at: String,
}

impl<'a> EventView<'a> {
    pub(crate) fn new(record: &'a Record) -> Self {
        let event = record.content.event();
        let hold = record.hold.as_ref();
        Self {
            id: record.id.number(),
            event_id: event.and_then(Event::event_id).map(|id| id.to_string()),
            state: record.state.as_str(),
            topic: event.map(Event::topic),
            queue: event.map(|event| event.queue().as_str()),
            key: event.and_then(Event::key),
            priority: event.map(|event| event.priority().level()),
            attempts: tries(record),
            failures: record.counters.failures,
            crashes: record.counters.crashes,
            generation: record.counters.generation,
            created_at: record.created_at.to_string(),
            available_at: text(record.available_at),
            holder: hold.map(|hold| hold.holder.as_str()),
            fence: hold.map(|hold| hold.fence.number()),
            claimed_at: text(hold.map(|hold| hold.claimed_at)),
            until: text(hold.map(|hold| hold.until)),
            done_at: text(record.done_at),
            dead_at: text(record.dead_at),
            dead_reason: record.dead_reason.as_deref(),
            last_error: record.last_error.as_deref(),
            headers: event.map(Event::headers),
            encoding: event.and_then(Event::encoding).map(Encoding::as_str),
            payload: raw(payload(&record.content)),
            surroundings: None,
        }
    }

    /// Adds the past holds and the head of its key.
    pub(crate) fn whole(mut self, holds: &'a [PastHold], first: Option<&Record>) -> Self {
        self.surroundings = Some(Surroundings {
            timeline: holds.iter().map(HoldView::new).collect(),
            behind: first.map(|record| record.id.number()),
        });
        self
    }
}

impl<'a> HoldView<'a> {
    fn new(hold: &'a PastHold) -> Self {
        Self {
            holder: &hold.holder,
            fence: hold.fence.number(),
            outcome: hold.outcome.as_str(),
            claimed_at: hold.claimed_at.to_string(),
            settled_at: hold.settled_at.to_string(),
        }
    }
}

/// The heading and the rows of a table of events, with a column of keys if any event has one.
pub(crate) fn table(records: &[Record], now: Timestamp) -> (Vec<&'static str>, Vec<Vec<Cell>>) {
    let has_keys = records.iter().any(|record| key(record).is_some());
    let mut heading = vec!["ID", "STATE", "TOPIC", "QUEUE", "AGE", " ATTEMPTS", "NOTE"];
    let mut rows: Vec<_> = records.iter().map(|record| row(record, now)).collect();
    if has_keys {
        heading.insert(KEY_COLUMN, "KEY");
        for (row, record) in rows.iter_mut().zip(records) {
            row.insert(
                KEY_COLUMN,
                Cell::new(plain(key(record).unwrap_or_default())),
            );
        }
    }
    (heading, rows)
}

/// Index of the column of keys: after the queue.
const KEY_COLUMN: usize = 4;

fn row(record: &Record, now: Timestamp) -> Vec<Cell> {
    let event = record.content.event();
    vec![
        Cell::new(record.id),
        state(record.state),
        Cell::new(event.map_or("", |event| event.topic())),
        Cell::new(event.map_or("", |event| event.queue().as_str())),
        Cell::new(brief(now.since(record.created_at))),
        Cell::new(tries(record)),
        Cell::new(note(record, now)),
    ]
}

fn key(record: &Record) -> Option<&str> {
    record.content.event().and_then(Event::key)
}

/// Attempts since the last replay, including the current one and a successful one. A row of an
/// adopted table has the number in its own column.
pub(crate) fn tries(record: &Record) -> u32 {
    let is_row = matches!(record.content, Content::Row(_));
    let last = !is_row && matches!(record.state, State::Claimed | State::Done);
    record.counters.attempts.saturating_add(u32::from(last))
}

/// A short remark that fits the state of an event.
pub(crate) fn note(record: &Record, now: Timestamp) -> String {
    let error = record.last_error.as_deref().map(plain);
    match record.state {
        State::Pending => waits(record.available_at, error, now),
        State::Claimed => record.hold.as_ref().map_or_else(String::new, |hold| {
            let word = if hold.until > now { "lapses" } else { "lapsed" };
            format!("{}; {word} {}", hold.holder, relative(hold.until, now))
        }),
        State::Done => record
            .done_at
            .map_or_else(String::new, |moment| relative(moment, now)),
        State::Dead => record
            .dead_reason
            .as_deref()
            .map(plain)
            .into_iter()
            .chain(error)
            .collect::<Vec<_>>()
            .join(": "),
    }
}

/// The payload of an item, as JSON text.
pub(crate) fn payload(content: &Content) -> &str {
    match content {
        Content::Event(event) => event.payload(),
        Content::Delivery(delivery) => delivery.event.payload(),
        Content::Row(row) => row,
    }
}

/// A remark for a pending item: when it is due, and its last error.
pub(crate) fn waits(due: Option<Timestamp>, error: Option<String>, now: Timestamp) -> String {
    let due = due.filter(|moment| *moment > now);
    let due = due.map(|moment| format!("due {}", relative(moment, now)));
    due.into_iter().chain(error).collect::<Vec<_>>().join("; ")
}

/// Removes line breaks from JSON. They occur only as whitespace outside strings, so the meaning
/// stays; parsing and serializing would change numbers and repeated keys.
pub(crate) fn raw(json: &str) -> Option<Box<RawValue>> {
    RawValue::from_string(json.replace(['\n', '\r'], " ")).ok()
}

/// A timestamp in JSON.
pub(crate) fn text(moment: Option<Timestamp>) -> Option<String> {
    moment.map(|moment| moment.to_string())
}

/// A timestamp for people, with its distance from now.
pub(crate) fn moment(moment: Option<Timestamp>, now: Timestamp) -> Option<String> {
    moment.map(|moment| format!("{moment} ({})", relative(moment, now)))
}

/// A named fact as a row of a table; empty without a value.
pub(crate) fn fact(name: &str, value: Option<String>) -> Vec<Cell> {
    value.map_or_else(Vec::new, |value| {
        vec![Cell::new(name), Cell::new(plain(&value))]
    })
}

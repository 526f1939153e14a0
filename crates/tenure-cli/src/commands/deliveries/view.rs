//! Views of deliveries: the JSON for scripts, the row of a table, all facts.

use std::collections::BTreeMap;

use comfy_table::Cell;
use serde::Serialize;
use tenure::lease::Record;
use tenure::store::Timestamp;
use tenure::webhook::{Attempt, Delivery, Endpoint, EndpointState};
use tenure::{Event, ItemId, State, StoreError, Tenure};

use super::attempts::{AttemptView, print};
use crate::commands::{Context, no_such_item};
use crate::event_view::{IdView, fact, moment, note, text, tries};
use crate::exit::Exit;
use crate::output::{plain, state};
use crate::problem::Stop;
use crate::time::brief;

/// The endpoints by number.
#[derive(Debug)]
pub(crate) struct EndpointNames(BTreeMap<u32, Endpoint>);

impl EndpointNames {
    pub(crate) async fn load(tenure: &Tenure) -> Result<Self, StoreError> {
        Ok(Self(tenure.endpoints_by_number().await?))
    }

    /// The id of a delivery's endpoint, or `?` if the endpoint was added after loading.
    fn of(&self, record: &Record) -> &str {
        let number = record.content.delivery().map(|delivery| delivery.endpoint);
        number.map_or("?", |number| self.name(number))
    }

    /// The reason why a pending delivery waits for its endpoint; `None` if it does not.
    fn holds_up(&self, record: &Record, now: Timestamp) -> Option<&'static str> {
        let number = record.content.delivery()?.endpoint;
        let endpoint = self
            .0
            .get(&number)
            .filter(|_| record.state == State::Pending)?;
        match endpoint.state {
            EndpointState::Enabled if endpoint.health.is_paused(now) => {
                Some("its endpoint is backing off")
            }
            EndpointState::Enabled => None,
            EndpointState::Disabled { .. } => Some("its endpoint is disabled"),
            EndpointState::Removed { .. } => Some("its endpoint was removed"),
        }
    }

    /// The id of the endpoint with this number.
    pub(crate) fn name(&self, number: u32) -> &str {
        let endpoint = self.0.get(&number);
        endpoint.map_or("?", |endpoint| endpoint.id.as_str())
    }
}

/// A delivery in JSON. A field that does not apply is null.
#[derive(Serialize)]
pub(super) struct DeliveryView<'a> {
    id: IdView,
    /// The event's id.
    event: Option<IdView>,
    event_id: Option<String>,
    endpoint: &'a str,
    state: &'static str,
    topic: Option<&'a str>,
    key: Option<&'a str>,
    attempts: u32,
    failures: u32,
    crashes: u32,
    generation: u32,
    created_at: String,
    next_attempt_at: Option<String>,
    holder: Option<&'a str>,
    fence: Option<i64>,
    claimed_at: Option<String>,
    until: Option<String>,
    delivered_at: Option<String>,
    dead_at: Option<String>,
    dead_reason: Option<&'a str>,
    last_error: Option<&'a str>,
}

/// A delivery with its attempts, in JSON.
#[derive(Serialize)]
struct DeliveryDetailView<'a> {
    #[serde(flatten)]
    delivery: DeliveryView<'a>,
    timeline: Vec<AttemptView<'a>>,
}

impl<'a> DeliveryView<'a> {
    pub(super) fn new(record: &'a Record, names: &'a EndpointNames) -> Self {
        let event = record.content.event();
        let hold = record.hold.as_ref();
        let counters = record.counters;
        Self {
            id: IdView(record.id),
            event: source(record).map(IdView),
            event_id: event.and_then(Event::event_id).map(|id| id.to_string()),
            endpoint: names.of(record),
            state: record.state.as_str(),
            topic: event.map(Event::topic),
            key: event.and_then(Event::key),
            attempts: tries(record),
            failures: counters.failures,
            crashes: counters.crashes,
            generation: counters.generation,
            created_at: record.created_at.to_string(),
            next_attempt_at: text(
                record
                    .available_at
                    .filter(|_| record.state == State::Pending),
            ),
            holder: hold.map(|hold| hold.holder.as_str()),
            fence: hold.map(|hold| hold.fence.number()),
            claimed_at: text(hold.map(|hold| hold.claimed_at)),
            until: text(hold.map(|hold| hold.until)),
            delivered_at: text(record.done_at),
            dead_at: text(record.dead_at),
            dead_reason: record.dead_reason.as_deref(),
            last_error: record.last_error.as_deref(),
        }
    }
}

fn source(record: &Record) -> Option<ItemId> {
    record
        .content
        .delivery()
        .map(|Delivery { source, .. }| *source)
}

/// The heading and the rows of a table of deliveries.
pub(super) fn table(
    records: &[Record],
    names: &EndpointNames,
    now: Timestamp,
) -> (Vec<&'static str>, Vec<Vec<Cell>>) {
    let heading = vec![
        "ID",
        "STATE",
        "ENDPOINT",
        "TOPIC",
        " EVENT",
        "AGE",
        " ATTEMPTS",
        "NOTE",
    ];
    let rows = records.iter().map(|record| {
        let held_up = names.holds_up(record, now).map(str::to_owned);
        let note = Some(note(record, now)).filter(|note| !note.is_empty());
        let notes: Vec<_> = held_up.into_iter().chain(note).collect();
        vec![
            Cell::new(record.id),
            state(record.state),
            Cell::new(names.of(record)),
            Cell::new(record.content.event().map_or("", Event::topic)),
            Cell::new(source(record).map_or_else(String::new, |id| id.to_string())),
            Cell::new(brief(now.since(record.created_at))),
            Cell::new(tries(record)),
            Cell::new(notes.join("; ")),
        ]
    });
    let rows = rows.collect();
    (heading, rows)
}

/// Prints all facts of a delivery and its attempts.
pub(in crate::commands) async fn show(
    cx: &Context,
    tenure: &Tenure,
    id: ItemId,
) -> Result<Exit, Stop> {
    let Some(record) = tenure.find(&[id]).await?.pop() else {
        return Err(no_such_item(id).into());
    };
    let names = EndpointNames::load(tenure).await?;
    let attempts: Vec<Attempt> = tenure.attempts(id).await?;
    if cx.output.is_json() {
        let view = DeliveryDetailView {
            delivery: DeliveryView::new(&record, &names),
            timeline: attempts.iter().map(AttemptView::new).collect(),
        };
        cx.output.json(&view)?;
        return Ok(Exit::Done);
    }
    let rows = facts(&record, names.of(&record), cx.output.now);
    cx.output.table(&["DELIVERY", ""], rows)?;
    print(cx, &attempts)?;
    Ok(Exit::Done)
}

/// The facts that have a value, by name.
fn facts(record: &Record, endpoint: &str, now: Timestamp) -> Vec<Vec<Cell>> {
    let event = record.content.event();
    let hold = record.hold.as_ref();
    let counters = record.counters;
    let mut rows = vec![
        fact("id", Some(record.id.to_string())),
        vec![Cell::new("state"), state(record.state)],
        fact("endpoint", Some(endpoint.to_owned())),
        fact("event", source(record).map(|id| id.to_string())),
        fact(
            "event id",
            event.and_then(Event::event_id).map(|id| id.to_string()),
        ),
        fact("topic", event.map(|event| event.topic().to_owned())),
        fact("key", event.and_then(Event::key).map(str::to_owned)),
        fact("created", moment(Some(record.created_at), now)),
        fact(
            "next attempt",
            moment(
                record
                    .available_at
                    .filter(|_| record.state == State::Pending),
                now,
            ),
        ),
        fact("attempts", Some(tries(record).to_string())),
        fact("failures", Some(counters.failures.to_string())),
        fact("crashes", Some(counters.crashes.to_string())),
        fact("generation", Some(counters.generation.to_string())),
        fact("holder", hold.map(|hold| hold.holder.clone())),
        fact("fence", hold.map(|hold| hold.fence.to_string())),
        fact("until", moment(hold.map(|hold| hold.until), now)),
        fact("delivered", moment(record.done_at, now)),
        fact("dead", moment(record.dead_at, now)),
        fact("reason", record.dead_reason.clone()),
        fact("last error", record.last_error.as_deref().map(plain)),
    ];
    rows.retain(|row| !row.is_empty());
    rows
}

//! `tenure show`: the facts, payload and timeline of one event.

use comfy_table::Cell;
use tenure::lease::{PastHold, Record};
use tenure::operate::KeyRecord;
use tenure::store::Timestamp;
use tenure::{Event, Tenure};

use super::{Context, deliveries, no_such_item, rows};
use crate::args::Show;
use crate::database::IfMissing;
use crate::event_view::{EventView, fact, moment, note, payload, tries};
use crate::exit::Exit;
use crate::output::state;
use crate::problem::Stop;
use crate::time::{brief, relative};

pub(super) async fn run(cx: &Context, args: &Show) -> Result<Exit, Stop> {
    if let Some(table) = &args.of.table {
        return rows::show(cx, table, args.id).await;
    }
    let tenure = cx.database.open(IfMissing::Report).await?;
    if args.id.is_delivery() {
        return deliveries::show(cx, &tenure, args.id).await;
    }
    let mut records = tenure.find(&[args.id]).await?;
    let Some(record) = records.pop() else {
        return Err(no_such_item(args.id).into());
    };
    let holds = tenure.timeline(args.id).await?;
    let key = key_of(&tenure, &record).await?;
    let first = key.as_ref().and_then(|key| before(&record, key));
    if cx.output.is_json() {
        cx.output
            .json(&EventView::new(&record).whole(&holds, first))?;
        return Ok(Exit::Done);
    }
    let mut rows = facts(&record, cx.output.now);
    rows.extend(first.map(|first| behind(first, cx.output.now)));
    cx.output.table(&["EVENT", ""], rows)?;
    cx.output
        .line(format_args!("\n{}", payload(&record.content)))?;
    if !holds.is_empty() {
        cx.output.line("")?;
        let heading = ["ENDED", "OUTCOME", "HOLDER", " FENCE", "HELD FOR"];
        let rows = holds
            .iter()
            .map(|hold| timeline_row(hold, cx.output.now))
            .collect();
        cx.output.table(&heading, rows)?;
    }
    Ok(Exit::Done)
}

/// The key of an event that is not settled.
async fn key_of(tenure: &Tenure, record: &Record) -> Result<Option<KeyRecord>, Stop> {
    let key = record.content.event().and_then(Event::key);
    match key {
        Some(key) if !record.state.is_terminal() => Ok(tenure.key(key).await?),
        _ => Ok(None),
    }
}

/// The head of the key, if it is another event.
fn before<'a>(record: &Record, key: &'a KeyRecord) -> Option<&'a Record> {
    let head = key.head.as_ref();
    head.filter(|head| head.id != record.id)
}

fn behind(first: &Record, now: Timestamp) -> Vec<Cell> {
    let note = match note(first, now) {
        note if note.is_empty() => String::new(),
        note => format!(": {note}"),
    };
    let text = format!("event {} ({}{note})", first.id, first.state);
    vec![Cell::new("behind"), Cell::new(text)]
}

/// The facts that have a value, by name.
pub(super) fn facts(record: &Record, now: Timestamp) -> Vec<Vec<Cell>> {
    let mut rows = vec![
        fact("id", Some(record.id.to_string())),
        vec![Cell::new("state"), state(record.state)],
    ];
    rows.extend(event_facts(record));
    let counters = record.counters;
    let moment = |at: Option<Timestamp>| moment(at, now);
    let hold = record.hold.as_ref();
    rows.extend([
        fact("created", moment(Some(record.created_at))),
        fact("available", moment(record.available_at)),
        fact("attempts", Some(tries(record).to_string())),
        fact("failures", Some(counters.failures.to_string())),
        fact("crashes", Some(counters.crashes.to_string())),
        fact("generation", Some(counters.generation.to_string())),
        fact("holder", hold.map(|hold| hold.holder.clone())),
        fact("fence", hold.map(|hold| hold.fence.to_string())),
        fact("claimed", moment(hold.map(|hold| hold.claimed_at))),
        fact("until", moment(hold.map(|hold| hold.until))),
        fact("done", moment(record.done_at)),
        fact("dead", moment(record.dead_at)),
        fact("reason", record.dead_reason.clone()),
        fact("last error", record.last_error.clone()),
    ]);
    rows.retain(|row| !row.is_empty());
    rows
}

fn event_facts(record: &Record) -> Vec<Vec<Cell>> {
    let Some(event) = record.content.event() else {
        return Vec::new();
    };
    let mut rows = vec![
        fact("event id", event.event_id().map(|id| id.to_string())),
        fact("topic", Some(event.topic().to_owned())),
        fact("queue", Some(event.queue().to_string())),
        fact("key", event.key().map(str::to_owned)),
        fact("priority", Some(event.priority().level().to_string())),
    ];
    for (name, value) in event.headers() {
        rows.push(fact("header", Some(format!("{name}: {value}"))));
    }
    rows
}

fn timeline_row(hold: &PastHold, now: Timestamp) -> Vec<Cell> {
    vec![
        Cell::new(format!(
            "{} ({})",
            hold.settled_at,
            relative(hold.settled_at, now)
        )),
        Cell::new(hold.outcome.as_str()),
        Cell::new(&hold.holder),
        Cell::new(hold.fence),
        Cell::new(brief(hold.settled_at.since(hold.claimed_at))),
    ]
}

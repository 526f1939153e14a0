//! `tenure show`: all that is known of one event.

use comfy_table::Cell;
use tenure::{DomainRecord, EndedHold, Event, Record, Tenure, Timestamp};

use super::{Context, deliveries, no_such_item, rows};
use crate::args::Show;
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::state;
use crate::problem::Stop;
use crate::record::{Shown, fact, moment, note, payload};
use crate::time::{brief, relative};

pub(super) async fn run(cx: &Context, args: &Show) -> Result<Exit, Stop> {
    if let Some(table) = &args.of.table {
        return rows::show(cx, table, args.id).await;
    }
    let tenure = cx.database.open(Absent::Report).await?;
    if args.id.is_delivery() {
        return deliveries::show(cx, &tenure, args.id).await;
    }
    let mut found = tenure.find(&[args.id]).await?;
    let Some(record) = found.pop() else {
        return Err(no_such_item(args.id).into());
    };
    let holds = tenure.timeline(args.id).await?;
    let domain = domain_of(&tenure, &record).await?;
    let first = domain.as_ref().and_then(|domain| before(&record, domain));
    if cx.output.is_json() {
        cx.output.json(&Shown::new(&record).whole(&holds, first))?;
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
            .map(|hold| ended(hold, cx.output.now))
            .collect();
        cx.output.table(&heading, rows)?;
    }
    Ok(Exit::Done)
}

/// Where the key of an event stands that is not settled.
async fn domain_of(tenure: &Tenure, record: &Record) -> Result<Option<DomainRecord>, Stop> {
    let key = record.content.event().and_then(Event::ordering_key);
    match key {
        Some(key) if !record.state.is_terminal() => Ok(tenure.domain(key).await?),
        _ => Ok(None),
    }
}

/// The event of the same key that comes first.
fn before<'a>(record: &Record, domain: &'a DomainRecord) -> Option<&'a Record> {
    let head = domain.head.as_ref();
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

/// The facts that have something to say, by name.
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
        fact("attempts", Some(counters.attempts.to_string())),
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
        fact("queue", Some(event.queue_name().to_string())),
        fact("key", event.ordering_key().map(str::to_owned)),
        fact("priority", Some(event.urgency().level().to_string())),
    ];
    for (name, value) in event.headers() {
        rows.push(fact("header", Some(format!("{name}: {value}"))));
    }
    rows
}

/// A line of the timeline.
fn ended(hold: &EndedHold, now: Timestamp) -> Vec<Cell> {
    vec![
        Cell::new(format!(
            "{} ({})",
            hold.settled_at,
            relative(hold.settled_at, now)
        )),
        Cell::new(hold.word.as_str()),
        Cell::new(&hold.holder),
        Cell::new(hold.fence),
        Cell::new(brief(hold.settled_at.since(hold.claimed_at))),
    ]
}

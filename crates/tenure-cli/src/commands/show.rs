//! `tenure show`: all that is known of one event.

use comfy_table::Cell;
use tenure::{EndedHold, Record, Timestamp};

use super::{Context, no_such_event};
use crate::args::Show;
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::{plain, state};
use crate::problem::Stop;
use crate::record::{Shown, payload};
use crate::time::{brief, relative};

pub(super) async fn run(cx: &Context, args: &Show) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let mut found = tenure.find(&[args.id]).await?;
    let Some(record) = found.pop() else {
        return Err(no_such_event(args.id).into());
    };
    let holds = tenure.timeline(args.id).await?;
    if cx.output.is_json() {
        cx.output.json(&Shown::new(&record).timeline(&holds))?;
        return Ok(Exit::Done);
    }
    cx.output
        .table(&["EVENT", ""], facts(&record, cx.output.now))?;
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

/// The facts that have something to say, by name.
fn facts(record: &Record, now: Timestamp) -> Vec<Vec<Cell>> {
    let mut rows = vec![
        fact("id", Some(record.id.to_string())),
        vec![Cell::new("state"), state(record.state)],
    ];
    rows.extend(event_facts(record));
    let counters = record.counters;
    let moment = |moment: Option<Timestamp>| {
        moment.map(|moment| format!("{moment} ({})", relative(moment, now)))
    };
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
        fact("priority", Some(event.urgency().level().to_string())),
    ];
    for (name, value) in event.headers() {
        rows.push(fact("header", Some(format!("{name}: {value}"))));
    }
    rows
}

/// A fact and its name; empty when there is nothing to say.
fn fact(name: &str, value: Option<String>) -> Vec<Cell> {
    value.map_or_else(Vec::new, |value| {
        vec![Cell::new(name), Cell::new(plain(&value))]
    })
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

//! `tenure stats`: how many events stand where.

use std::time::Duration;

use comfy_table::Cell;
use serde::Serialize;
use tenure::{Counts, QueueName, Tenure};

use super::{Context, paused_cell};
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::events;
use crate::problem::Stop;
use crate::time::brief;

/// The counts, in JSON.
#[derive(Serialize)]
struct Counted<'a> {
    pending: u64,
    claimed: u64,
    /// Of those claimed, the ones whose term is over.
    lapsed: u64,
    done: u64,
    dead: u64,
    queues: Vec<CountedQueue<'a>>,
}

/// What waits in a queue, in JSON.
#[derive(Serialize)]
struct CountedQueue<'a> {
    queue: &'a str,
    due: u64,
    delayed: u64,
    oldest_due_ms: Option<u64>,
    /// Claims pass it by.
    paused: bool,
}

pub(super) async fn run(cx: &Context) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let counts = tenure.count().await?;
    let paused = paused(&tenure).await?;
    if cx.output.is_json() {
        cx.output.json(&counted(&counts, &paused))?;
        return Ok(Exit::Done);
    }
    let total = |number: u64| Cell::new(number);
    cx.output.table(
        &[" PENDING", " CLAIMED", " LAPSED", " DONE", " DEAD"],
        vec![vec![
            total(counts.pending()),
            total(counts.claimed),
            total(counts.lapsed),
            total(counts.done),
            total(counts.dead),
        ]],
    )?;
    cx.output.line("")?;
    let rows = counts.queues.iter().map(|(queue, waits)| {
        vec![
            Cell::new(queue),
            Cell::new(waits.due),
            Cell::new(waits.delayed),
            Cell::new(waits.oldest_due.map_or_else(String::new, brief)),
            paused_cell(paused.contains(queue)),
        ]
    });
    cx.output.table(
        &["QUEUE", " DUE", " DELAYED", "OLDEST DUE", ""],
        rows.collect(),
    )?;
    if counts.lapsed > 0 {
        cx.output.note(format_args!(
            "{} held past the term: `tenure reap` ends that, as does a claim that finds nothing \
             else",
            events(usize::try_from(counts.lapsed).unwrap_or(usize::MAX))
        ));
    }
    Ok(Exit::Done)
}

/// The queues that claims pass by.
async fn paused(tenure: &Tenure) -> Result<Vec<QueueName>, Stop> {
    let queues = tenure.queues().await?.into_iter();
    Ok(queues
        .filter(|queue| queue.paused)
        .map(|queue| queue.name)
        .collect())
}

fn counted<'a>(counts: &'a Counts, paused: &[QueueName]) -> Counted<'a> {
    let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    Counted {
        pending: counts.pending(),
        claimed: counts.claimed,
        lapsed: counts.lapsed,
        done: counts.done,
        dead: counts.dead,
        queues: counts
            .queues
            .iter()
            .map(|(queue, waits)| CountedQueue {
                queue: queue.as_str(),
                due: waits.due,
                delayed: waits.delayed,
                oldest_due_ms: waits.oldest_due.map(millis),
                paused: paused.contains(queue),
            })
            .collect(),
    }
}

//! `tenure stats`: how many events stand where.

use comfy_table::Cell;
use tenure::QueueName;
use tenure::server::wire::Stats;

use super::{Context, paused_cell};
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::events;
use crate::problem::Stop;
use crate::time::brief;

pub(super) async fn run(cx: &Context) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let counts = tenure.count().await?;
    let queues = tenure.queues().await?;
    if cx.output.is_json() {
        cx.output.json(&Stats::new(&counts, &queues))?;
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
    let is_paused = |name: &QueueName| {
        queues
            .iter()
            .any(|queue| queue.paused && queue.name == *name)
    };
    let rows = counts.queues.iter().map(|(queue, waits)| {
        vec![
            Cell::new(queue),
            Cell::new(waits.due),
            Cell::new(waits.delayed),
            Cell::new(waits.behind),
            Cell::new(waits.oldest_due.map_or_else(String::new, brief)),
            paused_cell(is_paused(queue)),
        ]
    });
    cx.output.table(
        &["QUEUE", " DUE", " DELAYED", " BEHIND", "OLDEST DUE", ""],
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

//! `tenure stats`: how many events stand where, and what is owed to endpoints.

use std::collections::BTreeMap;

use comfy_table::Cell;
use tenure::server::wire::{JobStats, Stats};
use tenure::webhook::Endpoint;
use tenure::{Counts, DeliveryCounts, QueueCounts, QueueName};

use super::endpoints::standing;
use super::{Context, OfTable, paused_cell, rows};
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::{events, plain};
use crate::problem::Stop;
use crate::time::brief;

/// So many endpoints are shown, those first for which most waits.
const ENDPOINTS_MAX: usize = 10;

pub(super) async fn run(cx: &Context, of: &OfTable) -> Result<Exit, Stop> {
    if let Some(table) = &of.table {
        return rows::stats(cx, table).await;
    }
    let tenure = cx.database.open(Absent::Report).await?;
    let counts = tenure.count().await?;
    let queues = tenure.queues().await?;
    let endpoints = tenure.endpoints_by_number().await?;
    let jobs = JobStats::new(&tenure.jobs().count().await?);
    if cx.output.is_json() {
        let stats = Stats::new(&counts, &queues, endpoints.values());
        cx.output.json(&stats.jobs(jobs))?;
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
    if !endpoints.is_empty() {
        deliveries(cx, &counts, &endpoints)?;
    }
    if jobs != JobStats::default() {
        job_table(cx, jobs)?;
    }
    if counts.lapsed > 0 {
        cx.output.note(format_args!(
            "{} held past the term: `tenure reap` ends that, as does a claim that finds nothing \
             else",
            events(usize::try_from(counts.lapsed).unwrap_or(usize::MAX))
        ));
    }
    Ok(Exit::Done)
}

fn job_table(cx: &Context, jobs: JobStats) -> Result<(), Stop> {
    cx.output.line("")?;
    let heading = [
        " JOBS DUE",
        " DELAYED",
        " RUNNING",
        " LAPSED",
        " COMPLETED",
        " FAILED",
    ];
    let all = [
        jobs.due,
        jobs.delayed,
        jobs.running,
        jobs.lapsed,
        jobs.completed,
        jobs.failed,
    ];
    cx.output
        .table(&heading, vec![all.into_iter().map(Cell::new).collect()])
}

fn waits(counts: &QueueCounts) -> u64 {
    counts.due + counts.delayed + counts.behind
}

fn pending(counts: &DeliveryCounts) -> u64 {
    counts.endpoints.iter().map(|(_, line)| waits(line)).sum()
}

/// The lines for which something waits, the longest first.
fn lines<'a>(
    counts: &'a DeliveryCounts,
    endpoints: &'a BTreeMap<u32, Endpoint>,
) -> Vec<(&'a Endpoint, &'a QueueCounts)> {
    let lines = counts.endpoints.iter();
    let mut lines: Vec<_> = lines
        .filter_map(|(number, line)| Some((endpoints.get(number)?, line)))
        .collect();
    lines.sort_by_key(|(_, line)| std::cmp::Reverse(waits(line)));
    lines
}

/// What is owed to endpoints: all of it, and the longest lines.
fn deliveries(
    cx: &Context,
    counts: &Counts,
    endpoints: &BTreeMap<u32, Endpoint>,
) -> Result<(), Stop> {
    let counts = &counts.deliveries;
    cx.output.line("")?;
    let all = [
        pending(counts),
        counts.claimed,
        counts.lapsed,
        counts.delivered,
        counts.dead,
    ];
    let heading = [" OWED", " CLAIMED", " LAPSED", " DELIVERED", " DEAD"];
    cx.output
        .table(&heading, vec![all.into_iter().map(Cell::new).collect()])?;
    let lines = lines(counts, endpoints);
    if lines.is_empty() {
        return Ok(());
    }
    cx.output.line("")?;
    let heading = [
        "ENDPOINT",
        "STATE",
        " DUE",
        " DELAYED",
        " BEHIND",
        "OLDEST DUE",
        "",
    ];
    let rows = lines.iter().take(ENDPOINTS_MAX).map(|(endpoint, line)| {
        let (state, note) = standing(endpoint, cx.output.now);
        vec![
            Cell::new(&endpoint.id),
            state,
            Cell::new(line.due),
            Cell::new(line.delayed),
            Cell::new(line.behind),
            Cell::new(line.oldest_due.map_or_else(String::new, brief)),
            Cell::new(plain(&note)),
        ]
    });
    cx.output.table(&heading, rows.collect())?;
    match lines.len().saturating_sub(ENDPOINTS_MAX) {
        0 => {}
        more => cx.output.note(format_args!("and {more} more endpoints")),
    }
    Ok(())
}

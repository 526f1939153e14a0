//! `tenure stats`: counts of events, deliveries and jobs.

use std::collections::BTreeMap;

use comfy_table::Cell;
use tenure::operate::{Counts, DeliveryCounts, QueueCounts, SeparateTopic};
use tenure::server::wire::{JobStats, Stats};
use tenure::store::QueueName;
use tenure::webhook::Endpoint;

use super::endpoints::status;
use super::{Context, TableArg, paused_cell, rows};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::{events, plain};
use crate::problem::Stop;
use crate::time::brief;

/// Maximum number of endpoints listed, those with the most pending deliveries first.
const ENDPOINTS_MAX: usize = 10;

pub(super) async fn run(cx: &Context, of: &TableArg) -> Result<Exit, Stop> {
    if let Some(table) = &of.table {
        return rows::stats(cx, table).await;
    }
    let tenure = cx.database.open(IfMissing::Report).await?;
    let counts = tenure.count().await?;
    let queues = tenure.queues().await?;
    let untaken = tenure.untaken_topics().await?;
    let endpoints = tenure.endpoints_by_number().await?;
    let jobs = JobStats::new(&tenure.jobs().count().await?);
    if cx.output.is_json() {
        let stats = Stats::new(&counts, &queues, endpoints.values());
        cx.output.json(&stats.untaken(&untaken).jobs(jobs))?;
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
    let rows = counts.queues.iter().map(|(queue, waiting)| {
        vec![
            Cell::new(queue),
            Cell::new(waiting.due),
            Cell::new(waiting.delayed),
            Cell::new(waiting.behind),
            Cell::new(waiting.oldest_due.map_or_else(String::new, brief)),
            paused_cell(is_paused(queue)),
        ]
    });
    cx.output.table(
        &["QUEUE", " DUE", " DELAYED", " BEHIND", "OLDEST DUE", ""],
        rows.collect(),
    )?;
    untaken_table(cx, &untaken)?;
    if !endpoints.is_empty() {
        deliveries(cx, &counts, &endpoints)?;
    }
    if jobs != JobStats::default() {
        job_table(cx, jobs)?;
    }
    if counts.lapsed > 0 {
        let held = match counts.lapsed {
            1 => "is held under a lapsed lease",
            _ => "are held under lapsed leases",
        };
        cx.output.note(format_args!(
            "{} {held}: a running worker ends lapsed leases, as does `tenure reap`",
            events(usize::try_from(counts.lapsed).unwrap_or(usize::MAX))
        ));
    }
    Ok(Exit::Done)
}

/// Prints the topics that no active worker takes.
fn untaken_table(cx: &Context, untaken: &[SeparateTopic]) -> Result<(), Stop> {
    if untaken.is_empty() {
        return Ok(());
    }
    cx.output.line("")?;
    let row = |of: &SeparateTopic| {
        let oldest = of.oldest_due.map_or_else(String::new, brief);
        let (queue, topic) = (Cell::new(&of.queue), Cell::new(plain(&of.topic)));
        vec![topic, queue, Cell::new(of.due), Cell::new(oldest)]
    };
    let heading = ["TOPIC WITHOUT A WORKER", "QUEUE", " DUE", "OLDEST DUE"];
    cx.output.table(&heading, untaken.iter().map(row).collect())
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

fn waiting(counts: &QueueCounts) -> u64 {
    counts.due + counts.delayed + counts.behind
}

fn pending(counts: &DeliveryCounts) -> u64 {
    counts
        .endpoints
        .iter()
        .map(|(_, queue)| waiting(queue))
        .sum()
}

/// The endpoints with pending deliveries, those with the most first.
fn busy_endpoints<'a>(
    counts: &'a DeliveryCounts,
    endpoints: &'a BTreeMap<u32, Endpoint>,
) -> Vec<(&'a Endpoint, &'a QueueCounts)> {
    let queues = counts.endpoints.iter();
    let mut busy: Vec<_> = queues
        .filter_map(|(number, queue)| Some((endpoints.get(number)?, queue)))
        .collect();
    busy.sort_by_key(|(_, queue)| std::cmp::Reverse(waiting(queue)));
    busy
}

/// Prints the totals of deliveries and the busiest endpoints.
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
    let heading = [
        " PENDING DELIVERIES",
        " CLAIMED",
        " LAPSED",
        " DELIVERED",
        " DEAD",
    ];
    cx.output
        .table(&heading, vec![all.into_iter().map(Cell::new).collect()])?;
    let busy = busy_endpoints(counts, endpoints);
    if busy.is_empty() {
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
    let rows = busy.iter().take(ENDPOINTS_MAX).map(|(endpoint, queue)| {
        let (state, note) = status(endpoint, cx.output.now);
        vec![
            Cell::new(&endpoint.id),
            state,
            Cell::new(queue.due),
            Cell::new(queue.delayed),
            Cell::new(queue.behind),
            Cell::new(queue.oldest_due.map_or_else(String::new, brief)),
            Cell::new(plain(&note)),
        ]
    });
    cx.output.table(&heading, rows.collect())?;
    match busy.len().saturating_sub(ENDPOINTS_MAX) {
        0 => {}
        more => cx.output.note(format_args!("and {more} more endpoints")),
    }
    Ok(())
}

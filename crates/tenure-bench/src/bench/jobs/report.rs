//! The figures of jobs: one JSON object, or a table with the targets.

use serde::Serialize;

use super::running::RenewalCost;
use crate::bench::Bench;
use crate::bench::report::{
    Median, Ratio, at_least, at_most, cores, database, per_tick, rate, table,
};
use crate::host::Host;
use crate::stop::Stop;

/// The measurements, round by round, per second.
#[derive(Debug, Default)]
pub(super) struct JobRounds {
    pub(super) bare_chunks: Median,
    pub(super) chunks: Median,
    pub(super) row: Median,
    pub(super) adopted: Median,
}

/// All measurements; the median of the rounds.
#[derive(Debug, Serialize)]
pub(super) struct JobFigures {
    database: &'static str,
    chunks: u32,
    events: u32,
    batch: u32,
    rounds: u32,
    cores: usize,
    bare_chunks_per_s: f64,
    chunks_per_s: f64,
    chunks_vs_bare: Ratio,
    row_per_s: f64,
    adopted_per_s: f64,
    adopted_vs_row: Ratio,
    running_jobs: u32,
    statements_per_tick: f64,
    chunk_statements_per_tick: f64,
}

impl JobFigures {
    pub(super) fn new(
        args: &Bench,
        (url, chunks): (&str, u32),
        rounds: &JobRounds,
        renewals: RenewalCost,
    ) -> Self {
        Self {
            database: database(url),
            chunks,
            events: args.events,
            batch: args.batch,
            rounds: args.rounds,
            cores: cores(),
            bare_chunks_per_s: rounds.bare_chunks.median(),
            chunks_per_s: rounds.chunks.median(),
            chunks_vs_bare: rounds.chunks.vs(&rounds.bare_chunks),
            row_per_s: rounds.row.median(),
            adopted_per_s: rounds.adopted.median(),
            adopted_vs_row: rounds.adopted.vs(&rounds.row),
            running_jobs: args.jobs.running,
            statements_per_tick: renewals.jobs,
            chunk_statements_per_tick: renewals.chunks,
        }
    }
}

pub(super) fn print(host: &Host<'_>, figures: &JobFigures) -> Result<(), Stop> {
    if host.console.is_json() {
        return host.json(figures);
    }
    let lines = vec![
        rate(
            "checkpoints by hand, claim and complete",
            figures.bare_chunks_per_s,
        ),
        rate("chunks, claim and end", figures.chunks_per_s),
        at_least(
            "chunks, vs. checkpoints by hand",
            figures.chunks_vs_bare,
            0.8,
        ),
        rate("row loop", figures.row_per_s),
        rate(
            "adopted outbox, drained by the engine",
            figures.adopted_per_s,
        ),
        at_least(
            "adopted outbox, vs. the row loop",
            figures.adopted_vs_row,
            0.8,
        ),
        at_most(
            "statements per heartbeat tick of running jobs",
            figures.statements_per_tick,
            2.0,
            "",
        ),
        per_tick(
            "the same for their chunks",
            figures.chunk_statements_per_tick,
        ),
    ];
    table(host, lines)?;
    host.console.note(&format_args!(
        "median of {} rounds of {} chunks and {} rows of 500 bytes, and {} running jobs, on {} \
         with {} cores",
        figures.rounds,
        figures.chunks,
        figures.events,
        figures.running_jobs,
        figures.database,
        figures.cores
    ));
    Ok(())
}

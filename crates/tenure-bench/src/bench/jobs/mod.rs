//! `tenure bench --jobs`: the cost of chunks compared with hand-written SQL, of running jobs, and
//! of draining an adopted outbox compared with the row loop.

mod adopted;
mod chunks;
mod report;
mod running;

use clap::Args;
use tenure::Settings;

use self::report::{JobFigures, JobRounds};
use self::running::RenewalCost;
use super::calls::Calls;
use super::{Bench, LOOPS};
use crate::host::Host;
use crate::host::Steps;
use crate::stop::Stop;
use crate::yardstick::{Shape, Yardstick};

/// Number of measurements in a round.
const STEPS: u64 = 4;

#[derive(Debug, Args)]
pub(super) struct JobsBench {
    /// Measure jobs instead, with this many chunks per turn, and --events rows of an outbox
    #[arg(
        long = "jobs",
        value_name = "CHUNKS",
        num_args = 0..=1,
        default_missing_value = "20000",
        value_parser = clap::value_parser!(u32).range(100..=1_000_000),
        conflicts_with_all = [
            "backlog", "published", "old_snapshot", "held", "keyed", "blocked", "hot_key",
            "untaken", "shared_queue", "idle", "calls",
        ]
    )]
    pub(super) chunks: Option<u32>,

    /// With --jobs: jobs that run at once
    #[arg(
        long,
        value_name = "JOBS",
        default_value = "1000",
        requires = "chunks",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(Settings::CONCURRENCY_MAX))
    )]
    pub(super) running: u32,
}

/// Measures with this many chunks per turn, and prints.
pub(super) async fn run(
    host: &Host<'_>,
    args: &Bench,
    (chunks, calls): (u32, &Calls<'_>),
) -> Result<(), Stop> {
    let url = host.database;
    let progress = host.steps(u64::from(args.rounds) * STEPS + 2);
    let yardstick = Yardstick::open(url, "main").await?;
    let measured = measure(args, &yardstick, (chunks, calls), &progress).await;
    progress.finish();
    let closed = yardstick.close().await;
    let (rounds, renewals) = measured?;
    closed?;
    let figures = JobFigures::new(args, (url, chunks), &rounds, renewals);
    report::print(host, &figures)
}

async fn measure(
    args: &Bench,
    yardstick: &Yardstick,
    (chunks, calls): (u32, &Calls<'_>),
    progress: &Steps,
) -> Result<(JobRounds, RenewalCost), Stop> {
    let mut rounds = JobRounds::default();
    progress.step("first claims");
    let ours = chunks::Chunks::prepare(yardstick, chunks).await?;
    let rows = adopted::Adopted::prepare(yardstick).await?;
    let shape = Shape {
        batch: args.batch,
        loops: LOOPS,
    };
    for _ in 0..args.rounds {
        progress.step("checkpoints by hand");
        let theirs = yardstick.bare_chunks(chunks, chunks::LOOPS).await?;
        rounds.bare_chunks.push(theirs);
        progress.step("chunks");
        rounds.chunks.push(ours.rate(yardstick).await?);
        progress.step("row loop");
        let theirs = yardstick.row_drain(args.events, shape).await?;
        rounds.row.push(theirs);
        progress.step("adopted outbox");
        let drained = rows.rate(yardstick, args.events, args.batch).await?;
        rounds.adopted.push(drained);
    }
    progress.step("running jobs");
    let renewals = running::statements_per_tick(yardstick, args.jobs.running, calls).await?;
    Ok((rounds, renewals))
}

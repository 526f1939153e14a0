//! `tenure bench`: the speed of the engine on this machine, as ratios to loops without an engine in
//! the same run; and the speed of calls to endpoints, as ratios to an HTTP client alone.
//!
//! All runs use scratch tables. The engine and the yardstick (these loops) alternate, and the
//! median of the rounds counts, so that a noisy machine does not distort the result.

mod against;
mod ballast;
mod calls;
mod drain;
mod held;
mod jobs;
mod keyed;
mod latency;
mod report;
mod sides;
mod wait;
mod webhooks;

use std::path::PathBuf;

use clap::Args;
use clap::builder::ArgPredicate;
use tenure::Settings;

use self::calls::Calls;
use self::jobs::JobsBench;
use self::report::{Figures, Median, Ratio};
use self::webhooks::Webhooks;
use crate::host::{Completion, Host, Steps};
use crate::stop::Stop;
use crate::yardstick::{Shape, Yardstick};

/// Number of concurrent loops of the yardstick.
const LOOPS: u32 = 2;
/// Number of concurrent producers that enqueue one event at a time.
const PRODUCERS: u32 = 8;

/// The arguments of `tenure bench`.
#[derive(Debug, Args)]
pub struct Bench {
    /// Events per drain
    #[arg(
        long,
        default_value = "100000",
        value_parser = clap::value_parser!(u32).range(2000..=10_000_000)
    )]
    events: u32,

    /// Rounds of each measurement, alternating between both sides; the median counts
    #[arg(
        long,
        default_value = "5",
        default_value_if("against", ArgPredicate::IsPresent, "21"),
        value_parser = clap::value_parser!(u32).range(1..=99)
    )]
    rounds: u32,

    /// Items per claim, for Tenure and for the SQL loops; Tenure is also measured with 100, the
    /// default of a worker
    #[arg(long, default_value = "1000", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    /// Also drain with this many other events pending
    #[arg(long, value_name = "EVENTS", num_args = 0..=1, default_missing_value = "1000000")]
    backlog: Option<u32>,

    /// Also drain with this many other events already done
    #[arg(long, value_name = "EVENTS", num_args = 0..=1, default_missing_value = "1000000")]
    published: Option<u32>,

    /// Also drain while an old snapshot is open (PostgreSQL)
    #[arg(long)]
    old_snapshot: bool,

    /// Also drain while this many items are held and renewed
    #[arg(
        long,
        value_name = "ITEMS",
        num_args = 0..=1,
        default_missing_value = "10000",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(Settings::CONCURRENCY_MAX))
    )]
    held: Option<u32>,

    /// Also drain events spread evenly over this many keys
    #[arg(
        long,
        value_name = "KEYS",
        num_args = 0..=1,
        default_missing_value = "10000",
        value_parser = clap::value_parser!(u32).range(1..=100_000)
    )]
    keyed: Option<u32>,

    /// Also drain with this many events behind stuck keys: delayed, paused, blocked
    #[arg(
        long,
        value_name = "EVENTS",
        num_args = 0..=1,
        default_missing_value = "100000",
        value_parser = clap::value_parser!(u32).range(1000..=10_000_000)
    )]
    blocked: Option<u32>,

    /// Also drain with this many events behind the delayed head of one key
    #[arg(
        long,
        value_name = "EVENTS",
        num_args = 0..=1,
        default_missing_value = "1000000",
        value_parser = clap::value_parser!(u32).range(1000..=10_000_000)
    )]
    hot_key: Option<u32>,

    /// Also drain with this many events waiting whose topic no worker takes
    #[arg(
        long,
        value_name = "EVENTS",
        num_args = 0..=1,
        default_missing_value = "1000000",
        value_parser = clap::value_parser!(u32).range(1000..=10_000_000)
    )]
    untaken: Option<u32>,

    /// Also measure the pickup of two workers that take different topics of one queue
    #[arg(long)]
    shared_queue: bool,

    /// Seconds to watch an idle worker
    #[arg(long, value_name = "SECONDS", default_value = "15")]
    idle: u64,

    /// Compare with another build of this program: both take turns; exits with 1 if the whole 95 %
    /// confidence interval of a figure is below 97 % of the other build
    #[arg(long, value_name = "OLD_BINARY")]
    against: Option<PathBuf>,

    #[command(flatten)]
    webhooks: Webhooks,

    #[command(flatten)]
    jobs: JobsBench,
}

impl Bench {
    /// Measures and prints the figures.
    ///
    /// # Errors
    /// The database or the system failed, or a run made no headway.
    pub async fn run(&self, host: &Host<'_>) -> Result<Completion, Stop> {
        run(host, self).await
    }
}

async fn run(host: &Host<'_>, args: &Bench) -> Result<Completion, Stop> {
    let url = host.database;
    if let Some(old) = &args.against {
        return against::run(host, args, old).await;
    }
    let calls = Calls::new(host.metrics);
    if let Some(calls) = args.webhooks.calls {
        webhooks::run(host, &args.webhooks, (calls, args.rounds)).await?;
        return Ok(Completion::Passed);
    }
    if let Some(chunks) = args.jobs.chunks {
        jobs::run(host, args, (chunks, &calls)).await?;
        return Ok(Completion::Passed);
    }
    let progress = host.steps(steps(args));
    let yardstick = Yardstick::open(url, "main").await?;
    let measured = measure((args, url), &yardstick, &calls, &progress).await;
    progress.finish();
    let closed = yardstick.close().await;
    let figures = measured?;
    closed?;
    report::print(host, &figures)?;
    Ok(Completion::Passed)
}

fn steps(args: &Bench) -> u64 {
    let rounds = u64::from(args.rounds);
    let full = [
        args.backlog.is_some(),
        args.published.is_some(),
        args.old_snapshot,
    ];
    let full: u64 = full.into_iter().map(u64::from).sum();
    let held = u64::from(args.held.is_some());
    let keyed = u64::from(args.keyed.is_some());
    rounds * 9
        + 4
        + full * (rounds * 2 + 1)
        + held * (rounds * 4 + 1)
        + keyed * rounds * 4
        + ballast::steps(args)
        + u64::from(args.shared_queue) * rounds * 4
}

async fn measure(
    (args, url): (&Bench, &str),
    yardstick: &Yardstick,
    calls: &Calls<'_>,
    progress: &Steps,
) -> Result<Figures, Stop> {
    let mut figures = Figures::new(args, url);
    rounds(args, yardstick, progress, &mut figures).await?;
    progress.step("pickup");
    let pickup = latency::pickup(yardstick).await?;
    figures.pickup(&pickup);
    progress.step("idle");
    figures.idle_statements_per_s = latency::idle(yardstick, calls, args.idle).await?;
    progress.step("work lease");
    figures.work_lease_pairs_per_s = keyed::work_lease(args.rounds).await?;
    progress.step("full tables");
    full(args, url, yardstick, progress, &mut figures).await?;
    if let Some(items) = args.held {
        progress.step("held");
        figures.held = Some(held::measure(args, yardstick, (items, calls), progress).await?);
    }
    if let Some(keys) = args.keyed {
        let compared = keyed::keyed(args, yardstick, keys, progress).await?;
        figures.keyed(keys, &compared);
    }
    ballast::measure(args, url, progress, &mut figures).await?;
    if args.shared_queue {
        let shared = latency::shared_queue(yardstick, args.rounds, progress).await?;
        figures.shared_queue = Some(shared);
    }
    Ok(figures)
}

/// Runs the engine and the yardstick in turns.
async fn rounds(
    args: &Bench,
    yardstick: &Yardstick,
    progress: &Steps,
    figures: &mut Figures,
) -> Result<(), Stop> {
    let events = args.events;
    let shape = Shape {
        batch: args.batch,
        loops: LOOPS,
    };
    let single = (events / 10).max(PRODUCERS);
    let mut rounds = report::Rounds::default();
    for _ in 0..args.rounds {
        progress.step("row loop");
        rounds.row.push(yardstick.row_drain(events, shape).await?);
        progress.step("engine");
        rounds
            .drain
            .push(drain::rate(yardstick, events, args.batch).await?);
        progress.step("bare loop");
        rounds.bare.push(yardstick.bare_drain(events, shape).await?);
        progress.step("engine, batch 100");
        rounds
            .drain_100
            .push(drain::rate(yardstick, events, 100).await?);
        progress.step("bare insert");
        rounds
            .bare_enqueue
            .push(yardstick.bare_enqueue(events).await?);
        progress.step("enqueue");
        rounds.enqueue.push(yardstick.fill(events, 2).await?);
        progress.step("row insert");
        rounds
            .row_enqueue
            .push(yardstick.row_enqueue(events).await?);
        drain::empty(yardstick).await?;
        progress.step("row insert, one by one");
        let theirs = yardstick.row_insert(single, PRODUCERS).await?;
        rounds.row_insert.push(theirs);
        progress.step("enqueue, one by one");
        let ours = latency::one_by_one(yardstick, single, PRODUCERS).await?;
        rounds.enqueue_one.push(ours);
        drain::empty(yardstick).await?;
    }
    figures.rounds(&rounds);
    Ok(())
}

/// The engine on full tables, alternating with the engine on empty ones.
async fn full(
    args: &Bench,
    url: &str,
    empty: &Yardstick,
    progress: &Steps,
    figures: &mut Figures,
) -> Result<(), Stop> {
    let is_wanted = args.backlog.is_some() || args.published.is_some() || args.old_snapshot;
    if is_wanted {
        let full = Yardstick::open(url, "full").await?;
        let done = on_full(args, empty, &full, progress, figures).await;
        full.close().await?;
        done?;
    }
    Ok(())
}

async fn on_full(
    args: &Bench,
    empty: &Yardstick,
    full: &Yardstick,
    progress: &Steps,
    figures: &mut Figures,
) -> Result<(), Stop> {
    if let Some(standing) = args.backlog {
        progress.step("filling");
        full.fill(standing, LOOPS).await?;
        figures.backlog_vs_empty = Some(compare_full(args, empty, full, progress).await?);
        drain::empty(full).await?;
    }
    if let Some(standing) = args.published {
        progress.step("filling");
        let missing = standing.saturating_sub(args.backlog.unwrap_or(0));
        full.fill(missing, LOOPS).await?;
        drain::empty(full).await?;
        figures.published_vs_empty = Some(compare_full(args, empty, full, progress).await?);
    }
    if args.old_snapshot {
        progress.step("old snapshot");
        let old = full.old_snapshot().await?;
        figures.old_snapshot_vs_empty = match &old {
            Some(_) => Some(compare_full(args, empty, full, progress).await?),
            None => None,
        };
        drop(old);
    }
    Ok(())
}

/// The engine's rate on the full tables, as a ratio to its rate on the empty ones.
async fn compare_full(
    args: &Bench,
    empty: &Yardstick,
    full: &Yardstick,
    progress: &Steps,
) -> Result<Ratio, Stop> {
    let mut ratios = Median::default();
    for _ in 0..args.rounds {
        progress.step("empty tables");
        let theirs = drain::rate(empty, args.events, args.batch).await?;
        progress.step("full tables");
        let ours = drain::rate(full, args.events, args.batch).await?;
        ratios.push(ours / theirs);
    }
    Ok(ratios.median())
}

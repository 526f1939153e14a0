//! `tenure bench --webhooks`: how fast endpoints are called, as ratios to a bare HTTP client that
//! makes the same calls to the same receivers in the same run.

mod bare;
mod dead;
mod held;
mod receipt;
mod receivers;
mod report;
mod sending;

use std::time::Duration;

use clap::Args;
use tenure::Settings;
use tenure::bench::Yardstick;

use self::bare::Bare;
use self::dead::Turns;
use self::receivers::Receivers;
use self::report::{Figures, Found, Rounds};
use self::sending::{End, Sending};
use super::Context;
use crate::problem::Stop;
use crate::progress::Steps;
use crate::time;

/// Calls at once, theirs and ours; what a sender makes unless set.
const CONCURRENCY: u32 = 200;
/// Receivers that are called in turns, each an endpoint of its own.
const RECEIVERS: u32 = 8;
/// Events whose way is timed, as a part of the calls of a turn.
const TIMED: u32 = 10;

#[derive(Debug, Args)]
pub(super) struct Webhooks {
    /// Measure webhooks instead, with this many calls per turn
    #[arg(
        long = "webhooks",
        value_name = "CALLS",
        num_args = 0..=1,
        default_missing_value = "20000",
        value_parser = clap::value_parser!(u32).range(100..=1_000_000),
        conflicts_with_all = [
            "events", "batch", "backlog", "published", "old_snapshot", "held", "keyed", "blocked",
            "hot_key", "idle",
        ]
    )]
    pub(super) calls: Option<u32>,

    /// With --webhooks: deliveries that wait for a dead endpoint
    #[arg(
        long,
        value_name = "DELIVERIES",
        default_value = "100000",
        requires = "calls",
        value_parser = clap::value_parser!(u32).range(1..=10_000_000)
    )]
    waiting: u32,

    /// With --webhooks: calls that are held open at once
    #[arg(
        long,
        value_name = "CALLS",
        default_value = "1000",
        requires = "calls",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(Settings::CONCURRENCY_MAX))
    )]
    held_calls: u32,

    /// With --webhooks: how long they are held open
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "60s",
        requires = "calls",
        value_parser = time::duration
    )]
    held_for: Duration,
}

/// Measures, with so many calls per turn and so many rounds, and prints.
pub(super) async fn run(
    cx: &Context,
    args: &Webhooks,
    (calls, rounds): (u32, u32),
) -> Result<(), Stop> {
    let url = cx.database.expose();
    let progress = Steps::begin(&cx.output, u64::from(rounds) * 3 + dead::steps(rounds) + 3);
    let measured = measure((url, args), (calls, rounds), &progress).await;
    progress.finish();
    let figures = Figures::new(url, (args, rounds), measured?);
    report::print(cx, &figures)
}

async fn measure(
    (url, args): (&str, &Webhooks),
    (calls, rounds): (u32, u32),
    progress: &Steps,
) -> Result<Found, Stop> {
    let receivers = Receivers::open(RECEIVERS).await?;
    let yardstick = Yardstick::open(url, "main").await?;
    let turned = turns(&yardstick, &receivers, (calls, rounds), progress).await;
    let closed = yardstick.close().await;
    let turned = turned?;
    closed?;
    progress.step("receipt");
    let yardstick = Yardstick::open(url, "receipt").await?;
    let receipts = receipt::measure(&yardstick, (calls / TIMED).max(1)).await;
    let closed = yardstick.close().await;
    let receipts = receipts?;
    closed?;
    let turns = Turns {
        calls,
        rounds,
        waiting: args.waiting,
    };
    let dead_endpoint_vs_none = dead::measure(url, &receivers, turns, progress).await?;
    progress.step("calls held open");
    Ok(Found {
        rounds: turned,
        receipts,
        dead_endpoint_vs_none,
        held_calls: held::measure(url, args).await?,
    })
}

/// Theirs and ours in turns; who is first changes from round to round.
async fn turns(
    yardstick: &Yardstick,
    receivers: &Receivers,
    (calls, rounds): (u32, u32),
    progress: &Steps,
) -> Result<Rounds, Stop> {
    let bare = Bare::new(receivers.addresses())?;
    let sending = Sending::open(yardstick, receivers).await?;
    sending.register(|_| {}).await?;
    progress.step("opening connections");
    // All of them stand before anything is measured.
    let few = calls.min(CONCURRENCY * RECEIVERS);
    bare.rate(few).await?;
    sending.owe(few).await?;
    sending.send(few, End::Settled).await?;
    let mut found = Rounds::default();
    for round in 0..rounds {
        let mut order = [Turn::Http, Turn::Webhooks, Turn::Recorded];
        if !round.is_multiple_of(2) {
            order.reverse();
        }
        for turn in order {
            progress.step(turn.name());
            match turn {
                Turn::Http => found.http.push(bare.rate(calls).await?),
                Turn::Recorded => {
                    let rate = bare.recorded(yardstick, calls).await?;
                    found.recorded.push(rate);
                }
                Turn::Webhooks => {
                    found.fan_out.push(sending.owe(calls).await?);
                    yardstick.tidy().await?;
                    let rate = sending.send(calls, End::Settled).await?;
                    found.webhooks.push(rate);
                }
            }
        }
    }
    Ok(found)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Http,
    Recorded,
    Webhooks,
}

impl Turn {
    const fn name(self) -> &'static str {
        match self {
            Self::Http => "bare client",
            Self::Recorded => "bare client with a row per call",
            Self::Webhooks => "webhooks",
        }
    }
}

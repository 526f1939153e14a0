//! `tenure bench --webhooks`: the rate of calls to endpoints, as ratios to a bare HTTP client that
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

use self::bare::Bare;
use self::dead::DeadEndpointRun;
use self::receivers::Receivers;
use self::report::{Measured, WebhookFigures, WebhookRounds};
use self::sending::{End, Sending};
use crate::host::{Host, Steps};
use crate::stop::Stop;
use crate::yardstick::Yardstick;

/// Number of concurrent calls of the bare client and of the sender: the sender's default.
const CONCURRENCY: u32 = 200;
/// Number of receivers. They are called in turn, and each is a separate endpoint.
const RECEIVERS: u32 = 8;
/// One event is timed for this many calls of a turn.
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
            "hot_key", "untaken", "shared_queue", "idle",
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
    pub(super) waiting: u32,

    /// With --webhooks: calls that are held open at once
    #[arg(
        long,
        value_name = "CALLS",
        default_value = "1000",
        requires = "calls",
        value_parser = clap::value_parser!(u32).range(1..=i64::from(Settings::CONCURRENCY_MAX))
    )]
    pub(super) held_calls: u32,

    /// With --webhooks: time for which each of these calls is held open
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "60s",
        requires = "calls",
        value_parser = tenure::settings::parse_duration
    )]
    pub(super) held_for: Duration,
}

/// Measures with this many calls per turn and rounds, and prints.
pub(super) async fn run(
    host: &Host<'_>,
    args: &Webhooks,
    (calls, rounds): (u32, u32),
) -> Result<(), Stop> {
    let url = host.database;
    let progress = host.steps(u64::from(rounds) * 3 + dead::steps(rounds) + 3);
    let measured = measure((url, args), (calls, rounds), &progress).await;
    progress.finish();
    let figures = WebhookFigures::new(url, (args, rounds), measured?);
    report::print(host, &figures)
}

async fn measure(
    (url, args): (&str, &Webhooks),
    (calls, rounds): (u32, u32),
    progress: &Steps,
) -> Result<Measured, Stop> {
    let receivers = Receivers::open(RECEIVERS).await?;
    let yardstick = Yardstick::open(url, "main").await?;
    let compared = compare_clients(&yardstick, &receivers, (calls, rounds), progress).await;
    let closed = yardstick.close().await;
    let compared = compared?;
    closed?;
    progress.step("receipt");
    let yardstick = Yardstick::open(url, "receipt").await?;
    let receipts = receipt::measure(&yardstick, (calls / TIMED).max(1)).await;
    let closed = yardstick.close().await;
    let receipts = receipts?;
    closed?;
    let run = DeadEndpointRun {
        calls,
        rounds,
        waiting: args.waiting,
    };
    let dead_endpoint_vs_none = dead::measure(url, &receivers, run, progress).await?;
    progress.step("calls held open");
    Ok(Measured {
        rounds: compared,
        receipts,
        dead_endpoint_vs_none,
        held_calls: held::measure(url, args).await?,
    })
}

/// The bare client, the sender, and the bare client with a row per call, alternating.
async fn compare_clients(
    yardstick: &Yardstick,
    receivers: &Receivers,
    (calls, rounds): (u32, u32),
    progress: &Steps,
) -> Result<WebhookRounds, Stop> {
    let bare = Bare::new(receivers.addresses())?;
    let sending = Sending::open(yardstick, receivers).await?;
    sending.register(|_| {}).await?;
    progress.step("opening connections");
    // Opens all connections before the measurement.
    let few = calls.min(CONCURRENCY * RECEIVERS);
    bare.rate(few).await?;
    sending.owe(few).await?;
    sending.send(few, End::Settled).await?;
    let mut measured = WebhookRounds::default();
    for round in 0..rounds {
        let mut order = [Client::Http, Client::Webhooks, Client::Recorded];
        if !round.is_multiple_of(2) {
            order.reverse();
        }
        for client in order {
            progress.step(client.name());
            match client {
                Client::Http => measured.http.push(bare.rate(calls).await?),
                Client::Recorded => {
                    let rate = bare.recorded(yardstick, calls).await?;
                    measured.recorded.push(rate);
                }
                Client::Webhooks => {
                    measured.fan_out.push(sending.owe(calls).await?);
                    yardstick.tidy().await?;
                    let rate = sending.send(calls, End::Settled).await?;
                    measured.webhooks.push(rate);
                }
            }
        }
    }
    Ok(measured)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Http,
    Recorded,
    Webhooks,
}

impl Client {
    const fn name(self) -> &'static str {
        match self {
            Self::Http => "bare client",
            Self::Recorded => "bare client with a row per call",
            Self::Webhooks => "webhooks",
        }
    }
}

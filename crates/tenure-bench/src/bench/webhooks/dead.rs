//! Calls while one endpoint with many pending deliveries is dead: the cost for the others.

use std::net::Ipv4Addr;

use tenure::webhook::EndpointSettings;
use tokio::net::TcpListener;

use super::receivers::Receivers;
use super::sending::{End, Sending, settings};
use crate::bench::drain::Drained;
use crate::bench::report::Ratio;
use crate::bench::sides::{Side, compare};
use crate::host::Steps;
use crate::stop::Stop;
use crate::yardstick::Yardstick;

const TOPIC: &str = "bench.dead";

/// Calls per turn, rounds, and deliveries pending for the dead endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct DeadEndpointRun {
    pub(super) calls: u32,
    pub(super) rounds: u32,
    pub(super) waiting: u32,
}

/// The rate of calls to the other endpoints while one is dead, as a ratio to the rate without the
/// dead one.
pub(super) async fn measure(
    url: &str,
    receivers: &Receivers,
    run: DeadEndpointRun,
    progress: &Steps,
) -> Result<Ratio, Stop> {
    let none = Yardstick::open(url, "none").await?;
    let dead = match Yardstick::open(url, "dead").await {
        Ok(dead) => dead,
        Err(error) => {
            none.close().await?;
            return Err(error.into());
        }
    };
    let measured = with_and_without([&none, &dead], receivers, run, progress).await;
    let closed = [none.close().await, dead.close().await];
    let ratio = measured?;
    for answer in closed {
        answer?;
    }
    Ok(ratio)
}

async fn with_and_without(
    [none, dead]: [&Yardstick; 2],
    receivers: &Receivers,
    run: DeadEndpointRun,
    progress: &Steps,
) -> Result<Ratio, Stop> {
    progress.step("filling");
    // The operating system accepts connections to this listener, but nothing answers them.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let with = Sending::open(dead, receivers).await?;
    let without = Sending::open(none, receivers).await?;
    for sending in [&with, &without] {
        sending.register(|_| {}).await?;
    }
    let mut silence = settings(silent.local_addr()?, TOPIC)?;
    silence.timeout = EndpointSettings::TIMEOUT_MIN;
    with.add("dead", silence).await?;
    with.owe_to(&[TOPIC.to_owned()], run.waiting).await?;
    let measure_side = async |side| {
        let (name, sending, yardstick) = match side {
            Side::With => ("beside a dead endpoint", &with, dead),
            Side::Without => ("beside none", &without, none),
        };
        progress.step(name);
        let enqueue_per_s = sending.owe(run.calls).await?;
        yardstick.tidy().await?;
        let drain_per_s = sending.send(run.calls, End::Taken).await?;
        Ok(Drained {
            enqueue_per_s,
            drain_per_s,
        })
    };
    // The first turns bring the tables to their size and are not measured.
    for side in [Side::Without, Side::With] {
        measure_side(side).await?;
    }
    Ok(compare(run.rounds, measure_side).await?.drain)
}

/// Number of progress steps of this comparison.
pub(super) fn steps(rounds: u32) -> u64 {
    u64::from(rounds) * 4 + 3
}

//! Calls beside an endpoint that is dead and has much waiting: what it costs the others.

use std::net::Ipv4Addr;

use tenure::bench::Yardstick;
use tenure::webhook::EndpointSettings;
use tokio::net::TcpListener;

use super::receivers::Receivers;
use super::sending::{End, Sending, settings};
use crate::commands::bench::drain::Drained;
use crate::commands::bench::report::Ratio;
use crate::commands::bench::sides::{Side, compare};
use crate::problem::Stop;
use crate::progress::Steps;

const TOPIC: &str = "bench.dead";

/// So many calls per turn, so many rounds, so many deliveries waiting for the dead endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turns {
    pub(super) calls: u32,
    pub(super) rounds: u32,
    pub(super) waiting: u32,
}

/// How fast the others are called beside a dead endpoint, as a ratio to without it.
pub(super) async fn measure(
    url: &str,
    receivers: &Receivers,
    turns: Turns,
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
    let measured = beside([&none, &dead], receivers, turns, progress).await;
    let closed = [none.close().await, dead.close().await];
    let ratio = measured?;
    for answer in closed {
        answer?;
    }
    Ok(ratio)
}

async fn beside(
    [none, dead]: [&Yardstick; 2],
    receivers: &Receivers,
    turns: Turns,
    progress: &Steps,
) -> Result<Ratio, Stop> {
    progress.step("filling");
    // It takes connections, as the system does for it, and never says a word.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let with = Sending::open(dead, receivers).await?;
    let without = Sending::open(none, receivers).await?;
    for sending in [&with, &without] {
        sending.register(|_| {}).await?;
    }
    let mut silence = settings(silent.local_addr()?, TOPIC)?;
    silence.timeout = EndpointSettings::TIMEOUT_MIN;
    with.add("dead", silence).await?;
    with.owe_to(&[TOPIC.to_owned()], turns.waiting).await?;
    let run = async |side| {
        let (name, sending, yardstick) = match side {
            Side::With => ("beside a dead endpoint", &with, dead),
            Side::Without => ("beside none", &without, none),
        };
        progress.step(name);
        let enqueue_per_s = sending.owe(turns.calls).await?;
        yardstick.tidy().await?;
        let drain_per_s = sending.send(turns.calls, End::Taken).await?;
        Ok(Drained {
            enqueue_per_s,
            drain_per_s,
        })
    };
    // The first turns make the tables grow to their size and are not measured.
    for side in [Side::Without, Side::With] {
        run(side).await?;
    }
    Ok(compare(turns.rounds, run).await?.drain)
}

/// How many steps that has.
pub(super) fn steps(rounds: u32) -> u64 {
    u64::from(rounds) * 4 + 3
}

//! A drain beside many items that are held: what it costs to keep them.

use std::time::Duration;

use tenure::bench::Yardstick;
use tenure::{QueueName, Settings, Term, Worker};

use super::Bench;
use super::calls::Calls;
use super::drain::{Drain, LOOK, failed, open};
use super::report::Held;
use super::sides::{Side, compare};
use super::wait::{Headway, until};
use crate::problem::Stop;
use crate::progress::Steps;

/// So short that every two drains see a heartbeat; with the default it would be every eighth.
const TERM: Duration = Duration::from_secs(8);
/// Heartbeats in a term.
const BEATS: u32 = 4;

/// How fast a drain is while this many items are held and renewed by the same process, as a ratio
/// to one without; and how many statements a renewal of them all takes.
pub(super) async fn measure(
    args: &Bench,
    yardstick: &Yardstick,
    (items, calls): (u32, &Calls),
    progress: &Steps,
) -> Result<Held, Stop> {
    let queue = QueueName::new("held")?;
    fill(yardstick, &queue, items).await?;
    let drain = Drain::of(args.events, args.batch);
    let compared = compare(args.rounds, async |side| match side {
        Side::With => {
            progress.step("with holds");
            let holder = Holder::start(yardstick, &queue, items).await?;
            let drained = drain.run(yardstick).await?;
            holder.worker.stop().await;
            Ok(drained)
        }
        Side::Without => {
            progress.step("without holds");
            drain.run(yardstick).await
        }
    })
    .await?;
    let holder = Holder::start(yardstick, &queue, items).await?;
    let statements = Holder::statements_per_tick(calls).await;
    holder.worker.stop().await;
    Ok(Held {
        items,
        vs_none: compared.drain,
        statements_per_tick: statements,
    })
}

/// Puts what will be held into a queue of its own. It is there from the start, so that the tables
/// are the same with holds and without.
async fn fill(yardstick: &Yardstick, queue: &QueueName, items: u32) -> Result<(), Stop> {
    let tenure = open(yardstick).await?;
    tenure.add_queue(queue, Some(Term::new(TERM)?)).await?;
    let mut events = Vec::new();
    for _ in 0..1000 {
        events.push(tenure::bench::event().queue(queue.as_str())?);
    }
    for _ in 0..items.div_ceil(1000) {
        tenure.enqueue_all(&events).await?;
    }
    Ok(())
}

/// A worker whose handlers never end.
struct Holder {
    worker: Worker,
}

impl Holder {
    /// Holds them all, and each has its handler: nothing of the start falls into what is measured.
    async fn start(yardstick: &Yardstick, queue: &QueueName, items: u32) -> Result<Self, Stop> {
        let tenure = open(yardstick).await?;
        let settings = Settings {
            concurrency: items,
            batch: 1000,
            // However long a round takes.
            max_hold: Some(Duration::from_hours(24)),
            shutdown_timeout: Some(Duration::ZERO),
            ..Settings::default()
        };
        let worker = tenure
            .worker()
            .on("*", |_, _| std::future::pending())
            .queues([queue.as_str()])
            .settings(settings)
            .start()
            .await
            .map_err(|error| failed(&error))?;
        until("the items are held", LOOK, async || {
            let missing = items.saturating_sub(worker.health().running);
            Ok(Headway::missing(u64::from(missing)))
        })
        .await?;
        Ok(Self { worker })
    }

    /// What the keeper says to the store in the time of some heartbeats, per heartbeat.
    async fn statements_per_tick(calls: &Calls) -> f64 {
        let ticks = 8_u32;
        let kept = || calls.of(|verb| matches!(verb, "renew" | "report"));
        let before = kept();
        // The time that is measured.
        tokio::time::sleep(TERM / BEATS * ticks).await;
        let count = u32::try_from(kept().saturating_sub(before)).unwrap_or(u32::MAX);
        f64::from(count) / f64::from(ticks)
    }
}

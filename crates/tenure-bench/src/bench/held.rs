//! A drain while many items are held: the cost of renewing them.

use std::time::Duration;

use tenure::operate::QueueRules;
use tenure::store::QueueName;
use tenure::{Failure, NewEvent, Outcome, Settings, Term, Worker};

use super::Bench;
use super::calls::Calls;
use super::drain::{Drain, POLL, failed, open};
use super::report::HeldItems;
use super::sides::{Side, compare};
use super::wait::{Headway, until};
use crate::host::Steps;
use crate::stop::Stop;
use crate::yardstick::Yardstick;

/// Term of the held items, short so that every second drain contains a heartbeat; with the default
/// term, only every eighth would.
const TERM: Duration = Duration::from_secs(8);
/// Number of heartbeats in a term.
const BEATS: u32 = 4;

/// Returns the rate of a drain while the same process holds and renews this many items, as a ratio
/// to a drain without them; and the number of statements that renew them all.
pub(super) async fn measure(
    args: &Bench,
    yardstick: &Yardstick,
    (items, calls): (u32, &Calls<'_>),
    progress: &Steps,
) -> Result<HeldItems, Stop> {
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
    Ok(HeldItems {
        items,
        vs_none: compared.drain,
        statements_per_tick: statements,
    })
}

/// Enqueues the items to be held into a separate queue. They exist from the start, so that the
/// tables are the same on both sides.
async fn fill(yardstick: &Yardstick, queue: &QueueName, items: u32) -> Result<(), Stop> {
    let tenure = open(yardstick).await?;
    let rules = QueueRules {
        term: Some(Term::new(TERM)?),
        ..QueueRules::default()
    };
    tenure.add_queue(queue, rules).await?;
    let mut events = Vec::new();
    for _ in 0..1000 {
        events.push(NewEvent::from(crate::yardstick::event()).queue(queue.as_str()));
    }
    for _ in 0..items.div_ceil(1000) {
        tenure.enqueue_now(events.clone()).await?;
    }
    Ok(())
}

/// A worker whose handlers never end.
struct Holder {
    worker: Worker,
}

impl Holder {
    /// Starts the worker and waits until every item has its handler, so that the start is not
    /// measured.
    async fn start(yardstick: &Yardstick, queue: &QueueName, items: u32) -> Result<Self, Stop> {
        let tenure = open(yardstick).await?;
        let settings = Settings {
            concurrency: items,
            batch: 1000,
            // Longer than any round.
            max_hold: Some(Duration::from_hours(24)),
            shutdown_timeout: Some(Duration::ZERO),
            ..Settings::default()
        };
        let worker = tenure
            .worker()
            .on("*", |_, _| {
                std::future::pending::<Result<Outcome, Failure>>()
            })
            .queues([queue.as_str()])
            .settings(settings)
            .start()
            .await
            .map_err(|error| failed(&error))?;
        until("the items are held", POLL, async || {
            let missing = items.saturating_sub(worker.health().running);
            Ok(Headway::missing(u64::from(missing)))
        })
        .await?;
        Ok(Self { worker })
    }

    /// Statements of the keeper per heartbeat, counted during eight heartbeats.
    async fn statements_per_tick(calls: &Calls<'_>) -> f64 {
        let ticks = 8_u32;
        let kept = || calls.of(|verb| matches!(verb, "renew" | "report"));
        let before = kept();
        // The measured time.
        tokio::time::sleep(TERM / BEATS * ticks).await;
        let count = u32::try_from(kept().saturating_sub(before)).unwrap_or(u32::MAX);
        f64::from(count) / f64::from(ticks)
    }
}

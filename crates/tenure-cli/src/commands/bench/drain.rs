//! A drain by the engine: claimed, handed to a handler that does nothing, settled; with fences,
//! heartbeats and metrics on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::bench::{Watch, Yardstick};
use tenure::{Guarded, Outcome, Pause, QueueName, Settings, Tenure, Term, Worker, WorkerError};

use super::Bench;
use super::calls::Calls;
use super::report::{Held, Median};
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::progress::Steps;

/// How often the end of a drain is looked for.
const LOOK: Duration = Duration::from_millis(1);
/// A drain that makes no headway for this long has failed.
const STUCK: Duration = Duration::from_mins(1);

/// A drain of so many events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    events: u32,
    batch: u32,
}

impl Drain {
    pub(super) fn of(events: u32, batch: u32) -> Self {
        Self { events, batch }
    }

    /// Enqueues the events and drains as many: per second.
    pub(super) async fn run(self, yardstick: &Yardstick) -> Result<f64, Stop> {
        let drain = Draining::prepare(yardstick, self).await?;
        yardstick.fill(self.events, 2).await?;
        yardstick.tidy().await?;
        drain.go(yardstick).await
    }
}

/// Drains whatever waits, unmeasured.
pub(super) async fn empty(yardstick: &Yardstick) -> Result<(), Stop> {
    let drain = Draining::prepare(yardstick, Drain::of(u32::MAX, 1000)).await?;
    let queue = QueueName::default();
    let store = yardstick.store();
    kept(store.pause_queue(&queue, Pause::End).await?)?;
    drain.worker.wake();
    loop {
        let counts = store.count(None).await?;
        if counts.pending() + counts.claimed == 0 {
            break;
        }
        tokio::time::sleep(LOOK * 50).await;
    }
    drain.worker.stop().await;
    Ok(())
}

/// A worker that stands ready before a queue that is paused.
struct Draining {
    worker: Worker,
    handled: Arc<AtomicU32>,
    events: u32,
}

impl Draining {
    async fn prepare(yardstick: &Yardstick, drain: Drain) -> Result<Self, Stop> {
        let queue = QueueName::default();
        let tenure = open(yardstick).await?;
        kept(tenure.pause_queue(&queue).await?)?;
        let settings = Settings {
            batch: drain.batch,
            ..Settings::default()
        };
        let handled = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&handled);
        let worker = tenure
            .worker()
            .on("*", move |event, cx| {
                counter.fetch_add(1, Ordering::Relaxed);
                std::hint::black_box((event, cx.fence()));
                async { Ok(Outcome::Done) }
            })
            .queues([queue.as_str()])
            .settings(settings)
            .start()
            .await
            .map_err(|error| failed(&error))?;
        while !worker.health().is_ready() {
            tokio::time::sleep(LOOK).await;
        }
        Ok(Self {
            worker,
            handled,
            events: drain.events,
        })
    }

    async fn go(self, yardstick: &Yardstick) -> Result<f64, Stop> {
        let queue = QueueName::default();
        let watch = Watch::start();
        let store = yardstick.store();
        kept(store.pause_queue(&queue, Pause::End).await?)?;
        self.worker.wake();
        self.wait(&watch).await?;
        let rate = watch.rate(self.events);
        // What is left over, if there was more, waits for the next drain.
        kept(store.pause_queue(&queue, Pause::Begin).await?)?;
        self.worker.stop().await;
        kept(store.pause_queue(&queue, Pause::End).await?)?;
        Ok(rate)
    }

    /// Waits until all are handled and, where no more are waiting, settled.
    async fn wait(&self, watch: &Watch) -> Result<(), Stop> {
        let mut seen = (0, watch.elapsed());
        loop {
            let handled = self.handled.load(Ordering::Relaxed);
            let is_settled = handled > self.events || self.worker.health().held == 0;
            if handled >= self.events && is_settled {
                return Ok(());
            }
            if handled > seen.0 {
                seen = (handled, watch.elapsed());
            }
            if watch.elapsed().saturating_sub(seen.1) > STUCK {
                let message = format!("the drain stands still at {handled} events");
                return Err(Problem::new(Exit::Failed, message).into());
            }
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// The queue of the scratch tables is there.
fn kept(answer: Guarded) -> Result<(), Problem> {
    match answer {
        Guarded::Kept(()) => Ok(()),
        Guarded::Refused(why) => Err(Problem::new(Exit::Refused, why.as_str())),
    }
}

/// The engine's own way to the scratch tables.
pub(super) async fn open(yardstick: &Yardstick) -> Result<Tenure, Stop> {
    let (url, config) = yardstick.address();
    Ok(Tenure::open_with(&url, &config, "bench").await?)
}

pub(super) fn failed(error: &WorkerError) -> Problem {
    Problem::new(Exit::Failed, error.to_string())
}

/// How fast a drain is while this many items are held and renewed by the same process, as a ratio
/// to one without; and how many statements a renewal of them all takes.
pub(super) async fn held(
    args: &Bench,
    yardstick: &Yardstick,
    (items, calls): (u32, &Calls),
    progress: &Steps,
) -> Result<Held, Stop> {
    let queue = QueueName::new("held")?;
    let tenure = open(yardstick).await?;
    let term = Term::new(Duration::from_secs(8))?;
    tenure.add_queue(&queue, Some(term)).await?;
    let mut ratios = Median::default();
    for round in 0..args.rounds {
        // Who goes first changes, so that what a drain leaves behind for the next is nobody's.
        let (with, without) = if round.is_multiple_of(2) {
            let without = beside_none(args, yardstick, progress).await?;
            (
                beside(args, yardstick, (&queue, items), progress).await?,
                without,
            )
        } else {
            let with = beside(args, yardstick, (&queue, items), progress).await?;
            (with, beside_none(args, yardstick, progress).await?)
        };
        ratios.push(with / without);
    }
    let holder = Holder::start(yardstick, &queue, items).await?;
    let statements = Holder::statements_per_tick(calls, term).await;
    holder.worker.stop().await;
    Ok(Held {
        items,
        vs_none: ratios.median(),
        statements_per_tick: statements,
    })
}

async fn beside_none(args: &Bench, yardstick: &Yardstick, progress: &Steps) -> Result<f64, Stop> {
    progress.step("without holds");
    Drain::of(args.events, args.batch).run(yardstick).await
}

async fn beside(
    args: &Bench,
    yardstick: &Yardstick,
    (queue, items): (&QueueName, u32),
    progress: &Steps,
) -> Result<f64, Stop> {
    progress.step("with holds");
    let holder = Holder::start(yardstick, queue, items).await?;
    let rate = Drain::of(args.events, args.batch).run(yardstick).await?;
    holder.worker.stop().await;
    Ok(rate)
}

/// A worker whose handlers never end.
struct Holder {
    worker: Worker,
}

impl Holder {
    async fn start(yardstick: &Yardstick, queue: &QueueName, items: u32) -> Result<Self, Stop> {
        let tenure = open(yardstick).await?;
        let mut events = Vec::new();
        for _ in 0..1000 {
            events.push(tenure::bench::event().queue(queue.as_str())?);
        }
        for _ in 0..items.div_ceil(1000) {
            tenure.enqueue_all(&events).await?;
        }
        let settings = Settings {
            concurrency: items.min(Settings::CONCURRENCY_MAX),
            batch: 1000,
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
        while worker.health().held < items {
            tokio::time::sleep(LOOK).await;
        }
        Ok(Self { worker })
    }

    /// What the keeper says to the store in the time of some heartbeats, per heartbeat.
    async fn statements_per_tick(calls: &Calls, term: Term) -> f64 {
        let ticks = 8_u32;
        let tick = term.length() / 4;
        let kept = || calls.of(|verb| matches!(verb, "renew" | "report"));
        let before = kept();
        tokio::time::sleep(tick * ticks).await;
        let count = u32::try_from(kept().saturating_sub(before)).unwrap_or(u32::MAX);
        f64::from(count) / f64::from(ticks)
    }
}

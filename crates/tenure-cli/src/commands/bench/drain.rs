//! A drain by the engine: claimed, handed to a handler that does nothing, settled; with fences,
//! heartbeats and metrics on.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::bench::{Watch, Yardstick};
use tenure::{Guarded, Outcome, Pause, QueueName, Settings, Tenure, Worker, WorkerError};

use super::LOOPS;
use super::wait::{Headway, until};
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

/// How often an engine is looked at; it costs nothing.
pub(super) const LOOK: Duration = Duration::from_millis(1);
/// How often the database is asked how much is left, which costs it something.
const COUNT: Duration = Duration::from_millis(50);

/// A drain of so many events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    events: u32,
    batch: u32,
    /// So many keys take turns; none: the events have no key.
    keys: Option<u32>,
}

/// How fast a drain was, and the enqueueing before it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drained {
    pub(super) enqueue_per_s: f64,
    pub(super) drain_per_s: f64,
}

impl Drain {
    pub(super) fn of(events: u32, batch: u32) -> Self {
        Self {
            events,
            batch,
            keys: None,
        }
    }

    /// The events have keys, so many in turns.
    pub(super) fn keyed(self, keys: u32) -> Self {
        Self {
            keys: Some(keys),
            ..self
        }
    }

    /// Enqueues the events and drains as many.
    pub(super) async fn run(self, yardstick: &Yardstick) -> Result<Drained, Stop> {
        let drain = Draining::prepare(yardstick, self).await?;
        let enqueue_per_s = match self.keys {
            None => yardstick.fill(self.events, LOOPS).await?,
            Some(keys) => yardstick.fill_keyed(self.events, LOOPS, keys).await?,
        };
        yardstick.tidy().await?;
        Ok(Drained {
            enqueue_per_s,
            drain_per_s: drain.go(yardstick).await?,
        })
    }
}

/// Enqueues so many events without a key and drains them: per second.
pub(super) async fn rate(yardstick: &Yardstick, events: u32, batch: u32) -> Result<f64, Stop> {
    let drained = Drain::of(events, batch).run(yardstick).await?;
    Ok(drained.drain_per_s)
}

/// Drains whatever waits, unmeasured.
pub(super) async fn empty(yardstick: &Yardstick) -> Result<(), Stop> {
    let drain = Draining::prepare(yardstick, Drain::of(u32::MAX, 1000)).await?;
    let queue = QueueName::default();
    let store = yardstick.store();
    kept(store.pause_queue(&queue, Pause::End).await?)?;
    drain.worker.wake();
    until("the queue is drained", COUNT, async || {
        let counts = store.count(None).await?;
        Ok(Headway::missing(counts.pending() + counts.claimed))
    })
    .await?;
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
        ready(&worker).await?;
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
        self.end().await?;
        let rate = watch.rate(self.events);
        // What is left over, if there was more, waits for the next drain.
        kept(store.pause_queue(&queue, Pause::Begin).await?)?;
        self.worker.stop().await;
        kept(store.pause_queue(&queue, Pause::End).await?)?;
        Ok(rate)
    }

    /// Waits until all are handled and, where no more are waiting, settled.
    async fn end(&self) -> Result<(), Stop> {
        until("all events are handled and settled", LOOK, async || {
            let handled = self.handled.load(Ordering::Relaxed);
            let is_settled = handled > self.events || self.worker.health().held == 0;
            // What is held comes and goes; what is handled is headway.
            let missing = self.events.saturating_sub(handled);
            Ok(Headway::missing(
                u64::from(missing) + u64::from(!is_settled),
            ))
        })
        .await
    }
}

/// Waits until a worker does its work.
pub(super) async fn ready(worker: &Worker) -> Result<(), Stop> {
    until("the worker is ready", LOOK, async || {
        Ok(Headway::whether(worker.health().is_ready()))
    })
    .await
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

//! A drain by the engine: claims, an empty handler, settles; with fences, heartbeats and metrics
//! enabled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::lease::Guarded;
use tenure::operate::Pause;
use tenure::store::QueueName;
use tenure::{Outcome, Settings, Tenure, Worker, WorkerError};

use super::LOOPS;
use super::wait::{Headway, until};
use crate::stop::{Failure, Stop};
use crate::yardstick::{Stopwatch, TOPIC, Yardstick};

/// Interval between two polls of an engine; a poll costs nothing.
pub(super) const POLL: Duration = Duration::from_millis(1);
/// Interval between two counts of the remaining events; a count is work for the database.
const COUNT: Duration = Duration::from_millis(50);

/// A drain of some events.
#[derive(Clone, Copy, Debug)]
pub(super) struct Drain {
    events: u32,
    batch: u32,
    /// Number of keys, over which the events are spread evenly; `None` for events without a key.
    keys: Option<u32>,
    /// Topics that the worker takes.
    topics: &'static str,
}

/// The rates of a drain and of the enqueueing before it.
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
            topics: "*",
        }
    }

    /// The same drain by a worker that takes only the topic of its events.
    pub(super) fn of_topic(self) -> Self {
        Self {
            topics: TOPIC,
            ..self
        }
    }

    /// The same drain with this many keys, over which the events are spread evenly.
    pub(super) fn keyed(self, keys: u32) -> Self {
        Self {
            keys: Some(keys),
            ..self
        }
    }

    /// Enqueues the events, then drains the same number.
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

/// Enqueues this many events without a key and drains them; returns events per second.
pub(super) async fn rate(yardstick: &Yardstick, events: u32, batch: u32) -> Result<f64, Stop> {
    let drained = Drain::of(events, batch).run(yardstick).await?;
    Ok(drained.drain_per_s)
}

/// Drains all pending events without measuring.
pub(super) async fn empty(yardstick: &Yardstick) -> Result<(), Stop> {
    let drain = Draining::prepare(yardstick, Drain::of(u32::MAX, 1000)).await?;
    let queue = QueueName::default();
    let store = yardstick.store();
    accepted(store.pause_queue(&queue, Pause::End).await?)?;
    drain.worker.wake();
    until("the queue is drained", COUNT, async || {
        let counts = store.count(None).await?;
        Ok(Headway::missing(counts.pending() + counts.claimed))
    })
    .await?;
    drain.worker.stop().await;
    Ok(())
}

/// A worker that is ready while its queue is paused.
struct Draining {
    worker: Worker,
    handled: Arc<AtomicU32>,
    events: u32,
}

impl Draining {
    async fn prepare(yardstick: &Yardstick, drain: Drain) -> Result<Self, Stop> {
        let queue = QueueName::default();
        let tenure = open(yardstick).await?;
        accepted(tenure.pause_queue(&queue).await?)?;
        let settings = Settings {
            batch: drain.batch,
            ..Settings::default()
        };
        let handled = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&handled);
        let worker = tenure
            .worker()
            .on(drain.topics, move |event, cx| {
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
        let watch = Stopwatch::start();
        let store = yardstick.store();
        accepted(store.pause_queue(&queue, Pause::End).await?)?;
        self.worker.wake();
        self.end().await?;
        let rate = watch.rate(self.events);
        // Pause the queue, so that further events wait for the next drain.
        accepted(store.pause_queue(&queue, Pause::Begin).await?)?;
        self.worker.stop().await;
        accepted(store.pause_queue(&queue, Pause::End).await?)?;
        Ok(rate)
    }

    /// Waits until all events are handled and, unless further events wait, settled.
    async fn end(&self) -> Result<(), Stop> {
        until("all events are handled and settled", POLL, async || {
            let handled = self.handled.load(Ordering::Relaxed);
            let is_settled = handled > self.events || self.worker.health().held == 0;
            // The number of held items rises and falls; that of handled items only rises.
            let missing = self.events.saturating_sub(handled);
            Ok(Headway::missing(
                u64::from(missing) + u64::from(!is_settled),
            ))
        })
        .await
    }
}

/// Waits until the worker reports that it is ready.
pub(super) async fn ready(worker: &Worker) -> Result<(), Stop> {
    until("the worker is ready", POLL, async || {
        Ok(Headway::whether(worker.health().is_ready()))
    })
    .await
}

/// Fails if the queue of the scratch tables does not exist.
fn accepted(answer: Guarded) -> Result<(), Failure> {
    match answer {
        Guarded::Accepted(()) => Ok(()),
        Guarded::Refused(why) => Err(Failure::new(why.as_str())),
    }
}

/// Opens the scratch tables as an engine would.
pub(super) async fn open(yardstick: &Yardstick) -> Result<Tenure, Stop> {
    let (url, config) = yardstick.address();
    Ok(Tenure::open_with(&url, &config, "bench").await?)
}

pub(super) fn failed(error: &WorkerError) -> Failure {
    Failure::new(error.to_string())
}

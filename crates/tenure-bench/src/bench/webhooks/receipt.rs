//! Time from the commit of an event to the receipt of its call, at 200 events per second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::{Event, Tenure};
use tokio::task::JoinSet;

use super::RECEIVERS;
use super::receivers::Receivers;
use super::report::Receipts;
use super::sending::{Sending, topic};
use crate::bench::drain::open;
use crate::bench::wait::{Headway, until};
use crate::stop::Stop;
use crate::yardstick::{Stopwatch, Yardstick};

/// Interval between two events: 200 per second.
const DISTANCE: Duration = Duration::from_millis(5);

/// Measures both ways of enqueueing: in the worker's process, which wakes the worker, and in
/// another process, whose events the worker finds by polling.
pub(super) async fn measure(yardstick: &Yardstick, events: u32) -> Result<Receipts, Stop> {
    let times = CallTimes::new();
    let receipts = times.clone();
    let receivers = Receivers::reading(RECEIVERS, move |body| receipts.received(body)).await?;
    let sending = Sending::open(yardstick, &receivers).await?;
    sending.register(|_| {}).await?;
    let sender = sending.sender().await?;
    let worker = sending.worker(&sender).await?;
    let elsewhere = open(yardstick).await?;
    let in_process = times.measure(sending.tenure(), events).await;
    let across = times.measure(&elsewhere, events).await;
    worker.stop().await;
    sender.stop().await;
    Ok(Receipts {
        in_process: in_process?,
        across: across?,
    })
}

/// Times of each event's commit and call, in milliseconds of one clock.
#[derive(Clone)]
struct CallTimes {
    watch: Arc<Stopwatch>,
    events: Arc<Mutex<Vec<EventTimes>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct EventTimes {
    committed: Option<f64>,
    received: Option<f64>,
}

impl CallTimes {
    fn new() -> Self {
        Self {
            watch: Arc::new(Stopwatch::start()),
            events: Arc::default(),
        }
    }

    /// Milliseconds from commit to receipt, for this many events.
    async fn measure(&self, tenure: &Tenure, events: u32) -> Result<Vec<f64>, Stop> {
        let count = usize::try_from(events).unwrap_or(usize::MAX);
        self.lock(|events| *events = vec![EventTimes::default(); count]);
        let receivers = usize::try_from(RECEIVERS).unwrap_or(1);
        let mut ticks = tokio::time::interval(DISTANCE);
        let mut commits = JoinSet::new();
        for nth in 0..count {
            ticks.tick().await;
            let event = Event::new(&topic(nth % receivers), &nth)?;
            let (times, tenure) = (self.clone(), tenure.clone());
            // Spawned, so that a slow commit does not delay the next one.
            commits.spawn(async move {
                tenure.enqueue_now(event).await?;
                times.set(nth, |event, now| event.committed = Some(now));
                Ok::<(), tenure::StoreError>(())
            });
        }
        while let Some(ended) = commits.join_next().await {
            ended.map_err(std::io::Error::other)??;
        }
        until("all events are received", DISTANCE, async || {
            let missing = |event: &&EventTimes| event.received.is_none();
            let missing = self.lock(|events| events.iter().filter(missing).count());
            Ok(Headway::missing(u64::try_from(missing).unwrap_or(u64::MAX)))
        })
        .await?;
        // A call may arrive before the commit returns.
        let wait = |event: &EventTimes| Some((event.received? - event.committed?).max(0.0));
        Ok(self.lock(|events| events.iter().filter_map(wait).collect()))
    }

    fn received(&self, body: &[u8]) {
        let Ok(nth) = serde_json::from_slice::<usize>(body) else {
            return;
        };
        self.set(nth, |event, now| {
            event.received.get_or_insert(now);
        });
    }

    fn set(&self, nth: usize, set: impl FnOnce(&mut EventTimes, f64)) {
        let now = self.watch.elapsed().as_secs_f64() * 1000.0;
        self.lock(|events| {
            if let Some(event) = events.get_mut(nth) {
                set(event, now);
            }
        });
    }

    fn lock<T>(&self, look: impl FnOnce(&mut Vec<EventTimes>) -> T) -> T {
        look(&mut self.events.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

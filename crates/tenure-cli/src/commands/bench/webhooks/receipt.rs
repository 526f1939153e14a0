//! From the commit of an event to the receipt of its call, at 200 events per second.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure::bench::{Watch, Yardstick};
use tenure::{Event, Tenure};
use tokio::task::JoinSet;

use super::RECEIVERS;
use super::receivers::Receivers;
use super::report::Receipts;
use super::sending::{Sending, topic};
use crate::commands::bench::drain::open;
use crate::commands::bench::wait::{Headway, until};
use crate::problem::Stop;

/// Between two events: 200 per second.
const DISTANCE: Duration = Duration::from_millis(5);

/// Measures both ways of enqueueing: in the process of the worker, which is woken, and in another
/// one, whose events the worker finds by looking.
pub(super) async fn measure(yardstick: &Yardstick, events: u32) -> Result<Receipts, Stop> {
    let times = Times::new();
    let seen = times.clone();
    let receivers = Receivers::looking(RECEIVERS, move |body| seen.received(body)).await?;
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

/// When each event was committed and when its call came, in milliseconds by one watch.
#[derive(Clone)]
struct Times {
    watch: Arc<Watch>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    committed: Option<f64>,
    received: Option<f64>,
}

impl Times {
    fn new() -> Self {
        Self {
            watch: Arc::new(Watch::start()),
            seen: Arc::default(),
        }
    }

    /// Milliseconds from commit to receipt, for so many events.
    async fn measure(&self, tenure: &Tenure, events: u32) -> Result<Vec<f64>, Stop> {
        let count = usize::try_from(events).unwrap_or(usize::MAX);
        self.lock(|seen| *seen = vec![Seen::default(); count]);
        let receivers = usize::try_from(RECEIVERS).unwrap_or(1);
        let mut ticks = tokio::time::interval(DISTANCE);
        let mut commits = JoinSet::new();
        for nth in 0..count {
            ticks.tick().await;
            let event = Event::new(&topic(nth % receivers), &nth)?;
            let (times, tenure) = (self.clone(), tenure.clone());
            // A commit that takes its time does not hold up the next.
            commits.spawn(async move {
                tenure.enqueue_now(event).await?;
                times.set(nth, |seen, now| seen.committed = Some(now));
                Ok::<(), tenure::StoreError>(())
            });
        }
        while let Some(ended) = commits.join_next().await {
            ended.map_err(std::io::Error::other)??;
        }
        until("all events are received", DISTANCE, async || {
            let missing = |seen: &&Seen| seen.received.is_none();
            let missing = self.lock(|seen| seen.iter().filter(missing).count());
            Ok(Headway::missing(u64::try_from(missing).unwrap_or(u64::MAX)))
        })
        .await?;
        // A call may even come before the answer to the commit.
        let wait = |seen: &Seen| Some((seen.received? - seen.committed?).max(0.0));
        Ok(self.lock(|seen| seen.iter().filter_map(wait).collect()))
    }

    fn received(&self, body: &[u8]) {
        let Ok(nth) = serde_json::from_slice::<usize>(body) else {
            return;
        };
        self.set(nth, |seen, now| {
            seen.received.get_or_insert(now);
        });
    }

    fn set(&self, nth: usize, set: impl FnOnce(&mut Seen, f64)) {
        let now = self.watch.elapsed().as_secs_f64() * 1000.0;
        self.lock(|seen| {
            if let Some(seen) = seen.get_mut(nth) {
                set(seen, now);
            }
        });
    }

    fn lock<T>(&self, look: impl FnOnce(&mut Vec<Seen>) -> T) -> T {
        look(&mut self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

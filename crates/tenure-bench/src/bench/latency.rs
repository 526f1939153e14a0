//! Figures other than throughput: pickup of an event, statements of an idle worker, and single
//! enqueues.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::try_join_all;
use tenure::operate::{Duties, Duty};
use tenure::webhook::{Caller, Calling, Reply, Request};
use tenure::{Event, Outcome, Tenure, Worker};

use super::calls::Calls;
use super::drain::{failed, open, ready};
use super::report::{Pickup, SharedQueue};
use super::sides::{Side, sides};
use super::wait::{Headway, until};
use crate::host::Steps;
use crate::stop::Stop;
use crate::yardstick::{Stopwatch, Yardstick, event};

/// Events per measurement, at 50 per second.
const EVENTS: usize = 250;
const DISTANCE: Duration = Duration::from_millis(20);
/// Time without work after which a worker polls only once per second.
const SETTLES: Duration = Duration::from_secs(8);

/// Time from enqueue to the start of the handler at 50 events per second. Events enqueued in the
/// worker's own process wake the worker; the worker finds others by polling.
pub(super) async fn pickup(yardstick: &Yardstick) -> Result<Pickup, Stop> {
    let tenure = open(yardstick).await?;
    let starts = Starts::new("bench.pickup");
    let worker = starts.worker(&tenure).await?;
    let elsewhere = open(yardstick).await?;
    let in_process = starts.measure(&tenure).await?;
    let across = starts.measure(&elsewhere).await?;
    worker.stop().await;
    Ok(Pickup { in_process, across })
}

/// The pickup across processes of two workers that take different topics of one queue, alternating
/// with that of one worker.
pub(super) async fn shared_queue(
    yardstick: &Yardstick,
    rounds: u32,
    progress: &Steps,
) -> Result<SharedQueue, Stop> {
    let (mut both, mut alone) = (Vec::new(), Vec::new());
    for side in (0..rounds).flat_map(sides) {
        match side {
            Side::With => {
                progress.step("pickup of two workers");
                both.extend(waits(yardstick, &["bench.pickup", "bench.other"]).await?);
            }
            Side::Without => {
                progress.step("pickup of one worker");
                alone.extend(waits(yardstick, &["bench.pickup"]).await?);
            }
        }
    }
    Ok(SharedQueue::of(&both, &alone))
}

/// The waits of the events of a worker per topic, each on connections of its own.
async fn waits(yardstick: &Yardstick, topics: &[&'static str]) -> Result<Vec<f64>, Stop> {
    let mut services = Vec::new();
    for topic in topics {
        let starts = Starts::new(topic);
        let worker = starts.worker(&open(yardstick).await?).await?;
        services.push((starts, worker));
    }
    let elsewhere = open(yardstick).await?;
    let measured = services
        .iter()
        .map(|(starts, _)| starts.measure(&elsewhere));
    let measured = try_join_all(measured).await?;
    for (_, worker) in services {
        worker.stop().await;
    }
    Ok(measured.concat())
}

/// The wait of each event in milliseconds, by its number; one clock measures both ends.
#[derive(Clone)]
struct Starts {
    topic: &'static str,
    watch: Arc<Stopwatch>,
    waits: Arc<Mutex<Vec<Option<f64>>>>,
}

impl Starts {
    fn new(topic: &'static str) -> Self {
        Self {
            topic,
            watch: Arc::new(Stopwatch::start()),
            waits: Arc::default(),
        }
    }

    async fn worker(&self, tenure: &Tenure) -> Result<Worker, Stop> {
        let starts = self.clone();
        let worker = tenure
            .worker()
            .on(self.topic, move |event: Event, _| {
                let now = millis(&starts.watch);
                let starts = starts.clone();
                async move {
                    let (nth, sent): (usize, f64) = serde_json::from_str(event.payload())?;
                    starts.lock(|waits| {
                        if let Some(wait) = waits.get_mut(nth) {
                            *wait = Some(now - sent);
                        }
                    });
                    Ok(Outcome::Done)
                }
            })
            .start()
            .await
            .map_err(|error| failed(&error))?;
        ready(&worker).await?;
        Ok(worker)
    }

    async fn measure(&self, tenure: &Tenure) -> Result<Vec<f64>, Stop> {
        self.lock(|waits| *waits = vec![None; EVENTS]);
        let mut ticks = tokio::time::interval(DISTANCE);
        for nth in 0..EVENTS {
            ticks.tick().await;
            let event = Event::new(self.topic, &(nth, millis(&self.watch)))?;
            tenure.enqueue_now(event).await?;
        }
        until("all events are picked up", DISTANCE, async || {
            let missing = self.lock(|waits| waits.iter().filter(|wait| wait.is_none()).count());
            Ok(Headway::missing(u64::try_from(missing).unwrap_or(u64::MAX)))
        })
        .await?;
        Ok(self.lock(|waits| waits.iter().copied().flatten().collect()))
    }

    fn lock<T>(&self, look: impl FnOnce(&mut Vec<Option<f64>>) -> T) -> T {
        look(&mut self.waits.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Accepts every call; an idle sender makes none.
#[derive(Debug)]
struct Taker;

impl Caller for Taker {
    fn call<'a>(&'a self, _: &'a Request<'a>) -> Calling<'a> {
        Box::pin(async { Reply::status(204) })
    }
}

/// Statements per second of an idle process with a worker and a sender, such as `serve`. Each call
/// of the engine is one statement; the database's own count would include its maintenance.
pub(super) async fn idle(
    yardstick: &Yardstick,
    calls: &Calls<'_>,
    seconds: u64,
) -> Result<f64, Stop> {
    let tenure = open(yardstick).await?;
    let worker = tenure
        .worker()
        .on("*", |_, _| async { Ok(Outcome::Done) })
        .start()
        .await
        .map_err(|error| failed(&error))?;
    let left = Duties {
        reaper: Duty::Left,
        pruner: Duty::Left,
        replayer: Duty::Left,
    };
    let sender = tenure
        .sender(Arc::new(Taker))
        .duties(left)
        .start()
        .await
        .map_err(|error| failed(&error))?;
    // A worker becomes idle after a time; it sends no notification when it does.
    tokio::time::sleep(SETTLES).await;
    let before = calls.of(|_| true);
    let watch = Stopwatch::start();
    // The measured time.
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let after = calls.of(|_| true);
    let rate = watch.rate(u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX));
    sender.stop().await;
    worker.stop().await;
    Ok(rate)
}

/// Single enqueues by several producers at once; returns events per second.
pub(super) async fn one_by_one(
    yardstick: &Yardstick,
    events: u32,
    producers: u32,
) -> Result<f64, Stop> {
    let tenure = Arc::new(open(yardstick).await?);
    let each = events / producers;
    let watch = Stopwatch::start();
    let mut all = Vec::new();
    for _ in 0..producers {
        let tenure = Arc::clone(&tenure);
        all.push(tokio::spawn(async move {
            let event = event();
            for _ in 0..each {
                tenure.enqueue_now(event.clone()).await?;
            }
            Ok::<(), tenure::StoreError>(())
        }));
    }
    for producer in all {
        producer.await.map_err(std::io::Error::other)??;
    }
    Ok(watch.rate(each * producers))
}

fn millis(watch: &Stopwatch) -> f64 {
    watch.elapsed().as_secs_f64() * 1000.0
}

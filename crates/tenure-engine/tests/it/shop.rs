//! A shop: an engine that knows its handler is quick, so that it claims runs of keys; and what it
//! did, by key.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{Event, Failure, Fence, ItemId, Outcome, Setting, State};
use tenure_engine::metrics::REFUSED;
use tenure_engine::{Context, Engine, EngineConfig, EventFn, Handler};
use tokio::time::sleep;
use tracing::Level;

use crate::log;
use crate::meter::meter;
use crate::probe::{Call, Guard, Probe};
use crate::world::World;

pub(crate) const MILLI: Duration = Duration::from_millis(1);
pub(crate) const SECOND: Duration = Duration::from_secs(1);

/// A world, an engine whose handler is quick and known to be, and what it did.
pub(crate) struct Shop {
    pub(crate) world: World,
    pub(crate) probe: Probe,
    pub(crate) engine: Engine,
}

/// A handler that notes each call and then answers as `answer` says of the event and the attempt.
fn noting<A>(
    probe: &Probe,
    answer: impl Fn(Event, Context, Guard) -> A + Send + Sync + 'static,
) -> impl Handler
where
    A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    let probe = probe.clone();
    EventFn::new(move |event: Event, cx: Context| {
        let guard = probe.begin(&event, &cx);
        answer(event, cx, guard)
    })
}

impl Shop {
    /// Opened with so many slots, and warmed up: an engine that knows that its handler is quick
    /// claims runs.
    pub(crate) async fn open<A>(
        concurrency: &str,
        answer: impl Fn(Event, Context) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let config = World::config_with(&[(Setting::Concurrency, concurrency)]);
        Self::open_with(config, answer).await
    }

    pub(crate) async fn open_with<A>(
        config: EngineConfig,
        answer: impl Fn(Event, Context) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let world = World::new();
        let probe = Probe::default();
        let handler = noting(&probe, move |event, cx, guard| {
            let is_warming = event.ordering_key().is_none() && event.topic() == "order.paid";
            let answer = answer(event, cx);
            async move {
                let answer = if is_warming {
                    sleep(MILLI).await;
                    Ok(Outcome::Done)
                } else {
                    answer.await
                };
                guard.answered();
                answer
            }
        });
        world.enqueue(40).await;
        let engine = world.start(handler, config);
        world.until(|counts| counts.done == 40).await;
        Self {
            world,
            probe,
            engine,
        }
    }

    /// Writes so many events under one key; their payloads count from 0.
    pub(crate) async fn enqueue(&self, key: &str, count: u32) -> Vec<ItemId> {
        let events: Vec<Event> = (0..count).map(|n| keyed(key, n)).collect();
        self.world.enqueue_all(&events).await
    }

    /// The calls with these items, in order.
    pub(crate) fn calls(&self, ids: &[ItemId]) -> Vec<Call> {
        let mut calls = self.probe.calls();
        calls.retain(|call| ids.contains(&call.id));
        calls
    }

    /// Which of these items were called, in order.
    pub(crate) fn order(&self, ids: &[ItemId]) -> Vec<usize> {
        let nth = |call: Call| ids.iter().position(|id| *id == call.id).unwrap();
        self.calls(ids).into_iter().map(nth).collect()
    }

    pub(crate) async fn until_done(&self, ids: &[ItemId]) {
        let count = 40 + u64::try_from(ids.len()).unwrap();
        self.world.until(|counts| counts.done == count).await;
    }

    pub(crate) async fn states(&self, ids: &[ItemId]) -> Vec<State> {
        let mut states = Vec::new();
        for id in ids {
            states.push(self.world.find(*id).await.state);
        }
        states
    }

    /// Nothing that this engine said was refused, and it saw nothing that must not be.
    pub(crate) fn assert_sound(&self) {
        let worker = self.engine.worker();
        for line in log::lines(worker) {
            assert!(line.level != Level::ERROR, "{line:?}");
        }
        let refused = meter().count(worker, REFUSED, &[("why", "out_of_turn")]);
        assert_eq!(refused, 0);
    }
}

pub(crate) fn keyed(key: &str, n: u32) -> Event {
    Event::new("order.paid", &n).unwrap().key(key).unwrap()
}

/// How many of these calls were made under each claim, in order.
pub(crate) fn runs(calls: &[Call]) -> Vec<usize> {
    let mut runs: BTreeMap<Fence, usize> = BTreeMap::new();
    for call in calls {
        *runs.entry(call.fence).or_default() += 1;
    }
    runs.into_values().collect()
}

/// No two of these calls at the same time.
pub(crate) fn assert_one_at_a_time(calls: &[Call]) {
    for pair in calls.windows(2) {
        let ended = pair[0].ended.expect("the first has ended");
        assert!(ended <= pair[1].began, "{pair:?}");
    }
}

pub(crate) async fn done_after(length: Duration) -> Result<Outcome, Failure> {
    sleep(length).await;
    Ok(Outcome::Done)
}

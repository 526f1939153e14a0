//! An engine that has measured its handler as quick, so that it claims runs of keys; and the record
//! of its handler's calls.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::{Event, Failure, Fence, ItemId, NewEvent, Outcome, Setting, State};
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

/// A world, an engine whose handler is measured as quick, and the record of the handler's calls.
pub(crate) struct WarmEngine {
    pub(crate) world: World,
    pub(crate) probe: Probe,
    pub(crate) engine: Engine,
}

/// A handler that records each run and then answers with `answer`.
fn recording<A>(
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

impl WarmEngine {
    /// Starts an engine of this concurrency and warms it up, so that it claims runs.
    pub(crate) async fn start<A>(
        concurrency: &str,
        answer: impl Fn(Event, Context) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let config = World::config_with(&[(Setting::Concurrency, concurrency)]);
        Self::start_with(config, answer).await
    }

    pub(crate) async fn start_with<A>(
        config: EngineConfig,
        answer: impl Fn(Event, Context) -> A + Send + Sync + 'static,
    ) -> Self
    where
        A: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let world = World::new();
        let probe = Probe::default();
        let handler = recording(&probe, move |event, cx, guard| {
            let is_warming = event.key().is_none() && event.topic() == "order.paid";
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

    /// Enqueues `count` events of one key; their payloads count from 0.
    pub(crate) async fn enqueue(&self, key: &str, count: u32) -> Vec<ItemId> {
        let events: Vec<Event> = (0..count).map(|n| keyed(key, n)).collect();
        self.world.enqueue_all(&events).await
    }

    /// Handler runs of these items, in order.
    pub(crate) fn calls(&self, ids: &[ItemId]) -> Vec<Call> {
        let mut calls = self.probe.calls();
        calls.retain(|call| ids.contains(&call.id));
        calls
    }

    /// Indices of the items that ran, in order.
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

    /// Asserts that no settle was refused out of turn and nothing was logged as an error.
    pub(crate) fn assert_sound(&self) {
        let worker = self.engine.worker();
        for line in log::lines(worker) {
            assert!(line.level != Level::ERROR, "{line:?}");
        }
        let refused = meter().count(worker, REFUSED, &[("reason", "out_of_turn")]);
        assert_eq!(refused, 0);
    }
}

pub(crate) fn keyed(key: &str, n: u32) -> Event {
    NewEvent::new("order.paid", &n).key(key).build().unwrap()
}

/// Returns the number of handler runs under each claim, in order.
pub(crate) fn runs(calls: &[Call]) -> Vec<usize> {
    let mut runs: BTreeMap<Fence, usize> = BTreeMap::new();
    for call in calls {
        *runs.entry(call.fence).or_default() += 1;
    }
    runs.into_values().collect()
}

/// Asserts that no two handler runs overlap.
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

//! A store, a clock that is tokio's, and engines over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::store::{ChangeSettings, Cluster as _, Intake, Operate, Store};
use tenure_core::{
    Clock, Event, Guarded, ItemId, Record, Setting, Settings, State, Timestamp, Token, WorkerId,
};
use tenure_engine::{Engine, EngineConfig, Handler, Keeper, LeaseRows, Parts};
use tenure_store::memory::MemoryStore;
use tokio::time::Instant;

use crate::faulty::Faulty;
use crate::probe::{End, Probe};
use crate::{log, meter};

/// Tells tokio's time, so that a paused runtime moves the store's leases, too.
#[derive(Debug)]
pub(crate) struct TokioClock(Instant);

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// What this moment of tokio's is by this clock.
    fn at(&self, moment: Instant) -> Timestamp {
        Timestamp::from_micros(1_000_000_000).after(moment.saturating_duration_since(self.0))
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        self.at(Instant::now())
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
    /// What stands between the store and the engines.
    pub(crate) faulty: Arc<Faulty>,
    clock: Arc<TokioClock>,
}

/// A worker's name is never used twice in this program: log and metrics are told apart by it.
pub(crate) fn fresh_worker() -> WorkerId {
    static WORKERS: AtomicU64 = AtomicU64::new(1);
    WorkerId::new("worker", WORKERS.fetch_add(1, Ordering::Relaxed)).unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        log::keep();
        meter::meter();
        let clock = Arc::new(TokioClock::new());
        let judge: Arc<TokioClock> = Arc::clone(&clock);
        let store = Arc::new(MemoryStore::new(judge));
        Self {
            faulty: Arc::new(Faulty::new(Arc::clone(&store))),
            store,
            clock,
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        let store: Arc<Faulty> = Arc::clone(&self.faulty);
        store
    }

    /// The same as rows of a lease table.
    pub(crate) fn rows(&self) -> Arc<dyn LeaseRows> {
        let rows: Arc<Faulty> = Arc::clone(&self.faulty);
        rows
    }

    pub(crate) fn config() -> EngineConfig {
        EngineConfig {
            keeper: Keeper::SameRuntime,
            seed: Some(7),
            ..EngineConfig::default()
        }
    }

    /// The configuration with these settings of its own.
    pub(crate) fn config_with(values: &[(Setting, &str)]) -> EngineConfig {
        let mut settings = Settings::default();
        for (setting, text) in values {
            settings.set(*setting, text).unwrap();
        }
        EngineConfig {
            settings,
            ..Self::config()
        }
    }

    pub(crate) fn start(&self, handler: impl Handler, config: EngineConfig) -> Engine {
        Self::start_on(self.store(), handler, config)
    }

    /// Over another store that stands before this one.
    pub(crate) fn start_on(
        store: Arc<dyn Store>,
        handler: impl Handler,
        config: EngineConfig,
    ) -> Engine {
        Engine::start(Parts {
            store: Arc::clone(&store),
            keeper_store: store,
            worker: fresh_worker(),
            handler: Arc::new(handler),
            config,
            wrap: None,
        })
        .unwrap()
    }

    pub(crate) async fn enqueue(&self, count: u32) -> Vec<ItemId> {
        let events: Vec<Event> = (0..count)
            .map(|n| Event::new("order.paid", &n).unwrap())
            .collect();
        self.enqueue_all(&events).await
    }

    pub(crate) async fn enqueue_all(&self, events: &[Event]) -> Vec<ItemId> {
        let answers = self.store.enqueue(events).await.unwrap();
        answers.iter().map(|answer| answer.id()).collect()
    }

    pub(crate) async fn find(&self, id: ItemId) -> Record {
        self.store.find(&[id]).await.unwrap().remove(0)
    }

    /// The first call with each of these was dropped, and it was given back at no cost but the
    /// attempt.
    pub(crate) async fn assert_given_back(&self, probe: &Probe, ids: &[ItemId]) {
        for id in ids {
            assert_eq!(probe.of(*id)[0].end, Some(End::Dropped));
            let record = self.find(*id).await;
            assert_eq!(record.state, State::Pending);
            let counters = record.counters;
            assert_eq!(
                (counters.attempts, counters.failures, counters.crashes),
                (1, 0, 0)
            );
        }
    }

    /// Until when the store holds this item for someone.
    pub(crate) async fn locked_until(&self, id: ItemId) -> Timestamp {
        self.find(id).await.hold.expect("it is held").until
    }

    /// What this moment is by the store's clock.
    pub(crate) fn at(&self, moment: Instant) -> Timestamp {
        self.clock.at(moment)
    }

    /// The token of the claim that has this item.
    pub(crate) async fn token_of(&self, id: ItemId) -> Token {
        use tenure_core::store::{LeaseStore as _, Renew};
        let tokens = self.faulty.tokens().into_iter();
        for token in tokens {
            // A renewal for no time at all: it tells what is held and moves nothing.
            let term = tenure_core::Term::new(Duration::from_millis(1)).unwrap();
            let ask = Renew::new(vec![token], term);
            let answers = self.store.renew(&ask).await.unwrap();
            for (token, answer) in answers {
                if matches!(answer, Guarded::Kept(renewed) if renewed.ids.contains(&id)) {
                    return token;
                }
            }
        }
        panic!("nobody holds it");
    }

    /// Changes settings of the cluster: one change.
    pub(crate) async fn change(&self, values: &[(Setting, &str)]) {
        let values = values.iter();
        let change = ChangeSettings {
            version: self.store.settings().await.unwrap().version,
            values: values
                .map(|(setting, text)| (setting.as_str().to_owned(), Some((*text).to_owned())))
                .collect(),
        };
        assert!(self.store.change_settings(&change).await.unwrap().is_some());
    }

    /// Changes them and waits until this engine has taken them over.
    pub(crate) async fn change_and_follow(&self, engine: &Engine, values: &[(Setting, &str)]) {
        self.change(values).await;
        crate::probe::until(|| {
            let settings = engine.settings();
            values
                .iter()
                .all(|(setting, text)| settings.get(*setting) == *text)
        })
        .await;
    }

    /// Waits until this holds of the counts.
    pub(crate) async fn until(&self, holds: impl Fn(&tenure_core::store::Counts) -> bool) {
        for _ in 0..100_000 {
            if holds(&self.store.count(None).await.unwrap()) {
                return;
            }
            // A store gives no notice of its counts; this only lets paused time go on.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("it never came to that");
    }
}

//! A store, a clock in tokio's time, and engines over it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::store::{ChangeSettings, Cluster as _, Intake, Operate, Store};
use tenure_core::{
    Clock, Event, Guarded, ItemId, Record, Setting, Settings, State, Timestamp, Token, WorkerId,
};
use tenure_engine::{
    Context, Engine, EngineConfig, EventFn, Handler, Keeper, Leases, Parts, WithOptions,
};
use tenure_store::memory::MemoryStore;
use tokio::time::Instant;

use crate::faulty_store::FaultyStore;
use crate::probe::{End, Probe};
use crate::{log, meter};

/// Clock on tokio's time, so that the store's leases also end in paused time.
#[derive(Debug)]
pub(crate) struct TokioClock(Instant);

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    /// Converts a tokio instant to this clock.
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
    /// Fault injection between the store and the engines.
    pub(crate) faulty: Arc<FaultyStore>,
    clock: Arc<TokioClock>,
}

/// A worker id that is never used twice in this program; it distinguishes log lines and metrics.
pub(crate) fn fresh_worker() -> WorkerId {
    static WORKERS: AtomicU64 = AtomicU64::new(1);
    WorkerId::new("worker", WORKERS.fetch_add(1, Ordering::Relaxed)).unwrap()
}

/// A handler that completes every event and fans it out.
pub(crate) fn fan_out() -> WithOptions {
    let done = EventFn::new(|_: Event, _: Context| async { Ok(()) });
    WithOptions::fan_out(Arc::new(done))
}

impl World {
    pub(crate) fn new() -> Self {
        log::install();
        meter::meter();
        let clock = Arc::new(TokioClock::new());
        let judge: Arc<TokioClock> = Arc::clone(&clock);
        let store = Arc::new(MemoryStore::new(judge));
        Self {
            faulty: Arc::new(FaultyStore::new(Arc::clone(&store))),
            store,
            clock,
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        let store: Arc<FaultyStore> = Arc::clone(&self.faulty);
        store
    }

    /// Returns the same store as rows of a lease table.
    pub(crate) fn rows(&self) -> Leases {
        let rows: Arc<FaultyStore> = Arc::clone(&self.faulty);
        Leases::Rows(Arc::<FaultyStore>::clone(&rows), rows)
    }

    pub(crate) fn config() -> EngineConfig {
        EngineConfig {
            keeper: Keeper::SameRuntime,
            seed: Some(7),
            ..EngineConfig::default()
        }
    }

    /// Returns a configuration with these settings.
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

    /// Starts an engine over another store in front of this one.
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

    /// Asserts that the first run of each item was dropped, and that its release counted an attempt
    /// but no failure and no crash.
    pub(crate) async fn assert_released(&self, probe: &Probe, ids: &[ItemId]) {
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

    /// End of the lease on this item.
    pub(crate) async fn locked_until(&self, id: ItemId) -> Timestamp {
        self.find(id).await.hold.expect("it is held").until
    }

    /// Converts a tokio instant to the store's clock.
    pub(crate) fn at(&self, moment: Instant) -> Timestamp {
        self.clock.at(moment)
    }

    /// The token of the claim that holds this item.
    pub(crate) async fn token_of(&self, id: ItemId) -> Token {
        use tenure_core::store::{LeaseStore as _, Renew};
        let tokens = self.faulty.tokens().into_iter();
        for token in tokens {
            // A renewal by a minimal term returns the held items and extends nothing.
            let term = tenure_core::Term::new(Duration::from_millis(1)).unwrap();
            let call = Renew::new(vec![token], term);
            let answers = self.store.renew(&call).await.unwrap();
            for (token, answer) in answers {
                if matches!(answer, Guarded::Accepted(renewed) if renewed.ids.contains(&id)) {
                    return token;
                }
            }
        }
        panic!("the item is not held");
    }

    /// Changes settings of the cluster in one change.
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

    /// Changes settings and waits until this engine has applied them.
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

    /// Waits until the counts meet the condition.
    pub(crate) async fn until(&self, holds: impl Fn(&tenure_core::store::Counts) -> bool) {
        for _ in 0..100_000 {
            if holds(&self.store.count(None).await.unwrap()) {
                return;
            }
            // The store does not notify about counts; this lets paused time advance.
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the condition never held");
    }
}

//! A store, a clock that is tokio's, and engines over it.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Intake, Operate, Store};
use tenure_core::{Clock, Event, ItemId, Record, Timestamp, WorkerId};
use tenure_engine::{Engine, EngineConfig, Handler, Keeper, Parts};
use tenure_store::memory::MemoryStore;
use tokio::time::Instant;

/// Tells tokio's time, so that a paused runtime moves the store's leases, too.
#[derive(Debug)]
pub(crate) struct TokioClock(Instant);

impl TokioClock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }
}

impl Clock for TokioClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_micros(1_000_000_000).after(self.0.elapsed())
    }
}

pub(crate) struct World {
    pub(crate) store: Arc<MemoryStore>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            store: Arc::new(MemoryStore::new(Arc::new(TokioClock::new()))),
        }
    }

    pub(crate) fn store(&self) -> Arc<dyn Store> {
        let store: Arc<MemoryStore> = Arc::clone(&self.store);
        store
    }

    pub(crate) fn config() -> EngineConfig {
        EngineConfig {
            keeper: Keeper::SameRuntime,
            seed: Some(7),
            ..EngineConfig::default()
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
            worker: WorkerId::new("worker", 1).unwrap(),
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
        let answers = self.store.enqueue(&events).await.unwrap();
        answers.iter().map(|answer| answer.id()).collect()
    }

    pub(crate) async fn find(&self, id: ItemId) -> Record {
        self.store.find(&[id]).await.unwrap().remove(0)
    }

    /// Waits until this holds of the counts.
    pub(crate) async fn until(&self, holds: impl Fn(&tenure_core::store::Counts) -> bool) {
        for _ in 0..1_000_000 {
            if holds(&self.store.count(None).await.unwrap()) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("it never came to that");
    }
}

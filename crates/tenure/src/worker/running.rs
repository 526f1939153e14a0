//! A running worker, its health, and the errors that end it.

use std::future::Future;
use std::sync::{Arc, Weak};

use tenure_core::Invalid;
use tenure_engine::{Engine, Health, StopReport, Wake};
use tokio::sync::RwLock;

use crate::chunk::ChunkHome;

/// `None` once the worker is stopping.
type EngineSlot = RwLock<Option<Engine>>;

/// A running worker. Dropping it stops everything at once: its leases lapse.
#[derive(Debug)]
pub struct Worker {
    slot: Arc<EngineSlot>,
    /// The chunks that its handlers hold.
    chunks: Option<Arc<ChunkHome>>,
}

impl Worker {
    pub(super) fn new(engine: Engine, chunks: Option<Arc<ChunkHome>>) -> Self {
        Self {
            slot: Arc::new(RwLock::new(Some(engine))),
            chunks,
        }
    }

    /// Polls for work at once. [`Tenure::enqueue_now`](crate::Tenure::enqueue_now) does this by
    /// itself; after an enqueue in your own transaction, call it once that is committed.
    pub fn wake(&self) {
        self.watch().wake();
    }

    /// The worker's readiness and load.
    ///
    /// # Panics
    /// Never: a stopping worker is consumed.
    pub fn health(&self) -> Health {
        self.watch()
            .health()
            .expect("only `stop` empties the slot, and it consumes the worker")
    }

    /// A handle that does not keep the worker alive.
    pub fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.slot))
    }

    /// Waits until an internal task panics (a bug); returns its name and the reason.
    pub async fn failed(&self) -> String {
        match self.slot.read().await.as_ref() {
            Some(engine) => engine.failed().await,
            None => std::future::pending().await,
        }
    }

    /// Stops claiming, releases items that have not started, waits for running handlers until the
    /// shutdown timeout, then cancels and releases the rest.
    ///
    /// # Panics
    /// Never: a worker can be stopped only once.
    pub async fn stop(self) -> StopReport {
        let engine = self.slot.write().await.take();
        let report = engine
            .expect("only `stop` empties the slot, and it consumes the worker")
            .stop()
            .await;
        if let Some(home) = &self.chunks {
            home.cleared().await;
        }
        report
    }

    /// Runs until `end` completes, then stops; also returns the output of `end`.
    pub(super) async fn until<T>(
        self,
        end: impl Future<Output = T>,
    ) -> Result<(StopReport, T), WorkerError> {
        let ended = tokio::select! {
            output = end => Ok(output),
            why = self.failed() => Err(WorkerError::Failed(why)),
        };
        let report = self.stop().await;
        ended.map(|output| (report, output))
    }

    /// Returns a handle that wakes the engine; `None` once the worker is stopping.
    pub(super) fn waker(&self) -> Option<Wake> {
        self.slot.try_read().ok()?.as_ref().map(Engine::waker)
    }
}

/// A handle to a worker that does not keep it alive.
#[derive(Clone, Debug)]
pub struct Watch(Weak<EngineSlot>);

impl Watch {
    /// The worker's readiness and load; `None` once it is stopping.
    pub fn health(&self) -> Option<Health> {
        let slot = self.0.upgrade()?;
        let engine = slot.try_read().ok()?;
        engine.as_ref().map(Engine::health)
    }

    /// Polls for work at once, if the worker still runs.
    pub fn wake(&self) {
        if let Some(slot) = self.0.upgrade()
            && let Ok(engine) = slot.try_read()
            && let Some(engine) = engine.as_ref()
        {
            engine.wake();
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.strong_count() == 0
    }
}

/// Reason why a worker does not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// All problems of its handlers, names and settings.
    #[error("{}", listed(.0))]
    Invalid(Vec<Invalid>),
    /// The system refuses to deliver signals.
    #[error("signals cannot be received")]
    Signals(#[source] std::io::Error),
    /// A second signal arrived before the worker had stopped; its leases will lapse.
    #[error("a second signal ended the worker before it had stopped; its leases lapse")]
    Interrupted,
    /// An internal task panicked, which is a bug of Tenure; or the store failed in
    /// [`WorkerBuilder::run_until_idle`](crate::WorkerBuilder::run_until_idle).
    #[error("the worker failed: {0}")]
    Failed(String),
}

fn listed(problems: &[Invalid]) -> String {
    let texts: Vec<_> = problems.iter().map(ToString::to_string).collect();
    texts.join("; ")
}

//! Engine: builds, starts, drains and stops every task of a worker.

use std::fmt;
use std::sync::Arc;

use tenure_core::WorkerId;
use tenure_core::store::Store;

use crate::config::EngineConfig;
use crate::handler::Handler;
use crate::health::Health;

/// What an engine is made of.
pub struct Parts {
    /// Where it claims and settles.
    pub store: Arc<dyn Store>,
    /// The same database through connections of its own, for the heartbeat.
    pub keeper_store: Arc<dyn Store>,
    /// Who it is.
    pub worker: WorkerId,
    /// What it does with an item.
    pub handler: Arc<dyn Handler>,
    /// How it runs.
    pub config: EngineConfig,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("worker", &self.worker)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// A running engine. Dropping it stops everything at once: what is held lapses.
#[derive(Debug)]
pub struct Engine {
    worker: WorkerId,
}

/// How an engine ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Items that were given back unworked or unfinished.
    pub released: u32,
    /// Items whose handler could not be stopped; their leases lapse.
    pub left: u32,
}

impl Engine {
    /// Starts every task on the current runtime.
    ///
    /// # Errors
    /// Every problem of the settings.
    pub fn start(parts: Parts) -> Result<Self, Vec<tenure_core::Invalid>> {
        parts.config.settings.check()?;
        Ok(Self {
            worker: parts.worker,
        })
    }

    /// Looks for work at once; called after an enqueue in the same process.
    pub fn wake(&self) {}

    /// Where it stands.
    pub fn health(&self) -> Health {
        Health {
            worker: self.worker.clone(),
            checks: Vec::new(),
            running: 0,
            held: 0,
        }
    }

    /// Waits until a task of the engine fails, which it never should; answers which and why.
    pub async fn failed(&self) -> String {
        std::future::pending().await
    }

    /// Stops claiming, gives back what was not started, lets what runs finish within the shutdown
    /// time, cancels and gives back the rest, takes its leave.
    pub async fn stop(self) -> Ended {
        Ended {
            released: 0,
            left: 0,
        }
    }
}

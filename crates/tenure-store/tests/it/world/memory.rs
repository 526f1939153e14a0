//! The world of the memory store.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Enqueued, Intake, LeaseStore, Operate, Store};
use tenure_core::testing::ManualClock;
use tenure_core::{Event, ItemId, NewEvent};
use tenure_store::memory::MemoryStore;

use super::{Soon, T0, World};
use crate::faults::Fault;

struct Memory(MemoryStore);

/// A fresh memory store.
pub(crate) async fn memory() -> Box<dyn World> {
    Box::new(Memory(MemoryStore::new(clock())))
}

/// A fresh memory store that breaks one rule.
pub(crate) fn planted(fault: Fault) -> Box<dyn World> {
    Box::new(Memory(fault.store(clock())))
}

/// A clock that starts a day before [`T0`], as the clock of a database is before it.
fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::new(T0.before(Duration::from_hours(24))))
}

/// Creates an event per rank; events with a smaller rank are due sooner.
pub(crate) fn ranked_events(ranks: &[u32]) -> Vec<Event> {
    let event = |rank: &u32| {
        NewEvent::from_json("order.paid", format!("{{\"rank\":{rank}}}"))
            .delay(Duration::from_secs(u64::from(*rank)))
            .build()
            .expect("the event is well formed")
    };
    ranks.iter().map(event).collect()
}

/// Adds an event per rank to an outbox.
pub(crate) async fn enqueue_ranked(intake: &dyn Intake, ranks: &[u32]) -> Vec<ItemId> {
    let answers = intake.enqueue(&ranked_events(ranks)).await;
    let ids = answers.expect("enqueue");
    ids.into_iter().map(Enqueued::id).collect()
}

impl World for Memory {
    fn lease(&self) -> &dyn LeaseStore {
        &self.0
    }

    fn operate(&self) -> &dyn Operate {
        &self.0
    }

    fn outbox(&self) -> Option<&dyn Store> {
        Some(&self.0)
    }

    fn add_ranked<'a>(&'a self, ranks: &'a [u32]) -> Soon<'a, Vec<ItemId>> {
        Box::pin(enqueue_ranked(&self.0, ranks))
    }

    fn dump(&self) -> Soon<'_, String> {
        Box::pin(async { self.0.dump() })
    }
}

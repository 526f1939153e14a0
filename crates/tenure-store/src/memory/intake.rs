//! Enqueue: all of the events or none.

use std::sync::Arc;

use tenure_core::store::{Answer, Enqueued, Intake, StoreError};
use tenure_core::{Event, ItemId, Timestamp};
use uuid::{Builder, Uuid};

use super::rules::Rules;
use super::{MemoryState, MemoryStore, StoredItem};
use crate::messages::unknown_queue;

impl Intake for MemoryStore {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        Box::pin(async move {
            let now = self.moment(None);
            self.state().enqueue(events, &self.rules, now)
        })
    }
}

impl MemoryState {
    fn enqueue(
        &mut self,
        events: &[Event],
        rules: &Rules,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, StoreError> {
        // Check all events before writing the first.
        let mut numbers = Vec::with_capacity(events.len());
        for event in events {
            numbers.push(self.accept(event)?);
        }
        Ok(events
            .iter()
            .zip(numbers)
            .map(|(event, queue)| self.keep(event, queue, rules, now))
            .collect())
    }

    /// Returns the number of the event's queue if the event is acceptable.
    fn accept(&self, event: &Event) -> Result<i32, StoreError> {
        match self.queues.get(event.queue()) {
            Some(line) => Ok(line.number),
            None => Err(unknown_queue("enqueue", event.queue())),
        }
    }

    fn keep(&mut self, event: &Event, queue: i32, rules: &Rules, now: Timestamp) -> Enqueued {
        if let Some(id) = event.dedupe().and_then(|key| self.dedupe.get(key)) {
            return Enqueued::Existed { id: *id };
        }
        self.last_id += 1;
        let id = ItemId::new(self.last_id);
        let event_id = event.event_id().unwrap_or_else(|| draw_id(now));
        if let Some(key) = event.dedupe() {
            self.dedupe.insert(key.to_owned(), id);
        }
        let kept = StoredItem::new(Arc::new(event.clone().with_event_id(event_id)), queue, now);
        self.items.insert(id, kept);
        self.place(id, rules, now);
        Enqueued::Fresh { id, event_id }
    }
}

/// Generates an event id with the time of the store's clock, which tests can set.
fn draw_id(now: Timestamp) -> Uuid {
    let millis = u64::try_from(now.as_micros() / 1000).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &rand::random()).into_uuid()
}

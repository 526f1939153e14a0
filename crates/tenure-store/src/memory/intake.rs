//! Enqueue: all of the events or none.

use std::sync::Arc;

use tenure_core::store::{Answer, Enqueued, Intake, StoreError};
use tenure_core::{Event, ItemId, Timestamp};
use uuid::{Builder, Uuid};

use super::rules::Rules;
use super::{Kept, MemoryStore, Shelf};
use crate::complaint::unknown_queue;

impl Intake for MemoryStore {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        Box::pin(async move {
            let now = self.moment(None);
            self.shelf().enqueue(events, &self.rules, now)
        })
    }
}

impl Shelf {
    fn enqueue(
        &mut self,
        events: &[Event],
        rules: &Rules,
        now: Timestamp,
    ) -> Result<Vec<Enqueued>, StoreError> {
        // All are checked before the first is written.
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

    /// The number of the event's queue, if the event can be taken.
    fn accept(&self, event: &Event) -> Result<i32, StoreError> {
        match self.queues.get(event.queue_name()) {
            Some(line) => Ok(line.number),
            None => Err(unknown_queue("enqueue", event.queue_name())),
        }
    }

    fn keep(&mut self, event: &Event, queue: i32, rules: &Rules, now: Timestamp) -> Enqueued {
        if let Some(id) = event.dedupe_key().and_then(|key| self.dedupe.get(key)) {
            return Enqueued::Existed { id: *id };
        }
        self.last_id += 1;
        let id = ItemId::new(self.last_id);
        let event_id = event.event_id().unwrap_or_else(|| draw_id(now));
        if let Some(key) = event.dedupe_key() {
            self.dedupe.insert(key.to_owned(), id);
        }
        let kept = Kept::new(Arc::new(event.clone().id(event_id)), queue, now);
        self.items.insert(id, kept);
        self.place(id, rules, now);
        Enqueued::Fresh { id, event_id }
    }
}

/// A new id for the receiver; its time is the store's, so that tests can move it.
fn draw_id(now: Timestamp) -> Uuid {
    let millis = u64::try_from(now.as_micros() / 1000).unwrap_or(0);
    Builder::from_unix_timestamp_millis(millis, &rand::random()).into_uuid()
}

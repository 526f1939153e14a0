//! `ItemLabel`: the fields that identify an item in the log.

use tenure_core::{Content, Event, Item, ItemId, QueueName, Record};
use uuid::Uuid;

/// The fields that identify an item in the log.
#[derive(Debug)]
pub(crate) struct ItemLabel {
    pub(crate) id: ItemId,
    pub(crate) event_id: Option<Uuid>,
    pub(crate) topic: Option<String>,
    pub(crate) key: Option<String>,
    /// `None` for a delivery or a row.
    pub(crate) queue: Option<QueueName>,
    /// Number of this attempt, from 1.
    pub(crate) attempt: u32,
}

impl ItemLabel {
    /// The label of a claimed item.
    pub(crate) fn of(item: &Item) -> Self {
        Self::new(
            item.id,
            &item.content,
            item.counters.attempts.saturating_add(1),
        )
    }

    /// The label of an item whose last attempt has ended.
    pub(crate) fn of_record(record: &Record) -> Self {
        Self::new(record.id, &record.content, record.counters.attempts)
    }

    fn new(id: ItemId, content: &Content, attempt: u32) -> Self {
        let event = content.event();
        let own = event.filter(|_| !id.is_delivery());
        Self {
            id,
            event_id: event.and_then(Event::event_id),
            topic: event.map(|event| event.topic().to_owned()),
            key: event.and_then(Event::key).map(str::to_owned),
            queue: own.map(|event| event.queue().clone()),
            attempt,
        }
    }
}

/// Logs at this level with the fields of a label.
macro_rules! log_item {
    ($level:ident, $label:expr, $($rest:tt)*) => {
        tracing::$level!(
            item = %$label.id,
            event = $label.event_id.map(tracing::field::display),
            topic = $label.topic,
            key = $label.key,
            queue = $label.queue.as_ref().map(tenure_core::QueueName::as_str),
            attempt = $label.attempt,
            $($rest)*
        )
    };
}

pub(crate) use log_item;

//! Queues of claimed items, for the metrics.

use std::collections::BTreeMap;

use tenure_core::{Content, Item, ItemId, QueueName};

/// Queues of the items of one claim; most often a single queue.
#[derive(Debug, Default)]
pub(crate) struct ItemQueues {
    first: Option<QueueName>,
    /// Items of other queues than the first.
    others: BTreeMap<ItemId, QueueName>,
}

impl ItemQueues {
    pub(crate) fn new(items: &[Item]) -> Self {
        let mut queues = items.iter().filter_map(|item| match &item.content {
            Content::Event(event) => Some((item.id, event.queue())),
            Content::Delivery(_) | Content::Row(_) => None,
        });
        let Some((_, first)) = queues.next() else {
            return Self::default();
        };
        let others = queues.filter(|(_, queue)| *queue != first);
        Self {
            others: others.map(|(id, queue)| (id, queue.clone())).collect(),
            first: Some(first.clone()),
        }
    }

    /// The queue of an item; empty for deliveries and rows, which have no queue.
    pub(crate) fn get(&self, id: ItemId) -> &str {
        let queue = self.others.get(&id).or(self.first.as_ref());
        queue.map_or("", QueueName::as_str)
    }
}

//! Cache of queue names and numbers; a queue's number never changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use tenure_core::QueueName;

use crate::lane::{Lane, queue_of};

/// The queues as of the last reload. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(crate) struct Directory {
    numbers: Arc<BTreeMap<QueueName, i32>>,
    names: Arc<BTreeMap<i32, QueueName>>,
}

impl Directory {
    pub(crate) fn new(queues: impl Iterator<Item = (QueueName, i32)>) -> Self {
        let numbers: BTreeMap<QueueName, i32> = queues.collect();
        let names = numbers
            .iter()
            .map(|(name, number)| (*number, name.clone()))
            .collect();
        Self {
            numbers: Arc::new(numbers),
            names: Arc::new(names),
        }
    }

    pub(crate) fn number(&self, name: &QueueName) -> Option<i32> {
        self.numbers.get(name).copied()
    }

    /// The name of the queue that a lane belongs to, if known.
    pub(crate) fn name(&self, lane: Lane) -> Option<&QueueName> {
        self.names.get(&queue_of(lane))
    }
}

//! Cache of queues, their separate topics and their numbers; a number never changes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure_core::{QueueName, TopicSet};

use super::cursor::monotonic_now;
use crate::lane::{Lane, queue_of};

/// Age at which a producer reads the directory again, to learn of topics that became separate.
const AGE_MAX: Duration = Duration::from_secs(10);

/// The queues as of the last reload. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    queues: Arc<BTreeMap<QueueName, QueueNumbers>>,
    names: Arc<BTreeMap<i32, QueueName>>,
    read_at: Instant,
}

/// The number of a queue, and those of its separate topics.
#[derive(Clone, Debug, Default)]
struct QueueNumbers {
    /// `None` only while a row of the queue is missing.
    own: Option<i32>,
    topics: BTreeMap<String, i32>,
}

impl Default for Directory {
    fn default() -> Self {
        Self::new(std::iter::empty())
    }
}

impl Directory {
    /// Creates a directory from queues, topics (empty for the queue itself) and numbers.
    pub(crate) fn new(rows: impl Iterator<Item = (QueueName, String, i32)>) -> Self {
        let mut queues: BTreeMap<QueueName, QueueNumbers> = BTreeMap::new();
        let mut names = BTreeMap::new();
        for (queue, topic, number) in rows {
            names.insert(number, queue.clone());
            let numbers = queues.entry(queue).or_default();
            if topic.is_empty() {
                numbers.own = Some(number);
            } else {
                numbers.topics.insert(topic, number);
            }
        }
        Self {
            queues: Arc::new(queues),
            names: Arc::new(names),
            read_at: monotonic_now(),
        }
    }

    /// The number of a queue.
    pub(crate) fn number(&self, name: &QueueName) -> Option<i32> {
        self.queues.get(name)?.own
    }

    /// The number for events of this topic: that of the topic if it is separate, or of the queue.
    pub(crate) fn number_for(&self, name: &QueueName, topic: &str) -> Option<i32> {
        let numbers = self.queues.get(name)?;
        numbers.topics.get(topic).copied().or(numbers.own)
    }

    /// The number of a separate topic.
    pub(crate) fn separate(&self, name: &QueueName, topic: &str) -> Option<i32> {
        self.queues.get(name)?.topics.get(topic).copied()
    }

    /// The numbers of a queue and of those of its separate topics that are taken.
    pub(crate) fn numbers(&self, name: &QueueName, taken: &TopicSet) -> Vec<i32> {
        let Some(numbers) = self.queues.get(name) else {
            return Vec::new();
        };
        let topics = numbers.topics.iter();
        let topics = topics.filter(|(topic, _)| taken.takes(topic));
        numbers
            .own
            .into_iter()
            .chain(topics.map(|(_, number)| *number))
            .collect()
    }

    /// The name of the queue that a lane belongs to, if known.
    pub(crate) fn name(&self, lane: Lane) -> Option<&QueueName> {
        self.names.get(&queue_of(lane))
    }

    /// Returns true if this is the highest number of a queue or separate topic.
    pub(crate) fn ends_with(&self, last: i32) -> bool {
        self.names
            .last_key_value()
            .is_some_and(|(number, _)| *number == last)
    }

    /// Returns true if a producer should read the directory again.
    pub(crate) fn is_old(&self) -> bool {
        monotonic_now().duration_since(self.read_at) >= AGE_MAX
    }
}

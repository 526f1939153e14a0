//! Operate and Queues: the store operations for operators.

use std::fmt;
use std::time::Duration;

use super::Answer;
use crate::guard::Guarded;
use crate::item::{ItemId, PastHold, Record};
use crate::lease::Term;
use crate::queue::QueueName;
use crate::retry::RetryRules;
use crate::state::State;
use crate::time::Timestamp;
use crate::token::Token;

/// Filter for listing items. The default selects all events.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only this state.
    pub state: Option<State>,
    /// Only this topic. A lease table has no topics and ignores it.
    pub topic: Option<String>,
    /// Only this queue. A lease table has no queues and ignores it.
    pub queue: Option<QueueName>,
    /// Only this key. A lease table has no keys and ignores it.
    pub key: Option<String>,
    /// Only items written at or after this time.
    pub since: Option<Timestamp>,
    /// Only items written before this time.
    pub until: Option<Timestamp>,
    /// Events, or deliveries.
    pub kind: Kind,
    /// Only deliveries for the endpoint with this number.
    pub endpoint: Option<u32>,
    /// Only deliveries of this event.
    pub source: Option<ItemId>,
    /// Only items before this id, for the next page.
    pub before: Option<ItemId>,
}

/// Kind of the listed items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Events.
    #[default]
    Events,
    /// Deliveries: events for endpoints.
    Deliveries,
}

impl Filter {
    /// Maximum page size.
    pub const PAGE_MAX: u32 = 1000;
}

/// A page of items, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Items of the page.
    pub records: Vec<Record>,
    /// [`Filter::before`] of the next page; `None` at the end.
    pub next: Option<ItemId>,
}

/// Counts of items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Pending items of each queue, ordered by name; those of a lease table count under `default`.
    pub queues: Vec<(QueueName, QueueCounts)>,
    /// Held under a lease, live or lapsed.
    pub claimed: u64,
    /// Held under a lease whose term is over.
    pub lapsed: u64,
    /// Settled with success.
    pub done: u64,
    /// Settled for good without success.
    pub dead: u64,
    /// Keys whose head has been retried for over [`KeyRecord::RETRIED_LONG`](super::KeyRecord)
    /// with items behind it, among the 1000 items whose next retry is latest.
    pub retried_keys: u64,
    /// Deliveries; not included in the counts above.
    pub deliveries: DeliveryCounts,
}

/// Counts of deliveries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// Pending deliveries by the endpoint's [number](crate::webhook::Endpoint::number), in
    /// ascending order; endpoints without pending deliveries are left out.
    pub endpoints: Vec<(u32, QueueCounts)>,
    /// Held under a lease, live or lapsed.
    pub claimed: u64,
    /// Held under a lease whose term is over.
    pub lapsed: u64,
    /// Settled with success.
    pub delivered: u64,
    /// Settled for good without success.
    pub dead: u64,
}

/// Pending items of one queue or endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// Claimable now.
    pub due: u64,
    /// Claimable later.
    pub delayed: u64,
    /// Behind another item of their key.
    pub behind: u64,
    /// Waiting time of the oldest due item; `None` if none is due.
    pub oldest_due: Option<Duration>,
}

impl Counts {
    /// Pending items of all queues.
    pub fn pending(&self) -> u64 {
        self.queues
            .iter()
            .map(|(_, queue)| queue.due + queue.delayed + queue.behind)
            .sum()
    }
}

/// Order to make settled items pending again.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Items to replay.
    pub ids: Vec<ItemId>,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl Replay {
    /// Creates an order to replay these items.
    pub fn new(ids: Vec<ItemId>) -> Self {
        Self { ids, now: None }
    }

    /// Overrides the current time, for tests.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// Result of a replay per item, in the order of the request.
pub type Replayed = Vec<(ItemId, Guarded)>;

/// Order to settle an open item as dead now, held or not.
#[derive(Clone, Debug)]
pub struct Bury {
    /// Item to bury.
    pub id: ItemId,
    /// Operator's token. Since there is no transition from pending to dead, the store claims a
    /// pending item under this token and settles it as dead in one step.
    pub token: Token,
    /// Reason, for people.
    pub reason: String,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl Bury {
    /// Creates an order to settle this item as dead by the operator's `token`; `reason` is for
    /// people.
    pub fn new(id: ItemId, token: Token, reason: impl Into<String>) -> Self {
        Self {
            id,
            token,
            reason: reason.into(),
            now: None,
        }
    }

    /// Overrides the current time, for tests.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// Store operations for operators. The same guards apply as for workers.
pub trait Operate: Send + Sync + fmt::Debug {
    /// Reads these items; unknown ids are left out.
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>>;

    /// Past leases on an item, oldest first. Empty for a lease table, which has no journal.
    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<PastHold>>;

    /// Lists up to `limit` (at most [`Filter::PAGE_MAX`]) items, newest first.
    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page>;

    /// Counts items in one snapshot.
    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts>;

    /// Makes settled items pending again: a new generation, counters at zero, claimable now.
    /// Refused for an item that is not settled. An item with a key goes to the tail of its key; a
    /// dead item that blocks its key becomes the head again.
    ///
    /// Rules: 4, 6, 7.
    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed>;

    /// Settles an item as dead; from then on the store refuses the settle of its holder. The key
    /// always continues with the next item, even with [`OnDead::Block`](crate::OnDead::Block).
    ///
    /// Rules: 5, 6, 7.
    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded>;
}

/// A queue of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Name of the queue.
    pub name: QueueName,
    /// Its own rules.
    pub rules: QueueRules,
    /// Claims skip it.
    pub paused: bool,
}

/// Rules of a queue that override the settings of its workers; the default overrides nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueRules {
    /// Term of leases on its events, if it has its own.
    pub term: Option<Term>,
    /// Retries of its events; the rules of a handler override them.
    pub retry: RetryRules,
}

impl QueueRules {
    /// Returns these rules, completed by `other`: each value of `self` comes first.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            term: self.term.or(other.term),
            retry: self.retry.or(other.retry),
        }
    }
}

/// A topic with lanes of its own, apart from the other topics of its queue: only claims that take
/// the topic read them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeparateTopic {
    /// Queue of the events.
    pub queue: QueueName,
    /// Their topic.
    pub topic: String,
    /// Claimable now.
    pub due: u64,
    /// Claimable later.
    pub delayed: u64,
    /// Waiting time of the oldest due event; `None` if none is due.
    pub oldest_due: Option<Duration>,
}

/// Order to pause or resume a queue or a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// Claims skip it from now on.
    Begin,
    /// Claims take from it again.
    End,
}

/// Store operations for the queues of the outbox.
pub trait Queues: Send + Sync + fmt::Debug {
    /// Lists all queues by name.
    fn queues(&self) -> Answer<'_, Vec<Queue>>;

    /// Lists the topics that have lanes of their own, by queue and topic: those of events that a
    /// claim came across and did not take.
    fn separate_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<SeparateTopic>>;

    /// Lists the queues and separate topics that have a due event and are not paused. `None`: the
    /// topics of the queue that are not separate.
    fn due_topics(&self, now: Option<Timestamp>) -> Answer<'_, Vec<(QueueName, Option<String>)>>;

    /// Adds a queue, or changes the rules of an existing one.
    fn add_queue<'a>(&'a self, name: &'a QueueName, rules: QueueRules) -> Answer<'a, ()>;

    /// Pauses or resumes a queue. Refused if it does not exist.
    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded>;
}

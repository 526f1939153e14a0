//! Operate and Queues: what operators ask of a store.

use std::fmt;
use std::time::Duration;

use super::Answer;
use crate::guard::Guarded;
use crate::item::{EndedHold, ItemId, Record};
use crate::lease::Term;
use crate::queue::QueueName;
use crate::state::State;
use crate::time::Timestamp;
use crate::token::Token;

/// Which items to list. The default lists the newest of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only those in this state.
    pub state: Option<State>,
    /// Only those of this topic. A lease table has no topics and ignores it.
    pub topic: Option<String>,
    /// Only those of this queue. A lease table has no queues and ignores it.
    pub queue: Option<QueueName>,
    /// Only those of this domain. A lease table has no domains and ignores it.
    pub key: Option<String>,
    /// Only those written at or after this moment.
    pub since: Option<Timestamp>,
    /// Written before then.
    pub until: Option<Timestamp>,
    /// Events, or deliveries.
    pub kind: Kind,
    /// Owed to the endpoint with this number; only for deliveries.
    pub endpoint: Option<u32>,
    /// Of this event; only for deliveries.
    pub source: Option<ItemId>,
    /// Only those before this id: the next page after one that ended with it.
    pub before: Option<ItemId>,
}

/// What is listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Events.
    #[default]
    Events,
    /// Deliveries: events owed to endpoints.
    Deliveries,
}

impl Filter {
    /// No page is longer.
    pub const PAGE_MAX: u32 = 1000;
}

/// A page of items, newest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The items.
    pub records: Vec<Record>,
    /// What to ask for next: [`Filter::before`]; `None` at the end.
    pub next: Option<ItemId>,
}

/// How many items stand where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Per queue, in the order of their names; a lease table counts under `default`.
    pub queues: Vec<(QueueName, QueueCounts)>,
    /// Held under a lease, live or lapsed.
    pub claimed: u64,
    /// Held under a lease whose term is over.
    pub lapsed: u64,
    /// Settled with success.
    pub done: u64,
    /// Settled for good without success.
    pub dead: u64,
    /// Deliveries; the figures above are without them.
    pub deliveries: DeliveryCounts,
}

/// How many deliveries stand where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeliveryCounts {
    /// What waits, per endpoint's [number](crate::webhook::Endpoint::number), in the order of the
    /// numbers; only those for which something waits.
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

/// What waits in one queue.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueCounts {
    /// May be claimed now.
    pub due: u64,
    /// May be claimed later.
    pub delayed: u64,
    /// Wait behind another item of their domain.
    pub behind: u64,
    /// How long the first one that may be claimed has waited.
    pub oldest_due: Option<Duration>,
}

impl Counts {
    /// All that wait.
    pub fn pending(&self) -> u64 {
        self.queues
            .iter()
            .map(|(_, queue)| queue.due + queue.delayed + queue.behind)
            .sum()
    }
}

/// Asks to put settled items back.
#[derive(Clone, Debug)]
pub struct Replay {
    /// Which.
    pub ids: Vec<ItemId>,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl Replay {
    /// Puts these items back.
    pub fn new(ids: Vec<ItemId>) -> Self {
        Self { ids, now: None }
    }

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// A replay's answer per item, in the order asked.
pub type Replayed = Vec<(ItemId, Guarded)>;

/// Asks to settle an item dead, now, whoever holds it.
#[derive(Clone, Debug)]
pub struct Bury {
    /// Which.
    pub id: ItemId,
    /// The operator's token: a pending item is claimed under it and settled dead in one step, since
    /// there is no way from pending to dead.
    pub token: Token,
    /// Why, for people.
    pub reason: String,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl Bury {
    /// Settles this item dead by the operator's `token`; `reason` is for people.
    pub fn new(id: ItemId, token: Token, reason: impl Into<String>) -> Self {
        Self {
            id,
            token,
            reason: reason.into(),
            now: None,
        }
    }

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// The operator's verbs. They pass the same guards as everyone's.
pub trait Operate: Send + Sync + fmt::Debug {
    /// Everything that is known of these items; unknown ids are left out.
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>>;

    /// The ended holds of an item, oldest first. A lease table keeps no journal: empty.
    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<EndedHold>>;

    /// Up to `limit` (at most [`Filter::PAGE_MAX`]) items, newest first.
    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page>;

    /// How many items stand where, in one snapshot.
    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts>;

    /// Puts settled items back: a new generation, counters at zero, claimable now. Refused for
    /// what is not settled. An item of a domain goes to its tail; the one that is dead and blocks
    /// its domain is its head again.
    ///
    /// Laws: 4, 6, 7.
    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed>;

    /// Settles an item dead; its holder's token is refused for it from then on. A domain goes on
    /// with its next item, whatever [`OnDead`](crate::OnDead) says: the operator has decided.
    ///
    /// Laws: 5, 6, 7.
    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded>;
}

/// A named line of events.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    /// Its name.
    pub name: QueueName,
    /// The term of leases on its events, if it has its own.
    pub term: Option<Term>,
    /// Whether claims pass it by.
    pub paused: bool,
}

/// What an operator says of the claims on a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pause {
    /// They pass it by from now on.
    Begin,
    /// They take from it again.
    End,
}

/// The queues of the outbox.
pub trait Queues: Send + Sync + fmt::Debug {
    /// All queues, by name.
    fn queues(&self) -> Answer<'_, Vec<Queue>>;

    /// Declares a queue, or gives one that is there another term.
    fn add_queue<'a>(&'a self, name: &'a QueueName, term: Option<Term>) -> Answer<'a, ()>;

    /// Begins or ends the pause of a queue. Refused when there is no such queue.
    fn pause_queue<'a>(&'a self, name: &'a QueueName, pause: Pause) -> Answer<'a, Guarded>;
}

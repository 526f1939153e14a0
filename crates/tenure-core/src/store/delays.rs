//! Delays: items that wait for another attempt, and the order to make them due now.

use std::fmt;

use super::Answer;
use crate::item::ItemId;
use crate::queue::QueueName;
use crate::time::Timestamp;
use crate::token::Token;

/// Order to make pending items due now. Counters and errors stay as they are.
#[derive(Clone, Debug)]
pub struct RetryNow {
    /// Items to make due.
    pub ids: Vec<ItemId>,
    /// Operator's token. The journal records the order as a lease of no length under this token,
    /// released at once.
    pub token: Token,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl RetryNow {
    /// Creates an order to make these items due, by the operator's `token`.
    pub fn new(ids: Vec<ItemId>, token: Token) -> Self {
        Self {
            ids,
            token,
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

words! {
    /// Answer for one item of a [`RetryNow`]. Only `DueNow` has changed anything.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[must_use = "most answers mean that the item was not changed"]
    pub enum RetryAnswer: as_str, ALL {
        /// The item waited for a later time and is due now.
        DueNow = "due_now",
        /// The item was due before.
        AlreadyDue = "already_due",
        /// The item waits behind the head of its key, or its key is paused.
        Behind = "behind",
        /// A worker holds the item.
        Held = "held",
        /// The item is done.
        Done = "done",
        /// The item is dead.
        Dead = "dead",
        /// The item does not exist.
        NotFound = "not_found",
    }
}

impl RetryAnswer {
    /// Returns the answer with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|answer| answer.as_str() == word)
    }
}

/// Owner of the items to list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DelayedIn {
    /// Events of all queues.
    Queues,
    /// Events of one queue.
    Queue(QueueName),
    /// Deliveries to the endpoint with this number.
    Endpoint(u32),
}

/// Request for the items that wait for another attempt: a worker has held them before, and they may
/// be claimed at a later time. An item that was enqueued with a delay and never held is not among
/// them, nor is one behind the head of its key.
#[derive(Clone, Debug)]
pub struct ListDelayed {
    /// Queues or endpoint.
    pub of: DelayedIn,
    /// Only this topic.
    pub topic: Option<String>,
    /// Continue after this position.
    pub after: Option<DelayPosition>,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl ListDelayed {
    /// Maximum items that one request examines; those of another topic count as well.
    pub const STEP: u32 = 1_000;

    /// Creates a request for the first items.
    pub fn new(of: DelayedIn) -> Self {
        Self {
            of,
            topic: None,
            after: None,
            now: None,
        }
    }
}

/// Position in the list of delayed items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DelayPosition {
    /// Lane of the last item that was examined.
    pub lane: i32,
    /// Time at which that item is due.
    pub at: Timestamp,
    /// Its id.
    pub id: ItemId,
}

/// Some of the delayed items.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DelayedPage {
    /// Items that match.
    pub ids: Vec<ItemId>,
    /// [`ListDelayed::after`] of the next request; `None` at the end.
    pub next: Option<DelayPosition>,
}

/// Store operations on the delays of pending items.
pub trait Delays: Send + Sync + fmt::Debug {
    /// Lists items that wait for another attempt, in steps.
    fn delayed<'a>(&'a self, list: &'a ListDelayed) -> Answer<'a, DelayedPage>;

    /// Makes pending items due now; answers for each item, in the order of the request. Uses up no
    /// attempt and resets none.
    ///
    /// Rules: 6, 7.
    fn retry_now<'a>(&'a self, retry: &'a RetryNow) -> Answer<'a, Vec<(ItemId, RetryAnswer)>>;
}

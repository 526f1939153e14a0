//! Item: anything that can be leased, and its stored facts.

use std::fmt;
use std::str::FromStr;

use crate::event::Event;
use crate::invalid::Invalid;
use crate::lease::Lease;
use crate::outcome::OutcomeKind;
use crate::state::State;
use crate::time::Timestamp;
use crate::token::Fence;
use crate::webhook::Delivery;

/// Number of an item within its store. Deliveries have separate numbers, above
/// [`ItemId::FIRST_DELIVERY`], and are written `d1`, `d2` …; so an id reveals its kind.
///
/// ```
/// use tenure_core::ItemId;
///
/// let delivery: ItemId = "d17".parse()?;
/// assert!(delivery.is_delivery() && !ItemId::new(17).is_delivery());
/// assert_eq!((delivery.to_string(), ItemId::new(17).to_string()), ("d17".into(), "17".into()));
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ItemId(i64);

impl ItemId {
    /// Offset of the numbers of deliveries: delivery `d1` has this number plus 1. No event has a
    /// larger number than this. A double represents it exactly.
    pub const FIRST_DELIVERY: i64 = 1 << 52;

    /// Creates the id with this number.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// Raw number.
    pub const fn number(self) -> i64 {
        self.0
    }

    /// Returns true for a delivery.
    pub const fn is_delivery(self) -> bool {
        self.0 > Self::FIRST_DELIVERY
    }
}

impl fmt::Display for ItemId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_delivery() {
            return f.pad(&format!("d{}", self.0 - Self::FIRST_DELIVERY));
        }
        self.0.fmt(f)
    }
}

impl FromStr for ItemId {
    type Err = Invalid;

    /// Parses a number, or `d` and the number of a delivery.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        // `i64` would accept a sign.
        let is_plain = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        let parse = |digits: &str| digits.parse::<i64>().ok().filter(|_| is_plain(digits));
        let number = match text.strip_prefix('d') {
            Some(digits) => parse(digits)
                .filter(|nth| *nth > 0)
                .and_then(|nth| Self::FIRST_DELIVERY.checked_add(nth)),
            None => parse(text),
        };
        number.map(Self).ok_or_else(|| {
            let digits = text.strip_prefix('d').unwrap_or(text);
            let expected = if !digits.is_empty() && is_plain(digits) && digits != "0" {
                "a smaller number, such as 17, or d17 for a delivery"
            } else {
                "a number such as 17, or d17 for a delivery"
            };
            Invalid::new("id", format!("{text:?}"), expected)
        })
    }
}

/// Counters of an item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Leases that ended with any outcome except done, since the last replay.
    pub attempts: u32,
    /// Failures that a holder reported, since the last replay.
    pub failures: u32,
    /// Leases that lapsed, since the last replay.
    pub crashes: u32,
    /// Number of replays.
    pub generation: u32,
}

/// Content of an item.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// An event of the built-in outbox.
    Event(Event),
    /// A delivery: an event for an endpoint.
    Delivery(Delivery),
    /// A whole row of a lease table, as a JSON object.
    Row(String),
}

impl Content {
    /// The event, or the event of a delivery.
    pub fn event(&self) -> Option<&Event> {
        match self {
            Self::Event(event) => Some(event),
            Self::Delivery(delivery) => Some(&delivery.event),
            Self::Row(_) => None,
        }
    }

    /// The delivery, if it is one.
    pub const fn delivery(&self) -> Option<&Delivery> {
        match self {
            Self::Delivery(delivery) => Some(delivery),
            Self::Event(_) | Self::Row(_) => None,
        }
    }
}

impl fmt::Debug for Content {
    /// Omits rows: they may contain data that must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Event(event) => event.fmt(f),
            Self::Delivery(delivery) => delivery.fmt(f),
            Self::Row(row) => write!(f, "Row({} bytes)", row.len()),
        }
    }
}

/// A claimed item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// Id of the item.
    pub id: ItemId,
    /// Event, delivery or row.
    pub content: Content,
    /// Time from which it was claimable for this attempt.
    pub available_at: Timestamp,
    /// Counters at the time of the claim.
    pub counters: Counters,
}

/// A lease and the items under it, in the order in which they are to be worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// Lease on all of the items.
    pub lease: Lease,
    /// Claimed items; never empty.
    pub items: Vec<Item>,
    /// The claim reached its own limit or the limit of a lane; there may be more items.
    pub is_full: bool,
}

impl Held {
    /// Combines a lease with its items; `most` is the maximum number that the claim requested.
    pub fn new(lease: Lease, items: Vec<Item>, most: u32) -> Self {
        let is_full = items.len() >= usize::try_from(most).unwrap_or(usize::MAX);
        Self {
            lease,
            items,
            is_full,
        }
    }

    /// Ids of the items, in order.
    pub fn ids(&self) -> Vec<ItemId> {
        self.items.iter().map(|item| item.id).collect()
    }
}

/// All facts about an item, for display; the token is not among them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Id of the item.
    pub id: ItemId,
    /// State of the item.
    pub state: State,
    /// Event, delivery or row.
    pub content: Content,
    /// Counters since the last replay.
    pub counters: Counters,
    /// Time at which the item was written.
    pub created_at: Timestamp,
    /// Time from which the item is claimable; `None`: at once.
    pub available_at: Option<Timestamp>,
    /// Current lease, while the item is claimed.
    pub hold: Option<Hold>,
    /// Last error.
    pub last_error: Option<String>,
    /// Time of the settle as done.
    pub done_at: Option<Timestamp>,
    /// Time of the settle as dead.
    pub dead_at: Option<Timestamp>,
    /// Stable word for the cause of death, if the store records it.
    pub dead_reason: Option<String>,
}

/// A current lease, for display.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// Id of the worker.
    pub holder: String,
    /// Number of the claim.
    pub fence: Fence,
    /// Time of the claim.
    pub claimed_at: Timestamp,
    /// End of the lease.
    pub until: Timestamp,
}

/// A past lease on an item: one row of its timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PastHold {
    /// Id of the worker.
    pub holder: String,
    /// Number of the claim.
    pub fence: Fence,
    /// Outcome of the lease.
    pub outcome: OutcomeKind,
    /// Time of the claim.
    pub claimed_at: Timestamp,
    /// Time at which the lease ended.
    pub settled_at: Timestamp,
}

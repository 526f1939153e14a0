//! Item: anything that can be leased, and the facts that are kept of it.

use std::fmt;
use std::str::FromStr;

use crate::event::Event;
use crate::invalid::Invalid;
use crate::lease::Lease;
use crate::outcome::Word;
use crate::state::State;
use crate::time::Timestamp;
use crate::token::Fence;
use crate::webhook::Delivery;

/// Names an item within its store. Deliveries have numbers of their own, from
/// [`ItemId::FIRST_DELIVERY`] on, and are written `d1`, `d2` …; so an id tells what it is.
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
    /// The number before that of the first delivery. Small enough for a program that keeps numbers
    /// as doubles.
    pub const FIRST_DELIVERY: i64 = 1 << 52;

    /// The item with this number.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn number(self) -> i64 {
        self.0
    }

    /// Whether it names a delivery.
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

    /// Reads a number, or `d` and the number of a delivery.
    fn from_str(text: &str) -> Result<Self, Invalid> {
        // A sign is none of the digits.
        let is_plain = |digits: &str| digits.bytes().all(|digit| digit.is_ascii_digit());
        let parse = |digits: &str| digits.parse::<i64>().ok().filter(|_| is_plain(digits));
        let number = match text.strip_prefix('d') {
            Some(digits) => parse(digits)
                .filter(|nth| *nth > 0)
                .and_then(|nth| Self::FIRST_DELIVERY.checked_add(nth)),
            None => parse(text),
        };
        number.map(Self).ok_or_else(|| {
            let expected = "a number such as 17, or d17 for a delivery";
            Invalid::new("id", format!("{text:?}"), expected)
        })
    }
}

/// The counters of an item; each has one meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Stays with a holder that ended in anything but done, since the last replay.
    pub attempts: u32,
    /// Failures that a holder reported.
    pub failures: u32,
    /// Leases that lapsed.
    pub crashes: u32,
    /// How often it was replayed.
    pub generation: u32,
}

/// What an item carries.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// An event of the built-in outbox.
    Event(Event),
    /// A delivery: an event owed to an endpoint.
    Delivery(Delivery),
    /// A row of a lease table, whole, as a JSON object.
    Row(String),
}

impl Content {
    /// The event, if it is one or owes one.
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
    /// Shows no row: it may hold what must not reach a log.
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
    /// Its name.
    pub id: ItemId,
    /// What it carries.
    pub content: Content,
    /// When it could first be claimed this time.
    pub available_at: Timestamp,
    /// Its counters as they stood at the claim.
    pub counters: Counters,
}

/// A lease in hand and the items under it, in the order in which they are to be worked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// The right to work on them.
    pub lease: Lease,
    /// What was claimed; never empty.
    pub items: Vec<Item>,
    /// Whether the claim stopped at its limit, or at those of its lanes, so that there may be more.
    pub is_full: bool,
}

impl Held {
    /// A lease on these items that a claim of at most `most` has taken.
    pub fn new(lease: Lease, items: Vec<Item>, most: u32) -> Self {
        let is_full = items.len() >= usize::try_from(most).unwrap_or(usize::MAX);
        Self {
            lease,
            items,
            is_full,
        }
    }

    /// The ids of the items, in order.
    pub fn ids(&self) -> Vec<ItemId> {
        self.items.iter().map(|item| item.id).collect()
    }
}

/// Everything that is known of an item, for people. It holds no token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its name.
    pub id: ItemId,
    /// Where it stands.
    pub state: State,
    /// What it carries.
    pub content: Content,
    /// Its counters.
    pub counters: Counters,
    /// When it was written.
    pub created_at: Timestamp,
    /// From when it may be claimed; `None`: from the start.
    pub available_at: Option<Timestamp>,
    /// The hold on it, while it is claimed.
    pub hold: Option<Hold>,
    /// What went wrong last.
    pub last_error: Option<String>,
    /// When it was settled done.
    pub done_at: Option<Timestamp>,
    /// When it was settled dead.
    pub dead_at: Option<Timestamp>,
    /// Why it is dead, as one word, where the layout keeps it.
    pub dead_reason: Option<String>,
}

/// A hold as others see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    /// The id of the worker that holds it.
    pub holder: String,
    /// The number of the claim.
    pub fence: Fence,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// Until when.
    pub until: Timestamp,
}

/// A hold that ended: one line of an item's timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedHold {
    /// The id of the worker that held it.
    pub holder: String,
    /// The number of the claim.
    pub fence: Fence,
    /// How it ended.
    pub word: Word,
    /// When it was claimed.
    pub claimed_at: Timestamp,
    /// When it ended.
    pub settled_at: Timestamp,
}

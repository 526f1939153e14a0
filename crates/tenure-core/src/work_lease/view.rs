//! The view that a decision has of a domain, and the change that it makes.

use crate::lease::Term;
use crate::time::Timestamp;
use crate::token::Token;
use crate::work_lease::DomainName;

/// The exclusive right to process the offset in flight of a domain, kept across its retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The offset in flight.
    pub offset: i64,
    /// The token that `succeed` and `fail` must present. Retries do not change it.
    pub token: Token,
    /// The time at which this offset was first acquired; it never changes.
    pub acquired_at: Timestamp,
    /// Number of failures so far.
    pub retry_count: u32,
    /// The moment from which another caller may take over the offset; `None` without a term: never.
    pub until: Option<Timestamp>,
}

impl Reservation {
    /// Creates the reservation of a newly acquired offset.
    pub(super) fn new(offset: i64, token: Token, term: Option<Term>, now: Timestamp) -> Self {
        Self {
            offset,
            token,
            acquired_at: now,
            retry_count: 0,
            until: term.map(|term| now.after(term.length())),
        }
    }

    /// Returns whether the term is over, so that another caller may take over: `until <= now`.
    pub fn lapsed(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

words! {
    /// The final state of an offset.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Terminal: as_str {
        /// The offset succeeded.
        Processed = "processed",
        /// The offset was given up.
        Failed = "failed",
    }
}

/// A domain as a decision sees it, read under the domain's own lock.
#[derive(Clone, Copy, Debug)]
pub struct DomainView<'a> {
    /// The name of the domain, used in errors only.
    pub domain: &'a DomainName,
    /// The reservation of the offset in flight.
    pub reservation: Option<&'a Reservation>,
    /// The head of the backlog.
    pub head: Option<i64>,
    /// Number of offsets in the backlog.
    pub waiting: u64,
    /// Offset below which every offset is terminal, unless it is still in flight or queued.
    /// `i64::MIN` makes no offset terminal.
    pub watermark: i64,
}

/// One offset of the domain, as a decision sees it.
#[derive(Clone, Copy, Debug)]
pub struct OffsetView {
    /// The offset itself.
    pub offset: i64,
    /// The set of terminal offsets that contains it; the sets are disjoint.
    pub terminal: Option<Terminal>,
    /// The offset is in the backlog.
    pub is_queued: bool,
}

/// The change that a decision makes: at most one in each of the three parts of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a decision is made when its change is applied"]
pub struct Change {
    /// The change of the reservation.
    pub reservation: ReservationChange,
    /// The change of the backlog.
    pub backlog: BacklogChange,
    /// The change of the terminal offsets.
    pub terminal: TerminalChange,
}

impl Change {
    /// Returns whether nothing changes.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// The change of a domain's reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReservationChange {
    /// The reservation, or its absence, stays unchanged.
    #[default]
    Keep,
    /// This reservation replaces the old one.
    Set(Reservation),
    /// The reservation ends.
    Clear,
}

/// The change of a domain's backlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BacklogChange {
    /// The backlog stays unchanged.
    #[default]
    Keep,
    /// The head is removed.
    Pop,
    /// This offset is appended at the tail; it was not in the backlog.
    Push(i64),
}

/// The change of a domain's terminal offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminalChange {
    /// The terminal offsets stay unchanged.
    #[default]
    Keep,
    /// This offset becomes terminal.
    Add(i64, Terminal),
    /// This offset is no longer terminal, in either set.
    Remove(i64),
}

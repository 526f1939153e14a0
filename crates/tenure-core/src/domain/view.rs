//! What a decision sees of a domain, and what it changes in it.

use crate::domain::DomainName;
use crate::lease::Term;
use crate::time::Timestamp;
use crate::token::Token;

/// A domain's hold on the offset that is in flight, kept across retries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The offset in flight.
    pub offset: i64,
    /// What `succeed` and `fail` must show. It survives retries.
    pub token: Token,
    /// When this offset was first acquired; it never changes.
    pub acquired_at: Timestamp,
    /// How often it has failed.
    pub retry_count: u32,
    /// From when on another caller may take the offset over; without a term, never.
    pub until: Option<Timestamp>,
}

impl Reservation {
    /// A first reservation.
    pub(super) fn new(offset: i64, token: Token, term: Option<Term>, now: Timestamp) -> Self {
        Self {
            offset,
            token,
            acquired_at: now,
            retry_count: 0,
            until: term.map(|term| now.after(term.length())),
        }
    }

    /// Whether its term is over, so that the offset may be taken over: `until <= now`.
    pub fn lapsed(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| until <= now)
    }
}

/// How an offset ended for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Terminal {
    /// It succeeded.
    Processed,
    /// It was given up.
    Failed,
}

impl Terminal {
    /// The end as one word, for stores and JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Failed => "failed",
        }
    }
}

/// A domain as a decision sees it, read under the domain's own lock.
#[derive(Clone, Copy, Debug)]
pub struct DomainView<'a> {
    /// Which one; only errors say it.
    pub domain: &'a DomainName,
    /// What is in flight.
    pub reservation: Option<&'a Reservation>,
    /// The head of the backlog.
    pub head: Option<i64>,
    /// How many wait in the backlog.
    pub waiting: u64,
    /// Every offset below it is terminal, except what is still in flight or queued. `i64::MIN`
    /// says nothing of any.
    pub watermark: i64,
}

/// One offset of that domain, as a decision sees it.
#[derive(Clone, Copy, Debug)]
pub struct OffsetView {
    /// Which one.
    pub offset: i64,
    /// The set of terminal offsets that it is in. Those are disjoint.
    pub terminal: Option<Terminal>,
    /// Whether it waits in the backlog.
    pub is_queued: bool,
}

/// What a decision changes: at most one thing in each of the three parts of a domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a decision is made when its change is applied"]
pub struct Change {
    /// What becomes of the reservation.
    pub reservation: ReservationChange,
    /// What becomes of the backlog.
    pub backlog: BacklogChange,
    /// What becomes of the terminal offsets.
    pub terminal: TerminalChange,
}

impl Change {
    /// Whether everything stays as it is.
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// What becomes of a domain's reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum ReservationChange {
    /// It stays as it is, or there is none as before.
    #[default]
    Keep,
    /// This is it from now on.
    Set(Reservation),
    /// It is ended.
    Clear,
}

/// What becomes of a domain's backlog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BacklogChange {
    /// It stays as it is.
    #[default]
    Keep,
    /// Its head is taken out.
    Pop,
    /// This offset is appended at its tail; it was not in it.
    Push(i64),
}

/// What becomes of a domain's terminal offsets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TerminalChange {
    /// They stay as they are.
    #[default]
    Keep,
    /// This offset is one from now on.
    Add(i64, Terminal),
    /// This offset is none any more, whichever it was.
    Remove(i64),
}

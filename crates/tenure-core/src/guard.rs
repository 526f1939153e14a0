//! Guards: rules for changing a claimed item, one function each.
//!
//! The memory store and the exhaustive model call these functions. The databases repeat the
//! conditions, mostly in SQL; a test compares the row layout with these functions in every case.

use std::fmt;

use crate::lease::Lease;
use crate::state::State;
use crate::time::Timestamp;
use crate::token::Token;

words! {
    /// Reason for a refusal, which is an expected answer and not an error.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Refusal: as_str {
        /// Another worker holds the item now, or the lease to be renewed has ended.
        Lost = "lost",
        /// No worker holds the item: it waits to be claimed.
        NotClaimed = "not_claimed",
        /// The lease still exists, but its term is over.
        Lapsed = "lapsed",
        /// The item is already done or dead.
        AlreadySettled = "already_settled",
        /// The item is neither done nor dead, so it cannot be replayed.
        NotSettled = "not_settled",
        /// An earlier item of the same key is not settled yet.
        OutOfTurn = "out_of_turn",
        /// The record was changed in the meantime: read it again.
        Changed = "changed",
        /// The item does not exist.
        NotFound = "not_found",
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "its lease was ended, and another worker may hold it now",
            Self::NotClaimed => "it has no holder: it waits to be claimed",
            Self::Lapsed => "the term of the lease is over",
            Self::AlreadySettled => "it is already settled",
            Self::NotSettled => "it is not settled yet: only done or dead items are replayed",
            Self::Changed => "it was changed meanwhile: read it again",
            Self::OutOfTurn => "an item before it in its key is not settled yet",
            Self::NotFound => "there is no such item",
        })
    }
}

/// Answer to a guarded operation: accepted, or refused without any change.
///
/// A refused worker drops the work, counts the refusal and continues.
///
/// ```
/// use tenure_core::{Guarded, Refusal};
///
/// let answer: Guarded = Guarded::Refused(Refusal::Lost);
/// assert!(!answer.is_accepted());
/// assert_eq!(answer.refusal(), Some(Refusal::Lost));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a refusal means that the work is no longer yours"]
pub enum Guarded<T = ()> {
    /// The guard accepted the operation, with this result.
    Accepted(T),
    /// The guard refused; the store changed nothing.
    Refused(Refusal),
}

impl<T> Guarded<T> {
    /// Returns true if the guard accepted.
    pub const fn is_accepted(&self) -> bool {
        matches!(self, Self::Accepted(_))
    }

    /// Returns the reason for the refusal; `None` if the guard accepted.
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Accepted(_) => None,
            Self::Refused(why) => Some(*why),
        }
    }
}

/// Policy for a settle after the end of the term, while no other worker holds the item.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Lateness {
    /// Accept it: the lease still exists, so no other worker holds the item.
    #[default]
    Accept,
    /// Refuse it as lapsed.
    Refuse,
}

/// Rule by which a reap compares the end of a term with `now`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Boundary {
    /// `until < now`: the reaper's rule. At equality, the reaper does nothing yet.
    Past,
    /// `until <= now`: the rule of a claim that also reaps.
    Reached,
}

/// Returns the reason for refusing a token that does not hold the item. `state` is the item's
/// current state, or `None` if the item does not exist.
///
/// ```
/// use tenure_core::{Refusal, State, refusal_of};
///
/// assert_eq!(refusal_of(Some(State::Claimed)), Refusal::Lost);
/// assert_eq!(refusal_of(None), Refusal::NotFound);
/// ```
pub const fn refusal_of(state: Option<State>) -> Refusal {
    match state {
        Some(State::Pending) => Refusal::NotClaimed,
        Some(State::Claimed) => Refusal::Lost,
        Some(State::Done | State::Dead) => Refusal::AlreadySettled,
        None => Refusal::NotFound,
    }
}

/// Allows a renewal only by the current token while the lease is live.
pub fn may_renew(lease: Option<&Lease>, token: &Token, now: Timestamp) -> Guarded {
    match lease {
        None => Guarded::Refused(Refusal::Lost),
        Some(lease) if lease.token != *token => Guarded::Refused(Refusal::Lost),
        Some(lease) if !lease.is_live(now) => Guarded::Refused(Refusal::Lapsed),
        Some(_) => Guarded::Accepted(()),
    }
}

/// Allows a settle only by the current token; `lateness` allows or refuses it after the term.
pub fn may_settle(
    lease: Option<&Lease>,
    token: &Token,
    lateness: Lateness,
    now: Timestamp,
) -> Guarded {
    match lease {
        None => Guarded::Refused(Refusal::NotClaimed),
        Some(lease) if lease.token != *token => Guarded::Refused(Refusal::Lost),
        Some(lease) if lateness == Lateness::Refuse && !lease.is_live(now) => {
            Guarded::Refused(Refusal::Lapsed)
        }
        Some(_) => Guarded::Accepted(()),
    }
}

/// Allows a reap only after the end of the lease; `boundary` decides at equality.
pub fn may_reap(until: Timestamp, boundary: Boundary, now: Timestamp) -> bool {
    match boundary {
        Boundary::Past => until < now,
        Boundary::Reached => until <= now,
    }
}

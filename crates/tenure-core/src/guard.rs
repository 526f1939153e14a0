//! The guards: who may change a claimed item. Each is one function.
//!
//! The memory store and the exhaustive model call these functions; the SQL of the two databases
//! says the same, and a test compares the two on every case.

use std::fmt;

use crate::lease::Lease;
use crate::state::State;
use crate::time::Timestamp;
use crate::token::Token;

/// Why a guard refused. An expected answer, not an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Refusal {
    /// It is no longer yours: somebody else holds it now, or (told to a renew) its lease was ended.
    Lost,
    /// Nobody holds it: it waits to be claimed.
    NotClaimed,
    /// The lease is still there, but its term is over.
    Lapsed,
    /// It is done or dead already.
    AlreadySettled,
    /// It is neither done nor dead, so there is nothing to replay.
    NotSettled,
    /// An item before it in its domain is not settled yet.
    OutOfTurn,
    /// It was changed meanwhile: look at it again.
    Changed,
    /// There is no such item.
    NotFound,
}

impl Refusal {
    /// The reason as one word, for JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lost => "lost",
            Self::NotClaimed => "not_claimed",
            Self::Lapsed => "lapsed",
            Self::AlreadySettled => "already_settled",
            Self::NotSettled => "not_settled",
            Self::Changed => "changed",
            Self::OutOfTurn => "out_of_turn",
            Self::NotFound => "not_found",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "its lease was ended, and someone else may hold it now",
            Self::NotClaimed => "nobody holds it: it waits to be claimed",
            Self::Lapsed => "the term of the lease is over",
            Self::AlreadySettled => "it is already settled",
            Self::NotSettled => "it is not settled yet: only what is done or dead is replayed",
            Self::Changed => "it was changed meanwhile: look at it again",
            Self::OutOfTurn => "an item before it in its domain is not settled yet",
            Self::NotFound => "there is no such item",
        })
    }
}

/// A guarded answer: it was done, or it was refused and nothing changed.
///
/// A worker that reads *refused* drops the work, counts it and goes on.
///
/// ```
/// use tenure_core::{Guarded, Refusal};
///
/// let answer: Guarded = Guarded::Refused(Refusal::Lost);
/// assert!(!answer.is_kept());
/// assert_eq!(answer.refusal(), Some(Refusal::Lost));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a refusal means that the work is no longer yours"]
pub enum Guarded<T = ()> {
    /// The guard let it pass, and this came of it.
    Kept(T),
    /// The guard refused; not a byte was changed.
    Refused(Refusal),
}

impl<T> Guarded<T> {
    /// Whether the guard let it pass.
    pub const fn is_kept(&self) -> bool {
        matches!(self, Self::Kept(_))
    }

    /// Why it was refused, if it was.
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::Kept(_) => None,
            Self::Refused(why) => Some(*why),
        }
    }
}

/// Whether a settle is still accepted when the term is over but nobody has replaced the holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Lateness {
    /// Accept it: the lease is still there, so nobody else got the item.
    #[default]
    Accept,
    /// Refuse it as lapsed.
    Refuse,
}

/// Where the end of a term lies for a reap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundary {
    /// `until < now`: the reaper's rule. At equality it waits one tick.
    Past,
    /// `until <= now`: the rule of a claim that reaps for itself.
    Reached,
}

/// Why an item that is not held under the asking token is refused: by the state it is in now, or
/// because there is none.
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

/// May the holder of `token` prolong this lease? Only if it is his and still live.
pub fn may_renew(lease: Option<&Lease>, token: &Token, now: Timestamp) -> Guarded {
    match lease {
        None => Guarded::Refused(Refusal::Lost),
        Some(lease) if lease.token != *token => Guarded::Refused(Refusal::Lost),
        Some(lease) if !lease.is_live(now) => Guarded::Refused(Refusal::Lapsed),
        Some(_) => Guarded::Kept(()),
    }
}

/// May the holder of `token` end this hold? Only if it is his; a late one by `lateness`.
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
        Some(_) => Guarded::Kept(()),
    }
}

/// May a reap end a lease that runs until `until`? Never while it is live.
pub fn may_reap(until: Timestamp, boundary: Boundary, now: Timestamp) -> bool {
    match boundary {
        Boundary::Past => until < now,
        Boundary::Reached => until <= now,
    }
}

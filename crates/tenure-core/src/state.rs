//! The four states and the only six transitions between them.

words! {
    /// State of an item.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum State: as_str, Display {
        /// Waiting to be claimed.
        Pending = "pending",
        /// Held under a lease, live or lapsed.
        Claimed = "claimed",
        /// Settled with success.
        Done = "done",
        /// Settled for good without success.
        Dead = "dead",
    }
}

/// Cause of a transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cause {
    /// A worker took a lease on the item.
    Claim,
    /// The holder settled the item as done.
    Done,
    /// The holder settled the item as retry or release, or its lease lapsed.
    Back,
    /// A limit was exceeded, the holder settled the item as dead, or an operator buried it.
    Dead,
    /// An operator replayed the item.
    Replay,
}

/// Every transition.
///
/// ```
/// use tenure_core::{State, TRANSITIONS};
///
/// assert_eq!(TRANSITIONS.len(), 6);
/// assert!(State::Pending.may_become(State::Claimed));
/// assert!(!State::Pending.may_become(State::Done));
/// ```
pub const TRANSITIONS: [(State, Cause, State); 6] = [
    (State::Pending, Cause::Claim, State::Claimed),
    (State::Claimed, Cause::Done, State::Done),
    (State::Claimed, Cause::Back, State::Pending),
    (State::Claimed, Cause::Dead, State::Dead),
    (State::Done, Cause::Replay, State::Pending),
    (State::Dead, Cause::Replay, State::Pending),
];

impl State {
    /// All four states, in the order of an item's life.
    pub const ALL: [Self; 4] = [Self::Pending, Self::Claimed, Self::Done, Self::Dead];

    /// Returns true if an item may move from this state to `next`.
    pub fn may_become(self, next: Self) -> bool {
        TRANSITIONS
            .iter()
            .any(|(from, _, to)| *from == self && *to == next)
    }

    /// Returns true for done and dead; an item leaves these only by a replay.
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Done | Self::Dead)
    }

    /// Parses the word of a state.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.as_str() == word)
    }
}

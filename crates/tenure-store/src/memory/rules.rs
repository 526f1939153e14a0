//! The decisions of the memory store, each a function: those of the core, unless a test planted a
//! wrong one to see whether the suite notices.

use tenure_core::store::{Claim, Rest};
use tenure_core::{
    Boundary, Counters, Guarded, LapsePolicy, Lateness, Lease, State, Timestamp, Token, Word,
    may_reap, may_renew, may_settle,
};

use super::{Kept, Place};

/// What the store asks before it changes anything.
#[derive(Clone)]
pub(super) struct Rules {
    pub(super) may_renew: fn(Option<&Lease>, &Token, Timestamp) -> Guarded,
    pub(super) may_settle: fn(Option<&Lease>, &Token, Lateness, Timestamp) -> Guarded,
    pub(super) may_reap: fn(Timestamp, Boundary, Timestamp) -> bool,
    pub(super) may_replay: fn(State) -> bool,
    pub(super) may_bury: fn(State) -> bool,
    /// Whether a claim may use a token under which this lease stands.
    pub(super) is_fresh: fn(Option<&Lease>) -> bool,
    /// Whether an item that is available from the first moment may be claimed at the second.
    pub(super) is_due: fn(Timestamp, Timestamp) -> bool,
    /// Whether an item that lapsed this often is claimed alone.
    pub(super) is_lonely: fn(u32) -> bool,
    /// How many items a claim may take.
    pub(super) most: fn(&Claim) -> u32,
    /// The end of a lease that ran until the first moment and was renewed until the second.
    pub(super) prolong: fn(Timestamp, Timestamp) -> Timestamp,
    /// The counters after a hold ended with this word.
    pub(super) count: fn(Counters, Word) -> Counters,
    /// Whether a journal line (its token, its word) is what a settle says again.
    pub(super) is_repeat: fn((&Token, Word), (&Token, Word)) -> bool,
    pub(super) rest: fn(Rest) -> Rest,
    /// How an item is settled and since when; `None`: it is not.
    pub(super) settled: fn(&Kept) -> Option<(State, Timestamp)>,
    /// Whether what was settled at the first moment is past a retention that goes back to the
    /// second.
    pub(super) is_past: fn(Timestamp, Timestamp) -> bool,
    pub(super) next_fence: fn(i64) -> i64,
}

impl Default for Rules {
    fn default() -> Self {
        Self {
            may_renew,
            may_settle,
            may_reap,
            may_replay: State::is_terminal,
            may_bury: |state| !state.is_terminal(),
            is_fresh: |lease| lease.is_none(),
            is_due: |available_at, now| available_at <= now,
            is_lonely: |crashes| crashes >= LapsePolicy::ALONE_AFTER,
            most: Claim::most,
            prolong: Timestamp::max,
            count,
            is_repeat: |line, settle| line == settle,
            rest: |rest| rest,
            settled,
            is_past: |settled_at, before| settled_at < before,
            next_fence: |last| last + 1,
        }
    }
}

fn settled(kept: &Kept) -> Option<(State, Timestamp)> {
    match kept.place {
        Place::Ready(_) | Place::Leased(_) => None,
        Place::Done { at } => Some((State::Done, at)),
        Place::Dead { at, .. } => Some((State::Dead, at)),
    }
}

/// Each counter has one meaning: see [`Counters`].
fn count(mut counters: Counters, word: Word) -> Counters {
    match word {
        Word::Done => {}
        Word::Release | Word::Buried => counters.attempts += 1,
        Word::Retry | Word::Dead => {
            counters.attempts += 1;
            counters.failures += 1;
        }
        Word::Lapsed => {
            counters.attempts += 1;
            counters.crashes += 1;
        }
    }
    counters
}

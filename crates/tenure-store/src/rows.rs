//! What the row layouts of both databases share: the words of a settle as lists, and the answers
//! that are put together from what a statement did and from the second look.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tenure_core::store::{Rest, Settle, StoreError, StoreErrorKind};
use tenure_core::{
    Fence, Guarded, Hold, ItemId, LeaseTable, Outcome, Refusal, State, Timestamp, Word,
};

use crate::error_text::error_text;

/// A claim that reaps for itself ends this many leases at most.
pub(crate) const INLINE_REAP_LIMIT: u32 = 100;
/// No page is longer.
pub(crate) const PAGE_MAX: u32 = 1000;
/// Longer delays are cut: no calendar holds them.
const DELAY_MAX: Duration = Duration::from_hours(24 * 366 * 1000);

/// A duration in whole microseconds, as the statements take it.
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.min(DELAY_MAX).as_micros()).unwrap_or(i64::MAX)
}

/// What a settle says of one row, as the statements take it.
pub(crate) struct Said {
    pub(crate) id: i64,
    pub(crate) word: &'static str,
    pub(crate) delay: i64,
    pub(crate) error: Option<String>,
}

impl Said {
    pub(crate) fn of(id: ItemId, outcome: &Outcome) -> Self {
        let (delay, error) = match outcome {
            Outcome::Done => (0, None),
            Outcome::Retry { after, error } => (micros(*after), Some(error_text(error))),
            Outcome::Dead { error, .. } => (0, Some(error_text(error))),
            Outcome::Release { after } => (micros(*after), None),
        };
        Self {
            id: id.number(),
            word: outcome.word().as_str(),
            delay,
            error,
        }
    }
}

/// The word for the rows that a settle does not name; `None` keeps them held.
pub(crate) fn rest_word(rest: Rest) -> Option<&'static str> {
    match rest {
        Rest::Keep => None,
        Rest::Done => Some(Word::Done.as_str()),
        Rest::Release => Some(Word::Release.as_str()),
    }
}

/// Where a row is, as a second look saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Look {
    pub(crate) state: State,
    /// Claimed under the token that asks.
    pub(crate) is_mine: bool,
    /// What that token said last, if the last settle was its own.
    pub(crate) word: Option<Word>,
}

/// Second looks, by id; what is missing does not exist.
pub(crate) type Looks = HashMap<ItemId, Look>;

/// The answer for each named row: ended now, ended before by the same word, or refused.
pub(crate) fn settle_answers(
    settle: &Settle,
    ended: &HashSet<ItemId>,
    looks: &Looks,
) -> Vec<(ItemId, Guarded)> {
    let answer = |id: ItemId, outcome: &Outcome| {
        if ended.contains(&id) {
            return Guarded::Kept(());
        }
        let Some(look) = looks.get(&id) else {
            return Guarded::Refused(Refusal::NotFound);
        };
        if look.is_mine {
            return Guarded::Refused(Refusal::Lapsed);
        }
        if look.word == Some(outcome.word()) {
            return Guarded::Kept(());
        }
        Guarded::Refused(match look.state {
            State::Pending => Refusal::NotClaimed,
            State::Claimed => Refusal::Lost,
            State::Done | State::Dead => Refusal::AlreadySettled,
        })
    };
    let items = settle.items.iter();
    items
        .map(|(id, outcome)| (*id, answer(*id, outcome)))
        .collect()
}

/// The named rows that were not ended.
pub(crate) fn not_ended(settle: &Settle, ended: &HashSet<ItemId>) -> Vec<ItemId> {
    let named = settle.items.iter().map(|(id, _)| *id);
    named.filter(|id| !ended.contains(id)).collect()
}

/// The answer of a replay for each id: an id that is asked twice is put back once.
pub(crate) fn replay_answers(
    ids: &[ItemId],
    mut back: HashSet<ItemId>,
    looks: &Looks,
) -> Vec<(ItemId, Guarded)> {
    let mut known: HashSet<ItemId> = back.clone();
    known.extend(looks.keys());
    ids.iter()
        .map(|id| {
            let answer = match (back.remove(id), known.contains(id)) {
                (true, _) => Guarded::Kept(()),
                (false, true) => Guarded::Refused(Refusal::NotSettled),
                (false, false) => Guarded::Refused(Refusal::NotFound),
            };
            (*id, answer)
        })
        .collect()
}

/// Why a row was not buried.
///
/// # Errors
/// It can be buried now: someone had changed it in the moment of the bury.
pub(crate) fn bury_refusal(id: ItemId, look: Option<&Look>) -> Result<Guarded, StoreError> {
    match look.map(|look| look.state) {
        None => Ok(Guarded::Refused(Refusal::NotFound)),
        Some(State::Done | State::Dead) => Ok(Guarded::Refused(Refusal::AlreadySettled)),
        Some(State::Pending | State::Claimed) => Err(StoreError::new(
            "bury",
            StoreErrorKind::Conflict,
            "the item was changed at the same time",
        )
        .item(id)
        .hint("ask again")),
    }
}

/// A claim with a token that has a lease: its answer was lost.
pub(crate) fn used_before() -> StoreError {
    let problem = "the token was used before";
    StoreError::new("claim", StoreErrorKind::Conflict, problem)
        .hint("release by it, then claim with a new one")
}

/// The state that a stored word stands for.
///
/// # Errors
/// It stands for none: someone else wrote it.
pub(crate) fn state_of(
    verb: &'static str,
    table: &LeaseTable,
    word: &str,
) -> Result<State, StoreError> {
    table.words.state(word).ok_or_else(|| {
        let problem = format!("the table {} holds a status that is none", table.name);
        StoreError::new(verb, StoreErrorKind::Corrupt, problem)
            .hint(format!("{word:?} is none of the table's words"))
    })
}

/// The hold on a row, if it is claimed and its columns say so.
pub(crate) fn hold_of(
    state: State,
    holder: Option<String>,
    fence: Fence,
    times: (Option<Timestamp>, Option<Timestamp>),
) -> Option<Hold> {
    match (state, holder, times) {
        (State::Claimed, Some(holder), (Some(claimed_at), Some(until))) => Some(Hold {
            holder,
            fence,
            claimed_at,
            until,
        }),
        _ => None,
    }
}

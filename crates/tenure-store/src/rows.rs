//! What the row layouts of both databases share: the words of a settle as lists, and the reading of
//! a row's state and hold.

use tenure_core::store::{Rest, StoreError, StoreErrorKind};
use tenure_core::{Fence, Hold, ItemId, LeaseTable, Outcome, State, Timestamp, Word};

use crate::error_text::error_text;
use crate::limits::micros;

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

/// The state of a row, as a statement found it.
///
/// # Errors
/// Its columns tell none: someone else wrote them.
pub(crate) fn state_of(
    verb: &'static str,
    table: &LeaseTable,
    found: Option<&str>,
) -> Result<State, StoreError> {
    found.and_then(State::parse).ok_or_else(|| {
        let problem = format!("the table {} holds a row that is in no state", table.name);
        let mut words: Vec<&str> = State::ALL
            .into_iter()
            .filter_map(|state| table.states.word(state))
            .collect();
        words.dedup();
        StoreError::new(verb, StoreErrorKind::Corrupt, problem).hint(format!(
            "look for a status that is none of {}, and set it right",
            words.join(", ")
        ))
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

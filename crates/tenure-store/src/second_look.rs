//! The second look at items that a statement did not change: where they are, and the answers that
//! follow for settle, replay and bury.

use std::collections::{HashMap, HashSet};

use tenure_core::store::{Settle, StoreError, StoreErrorKind};
use tenure_core::{Guarded, ItemId, Outcome, Refusal, State, Word, refusal_of};

/// Where an item is, as a second look saw it.
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

impl Look {
    /// What a settle with this word is told of an item that it did not end: what the token said
    /// before counts as said (law 9).
    fn answer(self, word: Word) -> Guarded {
        if self.is_mine {
            return Guarded::Refused(Refusal::Lapsed);
        }
        if self.word == Some(word) {
            return Guarded::Kept(());
        }
        Guarded::Refused(refusal_of(Some(self.state)))
    }
}

/// The answer for each named item: ended now, ended before by the same word, or refused.
pub(crate) fn settle_answers(
    settle: &Settle,
    ended: &HashSet<ItemId>,
    looks: &Looks,
) -> Vec<(ItemId, Guarded)> {
    let answer = |id: &ItemId, outcome: &Outcome| {
        if ended.contains(id) {
            return Guarded::Kept(());
        }
        match looks.get(id) {
            None => Guarded::Refused(refusal_of(None)),
            Some(look) => look.answer(outcome.word()),
        }
    };
    let items = settle.items.iter();
    items
        .map(|(id, outcome)| (*id, answer(id, outcome)))
        .collect()
}

/// The named items that were not ended.
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

/// Why an item was not buried.
///
/// # Errors
/// It can be buried now: someone had changed it in the moment of the bury.
pub(crate) fn bury_refusal(id: ItemId, look: Option<&Look>) -> Result<Guarded, StoreError> {
    let state = look.map(|look| look.state);
    if state.is_none_or(State::is_terminal) {
        return Ok(Guarded::Refused(refusal_of(state)));
    }
    let problem = "the item was changed at the same time";
    Err(StoreError::new("bury", StoreErrorKind::Conflict, problem)
        .item(id)
        .hint("ask again"))
}

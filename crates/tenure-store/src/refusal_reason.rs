//! Reasons for refusals: the store reads the items that a statement did not change; their states
//! give the answers of settle, replay and bury.

use std::collections::{HashMap, HashSet};

use tenure_core::store::{Settle, StoreError, StoreErrorKind};
use tenure_core::{Guarded, ItemId, Outcome, OutcomeKind, Refusal, State, refusal_of};

/// State of an item, read after a statement that did not change it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ItemPosition {
    pub(crate) state: State,
    /// Claimed under the caller's token.
    pub(crate) is_mine: bool,
    /// Outcome of the item's last settle, if it was made under the caller's token.
    pub(crate) last_outcome: Option<OutcomeKind>,
}

/// States by id; an item without an entry does not exist.
pub(crate) type ItemPositions = HashMap<ItemId, ItemPosition>;

impl ItemPosition {
    /// The answer to a settle that did not change this item: a repetition of the same outcome is
    /// accepted (law 9).
    fn answer(self, last_outcome: OutcomeKind) -> Guarded {
        if self.is_mine {
            return Guarded::Refused(Refusal::Lapsed);
        }
        if self.last_outcome == Some(last_outcome) {
            return Guarded::Accepted(());
        }
        Guarded::Refused(refusal_of(Some(self.state)))
    }
}

/// The answer for each named item: settled now, settled before with the same outcome, or refused.
pub(crate) fn settle_answers(
    settle: &Settle,
    ended: &HashSet<ItemId>,
    positions: &ItemPositions,
) -> Vec<(ItemId, Guarded)> {
    let answer = |id: &ItemId, outcome: &Outcome| {
        if ended.contains(id) {
            return Guarded::Accepted(());
        }
        match positions.get(id) {
            None => Guarded::Refused(refusal_of(None)),
            Some(position) => position.answer(outcome.kind()),
        }
    };
    let items = settle.items.iter();
    items
        .map(|(id, outcome)| (*id, answer(id, outcome)))
        .collect()
}

pub(crate) fn not_ended(settle: &Settle, ended: &HashSet<ItemId>) -> Vec<ItemId> {
    let named = settle.items.iter().map(|(id, _)| *id);
    named.filter(|id| !ended.contains(id)).collect()
}

/// The answer of a replay for each id; a repeated id is replayed once.
pub(crate) fn replay_answers(
    ids: &[ItemId],
    mut back: HashSet<ItemId>,
    positions: &ItemPositions,
) -> Vec<(ItemId, Guarded)> {
    let mut known: HashSet<ItemId> = back.clone();
    known.extend(positions.keys());
    ids.iter()
        .map(|id| {
            let answer = match (back.remove(id), known.contains(id)) {
                (true, _) => Guarded::Accepted(()),
                (false, true) => Guarded::Refused(Refusal::NotSettled),
                (false, false) => Guarded::Refused(Refusal::NotFound),
            };
            (*id, answer)
        })
        .collect()
}

/// Reason why an item was not buried.
///
/// # Errors
/// The item can be buried now: it changed during the bury.
pub(crate) fn bury_refusal(
    id: ItemId,
    position: Option<&ItemPosition>,
) -> Result<Guarded, StoreError> {
    let state = position.map(|position| position.state);
    if state.is_none_or(State::is_terminal) {
        return Ok(Guarded::Refused(refusal_of(state)));
    }
    let problem = "the item was changed at the same time";
    Err(StoreError::new("bury", StoreErrorKind::Conflict, problem)
        .with_item(id)
        .with_hint("try again"))
}

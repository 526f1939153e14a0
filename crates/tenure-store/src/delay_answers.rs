//! Answers to the operations on delays, from the rows of their statements.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use std::collections::HashMap;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_core::ItemId;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_core::store::RetryAnswer;
use tenure_core::store::{DelayPosition, DelayedPage, ListDelayed};

/// The page of the items that were examined, each with whether it matches.
pub(crate) fn delayed_page(mut examined: Vec<(DelayPosition, bool)>) -> DelayedPage {
    examined.sort_unstable();
    let is_full = examined.len() >= usize::try_from(ListDelayed::STEP).unwrap_or(usize::MAX);
    DelayedPage {
        next: examined.last().map(|(at, _)| *at).filter(|_| is_full),
        ids: examined
            .into_iter()
            .filter(|(_, is_wanted)| *is_wanted)
            .map(|(at, _)| at.id)
            .collect(),
    }
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
/// The answer for each id; a repeated id gets the same answer.
pub(crate) fn retry_answers(
    ids: &[ItemId],
    answers: &HashMap<ItemId, RetryAnswer>,
) -> Vec<(ItemId, RetryAnswer)> {
    let answer = |id: &ItemId| answers.get(id).copied().unwrap_or(RetryAnswer::NotFound);
    ids.iter().map(|id| (*id, answer(id))).collect()
}

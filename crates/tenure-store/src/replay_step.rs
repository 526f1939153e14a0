//! A step of a replay: how far it looks, and what follows from what it found.

use std::time::Duration;

use tenure_core::ItemId;
use tenure_core::store::{ReplayOperation, Stepped};

/// A step walks past this many items at most, however few of them match: it is one transaction.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const WALK: u32 = 10_000;

/// What a step did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// All up to here was looked at.
    pub(crate) reached: ItemId,
    pub(crate) replayed: u32,
    pub(crate) refused: u32,
    /// Until the next step.
    pub(crate) wait: Duration,
    /// All was looked at.
    pub(crate) is_all: bool,
}

impl Progress {
    /// A step of at most `size` items that looked up to `bound`, found these and put so many back.
    pub(crate) fn new(
        operation: &ReplayOperation,
        (found, size): (&[ItemId], u32),
        bound: ItemId,
        replayed: usize,
    ) -> Self {
        let number = |items: usize| u32::try_from(items).unwrap_or(u32::MAX);
        let is_full = number(found.len()) >= size;
        let reached = match found.last() {
            Some(last) if is_full => *last,
            _ => bound,
        };
        Self {
            reached,
            replayed: number(replayed),
            refused: number(found.len() - replayed.min(found.len())),
            wait: operation.wait(number(found.len())),
            is_all: !is_full && bound >= operation.last,
        }
    }
}

/// The answer to a step: when the next one is due, of this operation or of another.
pub(crate) fn stepped(
    operation: ReplayOperation,
    wait: Duration,
    others: Option<Duration>,
) -> Stepped {
    let own = operation.is_running().then_some(wait);
    Stepped {
        operation: Some(operation),
        next_in: own.into_iter().chain(others).min(),
    }
}

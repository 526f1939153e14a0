//! One step of a bulk replay: its bounds and its result.

use std::time::Duration;

use tenure_core::ItemId;
use tenure_core::store::{ReplayOperation, Stepped};

/// Maximum items that a step examines, even if few match: a step is one transaction.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const WALK: u32 = 10_000;

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Progress {
    /// Last id that was examined.
    pub(crate) reached: ItemId,
    pub(crate) replayed: u32,
    pub(crate) refused: u32,
    /// Delay until the next step.
    pub(crate) wait: Duration,
    /// Every item has been examined.
    pub(crate) is_all: bool,
}

impl Progress {
    /// Result of a step of at most `size` items that examined ids up to `bound`.
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

/// The answer to a step: when the next step of any replay is due.
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

//! What every store complains of, in the same words.

use tenure_core::QueueName;
use tenure_core::store::{StoreError, StoreErrorKind};

/// A queue was named that nobody declared.
pub(crate) fn unknown_queue(verb: &'static str, queue: &QueueName) -> StoreError {
    let problem = format!("there is no queue {queue}");
    StoreError::new(verb, StoreErrorKind::Invalid, problem).hint(format!(
        "add it: tenure queues add {queue}; `tenure queues` lists those there are"
    ))
}

/// A claim came with a token that has a lease: its answer was lost.
pub(crate) fn used_before(verb: &'static str) -> StoreError {
    let problem = "the token was used before";
    StoreError::new(verb, StoreErrorKind::Conflict, problem)
        .hint("release by it, then claim with a new one")
}

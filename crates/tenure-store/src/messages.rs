//! Error messages shared by all stores.

use tenure_core::QueueName;
use tenure_core::store::{StoreError, StoreErrorKind};

/// Error for a queue that was never declared.
pub(crate) fn unknown_queue(verb: &'static str, queue: &QueueName) -> StoreError {
    let problem = format!("there is no queue {queue}");
    StoreError::new(verb, StoreErrorKind::Invalid, problem).with_hint(format!(
        "add it: tenure queues add {queue}; `tenure queues` lists the existing ones"
    ))
}

/// Error for a claim whose token already has a lease: the first answer was lost.
pub(crate) fn used_before(verb: &'static str) -> StoreError {
    let problem = "the token was used before";
    StoreError::new(verb, StoreErrorKind::Conflict, problem)
        .with_hint("release the lease by this token, then claim with a new token")
}

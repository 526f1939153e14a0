//! Stored form of the rules of a queue.

use std::time::Duration;

use tenure_core::store::{QueueRules, StoreError};
use tenure_core::{RetryRules, Term};

/// The columns of a queue that hold its rules.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StoredRules {
    pub(crate) term_ms: Option<i64>,
    pub(crate) max_retries: Option<i64>,
    pub(crate) retry_base_ms: Option<i64>,
    pub(crate) retry_cap_ms: Option<i64>,
}

impl StoredRules {
    /// Checks rules and converts them for storage.
    pub(crate) fn new(rules: QueueRules) -> Result<Self, StoreError> {
        let QueueRules { term, retry } = rules;
        let checked = retry.check();
        checked.map_err(|problem| StoreError::invalid("add queue", &problem))?;
        let millis = |delay: Duration| i64::try_from(delay.as_millis()).unwrap_or(i64::MAX);
        Ok(Self {
            term_ms: term.map(Term::millis),
            max_retries: retry.max_retries.map(i64::from),
            retry_base_ms: retry.base.map(millis),
            retry_cap_ms: retry.cap.map(millis),
        })
    }

    /// Returns the rules; the constraints of the columns keep them in range.
    pub(crate) fn rules(self) -> QueueRules {
        let length = |millis: i64| Duration::from_millis(millis.unsigned_abs());
        QueueRules {
            term: self
                .term_ms
                .and_then(|millis| Term::new(length(millis)).ok()),
            retry: RetryRules {
                max_retries: self.max_retries.and_then(|most| u32::try_from(most).ok()),
                base: self.retry_base_ms.map(length),
                cap: self.retry_cap_ms.map(length),
            },
        }
    }
}

//! Examination of a database's own health.

use std::fmt;

use super::Answer;

/// Result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// Subject in a word or two: `schema`, `fsync`, `planner`.
    pub subject: &'static str,
    /// Severity of the result.
    pub verdict: Verdict,
    /// Result, for people.
    pub text: String,
    /// Advice, if there is something to do.
    pub hint: Option<String>,
}

words! {
    /// Severity of a result.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
    pub enum Verdict: as_str {
        /// As it should be.
        Good = "good",
        /// Works, but needs attention.
        Warning = "warning",
        /// Work is stuck, slow or at risk until an operator acts.
        Bad = "bad",
    }
}

impl Finding {
    /// A good result.
    pub fn good(subject: &'static str, text: impl Into<String>) -> Self {
        Self {
            subject,
            verdict: Verdict::Good,
            text: text.into(),
            hint: None,
        }
    }

    /// A warning, with advice.
    pub fn warning(
        subject: &'static str,
        text: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Warning,
            hint: Some(hint.into()),
            ..Self::good(subject, text)
        }
    }

    /// A bad result, with advice.
    pub fn bad(subject: &'static str, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Bad,
            ..Self::warning(subject, text, hint)
        }
    }
}

/// Checks that only the database can make: durability, planner, connections, old snapshots.
pub trait Examine: Send + Sync + fmt::Debug {
    /// Runs all checks and returns all results, including good ones. Changes nothing.
    fn examine(&self) -> Answer<'_, Vec<Finding>>;
}

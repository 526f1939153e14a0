//! Examine: what a database is asked about its own health.

use std::fmt;

use super::Answer;

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at, in a word or two: `schema`, `fsync`, `planner`.
    pub subject: &'static str,
    /// Whether it is as it should be.
    pub verdict: Verdict,
    /// What was found, for people.
    pub found: String,
    /// What to do about it.
    pub hint: Option<String>,
}

/// Whether something is as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// It is.
    Good,
    /// It works, but someone should look at it.
    Warning,
    /// Work is stuck, slow or in danger until someone acts.
    Bad,
}

impl Verdict {
    /// The word for people and programs.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

impl Finding {
    /// It is as it should be.
    pub fn good(subject: &'static str, found: impl Into<String>) -> Self {
        Self {
            subject,
            verdict: Verdict::Good,
            found: found.into(),
            hint: None,
        }
    }

    /// It works, but `hint` should be done.
    pub fn warning(
        subject: &'static str,
        found: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self {
            verdict: Verdict::Warning,
            hint: Some(hint.into()),
            ..Self::good(subject, found)
        }
    }

    /// It is in the way until `hint` is done.
    pub fn bad(subject: &'static str, found: impl Into<String>, hint: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::Bad,
            ..Self::warning(subject, found, hint)
        }
    }
}

/// Looks at what only the database knows: durability, planner, connections, old snapshots.
pub trait Examine: Send + Sync + fmt::Debug {
    /// Everything that was looked at, the good too. It changes nothing.
    fn examine(&self) -> Answer<'_, Vec<Finding>>;
}

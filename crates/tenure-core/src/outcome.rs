//! Outcome: how a hold on an item ends.

use std::time::Duration;

/// What a holder says of an item when it settles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Worked with success; final.
    Done,
    /// Failed; to be tried again `after` this long.
    Retry {
        /// How long to wait. Computed by the retry policy, never by a database.
        after: Duration,
        /// What went wrong, for people.
        error: String,
    },
    /// Given up; final.
    Dead {
        /// Why, as one word, such as those of [`reason`](crate::reason).
        reason: String,
        /// What went wrong, for people.
        error: String,
    },
    /// Given back unworked; costs neither of the two budgets.
    Release {
        /// How long to hold it back (a snooze); zero: at once.
        after: Duration,
    },
}

impl Outcome {
    /// Give back, to be claimed again at once.
    pub const RELEASE: Self = Self::Release {
        after: Duration::ZERO,
    };

    /// Give back, to be claimed again after this long; no failure is counted.
    pub const fn snooze(after: Duration) -> Self {
        Self::Release { after }
    }

    /// Give up, for this reason.
    pub fn dead(error: impl Into<String>) -> Self {
        Self::Dead {
            reason: crate::reason::REJECTED.to_owned(),
            error: error.into(),
        }
    }

    /// The word that the journal keeps.
    pub const fn word(&self) -> Word {
        match self {
            Self::Done => Word::Done,
            Self::Retry { .. } => Word::Retry,
            Self::Dead { .. } => Word::Dead,
            Self::Release { .. } => Word::Release,
        }
    }
}

/// One word for how a hold ended: four that a holder says, two that others do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Word {
    /// The holder succeeded.
    Done,
    /// The holder failed and it is tried again.
    Retry,
    /// The holder gave it up.
    Dead,
    /// The holder gave it back unworked.
    Release,
    /// The term was over and the reaper ended the lease.
    Lapsed,
    /// An operator settled it dead.
    Buried,
}

impl Word {
    /// All six.
    pub const ALL: [Self; 6] = [
        Self::Done,
        Self::Retry,
        Self::Dead,
        Self::Release,
        Self::Lapsed,
        Self::Buried,
    ];

    /// The word as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Retry => "retry",
            Self::Dead => "dead",
            Self::Release => "release",
            Self::Lapsed => "lapsed",
            Self::Buried => "buried",
        }
    }

    /// Reads a stored word.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|word| word.as_str() == text)
    }
}

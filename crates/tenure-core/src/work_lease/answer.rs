//! The answers of the work lease operations, named as in its contract.

use crate::token::Token;

/// The answer to `try_acquire` and `submit`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "only an acquired offset may be worked"]
pub enum AcquireResult {
    /// The offset is in flight now, under this token.
    Acquired(Token),
    /// The offset was in flight already, under this token.
    AlreadyAcquired(Token),
    /// The offset waits in the backlog: another offset is in flight or ahead of it.
    Enqueued,
    /// The offset succeeded earlier and cannot be acquired again.
    AlreadyProcessed,
    /// The offset was given up earlier and can be acquired again only after a replay.
    AlreadyFailed,
}

impl AcquireResult {
    /// Returns the answer as one word, for JSON and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Acquired(_) => "acquired",
            Self::AlreadyAcquired(_) => "already_acquired",
            Self::Enqueued => "enqueued",
            Self::AlreadyProcessed => "already_processed",
            Self::AlreadyFailed => "already_failed",
        }
    }

    /// Returns the token under which the offset is in flight, if it is.
    pub const fn token(&self) -> Option<&Token> {
        match self {
            Self::Acquired(token) | Self::AlreadyAcquired(token) => Some(token),
            Self::Enqueued | Self::AlreadyProcessed | Self::AlreadyFailed => None,
        }
    }
}

/// The answer to `succeed`. It acquires no further offset; the caller must do so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "the domain stays idle unless the caller acquires the hinted offset"]
pub enum SucceedResult {
    /// The backlog is empty.
    NoBacklog,
    /// This offset is the head of the backlog: acquire it next.
    NextHint(i64),
}

impl SucceedResult {
    /// Returns the answer as one word, for JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoBacklog => "no_backlog",
            Self::NextHint(_) => "next_hint",
        }
    }

    /// Returns the offset to acquire next, if there is one.
    pub const fn hint(self) -> Option<i64> {
        match self {
            Self::NoBacklog => None,
            Self::NextHint(head) => Some(head),
        }
    }
}

/// The answer to `fail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a scheduled retry is for the caller to run, and a hint for the caller to follow"]
pub enum FailResult {
    /// The offset stays in flight under the same token; the number of its failures so far.
    RetryScheduled(u32),
    /// The offset was given up, and the backlog is empty.
    GiveUpNoBacklog,
    /// The offset was given up. The number is the head of the backlog: acquire it next.
    GiveUpNextHint(i64),
}

impl FailResult {
    /// Returns the answer as one word, for JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryScheduled(_) => "retry_scheduled",
            Self::GiveUpNoBacklog => "give_up_no_backlog",
            Self::GiveUpNextHint(_) => "give_up_next_hint",
        }
    }

    /// Returns the offset to acquire next, if this one was given up and the backlog is not empty.
    pub const fn hint(self) -> Option<i64> {
        match self {
            Self::RetryScheduled(_) | Self::GiveUpNoBacklog => None,
            Self::GiveUpNextHint(head) => Some(head),
        }
    }
}

words! {
    /// The answer to `replay`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[must_use = "a replay of an offset that is not terminal changes nothing"]
    pub enum ReplayResult: as_str {
        /// The offset is no longer terminal and waits at the tail of the backlog.
        Enqueued = "enqueued",
        /// The offset is not terminal: unknown, waiting or in flight. Nothing changed.
        NotTerminal = "not_terminal",
    }
}

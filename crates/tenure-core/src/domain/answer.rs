//! What the verbs of a work lease answer, in the words of its contract.

use crate::token::Token;

/// What became of an offset that was to be acquired or was submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use = "only an acquired offset may be worked"]
pub enum AcquireResult {
    /// It is in flight now, under this token.
    Acquired(Token),
    /// It was in flight already, under this token.
    AlreadyAcquired(Token),
    /// It waits in the backlog: another one is in flight or ahead.
    Enqueued,
    /// It succeeded earlier; never again.
    AlreadyProcessed,
    /// It was given up earlier; never again but by a replay.
    AlreadyFailed,
}

impl AcquireResult {
    /// The answer as one word, for JSON and metrics.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::Acquired(_) => "acquired",
            Self::AlreadyAcquired(_) => "already_acquired",
            Self::Enqueued => "enqueued",
            Self::AlreadyProcessed => "already_processed",
            Self::AlreadyFailed => "already_failed",
        }
    }

    /// The token under which the offset is in flight, if it is.
    pub const fn token(&self) -> Option<&Token> {
        match self {
            Self::Acquired(token) | Self::AlreadyAcquired(token) => Some(token),
            Self::Enqueued | Self::AlreadyProcessed | Self::AlreadyFailed => None,
        }
    }
}

/// What comes after a success. Nothing was handed off: the hint is only a look at the backlog.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a hint that nobody follows leaves the domain idle"]
pub enum SucceedResult {
    /// Nothing waits.
    NoBacklog,
    /// This offset is the head of the backlog: to be acquired next.
    NextHint(i64),
}

impl SucceedResult {
    /// The answer as one word, for JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NoBacklog => "no_backlog",
            Self::NextHint(_) => "next_hint",
        }
    }

    /// The offset to be acquired next, if one waits.
    pub const fn hint(self) -> Option<i64> {
        match self {
            Self::NoBacklog => None,
            Self::NextHint(head) => Some(head),
        }
    }
}

/// What comes after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a scheduled retry is for the caller to run, and a hint for the caller to follow"]
pub enum FailResult {
    /// The offset stays in flight under the same token; this is how often it has failed by now.
    RetryScheduled(u32),
    /// It was given up, and nothing waits.
    GiveUpNoBacklog,
    /// It was given up; this offset is the head of the backlog: to be acquired next.
    GiveUpNextHint(i64),
}

impl FailResult {
    /// The answer as one word, for JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RetryScheduled(_) => "retry_scheduled",
            Self::GiveUpNoBacklog => "give_up_no_backlog",
            Self::GiveUpNextHint(_) => "give_up_next_hint",
        }
    }

    /// The offset to be acquired next, if this one was given up and another waits.
    pub const fn hint(self) -> Option<i64> {
        match self {
            Self::RetryScheduled(_) | Self::GiveUpNoBacklog => None,
            Self::GiveUpNextHint(head) => Some(head),
        }
    }
}

/// What became of an operator's replay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a replay of what is not terminal changes nothing"]
pub enum ReplayResult {
    /// It is no longer terminal and waits at the tail of the backlog.
    Enqueued,
    /// It is not terminal: never seen, waiting or in flight. Nothing was changed.
    NotTerminal,
}

impl ReplayResult {
    /// The answer as one word, for JSON and metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Enqueued => "enqueued",
            Self::NotTerminal => "not_terminal",
        }
    }
}

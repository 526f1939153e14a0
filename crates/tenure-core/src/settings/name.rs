//! Setting: the names under which a value is set, in a file, the environment or the database.

use std::fmt;

use crate::invalid::Invalid;

/// The name of a setting that can be changed while workers run.
///
/// ```
/// use tenure_core::Setting;
///
/// assert_eq!(Setting::parse("lease.term"), Ok(Setting::Term));
/// assert!(Setting::parse("lease.trem").unwrap_err().to_string().contains("lease.term"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// `lease.term`: how long a lease runs without being renewed.
    Term,
    /// `lease.heartbeat`: how often leases are renewed.
    Heartbeat,
    /// `lease.max_hold`: how long one item may be worked on.
    MaxHold,
    /// `reaper.interval`: how often lapsed leases are looked for.
    ReaperInterval,
    /// `worker.concurrency`: how many items a process works on at once.
    Concurrency,
    /// `worker.batch`: how many items one claim takes at most.
    Batch,
    /// `worker.shutdown_timeout`: how long a stop waits for work in hand.
    ShutdownTimeout,
    /// `retry.max_retries`: failures that are followed by another try.
    MaxRetries,
    /// `retry.max_crashes`: lapses that an item survives.
    MaxCrashes,
    /// `domain.on_dead`: what a dead event does to the rest of its key.
    OnDead,
    /// `retention.published`: how long published events are kept.
    RetentionPublished,
    /// `retention.dead`: how long dead events are kept.
    RetentionDead,
}

impl Setting {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 12] = [
        Self::Term,
        Self::Heartbeat,
        Self::MaxHold,
        Self::ReaperInterval,
        Self::Concurrency,
        Self::Batch,
        Self::ShutdownTimeout,
        Self::MaxRetries,
        Self::MaxCrashes,
        Self::OnDead,
        Self::RetentionPublished,
        Self::RetentionDead,
    ];

    /// Its name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Term => "lease.term",
            Self::Heartbeat => "lease.heartbeat",
            Self::MaxHold => "lease.max_hold",
            Self::ReaperInterval => "reaper.interval",
            Self::Concurrency => "worker.concurrency",
            Self::Batch => "worker.batch",
            Self::ShutdownTimeout => "worker.shutdown_timeout",
            Self::MaxRetries => "retry.max_retries",
            Self::MaxCrashes => "retry.max_crashes",
            Self::OnDead => "domain.on_dead",
            Self::RetentionPublished => "retention.published",
            Self::RetentionDead => "retention.dead",
        }
    }

    /// Reads a name.
    ///
    /// # Errors
    /// There is no such setting; the message lists those that there are.
    pub fn parse(text: &str) -> Result<Self, Invalid> {
        Self::ALL
            .into_iter()
            .find(|setting| setting.as_str() == text)
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL.iter().map(|setting| setting.as_str()).collect();
                let expected = format!("one of {}", known.join(", "));
                Invalid::new("the name of the setting", format!("{text:?}"), expected)
            })
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

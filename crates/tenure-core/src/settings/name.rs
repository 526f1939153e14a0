//! Names of the settings in a file, the environment or the database.

use std::fmt;

use crate::invalid::Invalid;

/// Name of a setting that can be changed while workers run.
///
/// ```
/// use tenure_core::Setting;
///
/// assert_eq!(Setting::parse("lease.term"), Ok(Setting::Term));
/// assert!(Setting::parse("lease.trem").unwrap_err().to_string().contains("lease.term"));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Setting {
    /// `lease.term`: length of a lease without renewal.
    Term,
    /// `lease.heartbeat`: renewal interval.
    Heartbeat,
    /// `lease.max_hold`: limit for working on one item.
    MaxHold,
    /// `reaper.interval`: interval of the search for lapsed leases.
    ReaperInterval,
    /// `worker.concurrency`: items that a process works on at once.
    Concurrency,
    /// `worker.batch`: maximum items of one claim.
    Batch,
    /// `worker.shutdown_timeout`: time that a stop waits for running work.
    ShutdownTimeout,
    /// `retry.max_retries`: maximum number of retries of an item.
    MaxRetries,
    /// `retry.max_crashes`: number of lapses that an item survives.
    MaxCrashes,
    /// `key.on_dead`: effect of a dead event on the rest of its key.
    OnDead,
    /// `retention.published`: retention of events that are done.
    RetentionPublished,
    /// `retention.dead`: retention of dead events.
    RetentionDead,
}

impl Setting {
    /// All settings, in display order.
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

    /// Dotted name.
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
            Self::OnDead => "key.on_dead",
            Self::RetentionPublished => "retention.published",
            Self::RetentionDead => "retention.dead",
        }
    }

    /// Parses a name.
    ///
    /// # Errors
    /// No setting has this name; the message lists all names.
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

//! Names of the settings in a file, the environment or the database.

use crate::invalid::Invalid;

words! {
    /// Name of a setting that can be changed while workers run.
    ///
    /// ```
    /// use tenure_core::Setting;
    ///
    /// assert_eq!(Setting::parse("lease.term"), Ok(Setting::Term));
    /// assert!(Setting::parse("lease.trem").unwrap_err().to_string().contains("lease.term"));
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum Setting: as_str, ALL, Display {
        /// `lease.term`: length of a lease without renewal.
        Term = "lease.term",
        /// `lease.heartbeat`: renewal interval.
        Heartbeat = "lease.heartbeat",
        /// `lease.max_hold`: maximum time for working on one item.
        MaxHold = "lease.max_hold",
        /// `reaper.interval`: interval of the search for lapsed leases.
        ReaperInterval = "reaper.interval",
        /// `worker.concurrency`: items that a process works on at once.
        Concurrency = "worker.concurrency",
        /// `worker.batch`: maximum items of one claim.
        Batch = "worker.batch",
        /// `worker.shutdown_timeout`: time that a stop waits for running work.
        ShutdownTimeout = "worker.shutdown_timeout",
        /// `retry.max_retries`: maximum number of retries of an item.
        MaxRetries = "retry.max_retries",
        /// `retry.base`: maximum delay after the first failure of an item.
        RetryBase = "retry.base",
        /// `retry.cap`: upper limit of the delays before retries.
        RetryCap = "retry.cap",
        /// `retry.max_crashes`: number of lapses that an item survives.
        MaxCrashes = "retry.max_crashes",
        /// `key.on_dead`: effect of a dead event on the rest of its key.
        OnDead = "key.on_dead",
        /// `retention.published`: retention of events that are done.
        RetentionPublished = "retention.published",
        /// `retention.dead`: retention of dead events.
        RetentionDead = "retention.dead",
    }
}

impl Setting {
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

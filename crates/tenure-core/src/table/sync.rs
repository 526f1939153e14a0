//! Presets for tables of sync jobs and their checkpoints, in the words of their specification, and
//! the five states that the specification derives from three timestamps.

use std::time::Duration;

use super::{Columns, Direction, LeaseTable, States, name};
use crate::lease::Term;
use crate::state::State;
use crate::time::Timestamp;

impl LeaseTable {
    /// A table `sync_jobs` without a status: `locked_until`, `completed_at` and `failed_at` encode
    /// the state. Highest priority first, then oldest first.
    ///
    /// ```
    /// use tenure_core::{LeaseTable, State};
    ///
    /// let table = LeaseTable::sync_jobs();
    /// let is_held = |column: &tenure_core::Identifier| {
    ///     (column.as_str() == "locked_until").then_some("2026-01-01")
    /// };
    /// assert_eq!(table.state(is_held), Some(State::Claimed));
    /// assert_eq!(table.states.word(State::Claimed), None);
    /// ```
    pub fn sync_jobs() -> Self {
        let outbox = Self::outbox();
        Self {
            name: name("sync_jobs"),
            columns: Columns {
                holder: name("locked_by"),
                token: name("lease_token"),
                last_error: name("error_message"),
                done_at: name("completed_at"),
                dead_at: name("failed_at"),
                ..outbox.columns
            },
            states: States::Derived,
            ..outbox
        }
    }

    /// A table `sync_checkpoints` with the columns of [`LeaseTable::sync_jobs`], oldest first. It
    /// needs an `id` in addition to its unique `matrix_id` and `chunk_hash`; these, and
    /// `last_synced_at` and `row_count`, are the table's own columns and come back with the row.
    ///
    /// ```
    /// use tenure_core::LeaseTable;
    ///
    /// let table = LeaseTable::sync_checkpoints();
    /// assert_eq!(table.key.as_str(), "id");
    /// assert_eq!(table.columns, LeaseTable::sync_jobs().columns);
    /// ```
    pub fn sync_checkpoints() -> Self {
        let mut table = Self::sync_jobs().named(name("sync_checkpoints"));
        table.order = vec![(name("created_at"), Direction::Ascending)];
        table
    }

    /// Term and renewal interval from the specification of such tables: 5 minutes and 1 minute for
    /// jobs, 2 minutes and 30 s for checkpoints. `None` for a table that is neither; then the
    /// settings decide.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure_core::{LeaseTable, Term};
    ///
    /// let minutes = |number: u64| Term::new(Duration::from_secs(60 * number)).unwrap();
    /// let (term, heartbeat) = LeaseTable::sync_jobs().default_timing().unwrap();
    /// assert_eq!((term, heartbeat.as_secs()), (minutes(5), 60));
    /// let (term, heartbeat) = LeaseTable::sync_checkpoints().default_timing().unwrap();
    /// assert_eq!((term, heartbeat.as_secs()), (minutes(2), 30));
    /// assert_eq!(LeaseTable::outbox().default_timing(), None);
    /// ```
    pub fn default_timing(&self) -> Option<(Term, Duration)> {
        let jobs = Self::sync_jobs();
        if self.states != jobs.states || self.columns != jobs.columns {
            return None;
        }
        // The columns are the same; the claim order distinguishes the two.
        let (term, heartbeat) = if self.order == jobs.order {
            (Duration::from_mins(5), Duration::from_mins(1))
        } else if self.order == Self::sync_checkpoints().order {
            (Duration::from_mins(2), Duration::from_secs(30))
        } else {
            return None;
        };
        Some((Term::new(term).ok()?, heartbeat))
    }
}

words! {
    /// State of a row of sync jobs or checkpoints at some time, with the specification's words.
    ///
    /// ```
    /// use tenure_core::SyncState;
    ///
    /// let words = SyncState::ALL.map(SyncState::as_str);
    /// assert_eq!(words, ["AVAILABLE", "RUNNING", "EXPIRED", "COMPLETED", "FAILED"]);
    /// ```
    #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub enum SyncState: as_str, ALL, Display {
        /// The row has no lease and is not settled.
        Available = "AVAILABLE",
        /// The row has a live lease.
        Running = "RUNNING",
        /// The lease has lapsed, so the row may be claimed. The specification calls this state
        /// EXPIRED.
        Lapsed = "EXPIRED",
        /// The row is done.
        Completed = "COMPLETED",
        /// The row is dead.
        Failed = "FAILED",
    }
}

impl SyncState {
    /// State at `now` of a row with these timestamps. A final state wins over a running one, and
    /// failed over completed, should another program have written both.
    ///
    /// ```
    /// use tenure_core::{SyncState, Timestamp};
    ///
    /// let [then, now] = [1, 2].map(Timestamp::from_micros);
    /// assert_eq!(SyncState::of(None, None, None, now), SyncState::Available);
    /// assert_eq!(SyncState::of(Some(now), None, None, then), SyncState::Running);
    /// // A lease is over exactly at the end of its term.
    /// assert_eq!(SyncState::of(Some(now), None, None, now), SyncState::Lapsed);
    /// assert_eq!(SyncState::of(Some(now), Some(then), None, then), SyncState::Completed);
    /// ```
    pub fn of(
        until: Option<Timestamp>,
        done_at: Option<Timestamp>,
        dead_at: Option<Timestamp>,
        now: Timestamp,
    ) -> Self {
        match (dead_at, done_at, until) {
            (Some(_), _, _) => Self::Failed,
            (None, Some(_), _) => Self::Completed,
            (None, None, Some(until)) if now < until => Self::Running,
            (None, None, Some(_)) => Self::Lapsed,
            (None, None, None) => Self::Available,
        }
    }

    /// Corresponding state of the lease core. A lapsed row counts as claimed until it is reaped.
    ///
    /// ```
    /// use tenure_core::{State, SyncState};
    ///
    /// assert_eq!(SyncState::Lapsed.state(), State::Claimed);
    /// ```
    pub const fn state(self) -> State {
        match self {
            Self::Available => State::Pending,
            Self::Running | Self::Lapsed => State::Claimed,
            Self::Completed => State::Done,
            Self::Failed => State::Dead,
        }
    }
}

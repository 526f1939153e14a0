//! Claim cursors: the position in each lane at which the next claim starts.
//!
//! An old snapshot (a backup, a long transaction) keeps the index entries of claimed rows alive,
//! and a claim that starts at the front of its lane scans all of them. A claim with a cursor starts
//! behind them. Rows that appear below the cursor meanwhile (a late commit, a retry) are found when
//! the store drops the cursor: after every short claim, and at least every second.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure_core::Timestamp;

use super::row::Moment;
use crate::lane::Lane;

/// Maximum age of a cursor.
const AGE_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Cursor {
    at: Timestamp,
    id: i64,
    since: Instant,
}

/// The cursors of all lanes of a store, shared by its connections.
#[derive(Debug, Default)]
pub(crate) struct Cursors(Mutex<Lanes>);

#[derive(Debug, Default)]
struct Lanes {
    cursors: HashMap<Lane, Cursor>,
    /// Number of times that cursors were dropped. A claim that started before a drop must not
    /// restore its cursor: the cursor would hide the rows that the drop was meant to reveal.
    epoch: u64,
}

/// Start positions of a claim, one per lane, as parameters of its statement.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) at: Vec<Moment>,
    pub(crate) ids: Vec<i64>,
    /// Maximum rows scanned per lane.
    pub(crate) most: Vec<i64>,
    /// Maximum rows of `ready` scanned in all.
    pub(crate) rows: u32,
    /// A cursor made the claim skip rows in at least one lane.
    pub(crate) is_ahead: bool,
    /// Epoch at the start of the claim; `None`: the claim scans everything and moves no cursor.
    epoch: Option<u64>,
}

impl Start {
    /// Starts at the front of every lane.
    pub(crate) fn front(lanes: Vec<Lane>, rows: u32) -> Self {
        let count = lanes.len();
        Self {
            lanes,
            at: vec![Moment::START; count],
            ids: vec![0; count],
            most: vec![i64::from(rows); count],
            rows,
            is_ahead: false,
            epoch: None,
        }
    }

    /// Restarts the same lanes from the front.
    pub(crate) fn again(self) -> Self {
        Self {
            most: self.most,
            ..Self::front(self.lanes, self.rows)
        }
    }
}

impl Cursors {
    /// Returns the start position of a claim on these lanes.
    pub(crate) fn start(&self, lanes: Vec<Lane>, rows: u32) -> Start {
        let now = monotonic_now();
        let mut kept = self.lock();
        let before = kept.cursors.len();
        kept.cursors
            .retain(|_, cursor| now.duration_since(cursor.since) < AGE_MAX);
        if kept.cursors.len() < before {
            kept.epoch += 1;
        }
        let mut start = Start::front(lanes, rows);
        start.epoch = Some(kept.epoch);
        for ((lane, at), id) in start.lanes.iter().zip(&mut start.at).zip(&mut start.ids) {
            if let Some(cursor) = kept.cursors.get(lane) {
                *at = Moment(cursor.at);
                *id = cursor.id;
                start.is_ahead = true;
            }
        }
        start
    }

    /// Moves the cursors behind the rows that a full claim from `start` has taken.
    pub(crate) fn advance(
        &self,
        start: &Start,
        taken: impl Iterator<Item = (Lane, Timestamp, i64)>,
    ) {
        let since = monotonic_now();
        let mut kept = self.lock();
        if start.epoch != Some(kept.epoch) {
            return;
        }
        for (lane, at, id) in taken {
            let cursor = kept.cursors.entry(lane).or_insert(Cursor { at, id, since });
            if (cursor.at, cursor.id) < (at, id) {
                (cursor.at, cursor.id) = (at, id);
            }
        }
    }

    /// Drops all cursors, after an insert into `ready` at an unknown position.
    pub(crate) fn drop_all(&self) {
        let mut kept = self.lock();
        kept.cursors.clear();
        kept.epoch += 1;
    }

    /// Drops the cursors of these lanes, after a short claim.
    pub(crate) fn drop_lanes(&self, lanes: &[Lane]) {
        let mut kept = self.lock();
        for lane in lanes {
            kept.cursors.remove(lane);
        }
        kept.epoch += 1;
    }

    fn lock(&self) -> MutexGuard<'_, Lanes> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the age of a cursor does not depend on the store's clock"
)]
pub(super) fn monotonic_now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(id: i64) -> impl Iterator<Item = (Lane, Timestamp, i64)> {
        std::iter::once((7, Timestamp::from_micros(id), id))
    }

    #[test]
    fn a_claim_starts_behind_taken_rows_until_the_cursor_is_dropped() {
        let cursors = Cursors::default();
        let first = cursors.start(vec![7], 9);
        assert!(!first.is_ahead);
        cursors.advance(&first, taken(5));
        let second = cursors.start(vec![7], 9);
        assert!(second.is_ahead);
        assert_eq!(second.ids, [5]);
        cursors.drop_lanes(&[7]);
        assert!(!cursors.start(vec![7], 9).is_ahead);
    }

    /// Dropping the cursor reveals a late commit below it; a concurrent claim must not hide it
    /// again.
    #[test]
    fn a_claim_that_started_before_a_drop_moves_no_cursor() {
        let cursors = Cursors::default();
        let before = cursors.start(vec![7], 9);
        cursors.drop_lanes(&[7]);
        cursors.advance(&before, taken(900));
        assert!(!cursors.start(vec![7], 9).is_ahead);
    }
}

//! Claim cursors: where in each lane the next claim starts to look.
//!
//! An old snapshot (a backup, a long transaction) keeps the index entries of claimed rows alive,
//! and a claim that starts at the front of its lane walks all of them. The cursor starts behind
//! them. What appears below it meanwhile (a late commit, a retry) is found when the cursor is
//! dropped: whenever a claim comes back short, and at least every second.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tenure_core::Timestamp;

use super::row::Moment;
use crate::lane::Lane;

/// No cursor is older.
const AGE_MAX: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, Debug)]
struct Cursor {
    at: Timestamp,
    id: i64,
    since: Instant,
}

/// The cursors of all lanes of a store, shared by its connections.
#[derive(Debug, Default)]
pub(crate) struct Cursors(Mutex<HashMap<Lane, Cursor>>);

/// Where a claim starts, lane by lane, as its statement takes it.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) lanes: Vec<Lane>,
    pub(crate) at: Vec<Moment>,
    pub(crate) ids: Vec<i64>,
    /// Whether anything was passed over.
    pub(crate) is_ahead: bool,
}

impl Start {
    /// At the front of every lane.
    pub(crate) fn front(lanes: Vec<Lane>) -> Self {
        let count = lanes.len();
        Self {
            lanes,
            at: vec![Moment::START; count],
            ids: vec![0; count],
            is_ahead: false,
        }
    }
}

impl Cursors {
    /// Where a claim from these lanes starts.
    pub(crate) fn start(&self, lanes: Vec<Lane>) -> Start {
        let now = monotonic_now();
        let mut cursors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        cursors.retain(|_, cursor| now.duration_since(cursor.since) < AGE_MAX);
        let mut start = Start::front(lanes);
        for ((lane, at), id) in start.lanes.iter().zip(&mut start.at).zip(&mut start.ids) {
            if let Some(cursor) = cursors.get(lane) {
                *at = Moment(cursor.at);
                *id = cursor.id;
                start.is_ahead = true;
            }
        }
        start
    }

    /// A full claim has taken everything up to here.
    pub(crate) fn advance(&self, taken: impl Iterator<Item = (Lane, Timestamp, i64)>) {
        let since = monotonic_now();
        let mut cursors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (lane, at, id) in taken {
            let cursor = cursors.entry(lane).or_insert(Cursor { at, id, since });
            if (cursor.at, cursor.id) < (at, id) {
                (cursor.at, cursor.id) = (at, id);
            }
        }
    }

    /// A claim came back short: look from the front next time.
    pub(crate) fn drop_lanes(&self, lanes: &[Lane]) {
        let mut cursors = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in lanes {
            cursors.remove(lane);
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a cursor's age is not judged by the store's clock"
)]
fn monotonic_now() -> Instant {
    Instant::now()
}

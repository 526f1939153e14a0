//! The order of keys, in the journal and at the receiver.
//!
//! A receiver that refuses fences below the newest of a key and drops repeated events gets each key
//! in the order of its writes. Any other receiver gets only repeats out of order.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::{OutcomeKind, Timestamp};

use super::{Broken, View};
use crate::history::{Effect, Hold, Id, Work};

/// Tolerance for timestamps. PostgreSQL stamps a statement at its start, a little before it reads:
/// a claim of a work that a settle has just released may carry the earlier time. Leases last longer
/// than this. Besides, `torn_keys` has the keys with two leases in one snapshot, however short.
const STAMP: Duration = Duration::from_millis(50);

pub(super) fn held_twice(view: &View<'_>) -> Vec<Broken> {
    let mut broken = Vec::new();
    for works in view.keys.values() {
        let mut leases: BTreeMap<i64, (Timestamp, Timestamp, Id)> = BTreeMap::new();
        for work in works {
            for hold in &work.holds {
                let lease = leases.entry(hold.fence);
                let lease = lease.or_insert((hold.from, hold.to, work.id));
                lease.1 = lease.1.max(hold.to);
            }
        }
        for ((_, (_, end, _)), (fence, (start, _, id))) in leases.iter().zip(leases.iter().skip(1))
        {
            let both = end.since(*start);
            if both > STAMP {
                broken.push((Some(*id), format!("fence {fence} for {both:?}")));
            }
        }
    }
    let torn = view.history.torn_keys.iter();
    broken.extend(torn.map(|key| (None, format!("{key} in one snapshot"))));
    broken
}

pub(super) fn done_out_of_order(view: &View<'_>) -> Vec<Broken> {
    let mut broken = Vec::new();
    for works in view.keys.values() {
        let mut latest = None;
        for work in works {
            let done_at = work
                .holds_with(OutcomeKind::Done)
                .map(|hold| hold.to)
                .next();
            if done_at.is_some() && done_at < latest {
                broken.push((Some(work.id), work.name.clone()));
            }
            latest = latest.max(done_at);
        }
    }
    broken
}

/// Finds works whose first effect arrives after an effect of a later work of their key. A fenced
/// receiver does not see effects with a fence below the newest.
fn late_effects(view: &View<'_>, is_fenced: bool) -> Vec<Broken> {
    let mut broken = Vec::new();
    for works in view.keys.values() {
        let by_id: BTreeMap<Id, &Work> = works.iter().map(|work| (work.id, *work)).collect();
        let (mut known, mut latest, mut newest) = (BTreeSet::new(), None, i64::MIN);
        let of_key = |effect: &&Effect| by_id.contains_key(&effect.id);
        for effect in view.history.effects.iter().filter(of_key) {
            let serial = by_id.get(&effect.id).map(|work| work.serial);
            let is_first = known.insert(effect.id);
            if is_fenced && effect.fence < newest {
                continue;
            }
            newest = newest.max(effect.fence);
            if is_first && serial < latest {
                broken.push((Some(effect.id), format!("{effect:?}")));
            }
            latest = latest.max(serial);
        }
    }
    broken
}

pub(super) fn taken_out_of_order(view: &View<'_>) -> Vec<Broken> {
    late_effects(view, true)
}

pub(super) fn came_out_of_order(view: &View<'_>) -> Vec<Broken> {
    late_effects(view, false)
}

/// Returns true if the same lease held an earlier work of the key.
pub(super) fn is_behind(view: &View<'_>, work: &Work, hold: &Hold) -> bool {
    let Some(works) = work.key.as_deref().and_then(|key| view.keys.get(key)) else {
        return false;
    };
    let mut earlier = works.iter().take_while(|other| other.serial < work.serial);
    earlier.any(|other| other.holds.iter().any(|h| h.fence == hold.fence))
}

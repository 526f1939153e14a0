//! The order of keys, as the journal and the receiver have it.
//!
//! A receiver that refuses fences older than the newest it has seen of a key, and drops the events
//! that it has had, takes each key in the order in which it was enqueued. One that looks at neither
//! gets out of order only repeats; that each of them has its fault is the checker's to see.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::{Timestamp, Word};

use super::checker::Violation;
use super::history::{History, Id, Span, Stored};

/// PostgreSQL stamps a statement when it begins, a little before it looks: a claim that takes what
/// a settle has just let go may bear the earlier moment. Holds last longer than this; and the watch
/// sees a key that is held twice in one snapshot, however shortly.
const STAMP: Duration = Duration::from_millis(50);

/// Everything that is out of order.
pub(super) fn broken(history: &History) -> Vec<Violation> {
    let mut keys: BTreeMap<&str, Vec<&Stored>> = BTreeMap::new();
    for event in &history.events {
        if let Some(key) = &event.key {
            keys.entry(key).or_default().push(event);
        }
    }
    let mut violations = Vec::new();
    for mut events in keys.into_values() {
        events.sort_by_key(|event| event.serial);
        violations.extend(held_twice(&events));
        violations.extend(done_out_of_order(&events));
        violations.extend(received_out_of_order(history, &events));
    }
    violations
}

/// What is held of a key is held by one lease.
fn held_twice(events: &[&Stored]) -> Vec<Violation> {
    let mut leases: BTreeMap<i64, (Timestamp, Timestamp, Id)> = BTreeMap::new();
    for (event, hold) in events
        .iter()
        .flat_map(|e| e.holds.iter().map(move |h| (e, h)))
    {
        let lease = leases
            .entry(hold.fence)
            .or_insert((hold.from, hold.to, event.id));
        lease.1 = lease.1.max(hold.to);
    }
    let pairs = leases.iter().zip(leases.iter().skip(1));
    pairs
        .map(|((_, (_, ended, _)), (fence, (began, _, id)))| (ended.since(*began), *id, *fence))
        .filter(|(overlap, ..)| *overlap > STAMP)
        .map(|(overlap, id, fence)| Violation::KeyHeldTwice(id, fence, overlap))
        .collect()
}

fn done_out_of_order(events: &[&Stored]) -> Vec<Violation> {
    let mut latest = None;
    let mut violations = Vec::new();
    for event in events {
        let done = event.holds.iter().find(|hold| hold.word == Word::Done);
        let done_at = done.map(|hold| hold.to);
        if done_at.is_some() && done_at < latest {
            violations.push(Violation::DoneOutOfOrder(event.id));
        }
        latest = latest.max(done_at);
    }
    violations
}

fn received_out_of_order(history: &History, events: &[&Stored]) -> Vec<Violation> {
    let by_id: BTreeMap<Id, &Stored> = events.iter().map(|event| (event.id, *event)).collect();
    let (mut seen, mut latest, mut taken) = (BTreeSet::new(), None, None);
    let mut newest = i64::MIN;
    let mut violations = Vec::new();
    for receipt in &history.received {
        let Some(event) = by_id.get(&receipt.id) else {
            continue;
        };
        let is_first = seen.insert(receipt.id);
        let serial = Some(event.serial);
        if is_first && serial < latest {
            violations.push(Violation::CameOutOfOrder(*receipt));
        }
        latest = latest.max(serial);
        if receipt.fence < newest {
            continue;
        }
        newest = receipt.fence;
        if is_first && serial < taken {
            violations.push(Violation::TakenOutOfOrder(*receipt));
        }
        taken = taken.max(serial);
    }
    violations
}

/// Whether another of its key was held before it under the same lease.
pub(super) fn is_behind(history: &History, event: &Stored, hold: &Span) -> bool {
    event.key.is_some()
        && history.events.iter().any(|other| {
            other.key == event.key
                && other.serial < event.serial
                && other.holds.iter().any(|h| h.fence == hold.fence)
        })
}

/// How many events were held with others of their key before them.
pub(super) fn followers(history: &History) -> usize {
    let mut leases: BTreeMap<(&str, i64), usize> = BTreeMap::new();
    for event in &history.events {
        let key = event.key.as_deref();
        for (key, hold) in event.holds.iter().filter_map(|hold| Some((key?, hold))) {
            *leases.entry((key, hold.fence)).or_default() += 1;
        }
    }
    leases.into_values().map(|members| members - 1).sum()
}

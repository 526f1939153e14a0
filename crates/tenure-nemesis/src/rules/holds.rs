//! Rules on leases: one at a time, with rising fences, and none lost without a reason.

use std::time::Duration;

use tenure_core::{OutcomeKind, Timestamp};

use super::keys::is_behind;
use super::{Broken, View};
use crate::history::{Fault, FaultKind, Hold, Judged, NEAR, Work};

/// Time allowed on a busy machine, besides term and reaper interval, until a lapsed work runs
/// again.
const MARGIN: Duration = Duration::from_secs(3);
/// Time allowed for workers to reconnect to a database.
const RECONNECT: Duration = Duration::from_secs(4);
/// Time allowed for a poison work to be claimed alone.
const ALONE: Duration = Duration::from_secs(6);

fn pairs(work: &Work) -> impl Iterator<Item = (&Hold, &Hold)> {
    work.holds.iter().zip(work.holds.iter().skip(1))
}

pub(super) fn fences(_: &View<'_>, work: &Work) -> Option<String> {
    let (earlier, later) = pairs(work).find(|(earlier, later)| later.fence <= earlier.fence)?;
    Some(format!("{} after {}", later.fence, earlier.fence))
}

pub(super) fn overlap(_: &View<'_>, work: &Work) -> Option<String> {
    let mut free = None;
    let twice = work.holds.iter().find(|hold| {
        let is_held = free > Some(hold.from);
        free = free.max(Some(hold.to));
        is_held
    })?;
    Some(format!("{} {}: {:?}", work.name, work.id, twice))
}

pub(super) fn cut_short(view: &View<'_>, work: &Work) -> Option<String> {
    let history = view.history;
    let mut lost = work.holds.iter().filter(|hold| !hold.is_settled());
    let cut = lost.find(|hold| {
        let first = hold.from.after(history.bounds.term);
        let shown = history.until.get(&(work.id, hold.fence)).copied();
        hold.to < shown.unwrap_or(first).max(first)
    })?;
    Some(format!("{cut:?}"))
}

pub(super) fn after_end(_: &View<'_>, work: &Work) -> Option<String> {
    let end = work.final_at?;
    let late = work.holds.iter().find(|hold| hold.from > end)?;
    Some(format!("{} ended at {end}: {late:?}", work.name))
}

/// The store must refuse a holder that was replaced or paused past the end of its lease.
pub(super) fn stale_settle(view: &View<'_>, work: &Work) -> Option<String> {
    let highest = work.holds.iter().map(|hold| hold.fence).max();
    let mut settled = work.holds.iter().filter(|hold| hold.is_settled());
    let stale = settled.find(|hold| {
        let is_twice = work.holds.iter().filter(|h| h.fence == hold.fence).count() > 1;
        let is_replaced = hold.outcome == OutcomeKind::Done && Some(hold.fence) != highest;
        let is_replaced = is_replaced && work.judged != Judged::Repeated;
        is_twice || is_replaced || is_slept_through(view, hold)
    })?;
    Some(format!("{} {stale:?}", work.name))
}

/// Returns true if the holder settled after a pause longer than its lease while other workers could
/// reap.
fn is_slept_through(view: &View<'_>, hold: &Hold) -> bool {
    let bounds = &view.history.bounds;
    view.history.faults.iter().any(|fault| {
        let over = fault.from.after(bounds.term + bounds.reaper + MARGIN);
        matches!(&fault.kind, FaultKind::Paused(holder) if *holder == hold.holder)
            && hold.from <= fault.from
            && over < hold.to
            && view.history.outages(fault.from, hold.to).next().is_none()
    })
}

/// Returns true if a lease ended neither as done nor as a retry that its receiver caused.
pub(super) fn is_lost(view: &View<'_>, work: &Work, hold: &Hold) -> bool {
    let is_answered =
        hold.outcome == OutcomeKind::Retry && view.history.failed.contains(&(work.id, hold.fence));
    hold.outcome != OutcomeKind::Done && !is_answered
}

/// Returns true if neither a fault of the holder nor an outage explains the loss of a lease.
pub(super) fn is_without_fault(view: &View<'_>, hold: &Hold) -> bool {
    let mut outages = view.history.outages(hold.from.before(NEAR), hold.to);
    view.history.fault_of(hold).is_none() && outages.next().is_none()
}

pub(super) fn unexplained(view: &View<'_>, work: &Work) -> Option<String> {
    let mut lost = work.holds.iter().filter(|hold| is_lost(view, work, hold));
    let lost =
        lost.find(|hold| is_without_fault(view, hold) && !view.history.is_reported(work.id, hold))?;
    Some(format!("{} {lost:?}", work.name))
}

/// Finds a worker that was paused during its work and did not notice the loss after it resumed.
/// Exceptions: a worker paused during its claim, which never started the work, and a worker killed
/// soon after, which had no time.
pub(super) fn unnoticed(view: &View<'_>, work: &Work) -> Option<String> {
    let history = view.history;
    let mut lapsed = work.holds_with(OutcomeKind::Lapsed);
    let unnoticed = lapsed.find(|hold| {
        let Some(fault) = history.fault_of(hold) else {
            return false;
        };
        let is_killed = |other: &Fault| {
            let is_it = other.kind == FaultKind::Killed(hold.holder.clone());
            is_it && other.from < fault.to.after(MARGIN)
        };
        matches!(fault.kind, FaultKind::Paused(_))
            && view.has_effect(work.id, hold.fence)
            && !history.faults.iter().any(is_killed)
            && !history.is_reported(work.id, hold)
    })?;
    Some(format!("{unnoticed:?}"))
}

/// A recovery after a fault of the holder.
pub(super) struct Recovery {
    pub(super) took: Duration,
    pub(super) allowed: Duration,
    /// The first lapse of the work, without an outage in between.
    pub(super) is_plain: bool,
}

pub(super) fn recoveries(view: &View<'_>, work: &Work) -> Vec<Recovery> {
    let mut lapses = 0;
    let mut recoveries = Vec::new();
    for (hold, next) in pairs(work) {
        // A work behind another one of its key also waits for that one.
        if hold.outcome != OutcomeKind::Lapsed || is_behind(view, work, hold) {
            continue;
        }
        lapses += 1;
        if let Some(fault) = view.history.fault_of(hold) {
            let from = fault.from.max(hold.from);
            recoveries.push(recovery(view, lapses, from, next.from));
        }
    }
    recoveries
}

/// Time allowed for a recovery. From the second lapse on, a work waits by the policy and is then
/// claimed alone, one per process at a time: each poison work adds a second. An outage adds its
/// length.
fn recovery(view: &View<'_>, lapses: u32, from: Timestamp, to: Timestamp) -> Recovery {
    let bounds = &view.history.bounds;
    let delay = if lapses > 1 {
        let works = view.history.works.iter();
        let others = works.filter(|work| work.holds_with(OutcomeKind::Lapsed).nth(1).is_some());
        let others = others.map(|_| Duration::from_secs(1));
        bounds.lapse.fate(lapses).unwrap_or_default() + ALONE + others.sum::<Duration>()
    } else {
        Duration::ZERO
    };
    let length = |outage: &Fault| outage.to.since(outage.from) + RECONNECT;
    let outages: Duration = view.history.outages(from, to).map(length).sum();
    Recovery {
        took: to.since(from),
        allowed: bounds.term + bounds.reaper + MARGIN + delay + outages,
        is_plain: (delay + outages).is_zero(),
    }
}

pub(super) fn not_resumed(view: &View<'_>) -> Vec<Broken> {
    let Some(longest) = view.history.bounds.resumption else {
        return Vec::new();
    };
    let late = view.history.resumptions();
    let late = late.filter(|(_, took)| took.is_none_or(|took| took > longest));
    late.map(|(outage, took)| (None, format!("{took:?} after {outage:?}")))
        .collect()
}

pub(super) fn slow_recovery(view: &View<'_>, work: &Work) -> Option<String> {
    let mut recoveries = recoveries(view, work).into_iter();
    let slow = recoveries.find(|recovery| recovery.took > recovery.allowed)?;
    Some(format!("{:?}, allowed {:?}", slow.took, slow.allowed))
}

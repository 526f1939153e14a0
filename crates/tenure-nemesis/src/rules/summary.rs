//! The figures of a run. They show that the faults did damage: a run without damage proves nothing.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use tenure_core::OutcomeKind;

use super::View;
use super::holds::{is_lost, is_without_fault, recoveries};
use super::keys::is_behind;
use crate::history::FaultKind;

/// The figures of a run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub works: usize,
    pub kills: usize,
    pub pauses: usize,
    pub outages: usize,
    /// Kills and pauses that cost at least one lease.
    pub hits: usize,
    pub lapses: usize,
    /// Lost leases that only the worker's own report explains: the machine was too slow.
    pub stalls: usize,
    pub losses: usize,
    /// Effects beyond the first of each piece of work.
    pub duplicates: usize,
    /// Leases on work behind earlier work of the same key and lease.
    pub followers: usize,
    /// Longest recovery of a work that lapsed for the first time, without an outage.
    pub recovery: Duration,
    /// Longest of all other recoveries: after repeated lapses, or during an outage.
    pub late_recovery: Duration,
}

impl Summary {
    pub(super) fn new(view: &View<'_>) -> Self {
        let history = view.history;
        let count = |is: fn(&FaultKind) -> bool| {
            let faults = history.faults.iter();
            faults.filter(|fault| is(&fault.kind)).count()
        };
        let mut summary = Self {
            works: history.works.len(),
            kills: count(|kind| matches!(kind, FaultKind::Killed(_))),
            pauses: count(|kind| matches!(kind, FaultKind::Paused(_))),
            outages: count(|kind| *kind == FaultKind::Outage),
            losses: history.losses.len(),
            duplicates: history.effects.len() - view.fences.len(),
            ..Self::default()
        };
        let mut hits = BTreeSet::new();
        for work in &history.works {
            for hold in &work.holds {
                summary.lapses += usize::from(hold.outcome == OutcomeKind::Lapsed);
                summary.followers += usize::from(is_behind(view, work, hold));
                if is_lost(view, work, hold) {
                    let fault = history.fault_of(hold);
                    let fault = fault.filter(|it| !matches!(it.kind, FaultKind::Robbed(_)));
                    hits.extend(fault.map(|fault| fault.from));
                    summary.stalls += usize::from(is_without_fault(view, hold));
                }
            }
            for recovery in recoveries(view, work) {
                let longest = if recovery.is_plain {
                    &mut summary.recovery
                } else {
                    &mut summary.late_recovery
                };
                *longest = recovery.took.max(*longest);
            }
        }
        summary.hits = hits.len();
        summary
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let counts = [
            (self.works, "pieces of work"),
            (self.kills, "kills"),
            (self.pauses, "pauses"),
            (self.outages, "outages"),
            (self.hits, "faults cost a hold"),
            (self.lapses, "lapses"),
            (self.stalls, "stalls"),
            (self.losses, "losses reported"),
            (self.duplicates, "duplicates"),
            (self.followers, "behind others of their key"),
        ];
        for (number, what) in counts {
            write!(f, "{number} {what}, ")?;
        }
        write!(
            f,
            "recovered within {:.2?}, after repeated lapses or an outage within {:.2?}",
            self.recovery, self.late_recovery
        )
    }
}

//! The history of a run: pieces of work, their holders over time, their effects, and the faults.
//! All times come from the machine's clock, which the databases use, too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::{LapsePolicy, OutcomeKind, State, Timestamp};
use uuid::Uuid;

/// A lease that begins this soon after a fault may still be lost because of it: connections come
/// back one by one, and requests sent before the fault are answered after it.
pub(crate) const NEAR: Duration = Duration::from_secs(1);

/// The id of a piece of work in the store.
pub type Id = i64;
/// The number that the producer gave to a piece of work.
pub type Serial = u64;

/// The recorded facts of a run.
#[derive(Clone, Debug, Default)]
pub struct History {
    pub bounds: Bounds,
    /// Confirmed writes, with the id that the store returned.
    pub written: BTreeMap<Serial, Id>,
    /// Writes without an answer; they may have taken effect.
    pub unknown: BTreeSet<Serial>,
    /// Contents of the store at the end.
    pub works: Vec<Work>,
    /// Effects outside the store; those of one key in the order of arrival.
    pub effects: Vec<Effect>,
    pub faults: Vec<Fault>,
    pub losses: Vec<Loss>,
    /// Latest end of a lease that the store showed, by work and fence.
    pub until: BTreeMap<(Id, i64), Timestamp>,
    /// Works that the store showed as done before their effect existed.
    pub too_soon: BTreeSet<Id>,
    /// Leases whose effect the receiver refused.
    pub failed: BTreeSet<(Id, i64)>,
    /// Keys that one snapshot of the store showed with two leases.
    pub torn_keys: BTreeSet<String>,
    /// Workers that exited without being killed.
    pub exits: Vec<String>,
    /// Each final state that the store showed, in order of time; `None` if it disappeared again.
    pub ends: Vec<(String, Option<String>)>,
}

/// Configuration of a run.
#[derive(Clone, Debug, Default)]
pub struct Bounds {
    pub term: Duration,
    pub reaper: Duration,
    /// Number of lapses before a work is dead, and the delays between them.
    pub lapse: LapsePolicy,
    /// Longest time from the end of an outage to the next settle, if the run checks it.
    pub resumption: Option<Duration>,
}

/// Rules for the final state of a work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Judged {
    /// Done exactly once, or dead for a reason.
    #[default]
    Once,
    /// May be done several times until it is final.
    Repeated,
    /// Settled by a statement from outside while a worker held it.
    Forced,
}

/// A unit of work: an event, a delivery, a row, a chunk.
#[derive(Clone, Debug, Default)]
pub struct Work {
    pub id: Id,
    pub serial: Serial,
    /// Name in reports, where the id is not enough.
    pub name: String,
    /// The id by which receivers recognise repeats.
    pub event_id: Option<Uuid>,
    pub key: Option<String>,
    /// State at the end; `None` if the store does not show it.
    pub state: Option<State>,
    pub dead_reason: Option<String>,
    /// All leases of the work, oldest first.
    pub holds: Vec<Hold>,
    pub judged: Judged,
    /// Time of the final state, if it is recorded separately from a lease.
    pub final_at: Option<Timestamp>,
}

/// A lease on one work, after its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hold {
    pub holder: String,
    pub fence: i64,
    pub outcome: OutcomeKind,
    pub from: Timestamp,
    pub to: Timestamp,
}

/// An effect outside the store, as its receiver recorded it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    pub id: Id,
    /// The id by which receivers recognise repeats.
    pub event_id: Option<Uuid>,
    /// The fence of the lease that caused it.
    pub fence: i64,
    /// Number of the attempt, where the call carries it.
    pub attempt: Option<usize>,
}

/// A fault, from its beginning to its end.
#[derive(Clone, Debug)]
pub struct Fault {
    pub kind: FaultKind,
    pub from: Timestamp,
    pub to: Timestamp,
}

/// The kind of a fault, with the worker that it hit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FaultKind {
    Killed(String),
    /// The worker was paused and resumed.
    Paused(String),
    /// A statement from outside took a work from the worker.
    Robbed(String),
    /// The database could not be reached or could not be written.
    Outage,
}

/// A loss that a worker reported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    pub holder: String,
    pub about: About,
}

/// The subject of a loss report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// A lease, by its fence.
    Lease(i64),
    /// A work whose settle was refused.
    Work(Id),
    /// A settle that the worker gave up; the report does not name the work.
    Settle,
    /// A claim that the worker released without a result; the report does not name the works.
    Claim,
}

impl Hold {
    /// Returns true if the holder ended the lease with a settle of its own.
    pub(crate) fn is_settled(&self) -> bool {
        match self.outcome {
            OutcomeKind::Done | OutcomeKind::Retry | OutcomeKind::Dead | OutcomeKind::Release => {
                true
            }
            OutcomeKind::Lapsed | OutcomeKind::Buried => false,
        }
    }
}

impl Fault {
    /// The worker that the fault hit; `None` for an outage.
    pub fn holder(&self) -> Option<&str> {
        match &self.kind {
            FaultKind::Killed(holder) | FaultKind::Paused(holder) | FaultKind::Robbed(holder) => {
                Some(holder)
            }
            FaultKind::Outage => None,
        }
    }

    fn meets(&self, from: Timestamp, to: Timestamp) -> bool {
        self.from <= to && from <= self.to
    }
}

impl Work {
    /// Leases that ended with this outcome.
    pub fn holds_with(&self, word: OutcomeKind) -> impl Iterator<Item = &Hold> {
        self.holds.iter().filter(move |hold| hold.outcome == word)
    }
}

impl History {
    /// Each outage, and the time from its end to the next settle of a worker.
    pub fn resumptions(&self) -> impl Iterator<Item = (&Fault, Option<Duration>)> {
        let outages = self.faults.iter().filter(|f| f.kind == FaultKind::Outage);
        outages.map(|outage| {
            let holds = self.works.iter().flat_map(|work| &work.holds);
            let settled = holds.filter(|hold| hold.is_settled() && hold.to >= outage.to);
            let next = settled.map(|hold| hold.to.since(outage.to)).min();
            (outage, next)
        })
    }

    /// Outages that overlap this time.
    pub(crate) fn outages(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = &Fault> {
        let outages = self.faults.iter().filter(|f| f.kind == FaultKind::Outage);
        outages.filter(move |fault| fault.meets(from, to))
    }

    /// The last fault that hit the holder during this lease.
    pub(crate) fn fault_of(&self, hold: &Hold) -> Option<&Fault> {
        let faults = self.faults.iter().filter(|fault| {
            fault.holder() == Some(&hold.holder)
                && match fault.kind {
                    // A claim in flight may take effect after the death of its sender.
                    FaultKind::Killed(_) | FaultKind::Robbed(_) => fault.from <= hold.to,
                    // A claim sent before a pause may take effect, too; the worker then releases
                    // it.
                    FaultKind::Paused(_) => fault.meets(hold.from.before(NEAR), hold.to),
                    FaultKind::Outage => false,
                }
        });
        faults.max_by_key(|fault| fault.from)
    }

    /// Returns true if the worker reported the loss of this lease.
    pub(crate) fn is_reported(&self, id: Id, hold: &Hold) -> bool {
        self.losses.iter().any(|loss| {
            loss.holder == hold.holder
                && match loss.about {
                    About::Lease(fence) => fence == hold.fence,
                    About::Work(work) => work == id,
                    About::Settle => true,
                    About::Claim => hold.outcome == OutcomeKind::Release,
                }
        })
    }
}

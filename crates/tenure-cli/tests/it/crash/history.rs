//! What a run leaves behind: what was enqueued, what the store says of each event, what the
//! receiver got, what was done to the processes and what they said of it. All moments are of one
//! clock, the machine's, which is the databases' too.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::{LapsePolicy, State, Timestamp, Word};
use uuid::Uuid;

/// What follows a fault this closely is taken for its work: connections come back by and by, and
/// what was asked for before is answered after it.
pub(super) const NEAR: Duration = Duration::from_secs(1);

/// The name of an event in the store.
pub(super) type Id = i64;
/// The number of an event among those that the producer tried to write: its payload.
pub(super) type Serial = u64;

/// Everything that is known of a run.
#[derive(Clone, Debug)]
pub(super) struct History {
    pub(super) bounds: Bounds,
    /// Written for sure, with the id that was told.
    pub(super) written: BTreeMap<Serial, Id>,
    /// Tried, and never answered: there, or not.
    pub(super) unknown: BTreeSet<Serial>,
    /// What the store holds in the end.
    pub(super) events: Vec<Stored>,
    /// The events of one key in the order in which they came.
    pub(super) received: Vec<Receipt>,
    pub(super) faults: Vec<Fault>,
    /// What workers said of holds that they lost.
    pub(super) told: Vec<Told>,
    /// The latest end of a hold that anyone saw in the store, by event and fence.
    pub(super) until: BTreeMap<(Id, i64), Timestamp>,
    /// Seen as done at a moment at which the receiver did not have it.
    pub(super) unreceived: BTreeSet<Id>,
    /// Holds under which the receiver said no.
    pub(super) failed: BTreeSet<(Id, i64)>,
    /// Workers that ended although nobody ended them.
    pub(super) ended: Vec<String>,
}

/// What the run was configured to.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) term: Duration,
    pub(super) reaper: Duration,
    pub(super) lapse: LapsePolicy,
}

/// An event, as the store shows it in the end.
#[derive(Clone, Debug)]
pub(super) struct Stored {
    pub(super) id: Id,
    pub(super) serial: Serial,
    pub(super) event_id: Uuid,
    /// Its ordering key.
    pub(super) key: Option<String>,
    pub(super) state: State,
    pub(super) dead_reason: Option<String>,
    /// The journal, oldest first.
    pub(super) holds: Vec<Span>,
}

/// A hold that ended.
#[derive(Clone, Debug)]
pub(super) struct Span {
    pub(super) holder: String,
    pub(super) fence: i64,
    pub(super) word: Word,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

/// A line that the receiver has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Receipt {
    pub(super) id: Id,
    pub(super) event_id: Uuid,
    pub(super) fence: i64,
    pub(super) attempt: usize,
}

/// Something that was done to the run, and when.
#[derive(Clone, Debug)]
pub(super) struct Fault {
    pub(super) what: Harm,
    pub(super) from: Timestamp,
    pub(super) to: Timestamp,
}

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Harm {
    /// This worker was killed.
    Killed(String),
    /// This worker was stopped and continued.
    Paused(String),
    /// Nobody reached the database, or nobody could write to it.
    Outage,
}

/// What a worker said of a hold that it lost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Told {
    pub(super) holder: String,
    pub(super) about: About,
}

/// What it named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum About {
    /// The lease that it lost.
    Lease(i64),
    /// An event whose settle was refused.
    Event(Id),
    /// A settle that it gave up; it does not say of what.
    Settle,
    /// A claim that it gave back unworked; it does not know of what.
    Claim,
}

impl Span {
    /// Whether the holder himself said how it ended.
    pub(super) fn is_settled(&self) -> bool {
        match self.word {
            Word::Done | Word::Retry | Word::Dead | Word::Release => true,
            Word::Lapsed | Word::Buried => false,
        }
    }
}

impl Fault {
    /// The worker it was done to.
    pub(super) fn holder(&self) -> Option<&str> {
        match &self.what {
            Harm::Killed(holder) | Harm::Paused(holder) => Some(holder),
            Harm::Outage => None,
        }
    }

    /// Whether it fell into this time.
    pub(super) fn meets(&self, from: Timestamp, to: Timestamp) -> bool {
        self.from <= to && from <= self.to
    }
}

impl History {
    /// The outages that fell into this time.
    pub(super) fn outages(&self, from: Timestamp, to: Timestamp) -> impl Iterator<Item = &Fault> {
        let outages = self.faults.iter().filter(|f| f.what == Harm::Outage);
        outages.filter(move |fault| fault.meets(from, to))
    }

    /// What was done last to this worker while it had this hold.
    pub(super) fn harm(&self, hold: &Span) -> Option<&Fault> {
        let faults = self.faults.iter().filter(|fault| {
            fault.holder() == Some(&hold.holder)
                && match fault.what {
                    // A claim that was on its way may take effect after its sender's death.
                    Harm::Killed(_) => fault.from <= hold.to,
                    // So may one that was asked for before a pause, and is given back then.
                    Harm::Paused(_) => fault.meets(hold.from.before(NEAR), hold.to),
                    Harm::Outage => false,
                }
        });
        faults.max_by_key(|fault| fault.from)
    }

    /// Whether the worker said that it lost this hold on this event.
    pub(super) fn is_told(&self, id: Id, hold: &Span) -> bool {
        self.told.iter().any(|told| {
            told.holder == hold.holder
                && match told.about {
                    About::Lease(fence) => fence == hold.fence,
                    About::Event(event) => event == id,
                    About::Settle => true,
                    About::Claim => hold.word == Word::Release,
                }
        })
    }
}

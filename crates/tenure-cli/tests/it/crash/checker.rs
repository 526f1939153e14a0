//! The checker: reads a history and names every broken promise. It knows nothing of how the run
//! was made, and each promise has a planted history that breaks it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use tenure::{State, Timestamp, Word, reason};

use super::history::{Fault, Harm, History, Id, NEAR, Receipt, Serial, Span, Stored};
use super::order;

/// What comes on top of term and reaper interval until a lapsed event runs again.
const MARGIN: Duration = Duration::from_secs(1);
/// How long workers may take to find a database again that is back.
const RECONNECT: Duration = Duration::from_secs(2);

/// How long an event that is claimed alone may stand in line behind others of that kind.
const LINE: Duration = Duration::from_secs(6);

/// A broken promise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Violation {
    /// It was written for sure, and is not there under the id that was told.
    Lost(Serial),
    /// The store has it twice.
    Doubled(Serial),
    /// The store has it, and nobody tried to write it.
    Ghost(Serial),
    /// It was received, and the store has never had it.
    GhostReceived(Id),
    /// It is neither done nor dead.
    Unsettled(Id, &'static str),
    /// It is dead without having used up what it may survive.
    Died(Id, String),
    /// It is done, and the receiver did not get it under the hold that settled it.
    DoneUnreceived(Id),
    /// At some moment it was done and not yet received.
    DoneTooSoon(Id),
    /// It was received under a hold that the store knows nothing of.
    NoSuchHold(Receipt),
    /// It was received twice under one hold.
    ReceivedTwice(Receipt),
    /// It was received under an event id that is not its own: repeats of it cannot be dropped.
    OtherEventId(Receipt),
    /// It was received as another attempt than it was.
    WrongAttempt(Receipt),
    /// A later hold has not the higher fence.
    FenceNotRising(Id, i64),
    /// It was not settled for good exactly once.
    NotDoneOnce(Id, usize),
    /// The settle of a holder who had been replaced was accepted.
    StaleSettle(Id, i64),
    /// Two held it at once.
    Overlap(Id, i64),
    /// A lease was ended before its time, and not by its holder.
    EndedEarly(Id, i64),
    /// A hold ended without done, and nothing was done to its holder or its database.
    Unexplained(Id, i64, &'static str),
    /// A worker that was stopped did not notice that it had lost a hold.
    Unnoticed(Id, i64),
    /// An event of a worker that was killed or stopped came too late into other hands.
    SlowRecovery(Id, Duration),
    /// Two leases held something of its key at once.
    KeyHeldTwice(Id, i64, Duration),
    /// It was done after a later one of its key.
    DoneOutOfOrder(Id),
    /// A receiver that looks at fences took it after a later one of its key.
    TakenOutOfOrder(Receipt),
    /// It came after a later one of its key, and had never come before.
    CameOutOfOrder(Receipt),
    /// A worker ended although nobody ended it.
    WorkerEnded(String),
}

impl Violation {
    /// The event that it is about, where it names one by its id.
    pub(super) fn event(&self) -> Option<Id> {
        match self {
            Self::Lost(_) | Self::Doubled(_) | Self::Ghost(_) | Self::WorkerEnded(_) => None,
            Self::NoSuchHold(receipt)
            | Self::ReceivedTwice(receipt)
            | Self::OtherEventId(receipt)
            | Self::WrongAttempt(receipt)
            | Self::TakenOutOfOrder(receipt)
            | Self::CameOutOfOrder(receipt) => Some(receipt.id),
            Self::GhostReceived(id)
            | Self::Unsettled(id, _)
            | Self::Died(id, _)
            | Self::DoneUnreceived(id)
            | Self::DoneTooSoon(id)
            | Self::FenceNotRising(id, _)
            | Self::NotDoneOnce(id, _)
            | Self::StaleSettle(id, _)
            | Self::Overlap(id, _)
            | Self::EndedEarly(id, _)
            | Self::Unexplained(id, _, _)
            | Self::Unnoticed(id, _)
            | Self::KeyHeldTwice(id, ..)
            | Self::DoneOutOfOrder(id)
            | Self::SlowRecovery(id, _) => Some(*id),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// What a run was like.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Summary {
    pub(super) events: usize,
    pub(super) kills: usize,
    pub(super) pauses: usize,
    pub(super) outages: usize,
    /// Receipts beyond the first of each event.
    pub(super) duplicates: usize,
    /// Events that were held with others of their key before them.
    pub(super) followers: usize,
    pub(super) lapses: usize,
    /// Lost holds that only the worker's own words explain: the machine was too slow.
    pub(super) stalls: usize,
    /// Times that a worker said of a hold that it was lost.
    pub(super) told: usize,
    /// Faults that took at least one event with them.
    pub(super) hits: usize,
    /// From a fault to the next claim, of events that lapsed for the first time, no outage near.
    pub(super) worst_recovery: Duration,
    /// The same of all others, which wait longer by rule.
    pub(super) worst_repeated: Duration,
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = [
            (self.events, "events"),
            (self.kills, "kills"),
            (self.pauses, "pauses"),
            (self.outages, "outages"),
            (self.hits, "hit work in hand"),
            (self.lapses, "lapses"),
            (self.stalls, "stalls"),
            (self.told, "losses noticed"),
            (self.duplicates, "duplicates"),
            (self.followers, "in runs behind another"),
        ];
        for (number, what) in done {
            write!(f, "{number} {what}, ")?;
        }
        write!(
            f,
            "recovered within {:.2?}, after repeated lapses or an outage within {:.2?}",
            self.worst_recovery, self.worst_repeated
        )
    }
}

/// Everything that is wrong with a run, and what it was like.
pub(super) fn check(history: &History) -> (Vec<Violation>, Summary) {
    let mut checker = Checker {
        history,
        fences: BTreeMap::new(),
        violations: BTreeSet::new(),
        hit: BTreeSet::new(),
        summary: Summary::default(),
    };
    checker.read_receipts();
    checker.check_intake();
    for event in &history.events {
        checker.check_end(event);
        checker.check_holds(event);
        checker.check_settles(event);
        for hold in &event.holds {
            checker.explain(event.id, hold);
        }
        checker.check_recovery(event);
    }
    let ended = history.ended.iter().cloned().map(Violation::WorkerEnded);
    checker.violations.extend(ended);
    checker.violations.extend(order::broken(history));
    checker.count();
    (checker.violations.into_iter().collect(), checker.summary)
}

struct Checker<'a> {
    history: &'a History,
    /// The fences under which each event was received.
    fences: BTreeMap<Id, BTreeSet<i64>>,
    violations: BTreeSet<Violation>,
    /// The faults that took something with them, by their number.
    hit: BTreeSet<(Timestamp, String)>,
    summary: Summary,
}

impl Checker<'_> {
    fn report(&mut self, violation: Violation) {
        self.violations.insert(violation);
    }

    fn read_receipts(&mut self) {
        for receipt in &self.history.received {
            let fences = self.fences.entry(receipt.id).or_default();
            if !fences.is_empty() {
                self.summary.duplicates += 1;
            }
            if !fences.insert(receipt.fence) {
                self.report(Violation::ReceivedTwice(*receipt));
            }
        }
        for id in &self.history.unreceived {
            self.report(Violation::DoneTooSoon(*id));
        }
    }

    /// What was written is there once, and nothing else is.
    fn check_intake(&mut self) {
        let history = self.history;
        let mut stored = BTreeMap::new();
        for event in &history.events {
            if stored.insert(event.serial, event.id).is_some() {
                self.report(Violation::Doubled(event.serial));
            }
            let is_known = history.written.contains_key(&event.serial)
                || history.unknown.contains(&event.serial);
            if !is_known {
                self.report(Violation::Ghost(event.serial));
            }
        }
        for (serial, id) in &history.written {
            if stored.get(serial) != Some(id) {
                self.report(Violation::Lost(*serial));
            }
        }
        let by_id: BTreeMap<Id, &Stored> = history.events.iter().map(|e| (e.id, e)).collect();
        for receipt in &history.received {
            match by_id.get(&receipt.id) {
                None => self.report(Violation::GhostReceived(receipt.id)),
                Some(event) => self.check_receipt(event, receipt),
            }
        }
    }

    /// What was received was held, and is what the store has.
    fn check_receipt(&mut self, event: &Stored, receipt: &Receipt) {
        if receipt.event_id != event.event_id {
            self.report(Violation::OtherEventId(*receipt));
        }
        if !event.holds.iter().any(|h| h.fence == receipt.fence) {
            self.report(Violation::NoSuchHold(*receipt));
            return;
        }
        // What was given back unworked may count or not.
        let earlier = || event.holds.iter().filter(|h| h.fence < receipt.fence);
        let least = 1 + earlier().filter(|h| h.word != Word::Release).count();
        if !(least..=1 + earlier().count()).contains(&receipt.attempt) {
            self.report(Violation::WrongAttempt(*receipt));
        }
    }

    /// Everything is settled, and for a reason.
    fn check_end(&mut self, event: &Stored) {
        let word = |word: Word| event.holds.iter().filter(move |hold| hold.word == word);
        match event.state {
            State::Done => {
                let done = word(Word::Done).count();
                if done != 1 {
                    self.report(Violation::NotDoneOnce(event.id, done));
                }
                let received = self.fences.get(&event.id);
                let is_received =
                    |hold: &Span| received.is_some_and(|fences| fences.contains(&hold.fence));
                if !word(Word::Done).any(is_received) {
                    self.report(Violation::DoneUnreceived(event.id));
                }
            }
            State::Dead => {
                let budget = usize::try_from(self.history.bounds.lapse.max_crashes()).unwrap_or(0);
                let why = event.dead_reason.clone().unwrap_or_default();
                if why != reason::CRASH_LOOP || word(Word::Lapsed).count() <= budget {
                    self.report(Violation::Died(event.id, why));
                }
            }
            State::Pending | State::Claimed => {
                self.report(Violation::Unsettled(event.id, event.state.as_str()));
            }
        }
    }

    /// One holder at a time, with a higher fence each time, and nobody's lease is cut short.
    fn check_holds(&mut self, event: &Stored) {
        for (earlier, later) in event.holds.iter().zip(event.holds.iter().skip(1)) {
            if later.fence <= earlier.fence {
                self.report(Violation::FenceNotRising(event.id, later.fence));
            }
            if later.from < earlier.to {
                self.report(Violation::Overlap(event.id, later.fence));
            }
        }
        for hold in event.holds.iter().filter(|hold| !hold.is_settled()) {
            let first = hold.from.after(self.history.bounds.term);
            let seen = self.history.until.get(&(event.id, hold.fence));
            if hold.to < seen.copied().unwrap_or(first).max(first) {
                self.report(Violation::EndedEarly(event.id, hold.fence));
            }
        }
    }

    /// Nobody who was replaced, or slept through the end of his lease, had a word.
    fn check_settles(&mut self, event: &Stored) {
        let highest = event.holds.iter().map(|hold| hold.fence).max();
        for hold in event.holds.iter().filter(|hold| hold.is_settled()) {
            let twice = event.holds.iter().filter(|h| h.fence == hold.fence).count() > 1;
            let replaced = hold.word == Word::Done && Some(hold.fence) != highest;
            if twice || replaced || self.is_slept_through(hold) {
                self.report(Violation::StaleSettle(event.id, hold.fence));
            }
        }
    }

    /// Whether it was settled by its holder after a pause that was longer than the lease, while
    /// others were there to end that.
    fn is_slept_through(&self, hold: &Span) -> bool {
        let bounds = &self.history.bounds;
        self.history.faults.iter().any(|fault| {
            let over = fault.from.after(bounds.term + bounds.reaper + MARGIN);
            matches!(&fault.what, Harm::Paused(holder) if *holder == hold.holder)
                && hold.from <= fault.from
                && over < hold.to
                && self.history.outages(fault.from, hold.to).next().is_none()
        })
    }

    /// Every hold that did not end with done has a fault beside it.
    fn explain(&mut self, id: Id, hold: &Span) {
        let is_answered =
            hold.word == Word::Retry && self.history.failed.contains(&(id, hold.fence));
        if hold.word == Word::Done || is_answered {
            return;
        }
        if hold.word == Word::Lapsed {
            self.summary.lapses += 1;
        }
        let told = self.history.is_told(id, hold);
        if let Some(fault) = self.history.harm(hold) {
            self.hit.insert((fault.from, hold.holder.clone()));
            if !told && self.is_asleep(id, hold, fault) {
                self.report(Violation::Unnoticed(id, hold.fence));
            }
            return;
        }
        let around = self.history.outages(hold.from.before(NEAR), hold.to);
        if around.count() > 0 {
            return;
        }
        if told {
            self.summary.stalls += 1;
        } else {
            self.report(Violation::Unexplained(id, hold.fence, hold.word.as_str()));
        }
    }

    /// Whether a worker was stopped while it worked on this, went on and lived to notice. One that
    /// was stopped in the middle of its claim never came to work on it, and has nothing to say.
    fn is_asleep(&self, id: Id, hold: &Span, fault: &Fault) -> bool {
        let received = self.fences.get(&id);
        let killed = Harm::Killed(hold.holder.clone());
        let is_killed = |other: &Fault| other.what == killed && other.from < fault.to.after(NEAR);
        matches!(fault.what, Harm::Paused(_))
            && hold.word == Word::Lapsed
            && received.is_some_and(|fences| fences.contains(&hold.fence))
            && !self.history.faults.iter().any(is_killed)
    }

    /// What a worker held that was killed or stopped is claimed again in time.
    fn check_recovery(&mut self, event: &Stored) {
        let mut lapses = 0;
        for (hold, next) in event.holds.iter().zip(event.holds.iter().skip(1)) {
            // What was behind another of its key waits for that one as well.
            if hold.word != Word::Lapsed || order::is_behind(self.history, event, hold) {
                continue;
            }
            lapses += 1;
            let Some(fault) = self.history.harm(hold) else {
                continue;
            };
            let base = fault.from.max(hold.from);
            let took = next.from.since(base);
            let (allowed, is_first) = self.allowed(lapses, base, next.from);
            if took > allowed {
                self.report(Violation::SlowRecovery(event.id, took));
            }
            let worst = if is_first {
                &mut self.summary.worst_recovery
            } else {
                &mut self.summary.worst_repeated
            };
            *worst = took.max(*worst);
        }
    }

    /// How long it may take until an event that lapsed so often is claimed again, and whether that
    /// is the plain promise. From the second lapse on it waits by rule, and is then claimed alone,
    /// one such event at a time in each process; an outage adds its own length.
    fn allowed(&self, lapses: u32, from: Timestamp, to: Timestamp) -> (Duration, bool) {
        let bounds = &self.history.bounds;
        let plain = bounds.term + bounds.reaper + MARGIN;
        let rule = if lapses > 1 {
            bounds.lapse.fate(lapses).unwrap_or_default() + LINE
        } else {
            Duration::ZERO
        };
        let length = |outage: &Fault| outage.to.since(outage.from) + RECONNECT;
        let outages: Duration = self.history.outages(from, to).map(length).sum();
        (plain + rule + outages, (rule + outages).is_zero())
    }

    fn count(&mut self) {
        let count = |is: fn(&Harm) -> bool| {
            let faults = self.history.faults.iter();
            faults.filter(|fault| is(&fault.what)).count()
        };
        let (kills, pauses, outages) = (
            count(|what| matches!(what, Harm::Killed(_))),
            count(|what| matches!(what, Harm::Paused(_))),
            count(|what| *what == Harm::Outage),
        );
        self.summary = Summary {
            events: self.history.events.len(),
            followers: order::followers(self.history),
            told: self.history.told.len(),
            hits: self.hit.len(),
            kills,
            pauses,
            outages,
            ..self.summary
        };
    }
}

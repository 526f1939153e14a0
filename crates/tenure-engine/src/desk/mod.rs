//! Desk: everything that this process has in hand, and the decisions about it. One lock, never held
//! across an await; nothing here waits or talks to a store.
//!
//! The hands (claim and settle), the slots (handlers) and the keeper (heartbeat, deadlines) meet
//! here and nowhere else.

mod keep;
mod step;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::store::Company;
use tenure_core::webhook::Delivery;
use tenure_core::{Held, Item, ItemId, Outcome, Standing, settle_run};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

pub(crate) use keep::{Beat, Lost, Overdue};
pub(crate) use step::{Asked, Step, Work};

use crate::beside::{Beside, CallSlot, Ending, Orphan};
use crate::handler::Context;
use crate::hold::{Answered, InHand, LeaseNo, Stage};
use crate::live::Live;
use crate::pace::{Pace, Speed};
use crate::round::Round;
use crate::run::Runs;

/// Everything that this process has in hand.
#[derive(Debug)]
pub(crate) struct Desk(Mutex<State>);

#[derive(Debug)]
struct State {
    live: Arc<Live>,
    leases: BTreeMap<LeaseNo, InHand>,
    /// What may be started, in order. An entry whose lease is gone is passed over. What waits for
    /// another of its key stands in the runs of its lease.
    waiting: VecDeque<(LeaseNo, Item)>,
    /// What runs under a hold that stands.
    running: BTreeMap<(LeaseNo, ItemId), AtWork>,
    /// Slots that are at work, also those whose hold was lost and that have not stopped yet.
    occupied: u32,
    /// Slots that there are.
    slots: u32,
    last_no: LeaseNo,
    pace: Pace,
    speed: Speed,
    round: Round,
    /// Claims under way, and how many items they may bring.
    claims: u32,
    asked: u32,
    /// Whether the last claim brought all that it asked for.
    is_flush: bool,
    is_alone_asked: bool,
    is_stopping: bool,
    /// Claims that nobody works under and that are being given back, and writes of calls.
    returning: u32,
    /// Calls whose hold is gone and that are to be written down.
    orphans: Vec<Orphan>,
}

/// What is known of an item while it runs.
#[derive(Clone, Debug)]
struct AtWork {
    began: Instant,
    max_hold: Duration,
    /// How often it had failed before.
    failures: u32,
    /// The endpoint of a delivery, and its event.
    delivery: Option<(u32, ItemId)>,
    call: CallSlot,
}

impl AtWork {
    fn overdue_at(&self) -> Instant {
        self.began + self.max_hold
    }
}

/// An item to be worked on now.
#[derive(Debug)]
pub(crate) struct Start {
    pub(crate) no: LeaseNo,
    pub(crate) item: Item,
    pub(crate) cx: Context,
}

/// What a slot does next.
#[derive(Debug)]
pub(crate) enum Next {
    /// Work on this.
    Start(Box<Start>),
    /// There is nothing; wait.
    Wait,
    /// There are more slots than wanted: end.
    Leave,
}

/// Whether a hand should look at the desk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nudge {
    Needed,
    Needless,
}

/// What a handler said, or that it was stopped.
#[derive(Debug)]
pub(crate) struct Said {
    pub(crate) no: LeaseNo,
    pub(crate) id: ItemId,
    /// `None`: it was stopped before it said anything.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) beside: Beside,
    pub(crate) took: Duration,
}

/// How much is in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) running: u32,
    pub(crate) held: u32,
}

impl Desk {
    pub(crate) fn new(live: Arc<Live>, now: Instant) -> Self {
        Self(Mutex::new(State {
            live,
            leases: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            occupied: 0,
            slots: 0,
            last_no: 0,
            pace: Pace::new(now),
            speed: Speed::default(),
            round: Round::default(),
            claims: 0,
            asked: 0,
            is_flush: false,
            is_alone_asked: false,
            is_stopping: false,
            returning: 0,
            orphans: Vec::new(),
        }))
    }

    /// A verb here checks before it writes, so a panic under the lock leaves nothing half done.
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on these settings are in force, for later claims.
    pub(crate) fn tune(&self, live: Arc<Live>) {
        self.state().live = live;
    }

    /// Someone knows of work.
    pub(crate) fn wake(&self, now: Instant) {
        self.state().pace.wake(now);
    }

    /// How many more slots are wanted; they are counted as made.
    pub(crate) fn hire(&self) -> u32 {
        let mut state = self.state();
        let wanted = state.live.settings.concurrency;
        let load = u32::try_from(state.waiting.len()).unwrap_or(u32::MAX);
        let useful = state.occupied.saturating_add(load).min(wanted);
        let more = useful.saturating_sub(state.slots);
        state.slots += more;
        more
    }

    /// Takes what a slot has to say, if anything, and tells it what to do next; and whether a hand
    /// should look.
    pub(crate) fn exchange(&self, said: Option<Said>, now: Instant) -> (Next, Nudge) {
        let mut state = self.state();
        let mut nudge = said.map_or(Nudge::Needless, |said| state.hear(said, now));
        if state.slots > state.live.settings.concurrency {
            state.slots -= 1;
            return (Next::Leave, Nudge::Needed);
        }
        let next = state
            .start_next(now)
            .map_or(Next::Wait, |start| Next::Start(Box::new(start)));
        if state.waiting.is_empty() {
            // There is room for more.
            nudge = Nudge::Needed;
        }
        (next, nudge)
    }

    /// How much is in hand.
    pub(crate) fn load(&self) -> Load {
        let state = self.state();
        let held: usize = state.leases.values().map(|lease| lease.items.len()).sum();
        Load {
            running: state.occupied,
            held: u32::try_from(held).unwrap_or(u32::MAX),
        }
    }

    /// Claims nothing any more and gives back what was not started.
    pub(crate) fn stop(&self, now: Instant) {
        let mut state = self.state();
        state.is_stopping = true;
        state.waiting.clear();
        for lease in state.leases.values_mut() {
            lease.give_back_unstarted(now);
        }
    }

    /// This item may be worked on for so long, if that is longer than its lease says; answers until
    /// when.
    pub(crate) fn hold_longer(
        &self,
        no: LeaseNo,
        id: ItemId,
        max_hold: Duration,
    ) -> Option<Instant> {
        let mut state = self.state();
        let at_work = state.running.get_mut(&(no, id))?;
        at_work.max_hold = at_work.max_hold.max(max_hold);
        Some(at_work.overdue_at())
    }

    /// A claim that nobody works under was given back, or its lease is over; or calls were written
    /// down.
    pub(crate) fn returned(&self) {
        let mut state = self.state();
        state.returning = state.returning.saturating_sub(1);
    }

    /// Takes all that can be settled now, whoever should have done it: what was answered or was not
    /// started.
    pub(crate) fn take_last(&self, now: Instant) -> Vec<Ending> {
        let mut state = self.state();
        let leases = state.leases.iter_mut();
        leases
            .filter_map(|(no, lease)| lease.take_settle(*no, now))
            .collect()
    }

    /// Takes the calls whose hold is gone; they count as being written down until
    /// [`Desk::returned`] says that they were.
    pub(crate) fn take_orphans(&self) -> Vec<Orphan> {
        self.state().take_orphans()
    }

    /// Cancels what still runs; each is given back when its handler has stopped.
    pub(crate) fn cancel_running(&self) {
        for lease in self.state().leases.values() {
            lease.cancel();
        }
    }
}

impl State {
    /// Puts a claim's items in line, or nowhere when it came too late; answers how many can be
    /// started.
    fn seat(&mut self, held: Held, asked: &Asked, now: Instant) -> Result<u32, ()> {
        let deadline = InHand::deadline(asked.sent_at, asked.look.rhythm.term.length());
        // Heartbeat and watchdog look again within a quarter of the interval: a lease that ends
        // before that would be kept by neither.
        if now + asked.look.rhythm.heartbeat / 4 >= deadline || self.is_stopping {
            return Err(());
        }
        self.last_no += 1;
        let no = self.last_no;
        let ids = held.items.iter().map(|item| item.id);
        let items = ids.map(|id| (id, Stage::Waiting)).collect();
        let deliveries = held.items.iter();
        let endpoints = deliveries.filter_map(|item| Some((item.id, owed(item)?.0)));
        let endpoints = endpoints.collect();
        let (in_line, runs) = Runs::line_up(held.items);
        let count = u32::try_from(in_line.len()).unwrap_or(u32::MAX);
        self.leases.insert(
            no,
            InHand {
                token: held.lease.token,
                fence: held.lease.fence,
                rhythm: asked.look.rhythm,
                company: asked.look.company,
                claimed_at: asked.sent_at,
                deadline,
                is_over: false,
                is_refused: false,
                beat_at: asked.sent_at + asked.look.rhythm.heartbeat,
                items,
                endpoints,
                runs,
                answered: 0,
                answered_since: None,
                is_stepwise: false,
            },
        );
        self.waiting
            .extend(in_line.into_iter().map(|item| (no, item)));
        Ok(count)
    }

    fn start_next(&mut self, now: Instant) -> Option<Start> {
        while let Some((no, item)) = self.waiting.pop_front() {
            let Some(lease) = self.leases.get_mut(&no) else {
                continue;
            };
            let (token, fence) = (lease.token.clone(), lease.fence);
            let max_hold = lease.rhythm.max_hold;
            // A lease that is nearly over is left to the watchdog; a buried item is gone.
            if now >= lease.deadline {
                lease.is_over = true;
                continue;
            }
            let Some(stage @ Stage::Waiting) = lease.items.get_mut(&item.id) else {
                self.pass_turn(no, item.id);
                continue;
            };
            let cancel = CancellationToken::new();
            *stage = Stage::Running(cancel.clone());
            let at_work = AtWork {
                began: now,
                max_hold,
                failures: item.counters.failures,
                delivery: owed(&item),
                call: CallSlot::of(item.id),
            };
            let cx = Context {
                id: item.id,
                token,
                fence,
                attempt: item.counters.attempts.saturating_add(1),
                deadline: at_work.overdue_at(),
                cancel,
                call: at_work.call.clone(),
            };
            self.running.insert((no, item.id), at_work);
            self.occupied += 1;
            return Some(Start { no, item, cx });
        }
        None
    }

    /// Takes an answer. When the hold was lost in the meantime there is nobody to tell.
    fn hear(&mut self, said: Said, now: Instant) -> Nudge {
        self.occupied = self.occupied.saturating_sub(1);
        self.running.remove(&(said.no, said.id));
        if self.live.is_choosing {
            // Its endpoint has room again.
            self.pace.look_soon(now);
        }
        let Some(lease) = self.leases.get_mut(&said.no) else {
            self.orphan(said.id, said.beside, now);
            return Nudge::Needed;
        };
        if !matches!(lease.items.get(&said.id), Some(Stage::Running(_))) {
            // It was buried; only now has its handler stopped.
            self.orphan(said.id, said.beside, now);
            self.pass_turn(said.no, said.id);
            return Nudge::Needed;
        }
        let outcome = match said.outcome {
            Some(outcome) => {
                self.speed.took(said.took);
                outcome
            }
            None => Outcome::RELEASE,
        };
        let on_dead = self.live.settings.on_dead;
        let (_, standing) = settle_run(&[Some(outcome.word())], on_dead);
        let is_first = lease.answered_since.is_none();
        let answered = Answered {
            outcome,
            on_dead,
            beside: said.beside,
        };
        lease.answer(said.id, answered, now);
        match standing {
            Standing::Open => self.pass_turn(said.no, said.id),
            Standing::Headed | Standing::Blocked => lease.give_back_behind(said.id, now),
        }
        let is_answered = self.leases.get(&said.no).is_some_and(InHand::is_answered);
        if is_first || is_answered {
            return Nudge::Needed;
        }
        Nudge::Needless
    }

    /// This item makes way for the one behind it in its run, if there is one. That one comes first
    /// in line: the sooner a run ends, the sooner its key can go on.
    fn pass_turn(&mut self, no: LeaseNo, id: ItemId) {
        let next = self.leases.get_mut(&no);
        if let Some(item) = next.and_then(|lease| lease.runs.next(id)) {
            self.waiting.push_front((no, item));
        }
    }

    /// What was said of an item whose hold is gone: its call is written down all the same.
    fn orphan(&mut self, id: ItemId, beside: Beside, now: Instant) {
        if let Beside::Call(made) = beside {
            self.orphans.push(Orphan::new(made.into_call(id, now), now));
        }
    }

    fn take_orphans(&mut self) -> Vec<Orphan> {
        let orphans = std::mem::take(&mut self.orphans);
        self.returning += u32::from(!orphans.is_empty());
        orphans
    }

    fn has_alone(&self) -> bool {
        self.is_alone_asked
            || self
                .leases
                .values()
                .any(|lease| lease.company == Company::Alone)
    }
}

/// The endpoint of a delivery, and its event.
fn owed(item: &Item) -> Option<(u32, ItemId)> {
    let Delivery {
        endpoint, source, ..
    } = item.content.delivery()?;
    Some((*endpoint, *source))
}

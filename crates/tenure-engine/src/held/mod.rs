//! `HeldLeases`: the leases of this worker and the decisions about them, behind one lock that is
//! never held across an await. Nothing here waits or calls a store.
//!
//! Claim loops, executors and the keeper share the state of leases only here.

mod limits;
mod pending_release;
mod renewal;
mod step;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::store::Isolation;
use tenure_core::webhook::Delivery;
use tenure_core::{Held, Item, ItemId, KeyStatus, Outcome, RetryRules, settle_run};
use tokio::time::Instant;

use self::limits::Limits;
use self::pending_release::PendingReleases;
pub(crate) use pending_release::PendingRelease;
pub(crate) use renewal::{LostHold, OverdueItem, RenewalBatch};
pub(crate) use step::{ClaimRequest, GivenUp, Step, StoreWork};

use crate::attachment::{Attachment, CallSlot, OrphanedCall, PendingSettle};
use crate::handler::{Context, Handler, Rules};
use crate::held_lease::{Answered, HeldLease, ItemStage, LeaseNo};
use crate::item_label::ItemLabel;
use crate::item_queues::ItemQueues;
use crate::options::Limit;
use crate::pace::{Pace, Speed};
use crate::round::Round;
use crate::run::Runs;
use crate::settings_watcher::ActiveSettings;

/// The leases of this worker.
#[derive(Debug)]
pub(crate) struct HeldLeases(Mutex<HeldState>);

#[derive(Debug)]
struct HeldState {
    live: Arc<ActiveSettings>,
    leases: BTreeMap<LeaseNo, HeldLease>,
    /// Items that may be started, in order. Entries whose lease is lost or settled are skipped.
    /// Items that wait for an earlier item of their key are in the runs of their lease.
    waiting: VecDeque<(LeaseNo, Item)>,
    /// Running items whose lease is still held.
    running: BTreeMap<(LeaseNo, ItemId), RunningItem>,
    /// Executors at work, including those whose lease was lost and whose handler has not stopped
    /// yet.
    busy_executors: u32,
    /// Executors that exist.
    executors: u32,
    last_no: LeaseNo,
    pace: Pace,
    speed: Speed,
    round: Round,
    /// Claims under way.
    claims: u32,
    /// Sum of the limits of the claims under way.
    requested_items: u32,
    /// The last claim reached its limit.
    is_last_claim_full: bool,
    is_isolated_claim_pending: bool,
    is_stopping: bool,
    /// Orphaned calls being recorded.
    returning: u32,
    pending: PendingReleases,
    /// Calls to record whose lease is lost.
    orphans: Vec<OrphanedCall>,
    limits: Limits,
}

/// An item whose handler runs.
#[derive(Clone, Debug)]
pub(crate) struct RunningItem {
    began: Instant,
    pub(crate) max_hold: Duration,
    /// Failures before this attempt.
    pub(crate) failures: u32,
    /// Rules of the handler and of the queue that override the settings.
    pub(crate) retry: RetryRules,
    /// Endpoint number and event of a delivery.
    pub(crate) delivery: Option<(u32, ItemId)>,
    pub(crate) call: CallSlot,
    pub(crate) label: Arc<ItemLabel>,
}

impl RunningItem {
    fn overdue_at(&self) -> Instant {
        self.began + self.max_hold
    }
}

/// An item that an executor is to work on.
#[derive(Debug)]
pub(crate) struct StartedItem {
    pub(crate) no: LeaseNo,
    pub(crate) item: Item,
    pub(crate) cx: Context,
    pub(crate) rules: Rules,
    pub(crate) label: Arc<ItemLabel>,
}

/// Next action of an executor.
#[derive(Debug)]
pub(crate) enum Next {
    Start(Box<StartedItem>),
    Wait,
    /// The executor exits: there are more executors than configured.
    Exit,
}

/// Request to wake a claim loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nudge {
    Needed,
    Needless,
}

/// Result of a handler run.
#[derive(Debug)]
pub(crate) struct HandlerReport {
    pub(crate) no: LeaseNo,
    pub(crate) id: ItemId,
    /// `None`: the handler was cancelled.
    pub(crate) outcome: Option<Outcome>,
    pub(crate) attachment: Attachment,
    pub(crate) took: Duration,
    /// The concurrency limit of its handler.
    pub(crate) limit: Option<Limit>,
}

/// Number of running and held items.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) running: u32,
    pub(crate) held: u32,
}

impl HeldLeases {
    /// Creates the state of a worker whose items `handler` works on.
    pub(crate) fn new(live: Arc<ActiveSettings>, handler: Arc<dyn Handler>, now: Instant) -> Self {
        Self(Mutex::new(HeldState {
            live,
            leases: BTreeMap::new(),
            waiting: VecDeque::new(),
            running: BTreeMap::new(),
            busy_executors: 0,
            executors: 0,
            last_no: 0,
            pace: Pace::new(now),
            speed: Speed::default(),
            round: Round::default(),
            claims: 0,
            requested_items: 0,
            is_last_claim_full: false,
            is_isolated_claim_pending: false,
            is_stopping: false,
            returning: 0,
            pending: PendingReleases::default(),
            orphans: Vec::new(),
            limits: Limits::new(handler),
        }))
    }

    /// Methods check before they write, so a panic under the lock leaves nothing half done.
    fn state(&self) -> MutexGuard<'_, HeldState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies these settings to later claims.
    pub(crate) fn tune(&self, live: Arc<ActiveSettings>) {
        self.state().live = live;
    }

    /// Polls at once: the store answers again.
    pub(crate) fn store_is_back(&self, now: Instant) {
        self.state().pace.reset(now);
    }

    /// Polls at once: there is new work.
    pub(crate) fn wake(&self, now: Instant) {
        self.state().pace.wake(now);
    }

    /// Number of executors to start; they count as existing from now on.
    pub(crate) fn take_missing_executors(&self) -> u32 {
        let mut state = self.state();
        let wanted = state.live.settings.concurrency;
        let load = u32::try_from(state.waiting.len()).unwrap_or(u32::MAX);
        let useful = state.busy_executors.saturating_add(load).min(wanted);
        let more = useful.saturating_sub(state.executors);
        state.executors += more;
        more
    }

    /// Accepts an executor's report, if any, and returns its next action, and whether a claim loop
    /// should be woken.
    pub(crate) fn exchange(&self, report: Option<HandlerReport>, now: Instant) -> (Next, Nudge) {
        let mut state = self.state();
        let mut nudge = report.map_or(Nudge::Needless, |report| state.accept(report, now));
        if state.executors > state.live.settings.concurrency {
            state.executors -= 1;
            return (Next::Exit, Nudge::Needed);
        }
        let next = state
            .start_next(now)
            .map_or(Next::Wait, |start| Next::Start(Box::new(start)));
        if state.startable() == 0 {
            // Nothing to start: a claim may bring more items.
            nudge = Nudge::Needed;
        }
        (next, nudge)
    }

    /// Number of running and held items.
    pub(crate) fn load(&self) -> Load {
        let state = self.state();
        let held: usize = state.leases.values().map(|lease| lease.items.len()).sum();
        Load {
            running: state.busy_executors,
            held: u32::try_from(held).unwrap_or(u32::MAX),
        }
    }

    /// Stops claiming and releases unstarted items.
    pub(crate) fn stop(&self, now: Instant) {
        let mut state = self.state();
        state.is_stopping = true;
        state.waiting.clear();
        for lease in state.leases.values_mut() {
            lease.give_back_unstarted(now);
        }
    }

    /// Raises the maximum hold of a running item if `max_hold` is longer; returns its deadline.
    pub(crate) fn extend_max_hold(
        &self,
        no: LeaseNo,
        id: ItemId,
        max_hold: Duration,
    ) -> Option<Instant> {
        let mut state = self.state();
        let running_item = state.running.get_mut(&(no, id))?;
        running_item.max_hold = running_item.max_hold.max(max_hold);
        Some(running_item.overdue_at())
    }

    /// Records that orphaned calls were recorded.
    pub(crate) fn returned(&self) {
        let mut state = self.state();
        state.returning = state.returning.saturating_sub(1);
    }

    /// Takes every outcome that can be settled now, unstarted items included.
    pub(crate) fn take_last(&self, now: Instant) -> Vec<PendingSettle> {
        let mut state = self.state();
        let leases = state.leases.iter_mut();
        leases
            .filter_map(|(no, lease)| lease.take_settle(*no, now))
            .collect()
    }

    /// Takes the orphaned calls; they count as under way until [`HeldLeases::returned`].
    pub(crate) fn take_orphans(&self) -> Vec<OrphanedCall> {
        self.state().take_orphans()
    }

    /// Cancels running handlers; each item is released when its handler has stopped.
    pub(crate) fn cancel_running(&self) {
        for lease in self.state().leases.values() {
            lease.cancel();
        }
    }
}

impl HeldState {
    /// Queues the items of a claim and returns the number that can be started; fails if the claim
    /// came too late.
    fn add_lease(&mut self, held: Held, request: &ClaimRequest, now: Instant) -> Result<u32, ()> {
        let deadline = HeldLease::deadline(request.sent_at, request.target.timing.term.length());
        // The next tick of heartbeat and watchdog may be a quarter of the interval away; both would
        // miss a lease that ends before it.
        if now + request.target.timing.heartbeat / 4 >= deadline || self.is_stopping {
            return Err(());
        }
        self.last_no += 1;
        let no = self.last_no;
        let ids = held.items.iter().map(|item| item.id);
        let items = ids.map(|id| (id, ItemStage::Waiting)).collect();
        let deliveries = held.items.iter();
        let endpoints = deliveries.filter_map(|item| Some((item.id, delivery_of(item)?.0)));
        let endpoints = endpoints.collect();
        let queues = Arc::new(ItemQueues::new(&held.items));
        let (in_line, runs) = Runs::line_up(held.items);
        let count = u32::try_from(in_line.len()).unwrap_or(u32::MAX);
        self.leases.insert(
            no,
            HeldLease {
                token: held.lease.token,
                fence: held.lease.fence,
                timing: request.target.timing,
                isolation: request.target.isolation,
                claimed_at: request.sent_at,
                deadline,
                is_over: false,
                is_refused: false,
                beat_at: request.sent_at + request.target.timing.heartbeat,
                items,
                endpoints,
                queues,
                runs,
                answered: 0,
                answered_since: None,
                is_stepwise: false,
            },
        );
        let limited = in_line
            .iter()
            .any(|item| self.limits.rules(item).limit.is_some());
        self.limits.is_limited |= limited;
        self.waiting
            .extend(in_line.into_iter().map(|item| (no, item)));
        if limited {
            self.give_back_surplus(no, now);
        }
        Ok(count)
    }

    fn start_next(&mut self, now: Instant) -> Option<StartedItem> {
        let mut at = 0;
        while let Some((_, item)) = self.waiting.get(at) {
            let mut rules = self.limits.rules(item);
            if rules.limit.is_some_and(|limit| self.limits.is_full(limit)) {
                at += 1;
                continue;
            }
            let Some((no, item)) = self.waiting.remove(at) else {
                break;
            };
            let Some(lease) = self.leases.get_mut(&no) else {
                continue;
            };
            let proof = (lease.token.clone(), lease.fence);
            let max_hold = lease.timing.max_hold;
            // The watchdog handles leases past their deadline.
            if now >= lease.deadline {
                lease.is_over = true;
                continue;
            }
            // A buried item is no longer held.
            let Some(stage @ ItemStage::Waiting) = lease.items.get_mut(&item.id) else {
                self.pass_turn(no, item.id);
                continue;
            };
            rules.retry = rules.retry.or(self.live.retry_of(&item));
            let label = Arc::new(ItemLabel::of(&item));
            let cx = Context::new(&item, proof, now + max_hold);
            *stage = ItemStage::Running(cx.cancel.clone());
            let running_item = RunningItem {
                began: now,
                max_hold,
                failures: item.counters.failures,
                retry: rules.retry,
                delivery: delivery_of(&item),
                call: cx.call.clone(),
                label: Arc::clone(&label),
            };
            self.running.insert((no, item.id), running_item);
            self.busy_executors += 1;
            self.limits.enter(rules.limit);
            return Some(StartedItem {
                no,
                item,
                cx,
                rules,
                label,
            });
        }
        None
    }

    /// Accepts the report of a handler. If the lease is lost, only the webhook call is recorded.
    fn accept(&mut self, report: HandlerReport, now: Instant) -> Nudge {
        self.busy_executors = self.busy_executors.saturating_sub(1);
        self.limits.leave(report.limit);
        self.running.remove(&(report.no, report.id));
        if self.live.is_choosing {
            // The endpoint has free capacity again.
            self.pace.poll_soon(now);
        }
        let Some(lease) = self.leases.get_mut(&report.no) else {
            let orphan = OrphanedCall::of(report.id, report.attachment, now);
            self.orphans.extend(orphan);
            return Nudge::Needed;
        };
        if !matches!(lease.items.get(&report.id), Some(ItemStage::Running(_))) {
            // The item was buried while its handler ran.
            let orphan = OrphanedCall::of(report.id, report.attachment, now);
            self.orphans.extend(orphan);
            self.pass_turn(report.no, report.id);
            return Nudge::Needed;
        }
        let outcome = match report.outcome {
            Some(outcome) => {
                self.speed.took(report.took);
                outcome
            }
            None => Outcome::RELEASE,
        };
        let on_dead = self.live.settings.on_dead;
        let (_, key_status) = settle_run(&[Some(outcome.kind())], on_dead);
        let is_first = lease.answered_since.is_none();
        let answered = Answered {
            outcome,
            on_dead,
            attachment: report.attachment,
        };
        lease.answer(report.id, answered, now);
        match key_status {
            KeyStatus::Open => self.pass_turn(report.no, report.id),
            KeyStatus::Headed | KeyStatus::Blocked => lease.give_back_behind(report.id, now),
        }
        let is_answered = self
            .leases
            .get(&report.no)
            .is_some_and(HeldLease::is_answered);
        if is_first || is_answered {
            return Nudge::Needed;
        }
        Nudge::Needless
    }

    /// Queues the next item of the run at the front: the sooner a run ends, the sooner its key
    /// continues.
    fn pass_turn(&mut self, no: LeaseNo, id: ItemId) {
        let next = self.leases.get_mut(&no);
        if let Some(item) = next.and_then(|lease| lease.runs.next(id)) {
            self.waiting.push_front((no, item));
        }
    }

    fn take_orphans(&mut self) -> Vec<OrphanedCall> {
        let orphans = std::mem::take(&mut self.orphans);
        self.returning += u32::from(!orphans.is_empty());
        orphans
    }

    fn has_alone(&self) -> bool {
        self.is_isolated_claim_pending
            || self
                .leases
                .values()
                .any(|lease| lease.isolation == Isolation::Isolated)
    }
}

/// Endpoint number and event of a delivery.
fn delivery_of(item: &Item) -> Option<(u32, ItemId)> {
    let Delivery {
        endpoint, source, ..
    } = item.content.delivery()?;
    Some((*endpoint, *source))
}

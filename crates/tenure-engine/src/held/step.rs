//! Next action of a claim loop: settle answered items, claim within capacity, or wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::store::{EndpointLane, Isolation, Settlement};
use tenure_core::{Held, ItemId, Refusal, Token};
use tokio::time::Instant;

use super::{HeldLeases, HeldState};
use crate::attachment::{OrphanedCall, PendingSettle};
use crate::held_lease::{ItemStage, LeaseNo};
use crate::round::{ClaimTarget, RoundInput};

/// Delay of a settle while other items of the lease still run, so that outcomes close together
/// share a statement.
const SETTLE_DELAY: Duration = Duration::from_millis(10);

/// Maximum concurrent claims while claims reach their limit; otherwise one.
const MAX_CLAIMS: u32 = 2;

/// Next action of a claim loop.
#[derive(Debug)]
pub(crate) enum Step {
    /// Call the store.
    Go(Box<StoreWork>),
    /// Wait until then or until woken.
    Wait(Instant),
    /// The worker has stopped and holds nothing.
    Over,
}

/// Calls of the store to make now.
#[derive(Debug)]
pub(crate) struct StoreWork {
    pub(crate) settle: Option<PendingSettle>,
    pub(crate) claim: Option<ClaimRequest>,
    /// Webhook calls to record without a settle.
    pub(crate) orphans: Vec<OrphanedCall>,
    /// Releases are pending, and no releaser runs.
    pub(crate) must_release: bool,
}

/// Reason for giving up a settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum GivenUp {
    /// The store did not answer in time: the items are released once it does.
    Unanswered,
    /// The store cannot process the settle: the leases lapse.
    Rejected,
}

/// A claim to send.
#[derive(Clone, Debug)]
pub(crate) struct ClaimRequest {
    pub(crate) target: ClaimTarget,
    pub(crate) limit: u32,
    /// Minimum number of items that can run at the same time.
    pub(crate) min_parallel: u32,
    /// Unsettled deliveries by endpoint number.
    pub(crate) in_hand: BTreeMap<u32, u32>,
    /// Endpoint lanes with the limit of each, once selected.
    pub(crate) lanes: Vec<(EndpointLane, u32)>,
    pub(crate) token: Token,
    /// Read before the claim is sent.
    pub(crate) sent_at: Instant,
}

impl HeldLeases {
    /// Returns the next action. `is_ready`: the handler accepts items; `mint` creates a token.
    pub(crate) fn step(&self, now: Instant, is_ready: bool, mint: impl FnOnce() -> Token) -> Step {
        let mut state = self.state();
        let orphans = state.take_orphans();
        let must_release = state.start_releaser();
        let settle = state.take_settle(now);
        // A sender selects lanes before a claim, so its claims and settles run in separate loops.
        let is_separate = settle.is_some() && state.live.is_choosing;
        let claim = if is_separate {
            None
        } else {
            state.take_claim(now, is_ready, mint)
        };
        if settle.is_some() || claim.is_some() || !orphans.is_empty() || must_release {
            return Step::Go(Box::new(StoreWork {
                settle,
                claim,
                orphans,
                must_release,
            }));
        }
        let is_idle = state.busy_executors == 0 && state.leases.is_empty();
        if state.is_stopping && is_idle && state.claims == 0 && state.has_released() {
            return Step::Over;
        }
        Step::Wait(state.next_at(now))
    }

    /// Applies the answer of a claim: queues its items and returns the number that can be started.
    /// If the answer came too late or the worker is stopping, owes the release of the claim.
    pub(crate) fn claimed(
        &self,
        request: &ClaimRequest,
        held: Option<Held>,
        now: Instant,
        chance: f64,
    ) -> u32 {
        let mut state = self.state();
        state.claim_ended(request);
        let Some(held) = held else {
            state.is_last_claim_full = false;
            if state.round.is_without_work() {
                state.pace.record_idle(now, chance);
            }
            return 0;
        };
        // A claim that reached only small limits of its lanes does not count as full: the next one
        // then waits a little, so that it can use the capacity of several finished calls.
        let half = usize::try_from(request.limit.div_ceil(2)).unwrap_or(usize::MAX);
        let is_large = request.lanes.is_empty() || held.items.len() >= half;
        let is_full = held.is_full && is_large;
        if request.target.isolation == Isolation::Shared {
            state.is_last_claim_full = is_full;
        }
        state.round.record_work();
        state.pace.record_work(now, is_full);
        let Ok(count) = state.add_lease(held, request, now) else {
            // Pending under the same lock, so that `is_clear` is never true before the claim is
            // released; otherwise the worker would exit too early.
            state.owe_claim(request.token.clone(), now);
            return 0;
        };
        count
    }

    /// Records a claim without an answer: owes the release of the items that it may have taken.
    pub(crate) fn claim_failed(&self, request: &ClaimRequest, now: Instant, chance: f64) {
        let mut state = self.state();
        state.claim_ended(request);
        state.owe_claim(request.token.clone(), now);
        state.is_last_claim_full = false;
        state.pace.record_error(now, chance);
    }

    /// Records that the lanes could not be read; nothing was claimed.
    pub(crate) fn choice_failed(&self, request: &ClaimRequest, now: Instant, chance: f64) {
        let mut state = self.state();
        state.claim_ended(request);
        state.pace.record_error(now, chance);
    }

    /// Applies the answer of a settle: any answer ends the lease on its items in this process.
    pub(crate) fn settled(&self, no: LeaseNo, settlement: &Settlement, now: Instant) {
        let mut state = self.state();
        for (id, why) in settlement.refused() {
            if why == Refusal::OutOfTurn {
                // In the store the item is still claimed, ahead of the later items of its run.
                drop(state.drop_behind(no, id, now));
            }
        }
        let ids = settlement.items.iter().map(|(id, _)| *id);
        state.remove_settled(no, ids);
    }

    /// True if the lease is held and before its deadline.
    pub(crate) fn is_live(&self, no: LeaseNo, now: Instant) -> bool {
        self.state()
            .leases
            .get(&no)
            .is_some_and(|lease| now < lease.deadline)
    }

    /// Drops the items of a settle that was given up, and the later items of their runs, because
    /// the store would refuse to settle them. Owes the release of those that no handler works on.
    pub(crate) fn abandon(&self, pending: PendingSettle, why: GivenUp, now: Instant) {
        let mut state = self.state();
        let (no, ids) = (pending.no, pending.ids());
        let mut idle: BTreeSet<ItemId> = ids.iter().copied().collect();
        for id in &ids {
            idle.extend(state.drop_behind(no, *id, now));
        }
        state.remove_settled(no, ids);
        if let Some(running) = pending.running {
            idle.remove(&running);
        }
        if why == GivenUp::Unanswered {
            let idle = idle.into_iter().collect();
            state.owe_items(&pending.settle.token, &pending.queues, idle, now);
        }
        state.orphans.extend(pending.into_orphans());
    }
}

impl HeldState {
    fn take_settle(&mut self, now: Instant) -> Option<PendingSettle> {
        let delay = if self.is_stopping {
            Duration::ZERO
        } else {
            SETTLE_DELAY
        };
        let (no, lease) = self.leases.iter_mut().find(|(_, lease)| {
            let is_old = lease
                .answered_since
                .is_some_and(|since| now >= since + delay);
            now < lease.deadline && (lease.is_answered() || is_old && lease.can_settle())
        })?;
        lease.take_settle(*no, now)
    }

    fn take_claim(
        &mut self,
        now: Instant,
        is_ready: bool,
        mint: impl FnOnce() -> Token,
    ) -> Option<ClaimRequest> {
        // Two concurrent selections would use the same capacity twice.
        let is_choosing = self.live.is_choosing;
        let most = if self.is_last_claim_full && !is_choosing {
            MAX_CLAIMS
        } else {
            1
        };
        let is_due = self.live.is_loaded && now >= self.pace.next_at();
        if self.is_stopping || !is_due || self.claims >= most || self.owes_too_much() {
            return None;
        }
        let room = self.room()?;
        if !is_ready {
            self.pace.pause(now);
            return None;
        }
        let input = RoundInput {
            has_isolated_room: !self.live.is_one_by_one && !self.has_alone(),
            is_idle: self.pace.is_idle(),
        };
        let groups = std::sync::Arc::clone(&self.live.groups);
        let Some(target) = self.round.next(&groups, input) else {
            self.pace.record_idle(now, 0.5);
            return None;
        };
        let limit = match target.isolation {
            Isolation::Shared => room,
            Isolation::Isolated => 1,
        };
        // A sender claims no runs: items that wait for an earlier item of their key would use up
        // the endpoint's capacity.
        let min_parallel = if is_choosing {
            limit
        } else {
            self.min_parallel(limit)
        };
        let in_hand = self.in_hand();
        self.claims += 1;
        self.requested_items += limit;
        self.is_isolated_claim_pending |= target.isolation == Isolation::Isolated;
        Some(ClaimRequest {
            target,
            limit,
            min_parallel,
            in_hand,
            lanes: Vec::new(),
            token: mint(),
            sent_at: now,
        })
    }

    /// Returns the unsettled deliveries by endpoint number, without answered ones, which no longer
    /// use the endpoint.
    fn in_hand(&self) -> BTreeMap<u32, u32> {
        let mut in_hand = BTreeMap::new();
        for lease in self.leases.values() {
            for (id, endpoint) in &lease.endpoints {
                let stage = lease.items.get(id);
                if matches!(stage, Some(ItemStage::Waiting | ItemStage::Running(_))) {
                    *in_hand.entry(*endpoint).or_default() += 1;
                }
            }
        }
        in_hand
    }

    /// Limit of the next claim; `None`: enough items wait.
    ///
    /// The claim fills the free executors. It asks for more only if handlers will start the items
    /// within a tenth of the term. A claim asks for at most one batch, and at most two batches
    /// wait. Items that wait for an earlier item of their key count as work, but do not fill free
    /// executors.
    fn room(&self) -> Option<u32> {
        let settings = &self.live.settings;
        let free = settings.concurrency.saturating_sub(self.busy_executors);
        let ahead = if self.live.is_one_by_one {
            // The worker claims nothing ahead: another worker could start it at once.
            0
        } else {
            let soon = self.speed.within(self.soon(), settings.concurrency);
            soon.min(settings.batch.saturating_mul(MAX_CLAIMS))
        };
        let target = free.max(ahead);
        let in_line = self.startable().saturating_add(self.requested_items);
        let behind: usize = self.leases.values().map(|lease| lease.runs.behind()).sum();
        let behind = u32::try_from(behind).unwrap_or(u32::MAX);
        let all = in_line.saturating_add(behind);
        if in_line >= free && all > target / 2 {
            return None;
        }
        let room = target.saturating_sub(all).max(free.saturating_sub(in_line));
        let room = room.min(settings.batch);
        (room > 0).then_some(room)
    }

    /// Minimum number of items of a claim that can run at the same time. It is large enough to fill
    /// the free executors, and to keep runs so short that all their items start within a tenth of
    /// the term.
    fn min_parallel(&self, limit: u32) -> u32 {
        let free = self
            .live
            .settings
            .concurrency
            .saturating_sub(self.busy_executors);
        let each = self.speed.within(self.soon(), 1).max(1);
        let least = free.saturating_sub(self.startable()).max(1);
        least.max(limit.div_ceil(each))
    }

    /// Time within which items claimed ahead should start.
    fn soon(&self) -> Duration {
        self.live.settings.term.length() / 10
    }

    /// Removes a claim from those under way.
    fn claim_ended(&mut self, request: &ClaimRequest) {
        self.claims = self.claims.saturating_sub(1);
        self.requested_items = self.requested_items.saturating_sub(request.limit);
        if request.target.isolation == Isolation::Isolated {
            self.is_isolated_claim_pending = false;
        }
    }

    fn remove_settled(&mut self, no: LeaseNo, ids: impl IntoIterator<Item = ItemId>) {
        let Some(lease) = self.leases.get_mut(&no) else {
            return;
        };
        for id in ids {
            if matches!(lease.items.get(&id), Some(ItemStage::Settling)) {
                lease.items.remove(&id);
            }
        }
        if lease.items.is_empty() {
            self.leases.remove(&no);
        }
    }

    /// Drops the later items of a run: they are neither started nor settled, and running ones are
    /// cancelled. Returns those that no handler works on.
    fn drop_behind(&mut self, no: LeaseNo, id: ItemId, now: Instant) -> Vec<ItemId> {
        let mut idle = Vec::new();
        let Some(lease) = self.leases.get_mut(&no) else {
            return idle;
        };
        lease.runs.stop(id);
        for later in lease.runs.after(id).to_vec() {
            match lease.items.get(&later) {
                // The settle under way removes this item.
                None | Some(ItemStage::Settling) => continue,
                Some(stage @ ItemStage::Running(_)) => {
                    stage.cancel();
                    self.running.remove(&(no, later));
                }
                Some(ItemStage::Answered(..)) => {
                    lease.took(1);
                    idle.push(later);
                }
                Some(ItemStage::Waiting) => idle.push(later),
            }
            if let Some(ItemStage::Answered(answered)) = lease.items.remove(&later) {
                let orphan = OrphanedCall::of(later, answered.attachment, now);
                self.orphans.extend(orphan);
            }
        }
        idle
    }

    /// Time at which a claim loop should wake by itself.
    fn next_at(&self, now: Instant) -> Instant {
        let delayed = self
            .leases
            .values()
            // Leases past their deadline are no longer settled; the answer to a settle under way
            // wakes the loop.
            .filter(|lease| now < lease.deadline && lease.can_settle())
            .filter_map(|lease| lease.answered_since)
            .min()
            .map(|since| since + SETTLE_DELAY);
        // Other wake-ups arrive through `Notify`.
        let is_claimable = !self.is_stopping
            && self.live.is_loaded
            && self.claims == 0
            && self.pace.next_at() > now;
        let target = is_claimable.then(|| self.pace.next_at());
        let far = now + Duration::from_secs(1);
        delayed
            .into_iter()
            .chain(target)
            .min()
            .unwrap_or(far)
            .min(far)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tenure_core::{Event, QueueName, Settings, WorkerId};

    use super::*;
    use crate::handler::{Context, EventFn};
    use crate::round::QueueGroup;
    use crate::settings_watcher::ActiveSettings;

    /// Returns held leases with one claim under way, and that claim.
    fn claiming(now: Instant) -> (HeldLeases, ClaimRequest) {
        let settings = Settings::default();
        let group = QueueGroup {
            timing: settings.timing(),
            queues: vec![QueueName::default()],
        };
        let live = ActiveSettings {
            groups: Arc::new([group]),
            is_loaded: true,
            ..ActiveSettings::new(settings)
        };
        let handler = EventFn::new(|_: Event, _: Context| async { Ok(()) });
        let held_leases = HeldLeases::new(Arc::new(live), Arc::new(handler), now);
        let worker = WorkerId::new("w", 1).unwrap();
        let Step::Go(work) = held_leases.step(now, true, || Token::new(&worker, 1, 1)) else {
            panic!("there is room, so the next step is a claim");
        };
        (held_leases, work.claim.unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn held_leases_are_never_clear_before_a_claim_is_released() {
        let now = Instant::now();
        let (held_leases, request) = claiming(now);
        held_leases.stop(now);
        assert!(!held_leases.is_clear(), "the claim is under way");
        held_leases.claim_failed(&request, now, 0.5);
        assert!(!held_leases.is_clear(), "it may have claimed items");
        assert_released(&held_leases);

        let (held_leases, request) = claiming(now);
        held_leases.stop(now);
        let held = Held {
            lease: tenure_core::Lease {
                token: request.token.clone(),
                fence: tenure_core::Fence::new(1),
                claimed_at: tenure_core::Timestamp::from_micros(0),
                until: tenure_core::Timestamp::from_micros(1),
            },
            items: Vec::new(),
            is_full: false,
        };
        assert_eq!(held_leases.claimed(&request, Some(held), now, 0.5), 0);
        assert!(!held_leases.is_clear(), "its items are not released yet");
        assert_released(&held_leases);
    }

    /// Takes the only pending release; the worker is clear once the releaser finds no other.
    fn assert_released(held_leases: &HeldLeases) {
        let pending = held_leases.next_release();
        assert!(pending.is_some_and(|pending| pending.is_of_claim()));
        assert!(!held_leases.is_clear(), "it is being released");
        assert!(held_leases.next_release().is_none());
        assert!(held_leases.is_clear());
    }
}

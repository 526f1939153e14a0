//! Renewals and deadlines: renews leases in time, and cancels their work before the store can give
//! the items to another worker.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::store::Renewed;
use tenure_core::{Fence, ItemId, LeaseTiming, OnDead, OutcomeKind, Term, Token};
use tokio::time::Instant;

use super::{HeldLeases, HeldState, RunningItem};
use crate::attachment::{OrphanedCall, PendingSettle};
use crate::held_lease::{ItemStage, LeaseNo, LossReason};

/// One renewal statement: all leases of one term.
#[derive(Debug)]
pub(crate) struct RenewalBatch {
    pub(crate) term: Term,
    /// Shortest heartbeat of the leases; the renewal must end within it.
    pub(crate) interval: Duration,
    pub(crate) leases: Vec<(LeaseNo, Token)>,
}

/// A lease, or part of one, that was lost before its settle.
#[derive(Debug)]
pub(crate) struct LostHold {
    pub(crate) fence: Fence,
    pub(crate) loss: LossReason,
    /// Items whose handler was running.
    pub(crate) running: Vec<ItemId>,
    /// Events of the running deliveries.
    pub(crate) events: Vec<ItemId>,
    /// Number of items that were not settled.
    pub(crate) items: usize,
}

/// An item whose handler exceeded `max_hold`.
#[derive(Debug)]
pub(crate) struct OverdueItem {
    pub(crate) id: ItemId,
    /// Settle with the outcomes of earlier items of its run that were not sent yet.
    pub(crate) pending: PendingSettle,
    /// Later items of its run.
    pub(crate) behind: Vec<ItemId>,
    pub(crate) term: Term,
    pub(crate) running: RunningItem,
}

impl HeldLeases {
    /// Interval of lease and deadline checks: a quarter of the shortest heartbeat of held leases
    /// and of the active settings. Leases claimed before a change of the settings keep their own
    /// timing.
    pub(crate) fn tick(&self) -> Duration {
        let state = self.state();
        let held = state.leases.values().map(|lease| lease.timing.heartbeat);
        held.chain([state.live.heartbeat()])
            .min()
            .unwrap_or_default()
            / 4
    }

    /// The renewals due by `until`. When one lease of a term is due, all of that term are renewed
    /// in one statement.
    pub(crate) fn due_renewals(&self, until: Instant) -> Vec<RenewalBatch> {
        let state = self.state();
        let mut batches: BTreeMap<Term, RenewalBatch> = BTreeMap::new();
        for (no, lease) in &state.leases {
            let LeaseTiming {
                term, heartbeat, ..
            } = lease.timing;
            let batch = batches.entry(term).or_insert(RenewalBatch {
                term,
                interval: heartbeat,
                leases: Vec::new(),
            });
            batch.interval = batch.interval.min(heartbeat);
            batch.leases.push((*no, lease.token.clone()));
        }
        batches.retain(|term, _| {
            state
                .leases
                .values()
                .any(|lease| lease.timing.term == *term && lease.beat_at <= until)
        });
        batches.into_values().collect()
    }

    /// Applies a renewal that was sent at `sent_at` and answered at `now`. Items missing from the
    /// answer were buried: their work is cancelled. A deadline that has passed is final, because
    /// the worker may have skipped items since then and would never start them.
    pub(crate) fn renewed(
        &self,
        no: LeaseNo,
        (sent_at, now): (Instant, Instant),
        renewed: &Renewed,
    ) -> Option<LostHold> {
        let mut state = self.state();
        let state = &mut *state;
        let lease = state.leases.get_mut(&no)?;
        if lease.is_over || now >= lease.deadline {
            return state.lose(no, LossReason::Late, now);
        }
        lease.renewed(sent_at);
        let gone: Vec<ItemId> = lease
            .items
            .iter()
            .filter(|(id, stage)| {
                !matches!(stage, ItemStage::Settling) && renewed.ids.binary_search(id).is_err()
            })
            .map(|(id, _)| *id)
            .collect();
        if gone.is_empty() {
            return None;
        }
        let fence = lease.fence;
        let mut running = Vec::new();
        for id in &gone {
            match lease.items.remove(id) {
                Some(stage @ ItemStage::Running(_)) => {
                    stage.cancel();
                    running.push(*id);
                }
                Some(ItemStage::Answered(answered)) => {
                    lease.took(1);
                    let orphan = OrphanedCall::of(*id, answered.attachment, now);
                    state.orphans.extend(orphan);
                }
                _ => {}
            }
            lease.runs.forget(*id);
        }
        let is_empty = lease.items.is_empty();
        let events = state.forget(no, &running);
        if is_empty {
            state.leases.remove(&no);
        }
        Some(LostHold {
            fence,
            loss: LossReason::Buried,
            running,
            events,
            items: gone.len(),
        })
    }

    /// Drops a lease: cancels its running items and settles none of them. Returns `None` if the
    /// lease has ended already, or if a renewal was refused while all items are being settled.
    pub(crate) fn lose(&self, no: LeaseNo, loss: LossReason, now: Instant) -> Option<LostHold> {
        let mut state = self.state();
        let lease = state.leases.get_mut(&no)?;
        if matches!(loss, LossReason::Refused(_)) && lease.is_finalizing() {
            lease.is_refused = true;
            return None;
        }
        state.lose(no, loss, now)
    }

    /// Leases past their deadline, except those that are probably settled.
    pub(crate) fn late(&self, now: Instant) -> Vec<LeaseNo> {
        let state = self.state();
        let late = state.leases.iter();
        let late = late.filter(|(_, lease)| now >= lease.deadline && !lease.is_ending());
        late.map(|(no, _)| *no).collect()
    }

    /// Takes the items that exceeded `max_hold` away from their handlers, each with the rest of its
    /// run. The caller settles them.
    pub(crate) fn take_overdue(&self, now: Instant) -> Vec<OverdueItem> {
        let mut state = self.state();
        let on_dead = state.live.settings.on_dead;
        let due: Vec<_> = state
            .running
            .iter()
            .filter(|(_, running)| now >= running.overdue_at())
            .map(|(key, running)| (*key, running.clone()))
            .collect();
        let mut overdue = Vec::new();
        for ((no, id), running) in due {
            state.running.remove(&(no, id));
            let Some(lease) = state.leases.get_mut(&no) else {
                continue;
            };
            if let Some(stage @ ItemStage::Running(_)) = lease.items.get_mut(&id) {
                stage.cancel();
                *stage = ItemStage::Settling;
                let mut pending = lease.take_before(no, id, now);
                // If an earlier item is dead, this item was started because of the rule `Skip`.
                let mut before = pending.settle.items.iter();
                let is_skipped = before.any(|(_, outcome)| outcome.kind() == OutcomeKind::Dead);
                pending.settle.on_dead = if is_skipped { OnDead::Skip } else { on_dead };
                overdue.push(OverdueItem {
                    id,
                    pending,
                    behind: lease.take_behind(id),
                    term: lease.timing.term,
                    running,
                });
            }
        }
        overdue
    }

    /// True if every earlier item of the run is settled or part of `pending`.
    pub(crate) fn is_its_turn(&self, id: ItemId, pending: &PendingSettle) -> bool {
        let state = self.state();
        let Some(lease) = state.leases.get(&pending.no) else {
            return true;
        };
        let ours = &pending.settle.items;
        let is_ours = |id: &ItemId| ours.iter().any(|(our, _)| our == id);
        let mut before = lease.runs.before(id).iter();
        before.all(|id| !lease.items.contains_key(id) || is_ours(id))
    }

    /// Releases the items that were not started within two terms of their claim, and returns their
    /// number. The handlers have become slower, and other workers may have free executors. The
    /// worker claims ahead again once its handlers are faster.
    pub(crate) fn give_back_stale(&self, now: Instant) -> usize {
        let mut state = self.state();
        let (mut count, mut longest) = (0, None);
        let mut stale = BTreeSet::new();
        for (no, lease) in &mut state.leases {
            let waited = now.saturating_duration_since(lease.claimed_at);
            if waited >= lease.timing.term.length() * 2 {
                let (in_line, behind) = lease.give_back_unstarted(now);
                count += in_line + behind;
                // Items that wait for an earlier item of their key do not show how busy the
                // executors are.
                longest = longest.max((in_line > 0).then_some(waited));
                stale.insert(*no);
            }
        }
        state.waiting.retain(|(no, _)| !stale.contains(no));
        if let Some(longest) = longest {
            state.speed.took(longest);
        }
        count
    }

    /// Next deadline of a lease or of a running item.
    pub(crate) fn next_end(&self) -> Option<Instant> {
        let state = self.state();
        let leases = state.leases.values().filter(|lease| !lease.is_ending());
        let deadlines = leases.map(|lease| lease.deadline);
        let overdue = state.running.values().map(RunningItem::overdue_at);
        deadlines.chain(overdue).min()
    }

    /// Executors at work.
    pub(crate) fn running(&self) -> u32 {
        self.state().busy_executors
    }

    /// True if nothing is held, running or under way.
    pub(crate) fn is_clear(&self) -> bool {
        let state = self.state();
        let is_silent = state.claims == 0 && state.returning == 0 && state.has_released();
        let is_idle = state.busy_executors == 0 && state.orphans.is_empty();
        state.leases.is_empty() && is_idle && is_silent
    }
}

impl HeldState {
    fn lose(&mut self, no: LeaseNo, loss: LossReason, now: Instant) -> Option<LostHold> {
        let lease = self.leases.remove(&no)?;
        lease.cancel();
        let items = lease.items.len();
        let running: Vec<ItemId> = lease
            .items
            .iter()
            .filter(|(_, stage)| matches!(stage, ItemStage::Running(_)))
            .map(|(id, _)| *id)
            .collect();
        let events = self.forget(no, &running);
        let stages = lease.items.iter();
        // A settle under way that fails owes the release of its own items.
        let idle = stages
            .filter(|(_, stage)| matches!(stage, ItemStage::Waiting | ItemStage::Answered(_)));
        self.owe_lost(&lease, loss, idle.map(|(id, _)| *id).collect(), now);
        for (id, stage) in lease.items {
            if let ItemStage::Answered(answered) = stage {
                let orphan = OrphanedCall::of(id, answered.attachment, now);
                self.orphans.extend(orphan);
            }
        }
        Some(LostHold {
            fence: lease.fence,
            loss,
            running,
            events,
            items,
        })
    }

    /// Forgets running items whose lease is lost; returns the events of those that are deliveries.
    fn forget(&mut self, no: LeaseNo, running: &[ItemId]) -> Vec<ItemId> {
        let forgotten = running
            .iter()
            .filter_map(|id| self.running.remove(&(no, *id)));
        let events = forgotten.filter_map(|running_item| running_item.delivery);
        events.map(|(_, event)| event).collect()
    }
}

//! A held lease: its local deadline, its items and the stage of each.
//!
//! ```text
//! Waiting ──► Running ──► Answered ──► Settling ──► gone
//!    └───────────┴────────────┴─── lost, buried: gone, and nothing is settled
//! ```
//!
//! At most one settle per run is under way: the store takes the items in order, and a second settle
//! could overtake the first. When an item is retried or released, the same settle releases the
//! later items unstarted. The store would release them anyway; but naming them yields an answer for
//! each, even when an earlier item was buried in the meantime.
//!
//! A settle that also writes calls or deliveries has several steps; at most one settle of such a
//! lease is under way.
//!
//! The deadline is computed from this machine's monotonic clock, read before the claim or renewal
//! was sent, less a margin. So it always lies before the moment at which the store may give the
//! items to another worker.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::Isolation;
use tenure_core::{Fence, ItemId, LeaseTiming, OnDead, Outcome, OutcomeKind, Refusal, Token};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::attachment::{Attachment, PendingSettle};
use crate::item_queues::ItemQueues;
use crate::run::Runs;

/// Number of a lease within this process.
pub(crate) type LeaseNo = u64;

/// A held lease.
#[derive(Debug)]
pub(crate) struct HeldLease {
    pub(crate) token: Token,
    pub(crate) fence: Fence,
    pub(crate) timing: LeaseTiming,
    pub(crate) isolation: Isolation,
    /// Time at which the claim was sent.
    pub(crate) claimed_at: Instant,
    /// Time from which no work may be done under the lease.
    pub(crate) deadline: Instant,
    /// An item was skipped because the deadline had passed; this is final.
    pub(crate) is_over: bool,
    /// A renewal was refused while all items were being settled.
    pub(crate) is_refused: bool,
    /// Time of the next renewal.
    pub(crate) beat_at: Instant,
    pub(crate) items: BTreeMap<ItemId, ItemStage>,
    /// Endpoint numbers of deliveries.
    pub(crate) endpoints: BTreeMap<ItemId, u32>,
    pub(crate) queues: Arc<ItemQueues>,
    /// Runs of items that wait for each other.
    pub(crate) runs: Runs,
    /// Items answered and not yet being settled.
    pub(crate) answered: usize,
    /// Time of the first such answer.
    pub(crate) answered_since: Option<Instant>,
    /// An outcome had an attachment, so that settles have several steps.
    pub(crate) is_stepwise: bool,
}

/// Stage of an item.
#[derive(Debug)]
pub(crate) enum ItemStage {
    /// Claimed, not started: queued, or waiting for an earlier item of its key.
    Waiting,
    /// Its handler runs.
    Running(CancellationToken),
    /// Its outcome is known.
    Answered(Answered),
    /// Its settle is under way.
    Settling,
}

/// Outcome of an item.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) outcome: Outcome,
    /// Effect of a dead item on its key. It is fixed at the answer, because the next item may have
    /// been started on that basis.
    pub(crate) on_dead: OnDead,
    pub(crate) attachment: Attachment,
}

impl Answered {
    /// Released unstarted.
    fn unstarted() -> Self {
        Self {
            outcome: Outcome::RELEASE,
            on_dead: OnDead::Skip,
            attachment: Attachment::Nothing,
        }
    }
}

/// Reason for losing a lease before its settle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LossReason {
    /// The store refused to renew it.
    Refused(Refusal),
    /// The store could not be reached to renew it.
    Failed,
    /// The deadline passed without a renewal: this process was paused, or the store was too slow.
    Late,
    /// An operator buried the item.
    Buried,
}

impl LossReason {
    /// Value in logs and metrics.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Failed => "failed",
            Self::Late => "late",
            Self::Buried => "buried",
        }
    }
}

impl HeldLease {
    /// Local deadline of a lease whose claim was sent at `sent_at`.
    pub(crate) fn deadline(sent_at: Instant, term: Duration) -> Instant {
        sent_at + less_margin(term)
    }

    /// Applies a granted renewal that was sent at `sent_at`.
    pub(crate) fn renewed(&mut self, sent_at: Instant) {
        let deadline = Self::deadline(sent_at, self.timing.term.length());
        self.deadline = self.deadline.max(deadline);
        self.beat_at = sent_at + self.timing.heartbeat;
    }

    /// True if every item is being settled. A refused renewal then only means that the settle was
    /// faster.
    pub(crate) fn is_finalizing(&self) -> bool {
        self.items
            .values()
            .all(|stage| matches!(stage, ItemStage::Settling))
    }

    /// True if the lease is probably settled and only the answer is missing. Its deadline then no
    /// longer matters.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_refused && self.is_finalizing()
    }

    /// True if all remaining items can be settled at once.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered > 0 && self.answered == self.items.len()
    }

    /// Records the outcome of an item.
    pub(crate) fn answer(&mut self, id: ItemId, answered: Answered, now: Instant) {
        self.is_stepwise |= !matches!(answered.attachment, Attachment::Nothing);
        self.items.insert(id, ItemStage::Answered(answered));
        self.answered += 1;
        self.answered_since.get_or_insert(now);
    }

    /// Releases the later items of a run unstarted.
    pub(crate) fn give_back_behind(&mut self, id: ItemId, now: Instant) {
        self.runs.stop(id);
        for later in self.runs.after(id).to_vec() {
            if matches!(self.items.get(&later), Some(ItemStage::Waiting)) {
                self.answer(later, Answered::unstarted(), now);
            }
        }
    }

    /// Releases all unstarted items. Returns the number of queued items and the number of those
    /// that wait for an earlier item of their key. A run is always released up to its end, never
    /// only in the middle.
    pub(crate) fn give_back_unstarted(&mut self, now: Instant) -> (usize, usize) {
        let behind = self.runs.behind();
        self.runs.stop_all();
        let waiting = self.items.iter();
        let waiting = waiting.filter(|(_, stage)| matches!(stage, ItemStage::Waiting));
        let ids: Vec<ItemId> = waiting.map(|(id, _)| *id).collect();
        let count = ids.len();
        for id in ids {
            self.answer(id, Answered::unstarted(), now);
        }
        (count.saturating_sub(behind), behind)
    }

    /// True if an outcome can be settled now.
    pub(crate) fn can_settle(&self) -> bool {
        if self.answered == 0 || self.is_stepwise && self.is_settling() {
            return false;
        }
        if self.runs.is_empty() {
            return true;
        }
        let busy = self.busy_runs();
        self.items.iter().any(|(id, stage)| {
            let is_busy = self.runs.of(*id).is_some_and(|run| busy.contains(&run));
            matches!(stage, ItemStage::Answered(..)) && !is_busy
        })
    }

    /// True if a settle of the lease is under way. A second settle would wait for it in the store
    /// and block a claim loop, for a long time if it has several steps. Later outcomes share the
    /// next settle.
    fn is_settling(&self) -> bool {
        let mut stages = self.items.values();
        stages.any(|stage| matches!(stage, ItemStage::Settling))
    }

    /// Runs with a settle under way.
    fn busy_runs(&self) -> BTreeSet<usize> {
        if self.runs.is_empty() {
            return BTreeSet::new();
        }
        let settling = self.items.iter();
        let settling = settling.filter(|(_, stage)| matches!(stage, ItemStage::Settling));
        settling.filter_map(|(id, _)| self.runs.of(*id)).collect()
    }

    /// Takes the outcomes that can be settled now. A settle has one rule for dead items, so
    /// outcomes under another rule wait for the next settle.
    pub(crate) fn take_settle(&mut self, no: LeaseNo, now: Instant) -> Option<PendingSettle> {
        let mut held_back = self.busy_runs();
        let mut rule = None;
        let mut pending = PendingSettle::new(no, self.token.clone(), Arc::clone(&self.queues), now);
        for (id, stage) in &mut self.items {
            let ItemStage::Answered(answered) = stage else {
                continue;
            };
            let Answered {
                outcome, on_dead, ..
            } = answered;
            let run = self.runs.of(*id);
            if run.is_some_and(|run| held_back.contains(&run)) {
                continue;
            }
            if outcome.kind() == OutcomeKind::Dead && *rule.get_or_insert(*on_dead) != *on_dead {
                held_back.extend(run);
                continue;
            }
            if let ItemStage::Answered(answered) = std::mem::replace(stage, ItemStage::Settling) {
                pending.add(*id, answered.outcome, answered.attachment);
            }
        }
        self.took(pending.settle.items.len());
        pending.settle.on_dead = rule.unwrap_or_default();
        (!pending.settle.items.is_empty()).then_some(pending)
    }

    /// Takes the outcomes of earlier items of a run.
    pub(crate) fn take_before(&mut self, no: LeaseNo, id: ItemId, now: Instant) -> PendingSettle {
        let mut pending = PendingSettle::new(no, self.token.clone(), Arc::clone(&self.queues), now);
        for before in self.runs.before(id) {
            if let Some(stage @ ItemStage::Answered(..)) = self.items.get_mut(before)
                && let ItemStage::Answered(answered) = std::mem::replace(stage, ItemStage::Settling)
            {
                pending.add(*before, answered.outcome, answered.attachment);
            }
        }
        self.took(pending.settle.items.len());
        pending
    }

    /// Takes the later items of a run.
    pub(crate) fn take_behind(&mut self, id: ItemId) -> Vec<ItemId> {
        self.runs.stop(id);
        let mut taken = Vec::new();
        for behind in self.runs.after(id) {
            if let Some(stage @ ItemStage::Waiting) = self.items.get_mut(behind) {
                *stage = ItemStage::Settling;
                taken.push(*behind);
            }
        }
        taken
    }

    /// Subtracts outcomes that were taken for a settle or dropped.
    pub(crate) fn took(&mut self, answers: usize) {
        self.answered = self.answered.saturating_sub(answers);
        if self.answered == 0 {
            self.answered_since = None;
        }
    }

    /// Cancels the running handlers.
    pub(crate) fn cancel(&self) {
        for stage in self.items.values() {
            stage.cancel();
        }
    }
}

impl ItemStage {
    pub(crate) fn cancel(&self) {
        if let Self::Running(cancel) = self {
            cancel.cancel();
        }
    }
}

/// The term less a tenth, so that this process treats a lease as over before the store does.
pub(crate) fn less_margin(term: Duration) -> Duration {
    term.saturating_sub(term / 10)
}

#[cfg(test)]
mod tests {
    use tenure_core::{Settings, WorkerId};

    use super::*;

    const IDS: [ItemId; 3] = [ItemId::new(1), ItemId::new(2), ItemId::new(3)];

    fn lease(now: Instant) -> HeldLease {
        let timing = Settings::default().timing();
        let worker = WorkerId::new("w", 1).unwrap();
        HeldLease {
            token: Token::new(&worker, 1, 1),
            fence: Fence::new(1),
            timing,
            isolation: Isolation::Shared,
            claimed_at: now,
            deadline: HeldLease::deadline(now, timing.term.length()),
            is_over: false,
            is_refused: false,
            beat_at: now + timing.heartbeat,
            items: IDS.map(|id| (id, ItemStage::Waiting)).into(),
            endpoints: BTreeMap::new(),
            queues: Arc::default(),
            runs: Runs::line_up(Vec::new()).1,
            answered: 0,
            answered_since: None,
            is_stepwise: false,
        }
    }

    fn answered(attachment: Attachment) -> Answered {
        Answered {
            outcome: Outcome::Done,
            on_dead: OnDead::Skip,
            attachment,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn only_one_settle_of_several_steps_is_under_way_at_a_time() {
        let now = Instant::now();
        for is_plain in [true, false] {
            let attachment = || {
                if is_plain {
                    Attachment::Nothing
                } else {
                    Attachment::FanOut("order.paid".to_owned())
                }
            };
            let mut lease = lease(now);
            assert!(!lease.can_settle(), "nothing is answered");
            lease.answer(IDS[0], answered(attachment()), now);
            assert!(lease.can_settle());
            assert!(lease.take_settle(1, now).is_some());
            lease.answer(IDS[1], answered(attachment()), now);
            assert_eq!(lease.can_settle(), is_plain);
            lease.items.remove(&IDS[0]);
            assert!(lease.can_settle(), "the first item is settled");
        }
    }
}

//! A lease in hand: its local deadline, its items and how far each has come.
//!
//! ```text
//! Waiting ──► Running ──► Answered ──► Settling ──► gone
//!    └───────────┴────────────┴─── lost, buried: gone, and nothing is settled
//! ```
//!
//! Of a run of one key's items, one settle is under way at a time: the store takes them in order,
//! and a second one could overtake the first. When one of them does not end, those behind it are
//! given back in the same settle, unstarted. The store would put them back by itself; but one that
//! is named is answered for, also when the item before it was buried in the meantime.
//!
//! Of a lease whose settles have several steps, because calls or deliveries are written with them,
//! one settle is under way at a time.
//!
//! The deadline is read from this machine's own monotonic clock before the claim or the renewal was
//! sent, less a margin: it lies before the moment at which the store may give the lease away,
//! whatever the store says or does not say.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::store::{Company, Settle};
use tenure_core::{Fence, ItemId, OnDead, Outcome, Refusal, Rhythm, Token, Word};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::beside::{Beside, Ending};
use crate::run::Runs;

/// The name of a lease within this process.
pub(crate) type LeaseNo = u64;

/// A lease in hand.
#[derive(Debug)]
pub(crate) struct InHand {
    pub(crate) token: Token,
    pub(crate) fence: Fence,
    pub(crate) rhythm: Rhythm,
    pub(crate) company: Company,
    /// When it was asked for.
    pub(crate) claimed_at: Instant,
    /// From here on nothing may be done under it.
    pub(crate) deadline: Instant,
    /// Whether something under it was passed over because the deadline had come: it cannot come
    /// back.
    pub(crate) is_over: bool,
    /// Whether a renewal was refused while everything under it was on its way to the store.
    pub(crate) is_refused: bool,
    /// When it is to be renewed next.
    pub(crate) beat_at: Instant,
    pub(crate) items: BTreeMap<ItemId, Stage>,
    /// The endpoints of those that are deliveries.
    pub(crate) endpoints: BTreeMap<ItemId, u32>,
    /// Which of them wait for each other.
    pub(crate) runs: Runs,
    /// How many of them are answered and not yet being settled.
    pub(crate) answered: usize,
    /// Since when one of them is.
    pub(crate) answered_since: Option<Instant>,
    /// Whether something goes with its answers: its settles are then of several steps.
    pub(crate) is_stepwise: bool,
}

/// How far an item has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Claimed, not started: in line, or behind another of its key.
    Waiting,
    /// In the hands of its handler.
    Running(CancellationToken),
    /// The handler has said what becomes of it.
    Answered(Answered),
    /// That is on its way to the store.
    Settling,
}

/// What becomes of an item.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) outcome: Outcome,
    /// What a dead one does to its key: the same when it is settled, since the next one may have
    /// been started on it.
    pub(crate) on_dead: OnDead,
    pub(crate) beside: Beside,
}

impl Answered {
    /// Given back unstarted.
    fn unstarted() -> Self {
        Self {
            outcome: Outcome::RELEASE,
            on_dead: OnDead::Skip,
            beside: Beside::Nothing,
        }
    }
}

/// Why a hold ended without a settle of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// The store refused to renew it.
    Refused(Refusal),
    /// The store could not be reached to renew it.
    Failed,
    /// The deadline came before a renewal did: this process stood still, or the store was too slow.
    Late,
    /// An operator buried the item.
    Buried,
}

impl Loss {
    /// One word, for the log and the metric.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Refused(_) => "refused",
            Self::Failed => "failed",
            Self::Late => "late",
            Self::Buried => "buried",
        }
    }
}

impl InHand {
    /// The local deadline of a lease of `term` that was asked for at `sent_at`.
    pub(crate) fn deadline(sent_at: Instant, term: Duration) -> Instant {
        sent_at + less_margin(term)
    }

    /// Notes that a renewal which was sent at `sent_at` was granted.
    pub(crate) fn renewed(&mut self, sent_at: Instant) {
        let deadline = Self::deadline(sent_at, self.rhythm.term.length());
        self.deadline = self.deadline.max(deadline);
        self.beat_at = sent_at + self.rhythm.heartbeat;
    }

    /// Whether everything under it is on its way to the store: a renewal that is refused then only
    /// came after the settle.
    pub(crate) fn is_finalizing(&self) -> bool {
        self.items
            .values()
            .all(|stage| matches!(stage, Stage::Settling))
    }

    /// Whether it is most likely settled, and only the answer is still on its way. The settle says
    /// what became of it; its deadline says nothing any more.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_refused && self.is_finalizing()
    }

    /// Whether all that is left can be settled in one go.
    pub(crate) fn is_answered(&self) -> bool {
        self.answered > 0 && self.answered == self.items.len()
    }

    /// Takes an answer.
    pub(crate) fn answer(&mut self, id: ItemId, answered: Answered, now: Instant) {
        self.is_stepwise |= !matches!(answered.beside, Beside::Nothing);
        self.items.insert(id, Stage::Answered(answered));
        self.answered += 1;
        self.answered_since.get_or_insert(now);
    }

    /// Gives back whatever stands behind this item in its run, unstarted.
    pub(crate) fn give_back_behind(&mut self, id: ItemId, now: Instant) {
        self.runs.stop(id);
        for later in self.runs.after(id).to_vec() {
            if matches!(self.items.get(&later), Some(Stage::Waiting)) {
                self.answer(later, Answered::unstarted(), now);
            }
        }
    }

    /// Gives back whatever was not started, and answers how much: what stood in line, and what
    /// waited for its turn. A run goes back from some item on to its end, never out of its middle.
    pub(crate) fn give_back_unstarted(&mut self, now: Instant) -> (usize, usize) {
        let behind = self.runs.behind();
        self.runs.stop_all();
        let waiting = self.items.iter();
        let waiting = waiting.filter(|(_, stage)| matches!(stage, Stage::Waiting));
        let ids: Vec<ItemId> = waiting.map(|(id, _)| *id).collect();
        let count = ids.len();
        for id in ids {
            self.answer(id, Answered::unstarted(), now);
        }
        (count.saturating_sub(behind), behind)
    }

    /// Whether an answer can be settled now.
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
            matches!(stage, Stage::Answered(..)) && !is_busy
        })
    }

    /// Whether a settle of it is under way. A second one would stand behind it in the store, and a
    /// hand with it; for a settle of several steps that is long. What is answered until then
    /// shares the next one.
    fn is_settling(&self) -> bool {
        let mut stages = self.items.values();
        stages.any(|stage| matches!(stage, Stage::Settling))
    }

    /// The runs of which something is on its way to the store.
    fn busy_runs(&self) -> BTreeSet<usize> {
        if self.runs.is_empty() {
            return BTreeSet::new();
        }
        let settling = self.items.iter();
        let settling = settling.filter(|(_, stage)| matches!(stage, Stage::Settling));
        settling.filter_map(|(id, _)| self.runs.of(*id)).collect()
    }

    /// Takes the answers that can be settled now. A settle says once what a dead item does, so
    /// answers that were given under another rule wait for the next one.
    pub(crate) fn take_settle(&mut self, no: LeaseNo, now: Instant) -> Option<Ending> {
        let mut held_back = self.busy_runs();
        let mut rule = None;
        let mut ending = Ending::new(no, Settle::new(self.token.clone()), now);
        for (id, stage) in &mut self.items {
            let Stage::Answered(answered) = stage else {
                continue;
            };
            let Answered {
                outcome, on_dead, ..
            } = answered;
            let run = self.runs.of(*id);
            if run.is_some_and(|run| held_back.contains(&run)) {
                continue;
            }
            if outcome.word() == Word::Dead && *rule.get_or_insert(*on_dead) != *on_dead {
                held_back.extend(run);
                continue;
            }
            if let Stage::Answered(answered) = std::mem::replace(stage, Stage::Settling) {
                ending.add(*id, answered.outcome, answered.beside);
            }
        }
        self.took(ending.settle.items.len());
        ending.settle.on_dead = rule.unwrap_or_default();
        (!ending.settle.items.is_empty()).then_some(ending)
    }

    /// Takes what was answered of those before an item in its run.
    pub(crate) fn take_before(&mut self, no: LeaseNo, id: ItemId, now: Instant) -> Ending {
        let mut ending = Ending::new(no, Settle::new(self.token.clone()), now);
        for before in self.runs.before(id) {
            if let Some(stage @ Stage::Answered(..)) = self.items.get_mut(before)
                && let Stage::Answered(answered) = std::mem::replace(stage, Stage::Settling)
            {
                ending.add(*before, answered.outcome, answered.beside);
            }
        }
        self.took(ending.settle.items.len());
        ending
    }

    /// Takes those behind an item in its run.
    pub(crate) fn take_behind(&mut self, id: ItemId) -> Vec<ItemId> {
        self.runs.stop(id);
        let mut taken = Vec::new();
        for behind in self.runs.after(id) {
            if let Some(stage @ Stage::Waiting) = self.items.get_mut(behind) {
                *stage = Stage::Settling;
                taken.push(*behind);
            }
        }
        taken
    }

    /// So many answers are no longer to be settled.
    pub(crate) fn took(&mut self, answers: usize) {
        self.answered = self.answered.saturating_sub(answers);
        if self.answered == 0 {
            self.answered_since = None;
        }
    }

    /// Cancels whatever runs under it.
    pub(crate) fn cancel(&self) {
        for stage in self.items.values() {
            stage.cancel();
        }
    }
}

impl Stage {
    pub(crate) fn cancel(&self) {
        if let Self::Running(cancel) = self {
            cancel.cancel();
        }
    }
}

/// How long after it was asked for we take a lease for over: a tenth earlier than the store does.
pub(crate) fn less_margin(term: Duration) -> Duration {
    term.saturating_sub(term / 10)
}

#[cfg(test)]
mod tests {
    use tenure_core::{Settings, WorkerId};

    use super::*;

    const IDS: [ItemId; 3] = [ItemId::new(1), ItemId::new(2), ItemId::new(3)];

    fn lease(now: Instant) -> InHand {
        let rhythm = Settings::default().rhythm();
        let worker = WorkerId::new("w", 1).unwrap();
        InHand {
            token: Token::new(&worker, 1, 1),
            fence: Fence::new(1),
            rhythm,
            company: Company::Together,
            claimed_at: now,
            deadline: InHand::deadline(now, rhythm.term.length()),
            is_over: false,
            is_refused: false,
            beat_at: now + rhythm.heartbeat,
            items: IDS.map(|id| (id, Stage::Waiting)).into(),
            endpoints: BTreeMap::new(),
            runs: Runs::line_up(Vec::new()).1,
            answered: 0,
            answered_since: None,
            is_stepwise: false,
        }
    }

    fn answered(beside: Beside) -> Answered {
        Answered {
            outcome: Outcome::Done,
            on_dead: OnDead::Skip,
            beside,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn settles_of_several_steps_are_under_way_one_at_a_time() {
        let now = Instant::now();
        for is_plain in [true, false] {
            let beside = || {
                if is_plain {
                    Beside::Nothing
                } else {
                    Beside::FanOut("order.paid".to_owned())
                }
            };
            let mut lease = lease(now);
            assert!(!lease.can_settle(), "nothing is answered");
            lease.answer(IDS[0], answered(beside()), now);
            assert!(lease.can_settle());
            assert!(lease.take_settle(1, now).is_some());
            lease.answer(IDS[1], answered(beside()), now);
            assert_eq!(lease.can_settle(), is_plain);
            lease.items.remove(&IDS[0]);
            assert!(lease.can_settle(), "the first is settled");
        }
    }
}

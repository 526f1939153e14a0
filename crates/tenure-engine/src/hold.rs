//! A lease in hand: its local deadline, its items and how far each has come.
//!
//! ```text
//! Waiting ──► Running ──► Answered ──► Settling ──► gone
//!    └───────────┴────────────┴─── lost, buried: gone, and nothing is settled
//! ```
//!
//! The deadline is read from this machine's own monotonic clock before the claim or the renewal was
//! sent, less a margin: it lies before the moment at which the store may give the lease away,
//! whatever the store says or does not say.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::store::Company;
use tenure_core::{Fence, ItemId, Outcome, Refusal, Rhythm, Token};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

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
    /// How many of them are answered and not yet being settled.
    pub(crate) answered: usize,
    /// Since when one of them is.
    pub(crate) answered_since: Option<Instant>,
}

/// How far an item has come.
#[derive(Debug)]
pub(crate) enum Stage {
    /// Claimed, not started.
    Waiting,
    /// In the hands of its handler.
    Running(CancellationToken),
    /// The handler has said what becomes of it.
    Answered(Outcome),
    /// That is on its way to the store.
    Settling,
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

    /// Takes the answers, to be settled.
    pub(crate) fn take_answers(&mut self) -> Vec<(ItemId, Outcome)> {
        let mut answers = Vec::with_capacity(self.answered);
        for (id, stage) in &mut self.items {
            if matches!(stage, Stage::Answered(_))
                && let Stage::Answered(outcome) = std::mem::replace(stage, Stage::Settling)
            {
                answers.push((*id, outcome));
            }
        }
        self.answered = 0;
        self.answered_since = None;
        answers
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

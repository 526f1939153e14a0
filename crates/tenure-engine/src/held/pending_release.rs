//! Pending releases: items that no handler will work on and that the store may still count as held,
//! because it did not answer in time. They are released by token as soon as the store answers, so
//! that an outage is not counted as a crash. Items whose handler runs when the lease is lost are
//! not released: their lease lapses.

use std::collections::VecDeque;
use std::sync::Arc;

use tenure_core::store::{Rest, Settle};
use tenure_core::{ItemId, Outcome, Refusal, Token};
use tokio::time::Instant;

use super::{HeldLeases, HeldState};
use crate::held_lease::{HeldLease, LossReason};
use crate::item_queues::ItemQueues;

/// Maximum claims without an answer that wait for their release. At this number the worker claims
/// nothing, so that a long outage does not fill the memory.
const OWED_CLAIMS_MAX: usize = 8;

/// The releases that the store has not answered yet.
#[derive(Debug, Default)]
pub(super) struct PendingReleases {
    releases: VecDeque<PendingRelease>,
    /// A releaser runs.
    has_releaser: bool,
}

/// A release that the store has not answered yet.
#[derive(Debug)]
pub(crate) struct PendingRelease {
    pub(crate) settle: Settle,
    pub(crate) queues: Arc<ItemQueues>,
    pub(crate) due_at: Instant,
    /// The release of a claim found nothing: the claim may still be under way in the store.
    pub(crate) is_second_look: bool,
}

impl PendingRelease {
    /// The release of a claim whose items are not known here.
    fn of_claim(token: Token, now: Instant) -> Self {
        Self {
            settle: Settle::new(token).rest(Rest::Release),
            queues: Arc::default(),
            due_at: now,
            is_second_look: false,
        }
    }

    /// True if a claim is released whose items are not known here.
    pub(crate) fn is_of_claim(&self) -> bool {
        self.settle.rest == Rest::Release
    }
}

impl LossReason {
    /// True if the store may still hold the items of a lease lost for this reason.
    const fn leaves_items_held(self) -> bool {
        match self {
            Self::Failed | Self::Late | Self::Refused(Refusal::Lapsed) => true,
            Self::Refused(_) | Self::Buried => false,
        }
    }
}

impl HeldLeases {
    /// Takes the pending release that is due first. `None`: none is pending, and the releaser ends.
    pub(crate) fn next_release(&self) -> Option<PendingRelease> {
        let mut state = self.state();
        if state.is_stopping {
            // The worker does not wait for a claim that the store has probably never seen.
            state
                .pending
                .releases
                .retain(|pending| !pending.is_second_look);
        }
        let due = state.pending.releases.iter().enumerate();
        let due = due.min_by_key(|(_, pending)| pending.due_at);
        let first = due
            .map(|(at, _)| at)
            .and_then(|at| state.pending.releases.remove(at));
        state.pending.has_releaser = first.is_some();
        first
    }

    /// Puts a release back that has to be sent again.
    pub(crate) fn release_again(&self, pending: PendingRelease) {
        self.state().pending.releases.push_back(pending);
    }
}

impl HeldState {
    /// True if releases are pending and no releaser runs; it counts as running from now on.
    pub(super) fn start_releaser(&mut self) -> bool {
        let must_start = !self.pending.has_releaser && !self.pending.releases.is_empty();
        self.pending.has_releaser |= must_start;
        must_start
    }

    /// True if none is pending or being released.
    pub(super) fn has_released(&self) -> bool {
        !self.pending.has_releaser && self.pending.releases.is_empty()
    }

    /// True if so many claims wait for their release that the worker claims nothing.
    pub(super) fn owes_too_much(&self) -> bool {
        let claims = self
            .pending
            .releases
            .iter()
            .filter(|pending| pending.is_of_claim());
        claims.count() >= OWED_CLAIMS_MAX
    }

    /// Owes the release of a claim that brought no items to this worker.
    pub(super) fn owe_claim(&mut self, token: Token, now: Instant) {
        self.pending
            .releases
            .push_back(PendingRelease::of_claim(token, now));
    }

    /// Owes the release of these items of a lease.
    pub(super) fn owe_items(
        &mut self,
        token: &Token,
        queues: &Arc<ItemQueues>,
        ids: Vec<ItemId>,
        now: Instant,
    ) {
        if ids.is_empty() {
            return;
        }
        let items = ids.into_iter().map(|id| (id, Outcome::RELEASE));
        let mut settle = Settle::new(token.clone());
        settle.items.extend(items);
        self.pending.releases.push_back(PendingRelease {
            settle,
            queues: Arc::clone(queues),
            due_at: now,
            is_second_look: false,
        });
    }

    /// Owes the release of these items of a lost lease, unless the store has ended the lease.
    pub(super) fn owe_lost(
        &mut self,
        lease: &HeldLease,
        loss: LossReason,
        ids: Vec<ItemId>,
        now: Instant,
    ) {
        if loss.leaves_items_held() {
            self.owe_items(&lease.token, &lease.queues, ids, now);
        }
    }
}

//! Attachments of an outcome: data written in the same settle, such as the call of a delivery or
//! the topic of a fan-out.

use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::store::Settle;
use tenure_core::webhook::{AttemptOutcome, Call, Reply};
use tenure_core::{Fence, ItemId, Outcome, Token};
use tokio::time::Instant;

use crate::held_lease::LeaseNo;
use crate::item_queues::ItemQueues;

/// Data written in the settle of an item.
#[derive(Debug, Default)]
pub(crate) enum Attachment {
    #[default]
    Nothing,
    /// Fan-out: once the item is done, the store writes deliveries to the subscribers of this
    /// topic.
    FanOut(String),
    /// Webhook call of a delivery.
    Call(Box<CallMade>),
}

/// A webhook call, finished or under way.
#[derive(Debug)]
pub(crate) struct CallMade {
    fence: Fence,
    attempt: u32,
    began: Instant,
    /// `None`: still under way.
    end: Option<(Reply, AttemptOutcome)>,
}

impl CallMade {
    /// Returns the call for the store. A call that is still under way was cancelled and counts as
    /// aborted.
    pub(crate) fn into_call(self, delivery: ItemId, now: Instant) -> Call {
        let (reply, outcome) = self.end.unzip();
        Call {
            delivery,
            fence: self.fence,
            attempt: self.attempt,
            ago: now.saturating_duration_since(self.began),
            outcome: outcome.unwrap_or(AttemptOutcome::Aborted),
            reply,
        }
    }
}

/// Shared slot for the call of a delivery; empty for other items.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSlot(Option<Arc<Mutex<Option<CallMade>>>>);

impl CallSlot {
    pub(crate) fn of(id: ItemId) -> Self {
        Self(id.is_delivery().then(Arc::default))
    }

    /// Records the start of a call.
    pub(crate) fn begin(&self, fence: Fence, attempt: u32) {
        self.with(|made| {
            *made = Some(CallMade {
                fence,
                attempt,
                began: Instant::now(),
                end: None,
            });
        });
    }

    /// Records the end of the call.
    pub(crate) fn end(&self, reply: Reply, outcome: AttemptOutcome) {
        self.with(|made| {
            if let Some(made) = made {
                made.end = Some((reply, outcome));
            }
        });
    }

    /// Takes the call out of the slot, so that it is recorded once.
    pub(crate) fn take(&self) -> Attachment {
        match self.with(Option::take).flatten() {
            Some(made) => Attachment::Call(Box::new(made)),
            None => Attachment::Nothing,
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Option<CallMade>) -> T) -> Option<T> {
        let slot = self.0.as_ref()?;
        let mut made = slot.lock().unwrap_or_else(PoisonError::into_inner);
        Some(change(&mut made))
    }
}

/// A settle to be sent, with the attachments of its items.
#[derive(Debug)]
pub(crate) struct PendingSettle {
    pub(crate) no: LeaseNo,
    pub(crate) settle: Settle,
    pub(crate) queues: Arc<ItemQueues>,
    /// An item whose handler exceeded `max_hold` and may still run.
    pub(crate) running: Option<ItemId>,
    /// Time to which the ages of the calls refer.
    at: Instant,
}

impl PendingSettle {
    pub(crate) fn new(no: LeaseNo, token: Token, queues: Arc<ItemQueues>, at: Instant) -> Self {
        Self {
            no,
            settle: Settle::new(token),
            queues,
            running: None,
            at,
        }
    }

    /// Adds an item with its outcome and attachment.
    pub(crate) fn add(&mut self, id: ItemId, outcome: Outcome, attachment: Attachment) {
        match attachment {
            Attachment::FanOut(topic) if outcome == Outcome::Done => {
                self.settle.fan_out.push((id, topic));
            }
            Attachment::Call(made) => self.settle.calls.push(made.into_call(id, self.at)),
            Attachment::Nothing | Attachment::FanOut(_) => {}
        }
        self.settle.items.push((id, outcome));
    }

    /// Updates the ages of the calls before the settle is sent or retried.
    pub(crate) fn sent_at(&mut self, now: Instant) -> &Settle {
        let passed = now.saturating_duration_since(self.at);
        for call in &mut self.settle.calls {
            call.ago += passed;
        }
        self.at = now;
        &self.settle
    }

    pub(crate) fn ids(&self) -> Vec<ItemId> {
        self.settle.items.iter().map(|(id, _)| *id).collect()
    }

    /// Calls of a settle that was given up.
    pub(crate) fn into_orphans(self) -> impl Iterator<Item = OrphanedCall> {
        let at = self.at;
        let calls = self.settle.calls.into_iter();
        calls.map(move |call| OrphanedCall { call, at })
    }
}

/// A call whose lease is lost, so that no settle can record it.
#[derive(Debug)]
pub(crate) struct OrphanedCall {
    call: Call,
    at: Instant,
}

impl OrphanedCall {
    /// The call of an item whose lease is lost at `at`, if it made one.
    pub(crate) fn of(id: ItemId, attachment: Attachment, at: Instant) -> Option<Self> {
        let Attachment::Call(made) = attachment else {
            return None;
        };
        let call = made.into_call(id, at);
        Some(Self { call, at })
    }

    /// Returns the call for the store, as superseded, with its age at `now`.
    pub(crate) fn to_call(&self, now: Instant) -> Call {
        let mut call = self.call.clone();
        call.ago += now.saturating_duration_since(self.at);
        call.outcome = AttemptOutcome::Superseded;
        call
    }
}

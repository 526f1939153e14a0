//! What goes with an item's outcome into its settle: the call that was made for a delivery, or the
//! topic by which an event is fanned out.

use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::store::Settle;
use tenure_core::webhook::{AttemptOutcome, Call, Reply};
use tenure_core::{Fence, ItemId, Outcome};
use tokio::time::Instant;

use crate::hold::LeaseNo;

/// What goes with an item's outcome into its settle.
#[derive(Debug, Default)]
pub(crate) enum Beside {
    /// Nothing.
    #[default]
    Nothing,
    /// If it is done: deliveries for whoever wants this topic.
    FanOut(String),
    /// The call that was made for it.
    Call(Box<Made>),
}

/// A call that was made, or is being made.
#[derive(Debug)]
pub(crate) struct Made {
    fence: Fence,
    attempt: u32,
    began: Instant,
    /// `None`: it has not ended.
    end: Option<(Reply, AttemptOutcome)>,
}

impl Made {
    /// As it is written down. What has not ended by itself was stopped by us.
    pub(crate) fn into_call(self, delivery: ItemId, now: Instant) -> Call {
        let (reply, outcome) = match self.end {
            Some((reply, outcome)) => (Some(reply), outcome),
            None => (None, AttemptOutcome::Aborted),
        };
        Call {
            delivery,
            fence: self.fence,
            attempt: self.attempt,
            ago: now.saturating_duration_since(self.began),
            outcome,
            reply,
        }
    }
}

/// Where a handler leaves its call. Only deliveries have one: nothing is kept for other items.
#[derive(Clone, Debug, Default)]
pub(crate) struct CallSlot(Option<Arc<Mutex<Option<Made>>>>);

impl CallSlot {
    pub(crate) fn of(id: ItemId) -> Self {
        Self(id.is_delivery().then(Arc::default))
    }

    /// A call leaves now.
    pub(crate) fn begin(&self, fence: Fence, attempt: u32) {
        self.with(|made| {
            *made = Some(Made {
                fence,
                attempt,
                began: Instant::now(),
                end: None,
            });
        });
    }

    /// It has ended.
    pub(crate) fn end(&self, reply: Reply, outcome: AttemptOutcome) {
        self.with(|made| {
            if let Some(made) = made {
                made.end = Some((reply, outcome));
            }
        });
    }

    /// Whoever takes it writes it down; nobody else does.
    pub(crate) fn take(&self) -> Beside {
        match self.with(Option::take).flatten() {
            Some(made) => Beside::Call(Box::new(made)),
            None => Beside::Nothing,
        }
    }

    fn with<T>(&self, change: impl FnOnce(&mut Option<Made>) -> T) -> Option<T> {
        let slot = self.0.as_ref()?;
        let mut made = slot.lock().unwrap_or_else(PoisonError::into_inner);
        Some(change(&mut made))
    }
}

/// A settle on its way to the store.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) no: LeaseNo,
    pub(crate) settle: Settle,
    /// The moment that its calls are counted back from.
    at: Instant,
}

impl Ending {
    pub(crate) fn new(no: LeaseNo, settle: Settle, at: Instant) -> Self {
        Self { no, settle, at }
    }

    /// Names an item with its outcome and what goes with it.
    pub(crate) fn add(&mut self, id: ItemId, outcome: Outcome, beside: Beside) {
        match beside {
            Beside::FanOut(topic) if outcome == Outcome::Done => {
                self.settle.fan_out.push((id, topic));
            }
            Beside::Call(made) => self.settle.calls.push(made.into_call(id, self.at)),
            Beside::Nothing | Beside::FanOut(_) => {}
        }
        self.settle.items.push((id, outcome));
    }

    /// It is sent now, perhaps once more: its calls began so much longer ago.
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

    /// Its calls, when it was given up: the hold is gone.
    pub(crate) fn into_orphans(self) -> impl Iterator<Item = Orphan> {
        let at = self.at;
        let calls = self.settle.calls.into_iter();
        calls.map(move |call| Orphan::new(call, at))
    }
}

/// A call whose hold is gone: no settle goes with it.
#[derive(Debug)]
pub(crate) struct Orphan {
    call: Call,
    at: Instant,
}

impl Orphan {
    /// A call as it was known `at` this moment.
    pub(crate) fn new(call: Call, at: Instant) -> Self {
        Self { call, at }
    }

    /// As it is written down now.
    pub(crate) fn to_call(&self, now: Instant) -> Call {
        let mut call = self.call.clone();
        call.ago += now.saturating_duration_since(self.at);
        call.outcome = AttemptOutcome::Superseded;
        call
    }
}

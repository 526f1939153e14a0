//! A handler that works for a while and records when each of its runs began and ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Event, Fence, ItemId, Outcome};
use tenure_engine::{Context, EventFn, Handler};
use tokio::time::{Instant, sleep};

#[derive(Clone, Debug, Default)]
pub(crate) struct Probe(Arc<Mutex<Record>>);

#[derive(Debug, Default)]
struct Record {
    calls: Vec<Call>,
    running: usize,
    peak: usize,
}

/// One run of the handler.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: ItemId,
    pub(crate) payload: String,
    pub(crate) fence: Fence,
    pub(crate) attempt: u32,
    pub(crate) began: Instant,
    pub(crate) ended: Option<Instant>,
    pub(crate) end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    Answered,
    /// The run was dropped before it answered.
    Dropped,
}

impl Probe {
    /// Creates a handler that works on each event for `length` and then is done.
    pub(crate) fn working(
        &self,
        length: impl Fn(&Event) -> Duration + Send + Sync + 'static,
    ) -> impl Handler {
        let probe = self.clone();
        EventFn::new(move |event: Event, cx: Context| {
            let guard = probe.begin(&event, &cx);
            let length = length(&event);
            async move {
                sleep(length).await;
                guard.answered();
                Ok(Outcome::Done)
            }
        })
    }

    /// Records the start of a run; dropping the guard records its end.
    pub(crate) fn begin(&self, event: &Event, cx: &Context) -> Guard {
        let mut record = self.0.lock().unwrap();
        record.calls.push(Call {
            id: cx.id(),
            payload: event.payload().to_owned(),
            fence: cx.fence(),
            attempt: cx.attempt(),
            began: Instant::now(),
            ended: None,
            end: None,
        });
        record.running += 1;
        record.peak = record.peak.max(record.running);
        Guard {
            probe: self.clone(),
            nth: record.calls.len() - 1,
            end: End::Dropped,
        }
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.0.lock().unwrap().calls.clone()
    }

    pub(crate) fn of(&self, id: ItemId) -> Vec<Call> {
        let mut calls = self.calls();
        calls.retain(|call| call.id == id);
        calls
    }

    pub(crate) fn running(&self) -> usize {
        self.0.lock().unwrap().running
    }

    /// Returns the maximum of concurrent runs since the last call.
    pub(crate) fn take_peak(&self) -> usize {
        let mut record = self.0.lock().unwrap();
        let peak = record.peak;
        record.peak = record.running;
        peak
    }

    /// Waits until `count` runs have begun.
    pub(crate) async fn begun(&self, count: usize) {
        until(|| self.calls().len() >= count).await;
    }

    /// Waits until a run of this item has ended, and returns it.
    pub(crate) async fn ended(&self, id: ItemId) -> Call {
        let first = || self.of(id).into_iter().find(|call| call.end.is_some());
        until(|| first().is_some()).await;
        first().unwrap()
    }
}

pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("the condition never held");
}

pub(crate) struct Guard {
    probe: Probe,
    nth: usize,
    end: End,
}

impl Guard {
    pub(crate) fn answered(mut self) {
        self.end = End::Answered;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut record = self.probe.0.lock().unwrap();
        record.running -= 1;
        if let Some(call) = record.calls.get_mut(self.nth) {
            call.ended = Some(Instant::now());
            call.end = Some(self.end);
        }
    }
}

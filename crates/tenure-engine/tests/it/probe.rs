//! A handler that works for a while and remembers when each of its calls began and how it ended.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::{Event, Fence, ItemId, Outcome};
use tenure_engine::{Context, EventFn, Handler};
use tokio::time::{Instant, sleep};

#[derive(Clone, Debug, Default)]
pub(crate) struct Probe(Arc<Mutex<Notes>>);

#[derive(Debug, Default)]
struct Notes {
    calls: Vec<Call>,
    running: usize,
    peak: usize,
}

/// One call of the handler.
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
    /// It came to its end.
    Answered,
    /// It was dropped before.
    Dropped,
}

impl Probe {
    /// Works so long on each event, then is done.
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

    /// Notes that a call began; what it answers is dropped when the call is.
    pub(crate) fn begin(&self, event: &Event, cx: &Context) -> Guard {
        let mut notes = self.0.lock().unwrap();
        notes.calls.push(Call {
            id: cx.id(),
            payload: event.payload().to_owned(),
            fence: cx.fence(),
            attempt: cx.attempt(),
            began: Instant::now(),
            ended: None,
            end: None,
        });
        notes.running += 1;
        notes.peak = notes.peak.max(notes.running);
        Guard {
            probe: self.clone(),
            nth: notes.calls.len() - 1,
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

    /// The most that ran at once since the last look.
    pub(crate) fn take_peak(&self) -> usize {
        let mut notes = self.0.lock().unwrap();
        let peak = notes.peak;
        notes.peak = notes.running;
        peak
    }

    /// Waits until so many calls have begun.
    pub(crate) async fn begun(&self, count: usize) {
        until(|| self.calls().len() >= count).await;
    }

    /// Waits until a call of this item has ended, and gives it.
    pub(crate) async fn ended(&self, id: ItemId) -> Call {
        let first = || self.of(id).into_iter().find(|call| call.end.is_some());
        until(|| first().is_some()).await;
        first().unwrap()
    }
}

/// Waits until this holds.
pub(crate) async fn until(mut holds: impl FnMut() -> bool) {
    for _ in 0..100_000 {
        if holds() {
            return;
        }
        sleep(Duration::from_millis(5)).await;
    }
    panic!("it never came to that");
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
        let mut notes = self.probe.0.lock().unwrap();
        notes.running -= 1;
        if let Some(call) = notes.calls.get_mut(self.nth) {
            call.ended = Some(Instant::now());
            call.end = Some(self.end);
        }
    }
}

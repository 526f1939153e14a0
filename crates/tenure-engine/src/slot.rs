//! A slot: works on one item after another. There are as many as `worker.concurrency` says.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt as _;
use tenure_core::webhook::Delivery;
use tenure_core::{Again, Content, Event, Failure, Item, Outcome, brief_duration};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use crate::beside::Beside;
use crate::desk::{Next, Nudge, Said, Start};
use crate::handler::Failed;
use crate::shared::Shared;

/// Errors longer than this are cut in the log; the store keeps more.
const LOGGED_CHARS: usize = 200;

/// Works until there are more slots than wanted.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut said = None;
    loop {
        let (mut next, nudge) = shared.desk.exchange(said.take(), Instant::now());
        if nudge == Nudge::Needed {
            shared.hands.notify_one();
        }
        if matches!(next, Next::Wait) {
            shared.cleared.notify_waiters();
            // Registered before the second look, so that nothing falls in between.
            let notified = shared.work.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            next = shared.desk.exchange(None, Instant::now()).0;
            if matches!(next, Next::Wait) {
                notified.await;
                continue;
            }
        }
        match next {
            Next::Start(start) => said = Some(work(&shared, *start).await),
            Next::Wait => {}
            Next::Leave => {
                shared.cleared.notify_waiters();
                return;
            }
        }
        // A handler that never waits must not keep the others from running.
        tokio::task::consume_budget().await;
    }
}

/// Runs the handler, until it answers or its hold is over.
async fn work(shared: &Shared, start: Start) -> Said {
    let Start { no, item, mut cx } = start;
    let id = item.id;
    let known = Known {
        failures: item.counters.failures,
        endpoint: item
            .content
            .delivery()
            .map(|Delivery { endpoint, .. }| *endpoint),
    };
    let topic = fanned_out(shared, &item);
    if let Some(longest) = shared.handler.max_hold(&item)
        && let Some(deadline) = shared.desk.hold_longer(no, id, longest)
    {
        cx.deadline = deadline;
    }
    let call = cx.call.clone();
    let attempt = cx.attempt();
    let event_id = item.content.event().and_then(Event::event_id);
    let cancel = cx.cancel.clone();
    let began = Instant::now();
    let handling = AssertUnwindSafe(async { shared.handler.handle(item, cx).await });
    let mut handling = Box::pin(handling.catch_unwind());
    let answer = tokio::select! {
        biased;
        answer = &mut handling => Some(answer),
        () = cancel.cancelled() => None,
    };
    let took = began.elapsed();
    // What a handler leaves behind may panic when it is put away; that is its own trouble.
    if catch_unwind(AssertUnwindSafe(|| drop(handling))).is_err() {
        shared.metrics.panics.increment(1);
        warn!(item = %id, "a handler panicked when it was stopped");
    }
    shared.metrics.handler_seconds.record(took.as_secs_f64());
    let outcome = answer.map(|answer| {
        let answer = answer.unwrap_or_else(|panic| {
            shared.metrics.panics.increment(1);
            Err(Failure::new(format!(
                "the handler panicked: {}",
                text_of(&*panic)
            )))
        });
        judge(shared, known, answer)
    });
    let event = event_id.map(tracing::field::display);
    match &outcome {
        None => debug!(item = %id, event, "stopped a handler whose hold was over"),
        Some(Outcome::Done) => debug!(item = %id, event, attempt, "worked"),
        Some(Outcome::Release { after }) => {
            debug!(item = %id, event, attempt, ?after, "gave back");
        }
        Some(Outcome::Retry { after, error }) => {
            let error = cut(error);
            let after = brief_duration(*after);
            info!(item = %id, event, attempt, after, error, "failed; will be tried again");
        }
        Some(Outcome::Dead { reason, error }) => {
            let error = cut(error);
            warn!(item = %id, event, attempt, reason, error, "failed for good");
        }
    }
    Said {
        no,
        id,
        outcome,
        beside: topic.map_or_else(|| call.take(), Beside::FanOut),
        took,
    }
}

/// What is known of an item beside its handler's answer.
#[derive(Clone, Copy)]
struct Known {
    failures: u32,
    endpoint: Option<u32>,
}

/// The topic by which this item is fanned out once it is done.
fn fanned_out(shared: &Shared, item: &Item) -> Option<String> {
    match &item.content {
        Content::Event(event) if shared.handler.fans_out(event) => Some(event.topic().to_owned()),
        Content::Event(_) | Content::Delivery(_) | Content::Row(_) => None,
    }
}

/// What becomes of an item, by the policy in force.
fn judge(shared: &Shared, known: Known, answer: Result<Outcome, Failure>) -> Outcome {
    let failure = match answer {
        Ok(Outcome::Retry { after, error }) => Failure {
            error,
            again: Again::After(after),
        },
        Ok(outcome) => return outcome,
        Err(failure) => failure,
    };
    shared.judge(&Failed {
        failures: known.failures,
        endpoint: known.endpoint,
        failure: &failure,
        chance: shared.dice.chance(),
    })
}

/// What a panic said, if it said it in words.
fn text_of(panic: &(dyn std::any::Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no text")
}

fn cut(error: &str) -> &str {
    match error.char_indices().nth(LOGGED_CHARS) {
        Some((end, _)) => error.get(..end).unwrap_or(error),
        None => error,
    }
}

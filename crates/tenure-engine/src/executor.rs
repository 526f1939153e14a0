//! Executor: runs handlers on one item after another. A worker has up to `worker.concurrency`
//! executors.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use futures_util::FutureExt as _;
use tenure_core::{Content, Failure, Item, Outcome, brief_duration};
use tokio::time::Instant;
use tracing::Instrument as _;

use crate::attachment::Attachment;
use crate::handle_span;
use crate::handler::{Failed, Handler};
use crate::held::{HandlerReport, Next, Nudge, StartedItem};
use crate::item_label::{ItemLabel, log_item};
use crate::metrics::{HANDLER_SECONDS, PANICS};
use crate::shared::Shared;

/// Maximum characters of an error in the log; the store keeps more.
const LOGGED_CHARS: usize = 200;

/// Runs until there are more executors than wanted.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut report = None;
    loop {
        let (mut next, nudge) = shared.held_leases.exchange(report.take(), Instant::now());
        if nudge == Nudge::Needed {
            shared.claim_loops.notify_one();
        }
        if matches!(next, Next::Wait) {
            shared.cleared.notify_waiters();
            // Registered before the second check, so that no wake-up is missed.
            let notified = shared.executors.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            next = shared.held_leases.exchange(None, Instant::now()).0;
            if matches!(next, Next::Wait) {
                notified.await;
                continue;
            }
        }
        match next {
            Next::Start(start) => report = Some(work(&shared, *start).await),
            Next::Wait => {}
            Next::Exit => {
                shared.cleared.notify_waiters();
                return;
            }
        }
        // A handler that never awaits must not starve the others.
        tokio::task::consume_budget().await;
    }
}

/// Runs the handler until it answers or its lease is over.
async fn work(shared: &Shared, start: StartedItem) -> HandlerReport {
    let StartedItem {
        no,
        mut item,
        mut cx,
        rules,
        label,
    } = start;
    let id = item.id;
    let failures = item.counters.failures;
    let endpoint = item.content.delivery().map(|delivery| delivery.endpoint);
    let topic = fanned_out(shared.handler.as_ref(), &item);
    if let Some(longest) = shared.handler.max_hold(&item)
        && let Some(deadline) = shared.held_leases.extend_max_hold(no, id, longest)
    {
        cx.deadline = deadline;
    }
    let route = shared.handler.route_name(&item).unwrap_or_default();
    let call = cx.call.clone();
    let cancel = cx.cancel.clone();
    let (span, record) = handle_span::begin(shared, &mut item, &mut cx, route);
    let began = Instant::now();
    let handling = async { shared.handler.handle(item, cx).await };
    let handling = AssertUnwindSafe(handling.instrument(span.clone()));
    let mut handling = Box::pin(handling.catch_unwind());
    let answer = tokio::select! {
        biased;
        answer = &mut handling => Some(answer),
        () = cancel.cancelled() => None,
    };
    let took = began.elapsed();
    // Dropping the handler's future may panic, too.
    if catch_unwind(AssertUnwindSafe(|| drop(handling))).is_err() {
        shared.metrics.count(PANICS, &[], 1);
        log_item!(warn, label, "a handler panicked when it was dropped");
    }
    // The pattern of the route bounds the number of series.
    shared
        .metrics
        .record(HANDLER_SECONDS, ("topic", route), took);
    let outcome = answer.map(|answer| {
        if answer.is_err() {
            shared.metrics.count(PANICS, &[], 1);
        }
        let failure = match answered(answer) {
            Ok(outcome) => return outcome,
            Err(failure) => failure,
        };
        shared.judge(&Failed {
            failures,
            endpoint,
            failure: &failure,
            retry: rules.retry,
            chance: shared.rng.chance(),
        })
    });
    span.in_scope(|| log_outcome(&label, outcome.as_ref()));
    if let Some(record) = record {
        handle_span::end(shared, *record, took, outcome.as_ref());
    }
    HandlerReport {
        no,
        id,
        outcome,
        attachment: topic.map_or_else(|| call.take(), Attachment::FanOut),
        took,
        limit: rules.limit,
    }
}

/// Logs the outcome of an attempt; `None`: the lease ended before the handler answered.
fn log_outcome(label: &ItemLabel, outcome: Option<&Outcome>) {
    match outcome {
        None => log_item!(info, label, "cancelled a handler: its lease is over"),
        Some(Outcome::Done) => log_item!(debug, label, "done"),
        Some(Outcome::Release { after }) => log_item!(debug, label, ?after, "released"),
        Some(Outcome::Retry { after, error }) => {
            let error = cut(error);
            let after = brief_duration(*after);
            log_item!(info, label, after, error, "failed; will be retried");
        }
        Some(Outcome::Dead { reason, error }) => {
            let error = cut(error);
            log_item!(warn, label, reason, error, "failed; the item is dead");
        }
    }
}

/// Topic for the fan-out of this item once it is done; `None`: no fan-out.
pub(crate) fn fanned_out(handler: &dyn Handler, item: &Item) -> Option<String> {
    match &item.content {
        Content::Event(event) if handler.fans_out(event) => Some(event.topic().to_owned()),
        Content::Event(_) | Content::Delivery(_) | Content::Row(_) => None,
    }
}

/// The handler's outcome, or a failure for the retry policy: a panic is one, and so is a requested
/// retry.
pub(crate) fn answered(
    answer: std::thread::Result<Result<Outcome, Failure>>,
) -> Result<Outcome, Failure> {
    match answer {
        Ok(Ok(Outcome::Retry { after, error })) => Err(Failure::new(error).after(after)),
        Ok(answer) => answer,
        Err(panic) => {
            let text = panic.downcast_ref::<&str>().copied();
            let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
            let text = text.unwrap_or("no text");
            Err(Failure::new(format!("the handler panicked: {text}")))
        }
    }
}

fn cut(error: &str) -> &str {
    match error.char_indices().nth(LOGGED_CHARS) {
        Some((end, _)) => error.get(..end).unwrap_or(error),
        None => error,
    }
}

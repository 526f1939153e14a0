//! Spans of handlers: one per sampled attempt, with the facts of its item. Sampling is decided
//! first, so that the other attempts cost no more than the decision.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Content, Event, HandleSpan, Item, Outcome, TRACESTATE, TraceParent};
use tracing::{Level, Span, field};

use crate::handler::Context;
use crate::shared::Shared;

/// Begins the span of an attempt, if it is sampled: the span of `tracing`, which is disabled
/// otherwise, and the record for the tracer. With a tracer, the event and the context get the
/// position of the new span, to be passed on.
pub(crate) fn begin(
    shared: &Shared,
    item: &mut Item,
    cx: &mut Context,
    route: &str,
) -> (Span, Option<Box<HandleSpan>>) {
    let none = (Span::none(), None);
    let config = &shared.config;
    let is_wanted = config.tracer.is_some() || tracing::span_enabled!(Level::INFO);
    if !is_wanted || config.sampling.is_never() {
        return none;
    }
    let parent = cx.trace_parent;
    if !config.sampling.takes(parent, || shared.rng.chance()) {
        return none;
    }
    let mut record = None;
    if config.tracer.is_some()
        && let Some(context) = new_context(shared, parent)
    {
        record = Some(Box::new(record_of(
            shared,
            item,
            cx,
            (context, parent, route),
        )));
        cx.trace_parent = Some(context);
        pass_on(item, context);
    }
    (span_of(item, cx, route), record)
}

/// Ends the record of an attempt and gives it to the tracer.
pub(crate) fn end(
    shared: &Shared,
    mut record: HandleSpan,
    took: Duration,
    outcome: Option<&Outcome>,
) {
    record.took = took;
    record.outcome = outcome.cloned();
    if let Some(tracer) = &shared.config.tracer {
        tracer.record(record);
    }
}

/// A new position below `parent`, or in a new trace; `None` if a random id is zero.
fn new_context(shared: &Shared, parent: Option<TraceParent>) -> Option<TraceParent> {
    let (trace_id, span_id) = shared.rng.ids();
    match parent {
        Some(parent) => parent.child(span_id),
        None => TraceParent::root(trace_id, span_id, true),
    }
}

fn pass_on(item: &mut Item, context: TraceParent) {
    match &mut item.content {
        Content::Event(event) => event.set_trace_parent(context),
        Content::Delivery(delivery) => {
            Arc::make_mut(&mut delivery.event).set_trace_parent(context);
        }
        // A row has no headers; its handler takes the position from the context.
        Content::Row(_) => {}
    }
}

fn record_of(
    shared: &Shared,
    item: &Item,
    cx: &Context,
    (context, parent, route): (TraceParent, Option<TraceParent>, &str),
) -> HandleSpan {
    let event = item.content.event();
    let state = event.filter(|_| parent.is_some()).and_then(|event| {
        let mut passed = TraceParent::passed_on(event.headers());
        passed.find(|(name, _)| *name == TRACESTATE)
    });
    HandleSpan {
        context,
        parent,
        state: state.map(|(_, text)| text.to_owned()),
        worker: shared.worker.clone(),
        item: item.id,
        event_id: event.and_then(Event::event_id),
        topic: event.map_or(route, Event::topic).to_owned(),
        queue: event.map(|event| event.queue().to_string()),
        key: event.and_then(|event| event.key().map(str::to_owned)),
        endpoint: item.content.delivery().map(|delivery| delivery.endpoint),
        attempt: cx.attempt,
        fence: cx.fence,
        took: Duration::ZERO,
        outcome: None,
    }
}

fn span_of(item: &Item, cx: &Context, route: &str) -> Span {
    let event = item.content.event();
    let trace_id = cx.trace_parent.map(TraceParent::trace_id);
    let trace_id = trace_id.map(|id| format!("{id:032x}"));
    tracing::info_span!(
        "handle",
        item = %item.id,
        event = event.and_then(Event::event_id).map(field::display),
        topic = event.map_or(route, Event::topic),
        queue = event.map(|event| event.queue().as_str()),
        key = event.and_then(Event::key),
        attempt = cx.attempt,
        fence = cx.fence.number(),
        trace_id,
    )
}

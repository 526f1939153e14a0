//! Spans of handlers: what they contain, which attempts get one, and what is passed on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use tenure_core::{Failure, HandleSpan, NewEvent, Outcome, Sampling, TraceParent, Tracer};
use tenure_engine::{EngineConfig, EventFn};
use tokio::sync::mpsc;

use crate::log;
use crate::world::World;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Keeps what it is given.
#[derive(Debug, Default)]
struct Spans(Mutex<Vec<HandleSpan>>);

impl Tracer for Spans {
    fn record(&self, span: HandleSpan) {
        self.0.lock().unwrap().push(span);
    }
}

/// Works on an event with these headers until it is done, failing once, and returns the headers
/// that the two attempts saw.
async fn attempts(
    headers: &[(&str, &str)],
    config: EngineConfig,
) -> (tenure_core::WorkerId, Vec<BTreeMap<String, String>>) {
    let world = World::new();
    let event = NewEvent::new("order.paid", &7).key("customer-7");
    let event = headers
        .iter()
        .fold(event, |event, (name, text)| event.header(name, text));
    world.enqueue_all(&[event.build().unwrap()]).await;
    let (send, mut seen) = mpsc::unbounded_channel();
    let handler = EventFn::new(
        move |event: tenure_core::Event, cx: tenure_engine::Context| {
            let send = send.clone();
            async move {
                assert_eq!(cx.trace_parent(), event.trace_parent());
                drop(send.send(event.headers().clone()));
                if cx.attempt() == 1 {
                    return Err(Failure::new("not yet"));
                }
                Ok(Outcome::Done)
            }
        },
    );
    let engine = world.start(handler, config);
    world.until(|counts| counts.done == 1).await;
    let worker = engine.worker().clone();
    engine.stop().await;
    let seen = [seen.recv().await.unwrap(), seen.recv().await.unwrap()];
    (worker, seen.into())
}

#[tokio::test(start_paused = true)]
async fn a_tracer_gets_a_span_per_attempt_and_the_handler_its_position() {
    let spans = Arc::new(Spans::default());
    let config = EngineConfig {
        tracer: Some(Arc::<Spans>::clone(&spans)),
        ..World::config()
    };
    let headers = [("traceparent", PARENT), ("tracestate", "v=1"), ("a", "b")];
    let (worker, seen) = attempts(&headers, config).await;
    let spans = spans.0.lock().unwrap();
    let parent = TraceParent::parse(PARENT);
    assert_eq!(spans.len(), 2);
    for (span, headers) in spans.iter().zip(&seen) {
        assert_eq!(headers["traceparent"], span.context.to_string());
        assert_eq!((&*headers["tracestate"], &*headers["a"]), ("v=1", "b"));
        assert_eq!(span.parent, parent);
        assert_eq!(
            Some(span.context.trace_id()),
            parent.map(TraceParent::trace_id)
        );
        assert_eq!(span.state.as_deref(), Some("v=1"));
        assert_eq!((span.topic.as_str(), &span.worker), ("order.paid", &worker));
        assert_eq!(span.queue.as_deref(), Some("default"));
        assert_eq!(span.key.as_deref(), Some("customer-7"));
        assert!(span.event_id.is_some());
    }
    assert_ne!(spans[0].context.span_id(), spans[1].context.span_id());
    assert_eq!((spans[0].attempt, spans[1].attempt), (1, 2));
    assert!(spans[0].fence < spans[1].fence);
    let failed = spans[0].outcome.as_ref();
    assert!(matches!(failed, Some(Outcome::Retry { error, .. }) if error == "not yet"));
    assert_eq!(spans[1].outcome, Some(Outcome::Done));
}

#[tokio::test(start_paused = true)]
async fn what_is_not_sampled_has_no_span_and_keeps_its_headers() {
    let unsampled = PARENT.replace("-01", "-00");
    for (header, sampling) in [
        (unsampled.as_str(), Sampling::default()),
        (PARENT, Sampling::NEVER),
        ("malformed", Sampling::NEVER),
    ] {
        let spans = Arc::new(Spans::default());
        let config = EngineConfig {
            tracer: Some(Arc::<Spans>::clone(&spans)),
            sampling,
            ..World::config()
        };
        let (_, seen) = attempts(&[("traceparent", header)], config).await;
        assert!(seen.iter().all(|headers| headers["traceparent"] == header));
        assert!(spans.0.lock().unwrap().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn a_malformed_traceparent_is_not_a_parent() {
    let spans = Arc::new(Spans::default());
    let config = EngineConfig {
        tracer: Some(Arc::<Spans>::clone(&spans)),
        ..World::config()
    };
    let headers = [("traceparent", "malformed"), ("tracestate", "v=1")];
    let (_, seen) = attempts(&headers, config).await;
    let spans = spans.0.lock().unwrap();
    assert_eq!((spans[0].parent, spans[0].state.as_deref()), (None, None));
    assert_eq!(seen[0]["traceparent"], spans[0].context.to_string());
    assert!(
        !seen[0].contains_key("tracestate"),
        "it was of another trace"
    );
    assert_ne!(spans[0].context.trace_id(), spans[1].context.trace_id());
}

#[tokio::test(start_paused = true)]
async fn without_a_tracer_the_lines_of_a_handler_are_in_its_span() {
    log::install();
    let headers = [("traceparent", PARENT)];
    let (worker, seen) = attempts(&headers, World::config()).await;
    assert_eq!(seen[0]["traceparent"], PARENT, "nobody records a span");
    let lines = log::matching(&worker, "failed; will be retried");
    assert_eq!(lines.len(), 1);
    for (field, text) in [
        ("topic", "order.paid"),
        ("queue", "default"),
        ("key", "customer-7"),
        ("attempt", "1"),
        ("trace_id", "4bf92f3577b34da6a3ce929d0e0e4736"),
    ] {
        assert_eq!(lines[0].field(field), text, "{field}");
    }
    let done = log::matching(&worker, "done");
    assert_eq!(done[0].field("attempt"), "2");
    let never = EngineConfig {
        sampling: Sampling::NEVER,
        ..World::config()
    };
    let (worker, _) = attempts(&headers, never).await;
    let lines = log::matching(&worker, "failed; will be retried");
    assert_eq!(lines[0].field("trace_id"), "", "no span");
}

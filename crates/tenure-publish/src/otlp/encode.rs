//! Spans as the body of an export request, and the answer to it. The field numbers are those of
//! OTLP 1.

use tenure_core::{HandleSpan, Outcome, OutcomeKind, Timestamp};

use super::protobuf::{Field, Message, next_field};

/// Kinds of spans.
const INTERNAL: u64 = 1;
const CLIENT: u64 = 3;
const CONSUMER: u64 = 5;
/// Status of a failed span.
const ERROR: u64 = 2;
/// Flags of a span: it is known whether its parent is in another process, and it is.
const PARENT_IS_REMOTE: u32 = 0x300;
/// Maximum characters of an error.
const ERROR_CHARACTERS_MAX: usize = 200;

/// A span and the time of its end.
pub(super) type EndedSpan = (HandleSpan, Timestamp);

/// The body of a request that exports these spans.
pub(super) fn request(resource: &[(String, String)], spans: &[EndedSpan]) -> Vec<u8> {
    let mut request = Message::default();
    request.message(1, |of_resource| {
        of_resource.message(1, |message| {
            for (name, value) in resource {
                attribute(message, 1, name, Value::Text(value));
            }
        });
        of_resource.message(2, |of_scope| {
            of_scope.message(1, |scope| {
                scope.text(1, "tenure");
                scope.text(2, env!("CARGO_PKG_VERSION"));
            });
            for ended in spans {
                of_scope.message(2, |message| span(message, ended));
            }
        });
    });
    request.finish()
}

fn span(message: &mut Message, (span, ended_at): &EndedSpan) {
    let took = span.took.as_nanos();
    let end = u128::try_from(ended_at.as_micros()).unwrap_or_default() * 1000;
    let nanos = |time: u128| u64::try_from(time).unwrap_or_default();
    message.bytes(1, &span.context.trace_id().to_be_bytes());
    message.bytes(2, &span.context.span_id().to_be_bytes());
    if let Some(state) = &span.state {
        message.text(3, state);
    }
    if let Some(parent) = span.parent {
        message.bytes(4, &parent.span_id().to_be_bytes());
    }
    let name = format!("handle {}", span.topic);
    message.text(5, name.trim_end());
    message.number(6, kind(span));
    message.fixed_64(7, nanos(end.saturating_sub(took)));
    message.fixed_64(8, nanos(end));
    attributes(message, span);
    if let Some(text) = error(span) {
        let text: String = text.chars().take(ERROR_CHARACTERS_MAX).collect();
        message.message(15, |status| {
            status.text(2, &text);
            status.number(3, ERROR);
        });
    }
    let remote = span.parent.map_or(0, |_| PARENT_IS_REMOTE);
    message.fixed_32(16, u32::from(span.context.flags()) | remote);
}

/// A delivery calls a receiver, an event was sent by a producer.
fn kind(span: &HandleSpan) -> u64 {
    match (span.endpoint, &span.queue) {
        (Some(_), _) => CLIENT,
        (None, Some(_)) => CONSUMER,
        (None, None) => INTERNAL,
    }
}

/// The error of a failed attempt.
fn error(span: &HandleSpan) -> Option<&str> {
    match &span.outcome {
        None => Some("the lease was over before the handler answered"),
        Some(Outcome::Retry { error, .. } | Outcome::Dead { error, .. }) => Some(error),
        Some(Outcome::Done | Outcome::Release { .. }) => None,
    }
}

#[derive(Clone, Copy)]
enum Value<'a> {
    Text(&'a str),
    Number(i64),
}

/// Attributes: those of OpenTelemetry's conventions for messaging where one fits.
fn attributes(message: &mut Message, span: &HandleSpan) {
    let event_id = span.event_id.map(|id| id.to_string());
    let outcome = span.outcome.as_ref();
    let outcome = outcome.map_or("lost", |outcome| OutcomeKind::as_str(outcome.kind()));
    let topic = Some(span.topic.as_str()).filter(|topic| !topic.is_empty());
    let texts = [
        ("messaging.system", Some("tenure")),
        ("messaging.operation.name", Some("handle")),
        ("messaging.operation.type", Some("process")),
        ("messaging.destination.name", topic),
        ("messaging.message.id", event_id.as_deref()),
        ("tenure.queue", span.queue.as_deref()),
        ("tenure.key", span.key.as_deref()),
        ("tenure.worker", Some(span.worker.as_str())),
        ("tenure.outcome", Some(outcome)),
        ("error.type", error(span).map(|_| outcome)),
    ];
    for (name, text) in texts {
        if let Some(text) = text {
            attribute(message, 9, name, Value::Text(text));
        }
    }
    let numbers = [
        ("tenure.item", Some(span.item.number())),
        ("tenure.attempt", Some(i64::from(span.attempt))),
        ("tenure.fence", Some(span.fence.number())),
        ("tenure.endpoint", span.endpoint.map(i64::from)),
    ];
    for (name, number) in numbers {
        if let Some(number) = number {
            attribute(message, 9, name, Value::Number(number));
        }
    }
}

fn attribute(message: &mut Message, field: u64, name: &str, value: Value<'_>) {
    message.message(field, |pair| {
        pair.text(1, name);
        pair.message(2, |any| match value {
            Value::Text(text) => any.text(1, text),
            Value::Number(number) => any.number(3, number.cast_unsigned()),
        });
    });
}

/// Number of spans that the collector has rejected, by the body of its answer.
pub(super) fn rejected(mut answer: &[u8]) -> u64 {
    let mut rejected = 0;
    while let Some((number, field)) = next_field(&mut answer) {
        if let (1, Field::Bytes(mut partial)) = (number, field) {
            while let Some((number, field)) = next_field(&mut partial) {
                if let (1, Field::Number(spans)) = (number, field) {
                    rejected = spans;
                }
            }
        }
    }
    rejected
}

//! `NewEvent`: an event as its producer describes it, with all problems of the description.

use std::time::Duration;

use uuid::Uuid;

use crate::event::{DELAY_MAX, Event, HEADERS_BYTES_MAX, check_header, name};
use crate::invalid::{Invalid, Problems};
use crate::queue::{Priority, QueueName};
use crate::trace::TRACEPARENT;

/// An event to be enqueued.
///
/// The setters collect problems instead of failing one by one: the enqueue, or
/// [`build`](Self::build), reports all of them at once. The getters of [`Event`] have the same
/// names.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::NewEvent;
///
/// let event = NewEvent::new("order.paid", &serde_json::json!({"order": 7}))
///     .key("customer-7")
///     .queue("mail")
///     .priority(5)
///     .delay(Duration::from_secs(60))
///     .dedupe("order-7-paid")
///     .header("trace", "abc")
///     .build()?;
/// assert_eq!(event.key(), Some("customer-7"));
/// assert_eq!(event.queue().as_str(), "mail");
///
/// let problems = NewEvent::new("", &7).key("").priority(8).build().unwrap_err();
/// assert_eq!(
///     problems.to_string(),
///     "topic is empty; expected 1 to 255 bytes, such as `order.paid`; \
///      ordering key is empty; expected 1 to 255 bytes, such as `customer-7`; \
///      priority is 8; expected 0 to 7, highest first"
/// );
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is not enqueued yet"]
pub struct NewEvent {
    event: Event,
    problems: Vec<Invalid>,
}

impl NewEvent {
    /// Creates an event about `topic` with `payload` serialized as JSON.
    ///
    /// A topic has 1 to 255 bytes and no control characters, a payload at most 1 MiB and 100 levels
    /// of nesting.
    pub fn new(topic: &str, payload: &(impl serde::Serialize + ?Sized)) -> Self {
        Self::of(topic, Event::new("topic", &payload))
    }

    /// Creates an event from JSON text, which the store keeps byte for byte.
    pub fn from_json(topic: &str, payload: impl Into<String>) -> Self {
        Self::of(topic, Event::from_json("topic", payload))
    }

    /// Creates an event with a binary payload, which the store keeps as a JSON string in base64.
    pub fn from_bytes(topic: &str, payload: &[u8]) -> Self {
        Self::of(topic, Event::from_bytes("topic", payload))
    }

    fn of(topic: &str, event: Result<Event, Invalid>) -> Self {
        let mut problems = Vec::new();
        let topic = name("topic", topic, "order.paid").unwrap_or_else(|problem| {
            problems.push(problem);
            String::new()
        });
        let mut event = event.unwrap_or_else(|problem| {
            problems.push(problem);
            Event::about(String::new(), String::new())
        });
        event.topic = topic;
        Self { event, problems }
    }

    /// Sets the queue. Default `default`.
    pub fn queue(mut self, queue: &str) -> Self {
        self.set(QueueName::new(queue), |event, queue| event.queue = queue);
        self
    }

    /// Sets the priority within the queue: 0 (the default) to 7, highest first.
    pub fn priority(mut self, level: u8) -> Self {
        self.set(Priority::new(level), |event, level| event.priority = level);
        self
    }

    /// Delays the first claim by this long, at most ten years.
    pub fn delay(mut self, delay: Duration) -> Self {
        let problem = || Invalid::new("delay", format!("{delay:?}"), "at most 10 years");
        let delay = (delay <= DELAY_MAX).then_some(delay).ok_or_else(problem);
        self.set(delay, |event, delay| event.delay = delay);
        self
    }

    /// Sets the ordering key: events of one key are worked one at a time, in order; a delayed event
    /// holds back the events behind it.
    ///
    /// If the first of two enqueues of a key commits before the second begins, their events are
    /// worked in that order. If the two overlap, either order is possible, unless both are
    /// [`strict`](Self::strict).
    pub fn key(mut self, key: &str) -> Self {
        let key = name("ordering key", key, "customer-7");
        self.set(key, |event, key| event.key = Some(key));
        self
    }

    /// Makes the enqueue wait until the transactions of all earlier strict enqueues of the same key
    /// have ended: events then keep the order of their enqueues even if transactions overlap. The
    /// price is that producers of one key wait for each other. Has no effect without a key.
    pub fn strict(mut self) -> Self {
        self.event.is_strict = true;
        self
    }

    /// Sets a dedupe key: while the store keeps an event with this key, an enqueue with the same
    /// key writes nothing and returns the id of that event.
    pub fn dedupe(mut self, key: &str) -> Self {
        let key = name("dedupe key", key, "order-7-paid");
        self.set(key, |event, key| event.dedupe = Some(key));
        self
    }

    /// Adds a header, which handlers and publishers get with the event. All headers together have
    /// at most 16 KiB.
    pub fn header(mut self, header: &str, value: &str) -> Self {
        self.set(check_header(header, value), |event, ()| {
            let header = header.to_ascii_lowercase();
            event.headers.insert(header, value.to_owned());
        });
        self
    }

    /// Sets the header `traceparent` of W3C Trace Context: the handler's span becomes a child of
    /// the caller's, in the same trace. The text is kept even if it is malformed; it has no effect
    /// then. The header `tracestate`, which goes with it, is set by [`header`](Self::header).
    ///
    /// ```
    /// use tenure_core::NewEvent;
    ///
    /// let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    /// let event = NewEvent::new("order.paid", &7).traceparent(parent).build()?;
    /// assert_eq!(event.headers()["traceparent"], parent);
    /// # Ok::<(), tenure_core::Problems>(())
    /// ```
    pub fn traceparent(self, text: &str) -> Self {
        self.header(TRACEPARENT, text)
    }

    /// Sets the id by which receivers drop duplicates; by default the store generates one.
    pub fn event_id(mut self, event_id: Uuid) -> Self {
        self.event.event_id = Some(event_id);
        self
    }

    /// Builds the event.
    ///
    /// # Errors
    /// All problems of the event.
    pub fn build(mut self) -> Result<Event, Problems> {
        let headers = self.event.headers.iter();
        let bytes: usize = headers.map(|(name, text)| name.len() + text.len()).sum();
        if bytes > HEADERS_BYTES_MAX {
            let found = format!("{bytes} bytes");
            let problem = Invalid::new("headers", found, "at most 16 KiB");
            self.problems.push(problem);
        }
        Problems::check(self.problems)?;
        Ok(self.event)
    }

    /// Sets a part of the event, or notes the problem with it.
    fn set<T>(&mut self, part: Result<T, Invalid>, set: impl FnOnce(&mut Event, T)) {
        match part {
            Ok(part) => set(&mut self.event, part),
            Err(problem) => self.problems.push(problem),
        }
    }
}

/// Allows a received or built event to be enqueued.
impl From<Event> for NewEvent {
    fn from(event: Event) -> Self {
        Self {
            event,
            problems: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_invalid_input_names_the_problem() {
        let new = || NewEvent::from_json("t", "1");
        let long = "x".repeat(9_000);
        let cases = [
            (NewEvent::from_json("", "1"), "topic is empty"),
            (NewEvent::from_json("t", "{"), "payload is not JSON"),
            (new().queue(""), "queue is empty"),
            (new().key("\n"), "ordering key is"),
            (new().dedupe(""), "dedupe key is empty"),
            (new().priority(8), "priority is 8"),
            (new().header("a b", "c"), "header name"),
            (new().header("a", "c\r\nd"), "header value"),
            (new().header("a", &long).header("b", &long), "16 KiB"),
            (new().delay(Duration::MAX), "10 years"),
        ];
        for (event, expected) in cases {
            let problems = event.build().expect_err(expected);
            assert_eq!(problems.iter().count(), 1, "{problems}");
            let text = problems.to_string();
            assert!(text.contains(expected), "{text:?} lacks {expected:?}");
        }
    }

    #[test]
    fn all_problems_are_reported_at_once() {
        let event = NewEvent::from_json("", "{").key("").delay(Duration::MAX);
        let problems = event.build().unwrap_err();
        let fields: Vec<_> = problems.iter().map(Invalid::field).collect();
        assert_eq!(fields, ["topic", "payload", "ordering key", "delay"]);
    }

    #[test]
    fn a_map_with_keys_that_json_cannot_express_is_a_problem_and_not_a_panic() {
        let payload = std::collections::BTreeMap::from([((1, 2), 3)]);
        let problems = NewEvent::new("t", &payload).build().unwrap_err();
        assert!(problems.to_string().contains("not writable as JSON"));
    }

    #[test]
    fn debug_output_has_neither_payload_nor_headers() {
        let event = NewEvent::new("t", "secret-canary").header("k", "header-canary");
        assert!(!format!("{event:?}").contains("canary"));
    }
}

//! Event: a fact to be published, with the options that a producer can set.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use uuid::Uuid;

use crate::escapes::check_escapes;
use crate::invalid::Invalid;
use crate::queue::{Priority, QueueName};
use crate::trace::{TRACEPARENT, TRACESTATE, TraceParent};

/// Maximum size of a payload in bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// Maximum nesting depth of a payload; both databases and common JSON parsers support it.
pub const PAYLOAD_DEPTH_MAX: usize = 100;
/// Maximum size in bytes of a topic, an ordering key, a queue name, a dedupe key or a header name.
pub const NAME_BYTES_MAX: usize = 255;
/// Maximum total size in bytes of an event's headers, with their names.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;
/// Maximum delay: ten years of 366 days.
pub const DELAY_MAX: Duration = Duration::from_hours(87840);

/// A fact recorded with the change that caused it, as handlers and publishers receive it.
///
/// A producer describes one as a [`NewEvent`](crate::NewEvent); the constructors here are for tests
/// of handlers and for events without options.
///
/// ```
/// use tenure_core::Event;
///
/// let event = Event::new("order.paid", &serde_json::json!({"order": 7}))?;
/// assert_eq!(event.payload(), r#"{"order":7}"#);
/// assert_eq!(event.key(), None);
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_field_names,
    reason = "`event_id` is the established name"
)]
pub struct Event {
    pub(crate) topic: String,
    pub(crate) payload: String,
    pub(crate) encoding: Option<Encoding>,
    pub(crate) event_id: Option<Uuid>,
    pub(crate) queue: QueueName,
    pub(crate) priority: Priority,
    pub(crate) delay: Duration,
    pub(crate) key: Option<String>,
    pub(crate) is_strict: bool,
    pub(crate) dedupe: Option<String>,
    pub(crate) headers: BTreeMap<String, String>,
}

impl Event {
    /// Creates an event about `topic` with `payload` serialized as JSON.
    ///
    /// # Errors
    /// The topic is empty, too long or has control characters; the payload cannot be serialized as
    /// JSON, exceeds 1 MiB, nests deeper than 100 levels or has the character U+0000 in a text.
    pub fn new(topic: &str, payload: &impl serde::Serialize) -> Result<Self, Invalid> {
        let text = serde_json::to_string(payload).map_err(|cause| {
            Invalid::new("payload", format!("not writable as JSON ({cause})"), "JSON")
        })?;
        Self::from_json(topic, text)
    }

    /// Creates an event from JSON text, which is kept byte for byte.
    ///
    /// # Errors
    /// The errors of [`Event::new`], or the text is not valid JSON or has half of a surrogate pair.
    pub fn from_json(topic: &str, payload: impl Into<String>) -> Result<Self, Invalid> {
        let payload = payload.into();
        let topic = name("topic", topic, "order.paid")?;
        check_bounds(&payload)?;
        check_json(&payload)?;
        check_escapes(&payload)?;
        Ok(Self::about(topic, payload))
    }

    /// Creates an event from a table row. The limits for payload size and depth do not apply,
    /// because the row is stored in the user's own table.
    pub(crate) fn of_row(topic: &str, row: String) -> Result<Self, Invalid> {
        let topic = name("topic", topic, "order.paid")?;
        check_json(&row)?;
        Ok(Self::about(topic, row))
    }

    pub(crate) fn about(topic: String, payload: String) -> Self {
        Self {
            topic,
            payload,
            encoding: None,
            event_id: None,
            queue: QueueName::default(),
            priority: Priority::default(),
            delay: Duration::ZERO,
            key: None,
            is_strict: false,
            dedupe: None,
            headers: BTreeMap::new(),
        }
    }

    /// Creates an event with a binary payload, kept as a JSON string in base64.
    ///
    /// # Errors
    /// The errors of [`Event::new`].
    pub fn from_bytes(topic: &str, payload: &[u8]) -> Result<Self, Invalid> {
        let mut event = Self::from_json(topic, format!("\"{}\"", BASE64.encode(payload)))?;
        event.encoding = Some(Encoding::Base64);
        Ok(event)
    }

    /// Returns the topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Returns the payload as JSON text.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// Returns the encoding of the payload; `None` for plain JSON.
    pub fn encoding(&self) -> Option<Encoding> {
        self.encoding
    }

    /// Returns the payload as bytes: decoded if it was given as bytes, otherwise the JSON text.
    ///
    /// # Errors
    /// The payload is marked as base64 but is not valid base64.
    pub fn payload_bytes(&self) -> Result<Vec<u8>, Invalid> {
        match self.encoding {
            None => Ok(self.payload.clone().into_bytes()),
            Some(Encoding::Base64) => {
                BASE64
                    .decode(self.payload.trim_matches('"'))
                    .map_err(|cause| {
                        Invalid::new("payload", format!("not base64 ({cause})"), "base64")
                    })
            }
        }
    }

    /// Deserializes the payload as `T`.
    ///
    /// ```
    /// use tenure_core::Event;
    ///
    /// #[derive(Debug, serde::Deserialize)]
    /// struct Order {
    ///     order: u64,
    /// }
    ///
    /// let event = Event::from_json("order.paid", r#"{"order": 7}"#)?;
    /// assert_eq!(event.json::<Order>()?.order, 7);
    ///
    /// let other = Event::from_json("order.paid", r#"{"ordr": 7}"#)?;
    /// let error = other.json::<Order>().unwrap_err().to_string();
    /// assert!(error.starts_with("the payload of order.paid is not a valid "), "{error}");
    /// assert!(error.ends_with("Order: missing field `order` at line 1 column 11"), "{error}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// The payload does not have the shape of `T`.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, PayloadError> {
        serde_json::from_str(&self.payload).map_err(|cause| PayloadError {
            topic: self.topic.clone(),
            wanted: std::any::type_name::<T>(),
            cause,
        })
    }

    /// Returns the id by which receivers drop duplicates; `None` until a producer or store sets it.
    pub fn event_id(&self) -> Option<Uuid> {
        self.event_id
    }

    /// Sets the id that a store assigned.
    #[must_use]
    pub fn with_event_id(mut self, event_id: Uuid) -> Self {
        self.event_id = Some(event_id);
        self
    }

    /// Returns the queue.
    pub fn queue(&self) -> &QueueName {
        &self.queue
    }

    /// Returns the priority within the queue.
    pub fn priority(&self) -> Priority {
        self.priority
    }

    /// Returns the delay, counted from the enqueue.
    pub fn delay(&self) -> Duration {
        self.delay
    }

    /// Returns the ordering key, if any.
    pub fn key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns true if the enqueue waits for other strict enqueues of the same ordering key.
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// Returns the dedupe key, if any.
    pub fn dedupe(&self) -> Option<&str> {
        self.dedupe.as_deref()
    }

    /// Returns the headers.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }

    /// Returns the position of the producer, or of the handler's span if there is one, in its
    /// trace.
    pub fn trace_parent(&self) -> Option<TraceParent> {
        TraceParent::of(&self.headers)
    }

    /// Replaces the header `traceparent`. The header `tracestate` is kept only within its trace.
    pub fn set_trace_parent(&mut self, parent: TraceParent) {
        let old = self.trace_parent().map(TraceParent::trace_id);
        let is_same = old == Some(parent.trace_id());
        self.headers.retain(|name, _| {
            let is_state = name.eq_ignore_ascii_case(TRACESTATE);
            !name.eq_ignore_ascii_case(TRACEPARENT) && (is_same || !is_state)
        });
        self.headers
            .insert(TRACEPARENT.to_owned(), parent.to_string());
    }
}

impl fmt::Debug for Event {
    /// Omits payload and headers: they may contain secrets that must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("topic", &self.topic)
            .field("event_id", &self.event_id)
            .field("queue", &self.queue)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// The payload does not match the requested type.
#[derive(Debug, thiserror::Error)]
#[error("the payload of {topic} is not a valid {wanted}: {cause}")]
pub struct PayloadError {
    topic: String,
    wanted: &'static str,
    // Part of the message, not a source: otherwise an error report would contain it twice.
    cause: serde_json::Error,
}

impl PayloadError {
    /// Returns the topic of the event.
    pub fn topic(&self) -> &str {
        &self.topic
    }
}

/// An event as stored. It converts to an [`Event`] without a second check: an event that was
/// accepted once stays readable even if a limit has changed since.
#[derive(Clone)]
pub struct StoredEvent {
    /// The topic.
    pub topic: String,
    /// The payload as JSON text.
    pub payload: String,
    /// The encoding of the payload; `None` for plain JSON.
    pub encoding: Option<Encoding>,
    /// The id by which receivers drop duplicates.
    pub event_id: Uuid,
    /// The queue.
    pub queue: QueueName,
    /// The priority within the queue.
    pub priority: Priority,
    /// The ordering key, if any.
    pub ordering_key: Option<String>,
    /// The headers.
    pub headers: BTreeMap<String, String>,
}

impl fmt::Debug for StoredEvent {
    /// Omits payload and headers, like [`Event`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredEvent")
            .field("topic", &self.topic)
            .field("event_id", &self.event_id)
            .finish_non_exhaustive()
    }
}

impl From<StoredEvent> for Event {
    fn from(stored: StoredEvent) -> Self {
        Self {
            encoding: stored.encoding,
            event_id: Some(stored.event_id),
            queue: stored.queue,
            priority: stored.priority,
            key: stored.ordering_key,
            headers: stored.headers,
            ..Self::about(stored.topic, stored.payload)
        }
    }
}

/// The encoding of a payload that is not plain JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A JSON string that contains bytes in base64.
    Base64,
}

impl Encoding {
    /// Returns the stored word.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Base64 => "base64",
        }
    }

    /// Parses a stored word.
    pub fn parse(text: &str) -> Option<Self> {
        (text == Self::Base64.as_str()).then_some(Self::Base64)
    }
}

/// Checks that both databases, logs and headers can carry this name.
pub(crate) fn name(field: &'static str, text: &str, example: &str) -> Result<String, Invalid> {
    let expected = || format!("1 to {NAME_BYTES_MAX} bytes, such as `{example}`");
    if text.is_empty() {
        return Err(Invalid::new(field, "empty", expected()));
    }
    if text.len() > NAME_BYTES_MAX {
        return Err(Invalid::new(
            field,
            format!("{} bytes long", text.len()),
            expected(),
        ));
    }
    if text.chars().any(char::is_control) {
        let found = format!("{text:?}, with a control character");
        let expected =
            format!("1 to {NAME_BYTES_MAX} bytes without control characters, such as `{example}`");
        return Err(Invalid::new(field, found, expected));
    }
    Ok(text.to_owned())
}

pub(crate) fn check_header(header: &str, value: &str) -> Result<(), Invalid> {
    let is_name = (1..=NAME_BYTES_MAX).contains(&header.len())
        && header
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte));
    if !is_name {
        let expected = "1 to 255 letters, digits or any of !#$%&'*+-.^_`|~";
        return Err(Invalid::new("header name", format!("{header:?}"), expected));
    }
    if value.chars().any(char::is_control) {
        let found = format!("one with a control character (header {header})");
        return Err(Invalid::new(
            "header value",
            found,
            "text without control characters",
        ));
    }
    Ok(())
}

pub(crate) fn check_bounds(payload: &str) -> Result<(), Invalid> {
    if payload.len() > PAYLOAD_BYTES_MAX {
        return Err(Invalid::new(
            "payload",
            format!("{} bytes long", payload.len()),
            format!(
                "at most {PAYLOAD_BYTES_MAX} (1 MiB): \
                 keep the large part elsewhere and send its address"
            ),
        ));
    }
    if depth(payload) > PAYLOAD_DEPTH_MAX {
        let expected = format!("at most {PAYLOAD_DEPTH_MAX} levels");
        return Err(Invalid::new("payload", "nested too deeply", expected));
    }
    Ok(())
}

pub(crate) fn check_json(payload: &str) -> Result<(), Invalid> {
    let parsed: Result<serde::de::IgnoredAny, _> = serde_json::from_str(payload);
    parsed.map_err(|cause| {
        Invalid::new(
            "payload",
            format!("not JSON ({cause})"),
            r#"JSON, such as {"order": 7}"#,
        )
    })?;
    Ok(())
}

/// Returns the nesting depth of brackets outside strings. It is checked before parsing, so that
/// untrusted text cannot exhaust a parser's stack.
fn depth(json: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    let (mut in_string, mut escaped) = (false, false);
    for byte in json.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                open += 1;
                deepest = deepest.max(open);
            }
            b']' | b'}' if !in_string => open = open.saturating_sub(1),
            _ => {}
        }
    }
    deepest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_invalid_input_names_the_problem() {
        let long = "x".repeat(256);
        let deep = "[".repeat(101) + &"]".repeat(101);
        let cases = [
            (Event::from_json("", "1"), "topic is empty"),
            (Event::from_json(&long, "1"), "topic is 256 bytes long"),
            (Event::from_json("a\0b", "1"), "control character"),
            (Event::from_json("t", ""), "payload is not JSON"),
            (Event::from_json("t", "{"), "payload is not JSON"),
            (Event::from_json("t", "1 2"), "payload is not JSON"),
            (Event::from_json("t", deep), "nested too deeply"),
            (
                Event::from_json("t", format!("\"{}\"", "x".repeat(10 << 20))),
                "1 MiB",
            ),
        ];
        for (answer, expected) in cases {
            let problem = answer.expect_err(expected).to_string();
            assert!(problem.contains(expected), "{problem:?} lacks {expected:?}");
        }
        assert!(Priority::new(8).is_err());
    }

    #[test]
    fn a_payload_is_kept_byte_for_byte() {
        let text = "{ \"b\":1,\"a\" : 1.0, \"b\": 2, \"z\":\"\\u0001]\" }";
        assert_eq!(Event::from_json("t", text).unwrap().payload(), text);
    }

    #[test]
    fn a_binary_payload_is_returned_unchanged() {
        let bytes = [0_u8, 255, 10, 13];
        let event = Event::from_bytes("t", &bytes).unwrap();
        assert_eq!(event.payload_bytes().unwrap(), bytes);
        assert_eq!(event.encoding(), Some(Encoding::Base64));
    }

    #[test]
    fn debug_output_has_no_payload() {
        let event = Event::new("t", &"secret-canary").unwrap();
        assert!(!format!("{event:?}").contains("canary"));
    }
}

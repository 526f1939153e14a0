//! Event: a fact to be published, and what a producer may say about it.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use uuid::Uuid;

use crate::invalid::Invalid;
use crate::queue::{Priority, QueueName};

/// A payload may have this many bytes.
pub const PAYLOAD_BYTES_MAX: usize = 1024 * 1024;
/// A payload may nest this deep; both databases and the usual readers of JSON can follow.
pub const PAYLOAD_DEPTH_MAX: usize = 100;
/// A topic, an ordering key, a queue's name or a dedupe key may have this many bytes.
pub const NAME_BYTES_MAX: usize = 255;
/// All headers of an event together may have this many bytes.
pub const HEADERS_BYTES_MAX: usize = 16 * 1024;
/// The longest delay: ten years of 366 days.
pub const DELAY_MAX: Duration = Duration::from_hours(87840);

/// A fact recorded with the change that caused it, to be published.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::{Event, Priority};
///
/// let event = Event::new("order.paid", &serde_json::json!({"order": 7}))?
///     .queue("mail")?
///     .priority(Priority::new(5)?)
///     .delay(Duration::from_secs(60))?
///     .dedupe("order-7-paid")?
///     .header("trace", "abc")?;
/// assert_eq!(event.payload(), r#"{"order":7}"#);
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
#[expect(
    clippy::struct_field_names,
    reason = "`event_id` is what everybody calls it"
)]
pub struct Event {
    topic: String,
    payload: String,
    encoding: Option<Encoding>,
    event_id: Option<Uuid>,
    queue: QueueName,
    priority: Priority,
    delay: Duration,
    ordering_key: Option<String>,
    is_strict: bool,
    dedupe: Option<String>,
    headers: BTreeMap<String, String>,
}

impl Event {
    /// An event about `topic` whose payload is `payload` as JSON.
    ///
    /// # Errors
    /// The topic is empty, too long or has control characters; the payload cannot be written as
    /// JSON, is over 1 MiB or nests deeper than 100.
    pub fn new(topic: &str, payload: &impl serde::Serialize) -> Result<Self, Invalid> {
        let text = serde_json::to_string(payload).map_err(|cause| {
            Invalid::new("payload", format!("not writable as JSON ({cause})"), "JSON")
        })?;
        Self::from_json(topic, text)
    }

    /// An event whose payload is JSON text already; it is kept as it is, byte for byte.
    ///
    /// # Errors
    /// As [`Event::new`], and when the text is not JSON.
    pub fn from_json(topic: &str, payload: impl Into<String>) -> Result<Self, Invalid> {
        let payload = payload.into();
        let topic = name("topic", topic, "order.paid")?;
        check_bounds(&payload)?;
        check_json(&payload)?;
        Ok(Self::about(topic, payload))
    }

    /// A row of a table as an event. It is stored where its user put it: the bounds of a payload
    /// of ours, how long it may be and how deep it may nest, are not for it.
    pub(crate) fn of_row(topic: &str, row: String) -> Result<Self, Invalid> {
        let topic = name("topic", topic, "order.paid")?;
        check_json(&row)?;
        Ok(Self::about(topic, row))
    }

    fn about(topic: String, payload: String) -> Self {
        Self {
            topic,
            payload,
            encoding: None,
            event_id: None,
            queue: QueueName::default(),
            priority: Priority::default(),
            delay: Duration::ZERO,
            ordering_key: None,
            is_strict: false,
            dedupe: None,
            headers: BTreeMap::new(),
        }
    }

    /// An event whose payload is bytes; they are kept as a JSON string in base64.
    ///
    /// # Errors
    /// As [`Event::new`].
    pub fn from_bytes(topic: &str, payload: &[u8]) -> Result<Self, Invalid> {
        let mut event = Self::from_json(topic, format!("\"{}\"", BASE64.encode(payload)))?;
        event.encoding = Some(Encoding::Base64);
        Ok(event)
    }

    /// Puts it into this queue instead of `default`.
    ///
    /// # Errors
    /// The name is empty, too long or has control characters.
    pub fn queue(mut self, queue: &str) -> Result<Self, Invalid> {
        self.queue = QueueName::new(queue)?;
        Ok(self)
    }

    /// Sets how urgent it is within its queue.
    #[must_use]
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Holds it back for this long.
    ///
    /// # Errors
    /// It is longer than ten years.
    pub fn delay(mut self, delay: Duration) -> Result<Self, Invalid> {
        if delay > DELAY_MAX {
            return Err(Invalid::new(
                "delay",
                format!("{delay:?}"),
                "at most 10 years",
            ));
        }
        self.delay = delay;
        Ok(self)
    }

    /// Names the domain whose order it keeps: events of one key are worked one at a time, in order;
    /// a delayed one holds back those behind it.
    ///
    /// Two enqueues of one key that are ordered in real time (the first committed before the second
    /// began) are processed in that order; two that overlap may come in either order, unless
    /// [`strict`](Self::strict).
    ///
    /// # Errors
    /// The key is empty, too long or has control characters.
    pub fn key(mut self, key: &str) -> Result<Self, Invalid> {
        self.ordering_key = Some(name("ordering key", key, "customer-7")?);
        Ok(self)
    }

    /// Makes the enqueue wait for any other strict one of the same key whose transaction is still
    /// open: then the order is that of enqueueing, even for transactions that overlap. The price
    /// is that producers of one key wait for each other. Without a key it says nothing.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.is_strict = true;
        self
    }

    /// Makes it unique: while an event with this key is kept, another one is not enqueued, and the
    /// answer names the one that is there.
    ///
    /// # Errors
    /// The key is empty, too long or has control characters.
    pub fn dedupe(mut self, key: &str) -> Result<Self, Invalid> {
        self.dedupe = Some(name("dedupe key", key, "order-7-paid")?);
        Ok(self)
    }

    /// Adds a header that travels with it.
    ///
    /// # Errors
    /// The name is not 1 to 255 of the characters of an HTTP header name, the value has control
    /// characters, or all headers together are over 16 KiB.
    pub fn header(mut self, header: &str, value: &str) -> Result<Self, Invalid> {
        check_header(header, value)?;
        self.headers
            .insert(header.to_ascii_lowercase(), value.to_owned());
        let bytes: usize = self
            .headers
            .iter()
            .map(|(name, text)| name.len() + text.len())
            .sum();
        if bytes > HEADERS_BYTES_MAX {
            return Err(Invalid::new(
                "headers",
                format!("{bytes} bytes"),
                "at most 16 KiB",
            ));
        }
        Ok(self)
    }

    /// Fixes the id that the receiver uses to drop repeats; else the store draws one.
    #[must_use]
    pub fn id(mut self, event_id: Uuid) -> Self {
        self.event_id = Some(event_id);
        self
    }

    /// What it is about.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// Its payload, JSON.
    pub fn payload(&self) -> &str {
        &self.payload
    }

    /// How the payload is to be read, if not as plain JSON.
    pub fn encoding(&self) -> Option<Encoding> {
        self.encoding
    }

    /// The payload as bytes: decoded if it was given as bytes, else the JSON text.
    ///
    /// # Errors
    /// The payload says base64 and is not.
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

    /// The receiver's key to drop repeats; `None` until a store has drawn it.
    pub fn event_id(&self) -> Option<Uuid> {
        self.event_id
    }

    /// The queue it belongs to.
    pub fn queue_name(&self) -> &QueueName {
        &self.queue
    }

    /// How urgent it is within its queue.
    pub fn urgency(&self) -> Priority {
        self.priority
    }

    /// How long it is held back from the moment of enqueueing.
    pub fn held_back(&self) -> Duration {
        self.delay
    }

    /// The domain whose order it keeps, if any.
    pub fn ordering_key(&self) -> Option<&str> {
        self.ordering_key.as_deref()
    }

    /// Whether its enqueue waits for others of the same key.
    pub fn is_strict(&self) -> bool {
        self.is_strict
    }

    /// The key that makes it unique, if any.
    pub fn dedupe_key(&self) -> Option<&str> {
        self.dedupe.as_deref()
    }

    /// The headers that travel with it.
    pub fn headers(&self) -> &BTreeMap<String, String> {
        &self.headers
    }
}

impl fmt::Debug for Event {
    /// Shows no payload and no header: they may hold what must not reach a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("topic", &self.topic)
            .field("event_id", &self.event_id)
            .field("queue", &self.queue)
            .field("payload_bytes", &self.payload.len())
            .finish_non_exhaustive()
    }
}

/// An event as a store has kept it. Turned into an [`Event`] without a second check: what was
/// accepted once is given back, even if a limit has changed since.
#[derive(Clone)]
pub struct StoredEvent {
    /// What it is about.
    pub topic: String,
    /// Its payload, JSON.
    pub payload: String,
    /// How the payload is to be read, if not as plain JSON.
    pub encoding: Option<Encoding>,
    /// The receiver's key to drop repeats.
    pub event_id: Uuid,
    /// The queue it belongs to.
    pub queue: QueueName,
    /// How urgent it is within its queue.
    pub priority: Priority,
    /// The domain whose order it keeps, if any.
    pub ordering_key: Option<String>,
    /// The headers that travel with it.
    pub headers: BTreeMap<String, String>,
}

impl fmt::Debug for StoredEvent {
    /// As of [`Event`]: shows no payload and no header.
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
            topic: stored.topic,
            payload: stored.payload,
            encoding: stored.encoding,
            event_id: Some(stored.event_id),
            queue: stored.queue,
            priority: stored.priority,
            delay: Duration::ZERO,
            ordering_key: stored.ordering_key,
            is_strict: false,
            dedupe: None,
            headers: stored.headers,
        }
    }
}

/// How a payload that is not plain JSON is to be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// A JSON string that holds bytes in base64.
    Base64,
}

impl Encoding {
    /// The word as it is stored.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Base64 => "base64",
        }
    }

    /// Reads a stored word.
    pub fn parse(text: &str) -> Option<Self> {
        (text == Self::Base64.as_str()).then_some(Self::Base64)
    }
}

/// A name that both databases, logs and headers can carry.
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

fn check_header(header: &str, value: &str) -> Result<(), Invalid> {
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

fn check_bounds(payload: &str) -> Result<(), Invalid> {
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

fn check_json(payload: &str) -> Result<(), Invalid> {
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

/// How deep brackets nest, outside strings. Counted before parsing, so that no parser's stack
/// depends on a stranger's text.
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
    fn bad_input_says_what_was_expected() {
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
            (
                Event::from_json("t", "1").and_then(|e| e.queue("")),
                "queue is empty",
            ),
            (
                Event::from_json("t", "1").and_then(|e| e.key("\n")),
                "ordering key",
            ),
            (
                Event::from_json("t", "1").and_then(|e| e.header("a b", "c")),
                "header name",
            ),
            (
                Event::from_json("t", "1").and_then(|e| e.header("a", "c\r\nd")),
                "header value",
            ),
            (
                Event::from_json("t", "1").and_then(|e| e.delay(Duration::MAX)),
                "10 years",
            ),
        ];
        for (answer, expected) in cases {
            let problem = answer.expect_err(expected).to_string();
            assert!(
                problem.contains(expected),
                "{problem:?} does not say {expected:?}"
            );
        }
        assert!(Priority::new(8).is_err());
    }

    #[test]
    fn a_payload_is_kept_byte_for_byte() {
        let text = "{ \"b\":1,\"a\" : 1.0, \"b\": 2, \"z\":\"\\u0000]\" }";
        assert_eq!(Event::from_json("t", text).unwrap().payload(), text);
    }

    #[test]
    fn bytes_come_back() {
        let bytes = [0_u8, 255, 10, 13];
        let event = Event::from_bytes("t", &bytes).unwrap();
        assert_eq!(event.payload_bytes().unwrap(), bytes);
        assert_eq!(event.encoding(), Some(Encoding::Base64));
    }

    #[test]
    fn debug_shows_no_payload() {
        let event = Event::new("t", &"secret-canary")
            .unwrap()
            .header("k", "header-canary")
            .unwrap();
        assert!(!format!("{event:?}").contains("canary"));
    }
}

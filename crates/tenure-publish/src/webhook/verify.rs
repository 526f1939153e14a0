//! Verification for receivers: checks calls, and refuses late ones.
//!
//! A call proves its sender (`webhook-signature`, as in Standard Webhooks) and its attempt
//! (`webhook-tenure-signature` over id, time, fence, attempt, sequence, topic and body).
//! [`Verifier`] checks both; [`Latest`] remembers accepted calls.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tenure_core::{Fence, Invalid, Timestamp};

use super::names;
use super::signing::VerifyingKey;

/// Default limit for the age of a call, and for a timestamp ahead of the receiver's clock.
const TOLERANCE: Duration = Duration::from_mins(5);
/// Maximum number of signatures that are checked; senders have fewer keys.
const SIGNATURES_MAX: usize = 32;

/// Verifies calls.
///
/// ```
/// use tenure_core::Timestamp;
/// use tenure_publish::webhook::verify::{Verifier, VerifyError};
///
/// let verifier = Verifier::new(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"])?.accept_plain();
/// let headers = [
///     ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
///     ("webhook-timestamp", "1614265330"),
///     ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
/// ];
/// let now = Timestamp::from_micros(1_614_265_331_000_000);
/// let verified = verifier.verify(headers, br#"{"test": 2432232314}"#, now);
/// assert_eq!(verified.map(|call| call.id).as_deref(), Ok("msg_p5jXN8AQM9LWM0D4loKWxJek"));
///
/// let other = verifier.verify(headers, br#"{"test": 1}"#, now);
/// assert_eq!(other, Err(VerifyError::Signature));
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
pub struct Verifier {
    keys: Vec<VerifyingKey>,
    tolerance: Duration,
    plain: PlainCalls,
}

/// Policy for calls without Tenure's own headers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PlainCalls {
    Refused,
    Accepted,
}

/// Verified facts of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// Message id: the same for every attempt, to drop duplicates.
    pub id: String,
    /// Time of the attempt.
    pub timestamp: Timestamp,
    /// Attempt number, from 1. `None`: the call has none of Tenure's own headers.
    pub attempt: Option<u32>,
    /// Number of the claim: refuse a number below one that you have accepted for this message.
    pub fence: Option<Fence>,
    /// Number that rises within the ordering key, if the message has a key.
    pub sequence: Option<i64>,
    /// Topic of the event.
    pub topic: Option<String>,
}

/// Reason for refusing a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A header is missing, occurs twice, or cannot be read.
    #[error("the header {0} is missing, duplicated or unreadable; expected it once")]
    Header(&'static str),
    /// The call was made too long ago, or too far in the future.
    #[error("the timestamp is too far from now: the call is old, or the clocks differ")]
    Time,
    /// No signature matches a known key.
    #[error("no signature matches a known key; verify the exact bytes of the body as received")]
    Signature,
}

impl Verifier {
    /// Creates a verifier that accepts calls signed by any of these keys: secrets `whsec_…`, public
    /// keys `whpk_…`. It refuses calls without Tenure's own headers; see
    /// [`Verifier::accept_plain`].
    ///
    /// # Errors
    /// There is no key, or one is not valid.
    pub fn new<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Result<Self, Invalid> {
        let keys = keys
            .into_iter()
            .map(|key| VerifyingKey::parse(key.as_ref()));
        let keys: Vec<VerifyingKey> = keys.collect::<Result<_, _>>()?;
        if keys.is_empty() {
            let expected = "one or more, such as whsec_… or whpk_…";
            return Err(Invalid::new("keys", "an empty list", expected));
        }
        Ok(Self {
            keys,
            tolerance: TOLERANCE,
            plain: PlainCalls::Refused,
        })
    }

    /// Sets the limit for the age of a call, and for a timestamp ahead of the receiver's clock.
    /// Default: 5 minutes.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Accepts calls without Tenure's own headers, from any Standard Webhooks sender. Do not use it
    /// if you rely on the fence: an attacker could remove those headers.
    #[must_use]
    pub fn accept_plain(mut self) -> Self {
        self.plain = PlainCalls::Accepted;
        self
    }

    /// Verifies a call. Header names may have any case; the body must be exactly as received.
    ///
    /// # Errors
    /// The call must not be trusted.
    pub fn verify<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        headers: impl IntoIterator<Item = (N, V)>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Verified, VerifyError> {
        let headers = TenureHeaders::collect(headers)?;
        let id = headers.need(names::ID)?;
        // The signed text is `id.timestamp.body`. If ids could contain a full stop, a body that
        // begins with a number and a full stop could pass for another message with another
        // timestamp.
        if id.contains('.') {
            return Err(VerifyError::Header(names::ID));
        }
        let seconds = headers.need(names::TIMESTAMP)?;
        let timestamp = moment(seconds).ok_or(VerifyError::Header(names::TIMESTAMP))?;
        if timestamp.since(now).max(now.since(timestamp)) > self.tolerance {
            return Err(VerifyError::Time);
        }
        let plain = [format!("{id}.{seconds}.").as_bytes(), body].concat();
        self.check(headers.need(names::SIGNATURE)?, &plain)?;
        let mut verified = Verified {
            id: id.to_owned(),
            timestamp,
            attempt: None,
            fence: None,
            sequence: None,
            topic: None,
        };
        if self.plain == PlainCalls::Accepted && !headers.has_own() {
            return Ok(verified);
        }
        let fence = headers.need(names::FENCE)?;
        let attempt = headers.need(names::ATTEMPT)?;
        let sequence = headers.get(names::SEQUENCE);
        let topic = headers.need(names::TOPIC)?;
        let front = names::own_front([id, seconds, fence, attempt, sequence.unwrap_or(""), topic]);
        let own = [front.as_bytes(), body].concat();
        self.check(headers.need(names::OWN_SIGNATURE)?, &own)?;
        verified.topic = Some(topic.to_owned());
        verified.fence = Some(Fence::new(number(names::FENCE, fence)?));
        verified.attempt = Some(number(names::ATTEMPT, attempt)?);
        let read = |text| number(names::SEQUENCE, text);
        verified.sequence = sequence.map(read).transpose()?;
        Ok(verified)
    }

    /// Compares every signature with every key of its scheme, even after a match: the time must not
    /// reveal which one matched.
    fn check(&self, list: &str, message: &[u8]) -> Result<(), VerifyError> {
        let entries = list.split(' ').take(SIGNATURES_MAX);
        let entries: Vec<(&str, &str)> = entries.filter_map(|it| it.split_once(',')).collect();
        let mut is_good = false;
        for key in &self.keys {
            let ours = entries.iter().filter(|(tag, _)| key.scheme().tag() == *tag);
            let read = ours.filter_map(|(_, text)| BASE64.decode(text).ok());
            let signatures: Vec<Vec<u8>> = read.collect();
            if !signatures.is_empty() {
                is_good |= key.is_any(message, &signatures);
            }
        }
        is_good.then_some(()).ok_or(VerifyError::Signature)
    }
}

impl fmt::Debug for Verifier {
    /// Shows the number of keys, and none of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("keys", &self.keys.len())
            .field("tolerance", &self.tolerance)
            .finish_non_exhaustive()
    }
}

/// Values of the headers in [`names::ALL`].
#[derive(Default)]
struct TenureHeaders([Option<String>; names::ALL.len()]);

impl TenureHeaders {
    fn collect<N: AsRef<str>, V: AsRef<[u8]>>(
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, VerifyError> {
        let mut collected = Self::default();
        for (name, value) in headers {
            let of_name = |ours: &str| ours.eq_ignore_ascii_case(name.as_ref());
            let Some(place) = names::ALL.iter().position(|ours| of_name(ours)) else {
                continue;
            };
            let bad = VerifyError::Header(names::ALL.get(place).copied().unwrap_or_default());
            let text = str::from_utf8(value.as_ref()).map_err(|_cause| bad)?;
            // A header cannot contain a line break; in the signed text it would end a line.
            if text.chars().any(char::is_control) {
                return Err(bad);
            }
            let entry = collected.0.get_mut(place).ok_or(bad)?;
            // If a header had two values, later code might read the other one.
            if entry.replace(text.to_owned()).is_some() {
                return Err(bad);
            }
        }
        Ok(collected)
    }

    fn get(&self, name: &str) -> Option<&str> {
        let place = names::ALL.iter().position(|ours| *ours == name)?;
        self.0.get(place)?.as_deref()
    }

    fn need(&self, name: &'static str) -> Result<&str, VerifyError> {
        let value = self.get(name).filter(|value| !value.is_empty());
        value.ok_or(VerifyError::Header(name))
    }

    fn has_own(&self) -> bool {
        let own = [
            names::FENCE,
            names::ATTEMPT,
            names::SEQUENCE,
            names::TOPIC,
            names::OWN_SIGNATURE,
        ];
        own.iter().any(|name| self.get(name).is_some())
    }
}

fn moment(seconds: &str) -> Option<Timestamp> {
    let seconds: i64 = seconds.parse().ok()?;
    Some(Timestamp::from_micros(seconds.checked_mul(1_000_000)?))
}

fn number<T: std::str::FromStr>(name: &'static str, text: &str) -> Result<T, VerifyError> {
    text.parse().map_err(|_cause| VerifyError::Header(name))
}

/// Relation of a call to the calls accepted before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The message was not accepted before.
    New,
    /// The message was accepted before; reply with success and do nothing.
    Repeat,
    /// A newer call was accepted before: a later attempt of the message, or a later message of its
    /// key. Reply with success and do nothing.
    Stale,
}

/// Memory of accepted calls, for dropping duplicates and late calls. It forgets the oldest calls
/// when it is full, and all calls when the process ends. A receiver that must never process a
/// message twice should store the same facts in the transaction that processes the message.
///
/// ```
/// use tenure_core::{Fence, Timestamp};
/// use tenure_publish::webhook::verify::{Freshness, Latest, Verified};
///
/// let call = |id: &str, fence, sequence| Verified {
///     id: id.to_owned(),
///     timestamp: Timestamp::from_micros(0),
///     attempt: Some(1),
///     fence: Some(Fence::new(fence)),
///     sequence: Some(sequence),
///     topic: Some("order.paid".to_owned()),
/// };
/// let mut latest = Latest::new(10_000);
/// let first = call("a", 7, 1);
/// assert_eq!(latest.judge(&first, Some("customer-7")), Freshness::New);
/// latest.remember(&first, Some("customer-7"));
///
/// let late = call("a", 5, 1);
/// assert_eq!(latest.judge(&late, Some("customer-7")), Freshness::Stale);
/// let again = call("a", 9, 1);
/// assert_eq!(latest.judge(&again, Some("customer-7")), Freshness::Repeat);
/// ```
#[derive(Debug)]
pub struct Latest {
    messages: Bounded,
    keys: Bounded,
}

impl Latest {
    /// Creates a memory for this many messages and the same number of keys.
    pub fn new(capacity: usize) -> Self {
        Self {
            messages: Bounded::new(capacity),
            keys: Bounded::new(capacity),
        }
    }

    /// Classifies a call. `key` is the ordering key of its sequence, such as the customer named in
    /// the body; without a key the sequence is ignored.
    pub fn judge(&self, call: &Verified, key: Option<&str>) -> Freshness {
        let fence = call.fence.map_or(i64::MAX, Fence::number);
        if let Some(taken) = self.messages.get(&call.id) {
            return if fence < taken {
                Freshness::Stale
            } else {
                Freshness::Repeat
            };
        }
        let taken = key.and_then(|key| self.keys.get(key));
        match (taken, call.sequence) {
            (Some(taken), Some(sequence)) if sequence < taken => Freshness::Stale,
            _ => Freshness::New,
        }
    }

    /// Remembers an accepted call. Call this after the work for it is done.
    pub fn remember(&mut self, call: &Verified, key: Option<&str>) {
        let fence = call.fence.map_or(i64::MIN, Fence::number);
        self.messages.raise(&call.id, fence);
        if let (Some(key), Some(sequence)) = (key, call.sequence) {
            self.keys.raise(key, sequence);
        }
    }
}

/// Highest number for each name; the name added first is forgotten first.
#[derive(Debug)]
struct Bounded {
    capacity: usize,
    highest: HashMap<String, i64>,
    order: VecDeque<String>,
}

impl Bounded {
    fn new(capacity: usize) -> Self {
        Self {
            capacity: capacity.max(1),
            highest: HashMap::new(),
            order: VecDeque::new(),
        }
    }

    fn get(&self, name: &str) -> Option<i64> {
        self.highest.get(name).copied()
    }

    fn raise(&mut self, name: &str, number: i64) {
        if let Some(highest) = self.highest.get_mut(name) {
            *highest = number.max(*highest);
            return;
        }
        if self.order.len() >= self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.highest.remove(&oldest);
        }
        self.order.push_back(name.to_owned());
        self.highest.insert(name.to_owned(), number);
    }
}

//! For receivers: verifies calls, and refuses those that come too late.
//!
//! A call says who made it (`webhook-signature`, as the Standard Webhooks text has it) and which
//! attempt it belongs to (`webhook-tenure-signature` over id, time, fence, attempt, sequence,
//! topic and body). [`Verifier`] checks both; [`Latest`] remembers what was seen.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use tenure_core::{Fence, Invalid, Timestamp};

use super::names;
use super::signing::Verifying;

/// How old a call may be, or how far ahead of our clock, unless set.
const TOLERANCE: Duration = Duration::from_mins(5);
/// More signatures than any sender has keys: the rest is not looked at.
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
    keys: Vec<Verifying>,
    tolerance: Duration,
    plain: Plain,
}

/// What of a call without Tenure's own headers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Plain {
    Refused,
    Accepted,
}

/// What a call says of itself, and can be believed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verified {
    /// The id of the message: the same for every attempt, to drop repeats.
    pub id: String,
    /// When the attempt was made.
    pub timestamp: Timestamp,
    /// 1 at the first try. `None`: it has none of Tenure's own headers.
    pub attempt: Option<u32>,
    /// The number of the claim: refuse what is older than what you have seen of this message.
    pub fence: Option<Fence>,
    /// Of a message with an ordering key: rises along the key.
    pub sequence: Option<i64>,
    /// What the event is about.
    pub topic: Option<String>,
}

/// Why a call is not to be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum VerifyError {
    /// A header is missing, is there twice, or cannot be read.
    #[error("the header {0} is missing, there twice or unreadable; expected it once")]
    Header(&'static str),
    /// It was made too long ago, or too far in the future.
    #[error("the call was not made around now; compare the two clocks, or it is a repeat")]
    Time,
    /// None of the signatures is that of a known key.
    #[error("no signature is that of a known key; the body has to be the bytes as received")]
    Signature,
}

impl Verifier {
    /// Believes calls that are signed by any of these: secrets `whsec_…`, public keys `whpk_…`.
    /// Those that are expected from Tenure alone: see [`Verifier::accept_plain`].
    ///
    /// # Errors
    /// There is none, or one is no key.
    pub fn new<K: AsRef<str>>(keys: impl IntoIterator<Item = K>) -> Result<Self, Invalid> {
        let keys = keys.into_iter().map(|key| Verifying::parse(key.as_ref()));
        let keys: Vec<Verifying> = keys.collect::<Result<_, _>>()?;
        if keys.is_empty() {
            let expected = "one or more, such as whsec_… or whpk_…";
            return Err(Invalid::new("keys", "an empty list", expected));
        }
        Ok(Self {
            keys,
            tolerance: TOLERANCE,
            plain: Plain::Refused,
        })
    }

    /// How old a call may be, or how far ahead of our clock.
    #[must_use]
    pub fn tolerance(mut self, tolerance: Duration) -> Self {
        self.tolerance = tolerance;
        self
    }

    /// Believes calls of any sender of Standard Webhooks: those without Tenure's own headers. Who
    /// needs the fence must not: it could be left out on the way.
    #[must_use]
    pub fn accept_plain(mut self) -> Self {
        self.plain = Plain::Accepted;
        self
    }

    /// Verifies a call: its headers, names in any case, and its body exactly as received.
    ///
    /// # Errors
    /// It is not to be believed.
    pub fn verify<N: AsRef<str>, V: AsRef<[u8]>>(
        &self,
        headers: impl IntoIterator<Item = (N, V)>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Verified, VerifyError> {
        let found = Found::collect(headers)?;
        let id = found.need(names::ID)?;
        // Signed is `id.timestamp.body`. With a full stop in the id, a body that begins with a
        // number and a full stop would pass for another message, of another time.
        if id.contains('.') {
            return Err(VerifyError::Header(names::ID));
        }
        let seconds = found.need(names::TIMESTAMP)?;
        let timestamp = moment(seconds).ok_or(VerifyError::Header(names::TIMESTAMP))?;
        if timestamp.since(now).max(now.since(timestamp)) > self.tolerance {
            return Err(VerifyError::Time);
        }
        let plain = message(&[id, seconds], body);
        self.check(found.need(names::SIGNATURE)?, &plain)?;
        let mut verified = Verified {
            id: id.to_owned(),
            timestamp,
            attempt: None,
            fence: None,
            sequence: None,
            topic: None,
        };
        if self.plain == Plain::Accepted && !found.has_own() {
            return Ok(verified);
        }
        let fence = found.need(names::FENCE)?;
        let attempt = found.need(names::ATTEMPT)?;
        let sequence = found.get(names::SEQUENCE);
        let topic = found.need(names::TOPIC)?;
        let front = names::own_front([id, seconds, fence, attempt, sequence.unwrap_or(""), topic]);
        let own = [front.as_bytes(), body].concat();
        self.check(found.need(names::OWN_SIGNATURE)?, &own)?;
        verified.topic = Some(topic.to_owned());
        verified.fence = Some(Fence::new(number(names::FENCE, fence)?));
        verified.attempt = Some(number(names::ATTEMPT, attempt)?);
        let read = |text| number(names::SEQUENCE, text);
        verified.sequence = sequence.map(read).transpose()?;
        Ok(verified)
    }

    /// Every signature is compared with every key of its scheme, whatever was found before: the
    /// time says nothing about which one it was.
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
        if is_good {
            Ok(())
        } else {
            Err(VerifyError::Signature)
        }
    }
}

impl fmt::Debug for Verifier {
    /// How many keys, and none of them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("keys", &self.keys.len())
            .field("tolerance", &self.tolerance)
            .finish_non_exhaustive()
    }
}

/// The headers that matter.
#[derive(Default)]
struct Found([Option<String>; names::ALL.len()]);

impl Found {
    fn collect<N: AsRef<str>, V: AsRef<[u8]>>(
        headers: impl IntoIterator<Item = (N, V)>,
    ) -> Result<Self, VerifyError> {
        let mut found = Self::default();
        for (name, value) in headers {
            let of_name = |ours: &str| ours.eq_ignore_ascii_case(name.as_ref());
            let Some(place) = names::ALL.iter().position(|ours| of_name(ours)) else {
                continue;
            };
            let bad = VerifyError::Header(names::ALL.get(place).copied().unwrap_or_default());
            let text = str::from_utf8(value.as_ref()).map_err(|_cause| bad)?;
            // No header holds the end of a line; who hands us one would let it end a line of what
            // is signed.
            if text.chars().any(char::is_control) {
                return Err(bad);
            }
            let slot = found.0.get_mut(place).ok_or(bad)?;
            // Of two values the receiver behind us might read the other one.
            if slot.replace(text.to_owned()).is_some() {
                return Err(bad);
            }
        }
        Ok(found)
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

/// What is signed: the parts with a full stop behind each, and the body.
fn message(parts: &[&str], body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(128 + body.len());
    for part in parts {
        message.extend_from_slice(part.as_bytes());
        message.push(b'.');
    }
    message.extend_from_slice(body);
    message
}

fn moment(seconds: &str) -> Option<Timestamp> {
    let seconds: i64 = seconds.parse().ok()?;
    Some(Timestamp::from_micros(seconds.checked_mul(1_000_000)?))
}

fn number<T: std::str::FromStr>(name: &'static str, text: &str) -> Result<T, VerifyError> {
    text.parse().map_err(|_cause| VerifyError::Header(name))
}

/// What is new about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// The message was not taken before.
    New,
    /// The message was taken already; answer that all is well and do nothing.
    Repeat,
    /// Something newer was taken already: a later attempt of the message, or a later message of
    /// its key. Answer that all is well and do nothing.
    Stale,
}

/// Remembers what a receiver has taken, so that it can leave out repeats and what comes too late.
/// It forgets the oldest when it is full, and everything when the process ends: who must not take
/// anything twice keeps the same in the transaction that takes it.
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
    /// Remembers this many messages, and as many keys.
    pub fn new(capacity: usize) -> Self {
        Self {
            messages: Bounded::new(capacity),
            keys: Bounded::new(capacity),
        }
    }

    /// Whether a call is to be taken. `key` is what its sequence is about, such as the customer
    /// that its body names; without one the sequence is not looked at.
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

    /// Remembers a call that was taken: after its work is done.
    pub fn remember(&mut self, call: &Verified, key: Option<&str>) {
        let fence = call.fence.map_or(i64::MIN, Fence::number);
        self.messages.raise(&call.id, fence);
        if let (Some(key), Some(sequence)) = (key, call.sequence) {
            self.keys.raise(key, sequence);
        }
    }
}

/// The highest number of each name; the name that came first is forgotten first.
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

//! Endpoint: an address that receives webhooks, and its settings.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{EndpointHealth, Schedule};
use crate::invalid::Invalid;
use crate::time::Timestamp;
use crate::topic::TopicPattern;

/// Name of an endpoint: 1 to 64 of `a-z`, `0-9`, `-` and `_`, beginning with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(Arc<str>);
as_text!(EndpointId);

impl EndpointId {
    /// Maximum length of a name, in bytes.
    pub const BYTES_MAX: usize = 64;

    /// Parses a name.
    ///
    /// # Errors
    /// The name is empty or too long, contains other characters, or begins with `-` or `_`.
    pub fn new(text: &str) -> Result<Self, Invalid> {
        let is_plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
        let is_good = !text.is_empty()
            && text.len() <= Self::BYTES_MAX
            && text.bytes().all(|c| is_plain(c) || c == b'-' || c == b'_')
            && text.bytes().next().is_some_and(is_plain);
        if is_good {
            return Ok(Self(text.into()));
        }
        let expected = "1 to 64 of a-z, 0-9, - and _, such as billing";
        Err(Invalid::new("endpoint id", format!("{text:?}"), expected))
    }
}

/// Settings of an endpoint, without its secrets and header values: those are encrypted, see
/// [`Endpoint::sealed`].
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointSettings {
    /// Address to call. Registration checks it, and the [`Caller`](super::Caller) at every call.
    pub url: String,
    /// Free text for people.
    pub description: String,
    /// Topics of the events to deliver.
    pub topics: Vec<TopicPattern>,
    /// Time limit of a call, with its response. Default: 15 s.
    pub timeout: Duration,
    /// Maximum concurrent calls per process. Default: 10.
    pub concurrency: u32,
    /// Maximum calls per second, for each process; `None`: no limit.
    pub rate: Option<RateLimit>,
    /// Delays between attempts.
    pub schedule: Schedule,
    /// Status codes after which a delivery is not retried.
    pub no_retry: Vec<u16>,
    /// Treatment of queued deliveries when the endpoint answers 410.
    pub on_gone: OnGone,
    /// Key-value pairs for people.
    pub metadata: BTreeMap<String, String>,
}

impl EndpointSettings {
    /// Default time limit of a call.
    pub const TIMEOUT: Duration = Duration::from_secs(15);
    /// Minimum time limit of a call.
    pub const TIMEOUT_MIN: Duration = Duration::from_secs(1);
    /// Maximum time limit of a call.
    pub const TIMEOUT_MAX: Duration = Duration::from_mins(15);
    /// Default number of concurrent calls per process.
    pub const CONCURRENCY: u32 = 10;
    /// Maximum number of concurrent calls.
    pub const CONCURRENCY_MAX: u32 = 10_000;

    /// An endpoint at this address for these topics, with defaults for the rest.
    pub fn new(url: impl Into<String>, topics: Vec<TopicPattern>) -> Self {
        Self {
            url: url.into(),
            description: String::new(),
            topics,
            timeout: Self::TIMEOUT,
            concurrency: Self::CONCURRENCY,
            rate: None,
            schedule: Schedule::default(),
            no_retry: Vec::new(),
            on_gone: OnGone::Bury,
            metadata: BTreeMap::new(),
        }
    }

    /// Checks all settings but not the address policy, which the [`Caller`](super::Caller)
    /// enforces.
    ///
    /// # Errors
    /// Every invalid setting.
    pub fn check(&self) -> Result<(), Vec<Invalid>> {
        let mut problems = Vec::new();
        let mut refuse = |is_bad: bool, field, found: String, expected: &str| {
            if is_bad {
                problems.push(Invalid::new(field, found, expected));
            }
        };
        let long = |text: &str, max: usize| text.len() > max || text.chars().any(char::is_control);
        refuse(
            self.url.is_empty() || long(&self.url, 2048),
            "url",
            format!("{} bytes long or with a control character", self.url.len()),
            "1 to 2048 bytes, such as https://example.com/hooks",
        );
        refuse(
            long(&self.description, 1024),
            "description",
            format!(
                "{} bytes long or with a control character",
                self.description.len()
            ),
            "at most 1024 bytes in one line",
        );
        refuse(
            self.topics.is_empty() || self.topics.len() > 100,
            "topics",
            format!("{} patterns", self.topics.len()),
            "1 to 100 patterns, such as order.*",
        );
        refuse(
            !(Self::TIMEOUT_MIN..=Self::TIMEOUT_MAX).contains(&self.timeout),
            "timeout",
            crate::time::duration_text(self.timeout),
            "1s to 15m",
        );
        refuse(
            !(1..=Self::CONCURRENCY_MAX).contains(&self.concurrency),
            "concurrency",
            self.concurrency.to_string(),
            "1 to 10000",
        );
        refuse(
            self.rate
                .is_some_and(|rate| rate.per_second == 0 || rate.burst == 0),
            "rate",
            "zero".to_owned(),
            "1 or more per second, with a burst of 1 or more",
        );
        let odd = self
            .no_retry
            .iter()
            .find(|status| !(300..=599).contains(*status));
        refuse(
            odd.is_some(),
            "no_retry",
            odd.map_or(String::new(), ToString::to_string),
            "statuses from 300 to 599",
        );
        let metadata: usize = self.metadata.iter().map(|(k, v)| k.len() + v.len()).sum();
        refuse(
            metadata > 4096 || self.metadata.keys().any(String::is_empty),
            "metadata",
            format!("{metadata} bytes, or with an empty name"),
            "names and values of at most 4096 bytes together",
        );
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems)
        }
    }
}

/// Rate limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RateLimit {
    /// Long-term average of calls per second.
    pub per_second: u32,
    /// Maximum number of calls at once after a quiet time.
    pub burst: u32,
}

/// Treatment of queued deliveries of an endpoint that answered 410.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnGone {
    /// The deliveries become dead, with the reason `gone`.
    #[default]
    Bury,
    /// The deliveries wait until the endpoint is enabled.
    Keep,
}

/// Administrative state of an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// Events are delivered.
    Enabled,
    /// Nothing is sent: new events create no deliveries, and queued deliveries wait.
    Disabled {
        /// Reason for disabling it.
        why: Disabled,
        /// Time of disabling.
        since: Timestamp,
    },
    /// Removed; queued deliveries are buried. The record stays so that its deliveries can be
    /// displayed.
    Removed {
        /// Time of removal.
        since: Timestamp,
    },
}

/// Reason why an endpoint is disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disabled {
    /// By an operator, with this text.
    ByHand(String),
    /// The endpoint answered 410.
    Gone,
    /// A response of the endpoint requested it.
    Requested,
    /// The endpoint has failed for days.
    Failing,
}

impl Disabled {
    /// Stable word for stores and JSON; the text of [`Disabled::ByHand`] is stored separately.
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::ByHand(_) => "by_hand",
            Self::Gone => "gone",
            Self::Requested => "asked",
            Self::Failing => "failing",
        }
    }

    /// Parses the word, with its text.
    pub fn parse(word: &str, text: &str) -> Option<Self> {
        let by_hand = Self::ByHand(text.to_owned());
        let all = [by_hand, Self::Gone, Self::Requested, Self::Failing];
        all.into_iter().find(|why| why.as_str() == word)
    }
}

/// An endpoint to add.
#[derive(Clone, PartialEq, Eq)]
pub struct NewEndpoint {
    /// Name of the endpoint.
    pub id: EndpointId,
    /// Settings of the endpoint.
    pub settings: EndpointSettings,
    /// Encrypted secrets and headers; see [`Endpoint::sealed`].
    pub sealed: String,
}

impl fmt::Debug for NewEndpoint {
    /// Omits the encrypted secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewEndpoint")
            .field("id", &self.id)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// A stored endpoint.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Name of the endpoint.
    pub id: EndpointId,
    /// Number of its lane, by which its deliveries are claimed. No other endpoint or queue ever has
    /// the same number.
    pub number: u32,
    /// Settings of the endpoint.
    pub settings: EndpointSettings,
    /// Its signing secrets and header values, encrypted at registration and decrypted by the
    /// [`Caller`](super::Caller). Opaque to a store.
    pub sealed: String,
    /// Administrative state.
    pub state: EndpointState,
    /// Health, shared by all processes.
    pub health: EndpointHealth,
    /// Rises with every change of the settings, the secrets or the state. A change names the
    /// version that it is based on.
    pub version: u64,
    /// Time of registration.
    pub created_at: Timestamp,
}

impl Endpoint {
    /// Returns true if events with this topic are delivered to it now. Tenure's own topics match
    /// only patterns that begin with `tenure`.
    ///
    /// ```
    /// # use tenure_core::webhook::{EndpointSettings, Endpoint};
    /// # use tenure_core::TopicPattern;
    /// let settings = EndpointSettings::new("https://example.com", vec![TopicPattern::any()]);
    /// assert!(settings.takes("order.paid") && !settings.takes("tenure.endpoint.disabled"));
    /// ```
    pub fn receives(&self, topic: &str) -> bool {
        self.state == EndpointState::Enabled && self.settings.takes(topic)
    }
}

impl EndpointSettings {
    /// First segment of the topics of Tenure's own events.
    pub const OWN_TOPICS: &'static str = "tenure";

    /// Returns true if a pattern of these settings matches a topic.
    pub fn takes(&self, topic: &str) -> bool {
        let first = |text: &str| text.split('.').next() == Some(Self::OWN_TOPICS);
        let is_own = first(topic);
        let mut patterns = self.topics.iter();
        patterns.any(|pattern| pattern.matches(topic) && (!is_own || first(pattern.as_str())))
    }
}

impl fmt::Debug for EndpointSettings {
    /// Omits the address and free text, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EndpointSettings")
            .field("topics", &self.topics)
            .field("timeout", &self.timeout)
            .field("concurrency", &self.concurrency)
            .field("rate", &self.rate)
            .field("schedule", &self.schedule)
            .field("no_retry", &self.no_retry)
            .field("on_gone", &self.on_gone)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Endpoint {
    /// Omits the encrypted secrets, and the address, which may contain a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id)
            .field("number", &self.number)
            .field("state", &self.state)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

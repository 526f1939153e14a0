//! Endpoint: an address that receives webhooks, and its rules.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{Health, Schedule};
use crate::invalid::Invalid;
use crate::time::Timestamp;
use crate::topic::TopicPattern;

/// The name of an endpoint: 1 to 64 of `a-z`, `0-9`, `-` and `_`, beginning with a letter or digit.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EndpointId(Arc<str>);

impl EndpointId {
    /// No name is longer.
    pub const BYTES_MAX: usize = 64;

    /// Reads a name.
    ///
    /// # Errors
    /// It is empty or too long, or has other characters.
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

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for EndpointId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What people set of an endpoint. Its secrets and the values of its headers are not here: they
/// are sealed, see [`Endpoint::sealed`].
#[derive(Clone, PartialEq, Eq)]
pub struct EndpointSettings {
    /// Where to call. Who registers it has checked it; the caller checks it again at every call.
    pub url: String,
    /// What it is for.
    pub description: String,
    /// Events with these topics are owed to it.
    pub topics: Vec<TopicPattern>,
    /// How long a call may take, answer included.
    pub timeout: Duration,
    /// How many calls a process makes at once.
    pub concurrency: u32,
    /// How many calls a process makes per second; `None`: as many as it can.
    pub rate: Option<Rate>,
    /// When a delivery is tried again.
    pub schedule: Schedule,
    /// Answers after which a delivery is not tried again.
    pub no_retry: Vec<u16>,
    /// What happens to what is queued when the endpoint answers 410.
    pub on_gone: OnGone,
    /// What people want to remember of it.
    pub metadata: BTreeMap<String, String>,
}

impl EndpointSettings {
    /// How long a call may take unless set.
    pub const TIMEOUT: Duration = Duration::from_secs(15);
    /// The shortest time limit of a call.
    pub const TIMEOUT_MIN: Duration = Duration::from_secs(1);
    /// The longest.
    pub const TIMEOUT_MAX: Duration = Duration::from_mins(15);
    /// How many calls a process makes at once unless set.
    pub const CONCURRENCY: u32 = 10;
    /// The most calls at once that can be set.
    pub const CONCURRENCY_MAX: u32 = 10_000;

    /// An endpoint at this address for these topics, all else as usual.
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

    /// Every problem of the set. That the address is allowed is for the caller to say.
    ///
    /// # Errors
    /// All that does not fit.
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

/// How many calls per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Over time.
    pub per_second: u32,
    /// At once, after a quiet while.
    pub burst: u32,
}

/// What happens to what is queued when an endpoint says that it is gone for good.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnGone {
    /// It is dead, with the reason `gone`.
    #[default]
    Bury,
    /// It waits until the endpoint is enabled.
    Keep,
}

/// Whether anything is sent to an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// It is.
    Enabled,
    /// Nothing is; new events are not owed to it, what is queued waits.
    Disabled {
        /// Why.
        why: Disabled,
        /// Since when.
        since: Timestamp,
    },
    /// It is gone; what is queued is buried. Kept so that its deliveries can still be shown.
    Removed {
        /// Since when.
        since: Timestamp,
    },
}

/// Why an endpoint was disabled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Disabled {
    /// By a person, with these words.
    ByHand(String),
    /// It answered 410.
    Gone,
    /// It asked for it in an answer.
    Asked,
    /// It has failed for days.
    Failing,
}

impl Disabled {
    /// One word for stores and JSON; the text of [`Disabled::ByHand`] is kept beside it.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::ByHand(_) => "by_hand",
            Self::Gone => "gone",
            Self::Asked => "asked",
            Self::Failing => "failing",
        }
    }

    /// Reads the word, with the text beside it.
    pub fn parse(word: &str, text: &str) -> Option<Self> {
        match word {
            "by_hand" => Some(Self::ByHand(text.to_owned())),
            "gone" => Some(Self::Gone),
            "asked" => Some(Self::Asked),
            "failing" => Some(Self::Failing),
            _ => None,
        }
    }
}

/// An endpoint that is to be added.
#[derive(Clone, PartialEq, Eq)]
pub struct NewEndpoint {
    /// Its name.
    pub id: EndpointId,
    /// Its rules.
    pub settings: EndpointSettings,
    /// Its secrets and headers; see [`Endpoint::sealed`].
    pub sealed: String,
}

impl fmt::Debug for NewEndpoint {
    /// Without what is sealed.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NewEndpoint")
            .field("id", &self.id)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// An endpoint as it is kept.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its name.
    pub id: EndpointId,
    /// The number of its line: its deliveries are claimed by it. Never given twice; queues and
    /// endpoints share the numbers.
    pub number: u32,
    /// Its rules.
    pub settings: EndpointSettings,
    /// Its signing secrets and the values of its headers, encrypted by whoever registers it and
    /// opened by whoever calls. To a store it is text.
    pub sealed: String,
    /// Whether anything is sent to it.
    pub state: EndpointState,
    /// How it fares.
    pub health: Health,
    /// Rises with every change of settings, sealed or state; a change names the one it has seen.
    pub version: u64,
    /// Since when it is there.
    pub created_at: Timestamp,
}

impl Endpoint {
    /// Whether events with this topic are owed to it now. Tenure's own topics are owed only to
    /// those who ask for them by name.
    ///
    /// ```
    /// # use tenure_core::webhook::{EndpointSettings, Endpoint};
    /// # use tenure_core::TopicPattern;
    /// let settings = EndpointSettings::new("https://example.com", vec![TopicPattern::any()]);
    /// assert!(settings.takes("order.paid") && !settings.takes("tenure.endpoint.disabled"));
    /// ```
    pub fn is_owed(&self, topic: &str) -> bool {
        self.state == EndpointState::Enabled && self.settings.takes(topic)
    }
}

impl EndpointSettings {
    /// The first segment of the topics of Tenure's own events.
    pub const OWN_TOPICS: &'static str = "tenure";

    /// Whether these rules take a topic.
    pub fn takes(&self, topic: &str) -> bool {
        let first = |text: &str| text.split('.').next() == Some(Self::OWN_TOPICS);
        let is_own = first(topic);
        let mut patterns = self.topics.iter();
        patterns.any(|pattern| pattern.matches(topic) && (!is_own || first(pattern.as_str())))
    }
}

impl fmt::Debug for EndpointSettings {
    /// Without the address and what people have written, which may have a secret in it.
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
    /// Without what is sealed, and without the address, which may have a secret in it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint")
            .field("id", &self.id)
            .field("number", &self.number)
            .field("state", &self.state)
            .field("version", &self.version)
            .finish_non_exhaustive()
    }
}

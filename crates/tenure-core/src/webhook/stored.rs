//! Settings of an endpoint as JSON, for stores and programs.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{EndpointSettings, OnGone, RateLimit, Schedule};
use crate::invalid::Invalid;
use crate::topic::TopicPattern;

#[derive(serde::Serialize, serde::Deserialize)]
struct Stored {
    url: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    description: String,
    topics: Vec<String>,
    timeout_ms: u64,
    concurrency: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rate: Option<RateLimit>,
    schedule_ms: Vec<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    no_retry: Vec<u16>,
    keep_when_gone: bool,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    metadata: BTreeMap<String, String>,
}

impl EndpointSettings {
    /// JSON for the store.
    ///
    /// ```
    /// use tenure_core::TopicPattern;
    /// use tenure_core::webhook::EndpointSettings;
    ///
    /// let rules = EndpointSettings::new("https://example.com", vec![TopicPattern::any()]);
    /// assert_eq!(EndpointSettings::from_json(&rules.to_json())?, rules);
    /// # Ok::<(), tenure_core::Invalid>(())
    /// ```
    pub fn to_json(&self) -> String {
        let millis = |length: Duration| u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
        let topics = self.topics.iter().map(ToString::to_string);
        let stored = Stored {
            url: self.url.clone(),
            description: self.description.clone(),
            topics: topics.collect(),
            timeout_ms: millis(self.timeout),
            concurrency: self.concurrency,
            rate: self.rate,
            schedule_ms: self.schedule.waits().iter().copied().map(millis).collect(),
            no_retry: self.no_retry.clone(),
            keep_when_gone: self.on_gone == OnGone::Keep,
            metadata: self.metadata.clone(),
        };
        serde_json::to_string(&stored).unwrap_or_default()
    }

    /// Parses the JSON of a store.
    ///
    /// # Errors
    /// The text is not the JSON of an endpoint, or a topic or the schedule is not valid.
    pub fn from_json(text: &str) -> Result<Self, Invalid> {
        let stored: Stored = serde_json::from_str(text).map_err(|error| {
            // Serde's error quotes the input, which may contain secrets; the position is enough.
            let found = format!("broken at column {}", error.column());
            Invalid::new(
                "the stored rules of an endpoint",
                found,
                "JSON of an endpoint",
            )
        })?;
        let topics = stored.topics.iter().map(|topic| TopicPattern::new(topic));
        let waits = stored.schedule_ms.into_iter().map(Duration::from_millis);
        Ok(Self {
            url: stored.url,
            description: stored.description,
            topics: topics.collect::<Result<_, _>>()?,
            timeout: Duration::from_millis(stored.timeout_ms),
            concurrency: stored.concurrency,
            rate: stored.rate,
            schedule: Schedule::new(waits.collect())?,
            no_retry: stored.no_retry,
            on_gone: if stored.keep_when_gone {
                OnGone::Keep
            } else {
                OnGone::Bury
            },
            metadata: stored.metadata,
        })
    }
}

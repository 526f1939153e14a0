//! Enqueued events, and assertions on them that list all events when they fail.

use std::fmt;

use tenure_core::Event;
use tenure_core::store::{Filter, StoreError};
use tenure_store::EnqueuedOn;

use crate::tenure::Tenure;

/// Events per page.
const PAGE: u32 = 1_000;

/// Enqueued events, oldest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnqueuedEvents(Vec<Event>);

/// Reads all events of the store, in any state. Use a store that belongs to this test alone.
///
/// # Errors
/// The store failed.
pub async fn enqueued(tenure: &Tenure) -> Result<EnqueuedEvents, StoreError> {
    let mut filter = Filter::default();
    let mut events = Vec::new();
    loop {
        let page = tenure.list(&filter, PAGE).await?;
        let records = page.records.into_iter();
        events.extend(records.filter_map(|record| record.content.event().cloned()));
        match page.next {
            Some(next) => filter.before = Some(next),
            None => break,
        }
    }
    events.reverse();
    Ok(EnqueuedEvents(events))
}

/// Reads the events enqueued on the caller's own connection, committed or not: a test can begin a
/// transaction, pass it to the program, check the events and roll back.
///
/// On PostgreSQL these are the events of the open transaction, on SQLite all that the connection
/// sees.
pub fn enqueued_on<'c, C>(tenure: &'c Tenure, connection: C) -> C::Answer<EnqueuedEvents>
where
    C: EnqueuedOn<'c>,
{
    connection.enqueued(tenure.opened())
}

impl From<Vec<Event>> for EnqueuedEvents {
    fn from(events: Vec<Event>) -> Self {
        Self(events)
    }
}

impl EnqueuedEvents {
    /// The events, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Event> {
        self.0.iter()
    }

    /// Asserts that an event matches.
    ///
    /// # Panics
    /// No event matches; the message lists all enqueued events.
    #[track_caller]
    pub fn assert_has(&self, expected: &Expected) {
        let is_there = self.0.iter().any(|event| expected.fits(event));
        assert!(is_there, "{expected} was not enqueued; {self}");
    }

    /// Asserts that no event matches.
    ///
    /// # Panics
    /// An event matches.
    #[track_caller]
    pub fn assert_lacks(&self, unexpected: &Expected) {
        let is_there = self.0.iter().any(|event| unexpected.fits(event));
        assert!(!is_there, "{unexpected} was enqueued; {self}");
    }

    /// Asserts that exactly `count` events match.
    ///
    /// # Panics
    /// Another number of events matches.
    #[track_caller]
    pub fn assert_count(&self, count: usize, expected: &Expected) {
        let found = self.0.iter().filter(|event| expected.fits(event)).count();
        assert!(
            found == count,
            "{expected} was enqueued {found} times, expected {count}; {self}"
        );
    }
}

impl fmt::Display for EnqueuedEvents {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("nothing was");
        }
        f.write_str("these were:")?;
        for event in &self.0 {
            let key = event
                .key()
                .map_or_else(String::new, |key| format!(" key {key:?}"));
            write!(f, "\n  {}{key} {}", event.topic(), event.payload())?;
        }
        Ok(())
    }
}

/// Description of an expected event, created by [`expect`].
#[derive(Clone, Debug)]
#[must_use = "it asserts nothing by itself"]
pub struct Expected {
    topic: String,
    key: Option<String>,
    payload: Option<serde_json::Value>,
}

/// Describes an event with this topic.
pub fn expect(topic: &str) -> Expected {
    Expected {
        topic: topic.to_owned(),
        key: None,
        payload: None,
    }
}

impl Expected {
    /// Requires this key.
    pub fn key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    /// Requires a payload that equals this value as JSON; the order of fields does not matter.
    ///
    /// # Panics
    /// The value cannot be serialised as JSON.
    pub fn json(mut self, payload: &impl serde::Serialize) -> Self {
        let payload = serde_json::to_value(payload);
        self.payload = Some(payload.expect("the expected payload can be written as JSON"));
        self
    }

    fn fits(&self, event: &Event) -> bool {
        let is_payload = self.payload.as_ref().is_none_or(|payload| {
            event
                .json::<serde_json::Value>()
                .is_ok_and(|found| found == *payload)
        });
        let is_key = self.key.is_none() || self.key.as_deref() == event.key();
        event.topic() == self.topic && is_key && is_payload
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "an event {}", self.topic)?;
        if let Some(key) = &self.key {
            write!(f, " with key {key:?}")?;
        }
        if let Some(payload) = &self.payload {
            write!(f, " with payload {payload}")?;
        }
        Ok(())
    }
}

//! Fan-out: every enabled endpoint that takes the topic of a done event gets a delivery. The
//! settle's transaction also writes the deliveries, so that no event is done without them.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, named_params};
use tenure_core::Timestamp;
use tenure_core::store::{Kind, Settle};
use tenure_core::webhook::EndpointSettings;

use super::holds::json;
use super::intake::{given, last_id, place};
use super::{row, statements as sql};

/// An enabled endpoint and its settings.
struct Subscription {
    number: u32,
    name: String,
    rules: EndpointSettings,
}

/// Events that a settle made done, with their topics, ordered by id, which is also the order within
/// their keys.
pub(super) struct FanOut<'a>(Vec<(i64, &'a str)>);

impl<'a> FanOut<'a> {
    /// Selects the events that the settle names for fan-out, among those that it made done.
    pub(super) fn of(ask: &'a Settle, done: Option<&Vec<i64>>) -> Self {
        let Some(done) = done.filter(|_| !ask.fan_out.is_empty()) else {
            return Self(Vec::new());
        };
        let done: HashSet<i64> = done.iter().copied().collect();
        let mut events: Vec<(i64, &str)> = ask
            .fan_out
            .iter()
            .filter(|(id, _)| !id.is_delivery() && done.contains(&id.number()))
            .map(|(id, topic)| (id.number(), topic.as_str()))
            .collect();
        events.sort_unstable();
        events.dedup_by_key(|(id, _)| *id);
        Self(events)
    }

    /// Writes the deliveries.
    pub(super) fn write(&self, connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
        if self.0.is_empty() {
            return Ok(());
        }
        let subscriptions = subscriptions(connection)?;
        if subscriptions.is_empty() {
            return Ok(());
        }
        let owed = self.pending_deliveries(&subscriptions);
        if owed.is_empty() {
            return Ok(());
        }
        let before = last_id(connection, Kind::Deliveries)?;
        let written = connection
            .prepare_cached(sql::FAN_OUT)?
            .execute(named_params! {
                ":owed": json(&owed),
                ":last": before,
                ":now": now.as_micros(),
            })?;
        if written == 0 {
            return Ok(());
        }
        let last = before + i64::try_from(written).unwrap_or_default();
        given(connection, Kind::Deliveries, last)?;
        place(connection, (before, last), true, now)
    }

    /// Returns event, endpoint number and endpoint name of each delivery, grouped by event.
    fn pending_deliveries<'b>(
        &self,
        subscriptions: &'b [Subscription],
    ) -> Vec<(i64, u32, &'b str)> {
        let mut takers: HashMap<&str, Vec<&Subscription>> = HashMap::new();
        let mut owed = Vec::new();
        for (id, topic) in &self.0 {
            let of_topic = takers.entry(topic).or_insert_with(|| {
                let all = subscriptions.iter();
                all.filter(|one| one.rules.takes(topic)).collect()
            });
            owed.extend(
                of_topic
                    .iter()
                    .map(|one| (*id, one.number, one.name.as_str())),
            );
        }
        owed
    }
}

/// Reads the enabled endpoints in this transaction.
fn subscriptions(connection: &Connection) -> rusqlite::Result<Vec<Subscription>> {
    connection
        .prepare_cached(sql::SUBSCRIPTIONS)?
        .query_map([], |found| {
            Ok(Subscription {
                number: found.get(0)?,
                name: found.get(1)?,
                rules: row::endpoint_settings(found, 2)?,
            })
        })?
        .collect()
}

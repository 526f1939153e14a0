//! Sources: the events that deliveries owe, each read once, however many endpoints it is owed to.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use rusqlite::{Connection, named_params};
use tenure_core::webhook::Delivery;
use tenure_core::{Content, Event, Item, ItemId, Record};

use super::holds::json;
use super::row::{self, Carried, Recorded, Waiting};
use super::statements as sql;

/// The events that some deliveries owe.
pub(super) struct Sources(HashMap<ItemId, Arc<Event>>);

impl Sources {
    /// Reads those of the deliveries among these.
    pub(super) fn of<'a>(
        connection: &Connection,
        all: impl Iterator<Item = &'a Carried>,
    ) -> rusqlite::Result<Self> {
        let source = |carried: &Carried| match carried {
            Carried::Event(_) => None,
            Carried::Owed { source, .. } => Some(source.number()),
        };
        let ids: BTreeSet<i64> = all.filter_map(source).collect();
        if ids.is_empty() {
            return Ok(Self(HashMap::new()));
        }
        let events = connection
            .prepare_cached(sql::SOURCES)?
            .query_map(named_params! {":ids": json(&ids)}, row::source)?
            .collect::<rusqlite::Result<_>>()?;
        Ok(Self(events))
    }

    /// What an item carries, whole. A delivery is never kept longer than its event.
    pub(super) fn content(&self, carried: Carried) -> rusqlite::Result<Content> {
        Ok(match carried {
            Carried::Event(event) => Content::Event(event),
            Carried::Owed {
                endpoint, source, ..
            } => Content::Delivery(Delivery {
                endpoint,
                source,
                event: self
                    .0
                    .get(&source)
                    .map(Arc::clone)
                    .ok_or(rusqlite::Error::QueryReturnedNoRows)?,
            }),
        })
    }
}

/// Claimed items with all that they carry.
pub(super) fn items(connection: &Connection, taken: Vec<Waiting>) -> rusqlite::Result<Vec<Item>> {
    let sources = Sources::of(connection, taken.iter().map(|item| &item.carried))?;
    let item = |waiting: Waiting| {
        Ok(Item {
            id: waiting.id,
            content: sources.content(waiting.carried)?,
            available_at: waiting.available_at,
            counters: waiting.counters,
        })
    };
    taken.into_iter().map(item).collect()
}

/// Records with all that they carry.
pub(super) fn records(
    connection: &Connection,
    found: Vec<Recorded>,
) -> rusqlite::Result<Vec<Record>> {
    let sources = Sources::of(connection, found.iter().map(|record| &record.carried))?;
    let mut records = Vec::with_capacity(found.len());
    for Recorded { carried, record } in found {
        let content = sources.content(carried)?;
        records.push(Record { content, ..record });
    }
    Ok(records)
}

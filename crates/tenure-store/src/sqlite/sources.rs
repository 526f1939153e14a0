//! Sources: the events of deliveries, each read once for all of its endpoints.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use rusqlite::{Connection, named_params};
use tenure_core::webhook::Delivery;
use tenure_core::{Content, Event, Item, ItemId, Record};

use super::holds::json;
use super::row::{self, Recorded, RowContent, Waiting};
use super::statements as sql;

/// The events of some deliveries.
pub(super) struct Sources(HashMap<ItemId, Arc<Event>>);

impl Sources {
    /// Reads the events of the deliveries among these items.
    pub(super) fn of<'a>(
        connection: &Connection,
        all: impl Iterator<Item = &'a RowContent>,
    ) -> rusqlite::Result<Self> {
        let source = |content: &RowContent| match content {
            RowContent::Event(_) => None,
            RowContent::Delivery { source, .. } => Some(source.number()),
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

    /// Returns the complete content of an item. A delivery is never kept longer than its event.
    pub(super) fn content(&self, content: RowContent) -> rusqlite::Result<Content> {
        Ok(match content {
            RowContent::Event(event) => Content::Event(event),
            RowContent::Delivery {
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

/// Completes claimed items with their content.
pub(super) fn items(connection: &Connection, taken: Vec<Waiting>) -> rusqlite::Result<Vec<Item>> {
    let sources = Sources::of(connection, taken.iter().map(|item| &item.content))?;
    let item = |waiting: Waiting| {
        Ok(Item {
            id: waiting.id,
            content: sources.content(waiting.content)?,
            available_at: waiting.available_at,
            counters: waiting.counters,
        })
    };
    taken.into_iter().map(item).collect()
}

/// Completes records with their content.
pub(super) fn records(
    connection: &Connection,
    found: Vec<Recorded>,
) -> rusqlite::Result<Vec<Record>> {
    let sources = Sources::of(connection, found.iter().map(|record| &record.content))?;
    let mut records = Vec::with_capacity(found.len());
    for Recorded { content, record } in found {
        let content = sources.content(content)?;
        records.push(Record { content, ..record });
    }
    Ok(records)
}

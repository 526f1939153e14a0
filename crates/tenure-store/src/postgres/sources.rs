//! Contents of items: an event comes from its own row; the events of deliveries are fetched once
//! for all of them.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sqlx::postgres::PgRow;
use tenure_core::store::StoreError;
use tenure_core::webhook::Delivery;
use tenure_core::{Content, Encoding, Event, ItemId, StoredEvent};

use super::PostgresStore;
use super::directory::Directory;
use super::error::store_error;
use super::row::get;
use crate::headers::read_headers;
use crate::lane::{Lane, priority, queue_of};

/// Data for reading item contents: the queue names, and the source events of deliveries.
#[derive(Debug)]
pub(crate) struct Events {
    directory: Directory,
    sources: HashMap<i64, Arc<Event>>,
}

impl PostgresStore {
    /// Fetches the data for reading these rows of a claim, whose columns begin at `first`.
    pub(crate) async fn events_of(
        &self,
        verb: &'static str,
        rows: &[PgRow],
        first: usize,
    ) -> Result<Events, StoreError> {
        let read = |row: &PgRow| {
            let lane = get::<Option<Lane>>(row, first + 9)?;
            Ok(lane.zip(Some(get::<Option<i64>>(row, first + 19)?)))
        };
        let facts = rows.iter().filter_map(|row| read(row).transpose());
        let facts = facts.collect::<Result<Vec<_>, _>>();
        self.events_for(verb, &facts.map_err(|error| store_error(verb, error))?)
            .await
    }

    /// Fetches the data for reading items with these lanes and source events.
    pub(crate) async fn events_for(
        &self,
        verb: &'static str,
        facts: &[(Lane, Option<i64>)],
    ) -> Result<Events, StoreError> {
        let ids: BTreeSet<i64> = facts.iter().filter_map(|(_, source)| *source).collect();
        let rows = if ids.is_empty() {
            Vec::new()
        } else {
            let ids: Vec<i64> = ids.into_iter().collect();
            let query = self.webhook().sources.query().bind(ids);
            self.fetch(verb, query).await?
        };
        let own = facts.iter().filter(|(_, source)| source.is_none());
        let own = own.map(|(lane, _)| *lane);
        let owed = rows.iter().filter_map(|row| get::<Lane>(row, 4).ok());
        let directory = self.directory_for(verb, own.chain(owed)).await?;
        let mut events = Events {
            directory,
            sources: HashMap::new(),
        };
        for row in &rows {
            let source = get(row, 0).and_then(|id| Ok((id, events.event(row, 1)?)));
            let (id, event) = source.map_err(|error| store_error(verb, error))?;
            events.sources.insert(id, Arc::new(event));
        }
        Ok(events)
    }
}

impl Events {
    /// Reads the content of an item: event id, topic, ordering key, lane, payload, headers and
    /// encoding, from column `first` on.
    pub(crate) fn content(
        &self,
        row: &PgRow,
        first: usize,
        source: Option<i64>,
    ) -> Result<Content, sqlx::Error> {
        let Some(source) = source else {
            return Ok(Content::Event(self.event(row, first)?));
        };
        // Prune keeps an event while it has deliveries.
        let event = self.sources.get(&source).ok_or(sqlx::Error::RowNotFound)?;
        Ok(Content::Delivery(Delivery {
            endpoint: queue_of(get(row, first + 3)?).unsigned_abs(),
            source: ItemId::new(source),
            event: Arc::clone(event),
        }))
    }

    fn event(&self, row: &PgRow, first: usize) -> Result<Event, sqlx::Error> {
        let lane: Lane = get(row, first + 3)?;
        Ok(Event::from(StoredEvent {
            event_id: get(row, first)?,
            topic: get(row, first + 1)?,
            ordering_key: get(row, first + 2)?,
            queue: self.directory.name(lane).cloned().unwrap_or_default(),
            priority: priority(lane),
            payload: get(row, first + 4)?,
            headers: read_headers(get(row, first + 5)?),
            encoding: get::<Option<&str>>(row, first + 6)?.and_then(Encoding::parse),
        }))
    }
}

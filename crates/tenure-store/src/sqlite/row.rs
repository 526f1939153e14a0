//! Converts database rows to core types.

use std::sync::Arc;

use rusqlite::Row;
use rusqlite::types::{FromSqlError, Type};
use tenure_core::store::Queue;
use tenure_core::webhook::EndpointSettings;
use tenure_core::{
    Content, Counters, DomainName, Encoding, Event, Fence, Hold, ItemId, OutcomeKind, PastHold,
    QueueName, Record, State, StoredEvent, Timestamp, Token, WorkerId,
};
use uuid::Uuid;

use crate::headers::read_headers;
use crate::lane::{Lane, priority, queue_of};
use crate::queue_rules::StoredRules;

/// The content of an item, as its row has it.
pub(super) enum RowContent {
    /// A complete event.
    Event(Event),
    /// A delivery; its event is in another row.
    Delivery {
        /// The number of the endpoint.
        endpoint: u32,
        source: ItemId,
        /// The ordering key.
        key: Option<String>,
    },
}

/// A claimable item: the columns of the statement `due` in `claim.sql`.
pub(super) struct Waiting {
    pub(super) id: ItemId,
    pub(super) content: RowContent,
    pub(super) available_at: Timestamp,
    pub(super) counters: Counters,
}

impl Waiting {
    /// Reads an item; `queue` is the queue of its lane, if the lane belongs to one.
    pub(super) fn read(row: &Row<'_>, queue: Option<&QueueName>) -> rusqlite::Result<Self> {
        Ok(Self {
            id: id(row, 0)?,
            content: content(row, || {
                queue
                    .cloned()
                    .ok_or_else(|| unreadable(2, FromSqlError::InvalidType))
            })?,
            available_at: moment(row, 1)?,
            counters: counters(row)?,
        })
    }

    pub(super) fn key(&self) -> Option<&str> {
        match &self.content {
            RowContent::Event(event) => event.key(),
            RowContent::Delivery { key, .. } => key.as_deref(),
        }
    }
}

/// A record whose content is not complete yet.
pub(super) struct Recorded {
    pub(super) content: RowContent,
    pub(super) record: Record,
}

impl Recorded {
    /// Reads the columns of `find.sql`; the first are those of an item.
    pub(super) fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        let record = Record {
            id: id(row, 0)?,
            state: word(row, 16, State::parse)?,
            // Placeholder, replaced by `Sources`.
            content: Content::Row(String::new()),
            counters: counters(row)?,
            created_at: moment(row, 15)?,
            available_at: Some(moment(row, 1)?),
            hold: hold(row)?,
            last_error: row.get(17)?,
            done_at: past(row, 22)?,
            dead_at: past(row, 23)?,
            dead_reason: row.get(24)?,
        };
        let content = content(row, || queue_name(row, 14))?;
        Ok(Self { content, record })
    }
}

/// Reads the event of a delivery: the columns of `sources.sql`.
pub(super) fn source(row: &Row<'_>) -> rusqlite::Result<(ItemId, Arc<Event>)> {
    let queue = queue_name(row, 9)?;
    Ok((id(row, 0)?, Arc::new(event(row, queue)?)))
}

fn content(
    row: &Row<'_>,
    queue: impl FnOnce() -> rusqlite::Result<QueueName>,
) -> rusqlite::Result<RowContent> {
    let source: Option<i64> = row.get(13)?;
    let Some(source) = source else {
        return Ok(RowContent::Event(event(row, queue()?)?));
    };
    let lane: Lane = row.get(2)?;
    Ok(RowContent::Delivery {
        endpoint: queue_of(lane).unsigned_abs(),
        source: ItemId::new(source),
        key: row.get(5)?,
    })
}

/// Reads the settings of an endpoint.
pub(super) fn endpoint_settings(
    row: &Row<'_>,
    column: usize,
) -> rusqlite::Result<EndpointSettings> {
    let stored = row.get_ref(column)?.as_str()?;
    EndpointSettings::from_json(stored).map_err(|cause| unreadable(column, cause))
}

/// Reads a line of the journal: the columns of `timeline.sql`.
pub(super) fn ended_hold(row: &Row<'_>) -> rusqlite::Result<PastHold> {
    let word: String = row.get(2)?;
    Ok(PastHold {
        holder: row.get(0)?,
        fence: Fence::new(row.get(1)?),
        outcome: OutcomeKind::parse(&word)
            .ok_or_else(|| unreadable(2, FromSqlError::InvalidType))?,
        claimed_at: moment(row, 3)?,
        settled_at: moment(row, 4)?,
    })
}

pub(super) fn id(row: &Row<'_>, column: usize) -> rusqlite::Result<ItemId> {
    row.get(column).map(ItemId::new)
}

pub(super) fn moment(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    row.get(column).map(Timestamp::from_micros)
}

/// Reads a number of items; it is never negative.
pub(super) fn count(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number: i64 = row.get(column)?;
    Ok(u64::try_from(number).unwrap_or(0))
}

pub(super) fn past(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let micros: Option<i64> = row.get(column)?;
    Ok(micros.map(Timestamp::from_micros))
}

fn event(row: &Row<'_>, queue: QueueName) -> rusqlite::Result<Event> {
    let lane: Lane = row.get(2)?;
    let encoding: Option<String> = row.get(6)?;
    let headers: Option<String> = row.get(7)?;
    let stored = StoredEvent {
        topic: row.get(4)?,
        payload: row.get(8)?,
        encoding: encoding.as_deref().and_then(Encoding::parse),
        event_id: Uuid::from_bytes(row.get(3)?),
        queue,
        priority: priority(lane),
        ordering_key: row.get(5)?,
        headers: read_headers(headers.as_deref()),
    };
    Ok(stored.into())
}

fn counters(row: &Row<'_>) -> rusqlite::Result<Counters> {
    Ok(Counters {
        generation: row.get(9)?,
        attempts: row.get(10)?,
        failures: row.get(11)?,
        crashes: row.get(12)?,
    })
}

fn hold(row: &Row<'_>) -> rusqlite::Result<Option<Hold>> {
    let holder: Option<String> = row.get(18)?;
    let Some(holder) = holder else {
        return Ok(None);
    };
    Ok(Some(Hold {
        holder,
        fence: Fence::new(row.get(19)?),
        claimed_at: moment(row, 20)?,
        until: moment(row, 21)?,
    }))
}

pub(super) fn unreadable(
    column: usize,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(cause))
}

/// Reads a queue: the columns of `queues.sql`.
pub(super) fn queue(row: &Row<'_>) -> rusqlite::Result<Queue> {
    let stored = StoredRules {
        term_ms: row.get(1)?,
        max_retries: row.get(3)?,
        retry_base_ms: row.get(4)?,
        retry_cap_ms: row.get(5)?,
    };
    Ok(Queue {
        name: queue_name(row, 0)?,
        rules: stored.rules(),
        paused: row.get(2)?,
    })
}

pub(super) fn worker_id(row: &Row<'_>, column: usize) -> rusqlite::Result<WorkerId> {
    let stored = row.get_ref(column)?.as_str()?;
    WorkerId::parse(stored).ok_or_else(|| unreadable(column, FromSqlError::InvalidType))
}

pub(super) fn token(row: &Row<'_>, column: usize) -> rusqlite::Result<Token> {
    let stored = row.get_ref(column)?.as_str()?;
    Token::parse(stored).ok_or_else(|| unreadable(column, FromSqlError::InvalidType))
}

pub(super) fn domain(row: &Row<'_>, column: usize) -> rusqlite::Result<DomainName> {
    let name = row.get_ref(column)?.as_str()?;
    DomainName::new(name).map_err(|cause| unreadable(column, cause))
}

/// Parses a stored name with `parse`.
pub(super) fn word<T>(
    row: &Row<'_>,
    column: usize,
    parse: impl Fn(&str) -> Option<T>,
) -> rusqlite::Result<T> {
    let word = row.get_ref(column)?.as_str()?;
    parse(word).ok_or_else(|| unreadable(column, FromSqlError::InvalidType))
}

pub(super) fn queue_name(row: &Row<'_>, column: usize) -> rusqlite::Result<QueueName> {
    let name = row.get_ref(column)?.as_str()?;
    QueueName::new(name).map_err(|cause| unreadable(column, cause))
}

//! From rows of the database to the words of the core.

use std::time::Duration;

use rusqlite::Row;
use rusqlite::types::{FromSqlError, Type};
use tenure_core::store::Queue;
use tenure_core::{
    Content, Counters, DomainName, Encoding, EndedHold, Event, Fence, Hold, Item, ItemId,
    QueueName, Record, State, StoredEvent, Term, Timestamp, Token, Word, WorkerId,
};
use uuid::Uuid;

use crate::headers::read_headers;
use crate::lane::{Lane, priority};

/// A claimed item: the columns of `claim.sql`, statement due.
pub(super) fn item(row: &Row<'_>, queue: QueueName) -> rusqlite::Result<Item> {
    Ok(Item {
        id: id(row, 0)?,
        content: Content::Event(event(row, queue)?),
        available_at: moment(row, 1)?,
        counters: counters(row)?,
    })
}

/// A record: the columns of `find.sql`, of which the first are those of an item.
pub(super) fn record(row: &Row<'_>) -> rusqlite::Result<Record> {
    let queue = queue_name(row, 13)?;
    let word: String = row.get(15)?;
    let state = State::parse(&word);
    Ok(Record {
        id: id(row, 0)?,
        state: state.ok_or_else(|| unreadable(15, FromSqlError::InvalidType))?,
        content: Content::Event(event(row, queue)?),
        counters: counters(row)?,
        created_at: moment(row, 14)?,
        available_at: Some(moment(row, 1)?),
        hold: hold(row)?,
        last_error: row.get(16)?,
        done_at: past(row, 21)?,
        dead_at: past(row, 22)?,
        dead_reason: row.get(23)?,
    })
}

/// A line of the journal: the columns of `timeline.sql`.
pub(super) fn ended_hold(row: &Row<'_>) -> rusqlite::Result<EndedHold> {
    let word: String = row.get(2)?;
    Ok(EndedHold {
        holder: row.get(0)?,
        fence: Fence::new(row.get(1)?),
        word: Word::parse(&word).ok_or_else(|| unreadable(2, FromSqlError::InvalidType))?,
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

/// A number of items; it is never below zero.
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
    let holder: Option<String> = row.get(17)?;
    let Some(holder) = holder else {
        return Ok(None);
    };
    Ok(Some(Hold {
        holder,
        fence: Fence::new(row.get(18)?),
        claimed_at: moment(row, 19)?,
        until: moment(row, 20)?,
    }))
}

fn unreadable(
    column: usize,
    cause: impl std::error::Error + Send + Sync + 'static,
) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, Box::new(cause))
}

/// A queue: the columns of `queues.sql`.
pub(super) fn queue(row: &Row<'_>) -> rusqlite::Result<Queue> {
    let millis: Option<u32> = row.get(1)?;
    Ok(Queue {
        name: queue_name(row, 0)?,
        term: millis
            .map(|length| Term::new(Duration::from_millis(length.into())))
            .transpose()
            .map_err(|cause| unreadable(1, cause))?,
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

/// A stored word, read by `parse`.
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

//! Enqueue: all of the events or none, in the caller's transaction or its own.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _, ToSql, named_params};
use tenure_core::store::{Answer, Enqueued, Intake, Kind, StoreError};
use tenure_core::{Encoding, Event, ItemId, Priority, QueueName, StoredEvent, Timestamp};
use uuid::Uuid;

use super::error::failed;
use super::holds::json;
use super::{SqliteStore, moment_of, row, statements as sql};
use crate::enqueue_statement::{self, EnqueueStatement};
use crate::headers::{read_headers, stored_headers};
use crate::lane::{Lane, lane};
use crate::memory::SystemClock;
use crate::messages::unknown_queue;

const VERB: &str = "enqueue";

impl Intake for SqliteStore {
    fn enqueue<'a>(&'a self, events: &'a [Event]) -> Answer<'a, Vec<Enqueued>> {
        let events = events.to_vec();
        Box::pin(self.write(VERB, None, move |connection, now| {
            enqueue(connection, &events, now)
        }))
    }
}

impl SqliteStore {
    /// Returns the enqueue of one event as a statement, for the caller's own driver.
    ///
    /// # Errors
    /// The event has a dedupe key.
    pub fn enqueue_statement(event: &Event) -> Result<EnqueueStatement, StoreError> {
        enqueue_statement::sqlite(sql::ENQUEUE_CALL, event)
    }

    /// Returns the texts of two statements: the enqueue, and the query for the id of the last
    /// event, which is the new one in the same transaction.
    pub fn enqueue_texts() -> (&'static str, &'static str) {
        (sql::ENQUEUE_CALL, sql::ENQUEUE_CALL_ID)
    }

    /// Returns the events that a connection sees, oldest first, including those of its open
    /// transaction.
    ///
    /// # Errors
    /// The file has no tables of Tenure, or cannot be read.
    pub fn written_on(connection: &Connection) -> Result<Vec<Event>, StoreError> {
        let read = || -> rusqlite::Result<Vec<Event>> {
            let mut statement = connection.prepare_cached(sql::WRITTEN_HERE)?;
            statement.query_map([], written)?.collect()
        };
        read().map_err(failed("enqueued"))
    }

    /// Writes events on the caller's own connection: they exist if and only if the caller's
    /// transaction commits. Without an open transaction, the store runs its own.
    ///
    /// The file must have been opened as a store before. SQLite may refuse a transaction as busy if
    /// it reads before its first write: begin it with `begin immediate`.
    ///
    /// # Errors
    /// A queue is unknown, or the file has no tables of Tenure. The caller's transaction stays open
    /// and contains none of the events.
    pub fn enqueue_on(
        connection: &Connection,
        events: &[Event],
    ) -> Result<Vec<Enqueued>, StoreError> {
        let (begin, commit, undo) = if connection.is_autocommit() {
            ("begin immediate", "commit", "rollback")
        } else {
            (
                "savepoint tenure_enqueue",
                "release tenure_enqueue",
                "rollback to tenure_enqueue; release tenure_enqueue",
            )
        };
        let run = |statements| connection.execute_batch(statements).map_err(failed(VERB));
        run(begin)?;
        let written = enqueue(connection, events, moment_of(&SystemClock, None))
            .and_then(|answers| run(commit).map(|()| answers));
        if written.is_err() {
            // Report the first error; a failed rollback adds nothing to it.
            drop(run(undo));
        }
        written
    }
}

fn written(row: &rusqlite::Row<'_>) -> rusqlite::Result<Event> {
    let queue: Option<String> = row.get(3)?;
    let level: u8 = row.get(4)?;
    let headers: Option<String> = row.get(6)?;
    let encoding: Option<String> = row.get(7)?;
    Ok(Event::from(StoredEvent {
        event_id: Uuid::from_bytes(row.get(0)?),
        topic: row.get(1)?,
        ordering_key: row.get(2)?,
        queue: queue
            .and_then(|name| QueueName::new(&name).ok())
            .unwrap_or_default(),
        priority: Priority::new(level).unwrap_or_default(),
        payload: row.get(5)?,
        headers: read_headers(headers.as_deref()),
        encoding: encoding.as_deref().and_then(Encoding::parse),
    }))
}

fn enqueue(
    connection: &Connection,
    events: &[Event],
    now: Timestamp,
) -> Result<Vec<Enqueued>, StoreError> {
    let mut numbers = HashMap::new();
    // Check all events before writing the first.
    let lanes = events
        .iter()
        .map(|event| lane_of(connection, event, &mut numbers))
        .collect::<Result<Vec<Lane>, StoreError>>()?;
    write(connection, events, &lanes, now).map_err(failed(VERB))
}

/// Returns the lane of an event, or an error if its queue is unknown. `numbers` has those of the
/// events before it.
fn lane_of<'a>(
    connection: &Connection,
    event: &'a Event,
    numbers: &mut HashMap<(&'a QueueName, &'a str), i32>,
) -> Result<Lane, StoreError> {
    let (queue, topic) = (event.queue(), event.topic());
    let number = match numbers.get(&(queue, topic)) {
        Some(number) => Some(*number),
        None => number_for(connection, queue, topic).map_err(failed(VERB))?,
    };
    let number = number.ok_or_else(|| unknown_queue(VERB, queue))?;
    numbers.insert((queue, topic), number);
    Ok(lane(number, event.priority()))
}

/// Returns the number for events of this topic: that of the topic if it is separate, or of the
/// queue.
pub(super) fn number_for(
    connection: &Connection,
    queue: &QueueName,
    topic: &str,
) -> rusqlite::Result<Option<i32>> {
    let ask = named_params! {":queue": queue.as_str(), ":topic": topic};
    connection
        .prepare_cached(sql::ENQUEUE_NUMBER)?
        .query_row(ask, |row| row.get(0))
        .optional()
}

/// Writes events and their rows in ready or the backlog, except those whose dedupe key exists.
fn write(
    connection: &Connection,
    events: &[Event],
    lanes: &[Lane],
    now: Timestamp,
) -> rusqlite::Result<Vec<Enqueued>> {
    let keys: Vec<&str> = events.iter().filter_map(Event::dedupe).collect();
    let mut winners = there(connection, &keys)?;
    let before = last_id(connection, Kind::Events)?;
    let mut last = before;
    let mut won: Vec<(&str, i64)> = Vec::new();
    let mut answers = Vec::with_capacity(events.len());
    for (event, lane) in events.iter().zip(lanes) {
        if let Some(id) = event.dedupe().and_then(|key| winners.get(key)) {
            answers.push(Enqueued::Existed { id: *id });
            continue;
        }
        last += 1;
        let answer = write_event(connection, (last, event), *lane, now)?;
        if let Some(key) = event.dedupe() {
            winners.insert(key.to_owned(), answer.id());
            won.push((key, answer.id().number()));
        }
        answers.push(answer);
    }
    let has_keys = events.iter().any(|event| event.key().is_some());
    if last > before {
        given(connection, Kind::Events, last)?;
    }
    place(connection, (before, last), has_keys, now)?;
    if !won.is_empty() {
        connection
            .prepare_cached(sql::ENQUEUE_UNIQUE_WON)?
            .execute(named_params! {":won": json(&won)})?;
    }
    Ok(answers)
}

/// Returns the existing dedupe keys among these, with their items.
fn there(connection: &Connection, keys: &[&str]) -> rusqlite::Result<HashMap<String, ItemId>> {
    if keys.is_empty() {
        return Ok(HashMap::new());
    }
    connection
        .prepare_cached(sql::ENQUEUE_UNIQUE_THERE)?
        .query_map(named_params! {":keys": json(keys)}, |found| {
            Ok((found.get(0)?, row::id(found, 1)?))
        })?
        .collect()
}

fn write_event(
    connection: &Connection,
    (id, event): (i64, &Event),
    lane: Lane,
    now: Timestamp,
) -> rusqlite::Result<Enqueued> {
    let event_id = event.event_id().unwrap_or_else(Uuid::now_v7);
    connection
        .prepare_cached(sql::ENQUEUE_EVENT)?
        .execute(named_params! {
            ":id": id,
            ":lane": lane,
            ":now": now.as_micros(),
            ":available_at": now.after(event.delay()).as_micros(),
            ":event_id": event_id.as_bytes(),
            ":topic": event.topic(),
            ":ordering_key": event.key(),
            ":encoding": event.encoding().map(Encoding::as_str),
            ":headers": stored_headers(event),
            ":payload": event.payload(),
        })?;
    let id = ItemId::new(id);
    Ok(Enqueued::Fresh { id, event_id })
}

/// Returns the kind of an item, which its id shows.
pub(super) fn kind_of(id: i64) -> Kind {
    if ItemId::new(id).is_delivery() {
        Kind::Deliveries
    } else {
        Kind::Events
    }
}

/// The name of the kind in `tenure_ids`.
pub(super) fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Events => "event",
        Kind::Deliveries => "delivery",
    }
}

/// Returns the last id assigned to an item of this kind.
pub(super) fn last_id(connection: &Connection, kind: Kind) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(sql::ENQUEUE_LAST)?
        .query_row(named_params! {":kind": kind_word(kind)}, |row| row.get(0))
}

/// Records that ids up to this one are assigned.
pub(super) fn given(connection: &Connection, kind: Kind, last: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(sql::ENQUEUE_GIVEN)?
        .execute(named_params! {":kind": kind_word(kind), ":last": last})?;
    Ok(())
}

/// Puts the new items, with the ids after `before` up to `last`, into ready or the backlog. Their
/// ids are consecutive: there is only one writer.
pub(super) fn place(
    connection: &Connection,
    (before, last): (i64, i64),
    has_keys: bool,
    now: Timestamp,
) -> rusqlite::Result<()> {
    if before == last {
        return Ok(());
    }
    let first = before + 1;
    let change = |text: &str, ask: &[(&str, &dyn ToSql)]| {
        let mut statement = connection.prepare_cached(text)?;
        statement.execute(ask).map(drop)
    };
    if has_keys {
        let ask = named_params! {":first": first, ":last": last, ":now": now.as_micros()};
        change(sql::ENQUEUE_HEADS, ask)?;
    }
    change(
        sql::ENQUEUE_READY,
        named_params! {":first": first, ":last": last},
    )?;
    if has_keys {
        let ask = named_params! {":first": first, ":last": last};
        change(sql::ENQUEUE_BEHIND, ask)?;
    }
    Ok(())
}

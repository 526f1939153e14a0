//! Enqueue: all of the events or none, in the caller's transaction or one of its own.

use std::collections::HashMap;

use rusqlite::{Connection, ToSql, named_params};
use tenure_core::store::{Answer, Enqueued, Intake, Kind, StoreError};
use tenure_core::{Encoding, Event, ItemId, Timestamp};
use uuid::Uuid;

use super::error::failed;
use super::holds::json;
use super::{SqliteStore, moment_of, row, statements as sql};
use crate::complaint::unknown_queue;
use crate::headers::stored_headers;
use crate::lane::{Lane, lane};
use crate::memory::SystemClock;

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
    /// Writes events on the caller's own connection: they exist if and only if the caller's
    /// transaction commits. Without a transaction it makes one of its own.
    ///
    /// The file must have been opened as a store before. A transaction that has only read so far
    /// may be refused as busy when it comes to write: begin it with `begin immediate`.
    ///
    /// # Errors
    /// A queue is unknown, or the file has no tables of Tenure. The caller's transaction stands,
    /// and none of the events is in it.
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
            // What went wrong is told; that it cannot even be undone says no more.
            drop(run(undo));
        }
        written
    }
}

fn enqueue(
    connection: &Connection,
    events: &[Event],
    now: Timestamp,
) -> Result<Vec<Enqueued>, StoreError> {
    let queues = queues(connection).map_err(failed(VERB))?;
    // All are checked before the first is written.
    let lanes = events
        .iter()
        .map(|event| lane_of(event, &queues))
        .collect::<Result<Vec<Lane>, StoreError>>()?;
    write(connection, events, &lanes, now).map_err(failed(VERB))
}

fn queues(connection: &Connection) -> rusqlite::Result<HashMap<String, i32>> {
    connection
        .prepare_cached(sql::ENQUEUE_QUEUES)?
        .query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect()
}

/// The lane of an event, if the event can be taken.
fn lane_of(event: &Event, queues: &HashMap<String, i32>) -> Result<Lane, StoreError> {
    let queue = event.queue_name();
    match queues.get(queue.as_str()) {
        Some(number) => Ok(lane(*number, event.urgency())),
        None => Err(unknown_queue(VERB, queue)),
    }
}

/// Writes events and their places in the queue, but those whose dedupe key is there already.
fn write(
    connection: &Connection,
    events: &[Event],
    lanes: &[Lane],
    now: Timestamp,
) -> rusqlite::Result<Vec<Enqueued>> {
    let keys: Vec<&str> = events.iter().filter_map(Event::dedupe_key).collect();
    let mut winners = there(connection, &keys)?;
    let before = last_id(connection, Kind::Events)?;
    let mut last = before;
    let mut won: Vec<(&str, i64)> = Vec::new();
    let mut answers = Vec::with_capacity(events.len());
    for (event, lane) in events.iter().zip(lanes) {
        if let Some(id) = event.dedupe_key().and_then(|key| winners.get(key)) {
            answers.push(Enqueued::Existed { id: *id });
            continue;
        }
        last += 1;
        let answer = write_event(connection, (last, event), *lane, now)?;
        if let Some(key) = event.dedupe_key() {
            winners.insert(key.to_owned(), answer.id());
            won.push((key, answer.id().number()));
        }
        answers.push(answer);
    }
    let has_keys = events.iter().any(|event| event.ordering_key().is_some());
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

/// Which of these dedupe keys are there, and whose they are.
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
            ":available_at": now.after(event.held_back()).as_micros(),
            ":event_id": event_id.as_bytes(),
            ":topic": event.topic(),
            ":ordering_key": event.ordering_key(),
            ":encoding": event.encoding().map(Encoding::as_str),
            ":headers": stored_headers(event),
            ":payload": event.payload(),
        })?;
    let id = ItemId::new(id);
    Ok(Enqueued::Fresh { id, event_id })
}

/// What an item is, by its id.
pub(super) fn kind_of(id: i64) -> Kind {
    if ItemId::new(id).is_delivery() {
        Kind::Deliveries
    } else {
        Kind::Events
    }
}

/// The word for it in `tenure_ids`.
pub(super) fn kind_word(kind: Kind) -> &'static str {
    match kind {
        Kind::Events => "event",
        Kind::Deliveries => "delivery",
    }
}

/// The last id that was given to an item of this kind.
pub(super) fn last_id(connection: &Connection, kind: Kind) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(sql::ENQUEUE_LAST)?
        .query_row(named_params! {":kind": kind_word(kind)}, |row| row.get(0))
}

/// Notes that ids up to this one were given.
pub(super) fn given(connection: &Connection, kind: Kind, last: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(sql::ENQUEUE_GIVEN)?
        .execute(named_params! {":kind": kind_word(kind), ":last": last})?;
    Ok(())
}

/// Gives fresh items their places: those behind `before`, up to `last`. Their ids follow each
/// other: nobody else writes meanwhile.
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

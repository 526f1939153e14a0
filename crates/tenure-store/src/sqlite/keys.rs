//! The ordering keys of the outbox.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, Row, named_params};
use tenure_core::store::{
    Answer, Bury, KeyFacts, KeyFilter, KeyRecord, Keys, Pause, Skip, StoreError,
};
use tenure_core::{Guarded, ItemId, Record, Refusal, Timestamp};

use super::bury::{bury, leave_ready};
use super::error::failed;
use super::holds::put_behind;
use super::operate::find;
use super::turns::Turns;
use super::{SqliteStore, row, statements as sql};
use crate::error_text::{CHARACTERS_MAX, error_text};
use crate::page::page_limit;

impl Keys for SqliteStore {
    fn keys(&self, filter: KeyFilter, limit: u32) -> Answer<'_, Vec<KeyRecord>> {
        let now = self.moment(None);
        Box::pin(self.writer.read("keys", move |connection| {
            list(connection, filter, limit, now)
                .and_then(|standings| records(connection, standings, now))
                .map_err(failed("keys"))
        }))
    }

    fn blocked_keys<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> Answer<'a, Vec<(String, ItemId)>> {
        let after = after.unwrap_or_default().to_owned();
        Box::pin(self.writer.read("blocked keys", move |connection| {
            let ask = named_params! {":after": after, ":limit": page_limit(limit)};
            let read = |found: &Row<'_>| Ok((found.get(0)?, ItemId::new(found.get(1)?)));
            let keys = connection
                .prepare_cached(sql::BLOCKED_KEYS)
                .and_then(|mut statement| statement.query_map(ask, read)?.collect());
            keys.map_err(failed("blocked keys"))
        }))
    }

    fn key<'a>(&'a self, key: &'a str) -> Answer<'a, Option<KeyRecord>> {
        let (now, key) = (self.moment(None), key.to_owned());
        Box::pin(self.writer.read("key", move |connection| {
            let found = key_row(connection, &key)
                .and_then(|standing| records(connection, standing.into_iter().collect(), now));
            Ok(found.map_err(failed("key"))?.pop())
        }))
    }

    fn pause_key<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        let key = key.to_owned();
        Box::pin(
            self.write("pause key", None, move |connection, now| match pause {
                Pause::Begin => hold_back(connection, &key, now).map_err(failed("pause key")),
                Pause::End => resume(connection, key, now).map_err(failed("resume key")),
            }),
        )
    }

    fn skip<'a>(&'a self, ask: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        let (now, ask) = (ask.now, ask.clone());
        Box::pin(self.write("skip", now, move |connection, now| {
            skip(connection, &ask, now)
        }))
    }
}

/// A stored key: its facts, and the id of its head.
struct KeyRow {
    facts: KeyFacts,
    head: Option<ItemId>,
}

impl KeyRow {
    /// Reads the columns of `keys.sql`.
    fn read(found: &Row<'_>) -> rusqlite::Result<Self> {
        let head: Option<i64> = found.get(1)?;
        Ok(Self {
            facts: KeyFacts {
                name: found.get(0)?,
                since: Some(row::moment(found, 2)?),
                head: None,
                is_blocked: found.get(3)?,
                is_paused: found.get(4)?,
                waiting: row::count(found, 5)?,
            },
            head: head.map(ItemId::new),
        })
    }
}

fn list(
    connection: &Connection,
    filter: KeyFilter,
    limit: u32,
    now: Timestamp,
) -> rusqlite::Result<Vec<KeyRow>> {
    let ask = named_params! {
        ":stuck": filter == KeyFilter::Stuck,
        ":limit": page_limit(limit),
        ":long": now.before(KeyFilter::LONG).as_micros(),
        ":most": i64::try_from(KeyRecord::WAITING_MAX).unwrap_or(i64::MAX),
    };
    connection
        .prepare_cached(sql::KEYS)?
        .query_map(ask, KeyRow::read)?
        .collect()
}

fn key_row(connection: &Connection, key: &str) -> rusqlite::Result<Option<KeyRow>> {
    let ask = named_params! {
        ":key": key,
        ":most": i64::try_from(KeyRecord::WAITING_MAX).unwrap_or(i64::MAX),
    };
    connection
        .prepare_cached(sql::KEYS_ONE)?
        .query_row(ask, KeyRow::read)
        .optional()
}

fn records(
    connection: &Connection,
    standings: Vec<KeyRow>,
    now: Timestamp,
) -> rusqlite::Result<Vec<KeyRecord>> {
    let heads: Vec<ItemId> = standings.iter().filter_map(|of| of.head).collect();
    let mut heads: HashMap<ItemId, Record> = find(connection, &heads)?
        .into_iter()
        .map(|record| (record.id, record))
        .collect();
    Ok(standings
        .into_iter()
        .map(|of| {
            let head = of.head.and_then(|id| heads.remove(&id));
            KeyFacts { head, ..of.facts }.record(now)
        })
        .collect())
}

fn hold_back(connection: &Connection, key: &str, now: Timestamp) -> rusqlite::Result<()> {
    let head: Option<Option<i64>> = connection
        .prepare_cached(sql::PAUSE_KEY)?
        .query_row(
            named_params! {":key": key, ":now": now.as_micros()},
            |found| found.get(0),
        )
        .optional()?;
    let Some(head) = head.flatten() else {
        return Ok(());
    };
    if leave_ready(connection, head)? {
        put_behind(connection, &[head])?;
        connection
            .prepare_cached(sql::PAUSE_KEY_HELD_BACK)?
            .execute(named_params! {":key": key})?;
    }
    Ok(())
}

fn resume(connection: &Connection, key: String, now: Timestamp) -> rusqlite::Result<()> {
    let has_head: Option<bool> = connection
        .prepare_cached(sql::RESUME_KEY_PAUSED)?
        .query_row(named_params! {":key": key}, |found| found.get(0))
        .optional()?;
    let Some(has_head) = has_head else {
        return Ok(());
    };
    connection
        .prepare_cached(sql::RESUME_KEY)?
        .execute(named_params! {":key": key, ":now": now.as_micros()})?;
    if has_head {
        return Ok(());
    }
    Turns::open(key).write(connection, now)
}

fn skip(
    connection: &Connection,
    ask: &Skip,
    now: Timestamp,
) -> Result<Guarded<ItemId>, StoreError> {
    let standing = key_row(connection, &ask.key).map_err(failed("skip"))?;
    let Some((head, is_blocked)) = standing.and_then(|of| Some((of.head?, of.facts.is_blocked)))
    else {
        return Ok(Guarded::Refused(Refusal::NotFound));
    };
    if !ask.is_meant(head) {
        return Ok(Guarded::Refused(Refusal::Lost));
    }
    if is_blocked {
        let left = leave_behind(connection, ask, head, now);
        return left
            .map_err(failed("skip"))
            .map(|()| Guarded::Accepted(head));
    }
    let mut buried = Bury::new(head, ask.token.clone(), ask.reason.clone());
    buried.now = ask.now;
    Ok(match bury(connection, &buried, now)? {
        Guarded::Accepted(()) => Guarded::Accepted(head),
        Guarded::Refused(why) => Guarded::Refused(why),
    })
}

/// Skips the dead head that blocks a key, and records the operator's note.
fn leave_behind(
    connection: &Connection,
    ask: &Skip,
    head: ItemId,
    now: Timestamp,
) -> rusqlite::Result<()> {
    connection
        .prepare_cached(sql::SKIP_BLOCKED)?
        .execute(named_params! {
            ":id": head.number(),
            ":note": error_text(&ask.note(now)),
            ":before": Skip::BEFORE,
            ":most": CHARACTERS_MAX,
        })?;
    Turns::open(ask.key.clone()).write(connection, now)
}

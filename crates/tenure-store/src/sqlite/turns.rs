//! Turns: the next heads of keys after leases on their items have ended.

use rusqlite::{Connection, named_params};
use tenure_core::{Fate, Timestamp};

use super::holds::{json, make_ready};
use super::statements as sql;

/// Pending changes to keys; written after the changes to items.
#[derive(Default)]
pub(super) struct Turns {
    /// Keys without a head: the first item of the backlog becomes the head. An item that becomes
    /// the head again is in the backlog, too.
    open: Vec<String>,
    /// Keys blocked by a dead head.
    blocked: Vec<(String, i64)>,
}

/// The next item of a key without a head.
struct Next {
    key: String,
    /// Turn and id of the first item of its backlog.
    first: Option<(i64, i64)>,
    is_paused: bool,
}

impl Turns {
    /// A single key without a head.
    pub(super) fn open(key: String) -> Self {
        Self {
            open: vec![key],
            blocked: Vec::new(),
        }
    }

    /// Keys without a head.
    pub(super) fn open_all(keys: impl IntoIterator<Item = String>) -> Self {
        Self {
            open: keys.into_iter().collect(),
            blocked: Vec::new(),
        }
    }

    /// Records the fates of the items of a run of this key.
    pub(super) fn note(&mut self, key: String, fates: impl IntoIterator<Item = (i64, Fate)>) {
        let first = fates.into_iter().find(|(_, fate)| *fate != Fate::Ended);
        match first {
            None | Some((_, Fate::Head)) => self.open.push(key),
            Some((id, Fate::Blocking)) => self.blocked.push((key, id)),
            // The key still has a held item.
            Some(_) => {}
        }
    }

    /// Gives each key its head, a paused one none; deletes other keys without items.
    pub(super) fn write(self, connection: &Connection, now: Timestamp) -> rusqlite::Result<()> {
        let mut heads: Vec<(String, Option<i64>, bool)> = self
            .blocked
            .into_iter()
            .map(|(key, id)| (key, Some(id), true))
            .collect();
        let (mut promoted, mut ready, mut idle) = (Vec::new(), Vec::new(), Vec::new());
        for Next {
            key,
            first,
            is_paused,
        } in next(connection, &self.open)?
        {
            match first {
                _ if is_paused => heads.push((key, None, false)),
                None => idle.push(key),
                Some((turn, id)) => {
                    ready.push(id);
                    promoted.push((key.clone(), turn));
                    heads.push((key, Some(id), false));
                }
            }
        }
        let change = |text: &str, ask: &[(&str, &dyn rusqlite::ToSql)]| {
            let mut statement = connection.prepare_cached(text)?;
            statement.execute(ask).map(drop)
        };
        if !ready.is_empty() {
            let ask = named_params! {":run": json(&promoted)};
            change(sql::SETTLE_PROMOTED, ask)?;
            make_ready(connection, &ready)?;
        }
        if !heads.is_empty() {
            let ask = named_params! {":heads": json(&heads), ":now": now.as_micros()};
            change(sql::SETTLE_HEADS, ask)?;
        }
        if !idle.is_empty() {
            change(sql::SETTLE_IDLE, named_params! {":keys": json(&idle)})?;
        }
        Ok(())
    }
}

fn next(connection: &Connection, keys: &[String]) -> rusqlite::Result<Vec<Next>> {
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    connection
        .prepare_cached(sql::SETTLE_NEXT)?
        .query_map(named_params! {":keys": json(keys)}, |row| {
            let turn: Option<i64> = row.get(1)?;
            let id: Option<i64> = row.get(2)?;
            Ok(Next {
                key: row.get(0)?,
                first: turn.zip(id),
                is_paused: row.get(3)?,
            })
        })?
        .collect()
}

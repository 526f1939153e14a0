//! Replay, inside its transaction.

use std::collections::{BTreeSet, HashMap, HashSet};

use rusqlite::{Connection, named_params};
use tenure_core::store::{Kind, Replay, Replayed};
use tenure_core::{Guarded, ItemId, Refusal, Timestamp};

use super::holds::{json, make_ready, put_behind};
use super::intake::{kind_of, kind_word};
use super::item_states::states;
use super::statements as sql;
use super::turns::Turns;

/// Makes settled items pending again. An item with a key goes to the tail of its key, unless it is
/// the dead head that blocks the key.
pub(super) fn replay(
    connection: &Connection,
    ask: &Replay,
    now: Timestamp,
) -> rusqlite::Result<Replayed> {
    let ids: Vec<i64> = ask.ids.iter().map(|id| id.number()).collect();
    let states = states(connection, &ids)?;
    let mut opened = Vec::new();
    let mut seen = HashSet::new();
    let answers = ids
        .iter()
        .map(|id| {
            let answer = match states.get(id) {
                None => Guarded::Refused(Refusal::NotFound),
                // An id named twice is refused the second time: the item is no longer settled.
                Some(state) if state.is_terminal() && seen.insert(*id) => {
                    opened.push(*id);
                    Guarded::Accepted(())
                }
                Some(_) => Guarded::Refused(Refusal::NotSettled),
            };
            (ItemId::new(*id), answer)
        })
        .collect();
    if !opened.is_empty() {
        open(connection, &opened, now)?;
    }
    Ok(answers)
}

/// The state of the key of a replayed item.
struct KeySnapshot {
    key: String,
    has_head: bool,
    /// The item is the dead head of the key.
    is_blocking: bool,
}

fn open(connection: &Connection, opened: &[i64], now: Timestamp) -> rusqlite::Result<()> {
    let named = json(opened);
    let keys = keys(connection, &named)?;
    connection
        .prepare_cached(sql::REPLAY_OPENED)?
        .execute(named_params! {":ids": named, ":now": now.as_micros()})?;
    connection
        .prepare_cached(sql::REPLAY_RAISED)?
        .execute(named_params! {":ids": named})?;
    let (keyed, unkeyed): (Vec<i64>, Vec<i64>) =
        opened.iter().partition(|id| keys.contains_key(id));
    make_ready(connection, &unkeyed)?;
    if keyed.is_empty() {
        return Ok(());
    }
    let is_blocking = |id: &i64| keys.get(id).is_some_and(|of| of.is_blocking);
    let last: Vec<i64> = keyed
        .iter()
        .copied()
        .filter(|id| !is_blocking(id))
        .collect();
    draw_turns(connection, &last)?;
    put_behind(connection, &keyed)?;
    let headless: BTreeSet<String> = keys
        .into_values()
        .filter(|of| !of.has_head || of.is_blocking)
        .map(|of| of.key)
        .collect();
    Turns::open_all(headless).write(connection, now)
}

fn keys(connection: &Connection, ids: &str) -> rusqlite::Result<HashMap<i64, KeySnapshot>> {
    connection
        .prepare_cached(sql::REPLAY_KEYS)?
        .query_map(named_params! {":ids": ids}, |row| {
            let key = KeySnapshot {
                key: row.get(1)?,
                has_head: row.get(2)?,
                is_blocking: row.get(3)?,
            };
            Ok((row.get(0)?, key))
        })?
        .collect()
}

/// Assigns new turns to the items, in this order, behind all others. Turns are drawn from the ids
/// of the same kind; those of deliveries are all above those of events.
fn draw_turns(connection: &Connection, ids: &[i64]) -> rusqlite::Result<()> {
    for kind in [Kind::Events, Kind::Deliveries] {
        let of_kind = ids.iter().copied().filter(|id| kind_of(*id) == kind);
        draw_turns_of(connection, kind, &of_kind.collect::<Vec<i64>>())?;
    }
    Ok(())
}

fn draw_turns_of(connection: &Connection, kind: Kind, ids: &[i64]) -> rusqlite::Result<()> {
    if ids.is_empty() {
        return Ok(());
    }
    let numbers = i64::try_from(ids.len()).unwrap_or(i64::MAX);
    let last: i64 = connection.prepare_cached(sql::REPLAY_DRAWN)?.query_row(
        named_params! {":numbers": numbers, ":kind": kind_word(kind)},
        |row| row.get(0),
    )?;
    let turns: Vec<(i64, i64)> = ids.iter().copied().zip(last - numbers + 1..).collect();
    connection
        .prepare_cached(sql::REPLAY_TURNS)?
        .execute(named_params! {":turns": json(&turns)})?;
    Ok(())
}

//! Bury, inside its transaction.

use rusqlite::{Connection, named_params};
use tenure_core::store::{Bury, StoreError};
use tenure_core::{Guarded, OutcomeKind, State, Timestamp, reason, refusal_of};

use super::error::failed;
use super::holds::{Ends, Leased, json};
use super::item_states::states;
use super::queue::draw_fence;
use super::statements as sql;
use super::turns::Turns;

/// Settles an item as dead. If it was the head, its key continues with the next item.
pub(super) fn bury(
    connection: &Connection,
    ask: &Bury,
    now: Timestamp,
) -> Result<Guarded, StoreError> {
    let id = ask.id.number();
    let states = states(connection, &[id]).map_err(failed("bury"))?;
    let state = states.get(&id).copied();
    let (lease, left, turns) = match state {
        None | Some(State::Done | State::Dead) => return Ok(Guarded::Refused(refusal_of(state))),
        Some(State::Pending) => {
            let turns = take(connection, id).map_err(failed("bury"))?;
            (claim_to_bury(connection, ask, now)?, None, turns)
        }
        Some(State::Claimed) => {
            let (lease, left) = lease_without(connection, id).map_err(failed("bury"))?;
            let turns = without(&lease, id).map_err(failed("bury"))?;
            (lease, Some(left), turns)
        }
    };
    let end = || {
        if let Some(left) = left {
            lease.keep(connection, &left)?;
        }
        lease.note(connection, OutcomeKind::Buried, vec![id], now)?;
        let mut ends = Ends::default();
        ends.bury(id, &ask.reason, reason::BURIED);
        ends.write(connection, now)?;
        turns.write(connection, now)
    };
    end().map_err(failed("bury"))?;
    Ok(Guarded::Accepted(()))
}

/// Removes a pending item from ready or the backlog. A keyed item in ready is the head of its key.
fn take(connection: &Connection, id: i64) -> rusqlite::Result<Turns> {
    let ask = named_params! {":id": id};
    if !leave_ready(connection, id)? {
        connection.prepare_cached(sql::BURY_LEFT)?.execute(ask)?;
        return Ok(Turns::default());
    }
    let key: Option<String> = connection
        .prepare_cached(sql::BURY_KEY)?
        .query_row(ask, |row| row.get(0))?;
    Ok(Turns::open_all(key))
}

/// Removes an item from ready; returns false if it was not there.
pub(super) fn leave_ready(connection: &Connection, id: i64) -> rusqlite::Result<bool> {
    let mut statement = connection.prepare_cached(sql::BURY_TAKEN)?;
    Ok(statement.execute(named_params! {":id": id})? > 0)
}

/// Builds a lease on a pending item for the operator, for this transaction only: an item can go
/// from pending to dead only through claimed.
fn claim_to_bury(
    connection: &Connection,
    ask: &Bury,
    now: Timestamp,
) -> Result<Leased, StoreError> {
    Ok(Leased {
        token: ask.token.expose().to_owned(),
        fence: draw_fence(connection, "bury")?.number(),
        holder: ask.token.holder().to_owned(),
        claimed_at: now,
        until: now,
        ids: json(&[ask.id.number()]),
        ids_by_key: None,
    })
}

/// Returns the lease that holds an item, and the other ids that it holds.
fn lease_without(connection: &Connection, id: i64) -> rusqlite::Result<(Leased, Vec<i64>)> {
    let lease = connection
        .prepare_cached(sql::BURY_LEASE)?
        .query_row(named_params! {":id": id}, |row| {
            Leased::read(row.get(0)?, row, 1)
        })?;
    let mut left = lease.held()?;
    left.retain(|held| *held != id);
    Ok((lease, left))
}

/// Returns the key of the item if its run has no other item: the key then needs a next head.
fn without(lease: &Leased, id: i64) -> rusqlite::Result<Turns> {
    let mut runs = lease.runs()?.into_iter();
    Ok(match runs.find(|(_, run)| run.contains(&id)) {
        Some((key, run)) if run.len() == 1 => Turns::open(key),
        _ => Turns::default(),
    })
}

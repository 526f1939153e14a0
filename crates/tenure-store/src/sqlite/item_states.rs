//! Current states of items and the last outcomes of a token, for items that an operation did not
//! change.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, named_params};
use tenure_core::{Guarded, ItemId, OutcomeKind, State, refusal_of};

use super::holds::json;
use super::statements as sql;

/// Answers a settle for items that its token does not hold.
pub(super) fn look(
    connection: &Connection,
    token: &str,
    words: &[(ItemId, OutcomeKind)],
) -> rusqlite::Result<Vec<Guarded>> {
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<i64> = words.iter().map(|(id, _)| id.number()).collect();
    let said = last_outcomes(connection, token, &ids)?;
    let states = states(connection, &ids)?;
    let answer = |(id, word): &(ItemId, OutcomeKind)| {
        let state = states.get(&id.number()).copied();
        // The journal may still name a pruned item.
        if state.is_some() && said.contains(&(id.number(), *word)) {
            return Guarded::Accepted(());
        }
        Guarded::Refused(refusal_of(state))
    };
    Ok(words.iter().map(answer).collect())
}

/// Returns the state of each item that exists.
pub(super) fn states(
    connection: &Connection,
    ids: &[i64],
) -> rusqlite::Result<HashMap<i64, State>> {
    let mut found = HashMap::with_capacity(ids.len());
    let mut statement = connection.prepare_cached(sql::LOOK_PLACE)?;
    let mut rows = statement.query(named_params! {":ids": json(ids)})?;
    while let Some(row) = rows.next()? {
        let word = row.get_ref(1)?.as_str()?;
        if let Some(state) = State::parse(word) {
            found.insert(row.get(0)?, state);
        }
    }
    Ok(found)
}

/// Returns the outcomes that the token reported for these items.
fn last_outcomes(
    connection: &Connection,
    token: &str,
    ids: &[i64],
) -> rusqlite::Result<HashSet<(i64, OutcomeKind)>> {
    let mut said = HashSet::new();
    let mut statement = connection.prepare_cached(sql::LOOK_SAID)?;
    let mut rows = statement.query(named_params! {":token": token, ":ids": json(ids)})?;
    while let Some(row) = rows.next()? {
        if let Some(word) = OutcomeKind::parse(row.get_ref(1)?.as_str()?) {
            said.insert((row.get(0)?, word));
        }
    }
    Ok(said)
}

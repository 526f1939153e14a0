//! Where items are now, and what a token has said of them: for whoever is not simply let pass.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, named_params};
use tenure_core::{Guarded, ItemId, Refusal, State, Word};

use super::holds::json;
use super::statements as sql;

/// The answers for items that are not held under the token, which says these words of them.
pub(super) fn look(
    connection: &Connection,
    token: &str,
    words: &[(ItemId, Word)],
) -> rusqlite::Result<Vec<Guarded>> {
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let ids: Vec<i64> = words.iter().map(|(id, _)| id.number()).collect();
    let said = said(connection, token, &ids)?;
    let states = states(connection, &ids)?;
    let answer = |(id, word): &(ItemId, Word)| match states.get(&id.number()) {
        None => Guarded::Refused(Refusal::NotFound),
        Some(_) if said.contains(&(id.number(), word.as_str().to_owned())) => Guarded::Kept(()),
        Some(State::Pending) => Guarded::Refused(Refusal::NotClaimed),
        Some(State::Claimed) => Guarded::Refused(Refusal::Lost),
        Some(State::Done | State::Dead) => Guarded::Refused(Refusal::AlreadySettled),
    };
    Ok(words.iter().map(answer).collect())
}

/// The state of each of these items that exists.
pub(super) fn states(
    connection: &Connection,
    ids: &[i64],
) -> rusqlite::Result<HashMap<i64, State>> {
    let mut found = HashMap::with_capacity(ids.len());
    let mut statement = connection.prepare_cached(sql::LOOK_PLACE)?;
    let mut rows = statement.query(named_params! {":ids": json(ids)})?;
    while let Some(row) = rows.next()? {
        let word = row.get_ref(1)?.as_str()?;
        if let Some(state) = State::ALL.into_iter().find(|state| state.as_str() == word) {
            found.insert(row.get(0)?, state);
        }
    }
    Ok(found)
}

fn said(
    connection: &Connection,
    token: &str,
    ids: &[i64],
) -> rusqlite::Result<HashSet<(i64, String)>> {
    connection
        .prepare_cached(sql::LOOK_SAID)?
        .query_map(named_params! {":token": token, ":ids": json(ids)}, |row| {
            Ok((row.get(0)?, row.get(1)?))
        })?
        .collect()
}

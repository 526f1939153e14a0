//! Where items are now, and what a token has said of them: for whoever is not simply let pass.

use std::collections::{HashMap, HashSet};

use rusqlite::{Connection, named_params};
use tenure_core::{Guarded, ItemId, State, Word, refusal_of};

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
    let answer = |(id, word): &(ItemId, Word)| {
        let state = states.get(&id.number()).copied();
        // The journal may still name an item that was pruned.
        if state.is_some() && said.contains(&(id.number(), *word)) {
            return Guarded::Kept(());
        }
        Guarded::Refused(refusal_of(state))
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
        if let Some(state) = State::parse(word) {
            found.insert(row.get(0)?, state);
        }
    }
    Ok(found)
}

/// The words that the token has said of these items.
fn said(
    connection: &Connection,
    token: &str,
    ids: &[i64],
) -> rusqlite::Result<HashSet<(i64, Word)>> {
    let mut said = HashSet::new();
    let mut statement = connection.prepare_cached(sql::LOOK_SAID)?;
    let mut rows = statement.query(named_params! {":token": token, ":ids": json(ids)})?;
    while let Some(row) = rows.next()? {
        if let Some(word) = Word::parse(row.get_ref(1)?.as_str()?) {
            said.insert((row.get(0)?, word));
        }
    }
    Ok(said)
}

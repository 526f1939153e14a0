//! What a settle does in its transaction.

use rusqlite::{Connection, OptionalExtension, named_params};
use tenure_core::store::{Rest, Settle, Settlement, StoreError};
use tenure_core::{Guarded, ItemId, Lateness, Outcome, Refusal, Timestamp, Word};

use super::error::failed;
use super::holds::{Ends, Leased, Said, json};
use super::look::look;
use super::statements as sql;

/// The caller has checked that no item is named twice.
pub(super) fn settle(
    connection: &Connection,
    ask: &Settle,
    now: Timestamp,
) -> Result<Settlement, StoreError> {
    try_settle(connection, ask, now).map_err(failed("settle"))
}

fn try_settle(
    connection: &Connection,
    ask: &Settle,
    now: Timestamp,
) -> rusqlite::Result<Settlement> {
    let Some(lease) = lease_of(connection, ask.token.expose())? else {
        let none_held = vec![false; ask.items.len()];
        return answer(connection, ask, &none_held, Guarded::Kept(()));
    };
    let share = Share::of(ask, &lease)?;
    let is_over = lease.until <= now;
    if is_over && ask.lateness == Lateness::Refuse {
        let lapsed = Guarded::Refused(Refusal::Lapsed);
        return answer(connection, ask, &share.is_held, lapsed);
    }
    let rest = end(connection, ask, &lease, &share, now)?;
    let has_ended = rest > 0 || share.is_held.contains(&true);
    Ok(Settlement {
        rest,
        late: is_over && has_ended,
        ..answer(connection, ask, &share.is_held, Guarded::Kept(()))?
    })
}

fn lease_of(connection: &Connection, token: &str) -> rusqlite::Result<Option<Leased>> {
    connection
        .prepare_cached(sql::SETTLE_LEASE)?
        .query_row(named_params! {":token": token}, |row| {
            Leased::read(token.to_owned(), row, 0)
        })
        .optional()
}

/// Which of the named items are held under the lease, and what else is.
struct Share {
    is_held: Vec<bool>,
    unnamed: Vec<i64>,
}

impl Share {
    fn of(ask: &Settle, lease: &Leased) -> rusqlite::Result<Self> {
        let mut named: Vec<i64> = ask.items.iter().map(|(id, _)| id.number()).collect();
        named.sort_unstable();
        // The common case: the whole lease is named. Then the texts are equal, and nothing is read.
        if json(&named) == lease.ids {
            return Ok(Self {
                is_held: vec![true; named.len()],
                unnamed: Vec::new(),
            });
        }
        let mut unnamed = lease.held()?;
        let is_held = ask
            .items
            .iter()
            .map(|(id, _)| unnamed.binary_search(&id.number()).is_ok())
            .collect();
        unnamed.retain(|id| named.binary_search(id).is_err());
        Ok(Self { is_held, unnamed })
    }
}

/// Ends the holds; answers how many that were not named.
fn end(
    connection: &Connection,
    ask: &Settle,
    lease: &Leased,
    share: &Share,
    now: Timestamp,
) -> rusqlite::Result<u32> {
    let (mut said, mut ends) = (Said::new(), Ends::default());
    let mut say = |id: i64, outcome: &Outcome| {
        said.entry(outcome.word()).or_default().push(id);
        ends.say(id, outcome, now);
    };
    for ((id, outcome), is_held) in ask.items.iter().zip(&share.is_held) {
        if *is_held {
            say(id.number(), outcome);
        }
    }
    let for_rest = match ask.rest {
        Rest::Keep => None,
        Rest::Done => Some(Outcome::Done),
        Rest::Release => Some(Outcome::RELEASE),
    };
    let mut left = share.unnamed.as_slice();
    let mut rest = 0;
    if let Some(outcome) = for_rest {
        for id in left {
            say(*id, &outcome);
        }
        rest = u32::try_from(left.len()).unwrap_or(u32::MAX);
        left = &[];
    }
    if said.is_empty() {
        return Ok(0);
    }
    lease.keep(connection, left)?;
    for (word, ids) in said {
        lease.note(connection, word, ids, now)?;
    }
    ends.write(connection, now)?;
    Ok(rest)
}

/// Answers for each named item: `for_held` if it was held under the token; else as the token was
/// answered before, if it said the same then; else by where the item is.
fn answer(
    connection: &Connection,
    ask: &Settle,
    is_held: &[bool],
    for_held: Guarded,
) -> rusqlite::Result<Settlement> {
    let others: Vec<(ItemId, Word)> = ask
        .items
        .iter()
        .zip(is_held)
        .filter(|(_, is_held)| !**is_held)
        .map(|((id, outcome), _)| (*id, outcome.word()))
        .collect();
    let mut for_others = look(connection, ask.token.expose(), &others)?.into_iter();
    let items = ask
        .items
        .iter()
        .zip(is_held)
        .map(|((id, _), is_held)| {
            let known = if *is_held {
                Some(for_held)
            } else {
                for_others.next()
            };
            (*id, known.unwrap_or(Guarded::Refused(Refusal::NotFound)))
        })
        .collect();
    Ok(Settlement {
        items,
        ..Settlement::default()
    })
}

//! The settle on the queue layout, step by step: the fast form for a whole lease that is done, the
//! general form, and the second look at what was refused.

use std::collections::HashSet;

use sqlx::postgres::PgRow;
use tenure_core::store::{Claim, Rest, Settle, Settlement, StoreError};
use tenure_core::{Guarded, Held, ItemId, Lateness, OnDead, Outcome, Refusal, State, Word};

use super::PostgresStore;
use super::claim::bind_claim;
use super::cursor::Start;
use super::error::store_error;
use super::queue::Sql;
use super::row::{get, moment};
use crate::error_text::error_text;
use crate::limits::micros;
use crate::second_look::{Look, Looks, settle_answers};

impl PostgresStore {
    pub(crate) async fn settle_each(&self, settle: &Settle) -> Result<Settlement, StoreError> {
        if settle.items.is_empty() && settle.rest == Rest::Keep {
            return Ok(Settlement::default());
        }
        let words = Words::of(settle);
        let query = words.bind(self.statements().settle.query(), settle);
        let rows = self.fetch("settle", query).await?;
        self.settlement(settle, &rows).await
    }

    pub(crate) async fn settle_each_and_claim(
        &self,
        settle: &Settle,
        claim: &Claim,
        start: Start,
    ) -> Result<(Settlement, Option<Held>), StoreError> {
        let words = Words::of(settle);
        let query = words.bind(self.statements().settle_and_claim.query(), settle);
        let query = bind_claim(query, claim, &start);
        let rows = self.fetch("settle", query).await?;
        self.heed(&rows, 5)?;
        let held = self.held(claim, &start, &rows, 6).await?;
        let settlement = self.settlement(settle, &rows).await?;
        Ok((settlement, self.finish_claim(claim, start, held).await?))
    }

    /// The answer of the fast form; `None` when the lease was not exactly what was named.
    pub(crate) fn settled_whole(
        &self,
        settle: &Settle,
        rows: &[PgRow],
    ) -> Result<Option<Settlement>, StoreError> {
        let read = |row: &PgRow| Ok((get::<i64>(row, 0)? == 1, get::<bool>(row, 1)?, get(row, 3)?));
        let answer = rows.first().map(read).transpose();
        let answer = answer.map_err(|error| store_error("settle", error))?;
        if answer.is_some_and(|(_, _, has_promoted)| has_promoted) {
            self.cursors().drop_all();
        }
        Ok(answer
            .filter(|(is_settled, ..)| *is_settled)
            .map(|(_, late, _)| Settlement {
                items: settle
                    .items
                    .iter()
                    .map(|(id, _)| (*id, Guarded::Kept(())))
                    .collect(),
                rest: 0,
                late,
            }))
    }

    /// The answer of the general form, with a second look at what it refused.
    async fn settlement(&self, settle: &Settle, rows: &[PgRow]) -> Result<Settlement, StoreError> {
        let read = |row: &PgRow| {
            Ok((
                get::<bool>(row, 0)?,
                get::<i64>(row, 1)?,
                get::<Option<Vec<i64>>>(row, 2)?,
                get::<Option<Vec<i64>>>(row, 3)?,
                get::<bool>(row, 4)?,
            ))
        };
        let answer = rows.first().map(read).transpose();
        let answer = answer.map_err(|error| store_error("settle", error))?;
        let (late, rest, refused, early, has_promoted) = answer.unwrap_or_default();
        if has_promoted {
            self.cursors().drop_all();
        }
        let refused = refused.unwrap_or_default();
        let early: HashSet<ItemId> = early.into_iter().flatten().map(ItemId::new).collect();
        let named = settle.items.iter().map(|(id, _)| *id);
        let mut ended: HashSet<ItemId> = named.collect();
        for id in &refused {
            ended.remove(&ItemId::new(*id));
        }
        let looks = self.look("settle", settle.token.expose(), refused).await?;
        let mut items = settle_answers(settle, &ended, &looks);
        for (id, answer) in &mut items {
            if early.contains(id) {
                *answer = Guarded::Refused(Refusal::OutOfTurn);
            }
        }
        Ok(Settlement {
            items,
            rest: u32::try_from(rest).unwrap_or(u32::MAX),
            late,
        })
    }

    /// Where these items are now, and what a token has said of them; an empty one is nobody's.
    pub(crate) async fn look(
        &self,
        verb: &'static str,
        token: &str,
        ids: Vec<i64>,
    ) -> Result<Looks, StoreError> {
        if ids.is_empty() {
            return Ok(Looks::new());
        }
        let query = self.statements().look.query().bind(token).bind(ids);
        let rows = self.fetch(verb, query).await?;
        let seen = rows.iter().filter_map(|row| read_look(row).transpose());
        seen.collect::<Result<Looks, _>>()
            .map_err(|error| store_error(verb, error))
    }
}

/// What a second look saw of an item; `None`: there is no such item.
fn read_look(row: &PgRow) -> Result<Option<(ItemId, Look)>, sqlx::Error> {
    let state = if !get::<bool>(row, 1)? {
        return Ok(None);
    } else if get(row, 2)? {
        State::Claimed
    } else if get(row, 4)? {
        State::Pending
    } else if get(row, 5)? {
        State::Dead
    } else {
        State::Done
    };
    let look = Look {
        state,
        is_mine: get(row, 3)?,
        word: get::<Option<&str>>(row, 6)?.and_then(Word::parse),
    };
    Ok(Some((ItemId::new(get(row, 0)?), look)))
}

/// The ids, ascending, if all that is named is done: then the fast form may serve.
pub(crate) fn whole_and_done(settle: &Settle) -> Option<Vec<i64>> {
    let is_done = |(_, outcome): &(ItemId, Outcome)| *outcome == Outcome::Done;
    if settle.items.is_empty()
        || settle.lateness == Lateness::Refuse
        || !settle.items.iter().all(is_done)
    {
        return None;
    }
    let mut ids: Vec<i64> = settle.items.iter().map(|(id, _)| id.number()).collect();
    ids.sort_unstable();
    Some(ids)
}

/// A settle's items, sorted by word into the lists that the statement takes.
#[derive(Debug, Default)]
struct Words {
    done: Vec<i64>,
    retry: (Vec<i64>, Vec<i64>, Vec<String>),
    dead: (Vec<i64>, Vec<String>, Vec<String>),
    release: (Vec<i64>, Vec<i64>),
}

impl Words {
    fn of(settle: &Settle) -> Self {
        let mut words = Self::default();
        for (id, outcome) in &settle.items {
            match outcome {
                Outcome::Done => words.done.push(id.number()),
                Outcome::Retry { after, error } => {
                    words.retry.0.push(id.number());
                    words.retry.1.push(micros(*after));
                    words.retry.2.push(error_text(error));
                }
                Outcome::Dead { reason, error } => {
                    words.dead.0.push(id.number());
                    words.dead.1.push(error_text(reason));
                    words.dead.2.push(error_text(error));
                }
                Outcome::Release { after } => {
                    words.release.0.push(id.number());
                    words.release.1.push(micros(*after));
                }
            }
        }
        words
    }

    fn bind<'q>(self, query: Sql<'q>, settle: &'q Settle) -> Sql<'q> {
        let rest = match settle.rest {
            Rest::Keep => None,
            Rest::Done => Some(Word::Done.as_str()),
            Rest::Release => Some(Word::Release.as_str()),
        };
        query
            .bind(moment(settle.now))
            .bind(settle.token.expose())
            .bind(self.done)
            .bind(self.retry.0)
            .bind(self.retry.1)
            .bind(self.retry.2)
            .bind(self.dead.0)
            .bind(self.dead.1)
            .bind(self.dead.2)
            .bind(self.release.0)
            .bind(self.release.1)
            .bind(rest)
            .bind(settle.lateness == Lateness::Refuse)
            .bind(settle.on_dead == OnDead::Block)
    }
}

//! The settle on the queue layout, step by step: the fast form for a whole lease that is done, the
//! general form, and the second look at what was refused.

use std::collections::HashMap;

use sqlx::postgres::PgRow;
use tenure_core::store::{Claim, Rest, Settle, Settlement, StoreError};
use tenure_core::{Guarded, Held, ItemId, Lateness, Outcome, Refusal, Token, Word};

use super::PostgresStore;
use super::claim::bind_claim;
use super::cursor::Start;
use super::error::store_error;
use super::queue::{Sql, micros};
use super::row::{get, moment};
use crate::error_text::error_text;

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
        let rows = self
            .fetch("settle", bind_claim(query, claim, &start))
            .await?;
        let held = self.held(claim, &start, &rows, 3).await?;
        let settlement = self.settlement(settle, &rows).await?;
        Ok((settlement, self.finish_claim(claim, start, held).await?))
    }

    /// The answer of the fast form; `None` when the lease was not exactly what was named.
    pub(crate) fn settled_whole(
        settle: &Settle,
        rows: &[PgRow],
    ) -> Result<Option<Settlement>, StoreError> {
        let read = |row: &PgRow| Ok((get::<i64>(row, 0)? == 1, get::<bool>(row, 1)?));
        let answer = rows.first().map(read).transpose();
        let answer: Option<(bool, bool)> = answer.map_err(|error| store_error("settle", error))?;
        Ok(answer
            .filter(|(is_settled, _)| *is_settled)
            .map(|(_, late)| Settlement {
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
            ))
        };
        let answer = rows.first().map(read).transpose();
        let answer = answer.map_err(|error| store_error("settle", error))?;
        let (late, rest, refused) = answer.unwrap_or_default();
        let places = self
            .look(&settle.token, refused.unwrap_or_default())
            .await?;
        let judge = |(id, outcome): &(ItemId, Outcome)| {
            let answer = match places.get(id) {
                None => Guarded::Kept(()),
                Some(place) => place.answer(outcome.word()),
            };
            (*id, answer)
        };
        Ok(Settlement {
            items: settle.items.iter().map(judge).collect(),
            rest: u32::try_from(rest).unwrap_or(u32::MAX),
            late,
        })
    }

    /// Where these items are now, and what this token has said of them.
    pub(crate) async fn look(
        &self,
        token: &Token,
        ids: Vec<i64>,
    ) -> Result<HashMap<ItemId, Place>, StoreError> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let query = self
            .statements()
            .look
            .query()
            .bind(token.expose())
            .bind(ids);
        let rows = self.fetch("settle", query).await?;
        let places = rows.iter().map(Place::read).collect::<Result<_, _>>();
        places.map_err(|error| store_error("settle", error))
    }
}

/// Where an item is, and what a token has said of it.
#[derive(Debug)]
pub(crate) struct Place {
    is_mine: bool,
    word: Option<Word>,
    pub(crate) refusal: Refusal,
}

impl Place {
    fn read(row: &PgRow) -> Result<(ItemId, Self), sqlx::Error> {
        let (is_known, is_claimed) = (get::<bool>(row, 1)?, get::<bool>(row, 2)?);
        let refusal = if !is_known {
            Refusal::NotFound
        } else if is_claimed {
            Refusal::Lost
        } else if get::<bool>(row, 4)? {
            Refusal::NotClaimed
        } else {
            Refusal::AlreadySettled
        };
        let word = get::<Option<&str>>(row, 6)?.and_then(Word::parse);
        let place = Self {
            is_mine: get(row, 3)?,
            word,
            refusal,
        };
        Ok((ItemId::new(get(row, 0)?), place))
    }

    /// What a settle with this word is told: what was said before counts as said (law 9).
    fn answer(&self, word: Word) -> Guarded {
        if self.word == Some(word) {
            return Guarded::Kept(());
        }
        Guarded::Refused(if self.is_mine {
            Refusal::Lapsed
        } else {
            self.refusal
        })
    }
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
    }
}

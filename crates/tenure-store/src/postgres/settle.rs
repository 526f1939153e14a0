//! The settle on the queue layout, step by step: the fast form for a whole lease that is done, the
//! general form, and the second look at what was refused.

use std::collections::HashSet;

use sqlx::postgres::PgRow;
use tenure_core::store::{Claim, Rest, Settle, Settlement, StoreError};
use tenure_core::{Guarded, Held, ItemId, Lateness, OnDead, Outcome, Refusal, State, Word};

use super::PostgresStore;
use super::claim::{bind_claim, bind_no_claim};
use super::error::store_error;
use super::queue::Sql;
use super::row::{get, moment};
use crate::error_text::error_text;
use crate::limits::micros;
use crate::second_look::{Look, Looks, settle_answers};

impl PostgresStore {
    /// Settles by itself: no claim goes with it.
    pub(crate) async fn settle_alone(&self, settle: &Settle) -> Result<Settlement, StoreError> {
        loop {
            let owed = self.owed(settle).await?;
            if !settle.calls.is_empty() || !owed.is_nothing() {
                return self.settle_with(settle, owed).await;
            }
            if let Some(ended) = self.end_by(settle, owed.rules).await? {
                return self.settlement(settle, ended).await;
            }
            self.forget_subscriptions();
        }
    }

    /// Settles by rules by which nothing is owed; `None`: they are others by now.
    async fn end_by(
        &self,
        settle: &Settle,
        rules: Option<i64>,
    ) -> Result<Option<Ended>, StoreError> {
        if let Some(ids) = whole_and_done(settle) {
            let query = self.statements().settle_done_and_claim.query();
            let query = query
                .bind(moment(settle.now))
                .bind(settle.token.expose())
                .bind(ids)
                .bind(rules);
            let rows = self.fetch("settle", bind_no_claim(query)).await?;
            let ended = Ended::whole(&rows).map_err(|error| store_error("settle", error))?;
            if let Some(ended) = ended {
                return Ok(Some(ended).filter(|ended| !ended.is_stale));
            }
        }
        self.end_each_by(settle, rules).await
    }

    /// The same in the general form.
    async fn end_each_by(
        &self,
        settle: &Settle,
        rules: Option<i64>,
    ) -> Result<Option<Ended>, StoreError> {
        if settle.items.is_empty() && settle.rest == Rest::Keep {
            return Ok(Some(Ended::default()));
        }
        let query = bind_settle(self.statements().settle.query(), settle, rules);
        let rows = self.fetch("settle", query).await?;
        let ended = Ended::each(&rows).map_err(|error| store_error("settle", error))?;
        Ok(Some(ended).filter(|ended| !ended.is_stale))
    }

    /// Settles by rules by which nothing is owed, and claims.
    pub(crate) async fn settle_and_claim_by(
        &self,
        settle: &Settle,
        claim: &Claim,
        rules: Option<i64>,
    ) -> Result<(Settlement, Option<Held>), StoreError> {
        self.place_first(claim.now).await?;
        let start = self.start(claim).await?;
        let statements = self.statements();
        let whole = whole_and_done(settle);
        let is_whole = whole.is_some();
        let query = if let Some(ids) = whole {
            let query = statements.settle_done_and_claim.query();
            query
                .bind(moment(settle.now))
                .bind(settle.token.expose())
                .bind(ids)
                .bind(rules)
        } else {
            bind_settle(statements.settle_and_claim.query(), settle, rules)
        };
        let query = bind_claim(query, claim, &start);
        let rows = self.fetch("settle", query).await?;
        let (rung, first) = if is_whole { WHOLE } else { EACH };
        self.heed(&rows, rung)?;
        let held = self.held(claim, &start, &rows, first).await?;
        let ended = if is_whole {
            Ended::whole(&rows)
        } else {
            Ended::each(&rows).map(Some)
        };
        let ended = match ended.map_err(|error| store_error("settle", error))? {
            Some(ended) => Some(ended).filter(|ended| !ended.is_stale),
            None => self.end_each_by(settle, rules).await?,
        };
        let settlement = if let Some(ended) = ended {
            self.settlement(settle, ended).await?
        } else {
            self.forget_subscriptions();
            self.settle_alone(settle).await?
        };
        Ok((settlement, self.finish_claim(claim, start, held).await?))
    }

    /// The answer for what was ended, with a second look at what was refused.
    pub(crate) async fn settlement(
        &self,
        settle: &Settle,
        ended: Ended,
    ) -> Result<Settlement, StoreError> {
        if ended.has_promoted {
            self.cursors().drop_all();
        }
        let named = settle.items.iter().map(|(id, _)| *id);
        let kept: HashSet<ItemId> = named.filter(|id| !ended.refused.contains(id)).collect();
        let refused = ended.refused.iter().map(|id| id.number()).collect();
        let looks = self.look("settle", settle.token.expose(), refused).await?;
        let mut items = settle_answers(settle, &kept, &looks);
        for (id, answer) in &mut items {
            if ended.early.contains(id) {
                *answer = Guarded::Refused(Refusal::OutOfTurn);
            }
        }
        Ok(Settlement {
            items,
            rest: u32::try_from(ended.rest).unwrap_or(u32::MAX),
            late: ended.is_late,
            failed: Vec::new(),
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

/// Where the fused statements say whether a domain is rung for, and where their claim begins.
const WHOLE: (usize, usize) = (2, 5);
const EACH: (usize, usize) = (6, 7);

/// What the statement of a settle did.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    is_late: bool,
    rest: i64,
    /// Named, but not held.
    refused: HashSet<ItemId>,
    /// An earlier one of their domain is not settled.
    early: HashSet<ItemId>,
    has_promoted: bool,
    /// The rules were others: nothing was done.
    is_stale: bool,
}

impl Ended {
    /// The answer of the fast form; `None` when the lease was not exactly what was named.
    pub(crate) fn whole(rows: &[PgRow]) -> Result<Option<Self>, sqlx::Error> {
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let ended = Self {
            is_late: get(row, 1)?,
            has_promoted: get(row, 3)?,
            is_stale: get(row, 4)?,
            ..Self::default()
        };
        let is_settled = get::<i64>(row, 0)? == 1;
        Ok(Some(ended).filter(|ended| is_settled || ended.is_stale))
    }

    /// The answer of the general form.
    pub(crate) fn each(rows: &[PgRow]) -> Result<Self, sqlx::Error> {
        let row = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        let ids = |index| {
            let ids = get::<Option<Vec<i64>>>(row, index)?.unwrap_or_default();
            Ok::<_, sqlx::Error>(ids.into_iter().map(ItemId::new).collect())
        };
        Ok(Self {
            is_late: get(row, 0)?,
            rest: get(row, 1)?,
            refused: ids(2)?,
            early: ids(3)?,
            has_promoted: get(row, 4)?,
            is_stale: get(row, 5)?,
        })
    }

    /// Whether this item was named and not ended by it.
    pub(crate) fn is_refused(&self, id: ItemId) -> bool {
        self.refused.contains(&id) || self.early.contains(&id)
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

/// The general form's parameters: what is said, by which rules.
pub(crate) fn bind_settle<'q>(query: Sql<'q>, settle: &'q Settle, rules: Option<i64>) -> Sql<'q> {
    Words::of(settle).bind(query, settle, rules)
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

    fn bind<'q>(self, query: Sql<'q>, settle: &'q Settle, rules: Option<i64>) -> Sql<'q> {
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
            .bind(rules)
    }
}

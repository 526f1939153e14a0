//! The settle on the queue layout, step by step: the fast form for a whole lease that is done, the
//! general form, and the second query on refused items.

use std::collections::HashSet;

use sqlx::postgres::PgRow;
use tenure_core::store::{Claim, Rest, Settle, Settlement, StoreError};
use tenure_core::{Guarded, Held, ItemId, Lateness, OnDead, Outcome, OutcomeKind, Refusal, State};

use super::PostgresStore;
use super::claim::{bind_claim, bind_no_claim};
use super::error::store_error;
use super::queue::Sql;
use super::row::{get, moment};
use crate::error_text::error_text;
use crate::limits::micros;
use crate::refusal_reason::{ItemPosition, ItemPositions, settle_answers};

impl PostgresStore {
    /// Settles without a claim.
    pub(crate) async fn settle_alone(&self, settle: &Settle) -> Result<Settlement, StoreError> {
        loop {
            let pending = self.pending(settle).await?;
            if !settle.calls.is_empty() || !pending.is_nothing() {
                return self.settle_with(settle, pending).await;
            }
            if let Some(ended) = self.end_by(settle, pending.rules).await? {
                return self.settlement(settle, ended).await;
            }
            self.forget_subscriptions();
        }
    }

    /// Settles without deliveries under these rules; `None`: the rules have changed.
    async fn end_by(
        &self,
        settle: &Settle,
        rules: Option<i64>,
    ) -> Result<Option<SettleEffect>, StoreError> {
        if let Some(ids) = whole_and_done(settle) {
            let query = self.statements().settle_done_and_claim.query();
            let query = query
                .bind(moment(settle.now))
                .bind(settle.token.expose())
                .bind(ids)
                .bind(rules);
            let rows = self.fetch("settle", bind_no_claim(query)).await?;
            let ended = SettleEffect::whole(&rows).map_err(|error| store_error("settle", error))?;
            if let Some(ended) = ended {
                return Ok(Some(ended).filter(|ended| !ended.is_stale));
            }
        }
        self.end_each_by(settle, rules).await
    }

    /// Like [`Self::end_by`], but always in the general form.
    async fn end_each_by(
        &self,
        settle: &Settle,
        rules: Option<i64>,
    ) -> Result<Option<SettleEffect>, StoreError> {
        if settle.items.is_empty() && settle.rest == Rest::Keep {
            return Ok(Some(SettleEffect::default()));
        }
        let query = bind_settle(self.statements().settle.query(), settle, rules);
        let rows = self.fetch("settle", query).await?;
        let ended = SettleEffect::each(&rows).map_err(|error| store_error("settle", error))?;
        Ok(Some(ended).filter(|ended| !ended.is_stale))
    }

    /// Settles without deliveries under these rules, and claims.
    pub(crate) async fn settle_and_claim_by(
        &self,
        settle: &Settle,
        claim: &Claim,
        rules: Option<i64>,
    ) -> Result<(Settlement, Option<Held>), StoreError> {
        self.promote_first(claim.now).await?;
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
        let (arrivals, first) = if is_whole { WHOLE } else { EACH };
        self.observe_arrivals(&rows, arrivals)?;
        let held = self.held(claim, &start, &rows, first).await?;
        let ended = if is_whole {
            SettleEffect::whole(&rows)
        } else {
            SettleEffect::each(&rows).map(Some)
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

    /// Builds the answer of a settle; queries the states of refused items.
    pub(crate) async fn settlement(
        &self,
        settle: &Settle,
        ended: SettleEffect,
    ) -> Result<Settlement, StoreError> {
        if ended.has_promoted {
            self.cursors().drop_all();
        }
        let named = settle.items.iter().map(|(id, _)| *id);
        let kept: HashSet<ItemId> = named.filter(|id| !ended.refused.contains(id)).collect();
        let refused = ended.refused.iter().map(|id| id.number()).collect();
        let positions = self.look("settle", settle.token.expose(), refused).await?;
        let mut items = settle_answers(settle, &kept, &positions);
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

    /// Returns the current states of these items and their last outcomes under `token`; an empty
    /// token matches no holder.
    pub(crate) async fn look(
        &self,
        verb: &'static str,
        token: &str,
        ids: Vec<i64>,
    ) -> Result<ItemPositions, StoreError> {
        if ids.is_empty() {
            return Ok(ItemPositions::new());
        }
        let query = self.statements().look.query().bind(token).bind(ids);
        let rows = self.fetch(verb, query).await?;
        let seen = rows.iter().filter_map(|row| read_look(row).transpose());
        seen.collect::<Result<ItemPositions, _>>()
            .map_err(|error| store_error(verb, error))
    }
}

/// Positions in the answers of the statements that settle and claim: the column of the arrivals
/// flag, and the first column of the claim.
const WHOLE: (usize, usize) = (2, 5);
const EACH: (usize, usize) = (6, 7);

/// The result of a settle statement.
#[derive(Debug, Default)]
pub(crate) struct SettleEffect {
    is_late: bool,
    rest: i64,
    /// Named items that the token does not hold, or whose lapsed lease is refused.
    refused: HashSet<ItemId>,
    /// Items whose key has an earlier unsettled item.
    early: HashSet<ItemId>,
    has_promoted: bool,
    /// The rules have changed: the statement did nothing.
    is_stale: bool,
}

impl SettleEffect {
    /// Reads the result of the fast form; `None`: the named items were not exactly the lease.
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

    /// Reads the result of the general form.
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

    /// True if the settle named this item and did not end it.
    pub(crate) fn is_refused(&self, id: ItemId) -> bool {
        self.refused.contains(&id) || self.early.contains(&id)
    }
}

/// Reads the state of an item; `None`: it does not exist.
fn read_look(row: &PgRow) -> Result<Option<(ItemId, ItemPosition)>, sqlx::Error> {
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
    let look = ItemPosition {
        state,
        is_mine: get(row, 3)?,
        last_outcome: get::<Option<&str>>(row, 6)?.and_then(OutcomeKind::parse),
    };
    Ok(Some((ItemId::new(get(row, 0)?), look)))
}

/// Returns the ids, ascending, if the fast form is possible: all outcomes are done, and a late
/// settle is accepted.
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

/// Binds the parameters of the general form.
pub(crate) fn bind_settle<'q>(query: Sql<'q>, settle: &'q Settle, rules: Option<i64>) -> Sql<'q> {
    OutcomeColumns::of(settle).bind(query, settle, rules)
}

/// The items of a settle, grouped by outcome into parameter lists.
#[derive(Debug, Default)]
struct OutcomeColumns {
    done: Vec<i64>,
    retry: (Vec<i64>, Vec<i64>, Vec<String>),
    dead: (Vec<i64>, Vec<String>, Vec<String>),
    release: (Vec<i64>, Vec<i64>),
}

impl OutcomeColumns {
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
            Rest::Done => Some(OutcomeKind::Done.as_str()),
            Rest::Release => Some(OutcomeKind::Release.as_str()),
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

//! Claim, renew, settle, reap.

use std::collections::HashSet;

use sqlx::postgres::PgRow;
use tenure_core::store::{
    Answer, Claim, Isolation, LeaseStore, Reap, Reaped, Renew, Renewed, Rest, Settle, Settlement,
    StoreError,
};
use tenure_core::{
    Boundary, Content, Counters, Fence, Guarded, Held, Item, ItemId, Lateness, Lease, Outcome,
    State, Timestamp, Token,
};

use super::super::pool::Borrow as _;
use super::PostgresRows;
use super::renewal;
use crate::limits::{INLINE_REAP_LIMIT, micros};
use crate::messages::used_before;
use crate::postgres::error::{is_refused, lacks_column};
use crate::postgres::row::{get, get_count, get_moment, get_timestamp, moment};
use crate::refusal_reason::{not_ended, settle_answers};
use crate::rows::{
    ReapedRows, SettleColumns, first_reap, is_full, rest_word, state_of, takes_lone_rows,
};

impl LeaseStore for PostgresRows {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        Box::pin(self.claim_or_recover(claim))
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        Box::pin(async move {
            let ask = |open| self.renew_once(renew, open);
            let answers = renewal::renew(&renew.tokens, ask).await;
            answers.map_err(|e| self.error("renew", e))
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        Box::pin(self.settle_rows(settle))
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        Box::pin(async move {
            settle.check()?;
            if first_reap(&self.table, claim).is_some() {
                // This claim begins with a reap, which must not end the leases being settled:
                // settle first.
                let settlement = self.settle_rows(settle).await?;
                return Ok((settlement, self.claim_or_recover(claim).await?));
            }
            // Run both at once: they are two transactions anyway. If the settle fails, the caller
            // releases the claimed rows, as after any lost answer. Reap only after the settle: its
            // lease may have lapsed, and the reap would end it first.
            let (settlement, held) = tokio::join!(
                self.settle_rows(settle),
                self.claim_rows(claim, claim.most())
            );
            Ok((settlement?, self.recover(claim, held?).await?))
        })
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        Box::pin(async move { self.reap_rows(reap).await?.told() })
    }
}

impl PostgresRows {
    /// Claims. If the claim gets fewer rows than its limit, the store reaps lapsed leases, and
    /// claims again if it got none. If the table treats lapsed rows as free, the store reaps first.
    async fn claim_or_recover(&self, claim: &Claim) -> Result<Option<Held>, StoreError> {
        let limit = claim.most();
        if limit == 0 {
            return Ok(None);
        }
        if let Some(reap) = first_reap(&self.table, claim) {
            loop {
                let reaped = self.reap_rows(&reap).await?;
                let has_more = is_full(&reap, reaped.rows.len());
                claim.tell_recovered(reaped.rows);
                if !has_more {
                    return self.claim_rows(claim, limit).await;
                }
            }
        }
        let held = self.claim_rows(claim, limit).await?;
        self.recover(claim, held).await
    }

    /// Reaps lapsed leases after a claim that got fewer rows than its limit, and claims again if it
    /// got none.
    async fn recover(&self, claim: &Claim, held: Option<Held>) -> Result<Option<Held>, StoreError> {
        let limit = claim.most();
        let taken = held.as_ref().map_or(0, |held| held.items.len());
        let is_short = u32::try_from(taken).is_ok_and(|taken| taken < limit);
        let Some(policy) = claim.recovery.as_ref().filter(|_| is_short) else {
            return Ok(held);
        };
        let mut reap = Reap::new(INLINE_REAP_LIMIT, policy.clone()).inline();
        reap.now = claim.now;
        let reaped = self.reap_rows(&reap).await;
        let reaped = match reaped {
            Ok(reaped) => reaped,
            // Return the claimed rows even if the reap fails; the reaper retries it.
            Err(_) if held.is_some() => return Ok(held),
            Err(error) => return Err(error),
        };
        let is_back = reaped.rows.iter().any(|row| row.state == State::Pending);
        claim.tell_recovered(reaped.rows);
        if held.is_none() && is_back {
            return self.claim_rows(claim, limit).await;
        }
        Ok(held)
    }

    async fn claim_rows(&self, claim: &Claim, limit: u32) -> Result<Option<Held>, StoreError> {
        if limit == 0 {
            return Ok(None);
        }
        let failed = |e| self.error("claim", e);
        let rows = match self.ask_claim(claim, limit).await {
            Err(error) if lacks_column(&error) && self.statements.take_whole_rows() => {
                self.ask_claim(claim, limit).await
            }
            answer => answer,
        };
        let rows = rows.map_err(failed)?;
        let Some(first) = rows.first() else {
            return Ok(None);
        };
        if get(first, 0).map_err(failed)? {
            return Err(used_before("claim"));
        }
        if get::<Option<i64>>(first, 1).map_err(failed)?.is_none() {
            return Ok(None);
        }
        let lease = lease_of(claim, first).map_err(failed)?;
        let items: Result<Vec<Item>, _> = rows.iter().map(item_of).collect();
        let items = items.map_err(failed)?;
        Ok(Some(Held::new(lease, items, claim.most())))
    }

    async fn ask_claim(&self, claim: &Claim, limit: u32) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut query = self
            .statements
            .claim()
            .query()
            .bind(moment(claim.now))
            .bind(claim.token.expose())
            .bind(claim.token.holder())
            .bind(micros(claim.term.length()))
            .bind(i64::from(limit))
            .bind(claim.isolation == Isolation::Isolated)
            .bind(takes_lone_rows(&self.table, claim));
        if self.table.kind.is_some() {
            query = query.bind((!claim.kinds.is_empty()).then_some(&claim.kinds));
        }
        query.all_from(&self.pool).await
    }

    async fn renew_once(&self, renew: &Renew, open: Vec<Token>) -> Result<Vec<PgRow>, sqlx::Error> {
        let tokens: Vec<&str> = open.iter().map(Token::expose).collect();
        let holders: Vec<&str> = open.iter().map(Token::holder).collect();
        self.statements
            .renew
            .query()
            .bind(moment(renew.now))
            .bind(tokens)
            .bind(holders)
            .bind(micros(renew.term.length()))
            .all_from(&self.pool)
            .await
    }

    async fn settle_rows(&self, settle: &Settle) -> Result<Settlement, StoreError> {
        settle.check()?;
        let ended = if settle.rest == Rest::Keep && is_all_done(settle) {
            self.end_as_done(settle).await
        } else {
            self.end(settle).await
        };
        let (ended, late, failed) = match ended {
            Err(error) if is_refused(&error) && settle.items.len() > 1 => {
                self.end_each(settle).await?
            }
            ended => {
                let (ended, late) = ended.map_err(|e| self.error("settle", e))?;
                (ended, late, Vec::new())
            }
        };
        let ended: HashSet<ItemId> = ended.into_iter().map(ItemId::new).collect();
        let who = (settle.token.expose(), settle.token.holder());
        let positions = self.look("settle", who, &not_ended(settle, &ended)).await?;
        let items = settle_answers(settle, &ended, &positions);
        let named = items.iter().filter(|(id, _)| ended.contains(id)).count();
        Ok(Settlement {
            items,
            rest: u32::try_from(ended.len() - named).unwrap_or(u32::MAX),
            late,
            failed,
        })
    }

    /// Ends rows; returns their ids, and whether the term was over.
    pub(super) async fn end(&self, settle: &Settle) -> Result<(Vec<i64>, bool), sqlx::Error> {
        let items = settle.items.iter();
        let said: Vec<SettleColumns> = items
            .map(|(id, outcome)| SettleColumns::of(*id, outcome))
            .collect();
        let rows = self
            .statements
            .settle
            .query()
            .bind(moment(settle.now))
            .bind(settle.token.expose())
            .bind(settle.token.holder())
            .bind(said.iter().map(|said| said.id).collect::<Vec<i64>>())
            .bind(said.iter().map(|said| said.word).collect::<Vec<&str>>())
            .bind(said.iter().map(|said| said.delay).collect::<Vec<i64>>())
            .bind(
                said.into_iter()
                    .map(|said| said.error)
                    .collect::<Vec<Option<String>>>(),
            )
            .bind(rest_word(settle.rest))
            .bind(settle.lateness == Lateness::Refuse)
            .all_from(&self.pool)
            .await?;
        let ended: Result<Vec<i64>, _> = rows.iter().map(|row| get(row, 0)).collect();
        let late = rows.first().map_or(Ok(false), |row| get(row, 1))?;
        Ok((ended?, late))
    }

    /// Like [`Self::end`], for a settle whose outcomes are all done.
    async fn end_as_done(&self, settle: &Settle) -> Result<(Vec<i64>, bool), sqlx::Error> {
        let ids: Vec<i64> = settle.items.iter().map(|(id, _)| id.number()).collect();
        let row = self
            .statements
            .settle_done
            .query()
            .bind(moment(settle.now))
            .bind(settle.token.expose())
            .bind(settle.token.holder())
            .bind(ids)
            .bind(settle.lateness == Lateness::Refuse)
            .first_from(&self.pool)
            .await?;
        let Some(row) = row else {
            return Ok((Vec::new(), false));
        };
        // Null if no row was ended.
        let ended: Option<Vec<i64>> = get(&row, 0)?;
        let ended = ended.unwrap_or_default();
        let late = get(&row, 1)? && !ended.is_empty();
        Ok((ended, late))
    }

    async fn reap_rows(&self, reap: &Reap) -> Result<ReapedRows, StoreError> {
        match self.ask_reap(reap, None).await {
            Err(error) if is_refused(&error) => self.reap_each(reap).await,
            rows => {
                let rows = rows.map_err(|e| self.error("reap", e))?;
                Ok(ReapedRows {
                    rows: self.reaped(&rows)?,
                    failed: None,
                })
            }
        }
    }

    pub(super) async fn ask_reap(
        &self,
        reap: &Reap,
        one: Option<i64>,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let delays: Vec<i64> = reap.policy.delays().iter().map(|d| micros(*d)).collect();
        self.statements
            .reap
            .query()
            .bind(moment(reap.now))
            .bind(i64::from(reap.limit))
            .bind(delays)
            .bind(i32::try_from(reap.policy.max_crashes()).unwrap_or(i32::MAX))
            .bind(reap.boundary == Boundary::Reached)
            .bind(one)
            .all_from(&self.pool)
            .await
    }

    pub(super) fn reaped(&self, rows: &[PgRow]) -> Result<Vec<Reaped>, StoreError> {
        let failed = |e| self.error("reap", e);
        let mut reaped = Vec::with_capacity(rows.len());
        for row in rows {
            let state: Option<&str> = get(row, 4).map_err(failed)?;
            let state = state_of("reap", &self.table, state)?;
            reaped.push(reaped_of(row, state).map_err(failed)?);
        }
        Ok(reaped)
    }
}

fn is_all_done(settle: &Settle) -> bool {
    let mut items = settle.items.iter();
    items.all(|(_, outcome)| *outcome == Outcome::Done)
}

fn lease_of(claim: &Claim, row: &PgRow) -> Result<Lease, sqlx::Error> {
    Ok(Lease {
        token: claim.token.clone(),
        fence: Fence::new(get(row, 8)?),
        claimed_at: get_timestamp(row, 9)?,
        until: get_timestamp(row, 10)?,
    })
}

fn item_of(row: &PgRow) -> Result<Item, sqlx::Error> {
    Ok(Item {
        id: ItemId::new(get(row, 1)?),
        content: Content::Row(get(row, 2)?),
        available_at: get_timestamp(row, 3)?,
        counters: Counters {
            attempts: get_count(row, 4)?,
            failures: get_count(row, 5)?,
            crashes: get_count(row, 6)?,
            generation: get_count(row, 7)?,
        },
    })
}

fn reaped_of(row: &PgRow, state: State) -> Result<Reaped, sqlx::Error> {
    let until = get_timestamp(row, 3)?;
    let available_at: Option<Timestamp> = get_moment(row, 5)?;
    Ok(Reaped {
        id: ItemId::new(get(row, 0)?),
        // A claim written by hand may have no holder.
        holder: get::<Option<String>>(row, 1)?.unwrap_or_default(),
        fence: Fence::new(get(row, 2)?),
        stale: get_timestamp(row, 6)?.since(until),
        state,
        available_at: available_at.filter(|_| state == State::Pending),
    })
}

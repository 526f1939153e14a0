//! `LeaseStore` on the queue layout: claim, renew, settle and reap.

use std::collections::HashMap;
use std::time::Duration;

use sqlx::Postgres;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use tenure_core::store::{
    Answer, Claim, LeaseStore, Reap, Reaped, Renew, Renewed, Settle, Settlement, StoreError,
};
use tenure_core::{
    Boundary, Fence, Guarded, Held, ItemId, LapsePolicy, OnDead, Refusal, State, Token,
};

use super::PostgresStore;
use super::error::{breaks, store_error};
use super::pool::Borrow as _;
use super::row::{get, get_moment, get_timestamp, moment};
use crate::limits::micros;
use crate::messages::used_before;

/// A statement with its parameters.
pub(crate) type Sql<'q> = Query<'q, Postgres, PgArguments>;

impl LeaseStore for PostgresStore {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        Box::pin(async move {
            if claim.topics.is_empty() {
                return Ok(None);
            }
            self.promote_first(claim.now).await?;
            let start = self.start(claim).await?;
            let held = self.claim_from(claim, &start).await?;
            self.finish_claim(claim, start, held).await
        })
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        Box::pin(async move {
            let tokens: Vec<&str> = renew.tokens.iter().map(Token::expose).collect();
            let query = self
                .statements()
                .renew
                .query()
                .bind(moment(renew.now))
                .bind(tokens)
                .bind(micros(renew.term.length()));
            let rows = self.fetch("renew", query).await?;
            let answers = rows
                .iter()
                .map(renewal)
                .collect::<Result<HashMap<_, _>, _>>();
            let answers = answers.map_err(|error| store_error("renew", error))?;
            let answer = |token: &Token| {
                answers
                    .get(token.expose())
                    .cloned()
                    .unwrap_or(Guarded::Refused(Refusal::Lost))
            };
            Ok(renew
                .tokens
                .iter()
                .map(|token| (token.clone(), answer(token)))
                .collect())
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        Box::pin(async move {
            settle.check()?;
            self.settle_alone(settle).await
        })
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        Box::pin(async move {
            settle.check()?;
            let pending = self.pending(settle).await?;
            if settle.calls.is_empty() && pending.is_nothing() && !claim.topics.is_empty() {
                return self.settle_and_claim_by(settle, claim, pending.rules).await;
            }
            let settlement = self.settle_with(settle, pending).await?;
            Ok((settlement, self.claim(claim).await?))
        })
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        Box::pin(async move {
            let delays: Vec<i64> = reap.policy.delays().iter().copied().map(micros).collect();
            let query = self
                .statements()
                .reap
                .query()
                .bind(moment(reap.now))
                .bind(i64::from(reap.limit))
                .bind(reap.boundary == Boundary::Reached)
                .bind(count_param(reap.policy.max_crashes()))
                .bind(delays)
                .bind(count_param(LapsePolicy::ALONE_AFTER))
                .bind(reap.policy.on_dead() == OnDead::Block);
            let rows = self.fetch("reap", query).await?;
            let reaped = rows.iter().map(reaped).collect::<Result<_, _>>();
            reaped.map_err(|error| store_error("reap", error))
        })
    }
}

impl PostgresStore {
    pub(crate) async fn fetch(
        &self,
        verb: &'static str,
        query: Sql<'_>,
    ) -> Result<Vec<PgRow>, StoreError> {
        query.all_from(&self.pool).await.map_err(|error| {
            if breaks(&error, "tenure_leases_pkey") {
                return used_before(verb);
            }
            store_error(verb, error)
        })
    }
}

fn renewal(row: &PgRow) -> Result<(String, Guarded<Renewed>), sqlx::Error> {
    let answer = match get::<Option<i64>>(row, 2)? {
        Some(fence) => Guarded::Accepted(Renewed {
            fence: Fence::new(fence),
            until: get_timestamp(row, 3)?,
            ids: get::<Vec<i64>>(row, 4)?
                .into_iter()
                .map(ItemId::new)
                .collect(),
        }),
        None if get(row, 1)? => Guarded::Refused(Refusal::Lapsed),
        None => Guarded::Refused(Refusal::Lost),
    };
    Ok((get(row, 0)?, answer))
}

fn reaped(row: &PgRow) -> Result<Reaped, sqlx::Error> {
    let is_dead: bool = get(row, 4)?;
    Ok(Reaped {
        id: ItemId::new(get(row, 0)?),
        holder: get(row, 1)?,
        fence: Fence::new(get(row, 2)?),
        stale: Duration::from_micros(u64::try_from(get::<i64>(row, 6)?).unwrap_or(0)),
        state: if is_dead { State::Dead } else { State::Pending },
        available_at: get_moment(row, 5)?,
    })
}

fn count_param(count: u32) -> i32 {
    i32::try_from(count).unwrap_or(i32::MAX)
}

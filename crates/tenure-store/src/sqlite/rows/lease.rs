//! Claim, renew, settle, reap.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use rusqlite::{Connection, Params, ToSql, named_params};
use serde_json::json;
use tenure_core::store::{
    Answer, Claim, Isolation, LeaseStore, Reap, Reaped, Renew, Renewed, Settle, Settlement,
    StoreError,
};
use tenure_core::{
    Boundary, Fence, Guarded, Held, ItemId, Lease, Refusal, State, Timestamp, Token,
};

use super::read::{Claimed, ReadRows};
use super::row::corrupt;
use super::row_by_row::EndMode;
use super::shape::Shape;
use super::{RowTable, SqliteRows, VerbContext, json_ids};
use crate::limits::{INLINE_REAP_LIMIT, micros};
use crate::messages::used_before;
use crate::refusal_reason::{not_ended, settle_answers};
use crate::rows::{
    ReapedRows, SettleColumns, first_reap, is_full, rest_word, state_of, takes_lone_rows,
};

impl LeaseStore for SqliteRows {
    fn claim<'a>(&'a self, claim: &'a Claim) -> Answer<'a, Option<Held>> {
        Box::pin(async move {
            let (given, claim) = (claim.now, claim.clone());
            let claimed = self.write("claim", given, move |table_state, conn, now| {
                table_state.claim(conn, &claim, now)
            });
            claimed.await?.map(Claimed::held).transpose()
        })
    }

    fn renew<'a>(&'a self, renew: &'a Renew) -> Answer<'a, Vec<(Token, Guarded<Renewed>)>> {
        Box::pin(async move {
            let (given, renew) = (renew.now, renew.clone());
            self.write("renew", given, move |table_state, conn, now| {
                table_state.renew(conn, renew, now)
            })
            .await
        })
    }

    fn settle<'a>(&'a self, settle: &'a Settle) -> Answer<'a, Settlement> {
        Box::pin(async move {
            settle.check()?;
            let (given, settle) = (settle.now, Arc::new(settle.clone()));
            self.settle_in_a_way(given, move |table_state, conn, now, way| {
                table_state.settle(conn, &settle, now, way)
            })
            .await
        })
    }

    fn settle_and_claim<'a>(
        &'a self,
        settle: &'a Settle,
        claim: &'a Claim,
    ) -> Answer<'a, (Settlement, Option<Held>)> {
        Box::pin(async move {
            settle.check()?;
            let (given, asked) = (settle.now, Arc::new((settle.clone(), claim.clone())));
            // One transaction: if the claim fails, the settle is undone.
            let told = self.settle_in_a_way(given, move |table_state, conn, now, way| {
                let (settle, claim) = asked.as_ref();
                let Some(settlement) = table_state.settle(conn, settle, now, way)? else {
                    return Ok(None);
                };
                let claimed_at = claim.now.unwrap_or(now);
                Ok(Some((
                    settlement,
                    table_state.claim(conn, claim, claimed_at)?,
                )))
            });
            let (settlement, claimed) = told.await?;
            Ok((settlement, claimed.map(Claimed::held).transpose()?))
        })
    }

    fn reap<'a>(&'a self, reap: &'a Reap) -> Answer<'a, Vec<Reaped>> {
        Box::pin(async move {
            let (given, reap) = (reap.now, reap.clone());
            self.write("reap", given, move |table_state, conn, now| {
                table_state.reap(conn, &reap, now)?.told()
            })
            .await
        })
    }
}

impl SqliteRows {
    /// Settles all rows with one statement; if that fails, undoes it and settles them one by one.
    async fn settle_in_a_way<T: Send + 'static>(
        &self,
        given: Option<Timestamp>,
        op: impl Fn(&RowTable, &Connection, Timestamp, EndMode) -> Result<Option<T>, StoreError>
        + Clone
        + Send
        + 'static,
    ) -> Result<T, StoreError> {
        let at_once = op.clone();
        let told = self
            .write_or_undo("settle", given, move |table_state, conn, now| {
                at_once(table_state, conn, now, EndMode::AtOnce)
            })
            .await?;
        if let Some(told) = told {
            return Ok(told);
        }
        self.write("settle", given, move |table_state, conn, now| {
            let told = op(table_state, conn, now, EndMode::OneByOne)?;
            told.ok_or_else(|| corrupt("settle", "rows could not even be settled one by one"))
        })
        .await
    }
}

impl RowTable {
    /// Claims. A claim below its limit reaps lapsed leases, and an empty one then tries again. If
    /// lapsed rows count as free, it reaps first.
    fn claim(
        &self,
        conn: &Connection,
        claim: &Claim,
        now: Timestamp,
    ) -> Result<Option<Claimed>, StoreError> {
        let limit = claim.most();
        if limit == 0 {
            return Ok(None);
        }
        if let Some(reap) = first_reap(&self.table, claim) {
            loop {
                let reaped = self.reap(conn, &reap, now)?;
                let has_more = is_full(&reap, reaped.rows.len());
                claim.tell_recovered(reaped.rows);
                if !has_more {
                    return self.claim_rows(conn, claim, limit, now);
                }
            }
        }
        let claimed = self.claim_rows(conn, claim, limit, now)?;
        let taken = claimed.as_ref().map_or(0, |claimed| claimed.rows.len());
        let is_short = u32::try_from(taken).is_ok_and(|taken| taken < limit);
        let Some(policy) = claim.recovery.as_ref().filter(|_| is_short) else {
            return Ok(claimed);
        };
        let reap = Reap::new(INLINE_REAP_LIMIT, policy.clone()).inline();
        let reaped = self.reap(conn, &reap, now)?;
        let is_back = reaped.rows.iter().any(|row| row.state == State::Pending);
        claim.tell_recovered(reaped.rows);
        if claimed.is_none() && is_back {
            return self.claim_rows(conn, claim, limit, now);
        }
        Ok(claimed)
    }

    fn claim_rows(
        &self,
        conn: &Connection,
        claim: &Claim,
        limit: u32,
        now: Timestamp,
    ) -> Result<Option<Claimed>, StoreError> {
        let ask = self.ask(conn, "claim");
        let (now, token) = (now.as_micros(), claim.token.expose());
        let shape = ask.shape()?;
        let mut rows = ask.claimable(claim, limit, now, &shape)?;
        if rows.len() == 0 {
            return Ok(None);
        }
        let used: Option<bool> = ask.value("claim", "used", named_params! {":token": token})?;
        if used == Some(true) {
            return Err(used_before("claim"));
        }
        let fence: Option<i64> = ask.value("claim", "fence", [])?;
        let fence = fence.ok_or_else(|| corrupt("claim", "the table tenure_fence is empty"))?;
        let until = now.saturating_add(micros(claim.term.length()));
        let ids = rows.ids();
        let params = named_params! {
            ":now": now,
            ":until": until,
            ":token": token,
            ":holder": claim.token.holder(),
            ":fence": fence,
            ":ids": json_ids(&ids),
        };
        let text = ask.of_many("claim", "claim", &shape)?;
        let prepared = conn.prepare_cached(&text);
        let changed = prepared.and_then(|mut statement| statement.execute(params));
        let changed = changed.map_err(|error| ask.error(error))?;
        if shape.reacts || changed != ids.len() {
            // A trigger can prevent the update of a row, or change more of it.
            let claimed = ask.read("claimed", named_params! {":token": token}, &shape)?;
            rows = claimed.in_order(&ids);
        }
        let lease = Lease {
            token: claim.token.clone(),
            fence: Fence::new(fence),
            claimed_at: Timestamp::from_micros(now),
            until: Timestamp::from_micros(until),
        };
        let most = claim.most();
        Ok((rows.len() > 0).then_some(Claimed { lease, rows, most }))
    }

    fn renew(
        &self,
        conn: &Connection,
        renew: Renew,
        now: Timestamp,
    ) -> Result<Vec<(Token, Guarded<Renewed>)>, StoreError> {
        let until = now.as_micros().saturating_add(micros(renew.term.length()));
        let mut answers = Vec::with_capacity(renew.tokens.len());
        for token in renew.tokens {
            let answer = self.renew_one(conn, &token, until, now)?;
            answers.push((token, answer));
        }
        Ok(answers)
    }

    fn renew_one(
        &self,
        conn: &Connection,
        token: &Token,
        until: i64,
        now: Timestamp,
    ) -> Result<Guarded<Renewed>, StoreError> {
        let ask = self.ask(conn, "renew");
        let (secret, holder, now) = (token.expose(), token.holder(), now.as_micros());
        let params =
            named_params! {":now": now, ":token": secret, ":holder": holder, ":until": until};
        let mut rows: Vec<(i64, i64, i64)> = ask.rows("renew", "renew", params, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?))
        })?;
        rows.sort_unstable();
        if let Some((_, until, fence)) = rows.first() {
            return Ok(Guarded::Accepted(Renewed {
                until: Timestamp::from_micros(*until),
                fence: Fence::new(*fence),
                ids: rows.iter().map(|(id, _, _)| ItemId::new(*id)).collect(),
            }));
        }
        let params = named_params! {":now": now, ":token": secret, ":holder": holder};
        let is_lapsed: Option<bool> = ask.value("renew", "lapsed", params)?;
        Ok(Guarded::Refused(match is_lapsed {
            Some(true) => Refusal::Lapsed,
            _ => Refusal::Lost,
        }))
    }

    /// Settles; `None` if the caller must undo this and settle with the other [`EndMode`].
    fn settle(
        &self,
        conn: &Connection,
        settle: &Settle,
        now: Timestamp,
        way: EndMode,
    ) -> Result<Option<Settlement>, StoreError> {
        let ask = self.ask(conn, "settle");
        let who = (settle.token.expose(), settle.token.holder());
        let items = settle.items.iter();
        let mut said: Vec<SettleColumns> = items
            .map(|(id, outcome)| SettleColumns::of(*id, outcome))
            .collect();
        if let Some(word) = rest_word(settle.rest) {
            let named: HashSet<i64> = settle.items.iter().map(|(id, _)| id.number()).collect();
            let params = named_params! {":token": who.0, ":holder": who.1};
            let held: Vec<i64> = ask.rows("settle", "held", params, |row| row.get(0))?;
            let rest = held.into_iter().filter(|id| !named.contains(id));
            said.extend(rest.map(|id| SettleColumns::of_rest(id, word)));
        }
        let params = named_params! {":now": now.as_micros(), ":token": who.0, ":holder": who.1};
        let is_over: Option<bool> = ask.value("settle", "late", params)?;
        let Some((ended, failed)) = ask.end(settle, &said, now, way)? else {
            return Ok(None);
        };
        let positions = ask.look(who, &not_ended(settle, &ended))?;
        let items = settle_answers(settle, &ended, &positions);
        let named = items.iter().filter(|(id, _)| ended.contains(id)).count();
        Ok(Some(Settlement {
            items,
            rest: u32::try_from(ended.len() - named).unwrap_or(u32::MAX),
            late: is_over == Some(true) && !ended.is_empty(),
            failed,
        }))
    }

    fn reap(
        &self,
        conn: &Connection,
        reap: &Reap,
        now: Timestamp,
    ) -> Result<ReapedRows, StoreError> {
        type Lapsed = (i64, Option<String>, i64, i64);
        let ask = self.ask(conn, "reap");
        let reached = reap.boundary == Boundary::Reached;
        let at = now.as_micros();
        let params = named_params! {":now": at, ":limit": reap.limit, ":reached": reached};
        let lapsed: Vec<Lapsed> = ask.rows("reap", "lapsed", params, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
        if lapsed.is_empty() {
            return Ok(ReapedRows::default());
        }
        let ids: Vec<ItemId> = lapsed.iter().map(|row| ItemId::new(row.0)).collect();
        let (ended, failed) = ask.reap_some(reap, &ids, now)?;
        let ended: HashMap<i64, (Option<String>, Option<i64>)> = ended
            .into_iter()
            .map(|(id, state, available_at)| (id, (state, available_at)))
            .collect();
        let mut reaped = Vec::with_capacity(lapsed.len());
        for (id, holder, fence, until) in lapsed {
            let Some((state, available_at)) = ended.get(&id) else {
                continue;
            };
            let state = state_of("reap", &self.table, state.as_deref())?;
            let available_at = available_at.filter(|_| state == State::Pending);
            reaped.push(Reaped {
                id: ItemId::new(id),
                // A claim written by hand may lack a holder.
                holder: holder.unwrap_or_default(),
                fence: Fence::new(fence),
                stale: now.since(Timestamp::from_micros(until)),
                state,
                available_at: available_at.map(Timestamp::from_micros),
            });
        }
        Ok(ReapedRows {
            rows: reaped,
            failed,
        })
    }
}

impl VerbContext<'_> {
    /// Reads the claimable rows, in order, before the claim changes them.
    fn claimable(
        &self,
        claim: &Claim,
        limit: u32,
        now: i64,
        shape: &Arc<Shape>,
    ) -> Result<ReadRows, StoreError> {
        let table = &self.table_state.table;
        let lone = takes_lone_rows(table, claim);
        let kinds = (!claim.kinds.is_empty()).then(|| json!(claim.kinds).to_string());
        let mut params: Vec<(&str, &dyn ToSql)> = vec![(":now", &now), (":limit", &limit)];
        if table.kind.is_some() {
            params.push((":kinds", &kinds));
        }
        let statement = match claim.isolation {
            Isolation::Shared => {
                params.push((":lone", &lone));
                "claimable"
            }
            Isolation::Isolated => "claimable_alone",
        };
        self.read(statement, params.as_slice(), shape)
    }

    /// Reads the rows of a claim statement.
    fn read(
        &self,
        statement: &str,
        params: impl Params,
        shape: &Arc<Shape>,
    ) -> Result<ReadRows, StoreError> {
        let text = self.of_shape(statement, shape)?;
        let mut rows = ReadRows::of(shape);
        self.rows_of(&text, params, |row| rows.add(row))?;
        Ok(rows)
    }
}

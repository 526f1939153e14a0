//! Fan-out: what is owed to whom when events are done, and the settle that writes more than holds.
//!
//! Who is subscribed is remembered under the number of the rules that it was read by. A settle by
//! which nothing is owed is one statement, which refuses when the rules are others by now; then
//! they are read and it goes again. A settle by which something is owed, or that brings calls, is a
//! transaction: settle, calls, deliveries, commit.
//!
//! Nobody locks the endpoints for that: whoever changes one would wait for all who settle. A settle
//! owes by the rules that stood when its deliveries were written.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError};

use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection};
use tenure_core::store::{Rest, Settle, Settlement, StoreError, StoreErrorKind};
use tenure_core::webhook::{AttemptOutcome, Call, EndpointId, EndpointSettings};
use tenure_core::{Invalid, ItemId};

use super::PostgresStore;
use super::claim::bind_no_claim;
use super::error::store_error;
use super::lend::{Borrow as _, Lent};
use super::prune::BEGIN;
use super::queue::Sql;
use super::row::{get, moment};
use super::settle::{Ended, whole_and_done};

/// So many deliveries are written by one statement.
const DELIVERIES: usize = 10_000;
/// How often the rules may change under a settle before it gives up.
const TRIES: u32 = 100;

/// To whom something may be owed.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    /// The number of the rules.
    rules: i64,
    endpoints: Vec<(EndpointId, i32, EndpointSettings)>,
}

/// What a settle owes, by the rules with this number.
#[derive(Debug, Default)]
pub(crate) struct Owed {
    /// `None`: nothing can be owed, whatever they are.
    pub(crate) rules: Option<i64>,
    /// Event, number and name of the endpoint; ascending.
    deliveries: Vec<(i64, i32, EndpointId)>,
}

impl Subscriptions {
    fn owed(&self, fan_out: &[(ItemId, String)]) -> Owed {
        let mut takers: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut deliveries = Vec::new();
        for (id, topic) in fan_out {
            let takers = takers.entry(topic).or_insert_with(|| self.takers(topic));
            let endpoints = takers.iter().filter_map(|nth| self.endpoints.get(*nth));
            deliveries
                .extend(endpoints.map(|(name, number, _)| (id.number(), *number, name.clone())));
        }
        deliveries.sort_by_key(|(id, number, _)| (*id, *number));
        Owed {
            rules: Some(self.rules),
            deliveries,
        }
    }

    fn takers(&self, topic: &str) -> Vec<usize> {
        let endpoints = self.endpoints.iter().enumerate();
        endpoints
            .filter(|(_, (_, _, settings))| settings.takes(topic))
            .map(|(nth, _)| nth)
            .collect()
    }
}

impl Owed {
    pub(crate) fn is_nothing(&self) -> bool {
        self.deliveries.is_empty()
    }
}

impl PostgresStore {
    /// What this settle owes, as far as is remembered.
    pub(crate) async fn owed(&self, settle: &Settle) -> Result<Owed, StoreError> {
        if settle.fan_out.is_empty() {
            return Ok(Owed::default());
        }
        let known = self.subscriptions.read();
        let known = known.unwrap_or_else(PoisonError::into_inner).clone();
        let subscriptions = if let Some(known) = known {
            known
        } else {
            let query = self.webhook().subscriptions.query();
            let rows = query.all_from(self.pool()).await;
            self.remember(&rows.map_err(|error| store_error("settle", error))?)?
        };
        Ok(subscriptions.owed(&settle.fan_out))
    }

    /// The rules are others by now: whoever asks next reads them.
    pub(crate) fn forget_subscriptions(&self) {
        let known = self.subscriptions.write();
        *known.unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn remember(&self, rows: &[PgRow]) -> Result<Arc<Subscriptions>, StoreError> {
        let subscriptions = Arc::new(subscriptions(rows)?);
        let known = self.subscriptions.write();
        *known.unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&subscriptions));
        Ok(subscriptions)
    }

    /// Settles, and writes calls and deliveries with it, all or nothing.
    pub(crate) async fn settle_with(
        &self,
        settle: &Settle,
        owed: Owed,
    ) -> Result<Settlement, StoreError> {
        let lent = Lent::from(self.pool()).await;
        let mut lent = lent.map_err(|error| store_error("settle", error))?;
        // After an error the connection is closed, and its transaction with it.
        let ended = self.settle_on(lent.connection(), settle, owed).await?;
        lent.give_back();
        self.settlement(settle, ended).await
    }

    async fn settle_on(
        &self,
        conn: &mut PgConnection,
        settle: &Settle,
        owed: Owed,
    ) -> Result<Ended, StoreError> {
        let failed = |error| store_error("settle", error);
        let mut tx = conn.begin_with(BEGIN).await.map_err(failed)?;
        let ended = self.end_holds(&mut tx, settle).await.map_err(failed)?;
        if !settle.calls.is_empty() {
            let calls = superseded(&settle.calls, &ended);
            // What this very transaction has ended is there.
            let named: HashSet<ItemId> = settle.items.iter().map(|(id, _)| *id).collect();
            let is_ended = |call: &Call| named.contains(&call.delivery);
            let is_there = matches!(calls, Cow::Borrowed(_)) && calls.iter().all(is_ended);
            let query = self.webhook().record_calls.query();
            let query = super::webhooks::bind_calls(query, &calls, settle.now).bind(is_there);
            query.execute(&mut *tx).await.map_err(failed)?;
        }
        if !settle.fan_out.is_empty() {
            self.write_deliveries(&mut tx, settle, owed).await?;
        }
        tx.commit().await.map_err(failed)?;
        Ok(ended)
    }

    /// The settle itself: the fast form if it may serve, else the general one.
    async fn end_holds(
        &self,
        conn: &mut PgConnection,
        settle: &Settle,
    ) -> Result<Ended, sqlx::Error> {
        if let Some(ids) = whole_and_done(settle) {
            let query = self.statements().settle_done_and_claim.query();
            let query = query
                .bind(moment(settle.now))
                .bind(settle.token.expose())
                .bind(ids)
                .bind(None::<i64>);
            let rows = bind_no_claim(query).fetch_all(&mut *conn).await?;
            if let Some(ended) = Ended::whole(&rows)? {
                return Ok(ended);
            }
        }
        if settle.items.is_empty() && settle.rest == Rest::Keep {
            return Ok(Ended::default());
        }
        let query = self.statements().settle.query();
        let query = super::settle::bind_settle(query, settle, None);
        Ended::each(&query.fetch_all(conn).await?)
    }

    async fn write_deliveries(
        &self,
        conn: &mut PgConnection,
        settle: &Settle,
        mut owed: Owed,
    ) -> Result<(), StoreError> {
        let failed = |error| store_error("settle", error);
        for _ in 0..TRIES {
            if self
                .try_deliveries(conn, settle, &owed)
                .await
                .map_err(failed)?
            {
                return Ok(());
            }
            let query = self.webhook().subscriptions.query();
            let rows = query.fetch_all(&mut *conn).await.map_err(failed)?;
            owed = self.remember(&rows)?.owed(&settle.fan_out);
        }
        let problem = "the endpoints were changed at the same time, again and again";
        Err(StoreError::new("settle", StoreErrorKind::Conflict, problem).hint("ask again"))
    }

    /// Writes what is owed; `false`: the rules are others by now.
    async fn try_deliveries(
        &self,
        conn: &mut PgConnection,
        settle: &Settle,
        owed: &Owed,
    ) -> Result<bool, sqlx::Error> {
        let mut parts: Vec<&[(i64, i32, EndpointId)]> =
            owed.deliveries.chunks(DELIVERIES).collect();
        if parts.is_empty() {
            // The rules by which nothing is owed may be others, too.
            parts.push(&[]);
        }
        for part in parts {
            let query = self.webhook().fan_out.query();
            let query = bind_deliveries(query, settle, owed.rules, part);
            if !get::<bool>(&query.fetch_one(&mut *conn).await?, 0)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn bind_deliveries<'q>(
    query: Sql<'q>,
    settle: &'q Settle,
    rules: Option<i64>,
    part: &'q [(i64, i32, EndpointId)],
) -> Sql<'q> {
    let ids: Vec<i64> = part.iter().map(|(id, ..)| *id).collect();
    let numbers: Vec<i32> = part.iter().map(|(_, number, _)| *number).collect();
    let names: Vec<&str> = part.iter().map(|(.., name)| name.as_str()).collect();
    query
        .bind(moment(settle.now))
        .bind(settle.token.expose())
        .bind(rules)
        .bind(ids)
        .bind(numbers)
        .bind(names)
}

/// The calls of a settle as they are written down: those of what was refused as superseded.
fn superseded<'a>(calls: &'a [Call], ended: &Ended) -> Cow<'a, [Call]> {
    let is_refused = |call: &Call| ended.is_refused(call.delivery);
    if !calls.iter().any(is_refused) {
        return Cow::Borrowed(calls);
    }
    let mut calls = calls.to_vec();
    for call in &mut calls {
        if is_refused(call) {
            call.outcome = AttemptOutcome::Superseded;
        }
    }
    Cow::Owned(calls)
}

fn subscriptions(rows: &[PgRow]) -> Result<Subscriptions, StoreError> {
    let failed = |error| store_error("settle", error);
    let first = rows.first().ok_or(sqlx::Error::RowNotFound);
    let rules = first.and_then(|row| get(row, 0)).map_err(failed)?;
    let mut endpoints = Vec::new();
    for row in rows {
        let Some(id) = get::<Option<&str>>(row, 1).map_err(failed)? else {
            continue;
        };
        let settings = get(row, 3).map_err(failed)?;
        // Not left out: what is owed to it would be lost.
        let settings = EndpointSettings::from_json(settings);
        let settings = settings.map_err(|problem| unreadable_endpoint(id, &problem))?;
        let name = EndpointId::new(id).map_err(|problem| unreadable_endpoint(id, &problem))?;
        endpoints.push((name, get(row, 2).map_err(failed)?, settings));
    }
    Ok(Subscriptions { rules, endpoints })
}

/// An endpoint that was stored by a stranger, or by a newer program.
pub(crate) fn unreadable_endpoint(id: &str, problem: &Invalid) -> StoreError {
    let message = format!("the endpoint {id:?} cannot be read: {problem}");
    StoreError::new("endpoints", StoreErrorKind::Corrupt, message)
        .hint("change it anew, or use a newer `tenure`")
}

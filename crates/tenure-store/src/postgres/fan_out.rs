//! Fan-out: the deliveries of done events, and the settle that also writes calls or deliveries.
//!
//! The rules are the topics and states of the endpoints; they have a version. The store caches the
//! subscriptions with it. A settle without deliveries is one statement, which does nothing if the
//! rules have changed; then the store reloads them and retries. A settle with deliveries or calls
//! is a transaction: settle, calls, deliveries, commit.
//!
//! The settle does not lock the endpoints: otherwise a change of an endpoint would wait for all
//! running settles. The rules in force when the deliveries are written decide.

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
use super::pool::Borrow as _;
use super::queue::Sql;
use super::row::{get, moment};
use super::session::RunOn as _;
use super::settle::{SettleEffect, whole_and_done};

/// Maximum deliveries per statement.
const DELIVERIES: usize = 10_000;
/// Maximum attempts to write the deliveries of a settle while the rules change.
const TRIES: u32 = 100;

/// Cached endpoints and their subscriptions.
#[derive(Debug)]
pub(crate) struct Subscriptions {
    /// Version of the rules.
    rules: i64,
    endpoints: Vec<(EndpointId, i32, EndpointSettings)>,
}

/// Deliveries that a settle creates under one version of the rules.
#[derive(Debug, Default)]
pub(crate) struct PendingDeliveries {
    /// `None`: the settle creates no deliveries under any rules.
    pub(crate) rules: Option<i64>,
    /// Event id, endpoint number and endpoint name; sorted by the first two.
    deliveries: Vec<(i64, i32, EndpointId)>,
}

impl Subscriptions {
    fn pending(&self, fan_out: &[(ItemId, String)]) -> PendingDeliveries {
        let mut takers: HashMap<&str, Vec<usize>> = HashMap::new();
        let mut deliveries = Vec::new();
        for (id, topic) in fan_out {
            let takers = takers.entry(topic).or_insert_with(|| self.takers(topic));
            let endpoints = takers.iter().filter_map(|nth| self.endpoints.get(*nth));
            deliveries
                .extend(endpoints.map(|(name, number, _)| (id.number(), *number, name.clone())));
        }
        deliveries.sort_by_key(|(id, number, _)| (*id, *number));
        PendingDeliveries {
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

impl PendingDeliveries {
    pub(crate) fn is_nothing(&self) -> bool {
        self.deliveries.is_empty()
    }
}

impl PostgresStore {
    /// Returns the deliveries of this settle according to the cached subscriptions; loads these if
    /// none are cached.
    pub(crate) async fn pending(&self, settle: &Settle) -> Result<PendingDeliveries, StoreError> {
        if settle.fan_out.is_empty() {
            return Ok(PendingDeliveries::default());
        }
        let known = self.subscriptions.read();
        let known = known.unwrap_or_else(PoisonError::into_inner).clone();
        let subscriptions = if let Some(known) = known {
            known
        } else {
            let query = self.webhook().subscriptions.query();
            let rows = query.all_from(&self.pool).await;
            self.remember(&rows.map_err(|error| store_error("settle", error))?)?
        };
        Ok(subscriptions.pending(&settle.fan_out))
    }

    /// Clears the cache after a change of the rules; the next settle reloads them.
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

    /// Settles and writes calls and deliveries in one transaction.
    pub(crate) async fn settle_with(
        &self,
        settle: &Settle,
        pending: PendingDeliveries,
    ) -> Result<Settlement, StoreError> {
        let lent = self.pool.borrow().await;
        let mut lent = lent.map_err(|error| store_error("settle", error))?;
        let ended = self.settle_on(lent.connection(), settle, pending).await;
        lent.give_back(&ended);
        self.settlement(settle, ended?).await
    }

    async fn settle_on(
        &self,
        conn: &mut PgConnection,
        settle: &Settle,
        pending: PendingDeliveries,
    ) -> Result<SettleEffect, StoreError> {
        let failed = |error| store_error("settle", error);
        let mut tx = conn
            .begin_with(self.pool.begin_text())
            .await
            .map_err(failed)?;
        let ended = self.end_holds(&mut tx, settle).await.map_err(failed)?;
        if !settle.calls.is_empty() {
            let calls = superseded(&settle.calls, &ended);
            // Deliveries that this transaction settled are known to exist.
            let named: HashSet<ItemId> = settle.items.iter().map(|(id, _)| *id).collect();
            let is_ended = |call: &Call| named.contains(&call.delivery);
            let is_there = matches!(calls, Cow::Borrowed(_)) && calls.iter().all(is_ended);
            let query = self.webhook().record_calls.query();
            let query = super::webhooks::bind_calls(query, &calls, settle.now).bind(is_there);
            query.rows_on(&mut tx).await.map_err(failed)?;
        }
        if !settle.fan_out.is_empty() {
            self.write_deliveries(&mut tx, settle, pending).await?;
        }
        tx.commit().await.map_err(failed)?;
        Ok(ended)
    }

    /// Ends the leases: with the fast form if possible, otherwise with the general one.
    async fn end_holds(
        &self,
        conn: &mut PgConnection,
        settle: &Settle,
    ) -> Result<SettleEffect, sqlx::Error> {
        if let Some(ids) = whole_and_done(settle) {
            let query = self.statements().settle_done_and_claim.query();
            let query = query
                .bind(moment(settle.now))
                .bind(settle.token.expose())
                .bind(ids)
                .bind(None::<i64>);
            let rows = bind_no_claim(query).rows_on(conn).await?;
            if let Some(ended) = SettleEffect::whole(&rows)? {
                return Ok(ended);
            }
        }
        if settle.items.is_empty() && settle.rest == Rest::Keep {
            return Ok(SettleEffect::default());
        }
        let query = self.statements().settle.query();
        let query = super::settle::bind_settle(query, settle, None);
        SettleEffect::each(&query.rows_on(conn).await?)
    }

    async fn write_deliveries(
        &self,
        conn: &mut PgConnection,
        settle: &Settle,
        mut pending: PendingDeliveries,
    ) -> Result<(), StoreError> {
        let failed = |error| store_error("settle", error);
        for _ in 0..TRIES {
            if self
                .try_deliveries(conn, settle, &pending)
                .await
                .map_err(failed)?
            {
                return Ok(());
            }
            let query = self.webhook().subscriptions.query();
            let rows = query.rows_on(conn).await.map_err(failed)?;
            pending = self.remember(&rows)?.pending(&settle.fan_out);
        }
        let problem = "the endpoints were changed at the same time, again and again";
        Err(StoreError::new("settle", StoreErrorKind::Conflict, problem).with_hint("try again"))
    }

    /// Writes the deliveries; `false`: the rules have changed.
    async fn try_deliveries(
        &self,
        conn: &mut PgConnection,
        settle: &Settle,
        pending: &PendingDeliveries,
    ) -> Result<bool, sqlx::Error> {
        let mut parts: Vec<&[(i64, i32, EndpointId)]> =
            pending.deliveries.chunks(DELIVERIES).collect();
        if parts.is_empty() {
            // Run the statement even without deliveries: it checks the version of the rules.
            parts.push(&[]);
        }
        for part in parts {
            let query = self.webhook().fan_out.query();
            let query = bind_deliveries(query, settle, pending.rules, part);
            if !get::<bool>(&query.row_on(conn).await?, 0)? {
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

/// Returns the calls to record; those of refused items get the outcome `Superseded`.
fn superseded<'a>(calls: &'a [Call], ended: &SettleEffect) -> Cow<'a, [Call]> {
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
        // Fail instead of skipping the endpoint: its deliveries would be lost.
        let settings = EndpointSettings::from_json(settings);
        let settings = settings.map_err(|problem| unreadable_endpoint(id, &problem))?;
        let name = EndpointId::new(id).map_err(|problem| unreadable_endpoint(id, &problem))?;
        endpoints.push((name, get(row, 2).map_err(failed)?, settings));
    }
    Ok(Subscriptions { rules, endpoints })
}

/// Error for an endpoint that another program, or a newer version of this one, stored.
pub(crate) fn unreadable_endpoint(id: &str, problem: &Invalid) -> StoreError {
    let message = format!("the endpoint {id:?} cannot be read: {problem}");
    StoreError::new("endpoints", StoreErrorKind::Corrupt, message)
        .with_hint("change it anew, or use a newer `tenure`")
}

//! The ordering keys of the outbox.

use std::collections::HashMap;

use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection};
use tenure_core::store::{
    Answer, Bury, DomainFacts, DomainFilter, DomainRecord, Domains, Operate as _, Pause, Skip,
    StoreError, StoreErrorKind,
};
use tenure_core::{Guarded, ItemId, Record, Refusal, Timestamp};

use super::PostgresStore;
use super::error::store_error;
use super::lend::Lent;
use super::operate::{BURY_PAUSE, BURY_TRIES, Turn};
use super::prune::BEGIN;
use super::row::{get, get_moment, get_timestamp, get_total, moment};
use crate::error_text::{CHARACTERS_MAX, error_text};
use crate::limits::micros;
use crate::page::page_limit;

impl Domains for PostgresStore {
    fn domains(&self, filter: DomainFilter, limit: u32) -> Answer<'_, Vec<DomainRecord>> {
        Box::pin(async move { self.read_domains(filter, limit, None).await })
    }

    fn domain<'a>(&'a self, key: &'a str) -> Answer<'a, Option<DomainRecord>> {
        Box::pin(async move {
            let found = self.read_domains(DomainFilter::Open, 1, Some(key)).await?;
            // Nothing is known of a key without a row and without anything that waits.
            Ok(found
                .into_iter()
                .find(|domain| domain.since.is_some() || domain.waiting > 0))
        })
    }

    fn pause_domain<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        Box::pin(async move {
            if pause == Pause::End {
                let query = self.statements().resume_domain.query();
                let query = query.bind(moment(None)).bind(key);
                self.fetch("resume domain", query).await?;
                return self.place_all(None).await;
            }
            let lent = Lent::from(self.pool()).await;
            let mut lent = lent.map_err(|error| store_error("pause domain", error))?;
            // After an error the connection is closed, and its transaction with it.
            let paused = self.begin_pause(lent.connection(), key).await;
            paused.map_err(|error| store_error("pause domain", error))?;
            lent.give_back();
            Ok(())
        })
    }

    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        Box::pin(async move {
            for _ in 0..BURY_TRIES {
                // A bell that nobody has answered may be that of the head.
                self.place_all(skip.now).await?;
                if let Some(answer) = self.try_skip(skip).await? {
                    return Ok(answer);
                }
                // Whoever has the row locked tells nobody when he lets go.
                tokio::time::sleep(BURY_PAUSE).await;
            }
            let problem = "the head of the domain was changed at the same time";
            Err(StoreError::new("skip", StoreErrorKind::Conflict, problem).hint("ask again"))
        })
    }
}

impl PostgresStore {
    /// Two statements: the second one must see the head that was made before it got the lock.
    async fn begin_pause(&self, conn: &mut PgConnection, key: &str) -> Result<(), sqlx::Error> {
        let mut tx = conn.begin_with(BEGIN).await?;
        let statements = self.statements();
        for statement in [&statements.lock_domain, &statements.pause_domain] {
            let query = statement.query().bind(moment(None)).bind(key);
            query.execute(&mut *tx).await?;
        }
        tx.commit().await
    }

    /// Goes on without the head; `None`: it has changed since it was looked at.
    async fn try_skip(&self, skip: &Skip) -> Result<Option<Guarded<ItemId>>, StoreError> {
        let rows = self.domain_rows(false, 1, Some(&skip.key)).await?;
        let row = rows.first().map(DomainRow::read).transpose();
        let Some(row) = row.map_err(|error| store_error("skip", error))? else {
            return Ok(Some(Guarded::Refused(Refusal::NotFound)));
        };
        let Some(head) = row.head else {
            let is_rung = row.facts.waiting > 0 && !row.facts.is_paused;
            // Whoever answers the bells this moment makes a head.
            return Ok((!is_rung).then_some(Guarded::Refused(Refusal::NotFound)));
        };
        if !skip.is_meant(head) {
            return Ok(Some(Guarded::Refused(Refusal::Lost)));
        }
        if row.facts.is_blocked {
            let note = skip.note(skip.now.unwrap_or(row.now));
            let is_left = self.leave_behind(skip, head, &note).await?;
            return Ok(is_left.then_some(Guarded::Kept(head)));
        }
        let mut bury = Bury::new(head, skip.token.clone(), skip.reason.clone());
        bury.now = skip.now;
        let is_buried = self.try_bury(&bury, Turn::Head).await?;
        Ok(is_buried.then_some(Guarded::Kept(head)))
    }

    /// Goes on without the dead head that blocks a domain, and writes down who said so; `false`: it
    /// blocks nothing any more.
    async fn leave_behind(
        &self,
        skip: &Skip,
        head: ItemId,
        note: &str,
    ) -> Result<bool, StoreError> {
        let query = self.statements().skip_blocked.query();
        let query = query
            .bind(moment(skip.now))
            .bind(&skip.key)
            .bind(head.number())
            .bind(error_text(note))
            .bind(Skip::BEFORE)
            .bind(i32::from(CHARACTERS_MAX));
        let rows = self.fetch("skip", query).await?;
        self.cursors().drop_all();
        Ok(!rows.is_empty())
    }

    async fn domain_rows(
        &self,
        is_stuck: bool,
        limit: u32,
        key: Option<&str>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let query = self.statements().domains.query();
        let query = query
            .bind(is_stuck)
            .bind(i64::from(page_limit(limit)))
            .bind(key)
            .bind(i64::try_from(DomainRecord::WAITING_MAX).unwrap_or(i64::MAX))
            .bind(micros(DomainFilter::LONG));
        self.fetch("domains", query).await
    }

    async fn read_domains(
        &self,
        filter: DomainFilter,
        limit: u32,
        key: Option<&str>,
    ) -> Result<Vec<DomainRecord>, StoreError> {
        let rows = self
            .domain_rows(filter == DomainFilter::Stuck, limit, key)
            .await?;
        let rows: Result<Vec<_>, _> = rows.iter().map(DomainRow::read).collect();
        let rows = rows.map_err(|error| store_error("domains", error))?;
        let heads: Vec<ItemId> = rows.iter().filter_map(|row| row.head).collect();
        let records = self.find(&heads).await?;
        let mut records: HashMap<ItemId, Record> = records
            .into_iter()
            .map(|record| (record.id, record))
            .collect();
        Ok(rows
            .into_iter()
            .map(|row| {
                let head = row.head.and_then(|id| records.remove(&id));
                DomainFacts { head, ..row.facts }.record(row.now)
            })
            .collect())
    }
}

/// A domain as its statement tells it: the head by its id, and the moment.
struct DomainRow {
    head: Option<ItemId>,
    now: Timestamp,
    facts: DomainFacts,
}

impl DomainRow {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            head: get::<Option<i64>>(row, 1)?.map(ItemId::new),
            now: get_timestamp(row, 6)?,
            facts: DomainFacts {
                key: get(row, 0)?,
                since: get_moment(row, 2)?,
                head: None,
                is_blocked: get(row, 3)?,
                is_paused: get(row, 4)?,
                waiting: get_total(row, 5)?,
            },
        })
    }
}

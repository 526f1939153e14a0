//! The ordering keys of the outbox.

use std::collections::HashMap;

use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection};
use tenure_core::store::{
    Answer, Bury, KeyFacts, KeyFilter, KeyRecord, Keys, Operate as _, Pause, Skip, StoreError,
    StoreErrorKind,
};
use tenure_core::{Guarded, ItemId, Record, Refusal, Timestamp};

use super::PostgresStore;
use super::error::store_error;
use super::operate::{BURY_PAUSE, BURY_TRIES, BuryScope};
use super::row::{get, get_moment, get_timestamp, get_total, moment};
use super::session::RunOn as _;
use crate::error_text::{CHARACTERS_MAX, error_text};
use crate::limits::micros;
use crate::page::page_limit;

impl Keys for PostgresStore {
    fn keys(&self, filter: KeyFilter, limit: u32) -> Answer<'_, Vec<KeyRecord>> {
        Box::pin(async move { self.read_keys(filter, limit, None).await })
    }

    fn blocked_keys<'a>(
        &'a self,
        after: Option<&'a str>,
        limit: u32,
    ) -> Answer<'a, Vec<(String, ItemId)>> {
        Box::pin(async move {
            let query = self.statements().blocked_keys.query();
            let query = query.bind(after).bind(i64::from(page_limit(limit)));
            let rows = self.fetch("blocked keys", query).await?;
            let read = |row: &PgRow| Ok((get(row, 0)?, ItemId::new(get(row, 1)?)));
            let keys: Result<_, sqlx::Error> = rows.iter().map(read).collect();
            keys.map_err(|error| store_error("blocked keys", error))
        })
    }

    fn key<'a>(&'a self, key: &'a str) -> Answer<'a, Option<KeyRecord>> {
        Box::pin(async move {
            let found = self.read_keys(KeyFilter::Open, 1, Some(key)).await?;
            // A key without a row and without waiting items does not exist.
            Ok(found
                .into_iter()
                .find(|key| key.since.is_some() || key.waiting > 0))
        })
    }

    fn pause_key<'a>(&'a self, key: &'a str, pause: Pause) -> Answer<'a, ()> {
        Box::pin(async move {
            if pause == Pause::End {
                let query = self.statements().resume_key.query();
                let query = query.bind(moment(None)).bind(key);
                self.fetch("resume key", query).await?;
                return self.promote_all(None).await;
            }
            let lent = self.pool.borrow().await;
            let mut lent = lent.map_err(|error| store_error("pause key", error))?;
            let paused = self.begin_pause(lent.connection(), key).await;
            lent.give_back(&paused);
            paused.map_err(|error| store_error("pause key", error))
        })
    }

    fn skip<'a>(&'a self, skip: &'a Skip) -> Answer<'a, Guarded<ItemId>> {
        Box::pin(async move {
            for _ in 0..BURY_TRIES {
                // Promote first: the head may still be in the backlog, with a pending arrival.
                self.promote_all(skip.now).await?;
                if let Some(answer) = self.try_skip(skip).await? {
                    return Ok(answer);
                }
                // There is no notification when the row lock is released, so poll.
                tokio::time::sleep(BURY_PAUSE).await;
            }
            let problem = "the head of the key was changed at the same time";
            Err(StoreError::new("skip", StoreErrorKind::Conflict, problem).with_hint("try again"))
        })
    }
}

impl PostgresStore {
    /// Locks the key, then pauses it, in two statements: the second must see a head that was
    /// created before the lock was acquired.
    async fn begin_pause(&self, conn: &mut PgConnection, key: &str) -> Result<(), sqlx::Error> {
        let mut tx = conn.begin_with(self.pool.begin_text()).await?;
        let statements = self.statements();
        for statement in [&statements.lock_key, &statements.pause_key] {
            let query = statement.query().bind(moment(None)).bind(key);
            query.rows_on(&mut tx).await?;
        }
        tx.commit().await
    }

    /// Skips the head; `None`: it has changed since it was read, or is being promoted.
    async fn try_skip(&self, skip: &Skip) -> Result<Option<Guarded<ItemId>>, StoreError> {
        let rows = self.key_rows(false, 1, Some(&skip.key)).await?;
        let row = rows.first().map(KeyRow::read).transpose();
        let Some(row) = row.map_err(|error| store_error("skip", error))? else {
            return Ok(Some(Guarded::Refused(Refusal::NotFound)));
        };
        let Some(head) = row.head else {
            let gets_head = row.facts.waiting > 0 && !row.facts.is_paused;
            // Retry if the key is about to get a head: another connection is promoting it.
            return Ok((!gets_head).then_some(Guarded::Refused(Refusal::NotFound)));
        };
        if !skip.is_meant(head) {
            return Ok(Some(Guarded::Refused(Refusal::Lost)));
        }
        if row.facts.is_blocked {
            let note = skip.note(skip.now.unwrap_or(row.now));
            let is_left = self.leave_behind(skip, head, &note).await?;
            return Ok(is_left.then_some(Guarded::Accepted(head)));
        }
        let mut bury = Bury::new(head, skip.token.clone(), skip.reason.clone());
        bury.now = skip.now;
        let is_buried = self.try_bury(&bury, BuryScope::Head).await?;
        Ok(is_buried.then_some(Guarded::Accepted(head)))
    }

    /// Skips the dead head that blocks a key and records the operator's note; `false`: the head no
    /// longer blocks the key.
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

    async fn key_rows(
        &self,
        is_stuck: bool,
        limit: u32,
        key: Option<&str>,
    ) -> Result<Vec<PgRow>, StoreError> {
        let query = self.statements().keys.query();
        let query = query
            .bind(is_stuck)
            .bind(i64::from(page_limit(limit)))
            .bind(key)
            .bind(i64::try_from(KeyRecord::WAITING_MAX).unwrap_or(i64::MAX))
            .bind(micros(KeyFilter::LONG));
        self.fetch("keys", query).await
    }

    async fn read_keys(
        &self,
        filter: KeyFilter,
        limit: u32,
        key: Option<&str>,
    ) -> Result<Vec<KeyRecord>, StoreError> {
        let rows = self
            .key_rows(filter == KeyFilter::Stuck, limit, key)
            .await?;
        let rows: Result<Vec<_>, _> = rows.iter().map(KeyRow::read).collect();
        let rows = rows.map_err(|error| store_error("keys", error))?;
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
                KeyFacts { head, ..row.facts }.record(row.now)
            })
            .collect())
    }
}

/// A row of `keys.sql`: the id of the head, the time of the query and the facts of the key.
struct KeyRow {
    head: Option<ItemId>,
    now: Timestamp,
    facts: KeyFacts,
}

impl KeyRow {
    fn read(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            head: get::<Option<i64>>(row, 1)?.map(ItemId::new),
            now: get_timestamp(row, 6)?,
            facts: KeyFacts {
                name: get(row, 0)?,
                since: get_moment(row, 2)?,
                head: None,
                is_blocked: get(row, 3)?,
                is_paused: get(row, 4)?,
                waiting: get_total(row, 5)?,
            },
        })
    }
}

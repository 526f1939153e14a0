//! Find, list, count, replay, bury.

use std::collections::HashSet;

use sqlx::postgres::PgRow;
use tenure_core::store::{
    Answer, Bury, Counts, Filter, Operate, Page, QueueCounts, Replay, Replayed, StoreError,
};
use tenure_core::{
    Content, Counters, Fence, Guarded, ItemId, PastHold, QueueName, Record, State, Timestamp,
};

use super::super::pool::Borrow as _;
use super::{PostgresRows, numbers};
use crate::error_text::error_text;
use crate::page::{cut, in_order, page_limit};
use crate::postgres::row::{get, get_count, get_moment, get_timestamp, get_total, moment};
use crate::refusal_reason::{bury_refusal, replay_answers};
use crate::rows::{hold_of, state_of};

impl Operate for PostgresRows {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        Box::pin(self.find_rows("find", ids))
    }

    fn timeline(&self, _id: ItemId) -> Answer<'_, Vec<PastHold>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        Box::pin(async move {
            let limit = page_limit(limit);
            // One extra row tells whether there is a next page.
            let ids = self.page_ids(filter, limit + 1).await;
            let (ids, next) = cut(ids.map_err(|e| self.error("list", e))?, limit);
            Ok(Page {
                records: self.find_rows("list", &ids).await?,
                next,
            })
        })
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        Box::pin(async move {
            let row = self.statements.count.query().bind(moment(now));
            let row = row.first_from(&self.pool).await;
            let row = row.and_then(|row| row.ok_or(sqlx::Error::RowNotFound));
            let row = row.map_err(|e| self.error("count", e))?;
            counts_of(&row).map_err(|e| self.error("count", e))
        })
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        Box::pin(async move {
            let failed = |e| self.error("replay", e);
            let rows = self
                .statements
                .replay
                .query()
                .bind(moment(replay.now))
                .bind(numbers(&replay.ids))
                .all_from(&self.pool)
                .await
                .map_err(failed)?;
            let back: Result<HashSet<ItemId>, _> = rows
                .iter()
                .map(|row| get(row, 0).map(ItemId::new))
                .collect();
            let back = back.map_err(failed)?;
            let asked = replay.ids.iter().copied();
            let refused: Vec<ItemId> = asked.filter(|id| !back.contains(id)).collect();
            // A replay has no token; an empty one matches no holder.
            let positions = self.look("replay", ("", ""), &refused).await?;
            Ok(replay_answers(&replay.ids, back, &positions))
        })
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        Box::pin(async move {
            let buried = self
                .statements
                .bury
                .query()
                .bind(moment(bury.now))
                .bind(bury.token.expose())
                .bind(bury.id.number())
                .bind(error_text(&bury.reason))
                .first_from(&self.pool)
                .await
                .map_err(|e| self.error("bury", e))?;
            if buried.is_some() {
                return Ok(Guarded::Accepted(()));
            }
            let positions = self.look("bury", ("", ""), &[bury.id]).await?;
            bury_refusal(bury.id, positions.get(&bury.id))
        })
    }
}

impl PostgresRows {
    async fn page_ids(&self, filter: &Filter, limit: u32) -> Result<Vec<ItemId>, sqlx::Error> {
        let last = filter
            .before
            .map_or(i64::MAX, |id| id.number().saturating_sub(1));
        let rows = self
            .statements
            .page
            .query()
            .bind(filter.state.map(State::as_str))
            .bind(moment(filter.since))
            .bind(last)
            .bind(i64::from(limit))
            .all_from(&self.pool)
            .await?;
        rows.iter()
            .map(|row| get(row, 0).map(ItemId::new))
            .collect()
    }

    async fn find_rows(
        &self,
        verb: &'static str,
        ids: &[ItemId],
    ) -> Result<Vec<Record>, StoreError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let failed = |e| self.error(verb, e);
        let query = self.statements.find.query().bind(numbers(ids));
        let rows = query.all_from(&self.pool).await.map_err(failed)?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let state: Option<&str> = get(row, 1).map_err(failed)?;
            let state = state_of(verb, &self.table, state)?;
            found.push(record_of(row, state).map_err(failed)?);
        }
        Ok(in_order(ids, found))
    }
}

fn record_of(row: &PgRow, state: State) -> Result<Record, sqlx::Error> {
    let fence = Fence::new(get(row, 10)?);
    let times = (get_moment(row, 11)?, get_moment(row, 12)?);
    Ok(Record {
        id: ItemId::new(get(row, 0)?),
        state,
        content: Content::Row(get(row, 2)?),
        counters: Counters {
            attempts: get_count(row, 3)?,
            failures: get_count(row, 4)?,
            crashes: get_count(row, 5)?,
            generation: get_count(row, 6)?,
        },
        created_at: get_timestamp(row, 7)?,
        available_at: get_moment(row, 8)?,
        hold: hold_of(state, get(row, 9)?, fence, times),
        last_error: get(row, 13)?,
        done_at: get_moment(row, 14)?,
        dead_at: get_moment(row, 15)?,
        dead_reason: None,
    })
}

fn counts_of(row: &PgRow) -> Result<Counts, sqlx::Error> {
    let now = get_timestamp(row, 7)?;
    let waiting = QueueCounts {
        behind: 0,
        due: get_total(row, 0)?,
        delayed: get_total(row, 1)?,
        oldest_due: get_moment(row, 2)?.map(|from| now.since(from)),
    };
    Ok(Counts {
        queues: vec![(QueueName::default(), waiting)],
        claimed: get_total(row, 3)?,
        lapsed: get_total(row, 4)?,
        done: get_total(row, 5)?,
        dead: get_total(row, 6)?,
        ..Counts::default()
    })
}

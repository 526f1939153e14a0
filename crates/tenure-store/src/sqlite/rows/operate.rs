//! Find, list, count, replay, bury.

use std::collections::HashSet;

use rusqlite::{Connection, Row, named_params};
use tenure_core::store::{
    Answer, Bury, Counts, Filter, Operate, Page, QueueCounts, Replay, Replayed, StoreError,
};
use tenure_core::{Guarded, ItemId, PastHold, QueueName, Record, State, Timestamp};

use super::row::corrupt;
use super::{RowTable, SqliteRows, json_ids};
use crate::error_text::error_text;
use crate::page::{cut, in_order, page_limit};
use crate::refusal_reason::{bury_refusal, replay_answers};

impl Operate for SqliteRows {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        Box::pin(async move {
            let ids = ids.to_vec();
            self.read("find", move |table_state, conn| {
                table_state.find(conn, "find", &ids)
            })
            .await
        })
    }

    fn timeline(&self, _id: ItemId) -> Answer<'_, Vec<PastHold>> {
        Box::pin(async { Ok(Vec::new()) })
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        Box::pin(async move {
            let filter = filter.clone();
            self.read("list", move |table_state, conn| {
                table_state.list(conn, &filter, limit)
            })
            .await
        })
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        Box::pin(async move {
            let now = self.moment(now);
            self.read("count", move |table_state, conn| {
                table_state.count(conn, now)
            })
            .await
        })
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        Box::pin(async move {
            let (given, ids) = (replay.now, replay.ids.clone());
            self.write("replay", given, move |table_state, conn, now| {
                table_state.replay(conn, &ids, now)
            })
            .await
        })
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        Box::pin(async move {
            let (given, bury) = (bury.now, bury.clone());
            self.write("bury", given, move |table_state, conn, now| {
                table_state.bury(conn, &bury, now)
            })
            .await
        })
    }
}

impl RowTable {
    fn find(
        &self,
        conn: &Connection,
        verb: &'static str,
        ids: &[ItemId],
    ) -> Result<Vec<Record>, StoreError> {
        let ask = self.ask(conn, verb);
        let params = named_params! {":ids": json_ids(ids)};
        let shape = ask.shape()?;
        let rows = ask.rows("find", "find", params, |row| self.record(verb, row, &shape))?;
        let found = rows.into_iter().collect::<Result<Vec<Record>, _>>()?;
        Ok(in_order(ids, found))
    }

    fn list(&self, conn: &Connection, filter: &Filter, limit: u32) -> Result<Page, StoreError> {
        let ask = self.ask(conn, "list");
        let limit = page_limit(limit);
        // Read one more than requested, to know if there is a next page.
        let params = named_params! {
            ":state": filter.state.map(State::as_str),
            ":since": filter.since.map(Timestamp::as_micros),
            ":last": filter.before.map_or(i64::MAX, |id| id.number().saturating_sub(1)),
            ":limit": limit + 1,
        };
        let ids = ask.rows("page", "page", params, |row| row.get(0).map(ItemId::new))?;
        let (ids, next) = cut(ids, limit);
        Ok(Page {
            records: self.find(conn, "list", &ids)?,
            next,
        })
    }

    fn count(&self, conn: &Connection, now: Timestamp) -> Result<Counts, StoreError> {
        let ask = self.ask(conn, "count");
        let params = named_params! {":now": now.as_micros()};
        let counts = ask.rows("count", "count", params, |row| {
            let oldest: Option<i64> = row.get(2)?;
            let waiting = QueueCounts {
                behind: 0,
                due: total(row, 0)?,
                delayed: total(row, 1)?,
                oldest_due: oldest.map(|from| now.since(Timestamp::from_micros(from))),
            };
            Ok(Counts {
                queues: vec![(QueueName::default(), waiting)],
                claimed: total(row, 3)?,
                lapsed: total(row, 4)?,
                done: total(row, 5)?,
                dead: total(row, 6)?,
                ..Counts::default()
            })
        })?;
        Ok(counts.into_iter().next().unwrap_or_default())
    }

    fn replay(
        &self,
        conn: &Connection,
        ids: &[ItemId],
        now: Timestamp,
    ) -> Result<Replayed, StoreError> {
        let ask = self.ask(conn, "replay");
        let params = named_params! {":now": now.as_micros(), ":ids": json_ids(ids)};
        let back = ask.rows("replay", "replay", params, |row| {
            row.get(0).map(ItemId::new)
        })?;
        let back: HashSet<ItemId> = back.into_iter().collect();
        let asked = ids.iter().copied();
        let refused: Vec<ItemId> = asked.filter(|id| !back.contains(id)).collect();
        // A replay has no token; an empty one matches no lease.
        let positions = ask.look(("", ""), &refused)?;
        Ok(replay_answers(ids, back, &positions))
    }

    fn bury(&self, conn: &Connection, bury: &Bury, now: Timestamp) -> Result<Guarded, StoreError> {
        let ask = self.ask(conn, "bury");
        let id = bury.id.number();
        let pending: Option<bool> = ask.value("bury", "pending", named_params! {":id": id})?;
        let fence: Option<i64> = match pending {
            Some(true) => {
                let drawn = ask.value("bury", "fence", [])?;
                Some(drawn.ok_or_else(|| corrupt("bury", "the table tenure_fence is empty"))?)
            }
            _ => None,
        };
        let params = named_params! {
            ":now": now.as_micros(),
            ":token": bury.token.expose(),
            ":id": id,
            ":why": error_text(&bury.reason),
            ":fence": fence,
        };
        let buried: Option<i64> = ask.value("bury", "bury", params)?;
        if buried.is_some() {
            return Ok(Guarded::Accepted(()));
        }
        let positions = ask.look(("", ""), &[bury.id])?;
        bury_refusal(bury.id, positions.get(&bury.id))
    }
}

/// Reads a number of rows.
fn total(row: &Row<'_>, index: usize) -> rusqlite::Result<u64> {
    Ok(u64::try_from(row.get::<_, i64>(index)?).unwrap_or(0))
}

//! Changes row by row: a row that the table rejects does not stop the others.

use std::collections::HashSet;

use rusqlite::{ErrorCode, named_params};
use serde_json::json;
use tenure_core::store::{Reap, Settle, StoreError};
use tenure_core::{Boundary, ItemId, Lateness, OutcomeKind, Timestamp};

use super::{VerbContext, json_ids};
use crate::limits::micros;
use crate::rows::SettleColumns;
use crate::sqlite::error::failed;

/// A reaped row: its id, its new state, and when it may be claimed.
pub(super) type EndedRow = (i64, Option<String>, Option<i64>);

/// The ended rows, and the rejected ones with the error.
type EndedRows = (HashSet<ItemId>, Vec<(ItemId, String)>);

/// The way in which a settle ends its rows. One statement covers the common case, in which all rows
/// are done, but does not show which row the table rejected.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum EndMode {
    AtOnce,
    OneByOne,
}

impl VerbContext<'_> {
    /// Ends rows; `None` if one statement for all was requested but failed.
    pub(super) fn end(
        &self,
        settle: &Settle,
        said: &[SettleColumns],
        now: Timestamp,
        way: EndMode,
    ) -> Result<Option<EndedRows>, StoreError> {
        let is_done = said
            .iter()
            .all(|one| one.word == OutcomeKind::Done.as_str());
        if way == EndMode::OneByOne || said.len() == 1 || !is_done {
            return self.end_each(settle, said, now).map(Some);
        }
        let ids: Vec<ItemId> = said.iter().map(|one| ItemId::new(one.id)).collect();
        let is_whole = self.end_done(settle, &ids, now)?;
        Ok(is_whole.then(|| (ids.into_iter().collect(), Vec::new())))
    }

    /// Ends these rows as done; returns true if it ended all of them.
    fn end_done(
        &self,
        settle: &Settle,
        ids: &[ItemId],
        now: Timestamp,
    ) -> Result<bool, StoreError> {
        let text = self.of_many("settle_done", "settle_done", self.shape()?.as_ref())?;
        let run = || {
            self.conn.prepare_cached(&text)?.execute(named_params! {
                ":now": now.as_micros(),
                ":token": settle.token.expose(),
                ":holder": settle.token.holder(),
                ":ids": json_ids(ids),
                ":strict": settle.lateness == Lateness::Refuse,
            })
        };
        match run() {
            Ok(changed) => Ok(changed == ids.len()),
            Err(error) if is_refused(&error) => Ok(false),
            Err(error) => Err(self.error(error)),
        }
    }

    /// Ends each row with its own statement: SQLite might run a join of the table and the outcomes
    /// in the wrong order and compare every row with every outcome. A rejected row is reported with
    /// its error; if it is the only row, the whole settle fails.
    fn end_each(
        &self,
        settle: &Settle,
        said: &[SettleColumns],
        now: Timestamp,
    ) -> Result<EndedRows, StoreError> {
        let text = self.table_state.statements.get("settle", "settle")?;
        let prepared = self.conn.prepare_cached(text);
        let mut statement = prepared.map_err(|error| self.error(error))?;
        let (mut ended, mut refused) = (HashSet::with_capacity(said.len()), Vec::new());
        for one in said {
            let id = ItemId::new(one.id);
            let changed = statement.execute(named_params! {
                ":now": now.as_micros(),
                ":token": settle.token.expose(),
                ":holder": settle.token.holder(),
                ":id": one.id,
                ":word": one.word,
                ":delay": one.delay,
                ":error": one.error,
                ":strict": settle.lateness == Lateness::Refuse,
            });
            match changed {
                Ok(0) => {}
                Ok(_) => drop(ended.insert(id)),
                Err(error) if is_refused(&error) && said.len() > 1 => {
                    refused.push((id, failed(self.verb)(error).to_string()));
                }
                Err(error) => return Err(self.error(error)),
            }
        }
        Ok((ended, refused))
    }

    /// Reaps these rows with one statement, or one by one if the table rejects one of them.
    pub(super) fn reap_some(
        &self,
        reap: &Reap,
        ids: &[ItemId],
        now: Timestamp,
    ) -> Result<(Vec<EndedRow>, Option<StoreError>), StoreError> {
        let error = match self.reap_these(reap, ids, now)? {
            Ok(ended) => return Ok((ended, None)),
            Err(error) => error,
        };
        if let [id] = ids {
            return Ok((Vec::new(), Some(error.with_item(*id))));
        }
        let (mut all, mut last) = (Vec::new(), None);
        for id in ids {
            match self.reap_these(reap, &[*id], now)? {
                Ok(ended) => all.extend(ended),
                Err(error) => last = Some(error.with_item(*id)),
            }
        }
        Ok((all, last))
    }

    /// Reaps these rows. The inner error means that the table rejected a row: nothing was changed.
    fn reap_these(
        &self,
        reap: &Reap,
        ids: &[ItemId],
        now: Timestamp,
    ) -> Result<Result<Vec<EndedRow>, StoreError>, StoreError> {
        let text = self.table_state.statements.get("reap", "reap")?;
        let delays: Vec<i64> = reap.policy.delays().iter().map(|d| micros(*d)).collect();
        let run = || -> rusqlite::Result<Vec<EndedRow>> {
            let mut statement = self.conn.prepare_cached(text)?;
            let params = named_params! {
                ":now": now.as_micros(),
                ":reached": reap.boundary == Boundary::Reached,
                ":ids": json_ids(ids),
                ":delays": json!(delays).to_string(),
                ":budget": reap.policy.max_crashes(),
            };
            let rows =
                statement.query_map(params, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
            rows.collect()
        };
        match run() {
            Err(error) if is_refused(&error) => Ok(Err(failed(self.verb)(error))),
            answer => answer.map(Ok).map_err(|error| self.error(error)),
        }
    }
}

/// Returns true if a constraint of the table was violated.
fn is_refused(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

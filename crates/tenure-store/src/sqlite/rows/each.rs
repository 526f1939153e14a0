//! Row by row: a row that the table itself refuses does not stop the others.

use std::collections::HashSet;

use rusqlite::{ErrorCode, named_params};
use serde_json::json;
use tenure_core::store::{Reap, Settle, StoreError};
use tenure_core::{Boundary, ItemId, Lateness, Timestamp};

use super::{Ask, json_ids};
use crate::limits::micros;
use crate::rows::Said;
use crate::sqlite::error::failed;

/// A row that was reaped: its id, its state now, and when it may be claimed.
pub(super) type EndedRow = (i64, Option<String>, Option<i64>);

/// What was ended, and what cannot be, and why.
type Ended = (HashSet<ItemId>, Vec<(ItemId, String)>);

impl Ask<'_> {
    /// Ends rows, each by itself: a join of the table with what is said of it may be carried out
    /// the wrong way round, every row of the one with every row of the other. One that the table
    /// refuses is told; if it is the only one, as an error.
    pub(super) fn end(
        &self,
        settle: &Settle,
        said: &[Said],
        now: Timestamp,
    ) -> Result<Ended, StoreError> {
        let text = self.desk.statements.get("settle", "settle")?;
        let prepared = self.conn.prepare_cached(text);
        let mut statement = prepared.map_err(failed(self.verb))?;
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
                Err(error) => return Err(failed(self.verb)(error)),
            }
        }
        Ok((ended, refused))
    }

    /// Reaps these rows at once, or one by one if the table refuses one of them.
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
            return Ok((Vec::new(), Some(error.item(*id))));
        }
        let (mut all, mut last) = (Vec::new(), None);
        for id in ids {
            match self.reap_these(reap, &[*id], now)? {
                Ok(ended) => all.extend(ended),
                Err(error) => last = Some(error.item(*id)),
            }
        }
        Ok((all, last))
    }

    /// The inner error is a refusal of the table: nothing was changed.
    fn reap_these(
        &self,
        reap: &Reap,
        ids: &[ItemId],
        now: Timestamp,
    ) -> Result<Result<Vec<EndedRow>, StoreError>, StoreError> {
        let text = self.desk.statements.get("reap", "reap")?;
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
            answer => answer.map(Ok).map_err(failed(self.verb)),
        }
    }
}

/// Whether a constraint of the table was broken; the statement then changed nothing.
fn is_refused(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
}

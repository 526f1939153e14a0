//! Row by row: the fallback when the table rejects one row of several, so that this row does not
//! block the others.

use tenure_core::store::{Reap, Rest, Settle, StoreError};
use tenure_core::{Boundary, ItemId};

use super::super::pool::Borrow as _;
use super::PostgresRows;
use crate::postgres::error::{is_refused, store_error};
use crate::postgres::row::{get, moment};
use crate::rows::ReapedRows;

/// Ids of ended rows, whether the term was over, and the rows that failed with their errors.
type EndedRows = (Vec<i64>, bool, Vec<(ItemId, String)>);

impl PostgresRows {
    /// Ends the named rows one by one. If one of them fails, the rest stays held: the outcome of
    /// the rest must not apply to the failed row.
    pub(super) async fn end_each(&self, settle: &Settle) -> Result<EndedRows, StoreError> {
        let (mut all, mut is_late, mut failed) = (Vec::new(), false, Vec::new());
        for (id, outcome) in &settle.items {
            let one = Settle {
                items: vec![(*id, outcome.clone())],
                rest: Rest::Keep,
                ..settle.clone()
            };
            match self.end(&one).await {
                Ok((ended, late)) => {
                    all.extend(ended);
                    is_late |= late;
                }
                Err(error) if is_refused(&error) => {
                    failed.push((*id, store_error("settle", error).to_string()));
                }
                Err(error) => return Err(self.error("settle", error)),
            }
        }
        if settle.rest != Rest::Keep && failed.is_empty() {
            let rest = Settle {
                items: Vec::new(),
                ..settle.clone()
            };
            let ended = self.end(&rest).await;
            let (ended, late) = ended.map_err(|e| self.error("settle", e))?;
            all.extend(ended);
            is_late |= late;
        }
        Ok((all, is_late, failed))
    }

    /// Reaps lapsed rows one by one.
    pub(super) async fn reap_each(&self, reap: &Reap) -> Result<ReapedRows, StoreError> {
        let failed = |e| self.error("reap", e);
        let lapsed = self
            .statements
            .lapsed
            .query()
            .bind(moment(reap.now))
            .bind(i64::from(reap.limit))
            .bind(reap.boundary == Boundary::Reached)
            .all_from(&self.pool)
            .await
            .map_err(failed)?;
        let mut all = ReapedRows::default();
        for row in &lapsed {
            let id: i64 = get(row, 0).map_err(failed)?;
            match self.ask_reap(reap, Some(id)).await {
                Ok(rows) => all.rows.extend(self.reaped(&rows)?),
                Err(error) if is_refused(&error) => {
                    all.failed = Some(failed(error).with_item(ItemId::new(id)));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(all)
    }
}

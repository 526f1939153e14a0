//! Row by row: what is done when the table itself refuses one row of several, so that it does not
//! stop the others.

use tenure_core::store::{Reap, Rest, Settle, StoreError};
use tenure_core::{Boundary, ItemId};

use super::super::lend::Borrow as _;
use super::PostgresRows;
use crate::postgres::error::{is_refused, store_error};
use crate::postgres::row::{get, moment};
use crate::rows::ReapedRows;

/// The ids that were ended, whether the term was over, and what cannot be ended.
type Ended = (Vec<i64>, bool, Vec<(ItemId, String)>);

impl PostgresRows {
    /// Ends named rows one by one. While one of them cannot be ended, the rest stays held: nobody
    /// said what is to become of that one.
    pub(super) async fn end_each(&self, settle: &Settle) -> Result<Ended, StoreError> {
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

    /// Reaps one by one what has lapsed.
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
                    all.failed = Some(failed(error).item(ItemId::new(id)));
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(all)
    }
}

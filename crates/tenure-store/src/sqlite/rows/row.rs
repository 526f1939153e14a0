//! Converts rows of a lease table to core types.

use rusqlite::Row;
use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{Content, Counters, Fence, Identifier, ItemId, Record, Timestamp};

use super::RowTable;
use super::layout::{content, content_columns};
use super::shape::Shape;
use crate::rows::{hold_of, state_of};

/// The answer column with the state; the colon keeps it apart from the columns of the table.
const STATE: &str = ":state";

impl RowTable {
    /// Reads the whole record of a row; the inner error: its columns match no state.
    pub(super) fn record(
        &self,
        verb: &'static str,
        row: &Row<'_>,
        shape: &Shape,
    ) -> rusqlite::Result<Result<Record, StoreError>> {
        let columns = &self.table.columns;
        let state: Option<String> = row.get(STATE)?;
        let state = match state_of(verb, &self.table, state.as_deref()) {
            Ok(state) => state,
            Err(error) => return Ok(Err(error)),
        };
        let fence = Fence::new(get(row, &columns.fence)?);
        let times = (
            moment(row, &columns.claimed_at)?,
            moment(row, &columns.until)?,
        );
        let secrets = [
            columns.token.as_str(),
            columns.settled_token.as_str(),
            STATE,
        ];
        Ok(Ok(Record {
            id: ItemId::new(get(row, &self.table.key)?),
            state,
            content: Content::Row(content(
                |place| row.get_ref(place),
                &content_columns(row, &secrets, shape),
            )?),
            counters: self.counters(row)?,
            created_at: Timestamp::from_micros(get(row, &self.table.created_at)?),
            available_at: moment(row, &columns.available_at)?,
            hold: hold_of(state, get(row, &columns.holder)?, fence, times),
            last_error: get(row, &columns.last_error)?,
            done_at: moment(row, &columns.done_at)?,
            dead_at: moment(row, &columns.dead_at)?,
            dead_reason: None,
        }))
    }

    fn counters(&self, row: &Row<'_>) -> rusqlite::Result<Counters> {
        let columns = &self.table.columns;
        Ok(Counters {
            attempts: get(row, &columns.attempts)?,
            failures: get(row, &columns.failures)?,
            crashes: get(row, &columns.crashes)?,
            generation: get(row, &columns.generation)?,
        })
    }
}

fn get<T: rusqlite::types::FromSql>(row: &Row<'_>, column: &Identifier) -> rusqlite::Result<T> {
    row.get(column.as_str())
}

fn moment(row: &Row<'_>, column: &Identifier) -> rusqlite::Result<Option<Timestamp>> {
    Ok(get::<Option<i64>>(row, column)?.map(Timestamp::from_micros))
}

/// Builds an error of the kind `Corrupt`.
pub(super) fn corrupt(verb: &'static str, problem: &str) -> StoreError {
    StoreError::new(verb, StoreErrorKind::Corrupt, problem)
}

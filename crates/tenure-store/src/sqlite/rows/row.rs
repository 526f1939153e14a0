//! Rows of a lease table as the words of the core.

use rusqlite::Row;
use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{Content, Counters, Fence, Identifier, ItemId, Record, Timestamp};

use super::Desk;
use super::layout::{content, shown};
use super::shape::Shape;
use crate::rows::{hold_of, state_of};

/// The column of an answer that says the state; no column of a table can have this name.
const STATE: &str = ":state";

impl Desk {
    /// Everything that is known of a row; the inner result is about a word that is none.
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
                &shown(row, &secrets, shape),
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

/// A verb that found what no claim of ours can have written.
pub(super) fn corrupt(verb: &'static str, problem: &str) -> StoreError {
    StoreError::new(verb, StoreErrorKind::Corrupt, problem)
}

//! Rows of a lease table as the words of the core.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rusqlite::Row;
use rusqlite::types::ValueRef;
use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{
    Content, Counters, Fence, Identifier, Item, ItemId, Lease, Record, Timestamp, Token,
};

use super::Desk;
use crate::rows::{hold_of, state_of};

/// The column of an answer that says the state; no column of a table can have this name.
const STATE: &str = ":state";

/// A claimed row, read whole: the item, and the lease that it shares with the others.
pub(super) struct Claimed {
    pub(super) item: Item,
    pub(super) lease: Lease,
}

impl Desk {
    pub(super) fn claimed(&self, row: &Row<'_>, token: &Token) -> rusqlite::Result<Claimed> {
        let columns = &self.table.columns;
        let available_at: Option<i64> = get(row, &columns.available_at)?;
        let created_at: i64 = get(row, &self.table.created_at)?;
        Ok(Claimed {
            item: Item {
                id: ItemId::new(get(row, &self.table.key)?),
                content: Content::Row(self.content(row, &self.lease_columns())?),
                available_at: Timestamp::from_micros(available_at.unwrap_or(created_at)),
                counters: self.counters(row)?,
            },
            lease: Lease {
                token: token.clone(),
                fence: Fence::new(get(row, &columns.fence)?),
                claimed_at: Timestamp::from_micros(get(row, &columns.claimed_at)?),
                until: Timestamp::from_micros(get(row, &columns.until)?),
            },
        })
    }

    /// Everything that is known of a row; the inner result is about a word that is none.
    pub(super) fn record(
        &self,
        verb: &'static str,
        row: &Row<'_>,
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
            content: Content::Row(self.content(row, &secrets)?),
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

    fn lease_columns(&self) -> [&str; 13] {
        self.table.lease_facts().map(|(_, column)| column.as_str())
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

    /// The row as a JSON object, without these columns. What was declared as JSON stands in it as
    /// such, other text as a string, bytes as a string in base64.
    fn content(&self, row: &Row<'_>, without: &[&str]) -> rusqlite::Result<String> {
        let mut parts = Vec::new();
        for (index, name) in row.as_ref().column_names().into_iter().enumerate() {
            if without.contains(&name) {
                continue;
            }
            let value = match row.get_ref(index)? {
                ValueRef::Null => "null".to_owned(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Real(number) => serde_json::Value::from(number).to_string(),
                ValueRef::Text(bytes) => {
                    let text = String::from_utf8_lossy(bytes);
                    if self.json_columns.contains(name) && is_json(&text) {
                        text.into_owned()
                    } else {
                        serde_json::Value::from(text).to_string()
                    }
                }
                ValueRef::Blob(bytes) => serde_json::Value::from(BASE64.encode(bytes)).to_string(),
            };
            parts.push(format!("{}:{value}", serde_json::Value::from(name)));
        }
        Ok(format!("{{{}}}", parts.join(",")))
    }
}

fn is_json(text: &str) -> bool {
    serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
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

//! Rows of a lease table as the words of the core.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rusqlite::Row;
use rusqlite::types::{Type, ValueRef};
use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{Content, Counters, Fence, Identifier, Item, ItemId, Record, State, Timestamp};

use super::Desk;
use crate::rows::{hold_of, state_of};

/// The column of an answer that says the state; no column of a table can have this name.
const STATE: &str = ":state";
/// Room for a row as JSON, which spares most rows being moved as they grow.
const CONTENT_USUAL: usize = 512;

/// Where the columns of an answer stand: looked up once for all of its rows.
pub(super) struct Layout {
    key: usize,
    created_at: usize,
    available_at: usize,
    counters: [usize; 4],
    shown: Vec<Shown>,
}

/// A column that is part of a row's content.
struct Shown {
    place: usize,
    /// Its name as JSON, with the colon.
    label: String,
    /// It was declared to hold JSON.
    is_json: bool,
    /// What it will hold when the row is claimed, as JSON, if that is something else.
    claimed: Option<String>,
}

impl Desk {
    /// The layout of the rows of a claim.
    pub(super) fn layout(&self, row: &Row<'_>) -> rusqlite::Result<Layout> {
        let place = |column: &Identifier| row.as_ref().column_index(column.as_str());
        let columns = &self.table.columns;
        let lease = self.table.lease_facts().map(|(_, column)| column.as_str());
        Ok(Layout {
            key: place(&self.table.key)?,
            created_at: place(&self.table.created_at)?,
            available_at: place(&columns.available_at)?,
            counters: [
                place(&columns.attempts)?,
                place(&columns.failures)?,
                place(&columns.crashes)?,
                place(&columns.generation)?,
            ],
            shown: self.claimed_as(self.shown(row, &lease)),
        })
    }

    /// The columns as a claim leaves them: it is read before, and writes a status.
    fn claimed_as(&self, mut shown: Vec<Shown>) -> Vec<Shown> {
        let status = self.table.states.status().map(|status| {
            let word = status.words.word(State::Claimed).as_str();
            (label(status.column.as_str()), serde_json::Value::from(word))
        });
        for column in &mut shown {
            let word = status.as_ref().filter(|(label, _)| *label == column.label);
            column.claimed = word.map(|(_, word)| word.to_string());
        }
        shown
    }

    /// The columns of an answer, without these.
    fn shown(&self, row: &Row<'_>, without: &[&str]) -> Vec<Shown> {
        let names = row.as_ref().column_names().into_iter().enumerate();
        names
            .filter(|(_, name)| !without.contains(name))
            .map(|(place, name)| Shown {
                place,
                label: label(name),
                is_json: self.json_columns.contains(name),
                claimed: None,
            })
            .collect()
    }
}

impl Layout {
    /// A row that is to be claimed.
    pub(super) fn item(&self, row: &Row<'_>) -> rusqlite::Result<Item> {
        let available_at: Option<i64> = row.get(self.available_at)?;
        let created_at: i64 = row.get(self.created_at)?;
        let [attempts, failures, crashes, generation] = self.counters;
        Ok(Item {
            id: ItemId::new(row.get(self.key)?),
            content: Content::Row(content(row, &self.shown)?),
            available_at: Timestamp::from_micros(available_at.unwrap_or(created_at)),
            counters: Counters {
                attempts: row.get(attempts)?,
                failures: row.get(failures)?,
                crashes: row.get(crashes)?,
                generation: row.get(generation)?,
            },
        })
    }
}

impl Desk {
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
            content: Content::Row(content(row, &self.shown(row, &secrets))?),
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

/// These columns of a row as a JSON object. What was declared as JSON stands in it as such, other
/// text as a string, bytes as a string in base64.
fn content(row: &Row<'_>, shown: &[Shown]) -> rusqlite::Result<String> {
    let mut json = Vec::with_capacity(CONTENT_USUAL);
    for (nth, column) in shown.iter().enumerate() {
        json.push(if nth == 0 { b'{' } else { b',' });
        json.extend_from_slice(column.label.as_bytes());
        if let Some(claimed) = &column.claimed {
            json.extend_from_slice(claimed.as_bytes());
            continue;
        }
        let written = match row.get_ref(column.place)? {
            ValueRef::Null => serde_json::to_writer(&mut json, &()),
            ValueRef::Integer(number) => serde_json::to_writer(&mut json, &number),
            ValueRef::Real(number) => serde_json::to_writer(&mut json, &number),
            ValueRef::Text(bytes) => {
                let text = std::str::from_utf8(bytes)
                    .map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
                if column.is_json && is_json(&text) {
                    json.extend_from_slice(text.as_bytes());
                    Ok(())
                } else {
                    serde_json::to_writer(&mut json, &text)
                }
            }
            ValueRef::Blob(bytes) => serde_json::to_writer(&mut json, &BASE64.encode(bytes)),
        };
        written.map_err(unreadable)?;
    }
    if shown.is_empty() {
        json.push(b'{');
    }
    json.push(b'}');
    String::from_utf8(json).map_err(unreadable)
}

/// The name of a column in a row that is told as JSON.
fn label(column: &str) -> String {
    format!("{}:", serde_json::Value::from(column))
}

/// A row that cannot be told as JSON.
fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
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

//! The columns that a claim reads from a row, and the JSON built from them.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rusqlite::Row;
use rusqlite::types::{Type, ValueRef};
use tenure_core::{LeaseTable, State};

use super::shape::{Column, Shape};

/// Initial capacity for a row as JSON; most rows fit without a reallocation.
const CONTENT_USUAL: usize = 512;

/// The columns that a claim reads, and their positions in the answer.
#[derive(Debug)]
pub(super) struct Layout {
    pub(super) key: usize,
    pub(super) created_at: usize,
    pub(super) available_at: usize,
    pub(super) counters: [usize; 4],
    content_columns: Vec<ContentColumn>,
    /// The columns in order of position, quoted for a statement.
    read: Vec<String>,
}

/// A column that is part of a row's content.
#[derive(Debug)]
pub(super) struct ContentColumn {
    /// The name as JSON, with the colon.
    label: String,
    value: Value,
}

/// The source of a column's value in the content.
#[derive(Debug)]
enum Value {
    /// The value at this position of an answer.
    At {
        place: usize,
        /// The column was declared to hold JSON.
        is_json: bool,
    },
    /// The same JSON for all rows.
    Always(String),
}

impl Layout {
    /// Builds the layout of the rows that a claim takes from this table. The claim reads them
    /// before its update, and returns them as they are after it.
    pub(super) fn new(table: &LeaseTable, columns: &[Column]) -> Self {
        let lease = table.lease_facts().map(|(_, column)| column.as_str());
        let status = table.states.status();
        let mut read = Vec::new();
        let mut place = |quoted: String| {
            let known = read.iter().position(|one| *one == quoted);
            known.unwrap_or_else(|| {
                read.push(quoted);
                read.len() - 1
            })
        };
        let facts = &table.columns;
        let counters = [
            &facts.attempts,
            &facts.failures,
            &facts.crashes,
            &facts.generation,
        ];
        let (key, created_at) = (place(table.key.quoted()), place(table.created_at.quoted()));
        let available_at = place(facts.available_at.quoted());
        let counters = counters.map(|counter| place(counter.quoted()));
        let own = columns
            .iter()
            .filter(|one| !lease.contains(&one.name.as_str()));
        let content_columns = own.map(|column| {
            let status = status.filter(|status| status.column.as_str() == column.name);
            let value = match status.map(|status| status.words.word(State::Claimed)) {
                Some(word) => Value::Always(serde_json::Value::from(word.as_str()).to_string()),
                None => Value::At {
                    place: place(column.quoted.clone()),
                    is_json: column.is_json,
                },
            };
            ContentColumn {
                label: label(&column.name),
                value,
            }
        });
        Self {
            content_columns: content_columns.collect(),
            key,
            created_at,
            available_at,
            counters,
            read,
        }
    }

    /// The columns to read, as a statement names them.
    pub(super) fn columns(&self) -> String {
        let columns = self.read.iter().map(|column| format!("t.{column}"));
        columns.collect::<Vec<_>>().join(", ")
    }

    /// Number of columns to read.
    pub(super) fn width(&self) -> usize {
        self.read.len()
    }

    /// Encodes the row with these values, given by position.
    pub(super) fn content<'a>(
        &self,
        value: impl Fn(usize) -> rusqlite::Result<ValueRef<'a>>,
    ) -> rusqlite::Result<String> {
        content(value, &self.content_columns)
    }
}

/// Returns the columns of an answer, except those in `without`.
pub(super) fn content_columns(
    row: &Row<'_>,
    without: &[&str],
    shape: &Shape,
) -> Vec<ContentColumn> {
    let names = row.as_ref().column_names().into_iter().enumerate();
    names
        .filter(|(_, name)| !without.contains(name))
        .map(|(place, name)| ContentColumn {
            label: label(name),
            value: Value::At {
                place,
                is_json: shape.json_columns.contains(name),
            },
        })
        .collect()
}

/// Encodes these columns of a row as a JSON object. A column declared as JSON is embedded as such,
/// other text becomes a string, and bytes become a base64 string.
pub(super) fn content<'a>(
    value: impl Fn(usize) -> rusqlite::Result<ValueRef<'a>>,
    content_columns: &[ContentColumn],
) -> rusqlite::Result<String> {
    let mut json = Vec::with_capacity(CONTENT_USUAL);
    for (nth, column) in content_columns.iter().enumerate() {
        json.push(if nth == 0 { b'{' } else { b',' });
        json.extend_from_slice(column.label.as_bytes());
        let (place, is_json) = match &column.value {
            Value::At { place, is_json } => (*place, *is_json),
            Value::Always(same) => {
                json.extend_from_slice(same.as_bytes());
                continue;
            }
        };
        let written = match value(place)? {
            ValueRef::Null => serde_json::to_writer(&mut json, &()),
            ValueRef::Integer(number) => serde_json::to_writer(&mut json, &number),
            ValueRef::Real(number) => serde_json::to_writer(&mut json, &number),
            ValueRef::Text(bytes) => {
                let text = std::str::from_utf8(bytes)
                    .map_or_else(|_| String::from_utf8_lossy(bytes), Cow::Borrowed);
                if is_json && holds_json(&text) {
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
    if content_columns.is_empty() {
        json.push(b'{');
    }
    json.push(b'}');
    String::from_utf8(json).map_err(unreadable)
}

/// Encodes a column name as a JSON object key.
fn label(column: &str) -> String {
    format!("{}:", serde_json::Value::from(column))
}

/// The error for a row that cannot be encoded as JSON.
fn unreadable(error: impl std::error::Error + Send + Sync + 'static) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(0, Type::Text, Box::new(error))
}

fn holds_json(text: &str) -> bool {
    serde_json::from_str::<&serde_json::value::RawValue>(text).is_ok()
}

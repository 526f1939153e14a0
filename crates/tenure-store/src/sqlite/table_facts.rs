//! Facts about a table to adopt, and about an adopted one.

use rusqlite::{Connection, Row, named_params};
use serde_json::json;
use tenure_core::store::StoreError;
use tenure_core::{ColumnFacts, Holds, Identifier, IndexFacts, LeaseTable, TableFacts, TableKind};

use super::checks::{checks, names_collation};
use super::error::failed;
use crate::adopt::ownership::{TableOwnership, needed};
use crate::adopt::{VERB, names};

/// Marks an added column in the `create table` text, after its type. The mark is the name of a
/// constraint: SQLite drops it with the column, and every copy of the database has it.
pub(super) const MARK: &str = "constraint tenure_added";

/// Possible types of added columns.
const TYPES: [&str; 3] = ["integer", "text", "smallint"];

macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../../sql/sqlite/adopt/", $name, ".sql"))
    };
}

/// Inspects a table to adopt.
pub(super) fn table_facts(conn: &Connection, table: &LeaseTable) -> Result<TableFacts, StoreError> {
    let mut found = shape(conn, table).map_err(failed(VERB))?;
    if found.kind != TableKind::Table {
        return Ok(found);
    }
    if let Some(status) = table.states.status() {
        let is_there = found.column(status.column.as_str()).is_some();
        let word = if is_there {
            format!("cast(t.{} as text)", status.column.quoted())
        } else {
            "null".to_owned()
        };
        let text = names(table, None)?.with("word", word);
        let text = text.render("words", text!("words"))?;
        let words = words(conn, &text).map_err(failed(VERB))?;
        found.has_rows = !words.is_empty();
        if is_there {
            found.words = words;
            judge(conn, table, &status.column, &mut found)?;
        }
    }
    if found.column("tenure_id").is_some() {
        let text = names(table, None)?.render("unnumbered", text!("unnumbered"))?;
        let ask = conn.query_row(&text, [], |row| row.get(0));
        found.has_unnumbered = ask.map_err(failed(VERB))?;
    }
    Ok(found)
}

/// Tests if the check constraints on the status allow every word. A constraint that refers to other
/// columns, or cannot be evaluated without a row, is reported for the operator to review.
fn judge(
    conn: &Connection,
    table: &LeaseTable,
    status: &Identifier,
    found: &mut TableFacts,
) -> Result<(), StoreError> {
    let name = named_params! {":table": table.name.as_str()};
    let made = conn.query_row(text!("made"), name, |row| row.get(0));
    let made: String = made.map_err(failed(VERB))?;
    let words = table.states.status().map(|status| status.words.all());
    let words = json!(words.unwrap_or_default()).to_string();
    let others = found.columns.iter().map(|column| column.name.as_str());
    let others: Vec<String> = others
        .filter(|name| !name.eq_ignore_ascii_case(status.as_str()))
        .chain(["tenure other"])
        .map(|name| format!("null as \"{}\"", name.replace('"', "\"\"")))
        .collect();
    for check in checks(&made) {
        if !check.mentions(status.as_str()) {
            continue;
        }
        let text = names(table, None)?
            .with("others", others.join(", "))
            .with("check", check.asks)
            .render("allows", text!("allows"))?;
        let refused = refused(conn, &text, &words).ok();
        match refused.filter(|_| !names_collation(&made)) {
            Some(words) => {
                let words = words.into_iter();
                let told = words.map(|word| (check.name.clone(), word));
                found.refused.extend(told);
            }
            None => found.checks.push(check.name),
        }
    }
    Ok(())
}

fn refused(conn: &Connection, text: &str, words: &str) -> rusqlite::Result<Vec<String>> {
    let mut statement = conn.prepare(text)?;
    let refused = statement.query_map(named_params! {":words": words}, |row| row.get(0))?;
    refused.collect()
}

fn shape(conn: &Connection, table: &LeaseTable) -> rusqlite::Result<TableFacts> {
    let name = table.name.as_str();
    let mut statement = conn.prepare_cached(text!("look"))?;
    let mut rows = statement.query(named_params! {":table": name})?;
    let mut found = TableFacts::missing();
    while let Some(row) = rows.next()? {
        let is_rowless: bool = row.get(1)?;
        found.kind = match row.get_ref(0)?.as_str()? {
            "table" if is_rowless => TableKind::Rowless,
            "table" => TableKind::Table,
            "view" => TableKind::View,
            _ => TableKind::Other,
        };
        let declared: String = row.get(3)?;
        found.columns.push(ColumnFacts {
            name: row.get(2)?,
            holds: holds(&declared),
            declared,
            is_nullable: row.get(4)?,
            is_unique: row.get(5)?,
            is_generated: row.get(6)?,
        });
    }
    let mut statement = conn.prepare_cached(text!("parts"))?;
    let needed = json!(needed(table, "adopted")).to_string();
    let mut parts = statement.query(named_params! {":table": name, ":names": needed})?;
    while let Some(row) = parts.next()? {
        let name = row.get(1)?;
        match row.get_ref(0)?.as_str()? {
            "index" => found.indexes.push(IndexFacts {
                name,
                is_valid: true,
            }),
            _ => found.taken.push(name),
        }
    }
    Ok(found)
}

fn words(conn: &Connection, text: &str) -> rusqlite::Result<Vec<(Option<String>, u64)>> {
    let mut statement = conn.prepare(text)?;
    let word = |row: &Row<'_>| {
        let rows: i64 = row.get(1)?;
        Ok((row.get(0)?, u64::try_from(rows).unwrap_or_default()))
    };
    let words = statement.query_map([], word)?;
    words.collect()
}

/// Reads the current parts of a recorded table: its `create table` text, columns and indexes.
pub(super) fn ownership_of(row: &Row<'_>, at: usize) -> rusqlite::Result<TableOwnership> {
    let made: Option<String> = row.get(at)?;
    let list = |at: usize| -> rusqlite::Result<Vec<String>> {
        let text: String = row.get(at)?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    };
    let text = made.as_deref().unwrap_or_default();
    let (marked, unmarked) = list(at + 1)?
        .into_iter()
        .partition(|column| bears_mark(text, column));
    Ok(TableOwnership {
        leads_to: made.is_some().then(|| "main".to_owned()),
        is_kept: false,
        marked,
        unmarked,
        indexes: list(at + 2)?,
    })
}

fn bears_mark(made: &str, column: &str) -> bool {
    let mut written = TYPES.iter();
    written.any(|kind| made.contains(&format!("\"{column}\" {kind} {MARK} ")))
}

/// Returns the values that a column of this type can hold, by SQLite's affinity rules.
fn holds(declared: &str) -> Holds {
    let declared = declared.to_ascii_uppercase();
    let names = |parts: &[&str]| parts.iter().any(|part| declared.contains(part));
    if names(&["INT"]) {
        Holds::Number
    } else if names(&["CHAR", "CLOB", "TEXT"]) {
        Holds::Text(None)
    } else {
        Holds::Other
    }
}

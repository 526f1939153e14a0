//! What SQLite says of a table that is to be adopted, and of one that was.

use rusqlite::{Connection, Row, named_params};
use serde_json::json;
use tenure_core::store::StoreError;
use tenure_core::{FoundColumn, FoundIndex, FoundKind, FoundTable, Holds, Identifier, LeaseTable};

use super::checks::{checks, names_collation};
use super::error::failed;
use crate::adopt::{VERB, names};
use crate::marks::{Seen, needed};

/// What stands in the text of a table behind the type of a column that is ours. It is the name of a
/// constraint: it goes with the column, and every copy of the database has it.
pub(super) const MARK: &str = "constraint tenure_added";

/// The types of added columns.
const TYPES: [&str; 3] = ["integer", "text", "smallint"];

macro_rules! text {
    ($name:literal) => {
        include_str!(concat!("../../sql/sqlite/adopt/", $name, ".sql"))
    };
}

/// What is known of a table that is to be adopted.
pub(super) fn found(conn: &Connection, table: &LeaseTable) -> Result<FoundTable, StoreError> {
    let mut found = shape(conn, table).map_err(failed(VERB))?;
    if found.kind != FoundKind::Table {
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

/// Whether the check constraints on the status allow every word. One that knows other columns, too,
/// or that cannot be asked without a row, is left for a person to judge.
fn judge(
    conn: &Connection,
    table: &LeaseTable,
    status: &Identifier,
    found: &mut FoundTable,
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

fn shape(conn: &Connection, table: &LeaseTable) -> rusqlite::Result<FoundTable> {
    let name = table.name.as_str();
    let mut statement = conn.prepare_cached(text!("look"))?;
    let mut rows = statement.query(named_params! {":table": name})?;
    let mut found = FoundTable::missing();
    while let Some(row) = rows.next()? {
        let is_rowless: bool = row.get(1)?;
        found.kind = match row.get_ref(0)?.as_str()? {
            "table" if is_rowless => FoundKind::Rowless,
            "table" => FoundKind::Table,
            "view" => FoundKind::View,
            _ => FoundKind::Other,
        };
        let declared: String = row.get(3)?;
        found.columns.push(FoundColumn {
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
            "index" => found.indexes.push(FoundIndex {
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

/// What a recorded table is made of now: the text that makes it, its columns, and its indexes.
pub(super) fn seen_of(row: &Row<'_>, at: usize) -> rusqlite::Result<Seen> {
    let made: Option<String> = row.get(at)?;
    let list = |at: usize| -> rusqlite::Result<Vec<String>> {
        let text: String = row.get(at)?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    };
    let text = made.as_deref().unwrap_or_default();
    let (marked, unmarked) = list(at + 1)?
        .into_iter()
        .partition(|column| bears_mark(text, column));
    Ok(Seen {
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

/// What a column of this type can hold, by the rules of the database's own.
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

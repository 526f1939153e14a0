//! Adoption of a user's table, shared by both databases: types of added columns, the record of the
//! adoption, and the texts of its steps.

pub(crate) mod ownership;

use serde_json::{Value, json};
use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{
    Adds, AdoptedTable, Identifier, Indexes, LeaseTable, Plan, PlannedIndex, TableLocation,
    TableMap, Timestamp,
};

use crate::render::Names;

/// Name of the operation in errors.
pub(crate) const VERB: &str = "adopt";

/// Table that records adoptions.
const TABLES: &str = "tenure_tables";

/// Types of added columns. Adding such a column rewrites no row.
pub(crate) struct Kinds {
    pub(crate) key: &'static str,
    pub(crate) moment: &'static str,
    pub(crate) written_at: String,
    pub(crate) counter: &'static str,
    pub(crate) fence: &'static str,
    /// Text after the type that marks the column as Tenure's (SQLite).
    pub(crate) mark: Option<&'static str>,
}

impl Kinds {
    /// Definition of an added column.
    pub(crate) fn column(&self, column: &Identifier, what: &Adds) -> String {
        let kind = match what {
            Adds::Key => self.key.to_owned(),
            Adds::Moment => self.moment.to_owned(),
            Adds::WrittenAt => self.written_at.clone(),
            Adds::Text => "text".to_owned(),
            Adds::Counter => self.counter.to_owned(),
            Adds::Fence => self.fence.to_owned(),
            Adds::Order => "smallint not null default 0".to_owned(),
            Adds::Status(word) => format!("text not null default {}", word.quoted()),
        };
        let Some(mark) = self.mark else {
            return format!("{} {kind}", column.quoted());
        };
        let (kind, rest) = kind.split_once(' ').unwrap_or((&kind, "default null"));
        format!("{} {kind} {mark} {rest}", column.quoted())
    }
}

/// Returns the names for statements on a table and on its record.
pub(crate) fn names(table: &LeaseTable, schema: Option<&Identifier>) -> Result<Names, StoreError> {
    let tables = match schema {
        Some(schema) => format!("{}.{TABLES}", schema.quoted()),
        None => TABLES.to_owned(),
    };
    let sequence = table.index_name("tenure_id_seq");
    let trigger = table.index_name("adopted");
    Ok(Names::of(table, schema)?
        .with("tables", tables)
        .with("name", literal(table.name.as_str()))
        .with("key_sequence", sequence.quoted())
        .with("trigger", trigger.quoted()))
}

/// Adds what the record of the adoption contains to the names.
pub(crate) fn noted(names: Names, plan: &Plan) -> Names {
    let columns: Vec<&str> = plan
        .adds
        .iter()
        .map(|added| added.column.as_str())
        .collect();
    let indexes: Vec<&str> = plan
        .indexes
        .iter()
        .map(|index| index.name.as_str())
        .collect();
    let added = json!({"columns": columns, "indexes": indexes, "schema": plan.schema});
    let description = json!(plan.table.map());
    names
        .with("description", literal(&description.to_string()))
        .with("added", literal(&added.to_string()))
}

/// Adds the parts of the statement that creates an index to the names.
///
/// # Errors
/// The description of the table is not valid.
pub(crate) fn indexed(names: Names, index: &PlannedIndex) -> Result<Names, StoreError> {
    let (columns, condition) = match index.what {
        Indexes::Key => ("{key}", ""),
        Indexes::Claimable => ("{order_index}", "where {bare_pending}"),
        Indexes::Alone => ("{order_index}", "where {bare_pending} and {crashes} >= 2"),
        Indexes::Claimed => ("{token}", "where {bare_claimed}"),
    };
    let columns = names.render("index", columns)?.trim().to_owned();
    let condition = match names.render("index", condition)?.trim() {
        "" => String::new(),
        condition => format!("\n{condition}"),
    };
    let kind = match index.what {
        Indexes::Key => "unique index",
        Indexes::Claimable | Indexes::Alone | Indexes::Claimed => "index",
    };
    Ok(names
        .with("kind_of_index", kind.to_owned())
        .with("index", index.name.quoted())
        .with("index_columns", columns)
        .with("index_where", condition))
}

/// A text as an SQL literal.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// Reads the record of an adoption.
///
/// # Errors
/// The record is not valid; another program wrote it.
pub(crate) fn adopted_of(
    name: &str,
    (description, added): (&str, &str),
    is_finished: bool,
    adopted_at: Timestamp,
) -> Result<AdoptedTable, StoreError> {
    let unreadable = || {
        let problem = format!("the record of the adoption of {name} is not valid");
        StoreError::new(VERB, StoreErrorKind::Corrupt, problem)
            .with_hint("restore the row of tenure_tables, or delete it and adopt the table anew")
    };
    let said: TableMap = serde_json::from_str(description).map_err(|_cause| unreadable())?;
    let name = Identifier::new(name).map_err(|_cause| unreadable())?;
    let table = LeaseTable::described(name, &said).map_err(|_faults| unreadable())?;
    let added: Value = serde_json::from_str(added).map_err(|_cause| unreadable())?;
    let list = |part: &str| -> Option<Vec<String>> {
        let names = added.get(part)?.as_array()?.iter();
        // Only checked names are written into a statement.
        names
            .map(|name| Some(Identifier::new(name.as_str()?).ok()?.to_string()))
            .collect()
    };
    Ok(AdoptedTable {
        table,
        columns: list("columns").ok_or_else(unreadable)?,
        indexes: list("indexes").ok_or_else(unreadable)?,
        left: Vec::new(),
        is_finished,
        adopted_at,
        schema: added
            .get("schema")
            .and_then(Value::as_str)
            .map(str::to_owned),
        location: TableLocation::Here,
    })
}

pub(crate) fn quoted(names: &[String]) -> Vec<String> {
    let checked = names.iter().filter_map(|name| Identifier::new(name).ok());
    checked.map(|name| name.quoted()).collect()
}

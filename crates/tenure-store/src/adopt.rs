//! What the adoption of a table is made of in both databases: the words for added columns, the
//! record of what was added, and the texts of the steps.

use serde_json::{Value, json};
use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{
    Adds, AdoptedTable, Identifier, Indexes, LeaseTable, Plan, PlannedIndex, Said, Timestamp,
    Whereabouts,
};

use crate::render::Names;

/// The verb that errors name.
pub(crate) const VERB: &str = "adopt";

/// Where Tenure notes which tables were adopted.
const TABLES: &str = "tenure_tables";

/// How a database writes the type of an added column. None of them makes it write a row.
pub(crate) struct Kinds {
    pub(crate) key: &'static str,
    pub(crate) moment: &'static str,
    pub(crate) written_at: String,
    pub(crate) counter: &'static str,
    pub(crate) fence: &'static str,
    /// What stands behind the type, where the text of the table keeps it.
    pub(crate) mark: Option<&'static str>,
}

impl Kinds {
    /// The column with its type, as it is added.
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

/// The names of a table and of what Tenure notes of it.
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

/// The names with what a plan notes.
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

/// The names with those of an index.
///
/// # Errors
/// The description is no table's.
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

/// A text as SQL wants it.
pub(crate) fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

/// What is noted of a table, read again.
///
/// # Errors
/// Someone else wrote it.
pub(crate) fn adopted_of(
    name: &str,
    (description, added): (&str, &str),
    is_finished: bool,
    adopted_at: Timestamp,
) -> Result<AdoptedTable, StoreError> {
    let unreadable = || {
        let problem = format!("what is noted of the table {name} cannot be read");
        StoreError::new(VERB, StoreErrorKind::Corrupt, problem)
            .hint("restore the row of tenure_tables, or delete it and adopt the table anew")
    };
    let said: Said = serde_json::from_str(description).map_err(|_cause| unreadable())?;
    let name = Identifier::new(name).map_err(|_cause| unreadable())?;
    let table = LeaseTable::described(name, &said).map_err(|_faults| unreadable())?;
    let added: Value = serde_json::from_str(added).map_err(|_cause| unreadable())?;
    let list = |part: &str| -> Option<Vec<String>> {
        let names = added.get(part)?.as_array()?.iter();
        // Only what is a checked name is ever written into a statement.
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
        whereabouts: Whereabouts::Here,
    })
}

/// Noted names as SQL wants them.
pub(crate) fn quoted(names: &[String]) -> Vec<String> {
    let checked = names.iter().filter_map(|name| Identifier::new(name).ok());
    checked.map(|name| name.quoted()).collect()
}

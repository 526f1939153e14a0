//! What is said to those who want to adopt a table: why it cannot be leased, and what they should
//! know before. When it is said is decided by the plan.

use super::Identifier;
use super::describe::field_of;
use super::found::{FoundColumn, FoundKind};
use super::need::Wrong;

/// Why a table cannot be leased, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What is missing or wrong.
    pub what: String,
    /// What to do.
    pub hint: String,
}

impl Obstacle {
    fn new(what: String, hint: impl Into<String>) -> Self {
        let hint = hint.into();
        Self { what, hint }
    }

    pub(super) fn own_table(table: &Identifier) -> Self {
        Self::new(
            format!("{table} has the name of a table of Tenure's own"),
            "adopt a table of yours; names that begin with tenure_ are ours",
        )
    }

    /// What is in the way of anything but a table.
    pub(super) fn of_kind(table: &Identifier, kind: FoundKind) -> Option<Self> {
        let (what, hint) = match kind {
            FoundKind::Table => return None,
            FoundKind::Missing => (
                format!("there is no table {table}"),
                "check its name and the database, and on PostgreSQL the search path",
            ),
            FoundKind::View => (
                format!("{table} is a view: it has no rows of its own"),
                "adopt the table beneath it",
            ),
            FoundKind::Partitioned => (
                format!("{table} is partitioned: its indexes cannot be made beside writers"),
                "adopt its partitions one by one",
            ),
            FoundKind::Rowless => (
                format!("{table} was made without rowid"),
                "copy it into a table with rowid, and adopt that",
            ),
            FoundKind::Other => (
                format!("{table} is no table that is kept in this database"),
                "adopt it where it is kept",
            ),
        };
        Some(Self::new(what, hint))
    }

    /// `added` is the key that the table would be given instead.
    pub(super) fn key_not_unique(key: &Identifier, added: &str) -> Self {
        Self::new(
            format!("the key {key} is not unique"),
            format!(
                "make it the primary key, or name another as `key` in a map: for one that is not \
                 there, {added} is added"
            ),
        )
    }

    pub(super) fn key_of_others(key: &str) -> Self {
        Self::new(
            format!("a column {key} is there, and was not added by Tenure"),
            "rename it, or make it a unique bigint that is never null and the key of a map",
        )
    }

    pub(super) fn index_of_others(index: &Identifier) -> Self {
        Self::new(
            format!("an index {index} is there, and was not made by Tenure"),
            "rename it or drop it",
        )
    }

    pub(super) fn column(
        table: &Identifier,
        fact: &str,
        found: &FoundColumn,
        wrong: Wrong,
    ) -> Self {
        let FoundColumn { name, declared, .. } = found;
        let field = field_of(fact);
        let elsewhere = format!("name another column as `{field}` in a map; a new one is added");
        let (is, hint) = match wrong {
            Wrong::Type { expected } => (
                format!("is {declared}; expected {expected}"),
                format!("change its type, or {elsewhere}"),
            ),
            Wrong::Room { least } => (
                format!("is {declared}; expected room for {least}"),
                format!("alter table {table} alter column {name} type text"),
            ),
            Wrong::NotNull => (
                "is not null: it could not be cleared".to_owned(),
                format!("alter table {table} alter column {name} drop not null, or {elsewhere}"),
            ),
            Wrong::Nullable => (
                "may be null".to_owned(),
                format!("fill it and alter it to be not null with a default, or {elsewhere}"),
            ),
        };
        Self::new(format!("{name}, which is to hold {fact}, {is}"), hint)
    }

    pub(super) fn other_description(table: &Identifier) -> Self {
        Self::new(
            format!("{table} was adopted with another preset or map"),
            format!("give the same again, or run `tenure adopt {table} --undo` first"),
        )
    }
}

/// The table has workers that know nothing of this column.
pub(super) fn remark_on_until(until: &Identifier) -> String {
    format!(
        "what your own workers claim has no {until}, so nobody but they can end such a claim: let \
         your own recovery run for as long as they do"
    )
}

pub(super) fn remark_on_checks(checks: &[String]) -> String {
    let checks = checks.join(", ");
    format!("check constraints must allow every word of the status: {checks}")
}

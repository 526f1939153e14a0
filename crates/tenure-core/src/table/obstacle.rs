//! What keeps a table from being leased.

use super::LeaseTable;
use super::found::FoundKind;

/// Why a table cannot be leased, and what to do about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obstacle {
    /// What is missing or wrong.
    pub what: String,
    /// What to do.
    pub hint: String,
}

pub(super) fn obstacle(what: String, hint: impl Into<String>) -> Obstacle {
    Obstacle {
        what,
        hint: hint.into(),
    }
}

impl LeaseTable {
    /// Why what has the table's name cannot be leased, whatever its columns are.
    pub(super) fn kind_obstacle(&self, kind: FoundKind) -> Option<Obstacle> {
        let table = &self.name;
        if table.as_str().starts_with("tenure_") {
            return Some(obstacle(
                format!("{table} has the name of a table of Tenure's own"),
                "adopt a table of yours; names that begin with tenure_ are ours",
            ));
        }
        match kind {
            FoundKind::Table => None,
            FoundKind::Missing => Some(obstacle(
                format!("there is no table {table}"),
                "check its name and the database, and on PostgreSQL the search path",
            )),
            FoundKind::View => Some(obstacle(
                format!("{table} is a view: it has no rows of its own"),
                "adopt the table beneath it",
            )),
            FoundKind::Partitioned => Some(obstacle(
                format!("{table} is partitioned: its indexes cannot be made beside writers"),
                "lease a table that is not partitioned; its partitions cannot be adopted either",
            )),
            FoundKind::Partition => Some(obstacle(
                format!("{table} is a partition: it cannot be given columns of its own"),
                "detach it, or lease a table that is not partitioned",
            )),
            FoundKind::Parent => Some(obstacle(
                format!("other tables inherit from {table}: their rows have keys of their own"),
                "adopt the tables that inherit from it, or end the inheritance",
            )),
            FoundKind::Rowless => Some(obstacle(
                format!("{table} was made without rowid"),
                "copy it into a table with rowid, and adopt that",
            )),
            FoundKind::Other => Some(obstacle(
                format!("{table} is no table that is kept in this database"),
                "adopt it where it is kept",
            )),
        }
    }
}

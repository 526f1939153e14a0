//! Obstacles: reasons why a table cannot be leased.

use super::LeaseTable;
use super::facts::TableKind;

/// Reason why a table cannot be leased, with advice.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Obstacle {
    /// Description of the problem.
    pub what: String,
    /// Advice for the user.
    pub hint: String,
}

pub(super) fn obstacle(what: String, hint: impl Into<String>) -> Obstacle {
    Obstacle {
        what,
        hint: hint.into(),
    }
}

impl LeaseTable {
    /// Obstacle in the table's name or in the kind of object that has it; columns do not matter.
    pub(super) fn kind_obstacle(&self, kind: TableKind) -> Option<Obstacle> {
        let table = &self.name;
        if table.as_str().starts_with("tenure_") {
            return Some(obstacle(
                format!("{table} has a name that is reserved for Tenure's tables"),
                "adopt one of your own tables; names with the prefix tenure_ are reserved",
            ));
        }
        match kind {
            TableKind::Table => None,
            TableKind::Missing => Some(obstacle(
                format!("there is no table {table}"),
                "check its name and the database, and on PostgreSQL the search path",
            )),
            TableKind::View => Some(obstacle(
                format!("{table} is a view: it has no rows of its own"),
                "adopt the underlying table",
            )),
            TableKind::Partitioned => Some(obstacle(
                format!("{table} is partitioned: its indexes cannot be built while it is written"),
                "lease a table that is not partitioned; its partitions cannot be adopted either",
            )),
            TableKind::Partition => Some(obstacle(
                format!("{table} is a partition: columns cannot be added to it alone"),
                "detach it, or lease a table that is not partitioned",
            )),
            TableKind::Parent => Some(obstacle(
                format!("other tables inherit from {table}: their rows have separate keys"),
                "adopt the tables that inherit from it, or end the inheritance",
            )),
            TableKind::Rowless => Some(obstacle(
                format!("{table} was created without rowid"),
                "copy it into a table with rowid, and adopt that",
            )),
            TableKind::Other => Some(obstacle(
                format!("{table} is not a table stored in this database"),
                "adopt it in the database that stores it",
            )),
        }
    }
}

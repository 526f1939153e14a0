//! Adopted table: its record, and the columns and indexes that still exist.

use super::LeaseTable;
use super::obstacle::{Obstacle, obstacle};
use crate::time::Timestamp;

/// A table that was adopted, completely or in part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedTable {
    /// Description of the table.
    pub table: LeaseTable,
    /// Columns that Tenure added and that still have its mark.
    pub columns: Vec<String>,
    /// Indexes that Tenure created and that still exist.
    pub indexes: Vec<String>,
    /// Recorded columns that exist without Tenure's mark: another program has replaced them since.
    pub left: Vec<String>,
    /// The adoption is complete.
    pub is_finished: bool,
    /// Start of the adoption.
    pub adopted_at: Timestamp,
    /// Schema of the table, on PostgreSQL.
    pub schema: Option<String>,
    /// Location of the table now.
    pub location: TableLocation,
}

/// Present location of an adopted table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TableLocation {
    /// The name resolves to the adopted table.
    Here,
    /// The table was dropped or renamed.
    Gone,
    /// The table is in a schema outside the search path; another table may have its name here.
    Elsewhere,
}

impl AdoptedTable {
    /// Returns true if a column or index that Tenure added still exists.
    pub fn has_any(&self) -> bool {
        !(self.columns.is_empty() && self.indexes.is_empty())
    }

    /// Obstacle to adopting a table of this name, or to undoing its adoption, if the location is
    /// `Elsewhere`.
    pub fn elsewhere(&self) -> Option<Obstacle> {
        let schema = self.schema.as_deref()?;
        let name = &self.table.name;
        (self.location == TableLocation::Elsewhere).then(|| {
            obstacle(
                format!("another table of that name is adopted: {name} in the schema {schema}"),
                format!(
                    "append `?options=-c search_path={schema}` to the database URL, or \
                     rename one of the two"
                ),
            )
        })
    }
}

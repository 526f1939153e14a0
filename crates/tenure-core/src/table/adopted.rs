//! A table that was adopted, as it is recorded and as it was found again.

use super::LeaseTable;
use super::obstacle::{Obstacle, obstacle};
use crate::time::Timestamp;

/// A table that was adopted, or is half way there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdoptedTable {
    /// What it calls our facts.
    pub table: LeaseTable,
    /// The columns that were added, and are there: they bear our mark.
    pub columns: Vec<String>,
    /// The indexes that were made, and are there.
    pub indexes: Vec<String>,
    /// Columns that were noted and are there without our mark: somebody else made them since.
    pub left: Vec<String>,
    /// Nothing is left to do.
    pub is_finished: bool,
    /// When it began.
    pub adopted_at: Timestamp,
    /// The schema that it is in, where there are several.
    pub schema: Option<String>,
    /// Whether its name still leads to it.
    pub whereabouts: Whereabouts,
}

/// Where a table that was adopted is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whereabouts {
    /// Its name leads to it.
    Here,
    /// It was dropped or renamed.
    Gone,
    /// It is in a schema that its name does not lead to; another table may have its name here.
    Elsewhere,
}

impl AdoptedTable {
    /// Whether anything of ours is there.
    pub fn has_any(&self) -> bool {
        !(self.columns.is_empty() && self.indexes.is_empty())
    }

    /// Why a table of this name can be neither adopted nor given back here, if so.
    pub fn elsewhere(&self) -> Option<Obstacle> {
        let schema = self.schema.as_deref()?;
        let name = &self.table.name;
        (self.whereabouts == Whereabouts::Elsewhere).then(|| {
            obstacle(
                format!("another table of that name is adopted: {name} in the schema {schema}"),
                format!(
                    "reach it with `?options=-c search_path={schema}` behind the address, or \
                     rename one of the two"
                ),
            )
        })
    }
}

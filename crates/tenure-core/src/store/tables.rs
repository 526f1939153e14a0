//! Tables: what a database is asked about tables of the user's own that are leased in place.

use std::fmt;
use std::sync::Arc;

use super::{Answer, LeaseStore, Operate, StoreError};
use crate::table::{AdoptedTable, FoundTable, LeaseTable, Plan};

/// The rows of one table, as a worker and an operator see them.
pub trait Rows: LeaseStore + Operate {
    /// What the table calls our facts.
    fn table(&self) -> &LeaseTable;
}

/// Is told what is being done, step by step, for people.
pub type Tell<'a> = &'a (dyn Fn(&str) + Sync);

/// Whether a table is given back although leases of ours are held on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhileHeld {
    /// No: it is refused.
    Refuse,
    /// Yes: what is held is then ended by nobody but the table's own workers.
    Force,
}

/// A database that leases tables of the user's own.
pub trait Tables: fmt::Debug + Send + Sync {
    /// What is known of a table that has this name, and may have these columns.
    fn look<'a>(&'a self, table: &'a LeaseTable) -> Answer<'a, FoundTable>;

    /// The tables that were adopted or are half way there, by name.
    fn adopted(&self) -> Answer<'_, Vec<AdoptedTable>>;

    /// The SQL of a plan, for an administrator to read or to apply.
    ///
    /// # Errors
    /// The description is no table's.
    fn adoption_sql(&self, plan: &Plan) -> Result<String, StoreError>;

    /// Does what is left of a plan, without keeping the table's writers waiting. What was done when
    /// it fails stays, and the next try goes on from there.
    fn adopt<'a>(&'a self, plan: &'a Plan, tell: Tell<'a>) -> Answer<'a, ()>;

    /// The SQL that gives a table back.
    ///
    /// # Errors
    /// The description is no table's.
    fn undo_sql(&self, adopted: &AdoptedTable) -> Result<String, StoreError>;

    /// Gives a table back: takes away what was added and nothing else, all at once. Answers how
    /// many leases of ours are in the way; then nothing was changed. Of a table that is gone, what
    /// is recorded is forgotten.
    fn undo<'a>(&'a self, adopted: &'a AdoptedTable, held: WhileHeld) -> Answer<'a, u64>;

    /// The rows of a table that has all its columns.
    fn rows(&self, table: LeaseTable) -> Answer<'_, Arc<dyn Rows>>;
}

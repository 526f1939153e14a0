//! Tables: the store operations for the user's own tables that are leased in place.

use std::fmt;
use std::sync::Arc;

use super::{Answer, LeaseStore, Operate, StoreError};
use crate::table::{AdoptedTable, LeaseTable, Plan, TableFacts};

/// Rows of one table, for workers and operators.
pub trait Rows: LeaseStore + Operate {
    /// Description of the table.
    fn table(&self) -> &LeaseTable;
}

/// Callback that reports each step of an adoption, for display.
pub type OnStep<'a> = &'a (dyn Fn(&str) + Sync);

/// Policy for undoing an adoption while rows of the table are held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WhileHeld {
    /// Refuse.
    Refuse,
    /// Undo it. Afterwards, only the user's own workers can settle the held rows.
    Force,
}

/// A database that leases the user's own tables.
pub trait Tables: fmt::Debug + Send + Sync {
    /// Reads the facts about the described table, which may lack some of the described columns.
    fn inspect<'a>(&'a self, table: &'a LeaseTable) -> Answer<'a, TableFacts>;

    /// Lists the tables that were adopted, completely or in part, by name.
    fn adopted(&self) -> Answer<'_, Vec<AdoptedTable>>;

    /// SQL of a plan, for an administrator to read or apply.
    ///
    /// # Errors
    /// The description is not valid.
    fn adoption_sql(&self, plan: &Plan) -> Result<String, StoreError>;

    /// Carries out the rest of a plan. On PostgreSQL, the table's writers wait only briefly. If a
    /// step fails, the completed steps stay, and the next attempt continues from there.
    fn adopt<'a>(&'a self, plan: &'a Plan, on_step: OnStep<'a>) -> Answer<'a, ()>;

    /// SQL that undoes an adoption.
    ///
    /// # Errors
    /// The description is not valid.
    fn undo_sql(&self, adopted: &AdoptedTable) -> Result<String, StoreError>;

    /// Undoes an adoption in one transaction: removes exactly the objects that Tenure added. If
    /// held rows prevent this, the store changes nothing and returns their number, otherwise zero.
    /// If the table no longer exists, the store removes only the record.
    fn undo<'a>(&'a self, adopted: &'a AdoptedTable, held: WhileHeld) -> Answer<'a, u64>;

    /// Opens the rows of a table that has all required columns.
    fn rows(&self, table: LeaseTable) -> Answer<'_, Arc<dyn Rows>>;
}

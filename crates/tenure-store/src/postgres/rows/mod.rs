//! The row layout on PostgreSQL: leases on the rows of any table that a [`LeaseTable`] describes.
//!
//! Each operation is one statement, rendered with the table's names when the table is opened. Some
//! need more: a short claim reaps, a refusal reads the rows again in a new snapshot, a renewal
//! retries locked rows, and a settle or reap goes row by row if the table rejects a row.

mod lease;
mod operate;
pub(super) mod renewal;
mod row_by_row;
mod statements;
#[cfg(feature = "testing")]
mod testing;

use std::fmt;
use std::sync::Arc;

use sqlx::PgPool;
use tenure_core::store::StoreError;
use tenure_core::{Identifier, ItemId, LeaseTable, OutcomeKind};

use super::PostgresStore;
use super::error::{row_error, store_error};
use super::pool::{Borrow as _, Pool};
use super::row::get;
use super::statements::Statement;
use crate::config::Statements;
use crate::refusal_reason::{ItemPosition, ItemPositions};
use crate::render::{Edit, as_written, check_columns};
use crate::rows::state_of;
use statements::RowStatements;

/// The rows of one table as leasable items. Clones share the connection pool.
#[derive(Clone)]
pub struct PostgresRows {
    pool: Pool,
    table: Arc<LeaseTable>,
    statements: Arc<RowStatements>,
}

impl PostgresStore {
    /// Creates a lease table with its indexes, in one transaction.
    ///
    /// # Errors
    /// The table exists already, or the description is not valid.
    pub async fn create_table(&self, table: &LeaseTable) -> Result<(), StoreError> {
        PostgresRows::create(self.pool(), table, self.schema.as_ref()).await
    }

    /// Opens the rows of an existing lease table.
    ///
    /// # Errors
    /// The table does not exist, or lacks columns that the description names.
    pub async fn rows(&self, table: LeaseTable) -> Result<PostgresRows, StoreError> {
        PostgresRows::open_edited(self.pool.clone(), table, self.schema.as_ref(), &as_written).await
    }
}

impl PostgresStore {
    /// Opens the rows of a lease table that was opened before, without a query.
    pub(crate) fn rows_unasked(&self, table: LeaseTable) -> Result<PostgresRows, StoreError> {
        PostgresRows::migrated(self.pool.clone(), table, self.schema.as_ref())
    }
}

impl PostgresRows {
    /// Creates the table and its indexes in one transaction. `schema` is the schema of Tenure's own
    /// tables.
    ///
    /// # Errors
    /// The table exists already, or the description is not valid.
    pub async fn create(
        pool: &PgPool,
        table: &LeaseTable,
        schema: Option<&Identifier>,
    ) -> Result<(), StoreError> {
        let statements = RowStatements::new(table, schema, &as_written)?;
        let failed = |e| store_error("create", e);
        let mut tx = pool.begin().await.map_err(failed)?;
        for part in &statements.create {
            part.query().execute(&mut *tx).await.map_err(failed)?;
        }
        tx.commit().await.map_err(failed)
    }

    /// Opens an existing table.
    ///
    /// # Errors
    /// The table does not exist, or lacks columns that the description names.
    pub async fn open(
        pool: PgPool,
        table: LeaseTable,
        schema: Option<&Identifier>,
    ) -> Result<Self, StoreError> {
        let pool = Pool::of_application(pool, Statements::default());
        Self::open_edited(pool, table, schema, &as_written).await
    }

    /// Opens a table that Tenure's migrations created or that was opened before, without a check.
    pub(crate) fn migrated(
        pool: Pool,
        table: LeaseTable,
        schema: Option<&Identifier>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            pool,
            statements: Arc::new(RowStatements::new(&table, schema, &as_written)?),
            table: Arc::new(table),
        })
    }

    /// Returns the same rows through another pool.
    pub(crate) fn through(&self, pool: Pool) -> Self {
        Self {
            pool,
            ..self.clone()
        }
    }

    /// Replaces the count statement by a more specific one.
    pub(super) fn counted_by(mut self, count: Statement) -> Self {
        // The statements are not shared yet.
        if let Some(statements) = Arc::get_mut(&mut self.statements) {
            statements.count = count;
        }
        self
    }

    /// The description of the table.
    pub fn table(&self) -> &LeaseTable {
        &self.table
    }

    async fn open_edited(
        pool: Pool,
        table: LeaseTable,
        schema: Option<&Identifier>,
        edit: Edit<'_>,
    ) -> Result<Self, StoreError> {
        let statements = RowStatements::new(&table, schema, edit)?;
        let columns = columns(&pool, &statements).await?;
        check_columns(
            &table,
            &columns.iter().map(|(name, _)| name.clone()).collect(),
        )?;
        let lease = table.lease_facts().map(|(_, column)| column.as_str());
        let own: Vec<&str> = columns
            .iter()
            .filter(|(name, _)| !lease.contains(&name.as_str()))
            .map(|(_, quoted)| quoted.as_str())
            .collect();
        let statements = statements.with_columns(&own, (&table, schema), edit)?;
        Ok(Self {
            pool,
            table: Arc::new(table),
            statements: Arc::new(statements),
        })
    }

    fn error(&self, verb: &'static str, error: sqlx::Error) -> StoreError {
        row_error(verb, &self.table, error)
    }

    /// Returns the current states of rows and their last outcomes under this token.
    async fn look(
        &self,
        verb: &'static str,
        (token, holder): (&str, &str),
        ids: &[ItemId],
    ) -> Result<ItemPositions, StoreError> {
        if ids.is_empty() {
            return Ok(ItemPositions::new());
        }
        let failed = |e| self.error(verb, e);
        let found = self
            .statements
            .look
            .query()
            .bind(token)
            .bind(holder)
            .bind(numbers(ids))
            .all_from(&self.pool)
            .await
            .map_err(failed)?;
        let mut positions = ItemPositions::with_capacity(found.len());
        for row in &found {
            let state: Option<&str> = get(row, 1).map_err(failed)?;
            let word: Option<&str> = get(row, 3).map_err(failed)?;
            let look = ItemPosition {
                state: state_of(verb, &self.table, state)?,
                // Null means that a compared column is null: the caller does not hold the row.
                is_mine: get::<Option<bool>>(row, 2)
                    .map_err(failed)?
                    .unwrap_or(false),
                last_outcome: word.and_then(OutcomeKind::parse),
            };
            positions.insert(ItemId::new(get(row, 0).map_err(failed)?), look);
        }
        Ok(positions)
    }
}

/// The columns of the table in order, each plain and quoted.
async fn columns(
    pool: &Pool,
    statements: &RowStatements,
) -> Result<Vec<(String, String)>, StoreError> {
    let query = statements.columns.query().bind(&statements.table);
    let failed = |e| store_error("open", e);
    let found = query.all_from(pool).await.map_err(failed)?;
    let read = |row| Ok((get(row, 0)?, get(row, 1)?));
    let columns: Result<_, sqlx::Error> = found.iter().map(read).collect();
    columns.map_err(failed)
}

fn numbers(ids: &[ItemId]) -> Vec<i64> {
    ids.iter().map(|id| id.number()).collect()
}

impl fmt::Debug for PostgresRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresRows")
            .field("table", &self.table.name)
            .finish_non_exhaustive()
    }
}

//! The row layout on PostgreSQL: leases on the rows of any table that a [`LeaseTable`] describes.
//!
//! Each verb is one statement, filled with the table's names when it is opened. A refusal is
//! followed by a second look in a snapshot of its own, and a renewal that finds rows in a
//! transaction asks again; nothing else takes two round trips.

mod each;
mod lease;
mod operate;
#[cfg(feature = "testing")]
mod planted;
pub(super) mod renewal;
mod statements;

use std::fmt;
use std::sync::Arc;

use sqlx::PgPool;
use tenure_core::store::StoreError;
use tenure_core::{Identifier, ItemId, LeaseTable, Word};

use super::PostgresStore;
use super::error::{row_error, store_error};
use super::lend::Borrow as _;
use super::row::get;
use super::statements::Statement;
use crate::render::{Edit, as_written, check_columns};
use crate::rows::state_of;
use crate::second_look::{Look, Looks};
use statements::RowStatements;

/// The rows of one table as leasable items. Clones share the connections.
#[derive(Clone)]
pub struct PostgresRows {
    pool: PgPool,
    table: Arc<LeaseTable>,
    statements: Arc<RowStatements>,
}

impl PostgresStore {
    /// Makes a lease table with its indexes, all or nothing.
    ///
    /// # Errors
    /// It is there already, or the description is no table's.
    pub async fn create_table(&self, table: &LeaseTable) -> Result<(), StoreError> {
        PostgresRows::create(&self.pool, table, self.schema.as_ref()).await
    }

    /// The rows of a lease table that is there.
    ///
    /// # Errors
    /// There is no such table, or it lacks columns that the description names.
    pub async fn rows(&self, table: LeaseTable) -> Result<PostgresRows, StoreError> {
        PostgresRows::open(self.pool.clone(), table, self.schema.as_ref()).await
    }
}

impl PostgresStore {
    /// The rows of a lease table that was opened before. The database is not asked.
    pub(crate) fn rows_unasked(&self, table: LeaseTable) -> Result<PostgresRows, StoreError> {
        PostgresRows::migrated(self.pool.clone(), table, self.schema.as_ref())
    }
}

impl PostgresRows {
    /// Makes the table and its indexes, all or nothing. `schema` is where Tenure's own tables are.
    ///
    /// # Errors
    /// It is there already, or the description is no table's.
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

    /// Opens a table that is there.
    ///
    /// # Errors
    /// There is no such table, or it lacks columns that the description names.
    pub async fn open(
        pool: PgPool,
        table: LeaseTable,
        schema: Option<&Identifier>,
    ) -> Result<Self, StoreError> {
        Self::open_edited(pool, table, schema, &as_written).await
    }

    /// Opens a table that our own migrations have made, or that was opened before: there is nothing
    /// to check.
    pub(crate) fn migrated(
        pool: PgPool,
        table: LeaseTable,
        schema: Option<&Identifier>,
    ) -> Result<Self, StoreError> {
        Ok(Self {
            pool,
            statements: Arc::new(RowStatements::new(&table, schema, &as_written)?),
            table: Arc::new(table),
        })
    }

    /// The same rows through other connections.
    pub(crate) fn through(&self, pool: PgPool) -> Self {
        Self {
            pool,
            ..self.clone()
        }
    }

    /// The same rows, counted by a statement that knows more of them.
    pub(super) fn counted_by(mut self, count: Statement) -> Self {
        // Nobody shares them yet.
        if let Some(statements) = Arc::get_mut(&mut self.statements) {
            statements.count = count;
        }
        self
    }

    /// What is described.
    pub fn table(&self) -> &LeaseTable {
        &self.table
    }

    async fn open_edited(
        pool: PgPool,
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

    /// What a verb on this table came upon.
    fn error(&self, verb: &'static str, error: sqlx::Error) -> StoreError {
        row_error(verb, &self.table, error)
    }

    /// Where rows are now, and what a token has said of them.
    async fn look(
        &self,
        verb: &'static str,
        (token, holder): (&str, &str),
        ids: &[ItemId],
    ) -> Result<Looks, StoreError> {
        if ids.is_empty() {
            return Ok(Looks::new());
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
        let mut looks = Looks::with_capacity(found.len());
        for row in &found {
            let state: Option<&str> = get(row, 1).map_err(failed)?;
            let word: Option<&str> = get(row, 3).map_err(failed)?;
            let look = Look {
                state: state_of(verb, &self.table, state)?,
                // Null is a comparison with a column that is null: not ours.
                is_mine: get::<Option<bool>>(row, 2)
                    .map_err(failed)?
                    .unwrap_or(false),
                word: word.and_then(Word::parse),
            };
            looks.insert(ItemId::new(get(row, 0).map_err(failed)?), look);
        }
        Ok(looks)
    }
}

/// The columns of the table, each as it is and quoted, in its order.
async fn columns(
    pool: &PgPool,
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

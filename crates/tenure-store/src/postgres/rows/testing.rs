//! For tests: changed statements, and statement texts.

use sqlx::PgPool;
use tenure_core::LeaseTable;
use tenure_core::store::StoreError;

use super::super::pool::Pool;
use super::{PostgresRows, RowStatements};
use crate::config::Statements;
use crate::render::{Edit, as_written};

impl PostgresRows {
    /// Like [`Self::open`], with the statement files changed by `edit`, which gets name and text.
    ///
    /// # Errors
    /// Same as [`Self::open`].
    pub async fn edited(
        pool: PgPool,
        table: LeaseTable,
        edit: Edit<'_>,
    ) -> Result<Self, StoreError> {
        let pool = Pool::of_application(pool, Statements::default());
        Self::open_edited(pool, table, None, edit).await
    }

    /// Returns the statements for a table with their names, as they are sent.
    ///
    /// # Errors
    /// The description is not valid.
    pub fn statements(table: &LeaseTable) -> Result<Vec<(&'static str, String)>, StoreError> {
        let statements = RowStatements::new(table, None, &as_written)?;
        let all = statements.all().into_iter();
        Ok(all
            .map(|(name, statement)| (name, statement.text().to_owned()))
            .collect())
    }
}

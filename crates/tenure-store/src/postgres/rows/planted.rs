//! What only tests need: rows with planted faults, and the text of the statements.

use sqlx::PgPool;
use tenure_core::LeaseTable;
use tenure_core::store::StoreError;

use super::{PostgresRows, RowStatements};
use crate::planted::{Planted, plant};
use crate::render::as_written;

impl PostgresRows {
    /// Opens a table with statements that are wrong in these places.
    ///
    /// # Errors
    /// As [`PostgresRows::open`].
    ///
    /// # Panics
    /// A statement does not say what a fault replaces.
    pub async fn open_planted(
        pool: PgPool,
        table: LeaseTable,
        faults: &[Planted],
    ) -> Result<Self, StoreError> {
        let edit = |file, text| plant(faults, file, text);
        Self::open_edited(pool, table, None, &edit).await
    }

    /// The statements for a table by name, as they are sent.
    ///
    /// # Errors
    /// The description is no table's.
    pub fn statements(table: &LeaseTable) -> Result<Vec<(&'static str, String)>, StoreError> {
        let statements = RowStatements::new(table, None, &as_written)?;
        let all = statements.all().into_iter();
        Ok(all
            .map(|(name, statement)| (name, statement.text().to_owned()))
            .collect())
    }
}

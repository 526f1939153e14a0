//! What only tests need: rows with planted faults, and the text of the statements.

use std::sync::Arc;

use tenure_core::store::StoreError;
use tenure_core::{Clock, LeaseTable};

use super::{RowStatements, SqliteRows};
use crate::planted::{Planted, plant};
use crate::render::as_written;
use crate::sqlite::writer::Writer;

impl SqliteRows {
    /// Opens a table with statements that are wrong in these places.
    ///
    /// # Errors
    /// As [`SqliteRows::open`].
    ///
    /// # Panics
    /// A statement does not say what a fault replaces.
    pub async fn open_planted(
        writer: Writer,
        clock: Arc<dyn Clock>,
        table: LeaseTable,
        faults: &[Planted],
    ) -> Result<Self, StoreError> {
        let statements = RowStatements::new(&table, &|file, text| plant(faults, file, text))?;
        Self::open_with(writer, clock, table, statements).await
    }

    /// The statements for a table by file and name, as they are sent.
    ///
    /// # Errors
    /// The description is no table's.
    pub fn statements(
        table: &LeaseTable,
    ) -> Result<Vec<(&'static str, String, String)>, StoreError> {
        let statements = RowStatements::new(table, &as_written)?;
        let all = statements.all().into_iter();
        Ok(all
            .map(|(file, name, text)| (file, name.to_owned(), text.to_owned()))
            .collect())
    }
}

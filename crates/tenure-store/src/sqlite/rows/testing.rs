//! For tests: changed statements, and their text.

use std::sync::Arc;

use tenure_core::store::StoreError;
use tenure_core::{Clock, LeaseTable};

use super::{RowStatements, SqliteRows};
use crate::render::{Edit, as_written};
use crate::sqlite::writer::Writer;

impl SqliteRows {
    /// Like [`Self::open`], with `edit` applied to the files (name and text) of the statements.
    ///
    /// # Errors
    /// Same as [`Self::open`].
    pub async fn edited(
        writer: Writer,
        clock: Arc<dyn Clock>,
        table: LeaseTable,
        edit: Edit<'_>,
    ) -> Result<Self, StoreError> {
        let statements = RowStatements::new(&table, edit)?;
        Self::open_with(writer, clock, table, statements).await
    }

    /// Returns the statements for a table by file and name, as they are sent.
    ///
    /// # Errors
    /// The description of the table is not valid.
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

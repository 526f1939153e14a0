//! The columns and triggers of a table. Its owner may change them at any time.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::named_params;
use tenure_core::store::StoreError;

use super::VerbContext;
use super::layout::Layout;
use super::row::corrupt;

/// Placeholder for the columns in a claim's statements.
const WHOLE: &str = "t.*";

/// A table at one schema version of the file.
#[derive(Debug)]
pub(super) struct Shape {
    version: i64,
    /// All columns, in the table's order.
    columns: Vec<Column>,
    /// The table has triggers or generated columns: it may store a row differently than requested.
    pub(super) reacts: bool,
    pub(super) layout: Layout,
    /// The columns declared to hold JSON.
    pub(super) json_columns: HashSet<String>,
}

#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// The name, quoted for a statement.
    pub(super) quoted: String,
    /// The column was declared to hold JSON.
    pub(super) is_json: bool,
    /// The value is computed from other columns and cannot be written.
    is_generated: bool,
}

impl Shape {
    pub(super) fn writable(&self) -> BTreeSet<String> {
        let columns = self.columns.iter().filter(|column| !column.is_generated);
        columns.map(|column| column.name.clone()).collect()
    }
}

/// Cache of the last shape.
#[derive(Debug, Default)]
pub(super) struct LastShape(Mutex<Option<Arc<Shape>>>);

impl VerbContext<'_> {
    /// Returns the shape of the table in this transaction.
    pub(super) fn shape(&self) -> Result<Arc<Shape>, StoreError> {
        let version = self.value("columns", "version", [])?.unwrap_or_default();
        let last = &self.table_state.last_shape.0;
        let known = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.version == version) {
            return Ok(known);
        }
        let shape = Arc::new(self.read_shape(version)?);
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&shape));
        Ok(shape)
    }

    fn read_shape(&self, version: i64) -> Result<Shape, StoreError> {
        let params = named_params! {":table": self.table_state.table.name.as_str()};
        let columns: Vec<Column> = self.rows("columns", "columns", params, |row| {
            let declared: String = row.get(2)?;
            Ok(Column {
                name: row.get(0)?,
                quoted: row.get(1)?,
                is_json: declared.to_ascii_lowercase().contains("json"),
                is_generated: row.get(3)?,
            })
        })?;
        let reacts: Option<bool> = self.value("columns", "has_triggers", params)?;
        let json = columns.iter().filter(|column| column.is_json);
        Ok(Shape {
            version,
            json_columns: json.map(|column| column.name.clone()).collect(),
            reacts: reacts.unwrap_or_default() || columns.iter().any(|one| one.is_generated),
            layout: Layout::new(&self.table_state.table, &columns),
            columns,
        })
    }

    /// Returns a statement of the claim that reads only the columns that the layout needs.
    pub(super) fn of_shape(&self, name: &str, shape: &Shape) -> Result<String, StoreError> {
        let text = self.table_state.statements.get("claim", name)?;
        let parts = text.split_once(WHOLE);
        let (before, after) =
            parts.ok_or_else(|| corrupt("claim", "a statement of the claim does not say t.*"))?;
        Ok(format!("{before}{}{after}", shape.layout.columns()))
    }
}

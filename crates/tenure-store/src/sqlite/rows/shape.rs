//! What a table is made of besides the columns of its lease. Its owner may change that at any time.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::named_params;
use tenure_core::store::StoreError;

use super::Ask;
use super::layout::Layout;
use super::row::corrupt;

/// What a claim's statements say until it is known which columns to name.
const WHOLE: &str = "t.*";

/// A table as it is while the schema of the file has one version.
#[derive(Debug)]
pub(super) struct Shape {
    version: i64,
    /// Every column, in the table's order.
    columns: Vec<Column>,
    /// The table has a say in what is written to it: a row may be written otherwise than was asked.
    pub(super) reacts: bool,
    pub(super) layout: Layout,
    /// The columns that were declared to hold JSON.
    pub(super) json_columns: HashSet<String>,
}

/// A column of a table.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) name: String,
    /// Its name as a statement writes it.
    pub(super) quoted: String,
    /// It was declared to hold JSON.
    pub(super) is_json: bool,
    /// Its value is made from others, and cannot be written.
    is_generated: bool,
}

impl Shape {
    /// The columns that can be written.
    pub(super) fn writable(&self) -> BTreeSet<String> {
        let columns = self.columns.iter().filter(|column| !column.is_generated);
        columns.map(|column| column.name.clone()).collect()
    }
}

/// The shape that was seen last.
#[derive(Debug, Default)]
pub(super) struct LastShape(Mutex<Option<Arc<Shape>>>);

impl Ask<'_> {
    /// The shape that the table has in this transaction.
    pub(super) fn shape(&self) -> Result<Arc<Shape>, StoreError> {
        let version = self.value("columns", "version", [])?.unwrap_or_default();
        let last = &self.desk.last_shape.0;
        let known = last.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(known) = known.filter(|known| known.version == version) {
            return Ok(known);
        }
        let shape = Arc::new(self.read_shape(version)?);
        *last.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&shape));
        Ok(shape)
    }

    fn read_shape(&self, version: i64) -> Result<Shape, StoreError> {
        let params = named_params! {":table": self.desk.table.name.as_str()};
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
            layout: Layout::new(&self.desk.table, &columns),
            columns,
        })
    }

    /// A statement of the claim, for the columns of this shape that it tells: the others are not
    /// read.
    pub(super) fn of_shape(&self, name: &str, shape: &Shape) -> Result<String, StoreError> {
        let text = self.desk.statements.get("claim", name)?;
        let parts = text.split_once(WHOLE);
        let (before, after) =
            parts.ok_or_else(|| corrupt("claim", "a statement of the claim does not say t.*"))?;
        Ok(format!("{before}{}{after}", shape.layout.columns()))
    }
}

//! Rows as they were read. The caller's task converts them to items: all writes wait for the writer
//! thread, and encoding a row as JSON takes longer than reading it.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use rusqlite::Row;
use rusqlite::types::ValueRef;
use tenure_core::store::StoreError;
use tenure_core::{Content, Counters, Held, Item, ItemId, Lease, Timestamp};

use super::shape::Shape;
use crate::sqlite::error::failed;

/// A lease on rows that are not converted to items yet.
pub(super) struct Claimed {
    pub(super) lease: Lease,
    pub(super) rows: ReadRows,
    /// Limit of the claim.
    pub(super) most: u32,
}

impl Claimed {
    pub(super) fn held(self) -> Result<Held, StoreError> {
        let items = self.rows.items()?;
        Ok(Held::new(self.lease, items, self.most))
    }
}

/// Rows of a table.
pub(super) struct ReadRows {
    shape: Arc<Shape>,
    rows: Vec<ReadRow>,
    /// The columns of all rows, row by row.
    values: Vec<Stored>,
    /// The texts and blobs of all columns.
    bytes: Vec<u8>,
}

/// The columns of a row that the claim itself needs.
struct ReadRow {
    id: ItemId,
    available_at: Timestamp,
    counters: Counters,
    /// Index of the row's first column in `values`.
    first: usize,
}

/// A column value; text and blobs are ranges of `bytes`.
enum Stored {
    Null,
    Integer(i64),
    Real(f64),
    Text(Range<usize>),
    Blob(Range<usize>),
}

impl ReadRows {
    /// Creates an empty list of this shape.
    pub(super) fn of(shape: &Arc<Shape>) -> Self {
        Self {
            shape: Arc::clone(shape),
            rows: Vec::new(),
            values: Vec::new(),
            bytes: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    pub(super) fn ids(&self) -> Vec<ItemId> {
        self.rows.iter().map(|row| row.id).collect()
    }

    /// Adds a row.
    pub(super) fn add(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let layout = &self.shape.layout;
        let available_at: Option<i64> = row.get(layout.available_at)?;
        let created_at: i64 = row.get(layout.created_at)?;
        let [attempts, failures, crashes, generation] = layout.counters;
        self.rows.push(ReadRow {
            id: ItemId::new(row.get(layout.key)?),
            available_at: Timestamp::from_micros(available_at.unwrap_or(created_at)),
            counters: Counters {
                attempts: row.get(attempts)?,
                failures: row.get(failures)?,
                crashes: row.get(crashes)?,
                generation: row.get(generation)?,
            },
            first: self.values.len(),
        });
        for place in 0..layout.width() {
            let value = match row.get_ref(place)? {
                ValueRef::Null => Stored::Null,
                ValueRef::Integer(number) => Stored::Integer(number),
                ValueRef::Real(number) => Stored::Real(number),
                ValueRef::Text(bytes) => Stored::Text(self.put(bytes)),
                ValueRef::Blob(bytes) => Stored::Blob(self.put(bytes)),
            };
            self.values.push(value);
        }
        Ok(())
    }

    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let begin = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        begin..self.bytes.len()
    }

    /// Keeps the rows with these ids, in this order.
    pub(super) fn in_order(mut self, ids: &[ItemId]) -> Self {
        let rows = self.rows.into_iter().map(|row| (row.id, row));
        let mut rows: HashMap<ItemId, ReadRow> = rows.collect();
        self.rows = ids.iter().filter_map(|id| rows.remove(id)).collect();
        self
    }

    fn items(self) -> Result<Vec<Item>, StoreError> {
        let items = self.rows.iter().map(|row| {
            let value = |place: usize| self.value(row.first + place);
            Ok(Item {
                id: row.id,
                content: Content::Row(self.shape.layout.content(value)?),
                available_at: row.available_at,
                counters: row.counters,
            })
        });
        let items: rusqlite::Result<Vec<Item>> = items.collect();
        items.map_err(failed("claim"))
    }

    fn value(&self, place: usize) -> rusqlite::Result<ValueRef<'_>> {
        let text = |range: &Range<usize>| self.bytes.get(range.clone()).unwrap_or_default();
        let value = self.values.get(place);
        let value = value.ok_or(rusqlite::Error::InvalidColumnIndex(place))?;
        Ok(match value {
            Stored::Null => ValueRef::Null,
            Stored::Integer(number) => ValueRef::Integer(*number),
            Stored::Real(number) => ValueRef::Real(*number),
            Stored::Text(range) => ValueRef::Text(text(range)),
            Stored::Blob(range) => ValueRef::Blob(text(range)),
        })
    }
}

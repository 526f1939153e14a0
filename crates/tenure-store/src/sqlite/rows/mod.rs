//! The row layout in SQLite: leases on the rows of any table that a [`LeaseTable`] describes.
//!
//! Each operation is one transaction on the writer thread; reads have their own connections.

mod layout;
mod lease;
mod operate;
mod read;
mod row;
mod row_by_row;
mod shape;
mod statements;
#[cfg(feature = "testing")]
mod testing;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use rusqlite::{Connection, Params, Row, named_params};
use serde_json::json;
use tenure_core::store::StoreError;
use tenure_core::{Clock, ItemId, LeaseTable, OutcomeKind, Timestamp};

use super::error::{failed, row_error};
use super::writer::Writer;
use super::{SqliteStore, moment_of};
use crate::refusal_reason::{ItemPosition, ItemPositions};
use crate::render::{as_written, check_columns};
use crate::rows::state_of;
use shape::{LastShape, Shape};
use statements::RowStatements;

/// The rows of one table as leasable items. Clones share the writer.
#[derive(Clone)]
pub struct SqliteRows {
    writer: Writer,
    clock: Arc<dyn Clock>,
    table_state: Arc<RowTable>,
}

/// The table and its statements, shared by all operations.
#[derive(Debug)]
struct RowTable {
    table: LeaseTable,
    statements: RowStatements,
    last_shape: LastShape,
}

impl SqliteStore {
    /// Creates a lease table with its indexes, all or nothing.
    ///
    /// # Errors
    /// The table exists already, or its description is not valid.
    pub async fn create_table(&self, table: &LeaseTable) -> Result<(), StoreError> {
        SqliteRows::create(self.writer(), table).await
    }

    /// Opens the rows of an existing lease table.
    ///
    /// # Errors
    /// The table does not exist, or lacks columns that the description names.
    pub async fn rows(&self, table: LeaseTable) -> Result<SqliteRows, StoreError> {
        SqliteRows::open(self.writer().clone(), Arc::clone(&self.clock), table).await
    }
}

impl SqliteRows {
    /// Creates the table and its indexes, all or nothing.
    ///
    /// # Errors
    /// The table exists already, or its description is not valid.
    pub async fn create(writer: &Writer, table: &LeaseTable) -> Result<(), StoreError> {
        let statements = RowStatements::new(table, &as_written)?;
        let create = move |conn: &Connection| {
            for (_, statement) in statements.of("create") {
                conn.execute_batch(statement).map_err(failed("create"))?;
            }
            Ok(())
        };
        writer.write("create", create).await
    }

    /// Opens an existing table.
    ///
    /// # Errors
    /// The table does not exist, or lacks columns that the description names.
    pub async fn open(
        writer: Writer,
        clock: Arc<dyn Clock>,
        table: LeaseTable,
    ) -> Result<Self, StoreError> {
        let statements = RowStatements::new(&table, &as_written)?;
        Self::open_with(writer, clock, table, statements).await
    }

    /// The same rows with a count statement specific to this table.
    pub(super) fn counted_by(mut self, count: &str) -> Self {
        // The state is not shared yet.
        if let Some(table_state) = Arc::get_mut(&mut self.table_state) {
            table_state.statements.replace("count", count);
        }
        self
    }

    /// The same rows, judging leases by this clock.
    #[cfg(feature = "testing")]
    pub(crate) fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// The description of the table.
    pub fn table(&self) -> &LeaseTable {
        &self.table_state.table
    }

    async fn open_with(
        writer: Writer,
        clock: Arc<dyn Clock>,
        table: LeaseTable,
        statements: RowStatements,
    ) -> Result<Self, StoreError> {
        let table_state = RowTable {
            table,
            statements,
            last_shape: LastShape::default(),
        };
        let table_state = writer
            .read("open", move |conn| {
                let shape = table_state.ask(conn, "open").shape()?;
                check_columns(&table_state.table, &shape.writable())?;
                Ok(table_state)
            })
            .await?;
        Ok(Self {
            writer,
            clock,
            table_state: Arc::new(table_state),
        })
    }

    /// Returns the given moment, or the current time of the store's clock.
    fn moment(&self, given: Option<Timestamp>) -> Timestamp {
        moment_of(self.clock.as_ref(), given)
    }

    /// Writes. `op` gets the time at which its turn comes, so that the times of operations rise in
    /// the order in which they take effect.
    async fn write<T, Op>(
        &self,
        verb: &'static str,
        given: Option<Timestamp>,
        op: Op,
    ) -> Result<T, StoreError>
    where
        T: Send + 'static,
        Op: FnOnce(&RowTable, &Connection, Timestamp) -> Result<T, StoreError> + Send + 'static,
    {
        self.writer
            .write(verb, self.with_table_and_time(given, op))
            .await
    }

    /// Like `write`; if `op` returns `None`, its changes are undone.
    async fn write_or_undo<T, Op>(
        &self,
        verb: &'static str,
        given: Option<Timestamp>,
        op: Op,
    ) -> Result<Option<T>, StoreError>
    where
        T: Send + 'static,
        Op: FnOnce(&RowTable, &Connection, Timestamp) -> Result<Option<T>, StoreError>
            + Send
            + 'static,
    {
        let op = self.with_table_and_time(given, op);
        self.writer.write_or_undo(verb, op).await
    }

    fn with_table_and_time<T>(
        &self,
        given: Option<Timestamp>,
        op: impl FnOnce(&RowTable, &Connection, Timestamp) -> T + Send + 'static,
    ) -> impl FnOnce(&Connection) -> T + Send + 'static {
        let (table_state, clock) = (Arc::clone(&self.table_state), Arc::clone(&self.clock));
        move |conn| op(&table_state, conn, moment_of(clock.as_ref(), given))
    }

    async fn read<T: Send + 'static>(
        &self,
        verb: &'static str,
        op: impl FnOnce(&RowTable, &Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let table_state = Arc::clone(&self.table_state);
        self.writer
            .read(verb, move |conn| op(&table_state, conn))
            .await
    }
}

impl RowTable {
    fn ask<'a>(&'a self, conn: &'a Connection, verb: &'static str) -> VerbContext<'a> {
        VerbContext {
            table_state: self,
            conn,
            verb,
        }
    }
}

/// An operation on a connection: runs statements of the table; errors contain the operation's name.
#[derive(Clone, Copy)]
struct VerbContext<'a> {
    table_state: &'a RowTable,
    conn: &'a Connection,
    verb: &'static str,
}

impl VerbContext<'_> {
    /// Maps a driver error to the error of this operation.
    fn error(&self, error: rusqlite::Error) -> StoreError {
        row_error(self.verb, &self.table_state.table, error)
    }

    /// Runs a statement and reads every row of its answer.
    fn rows<T>(
        &self,
        file: &'static str,
        name: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.rows_of(self.table_state.statements.get(file, name)?, params, read)
    }

    /// Like `rows`, for the text of a statement.
    fn rows_of<T>(
        &self,
        text: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        let run = || -> rusqlite::Result<Vec<T>> {
            let mut statement = self.conn.prepare_cached(text)?;
            statement.query_map(params, read)?.collect()
        };
        run().map_err(|error| self.error(error))
    }

    /// Returns a statement that changes many rows. If the table has triggers or generated columns,
    /// it omits `or fail`, which would override the conflict handling of the triggers.
    fn of_many(
        &self,
        file: &'static str,
        name: &str,
        shape: &Shape,
    ) -> Result<Cow<'_, str>, StoreError> {
        let text = self.table_state.statements.get(file, name)?;
        if shape.reacts {
            return Ok(Cow::Owned(text.replacen(" or fail ", " ", 1)));
        }
        Ok(Cow::Borrowed(text))
    }

    /// Runs a statement that returns at most one value.
    fn value<T: rusqlite::types::FromSql>(
        &self,
        file: &'static str,
        name: &str,
        params: impl Params,
    ) -> Result<Option<T>, StoreError> {
        let rows = self.rows(file, name, params, |row| row.get(0))?;
        Ok(rows.into_iter().next())
    }

    /// Reads the current states of rows, and the last outcomes that the token reported for them.
    fn look(
        &self,
        (token, holder): (&str, &str),
        ids: &[ItemId],
    ) -> Result<ItemPositions, StoreError> {
        type PositionRow = (i64, Option<String>, bool, Option<String>);
        if ids.is_empty() {
            return Ok(ItemPositions::new());
        }
        let params = named_params! {":token": token, ":holder": holder, ":ids": json_ids(ids)};
        let seen: Vec<PositionRow> = self.rows("look", "look", params, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
        let mut positions = ItemPositions::with_capacity(seen.len());
        for (id, state, is_mine, word) in seen {
            let look = ItemPosition {
                state: state_of(self.verb, &self.table_state.table, state.as_deref())?,
                is_mine,
                last_outcome: word.as_deref().and_then(OutcomeKind::parse),
            };
            positions.insert(ItemId::new(id), look);
        }
        Ok(positions)
    }
}

/// Encodes ids as a JSON array, for a statement parameter.
fn json_ids(ids: &[ItemId]) -> String {
    let numbers: Vec<i64> = ids.iter().map(|id| id.number()).collect();
    json!(numbers).to_string()
}

impl fmt::Debug for SqliteRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteRows")
            .field("table", &self.table_state.table.name)
            .finish_non_exhaustive()
    }
}

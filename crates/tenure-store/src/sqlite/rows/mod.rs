//! The row layout in SQLite: leases on the rows of any table that a [`LeaseTable`] describes.
//!
//! Each verb is one transaction on the writer's thread; reads have connections of their own.

mod each;
mod layout;
mod lease;
mod operate;
#[cfg(feature = "testing")]
mod planted;
mod read;
mod row;
mod shape;
mod statements;

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;

use rusqlite::{Connection, Params, Row, named_params};
use serde_json::json;
use tenure_core::store::StoreError;
use tenure_core::{Clock, ItemId, LeaseTable, Timestamp, Word};

use super::error::{failed, row_error};
use super::writer::Writer;
use super::{SqliteStore, moment_of};
use crate::render::{as_written, check_columns};
use crate::rows::state_of;
use crate::second_look::{Look, Looks};
use shape::{LastShape, Shape};
use statements::RowStatements;

/// The rows of one table as leasable items. Clones share the writer.
#[derive(Clone)]
pub struct SqliteRows {
    writer: Writer,
    clock: Arc<dyn Clock>,
    desk: Arc<Desk>,
}

/// What the verbs need on the writer's thread: the table and its statements.
#[derive(Debug)]
struct Desk {
    table: LeaseTable,
    statements: RowStatements,
    last_shape: LastShape,
}

impl SqliteStore {
    /// Makes a lease table with its indexes, all or nothing.
    ///
    /// # Errors
    /// It is there already, or the description is no table's.
    pub async fn create_table(&self, table: &LeaseTable) -> Result<(), StoreError> {
        SqliteRows::create(self.writer(), table).await
    }

    /// The rows of a lease table that is there.
    ///
    /// # Errors
    /// There is no such table, or it lacks columns that the description names.
    pub async fn rows(&self, table: LeaseTable) -> Result<SqliteRows, StoreError> {
        SqliteRows::open(self.writer().clone(), Arc::clone(&self.clock), table).await
    }
}

impl SqliteRows {
    /// Makes the table and its indexes, all or nothing.
    ///
    /// # Errors
    /// It is there already, or the description is no table's.
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

    /// Opens a table that is there.
    ///
    /// # Errors
    /// There is no such table, or it lacks columns that the description names.
    pub async fn open(
        writer: Writer,
        clock: Arc<dyn Clock>,
        table: LeaseTable,
    ) -> Result<Self, StoreError> {
        let statements = RowStatements::new(&table, &as_written)?;
        Self::open_with(writer, clock, table, statements).await
    }

    /// The same rows, counted by a statement that knows more of them.
    pub(super) fn counted_by(mut self, count: &str) -> Self {
        // Nobody shares them yet.
        if let Some(desk) = Arc::get_mut(&mut self.desk) {
            desk.statements.replace("count", count);
        }
        self
    }

    /// The same rows, judging leases by this clock.
    #[cfg(feature = "testing")]
    pub(crate) fn with_clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self }
    }

    /// What is described.
    pub fn table(&self) -> &LeaseTable {
        &self.desk.table
    }

    async fn open_with(
        writer: Writer,
        clock: Arc<dyn Clock>,
        table: LeaseTable,
        statements: RowStatements,
    ) -> Result<Self, StoreError> {
        let desk = Desk {
            table,
            statements,
            last_shape: LastShape::default(),
        };
        let desk = writer
            .read("open", move |conn| {
                let shape = desk.ask(conn, "open").shape()?;
                check_columns(&desk.table, &shape.writable())?;
                Ok(desk)
            })
            .await?;
        Ok(Self {
            writer,
            clock,
            desk: Arc::new(desk),
        })
    }

    /// The given moment, or that of the store's clock.
    fn moment(&self, given: Option<Timestamp>) -> Timestamp {
        moment_of(self.clock.as_ref(), given)
    }

    /// Writes; `op` learns the moment when its turn has come, so that verbs judge in the order in
    /// which they take effect.
    async fn write<T: Send + 'static>(
        &self,
        verb: &'static str,
        given: Option<Timestamp>,
        op: impl FnOnce(&Desk, &Connection, Timestamp) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        self.writer.write(verb, self.at_the_desk(given, op)).await
    }

    /// The same for what may answer nothing: then what it did is undone.
    async fn write_or_undo<T, Op>(
        &self,
        verb: &'static str,
        given: Option<Timestamp>,
        op: Op,
    ) -> Result<Option<T>, StoreError>
    where
        T: Send + 'static,
        Op: FnOnce(&Desk, &Connection, Timestamp) -> Result<Option<T>, StoreError> + Send + 'static,
    {
        let op = self.at_the_desk(given, op);
        self.writer.write_or_undo(verb, op).await
    }

    fn at_the_desk<T>(
        &self,
        given: Option<Timestamp>,
        op: impl FnOnce(&Desk, &Connection, Timestamp) -> T + Send + 'static,
    ) -> impl FnOnce(&Connection) -> T + Send + 'static {
        let (desk, clock) = (Arc::clone(&self.desk), Arc::clone(&self.clock));
        move |conn| op(&desk, conn, moment_of(clock.as_ref(), given))
    }

    async fn read<T: Send + 'static>(
        &self,
        verb: &'static str,
        op: impl FnOnce(&Desk, &Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let desk = Arc::clone(&self.desk);
        self.writer.read(verb, move |conn| op(&desk, conn)).await
    }
}

impl Desk {
    fn ask<'a>(&'a self, conn: &'a Connection, verb: &'static str) -> Ask<'a> {
        Ask {
            desk: self,
            conn,
            verb,
        }
    }
}

/// A verb at work on a connection: it runs the table's statements and names itself in errors.
#[derive(Clone, Copy)]
struct Ask<'a> {
    desk: &'a Desk,
    conn: &'a Connection,
    verb: &'static str,
}

impl Ask<'_> {
    /// What the verb came upon.
    fn error(&self, error: rusqlite::Error) -> StoreError {
        row_error(self.verb, &self.desk.table, error)
    }

    /// Runs a statement and reads every row of its answer.
    fn rows<T>(
        &self,
        file: &'static str,
        name: &str,
        params: impl Params,
        read: impl FnMut(&Row<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, StoreError> {
        self.rows_of(self.desk.statements.get(file, name)?, params, read)
    }

    /// The same for the text of a statement.
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

    /// A statement that changes many rows. Where the table has a say in that, what its triggers do
    /// on a conflict is left to them.
    fn of_many(
        &self,
        file: &'static str,
        name: &str,
        shape: &Shape,
    ) -> Result<Cow<'_, str>, StoreError> {
        let text = self.desk.statements.get(file, name)?;
        if shape.reacts {
            return Ok(Cow::Owned(text.replacen(" or fail ", " ", 1)));
        }
        Ok(Cow::Borrowed(text))
    }

    /// Runs a statement whose answer is one value, if any.
    fn value<T: rusqlite::types::FromSql>(
        &self,
        file: &'static str,
        name: &str,
        params: impl Params,
    ) -> Result<Option<T>, StoreError> {
        let rows = self.rows(file, name, params, |row| row.get(0))?;
        Ok(rows.into_iter().next())
    }

    /// Where rows are now, and what a token has said of them.
    fn look(&self, (token, holder): (&str, &str), ids: &[ItemId]) -> Result<Looks, StoreError> {
        type Seen = (i64, Option<String>, bool, Option<String>);
        if ids.is_empty() {
            return Ok(Looks::new());
        }
        let params = named_params! {":token": token, ":holder": holder, ":ids": json_ids(ids)};
        let seen: Vec<Seen> = self.rows("look", "look", params, |row| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?))
        })?;
        let mut looks = Looks::with_capacity(seen.len());
        for (id, state, is_mine, word) in seen {
            let look = Look {
                state: state_of(self.verb, &self.desk.table, state.as_deref())?,
                is_mine,
                word: word.as_deref().and_then(Word::parse),
            };
            looks.insert(ItemId::new(id), look);
        }
        Ok(looks)
    }
}

/// Ids as the JSON array that the statements take.
fn json_ids(ids: &[ItemId]) -> String {
    let numbers: Vec<i64> = ids.iter().map(|id| id.number()).collect();
    json!(numbers).to_string()
}

impl fmt::Debug for SqliteRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteRows")
            .field("table", &self.desk.table.name)
            .finish_non_exhaustive()
    }
}

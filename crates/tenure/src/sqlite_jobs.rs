//! Jobs and checkpoints in the caller's own transaction on SQLite.

use std::fmt;

use rusqlite::Connection;
use tenure_core::job::NewJob;
use tenure_core::store::{ChunkEnd, StoreError};
use tenure_store::Opened;
use tenure_store::sqlite::SqliteStore;

use crate::chunk::HeldChunk;
use crate::held_job::{HeldJob, HoldError, at};
use crate::jobs::{Jobs, first};
use crate::tenure::{Tenure, wrong_connection_to};

impl Jobs {
    /// Writes a job on the caller's connection: inside its transaction the job exists if and only
    /// if that transaction commits. Then call [`Tenure::wake`], or the job is found a little later.
    ///
    /// # Errors
    /// The open store is not SQLite, or the file is busy. The caller's transaction is then to be
    /// rolled back.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "as in its sisters, a job is handed over"
    )]
    pub fn enqueue_on(&self, conn: &Connection, job: NewJob) -> Result<i64, StoreError> {
        is_sqlite(self.tenure(), "enqueue")?;
        first(&SqliteStore::enqueue_jobs_on(
            conn,
            std::slice::from_ref(&job),
        )?)
    }
}

impl HeldJob {
    /// Writes down where it is in the caller's transaction, as its last statement: what the
    /// transaction did is there if and only if the checkpoint is. When it is refused, roll the
    /// transaction back: whoever has the job now does the same work.
    ///
    /// Begin the transaction as immediate, and commit at once: an SQLite file has one writer, and
    /// the heartbeat is one, too.
    ///
    /// ```
    /// use rusqlite::{Connection, TransactionBehavior};
    /// use tenure::{Failure, HeldJob, Outcome};
    ///
    /// async fn import(job: HeldJob) -> Result<Outcome, Failure> {
    ///     let mut shop = Connection::open("shop.db")?;
    ///     let first: i64 = job.cursor().map_or(Ok(0), str::parse)?;
    ///     for order in first..1000 {
    ///         let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    ///         tx.execute("insert into orders (id) values (?1)", [order])?;
    ///         job.checkpoint_on(&tx, &(order + 1).to_string())?; // `?` rolls back
    ///         tx.commit()?;
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    ///
    /// # Errors
    /// The hold is over, the open store is not SQLite, or the file is busy.
    pub fn checkpoint_on(&self, conn: &Connection, cursor: &str) -> Result<(), HoldError> {
        is_sqlite(self.tenure(), "checkpoint")?;
        Ok(SqliteStore::note_job_in(conn, self.hold(), &at(cursor))?)
    }
}

impl HeldChunk {
    /// It is done for good, with so many rows, if and only if the caller's transaction commits. As
    /// the last statement of that; when it is refused, roll the transaction back. If the
    /// transaction is never committed, the chunk is given back when this is dropped.
    ///
    /// ```
    /// use rusqlite::{Connection, TransactionBehavior};
    /// use tenure::HeldChunk;
    ///
    /// # type Done = Result<(), Box<dyn std::error::Error>>;
    /// # fn example(shop: &mut Connection, chunk: HeldChunk) -> Done {
    /// let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// tx.execute("insert into orders (id) values (7)", [])?;
    /// chunk.complete_on(&tx, 1)?; // refused: `tx` is dropped and rolled back
    /// tx.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The hold on it or on its job is over, the open store is not SQLite, or the file is busy.
    pub fn complete_on(&self, conn: &Connection, row_count: u64) -> Result<(), HoldError> {
        self.end_on(conn, ChunkEnd::Completed { row_count })
    }

    /// It is done, with so many rows, and may be done again; as [`HeldChunk::complete_on`].
    ///
    /// # Errors
    /// As [`HeldChunk::complete_on`].
    pub fn synced_on(&self, conn: &Connection, row_count: u64) -> Result<(), HoldError> {
        self.end_on(conn, ChunkEnd::Synced { row_count })
    }

    /// It failed for good, if and only if the caller's transaction commits; as
    /// [`HeldChunk::complete_on`].
    ///
    /// # Errors
    /// As [`HeldChunk::complete_on`].
    pub fn fail_for_good_on(
        &self,
        conn: &Connection,
        error: impl fmt::Display,
    ) -> Result<(), HoldError> {
        let error = error.to_string();
        self.end_on(conn, ChunkEnd::Dead { error })
    }

    fn end_on(&self, conn: &Connection, how: ChunkEnd) -> Result<(), HoldError> {
        let (tenure, end) = self.end_in_transaction(how);
        is_sqlite(tenure, "end chunk")?;
        Ok(SqliteStore::end_chunk_in(conn, &end)?)
    }
}

fn is_sqlite(tenure: &Tenure, verb: &'static str) -> Result<(), StoreError> {
    let Opened::Sqlite(_) = tenure.opened() else {
        return Err(wrong_connection_to(verb, "one of SQLite"));
    };
    Ok(())
}

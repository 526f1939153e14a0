//! Jobs and checkpoints in the caller's own transaction on SQLite.

use std::fmt;

use rusqlite::Connection;
use tenure_core::job::{JobId, NewJob};
use tenure_core::store::{ChunkEnd, HoldError, StoreError};
use tenure_store::sqlite::SqliteStore;

use crate::chunk::HeldChunk;
use crate::held_job::{HeldJob, at};
use crate::jobs::{Jobs, first};

impl Jobs {
    /// Writes a job on the caller's connection: inside a transaction, the job exists if and only if
    /// the transaction commits. Call [`Tenure::wake`](crate::Tenure::wake) after the commit;
    /// otherwise workers find the job at their next poll.
    ///
    /// # Errors
    /// The open store is not SQLite, or the file is busy. Roll the transaction back.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "like the other enqueue methods, it takes the job by value"
    )]
    pub fn enqueue_on(&self, conn: &Connection, job: NewJob) -> Result<JobId, StoreError> {
        self.tenure().opened().check_sqlite("enqueue")?;
        let jobs = std::slice::from_ref(&job);
        first(&SqliteStore::enqueue_jobs_on(conn, jobs)?)
    }
}

impl HeldJob {
    /// Saves the cursor of the job in the caller's transaction: the writes of the transaction exist
    /// if and only if the checkpoint does. Call it as the last statement; if it is refused, roll
    /// the transaction back, because another holder may do the same work.
    ///
    /// Begin the transaction as immediate and commit soon: an SQLite file has one writer at a time,
    /// and the heartbeat must write, too.
    ///
    /// ```
    /// use rusqlite::{Connection, TransactionBehavior};
    /// use tenure::job::HeldJob;
    /// use tenure::{Failure, Outcome};
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
        self.tenure().opened().check_sqlite("checkpoint")?;
        SqliteStore::note_job_in(conn, self.hold(), &at(cursor))
    }
}

impl HeldChunk {
    /// Completes the chunk for good, with this number of rows, if and only if the caller's
    /// transaction commits. Call it as the last statement; if it is refused, roll the transaction
    /// back. If the transaction never commits, dropping this chunk releases it.
    ///
    /// ```
    /// use rusqlite::{Connection, TransactionBehavior};
    /// use tenure::job::HeldChunk;
    ///
    /// # type Done = Result<(), Box<dyn std::error::Error>>;
    /// # fn example(shop: &mut Connection, chunk: HeldChunk) -> Done {
    /// let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// tx.execute("insert into orders (id) values (7)", [])?;
    /// chunk.complete_on(&tx, 1)?; // if refused, `tx` is dropped and rolled back
    /// tx.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The hold on the chunk or on its job is over, the open store is not SQLite, or the file is
    /// busy.
    pub fn complete_on(&self, conn: &Connection, row_count: u64) -> Result<(), HoldError> {
        self.end_on(conn, ChunkEnd::Completed { row_count })
    }

    /// Marks the chunk as done with this number of rows, but repeatable; otherwise like
    /// [`HeldChunk::complete_on`].
    ///
    /// # Errors
    /// As [`HeldChunk::complete_on`].
    pub fn synced_on(&self, conn: &Connection, row_count: u64) -> Result<(), HoldError> {
        self.end_on(conn, ChunkEnd::Synced { row_count })
    }

    /// Marks the chunk as failed for good, if and only if the caller's transaction commits;
    /// otherwise like [`HeldChunk::complete_on`].
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
        tenure.opened().check_sqlite("end chunk")?;
        SqliteStore::end_chunk_in(conn, &end)
    }
}

//! Jobs and checkpoints in the caller's own transaction on PostgreSQL.

use std::fmt;

use sqlx::PgConnection;
use tenure_core::job::{JobId, NewJob};
use tenure_core::store::{ChunkEnd, HoldError, StoreError};

use crate::chunk::HeldChunk;
use crate::held_job::{HeldJob, at};
use crate::jobs::{Jobs, first};

impl Jobs {
    /// Writes a job on the caller's connection: inside a transaction, the job exists if and only if
    /// the transaction commits. Call [`Tenure::wake`](crate::Tenure::wake) after the commit;
    /// otherwise workers find the job at their next poll.
    ///
    /// # Errors
    /// The open store is not PostgreSQL, or the database is unavailable. Roll the transaction back.
    pub async fn enqueue_in(
        &self,
        conn: &mut PgConnection,
        job: NewJob,
    ) -> Result<JobId, StoreError> {
        let store = self.tenure().opened().postgres("enqueue")?;
        let jobs = std::slice::from_ref(&job);
        first(&store.enqueue_jobs_on(conn, jobs).await?)
    }
}

impl HeldJob {
    /// Saves the cursor of the job in the caller's transaction: the writes of the transaction exist
    /// if and only if the checkpoint does. Call it as the last statement; if it is refused, roll
    /// the transaction back, because another holder may do the same work.
    ///
    /// Commit soon: until then the job's row is locked, and the heartbeat cannot renew its lease.
    ///
    /// ```no_run
    /// use sqlx::{Connection, PgConnection};
    /// use tenure::job::HeldJob;
    /// use tenure::{Failure, Outcome};
    ///
    /// async fn import(job: HeldJob) -> Result<Outcome, Failure> {
    ///     let mut shop = PgConnection::connect("postgres://localhost/shop").await?;
    ///     let first: i64 = job.cursor().map_or(Ok(0), str::parse)?;
    ///     for order in first..1000 {
    ///         let mut tx = shop.begin().await?;
    ///         let insert = sqlx::query("insert into orders (id) values ($1)").bind(order);
    ///         insert.execute(&mut *tx).await?;
    ///         job.checkpoint_in(&mut tx, &(order + 1).to_string()).await?; // `?` rolls back
    ///         tx.commit().await?;
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    ///
    /// # Errors
    /// The hold is over, the open store is not PostgreSQL, or the database is unavailable.
    pub async fn checkpoint_in(
        &self,
        conn: &mut PgConnection,
        cursor: &str,
    ) -> Result<(), HoldError> {
        let store = self.tenure().opened().postgres("checkpoint")?;
        store.note_job_in(conn, self.hold(), &at(cursor)).await
    }
}

impl HeldChunk {
    /// Completes the chunk for good, with this number of rows, if and only if the caller's
    /// transaction commits. Call it as the last statement; if it is refused, roll the transaction
    /// back. If the transaction never commits, dropping this chunk releases it.
    ///
    /// ```no_run
    /// use sqlx::{Connection, PgConnection};
    /// use tenure::job::HeldChunk;
    ///
    /// # async fn example(chunk: HeldChunk) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut shop = PgConnection::connect("postgres://localhost/shop").await?;
    /// let mut tx = shop.begin().await?;
    /// sqlx::query("insert into orders (id) values (7)").execute(&mut *tx).await?;
    /// chunk.complete_in(&mut tx, 1).await?; // if refused, `tx` is dropped and rolled back
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The hold on the chunk or on its job is over, the open store is not PostgreSQL, or the
    /// database is unavailable.
    pub async fn complete_in(
        &self,
        conn: &mut PgConnection,
        row_count: u64,
    ) -> Result<(), HoldError> {
        self.end_in(conn, ChunkEnd::Completed { row_count }).await
    }

    /// Marks the chunk as done with this number of rows, but repeatable; otherwise like
    /// [`HeldChunk::complete_in`].
    ///
    /// # Errors
    /// As [`HeldChunk::complete_in`].
    pub async fn synced_in(
        &self,
        conn: &mut PgConnection,
        row_count: u64,
    ) -> Result<(), HoldError> {
        self.end_in(conn, ChunkEnd::Synced { row_count }).await
    }

    /// Marks the chunk as failed for good, if and only if the caller's transaction commits;
    /// otherwise like [`HeldChunk::complete_in`].
    ///
    /// # Errors
    /// As [`HeldChunk::complete_in`].
    pub async fn fail_for_good_in(
        &self,
        conn: &mut PgConnection,
        error: impl fmt::Display,
    ) -> Result<(), HoldError> {
        let error = error.to_string();
        self.end_in(conn, ChunkEnd::Dead { error }).await
    }

    async fn end_in(&self, conn: &mut PgConnection, how: ChunkEnd) -> Result<(), HoldError> {
        let (tenure, end) = self.end_in_transaction(how);
        let store = tenure.opened().postgres("end chunk")?;
        store.end_chunk_in(conn, &end).await
    }
}

//! Jobs and checkpoints in the caller's own transaction on PostgreSQL.

use std::fmt;

use sqlx::PgConnection;
use tenure_core::job::NewJob;
use tenure_core::store::{ChunkEnd, StoreError};
use tenure_store::Opened;
use tenure_store::postgres::PostgresStore;

use crate::chunk::HeldChunk;
use crate::held_job::{HeldJob, HoldError, at};
use crate::jobs::{Jobs, first};
use crate::tenure::{Tenure, wrong_connection_to};

impl Jobs {
    /// Writes a job on the caller's connection: inside its transaction the job exists if and only
    /// if that transaction commits. Then call [`Tenure::wake`], or the job is found a little later.
    ///
    /// # Errors
    /// The open store is not PostgreSQL, or the database is away. The caller's transaction is then
    /// to be rolled back.
    pub async fn enqueue_in(
        &self,
        conn: &mut PgConnection,
        job: NewJob,
    ) -> Result<i64, StoreError> {
        let store = postgres(self.tenure(), "enqueue")?;
        let jobs = std::slice::from_ref(&job);
        first(&store.enqueue_jobs_on(conn, jobs).await?)
    }
}

impl HeldJob {
    /// Writes down where it is in the caller's transaction, as its last statement: what the
    /// transaction did is there if and only if the checkpoint is. When it is refused, roll the
    /// transaction back: whoever has the job now does the same work.
    ///
    /// Commit at once: until then the row of the job is kept from the heartbeat.
    ///
    /// ```no_run
    /// use sqlx::{Connection, PgConnection};
    /// use tenure::{Failure, HeldJob, Outcome};
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
    /// The hold is over, the open store is not PostgreSQL, or the database is away.
    pub async fn checkpoint_in(
        &self,
        conn: &mut PgConnection,
        cursor: &str,
    ) -> Result<(), HoldError> {
        let store = postgres(self.tenure(), "checkpoint")?;
        Ok(store.note_job_in(conn, self.hold(), &at(cursor)).await?)
    }
}

impl HeldChunk {
    /// It is done for good, with so many rows, if and only if the caller's transaction commits. As
    /// the last statement of that; when it is refused, roll the transaction back. If the
    /// transaction is never committed, the chunk is given back when this is dropped.
    ///
    /// ```no_run
    /// use sqlx::{Connection, PgConnection};
    /// use tenure::HeldChunk;
    ///
    /// # async fn example(chunk: HeldChunk) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut shop = PgConnection::connect("postgres://localhost/shop").await?;
    /// let mut tx = shop.begin().await?;
    /// sqlx::query("insert into orders (id) values (7)").execute(&mut *tx).await?;
    /// chunk.complete_in(&mut tx, 1).await?; // refused: `tx` is dropped and rolled back
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The hold on it or on its job is over, the open store is not PostgreSQL, or the database is
    /// away.
    pub async fn complete_in(
        &self,
        conn: &mut PgConnection,
        row_count: u64,
    ) -> Result<(), HoldError> {
        self.end_in(conn, ChunkEnd::Completed { row_count }).await
    }

    /// It is done, with so many rows, and may be done again; as [`HeldChunk::complete_in`].
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

    /// It failed for good, if and only if the caller's transaction commits; as
    /// [`HeldChunk::complete_in`].
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
        let store = postgres(tenure, "end chunk")?;
        Ok(store.end_chunk_in(conn, &end).await?)
    }
}

fn postgres<'a>(tenure: &'a Tenure, verb: &'static str) -> Result<&'a PostgresStore, StoreError> {
    let Opened::Postgres(store) = tenure.opened() else {
        return Err(wrong_connection_to(verb, "one of PostgreSQL"));
    };
    Ok(store)
}

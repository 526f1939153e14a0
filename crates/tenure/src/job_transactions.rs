//! Jobs, checkpoints and ends of chunks in the caller's own transaction.

use std::fmt;

use tenure_core::job::{JobId, NewJob};
use tenure_core::store::{ChunkEnd, HoldError, StoreError};
use tenure_store::JobsOn;

use crate::chunk::HeldChunk;
use crate::held_job::{HeldJob, at};
use crate::jobs::Jobs;

impl Jobs {
    /// Writes a job on the caller's connection: inside a transaction, the job exists if and only if
    /// the transaction commits. Call [`Tenure::wake`](crate::Tenure::wake) after the commit;
    /// otherwise workers find the job at their next poll.
    ///
    /// | connection | returns |
    /// |---|---|
    /// | `&mut sqlx::PgConnection`, a sqlx transaction on PostgreSQL | a future |
    /// | `&rusqlite::Connection`, a rusqlite transaction | a result |
    ///
    /// ```no_run
    /// use tenure::job::{Jobs, NewJob};
    ///
    /// # type Done = Result<(), Box<dyn std::error::Error>>;
    /// async fn on_postgres(jobs: &Jobs, shop: &sqlx::PgPool) -> Done {
    ///     let mut tx = shop.begin().await?;
    ///     jobs.enqueue_in(&mut tx, NewJob::new("import.orders", "{}")?).await?;
    ///     Ok(tx.commit().await?)
    /// }
    ///
    /// fn on_sqlite(jobs: &Jobs, shop: &mut rusqlite::Connection) -> Done {
    ///     let tx = shop.transaction()?;
    ///     jobs.enqueue_in(&tx, NewJob::new("import.orders", "{}")?)?;
    ///     Ok(tx.commit()?)
    /// }
    /// ```
    ///
    /// Other connections do not compile:
    ///
    /// ```compile_fail,E0277
    /// use tenure::job::{Jobs, NewJob};
    ///
    /// fn on_other(jobs: &Jobs, shop: &mut sqlx::SqliteConnection, job: NewJob) {
    ///     drop(jobs.enqueue_in(shop, job));
    /// }
    /// ```
    ///
    /// # Errors
    /// The job is not valid, the connection belongs to another kind of database than the open
    /// store, or the database is unavailable. Roll the transaction back.
    pub fn enqueue_in<'c, C>(&'c self, connection: C, job: NewJob) -> C::Answer<JobId, StoreError>
    where
        C: JobsOn<'c>,
    {
        connection.enqueue_job(self.tenure().opened(), job)
    }
}

impl HeldJob {
    /// Saves the cursor of the job in the caller's transaction: the writes of the transaction exist
    /// if and only if the checkpoint does. Call it as the last statement; if it is refused, roll
    /// the transaction back, because another holder may do the same work. Connections and returned
    /// types are those of [`Jobs::enqueue_in`].
    ///
    /// Commit soon: until then the heartbeat cannot renew the lease, because PostgreSQL has locked
    /// the job's row, and an SQLite file has one writer at a time.
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
    /// On SQLite, begin the transaction as immediate:
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
    ///         job.checkpoint_in(&tx, &(order + 1).to_string())?; // `?` rolls back
    ///         tx.commit()?;
    ///     }
    ///     Ok(Outcome::Done)
    /// }
    /// ```
    ///
    /// # Errors
    /// The hold is over, the connection belongs to another kind of database than the open store, or
    /// the database is unavailable.
    pub fn checkpoint_in<'c, C>(&'c self, connection: C, cursor: &str) -> C::Answer<(), HoldError>
    where
        C: JobsOn<'c>,
    {
        connection.note_job(self.tenure().opened(), (self.hold(), at(cursor)))
    }
}

impl HeldChunk {
    /// Completes the chunk for good, with this number of rows, if and only if the caller's
    /// transaction commits. Call it as the last statement; if it is refused, roll the transaction
    /// back. If the transaction never commits, dropping this chunk releases it. Connections and
    /// returned types are those of [`Jobs::enqueue_in`].
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
    /// On SQLite, begin the transaction as immediate:
    ///
    /// ```
    /// use rusqlite::{Connection, TransactionBehavior};
    /// use tenure::job::HeldChunk;
    ///
    /// # type Done = Result<(), Box<dyn std::error::Error>>;
    /// # fn example(shop: &mut Connection, chunk: HeldChunk) -> Done {
    /// let tx = shop.transaction_with_behavior(TransactionBehavior::Immediate)?;
    /// tx.execute("insert into orders (id) values (7)", [])?;
    /// chunk.complete_in(&tx, 1)?; // if refused, `tx` is dropped and rolled back
    /// tx.commit()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The hold on the chunk or on its job is over, the connection belongs to another kind of
    /// database than the open store, or the database is unavailable.
    pub fn complete_in<'c, C>(&'c self, connection: C, row_count: u64) -> C::Answer<(), HoldError>
    where
        C: JobsOn<'c>,
    {
        self.end_in(connection, ChunkEnd::Completed { row_count })
    }

    /// Marks the chunk as done with this number of rows, but repeatable; otherwise like
    /// [`HeldChunk::complete_in`].
    ///
    /// # Errors
    /// As [`HeldChunk::complete_in`].
    pub fn synced_in<'c, C>(&'c self, connection: C, row_count: u64) -> C::Answer<(), HoldError>
    where
        C: JobsOn<'c>,
    {
        self.end_in(connection, ChunkEnd::Synced { row_count })
    }

    /// Marks the chunk as failed for good, if and only if the caller's transaction commits;
    /// otherwise like [`HeldChunk::complete_in`].
    ///
    /// # Errors
    /// As [`HeldChunk::complete_in`].
    pub fn fail_for_good_in<'c, C>(
        &'c self,
        connection: C,
        error: impl fmt::Display,
    ) -> C::Answer<(), HoldError>
    where
        C: JobsOn<'c>,
    {
        let error = error.to_string();
        self.end_in(connection, ChunkEnd::Dead { error })
    }
}

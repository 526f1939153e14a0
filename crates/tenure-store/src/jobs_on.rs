//! `JobsOn`: the connections and transactions of each driver on which jobs and chunks can be
//! written.

use tenure_core::job::{JobId, NewJob, Note};
use tenure_core::store::{EndChunk, HoldError, JobHold, StoreError};

use crate::events::sealed::Sealed;
use crate::open::Opened;

/// A connection of the caller on which jobs, checkpoints and ends of chunks can be written.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection on which Tenure writes jobs",
    label = "expected `&mut sqlx::PgConnection` or `&rusqlite::Connection`",
    note = "a transaction of sqlx on PostgreSQL fits as `&mut tx`, one of rusqlite as `&tx`; \
            the features `postgres` and `sqlite` of tenure bring the drivers"
)]
pub trait JobsOn<'c>: Sealed {
    /// Return type for this connection: a future or a result.
    type Answer<T: Send + 'c, E: Send + 'c>;

    /// Writes a job.
    fn enqueue_job(self, store: &'c Opened, job: NewJob) -> Self::Answer<JobId, StoreError>;

    /// Saves the progress of a job, if its hold is live.
    fn note_job(self, store: &'c Opened, note: (&'c JobHold, Note)) -> Self::Answer<(), HoldError>;

    /// Ends a chunk, if its hold and that on its job are live.
    fn end_chunk(self, store: &'c Opened, end: EndChunk) -> Self::Answer<(), HoldError>;
}

/// Writes jobs on a connection through a type that dereferences to it, such as a transaction.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! derefs {
    ($target:ty: $($connection:ty),*) => {$(
        impl<'c> JobsOn<'c> for $connection {
            type Answer<T: Send + 'c, E: Send + 'c> = <$target as JobsOn<'c>>::Answer<T, E>;

            fn enqueue_job(
                self,
                store: &'c Opened,
                job: NewJob,
            ) -> Self::Answer<JobId, StoreError> {
                <$target as JobsOn<'c>>::enqueue_job(self, store, job)
            }

            fn note_job(
                self,
                store: &'c Opened,
                note: (&'c JobHold, Note),
            ) -> Self::Answer<(), HoldError> {
                <$target as JobsOn<'c>>::note_job(self, store, note)
            }

            fn end_chunk(
                self,
                store: &'c Opened,
                end: EndChunk,
            ) -> Self::Answer<(), HoldError> {
                <$target as JobsOn<'c>>::end_chunk(self, store, end)
            }
        }
    )*};
}

#[cfg(feature = "postgres")]
mod postgres {
    //! Connections and transactions of sqlx.

    use std::pin::Pin;
    use std::slice::from_ref;

    use sqlx::pool::PoolConnection;
    use sqlx::{PgConnection, Postgres, Transaction};
    use tenure_core::store::only_job;

    use super::{EndChunk, HoldError, JobHold, JobId, JobsOn, NewJob, Note, Opened, StoreError};

    impl<'c> JobsOn<'c> for &'c mut PgConnection {
        type Answer<T: Send + 'c, E: Send + 'c> =
            Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'c>>;

        fn enqueue_job(self, store: &'c Opened, job: NewJob) -> Self::Answer<JobId, StoreError> {
            Box::pin(async move {
                let store = store.postgres("enqueue")?;
                only_job(&store.enqueue_jobs_on(self, from_ref(&job)).await?)
            })
        }

        fn note_job(
            self,
            store: &'c Opened,
            (hold, note): (&'c JobHold, Note),
        ) -> Self::Answer<(), HoldError> {
            Box::pin(async move {
                let store = store.postgres("checkpoint")?;
                store.note_job_in(self, hold, &note).await
            })
        }

        fn end_chunk(self, store: &'c Opened, end: EndChunk) -> Self::Answer<(), HoldError> {
            Box::pin(async move {
                let store = store.postgres("end chunk")?;
                store.end_chunk_in(self, &end).await
            })
        }
    }

    derefs!(
        &'c mut PgConnection:
        &'c mut Transaction<'_, Postgres>,
        &'c mut PoolConnection<Postgres>
    );
}

#[cfg(feature = "sqlite")]
mod sqlite {
    //! Connections and transactions of rusqlite.

    use std::slice::from_ref;

    use rusqlite::{Connection, Savepoint, Transaction};
    use tenure_core::store::only_job;

    use super::{EndChunk, HoldError, JobHold, JobId, JobsOn, NewJob, Note, Opened, StoreError};
    use crate::sqlite::SqliteStore;

    /// The connection must use the file that is open as the store.
    impl<'c> JobsOn<'c> for &'c Connection {
        type Answer<T: Send + 'c, E: Send + 'c> = Result<T, E>;

        fn enqueue_job(self, store: &'c Opened, job: NewJob) -> Result<JobId, StoreError> {
            store.check_sqlite("enqueue")?;
            only_job(&SqliteStore::enqueue_jobs_on(self, from_ref(&job))?)
        }

        fn note_job(
            self,
            store: &'c Opened,
            (hold, note): (&'c JobHold, Note),
        ) -> Result<(), HoldError> {
            store.check_sqlite("checkpoint")?;
            SqliteStore::note_job_in(self, hold, &note)
        }

        fn end_chunk(self, store: &'c Opened, end: EndChunk) -> Result<(), HoldError> {
            store.check_sqlite("end chunk")?;
            SqliteStore::end_chunk_in(self, &end)
        }
    }

    derefs!(&'c Connection: &'c Transaction<'_>, &'c Savepoint<'_>);
}

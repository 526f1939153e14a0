//! `EnqueueOn`: the connections and transactions of each driver on which events can be enqueued;
//! `EnqueuedOn`: those from which the test kit reads the events.

use tenure_core::Event;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_core::Invalid;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_core::store::StoreError;

use crate::events::Events;
use crate::events::sealed::Sealed;
use crate::open::Opened;

#[cfg(any(feature = "postgres", feature = "sqlite"))]
const VERB: &str = "enqueue";

/// A connection of the caller on which events can be enqueued.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection that Tenure enqueues on",
    label = "expected `&mut sqlx::PgConnection`, `&mut sqlx::SqliteConnection` or \
             `&rusqlite::Connection`",
    note = "a transaction of sqlx fits as `&mut *tx`, one of rusqlite as `&tx`; \
            without a connection there is `enqueue_now`, for other drivers `enqueue_statement`; \
            the features `postgres`, `sqlite` and `sqlx-sqlite` of tenure bring the drivers"
)]
pub trait EnqueueOn<'c>: Sealed {
    /// Return type for this connection: a future or a result.
    type Answer<T: Send + 'c>;

    /// Writes the events.
    fn enqueue<E: Events + 'c>(self, store: &'c Opened, events: E) -> Self::Answer<E::Answer>;
}

/// A connection of the caller from which events can be read.
pub trait EnqueuedOn<'c>: EnqueueOn<'c> {
    /// Reads the events.
    fn enqueued<T: From<Vec<Event>> + Send + 'c>(self, store: &'c Opened) -> Self::Answer<T>;
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn wrong_connection(verb: &'static str, found: &'static str) -> StoreError {
    let problem = Invalid::new("the connection", found, "one to the store that is open");
    StoreError::invalid(verb, &problem)
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn hinted(error: StoreError) -> StoreError {
    error.with_hint("`enqueue_now` works on every store")
}

/// Enqueues on a connection through a type that dereferences to it, such as a transaction.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! derefs {
    ($target:ty: $($connection:ty),*) => {$(
        impl<'c> Sealed for $connection {}

        impl<'c> EnqueueOn<'c> for $connection {
            type Answer<T: Send + 'c> = <$target as EnqueueOn<'c>>::Answer<T>;

            fn enqueue<E: Events + 'c>(
                self,
                store: &'c Opened,
                events: E,
            ) -> Self::Answer<E::Answer> {
                let connection: $target = self;
                connection.enqueue(store, events)
            }
        }
    )*};
}

#[cfg(feature = "postgres")]
mod postgres {
    //! Connections and transactions of sqlx.

    use sqlx::pool::PoolConnection;
    use sqlx::{PgConnection, Postgres, Transaction};
    use tenure_core::store::{Answer, StoreError};

    use super::{
        EnqueueOn, EnqueuedOn, Event, Events, Opened, Sealed, VERB, hinted, wrong_connection,
    };
    use crate::postgres::PostgresStore;

    impl Opened {
        /// The store, for a connection to PostgreSQL.
        ///
        /// # Errors
        /// The store is another one.
        pub fn postgres(&self, verb: &'static str) -> Result<&PostgresStore, StoreError> {
            let Self::Postgres(store) = self else {
                return Err(wrong_connection(verb, "one of PostgreSQL"));
            };
            Ok(store)
        }
    }

    impl Sealed for &mut PgConnection {}

    impl<'c> EnqueueOn<'c> for &'c mut PgConnection {
        type Answer<T: Send + 'c> = Answer<'c, T>;

        fn enqueue<E: Events + 'c>(self, store: &'c Opened, events: E) -> Answer<'c, E::Answer> {
            let events = events.into_events();
            Box::pin(async move {
                let events = events?;
                let store = store.postgres(VERB).map_err(hinted)?;
                E::answer(store.enqueue_on(self, &events).await?)
            })
        }
    }

    derefs!(
        &'c mut PgConnection:
        &'c mut Transaction<'_, Postgres>,
        &'c mut PoolConnection<Postgres>
    );

    impl<'c> EnqueuedOn<'c> for &'c mut PgConnection {
        fn enqueued<T: From<Vec<Event>> + Send + 'c>(self, store: &'c Opened) -> Self::Answer<T> {
            Box::pin(async move {
                let store = store.postgres("enqueued")?;
                store.written_on(self).await.map(T::from)
            })
        }
    }

    impl<'c> EnqueuedOn<'c> for &'c mut Transaction<'_, Postgres> {
        fn enqueued<T: From<Vec<Event>> + Send + 'c>(self, store: &'c Opened) -> Self::Answer<T> {
            let connection: &'c mut PgConnection = self;
            connection.enqueued(store)
        }
    }
}

#[cfg(feature = "sqlite")]
mod sqlite {
    //! Connections and transactions of rusqlite.

    use rusqlite::{Connection, Savepoint, Transaction};
    use tenure_core::store::StoreError;

    use super::{
        EnqueueOn, EnqueuedOn, Event, Events, Opened, Sealed, VERB, hinted, wrong_connection,
    };
    use crate::sqlite::SqliteStore;

    impl Opened {
        /// Checks that the store is one for a connection to SQLite.
        ///
        /// # Errors
        /// The store is another one.
        pub fn check_sqlite(&self, verb: &'static str) -> Result<(), StoreError> {
            let Self::Sqlite(_) = self else {
                return Err(wrong_connection(verb, "one of SQLite"));
            };
            Ok(())
        }
    }

    impl Sealed for &Connection {}

    /// The connection must use the file that is open as the store. Begin a transaction as immediate
    /// if it reads before it writes; otherwise SQLite may refuse the write as busy.
    impl<'c> EnqueueOn<'c> for &'c Connection {
        type Answer<T: Send + 'c> = Result<T, StoreError>;

        fn enqueue<E: Events + 'c>(
            self,
            store: &'c Opened,
            events: E,
        ) -> Result<E::Answer, StoreError> {
            let events = events.into_events()?;
            store.check_sqlite(VERB).map_err(hinted)?;
            E::answer(SqliteStore::enqueue_on(self, &events)?)
        }
    }

    derefs!(&'c Connection: &'c Transaction<'_>, &'c Savepoint<'_>);

    impl<'c> EnqueuedOn<'c> for &'c Connection {
        fn enqueued<T: From<Vec<Event>> + Send + 'c>(self, _: &'c Opened) -> Self::Answer<T> {
            SqliteStore::written_on(self).map(T::from)
        }
    }

    impl<'c> EnqueuedOn<'c> for &'c Transaction<'_> {
        fn enqueued<T: From<Vec<Event>> + Send + 'c>(self, store: &'c Opened) -> Self::Answer<T> {
            let connection: &'c Connection = self;
            connection.enqueued(store)
        }
    }
}

#[cfg(feature = "sqlx-sqlite")]
mod sqlx_sqlite {
    //! Connections and transactions of sqlx to SQLite.

    use sqlx::error::DatabaseError;
    use sqlx::pool::PoolConnection;
    use sqlx::{Sqlite, SqliteConnection, Transaction};
    use tenure_core::store::{Answer, Enqueued, StoreError, StoreErrorKind};
    use tenure_core::{Event, ItemId};

    use super::{EnqueueOn, Events, Opened, Sealed, VERB, hinted};
    use crate::sqlite::SqliteStore;

    impl Sealed for &mut SqliteConnection {}

    /// The connection must use the file that is open as the store. Events with a dedupe key are
    /// refused: enqueue them with rusqlite, or without a connection.
    impl<'c> EnqueueOn<'c> for &'c mut SqliteConnection {
        type Answer<T: Send + 'c> = Answer<'c, T>;

        fn enqueue<E: Events + 'c>(self, store: &'c Opened, events: E) -> Answer<'c, E::Answer> {
            let events = events.into_events();
            Box::pin(async move {
                let events = events?;
                store.check_sqlite(VERB).map_err(hinted)?;
                let mut answers = Vec::with_capacity(events.len());
                for event in &events {
                    answers.push(write(self, event).await?);
                }
                E::answer(answers)
            })
        }
    }

    async fn write(conn: &mut SqliteConnection, event: &Event) -> Result<Enqueued, StoreError> {
        let statement = SqliteStore::enqueue_statement(event)?;
        let (write, last_id) = SqliteStore::enqueue_texts();
        let mut query = sqlx::query(write);
        for parameter in statement.parameters {
            query = query.bind(parameter);
        }
        query.execute(&mut *conn).await.map_err(failed)?;
        let id = sqlx::query_scalar(last_id).fetch_one(conn).await;
        Ok(Enqueued::Fresh {
            id: ItemId::new(id.map_err(failed)?),
            event_id: statement.event_id,
        })
    }

    fn failed(error: sqlx::Error) -> StoreError {
        // The codes 5 and 6 mean that the file is busy or locked, so the same event can succeed
        // later. With any other code, a check of SQLite rejected the event.
        let code = error.as_database_error().and_then(DatabaseError::code);
        let kind = match code.as_deref() {
            None | Some("5" | "6") => StoreErrorKind::Unavailable,
            Some(_) => StoreErrorKind::Invalid,
        };
        let message = "the connection could not write the event";
        StoreError::new(VERB, kind, message).with_cause(error)
    }

    derefs!(
        &'c mut SqliteConnection:
        &'c mut Transaction<'_, Sqlite>,
        &'c mut PoolConnection<Sqlite>
    );
}

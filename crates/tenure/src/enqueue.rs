//! Enqueueing of one or several events, on the caller's connection or without one.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_core::Invalid;
use tenure_core::store::{Enqueued, StoreError, StoreErrorKind};
use tenure_core::{Event, NewEvent, Problems};
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_store::{EnqueueStatement, Opened};

use crate::tenure::Tenure;

const VERB: &str = "enqueue";
#[cfg(any(feature = "postgres", feature = "sqlite"))]
const HINT: &str = "`enqueue_now` works on every store";

impl Tenure {
    /// Writes an event, or several, on the caller's connection: inside a transaction they exist if
    /// and only if the transaction commits.
    ///
    /// | connection | returns |
    /// |---|---|
    /// | `&mut sqlx::PgConnection`, `&mut sqlx::SqliteConnection`, a sqlx transaction | a future |
    /// | `&rusqlite::Connection`, a rusqlite transaction | a result |
    ///
    /// One event gives one [`Enqueued`], several give a vector in the same order.
    /// [`enqueue_now`](Self::enqueue_now) needs no connection;
    /// [`enqueue_statement`](Self::enqueue_statement) serves all other drivers.
    ///
    /// Call [`wake`](Self::wake) after the commit, so that the workers of this process poll at
    /// once.
    ///
    /// ```no_run
    /// use sqlx::{Connection, PgConnection};
    /// use tenure::{NewEvent, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let url = "postgres://localhost/shop";
    /// let tenure = Tenure::open(url).await?;
    /// let mut shop = PgConnection::connect(url).await?;
    ///
    /// let mut tx = shop.begin().await?;
    /// sqlx::query("insert into orders (id, total) values (7, 990)").execute(&mut *tx).await?;
    /// tenure.enqueue(&mut *tx, NewEvent::new("order.paid", &7).key("customer-7")).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Other connections do not compile:
    ///
    /// ```compile_fail,E0277
    /// # async fn example(tenure: tenure::Tenure) -> Result<(), Box<dyn std::error::Error>> {
    /// let stream = tokio::net::TcpStream::connect("localhost:5432").await?;
    /// tenure.enqueue(&stream, tenure::NewEvent::new("order.paid", &7));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An event is not valid (every problem is reported), a queue does not exist, the connection
    /// belongs to another kind of database than the open store, or the database is unavailable.
    /// Roll the transaction back.
    pub fn enqueue<'c, C, E>(&'c self, connection: C, events: E) -> C::Answer<E::Answer>
    where
        C: EnqueueOn<'c>,
        E: Events + 'c,
    {
        connection.enqueue(self, events)
    }

    /// Writes an event, or several, in a separate transaction, committed when this returns.
    ///
    /// ```
    /// use tenure::{NewEvent, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let tenure = Tenure::open("memory:").await?;
    /// let one = tenure.enqueue_now(NewEvent::new("order.paid", &7).key("customer-7")).await?;
    /// let two = [NewEvent::new("order.paid", &8), NewEvent::new("order.shipped", &8)];
    /// let answers = tenure.enqueue_now(two).await?;
    /// assert!(answers[0].id() > one.id());
    ///
    /// let error = tenure.enqueue_now(NewEvent::new("", &9).priority(8)).await.unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     "enqueue: topic is empty; expected 1 to 255 bytes, such as `order.paid`; \
    ///      priority is 8; expected 0 to 7, highest first"
    /// );
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// An event is not valid, a queue does not exist, or the database is unavailable.
    pub async fn enqueue_now<E: Events>(&self, events: E) -> Result<E::Answer, StoreError> {
        let events = events.into_events()?;
        let answers = self.store().enqueue(&events).await?;
        self.wake();
        E::answer(answers)
    }

    /// Returns the enqueue of one event as a statement with parameters, for drivers without direct
    /// support: `tokio-postgres`, diesel, sqlx with SQLite. Run it in the transaction of the
    /// change.
    ///
    /// ```no_run
    /// use tenure::{NewEvent, Tenure};
    ///
    /// async fn pay(
    ///     tenure: &Tenure,
    ///     shop: &mut tokio_postgres::Client,
    /// ) -> Result<(), Box<dyn std::error::Error>> {
    ///     let tx = shop.transaction().await?;
    ///     tx.execute("update orders set paid = true where id = 7", &[]).await?;
    ///     let event = NewEvent::new("order.paid", &7).key("customer-7");
    ///     let statement = tenure.enqueue_statement(event)?;
    ///     let parameters = statement.parameters.iter();
    ///     let parameters: Vec<_> = parameters.map(|text| text as &(dyn ToSql + Sync)).collect();
    ///     tx.query_one(&statement.text, &parameters).await?;
    ///     tx.commit().await?;
    ///     Ok(())
    /// }
    /// # use tokio_postgres::types::ToSql;
    /// ```
    ///
    /// # Errors
    /// The event is not valid, the store is in memory, the payload is bytes (PostgreSQL), or the
    /// event has a dedupe key (SQLite).
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub fn enqueue_statement(
        &self,
        event: impl Into<NewEvent>,
    ) -> Result<EnqueueStatement, StoreError> {
        let event = event
            .into()
            .build()
            .map_err(|problems| refused(&problems))?;
        match self.opened() {
            #[cfg(feature = "postgres")]
            Opened::Postgres(store) => store.enqueue_statement(&event),
            #[cfg(feature = "sqlite")]
            Opened::Sqlite(_) => tenure_store::sqlite::SqliteStore::enqueue_statement(&event),
            _ => {
                let expected = "PostgreSQL or SQLite: memory has no statements";
                let problem = Invalid::new("the store", "in memory", expected);
                Err(StoreError::invalid(VERB, &problem))
            }
        }
    }
}

/// A connection of the caller on which events can be enqueued.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a connection that Tenure enqueues on",
    label = "expected `&mut sqlx::PgConnection`, `&mut sqlx::SqliteConnection` or \
             `&rusqlite::Connection`",
    note = "a transaction of sqlx fits as `&mut *tx`, one of rusqlite as `&tx`; \
            without a connection there is `enqueue_now`, for other drivers `enqueue_statement`; \
            the features `postgres`, `sqlite` and `sqlx-sqlite` of tenure bring the drivers"
)]
pub trait EnqueueOn<'c>: sealed::Sealed {
    /// Return type for this connection: a future or a result.
    type Answer<T: Send + 'c>;

    /// Writes the events.
    fn enqueue<E: Events + 'c>(self, tenure: &'c Tenure, events: E) -> Self::Answer<E::Answer>;
}

/// One event, or several that are written together, all or none.
pub trait Events: sealed::Sealed {
    /// One [`Enqueued`] for one event, a vector for several.
    type Answer: Send + 'static;

    /// Checks the events.
    ///
    /// # Errors
    /// An event is not valid; the error lists every problem of every event.
    fn into_events(self) -> Result<Vec<Event>, StoreError>;

    /// Converts the answers of the store.
    ///
    /// # Errors
    /// The store returned no answer for a single event.
    fn answer(answers: Vec<Enqueued>) -> Result<Self::Answer, StoreError>;
}

macro_rules! one {
    ($($one:ty),*) => {$(
        impl sealed::Sealed for $one {}

        impl Events for $one {
            type Answer = Enqueued;

            fn into_events(self) -> Result<Vec<Event>, StoreError> {
                let event = NewEvent::from(self).build();
                Ok(vec![event.map_err(|problems| refused(&problems))?])
            }

            fn answer(mut answers: Vec<Enqueued>) -> Result<Enqueued, StoreError> {
                answers.pop().ok_or_else(|| {
                    let message = "the store answered for no event; expected one answer";
                    StoreError::new(VERB, StoreErrorKind::Corrupt, message)
                })
            }
        }
    )*};
}

macro_rules! many {
    ($([$($generics:tt)*] $many:ty: $each:expr;)*) => {$(
        impl<T: Into<NewEvent> + Clone, $($generics)*> sealed::Sealed for $many {}

        impl<T: Into<NewEvent> + Clone, $($generics)*> Events for $many {
            type Answer = Vec<Enqueued>;

            fn into_events(self) -> Result<Vec<Event>, StoreError> {
                checked(self.into_iter().map($each))
            }

            fn answer(answers: Vec<Enqueued>) -> Result<Vec<Enqueued>, StoreError> {
                Ok(answers)
            }
        }
    )*};
}

one!(NewEvent, Event);
many!(
    [] Vec<T>: T::into;
    [] &Vec<T>: |event| event.clone().into();
    [] &[T]: |event| event.clone().into();
    [const N: usize] [T; N]: T::into;
    [const N: usize] &[T; N]: |event| event.clone().into();
);

/// Checks all events; returns the problems of all of them.
fn checked(events: impl Iterator<Item = NewEvent>) -> Result<Vec<Event>, StoreError> {
    let mut good = Vec::new();
    let mut bad = Vec::new();
    for (nth, event) in events.enumerate() {
        match event.build() {
            Ok(event) => good.push(event),
            Err(problems) => bad.push(format!("event {}: {problems}", nth + 1)),
        }
    }
    if bad.is_empty() {
        return Ok(good);
    }
    let message = bad.join("; ");
    Err(StoreError::new(VERB, StoreErrorKind::Invalid, message))
}

fn refused(problems: &Problems) -> StoreError {
    StoreError::invalid(VERB, problems)
}

#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn wrong_connection(verb: &'static str, found: &'static str) -> StoreError {
    let problem = Invalid::new("the connection", found, "one to the store that is open");
    StoreError::invalid(verb, &problem)
}

pub(crate) mod sealed {
    //! Seals the traits for connections and events.

    pub trait Sealed {}
}

/// Enqueues on a connection through a type that dereferences to it, such as a transaction.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
macro_rules! derefs {
    ($target:ty: $($connection:ty),*) => {$(
        impl<'c> sealed::Sealed for $connection {}

        impl<'c> EnqueueOn<'c> for $connection {
            type Answer<T: Send + 'c> = <$target as EnqueueOn<'c>>::Answer<T>;

            fn enqueue<E: Events + 'c>(
                self,
                tenure: &'c Tenure,
                events: E,
            ) -> Self::Answer<E::Answer> {
                let connection: $target = self;
                connection.enqueue(tenure, events)
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
    use tenure_store::Opened;
    use tenure_store::postgres::PostgresStore;

    use super::{EnqueueOn, Events, HINT, VERB, sealed, wrong_connection};
    use crate::tenure::Tenure;

    impl Tenure {
        /// The open store; an error if a connection to PostgreSQL does not belong to it.
        pub(crate) fn postgres(&self, verb: &'static str) -> Result<&PostgresStore, StoreError> {
            let Opened::Postgres(store) = self.opened() else {
                return Err(wrong_connection(verb, "one of PostgreSQL"));
            };
            Ok(store)
        }
    }

    impl sealed::Sealed for &mut PgConnection {}

    impl<'c> EnqueueOn<'c> for &'c mut PgConnection {
        type Answer<T: Send + 'c> = Answer<'c, T>;

        fn enqueue<E: Events + 'c>(self, tenure: &'c Tenure, events: E) -> Answer<'c, E::Answer> {
            let events = events.into_events();
            Box::pin(async move {
                let events = events?;
                let store = tenure
                    .postgres(VERB)
                    .map_err(|error| error.with_hint(HINT))?;
                E::answer(store.enqueue_on(self, &events).await?)
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

    use rusqlite::{Connection, Savepoint, Transaction};
    use tenure_core::store::StoreError;
    use tenure_store::Opened;
    use tenure_store::sqlite::SqliteStore;

    use super::{EnqueueOn, Events, HINT, VERB, sealed, wrong_connection};
    use crate::tenure::Tenure;

    impl Tenure {
        /// Checks that a connection to SQLite belongs to the open store.
        pub(crate) fn check_sqlite(&self, verb: &'static str) -> Result<(), StoreError> {
            let Opened::Sqlite(_) = self.opened() else {
                return Err(wrong_connection(verb, "one of SQLite"));
            };
            Ok(())
        }
    }

    impl sealed::Sealed for &Connection {}

    /// The connection must use the file that is open as the store. Begin a transaction as immediate
    /// if it reads before it writes; otherwise SQLite may refuse the write as busy.
    impl<'c> EnqueueOn<'c> for &'c Connection {
        type Answer<T: Send + 'c> = Result<T, StoreError>;

        fn enqueue<E: Events + 'c>(
            self,
            tenure: &'c Tenure,
            events: E,
        ) -> Result<E::Answer, StoreError> {
            let events = events.into_events()?;
            tenure
                .check_sqlite(VERB)
                .map_err(|error| error.with_hint(HINT))?;
            E::answer(SqliteStore::enqueue_on(self, &events)?)
        }
    }

    derefs!(&'c Connection: &'c Transaction<'_>, &'c Savepoint<'_>);
}

#[cfg(feature = "sqlx-sqlite")]
mod sqlx_sqlite {
    //! Connections and transactions of sqlx to SQLite.

    use sqlx::pool::PoolConnection;
    use sqlx::{Sqlite, SqliteConnection, Transaction};
    use tenure_core::store::{Answer, Enqueued, StoreError, StoreErrorKind};
    use tenure_core::{Event, ItemId};
    use tenure_store::sqlite::SqliteStore;

    use super::{EnqueueOn, Events, HINT, VERB, sealed};
    use crate::tenure::Tenure;

    impl sealed::Sealed for &mut SqliteConnection {}

    /// The connection must use the file that is open as the store. Events with a dedupe key are
    /// refused: enqueue them with rusqlite, or without a connection.
    impl<'c> EnqueueOn<'c> for &'c mut SqliteConnection {
        type Answer<T: Send + 'c> = Answer<'c, T>;

        fn enqueue<E: Events + 'c>(self, tenure: &'c Tenure, events: E) -> Answer<'c, E::Answer> {
            let events = events.into_events();
            Box::pin(async move {
                let events = events?;
                tenure
                    .check_sqlite(VERB)
                    .map_err(|error| error.with_hint(HINT))?;
                let mut answers = Vec::with_capacity(events.len());
                for event in &events {
                    answers.push(write(self, event).await?);
                }
                E::answer(answers)
            })
        }
    }

    async fn write(conn: &mut SqliteConnection, event: &Event) -> Result<Enqueued, StoreError> {
        let failed = |error: sqlx::Error| {
            // The codes 5 and 6 mean that the file is busy or locked, so the same event can succeed
            // later. With any other code, a check of SQLite rejected the event.
            let code = error
                .as_database_error()
                .and_then(sqlx::error::DatabaseError::code);
            let kind = match code.as_deref() {
                None | Some("5" | "6") => StoreErrorKind::Unavailable,
                Some(_) => StoreErrorKind::Invalid,
            };
            let message = "the connection could not write the event";
            StoreError::new(VERB, kind, message).with_cause(error)
        };
        let statement = SqliteStore::enqueue_statement(event)?;
        let (write, last_id) = SqliteStore::enqueue_texts();
        let mut query = sqlx::query(write);
        for parameter in statement.parameters {
            query = query.bind(parameter);
        }
        query.execute(&mut *conn).await.map_err(failed)?;
        let id = sqlx::query_scalar(last_id);
        let id = id.fetch_one(conn).await.map_err(failed)?;
        Ok(Enqueued::Fresh {
            id: ItemId::new(id),
            event_id: statement.event_id,
        })
    }

    derefs!(
        &'c mut SqliteConnection:
        &'c mut Transaction<'_, Sqlite>,
        &'c mut PoolConnection<Sqlite>
    );
}

//! Enqueueing of one or several events, on the caller's connection or without one.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_core::NewEvent;
use tenure_core::store::StoreError;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
use tenure_store::EnqueueStatement;
pub use tenure_store::{EnqueueOn, Events};

use crate::tenure::Tenure;

impl Tenure {
    /// Writes an event, or several, on the caller's connection: inside a transaction they exist if
    /// and only if the transaction commits.
    ///
    /// | connection | returns |
    /// |---|---|
    /// | `&mut sqlx::PgConnection`, `&mut sqlx::SqliteConnection`, a sqlx transaction | a future |
    /// | `&rusqlite::Connection`, a rusqlite transaction | a result |
    ///
    /// One event gives one [`Enqueued`](crate::Enqueued), several give a vector in the same order.
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
        connection.enqueue(self.opened(), events)
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
        self.opened().enqueue_statement(event.into())
    }
}

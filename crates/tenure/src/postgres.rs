//! Enqueueing in the caller's own transaction on PostgreSQL.

use sqlx::PgConnection;
use tenure_core::Event;
use tenure_core::store::{Enqueued, StoreError};
use tenure_store::Opened;

use crate::tenure::{Tenure, one, wrong_connection};

impl Tenure {
    /// Writes an event on the caller's connection: inside its transaction the event exists if and
    /// only if that transaction commits.
    ///
    /// ```no_run
    /// use sqlx::{Connection, PgConnection};
    /// use tenure::{Event, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let url = "postgres://localhost/shop";
    /// let tenure = Tenure::open(url).await?;
    /// let mut shop = PgConnection::connect(url).await?;
    ///
    /// let mut tx = shop.begin().await?;
    /// sqlx::query("insert into orders (id, total) values (7, 990)").execute(&mut *tx).await?;
    /// tenure.enqueue(&mut tx, Event::new("order.paid", &7)?).await?;
    /// tx.commit().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The open store is not PostgreSQL, there is no such queue, or the database is away. The
    /// caller's transaction is then to be rolled back.
    pub async fn enqueue(
        &self,
        conn: &mut PgConnection,
        event: Event,
    ) -> Result<Enqueued, StoreError> {
        one(self
            .enqueue_many(conn, std::slice::from_ref(&event))
            .await?)
    }

    /// Writes many events on the caller's connection in one statement; answers in their order.
    ///
    /// # Errors
    /// As [`Tenure::enqueue`].
    pub async fn enqueue_many(
        &self,
        conn: &mut PgConnection,
        events: &[Event],
    ) -> Result<Vec<Enqueued>, StoreError> {
        let Opened::Postgres(store) = self.opened() else {
            return Err(wrong_connection("one of PostgreSQL"));
        };
        store.enqueue_on(conn, events).await
    }
}

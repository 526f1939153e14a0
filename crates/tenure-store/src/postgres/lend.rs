//! How a statement borrows a connection of the pool.
//!
//! A future that is dropped before its statement was answered may leave the request in the
//! connection's buffer, and the next borrower would send it: a claim that nobody waits for. So a
//! connection goes back to the pool only when its statement was answered; else it is closed, and
//! what was not sent is never sent.

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Postgres};

use super::queue::Sql;

/// A connection that is closed unless it is given back.
#[derive(Debug)]
pub(crate) struct Lent(Option<PoolConnection<Postgres>>);

impl Lent {
    pub(crate) async fn from(pool: &PgPool) -> Result<Self, sqlx::Error> {
        Ok(Self(Some(pool.acquire().await?)))
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("it is given back once, at the end")
    }

    /// Its statement was answered, with rows or with an error.
    pub(crate) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

/// A statement that borrows its connection.
pub(crate) trait Borrow {
    /// All rows of the answer.
    async fn all_from(self, pool: &PgPool) -> Result<Vec<PgRow>, sqlx::Error>;

    /// The first row of the answer, if there is one.
    async fn first_from(self, pool: &PgPool) -> Result<Option<PgRow>, sqlx::Error>;
}

impl Borrow for Sql<'_> {
    async fn all_from(self, pool: &PgPool) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut lent = Lent::from(pool).await?;
        let answer = self.fetch_all(lent.connection()).await;
        lent.give_back();
        answer
    }

    async fn first_from(self, pool: &PgPool) -> Result<Option<PgRow>, sqlx::Error> {
        Ok(self.all_from(pool).await?.into_iter().next())
    }
}

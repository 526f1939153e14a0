//! Borrows pool connections for statements.
//!
//! A future that is dropped before its statement was answered may leave the request in the
//! connection's buffer, and the next borrower would send it: for example a claim without a
//! receiver. So a connection returns to the pool only after its statement was answered; otherwise
//! it is closed, and the unsent request is discarded.

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Postgres};

use super::queue::Sql;

/// A pool connection that is closed on drop unless [`PooledConn::give_back`] returned it.
#[derive(Debug)]
pub(crate) struct PooledConn(Option<PoolConnection<Postgres>>);

impl PooledConn {
    pub(crate) async fn from(pool: &PgPool) -> Result<Self, sqlx::Error> {
        Ok(Self(Some(pool.acquire().await?)))
    }

    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        self.0.as_mut().expect("it is given back once, at the end")
    }

    /// Returns the connection to the pool, after its statement was answered with rows or an error.
    pub(crate) fn give_back(mut self) {
        drop(self.0.take());
    }
}

impl Drop for PooledConn {
    fn drop(&mut self) {
        if let Some(connection) = self.0.take() {
            drop(connection.detach());
        }
    }
}

/// Runs a statement on a borrowed connection.
pub(crate) trait Borrow {
    async fn all_from(self, pool: &PgPool) -> Result<Vec<PgRow>, sqlx::Error>;

    async fn first_from(self, pool: &PgPool) -> Result<Option<PgRow>, sqlx::Error>;
}

impl Borrow for Sql<'_> {
    async fn all_from(self, pool: &PgPool) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut lent = PooledConn::from(pool).await?;
        let answer = self.fetch_all(lent.connection()).await;
        lent.give_back();
        answer
    }

    async fn first_from(self, pool: &PgPool) -> Result<Option<PgRow>, sqlx::Error> {
        Ok(self.all_from(pool).await?.into_iter().next())
    }
}

//! Connections for statements: sqlx's pool, and in front of it the connections that were used last.
//!
//! sqlx tests a returned connection with a round trip, in a task of its own. Meanwhile it does not
//! lend that connection, so that a second statement right after the first would open another one.
//! [`Pool`] keeps a returned connection and lends it again at once.
//!
//! A future that is dropped before its statement was answered may leave the request in the
//! connection's buffer, and the next borrower would send it: for example a claim without a
//! receiver. So a connection is lent again only after its statement was answered; otherwise it is
//! closed, and the unsent request is discarded.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, PgPool, Postgres};
use tokio::time::Instant;

use super::queue::Sql;

/// Age at which a connection returns to sqlx's pool, which tests it and closes old ones.
const BORROWED_MAX: Duration = Duration::from_mins(1);

/// The connections of a store. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pool: PgPool,
    /// `None` for the pool of an application, which may need every connection itself.
    idle: Option<Arc<Mutex<Idle>>>,
}

/// Connections between two statements.
#[derive(Debug)]
struct Idle {
    connections: Vec<TimedConnection>,
    /// Maximum number: all but one, so that users of sqlx's pool always get a connection.
    max: usize,
    /// Borrowers that wait for sqlx's pool. While there are any, connections return to that pool.
    waiting: usize,
}

#[derive(Debug)]
struct TimedConnection {
    connection: PoolConnection<Postgres>,
    since: Instant,
}

impl Pool {
    /// Uses a pool of the store's own, and keeps its connections between statements.
    pub(crate) fn own(pool: PgPool) -> Self {
        let max = pool.options().get_max_connections().saturating_sub(1);
        let idle = Idle {
            connections: Vec::new(),
            max: usize::try_from(max).unwrap_or(usize::MAX),
            waiting: 0,
        };
        let idle = Some(Arc::new(Mutex::new(idle)));
        Self { pool, idle }
    }

    pub(crate) fn sqlx(&self) -> &PgPool {
        &self.pool
    }

    pub(crate) async fn borrow(&self) -> Result<PooledConn, sqlx::Error> {
        let waiting = match &self.idle {
            None => None,
            Some(idle) => match take(idle) {
                Some(lent) => return Ok(self.pooled(lent)),
                None => Some(WaitingBorrower(idle)),
            },
        };
        let connection = self.pool.acquire().await?;
        drop(waiting);
        let since = Instant::now();
        Ok(self.pooled(TimedConnection { connection, since }))
    }

    fn pooled(&self, lent: TimedConnection) -> PooledConn {
        PooledConn {
            lent: Some(lent),
            idle: self.idle.clone(),
        }
    }
}

impl From<PgPool> for Pool {
    /// Uses the pool of an application.
    fn from(pool: PgPool) -> Self {
        Self { pool, idle: None }
    }
}

/// Returns the connection that was used last; otherwise counts the caller as waiting.
fn take(idle: &Mutex<Idle>) -> Option<TimedConnection> {
    let mut idle = lock(idle);
    let lent = idle.connections.pop();
    if lent.is_none() {
        idle.waiting += 1;
    }
    // The first one was used longest ago.
    if idle
        .connections
        .first()
        .is_some_and(TimedConnection::is_due)
    {
        drop(idle.connections.remove(0));
    }
    lent
}

fn lock(idle: &Mutex<Idle>) -> MutexGuard<'_, Idle> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A borrower that waits for sqlx's pool.
struct WaitingBorrower<'a>(&'a Mutex<Idle>);

impl Drop for WaitingBorrower<'_> {
    fn drop(&mut self) {
        lock(self.0).waiting -= 1;
    }
}

impl TimedConnection {
    fn is_due(&self) -> bool {
        self.since.elapsed() > BORROWED_MAX
    }
}

impl Drop for Idle {
    /// Closes the connections: returning them would need a runtime, which may be gone.
    fn drop(&mut self) {
        for lent in self.connections.drain(..) {
            drop(lent.connection.detach());
        }
    }
}

/// A connection that is closed on drop unless [`PooledConn::give_back`] returned it.
#[derive(Debug)]
pub(crate) struct PooledConn {
    lent: Option<TimedConnection>,
    idle: Option<Arc<Mutex<Idle>>>,
}

impl PooledConn {
    pub(crate) fn connection(&mut self) -> &mut PgConnection {
        let lent = self.lent.as_mut();
        &mut lent.expect("it is given back once, at the end").connection
    }

    /// Returns the connection after its statement was answered with rows or an error. After an
    /// error sqlx's pool tests the connection and ends its transaction.
    pub(crate) fn give_back<T, E>(mut self, answer: &Result<T, E>) {
        let Some(lent) = self.lent.take() else {
            return;
        };
        let Some(idle) = self.idle.as_ref().filter(|_| answer.is_ok()) else {
            return;
        };
        let mut idle = lock(idle);
        let has_room = idle.connections.len() < idle.max;
        if idle.waiting == 0 && has_room && !lent.is_due() {
            idle.connections.push(lent);
        }
    }
}

impl Drop for PooledConn {
    fn drop(&mut self) {
        if let Some(lent) = self.lent.take() {
            drop(lent.connection.detach());
        }
    }
}

/// Runs a statement on a borrowed connection.
pub(crate) trait Borrow {
    async fn all_from(self, pool: &Pool) -> Result<Vec<PgRow>, sqlx::Error>;

    async fn first_from(self, pool: &Pool) -> Result<Option<PgRow>, sqlx::Error>;
}

impl Borrow for Sql<'_> {
    async fn all_from(self, pool: &Pool) -> Result<Vec<PgRow>, sqlx::Error> {
        let mut lent = pool.borrow().await?;
        let answer = self.fetch_all(lent.connection()).await;
        lent.give_back(&answer);
        answer
    }

    async fn first_from(self, pool: &Pool) -> Result<Option<PgRow>, sqlx::Error> {
        Ok(self.all_from(pool).await?.into_iter().next())
    }
}

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

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::pool::PoolConnection;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres};
use tenure_core::store::Finding;
use tokio::time::Instant;

use super::error::EndsConnection;
use super::hosts::Hosts;
use super::queue::Sql;
use super::session::{Access, Sessions};
use super::{CONNECTION_TIMEOUT, REFUSAL_TIME};
use crate::config::{Planner, Statements};

/// Age at which a connection returns to sqlx's pool, which tests it and closes old ones.
const BORROWED_MAX: Duration = Duration::from_mins(1);

/// The connections of a store. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    driver: PgPool,
    sessions: Arc<Sessions>,
    /// `None` for the pool of an application.
    own: Option<Own>,
}

/// Parts of a pool that is the store's own. An application may need every connection of its pool
/// itself, and opens them as it likes.
#[derive(Clone, Debug)]
struct Own {
    hosts: Arc<Hosts>,
    /// The host that new connections go to.
    host: Arc<AtomicUsize>,
    idle: Arc<Mutex<Idle>>,
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
    /// A pool of the store's own, which keeps its connections between statements.
    pub(crate) fn own(hosts: Arc<Hosts>, options: PgPoolOptions) -> Self {
        let examiner = Arc::clone(&hosts);
        let options = options.after_connect(move |conn, _| {
            let examiner = Arc::clone(&examiner);
            Box::pin(async move { examiner.examine(conn).await })
        });
        let pool = options.connect_lazy_with(hosts.options());
        let max = pool.options().get_max_connections().saturating_sub(1);
        let idle = Idle {
            connections: Vec::new(),
            max: usize::try_from(max).unwrap_or(usize::MAX),
            waiting: 0,
        };
        let idle = Arc::new(Mutex::new(idle));
        Self {
            driver: pool,
            sessions: Arc::clone(&hosts.sessions),
            own: Some(Own {
                hosts,
                host: Arc::default(),
                idle,
            }),
        }
    }

    /// The pool of an application. Its connections have the planner's settings or not.
    pub(crate) fn of_application(pool: PgPool, statements: Statements) -> Self {
        let sessions = Sessions::of_application(Planner::Role, statements);
        Self {
            driver: pool,
            sessions: Arc::new(sessions),
            own: None,
        }
    }

    pub(crate) fn sqlx(&self) -> &PgPool {
        &self.driver
    }

    /// The servers of this pool.
    pub(crate) fn hosts(&self) -> Arc<Hosts> {
        if let Some(own) = &self.own {
            return Arc::clone(&own.hosts);
        }
        let options = PgConnectOptions::clone(&self.driver.connect_options());
        Arc::new(Hosts::of_application(options, self.sessions.statements()))
    }

    /// Text that begins a transaction on one of its connections.
    pub(crate) fn begin_text(&self) -> &'static str {
        self.sessions.begin_text()
    }

    /// True if a single statement on this connection needs a transaction around it.
    pub(crate) fn needs_transaction(&self, conn: &PgConnection) -> bool {
        self.sessions.needs_transaction(conn)
    }

    /// Judges the names of a borrowed connection's statements.
    pub(crate) fn finding(&self, conn: &PgConnection) -> Option<Finding> {
        self.sessions.finding(conn)
    }

    /// Runs one statement on a borrowed connection.
    pub(crate) async fn run(
        &self,
        query: Sql<'_>,
        conn: &mut PgConnection,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        self.sessions.run(query, conn).await
    }

    pub(crate) async fn borrow(&self) -> Result<PooledConn, sqlx::Error> {
        let connection = match &self.own {
            None => self.acquire_theirs().await?,
            Some(own) => {
                if let Some(lent) = take(&own.idle) {
                    return Ok(self.pooled(lent));
                }
                let _waiting = WaitingBorrower(&own.idle);
                self.acquire_own(own).await?
            }
        };
        let since = Instant::now();
        Ok(self.pooled(TimedConnection { connection, since }))
    }

    async fn acquire_theirs(&self) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let mut connection = self.driver.acquire().await?;
        if connection.cached_statements_size() == 0 && self.sessions.may_name() {
            self.sessions.examine(&mut connection, Access::Any).await?;
        }
        Ok(connection)
    }

    /// Acquires a connection. Of several hosts, looks for another one while the current one does
    /// not answer.
    async fn acquire_own(&self, own: &Own) -> Result<PoolConnection<Postgres>, sqlx::Error> {
        let hosts = &own.hosts;
        let until = Instant::now() + CONNECTION_TIMEOUT;
        let mut acquiring = Box::pin(self.driver.acquire());
        loop {
            let error = tokio::select! {
                acquired = &mut acquiring => match acquired {
                    Ok(connection) => return Ok(connection),
                    Err(error) => Some(error),
                },
                () = tokio::time::sleep(REFUSAL_TIME), if hosts.are_several() => None,
            };
            let is_learned = error.as_ref().is_some_and(|error| hosts.learn(error));
            if !is_learned && (!hosts.are_several() || Instant::now() >= until) {
                return Err(error.unwrap_or(sqlx::Error::PoolTimedOut));
            }
            let is_moved = hosts.are_several() && {
                let host = hosts.find().await;
                own.host.swap(host, Ordering::AcqRel) != host
            };
            if is_learned || is_moved || error.is_some() {
                self.driver.set_connect_options(hosts.options());
                acquiring = Box::pin(self.driver.acquire());
            }
        }
    }

    fn pooled(&self, lent: TimedConnection) -> PooledConn {
        PooledConn {
            lent: Some(lent),
            idle: self.own.as_ref().map(|own| Arc::clone(&own.idle)),
        }
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

impl Idle {
    fn close(&mut self) {
        for lent in self.connections.drain(..) {
            drop(lent.connection.detach());
        }
    }
}

impl Drop for Idle {
    /// Closes the connections: returning them would need a runtime, which may be gone.
    fn drop(&mut self) {
        self.close();
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
    /// error sqlx's pool tests the connection and ends its transaction. If the server is gone or
    /// only reads, this connection and the idle ones are closed: new ones may lead elsewhere.
    pub(crate) fn give_back<T, E: EndsConnection>(mut self, answer: &Result<T, E>) {
        if answer.as_ref().is_err_and(EndsConnection::ends_connection) {
            if let Some(idle) = &self.idle {
                lock(idle).close();
            }
            return;
        }
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
        let answer = pool.run(self, lent.connection()).await;
        lent.give_back(&answer);
        answer
    }

    async fn first_from(self, pool: &Pool) -> Result<Option<PgRow>, sqlx::Error> {
        Ok(self.all_from(pool).await?.into_iter().next())
    }
}

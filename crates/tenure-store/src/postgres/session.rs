//! Server sessions behind a connection: whether statements may have names there.
//!
//! A pooler in transaction mode gives each transaction any of its server sessions. A name of a
//! prepared statement then belongs to another session or, worse, to the statement of another
//! client. So a new connection is examined, with questions that are safe on every session: a
//! simple query, and a name that is made and read inside one transaction.
//!
//! The connection itself remembers the answer: if it has named statements, more of them are safe.
//! Otherwise a statement has no name and runs in a transaction, which a pooler never splits.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::postgres::PgRow;
use sqlx::{Connection as _, PgConnection};
use tenure_core::store::Finding;

use super::queue::Sql;
use super::row::get;
use crate::config::{Planner, Statements};

/// Begins a transaction. The isolation level does not depend on the database's default: a later
/// statement must see everything that was committed before an earlier one got its locks.
const BEGIN: &str = "begin isolation level read committed";

/// Begins a transaction on a shared session. A process that is frozen in the transaction would keep
/// the session, and a few such processes all sessions of the pooler, so the server ends such
/// a transaction.
const BEGIN_SHARED: &str = "begin isolation level read committed; \
     set local idle_in_transaction_session_timeout = '5s'";

/// Begins a transaction like [`BEGIN_SHARED`], with the settings of [`super::PLANNER`]: on a shared
/// session they must end with it.
const BEGIN_PLANNED: &str = "begin isolation level read committed; \
     set local idle_in_transaction_session_timeout = '5s'; \
     set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off; \
     set local enable_bitmapscan = off; set local jit = off";

/// Makes the settings of [`super::PLANNER`] those of the session.
const PLAN: &str = "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; \
     set enable_bitmapscan = off; set jit = off";

const FACTS: &str = include_str!("../../sql/postgres/session/facts.sql");
const NAMES: &str = include_str!("../../sql/postgres/session/names.sql");
const IN_TRANSACTION: &str = include_str!("../../sql/postgres/session/in_transaction.sql");
const PID: &str = "select pg_backend_pid()";

/// The beginning of the names that sqlx gives. A pooler that keeps the names of its clients apart
/// replaces them by its own.
const DRIVER_NAME: &str = "sqlx_s_";

/// Comparisons before two connections count as separate sessions.
const COMPARISONS: u32 = 8;

/// The setting that carries the mark of a connection. Inlining is a part of JIT compilation, which
/// is off, so that any value will do.
const MARK: &str = "jit_inline_above_cost";

/// The use of a connection's server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Also a read-only server.
    Any,
    Writes,
}

/// The sessions of a store's connections.
#[derive(Debug)]
pub(crate) struct Sessions {
    planner: Planner,
    statements: Statements,
    /// Sent at the start of a connection. A session that has it was started for this connection,
    /// since a pooler starts its sessions itself. `None` for the pool of an application.
    mark: Option<u32>,
    /// A session was seen that another client may use between two transactions.
    is_shared: AtomicBool,
    /// A session was seen whose names are not safe.
    is_nameless: AtomicBool,
    /// The operator's word that sessions are not shared, and no sign to the contrary.
    is_vouched: AtomicBool,
}

impl Sessions {
    /// Sessions of connections that send `mark` at their start.
    pub(crate) fn marked(planner: Planner, statements: Statements) -> Self {
        // Six digits: PostgreSQL prints no more of them.
        let mark = uuid::Uuid::now_v7().as_u128() % 900_000 + 100_000;
        Self {
            mark: u32::try_from(mark).ok(),
            is_vouched: AtomicBool::new(false),
            ..Self::of_application(planner, statements)
        }
    }

    /// Sessions of an application's connections.
    pub(crate) fn of_application(planner: Planner, statements: Statements) -> Self {
        Self {
            planner,
            statements,
            mark: None,
            is_shared: AtomicBool::new(false),
            is_nameless: AtomicBool::new(false),
            is_vouched: AtomicBool::new(statements == Statements::Prepared),
        }
    }

    pub(crate) fn statements(&self) -> Statements {
        self.statements
    }

    /// The start-up options of a connection.
    pub(crate) fn options(&self) -> Vec<(&'static str, String)> {
        let planner: &[(&str, &str)] = match self.planner {
            Planner::Connection => &super::PLANNER,
            Planner::Role => &[],
        };
        let planner = planner.iter().map(|(name, to)| (*name, (*to).to_owned()));
        let mark = self.mark.map(|mark| (MARK, mark.to_string()));
        planner.chain(mark).collect()
    }

    /// Examines the session of a new connection. Names the first statement if names are safe.
    ///
    /// # Errors
    /// The connection fails, or `access` needs a server that accepts writes and this one does not.
    pub(crate) async fn examine(
        &self,
        conn: &mut PgConnection,
        access: Access,
    ) -> Result<(), sqlx::Error> {
        let facts = sqlx::raw_sql(FACTS).fetch_one(&mut *conn).await?;
        if access == Access::Writes && get(&facts, 0)? {
            let problem = "the server accepts no writes";
            let problem = io::Error::new(io::ErrorKind::ReadOnlyFilesystem, problem);
            return Err(sqlx::Error::Io(problem));
        }
        let is_ours = match self.mark {
            Some(mark) => get::<Option<&str>>(&facts, 1)? == Some(mark.to_string().as_str()),
            None => get(&facts, 2)?,
        };
        if is_ours {
            return self.name_first(conn).await;
        }
        if self.is_vouched.load(Ordering::Acquire) {
            if self.planner == Planner::Connection {
                sqlx::raw_sql(PLAN).execute(&mut *conn).await?;
            }
            return self.name_first(conn).await;
        }
        self.is_shared.store(true, Ordering::Release);
        if !try_names(conn, self.statements).await? {
            self.is_nameless.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Examines a connection of the caller, in its transaction or outside of one, unless an earlier
    /// one had a shared session. Names the first statement if names are safe.
    pub(crate) async fn meet(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        if has_names(conn) || !self.may_name() {
            return Ok(());
        }
        let facts = sqlx::raw_sql(FACTS).fetch_one(&mut *conn).await?;
        if self.is_vouched.load(Ordering::Acquire) || get(&facts, 2)? {
            return self.name_first(conn).await;
        }
        self.is_nameless.store(true, Ordering::Release);
        Ok(())
    }

    async fn name_first(&self, conn: &mut PgConnection) -> Result<(), sqlx::Error> {
        if self.statements == Statements::Unnamed {
            return Ok(());
        }
        sqlx::query(NAMES).fetch_all(conn).await.map(drop)
    }

    /// True if another look at a connection without names may find that they are safe.
    pub(crate) fn may_name(&self) -> bool {
        self.statements != Statements::Unnamed && !self.is_nameless.load(Ordering::Acquire)
    }

    /// True if names are configured and not safe, as far as the sessions alone can tell.
    pub(crate) fn is_doubtful(&self) -> bool {
        self.statements == Statements::Prepared && self.is_nameless.load(Ordering::Acquire)
    }

    /// Judges the names of a connection's statements; `None` if it has a session of its own.
    pub(crate) fn finding(&self, conn: &PgConnection) -> Option<Finding> {
        if has_names(conn) {
            let text = "prepared; the pooler keeps those of its clients apart";
            return self.is_shared().then(|| Finding::good("statements", text));
        }
        if self.statements == Statements::Unnamed {
            let text = "without names, as store.statements says";
            return Some(Finding::good("statements", text));
        }
        let text = "without names and planned at each call: a pooler shares its sessions";
        let hint = "for more speed use the server's own address, or let the pooler keep prepared \
                    statements: max_prepared_statements of PgBouncer 1.21 and later";
        Some(Finding::warning("statements", text, hint))
    }

    /// Accepts the operator's word that each connection has a session of its own.
    pub(crate) fn vouch(&self) {
        self.is_vouched.store(true, Ordering::Release);
        self.is_shared.store(false, Ordering::Release);
    }

    /// True if a single statement on this connection needs a transaction around it.
    pub(crate) fn needs_transaction(&self, conn: &PgConnection) -> bool {
        !has_names(conn) || self.plans_each_transaction()
    }

    fn plans_each_transaction(&self) -> bool {
        self.planner == Planner::Connection && self.is_shared()
    }

    fn is_shared(&self) -> bool {
        self.is_shared.load(Ordering::Acquire)
    }

    /// Text that begins a transaction, with the planner's settings if the session lacks them.
    pub(crate) fn begin_text(&self) -> &'static str {
        match (self.is_shared(), self.planner) {
            (true, Planner::Connection) => BEGIN_PLANNED,
            (true, Planner::Role) => BEGIN_SHARED,
            (false, _) => BEGIN,
        }
    }

    /// Runs one statement on a connection of the store.
    pub(crate) async fn run(
        &self,
        query: Sql<'_>,
        conn: &mut PgConnection,
    ) -> Result<Vec<PgRow>, sqlx::Error> {
        let query = query.persistent(has_names(conn));
        if !self.needs_transaction(conn) {
            let rows = query.fetch_all(&mut *conn).await;
            if matches!(rows, Err(sqlx::Error::Database(_))) {
                // PostgreSQL sends an error before it ends the transaction and releases its locks,
                // which would surprise the next statement.
                drop(conn.ping().await);
            }
            return rows;
        }
        alone(query, conn, self.begin_text()).await
    }
}

/// Runs a statement in a transaction of its own, which has ended also after an error.
async fn alone(
    query: Sql<'_>,
    conn: &mut PgConnection,
    begin: &'static str,
) -> Result<Vec<PgRow>, sqlx::Error> {
    let mut tx = conn.begin_with(begin).await?;
    match query.fetch_all(&mut *tx).await {
        Ok(rows) => tx.commit().await.map(|()| rows),
        Err(error) => {
            // The error of the statement says more than that of a lost connection.
            drop(tx.rollback().await);
            Err(error)
        }
    }
}

/// Names a statement in a transaction and reads its name. Keeps it and returns true if the pooler
/// has replaced the name.
async fn try_names(conn: &mut PgConnection, statements: Statements) -> Result<bool, sqlx::Error> {
    if statements == Statements::Unnamed {
        return Ok(false);
    }
    let mut tx = conn.begin_with(BEGIN).await?;
    let rows = match sqlx::query(NAMES).fetch_all(&mut *tx).await {
        Ok(rows) => rows,
        // Another client's statement has the name.
        Err(sqlx::Error::Database(_)) => return tx.rollback().await.map(|()| false),
        Err(error) => return Err(error),
    };
    let names: Vec<&str> = rows
        .iter()
        .map(|row| get(row, 0))
        .collect::<Result<_, _>>()?;
    let is_kept_apart =
        !names.is_empty() && !names.iter().any(|name| name.starts_with(DRIVER_NAME));
    if !is_kept_apart {
        tx.clear_cached_statements().await?;
    }
    tx.commit().await.map(|()| is_kept_apart)
}

/// True if two open connections use one session in turn. A pooler in session mode never does that;
/// one in transaction mode may fail to show it, but only if other clients disturb every comparison.
pub(crate) async fn share_a_session(
    one: &mut PgConnection,
    other: &mut PgConnection,
) -> Result<bool, sqlx::Error> {
    let first = pid(one).await?;
    for _ in 0..COMPARISONS {
        let theirs = pid(other).await?;
        if theirs == first || pid(one).await? != first {
            return Ok(true);
        }
    }
    Ok(false)
}

async fn pid(conn: &mut PgConnection) -> Result<i32, sqlx::Error> {
    get(&sqlx::raw_sql(PID).fetch_one(conn).await?, 0)
}

/// True if the statements of this connection have names.
fn has_names(conn: &PgConnection) -> bool {
    conn.cached_statements_size() > 0
}

/// Runs a statement on a connection of the store or of the caller: under a name if the connection
/// has named statements, otherwise without one and in a transaction.
pub(crate) trait RunOn {
    async fn rows_on(self, conn: &mut PgConnection) -> Result<Vec<PgRow>, sqlx::Error>;

    async fn first_on(self, conn: &mut PgConnection) -> Result<Option<PgRow>, sqlx::Error>;

    async fn row_on(self, conn: &mut PgConnection) -> Result<PgRow, sqlx::Error>;
}

impl RunOn for Sql<'_> {
    async fn rows_on(self, conn: &mut PgConnection) -> Result<Vec<PgRow>, sqlx::Error> {
        if has_names(conn) {
            return self.persistent(true).fetch_all(conn).await;
        }
        let query = self.persistent(false);
        if conn.is_in_transaction() || began_by_hand(conn).await? {
            return query.fetch_all(conn).await;
        }
        alone(query, conn, BEGIN_SHARED).await
    }

    async fn first_on(self, conn: &mut PgConnection) -> Result<Option<PgRow>, sqlx::Error> {
        Ok(self.rows_on(conn).await?.into_iter().next())
    }

    async fn row_on(self, conn: &mut PgConnection) -> Result<PgRow, sqlx::Error> {
        let row = self.first_on(conn).await?;
        row.ok_or(sqlx::Error::RowNotFound)
    }
}

/// True if the caller has begun a transaction that sqlx does not know of.
async fn began_by_hand(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    get(&sqlx::raw_sql(IN_TRANSACTION).fetch_one(conn).await?, 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_texts_have_all_planner_settings() {
        for (name, value) in super::super::PLANNER {
            assert!(BEGIN_PLANNED.contains(&format!("set local {name} = {value}")));
            assert!(PLAN.contains(&format!("set {name} = {value}")));
        }
        assert!(BEGIN_SHARED.starts_with(BEGIN) && BEGIN_PLANNED.starts_with(BEGIN_SHARED));
    }
}

//! A pool of migrated databases on the shared server of this process.
//!
//! Creating and migrating a database takes a hundred times longer than most tests. A finished test
//! returns its database; the next test gets it emptied and under a new name, so that a process left
//! over from the earlier test does not find it. A database that cannot be restored to its first
//! state is dropped.

use std::sync::{Mutex, PoisonError};

use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, postgres::PgConnectOptions};
use tokio::sync::OnceCell;

use super::postgres::{fresh_name, order};
use crate::config::StoreConfig;
use crate::postgres::PostgresStore;

const TEMPLATE: &str = "tenure_test_migrated";
const SNAPSHOT: &str = include_str!("snapshot.sql");
const DEFINITIONS: &str = include_str!("definitions.sql");
const EMPTY: &str = include_str!("empty.sql");

/// State of a database after its migration.
struct MigratedState {
    /// Statements that restore a used database to it.
    empty: String,
    definitions: String,
}

/// Names of the databases that no test uses.
static FREE: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Takes a migrated, empty database of this server; `give_back` returns it.
pub(super) async fn take(server: &PgConnectOptions) -> Result<String, sqlx::Error> {
    static MIGRATED: OnceCell<MigratedState> = OnceCell::const_new();
    let migrated = MIGRATED.get_or_try_init(|| make_template(server)).await?;
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    if let Some(used) = free {
        let name = fresh_name();
        if let Ok(true) = reuse(server, &used, &name, migrated).await {
            return Ok(name);
        }
        // One of the two names exists; if the database cannot be dropped, it ends with the server.
        for name in [used, name] {
            let text = format!("drop database if exists {name} with (force)");
            drop(order(server, text).await);
        }
    }
    let name = fresh_name();
    let text = format!("create database {name} template {TEMPLATE}");
    order(server, text).await?;
    Ok(name)
}

/// Returns a database to the pool.
pub(super) fn give_back(name: String) {
    FREE.lock()
        .unwrap_or_else(PoisonError::into_inner)
        .push(name);
}

/// Creates the template of the pool's databases; returns its state.
async fn make_template(server: &PgConnectOptions) -> Result<MigratedState, sqlx::Error> {
    order(server, format!("create database {TEMPLATE}")).await?;
    let template = server.clone().database(TEMPLATE);
    PostgresStore::migrate(template.to_url_lossy().as_str(), &StoreConfig::default())
        .await
        .map_err(|error| sqlx::Error::Configuration(Box::new(error)))?;
    let mut connection = template.connect().await?;
    let snapshot: String = sqlx::query_scalar(SNAPSHOT)
        .fetch_one(&mut connection)
        .await?;
    let definitions = sqlx::query_scalar(DEFINITIONS)
        .fetch_one(&mut connection)
        .await?;
    connection.close().await?;
    Ok(MigratedState {
        empty: EMPTY.replace("%SNAPSHOT%", &snapshot),
        definitions,
    })
}

/// Ends all connections to a used database, renames and empties it; returns true if it is in its
/// first state again.
async fn reuse(
    server: &PgConnectOptions,
    used: &str,
    name: &str,
    migrated: &MigratedState,
) -> Result<bool, sqlx::Error> {
    let mut connection = server.connect().await?;
    // Waits until each backend has ended.
    sqlx::query("select pg_terminate_backend(pid, 10000) from pg_stat_activity where datname = $1")
        .bind(used)
        .execute(&mut connection)
        .await?;
    let text = format!("alter database {used} rename to {name}");
    connection.execute(AssertSqlSafe(text)).await?;
    connection.close().await?;

    let mut connection = server.clone().database(name).connect().await?;
    let text = AssertSqlSafe(migrated.empty.as_str());
    connection.execute(sqlx::raw_sql(text)).await?;
    // Some changes cannot be undone.
    let definitions: String = sqlx::query_scalar(DEFINITIONS)
        .fetch_one(&mut connection)
        .await?;
    connection.close().await?;
    Ok(definitions == migrated.definitions)
}

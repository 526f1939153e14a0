//! The statements of the row layout: their text, their plans, and their agreement with the guards.

mod guards;
mod plans;
mod planted;
mod raw_sql;
mod settle_done;
mod sync;
mod sync_jobs;
mod text;
mod together;
mod verbs;
mod webhook;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::types::ValueRef;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Executor, PgPool, Row};
use tenure_core::store::{LeaseStore, Operate, Settle};
use tenure_core::{
    Guarded, Identifier, ItemId, LapsePolicy, LeaseTable, Outcome, State, Timestamp, Token,
};
use tenure_store::config::{StoreConfig, Synchronous};
use tenure_store::memory::SystemClock;
use tenure_store::postgres::PostgresRows;
use tenure_store::sqlite::writer::Writer;
use tenure_store::sqlite::{SqliteRows, SqliteStore};
use tenure_store::testing::{Database, migrated};

use crate::faults::{Planted, plant};

/// The time of the tests.
const NOW: Timestamp = Timestamp::from_micros(4_102_444_800_000_000);

/// All operations of a worker and of an operator on rows.
trait Rows: LeaseStore + Operate {}
impl<T: LeaseStore + Operate> Rows for T {}

/// The rows of a table by id, with each column as text.
type Table = BTreeMap<i64, BTreeMap<String, String>>;

fn presets() -> [(&'static str, LeaseTable); 5] {
    [
        ("outbox", LeaseTable::outbox()),
        ("outbox_processing", LeaseTable::outbox_processing()),
        ("webhook", LeaseTable::webhook()),
        ("sync_jobs", LeaseTable::sync_jobs()),
        ("sync_checkpoints", LeaseTable::sync_checkpoints()),
    ]
}

/// A table of each kind: with states by status values, by status values and holders, and by
/// timestamps.
fn kinds() -> [LeaseTable; 4] {
    [
        LeaseTable::outbox(),
        LeaseTable::webhook(),
        LeaseTable::sync_jobs(),
        LeaseTable::sync_checkpoints(),
    ]
}

/// The column that gives a row a state: the status or, in a table without a status column, the time
/// of the settle.
fn shows(table: &LeaseTable, state: State, at: String) -> Vec<(&Identifier, String)> {
    let columns = &table.columns;
    match (table.states.status(), state) {
        (Some(status), _) => vec![(&status.column, status.words.word(state).quoted())],
        (None, State::Done) => vec![(&columns.done_at, at)],
        (None, State::Dead) => vec![(&columns.dead_at, at)],
        (None, State::Pending | State::Claimed) => Vec::new(),
    }
}

fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

fn policy() -> LapsePolicy {
    LapsePolicy::new(3, vec![seconds(1), seconds(2)]).unwrap()
}

/// The check constraints of a table in a test.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Checks {
    Kept,
    /// The table has none, so that every combination of columns can be written.
    Dropped,
}

/// A database with one lease table and direct access to it.
enum Bench {
    Postgres {
        pool: PgPool,
        // Fields are dropped in order, so the database is dropped last.
        database: Box<Database>,
    },
    Sqlite {
        writer: Writer,
        path: PathBuf,
        _folder: tempfile::TempDir,
    },
}

impl Bench {
    async fn both(table: &LeaseTable, checks: Checks) -> [Self; 2] {
        [
            Self::postgres(table, checks).await,
            Self::sqlite(table, checks).await,
        ]
    }

    async fn postgres(table: &LeaseTable, checks: Checks) -> Self {
        let database = migrated().await;
        let pool = PgPoolOptions::new()
            .max_connections(4)
            .connect(&database.url)
            .await
            .unwrap();
        let bench = Self::Postgres {
            pool,
            database: Box::new(database),
        };
        for (name, statement) in PostgresRows::statements(table).unwrap() {
            if name == "create" {
                bench.execute(&written(&statement, checks)).await;
            }
        }
        bench
    }

    async fn sqlite(table: &LeaseTable, checks: Checks) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("rows.db");
        // The data need not survive the process, so writes do not wait for the disk.
        let config = StoreConfig {
            synchronous: Synchronous::Normal,
            ..StoreConfig::default()
        };
        // The store creates its own tables, including the source of fences.
        drop(SqliteStore::open(&path, &config).await.unwrap());
        let writer = Writer::open(&path, &config).await.unwrap();
        let bench = Self::Sqlite {
            writer,
            path,
            _folder: folder,
        };
        for (file, _, statement) in SqliteRows::statements(table).unwrap() {
            if file == "create" {
                bench.execute(&written(&statement, checks)).await;
            }
        }
        bench
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Postgres { .. } => "postgres",
            Self::Sqlite { .. } => "sqlite",
        }
    }

    async fn rows(&self, table: &LeaseTable) -> Box<dyn Rows> {
        self.planted(table, &[]).await
    }

    async fn planted(&self, table: &LeaseTable, faults: &[Planted]) -> Box<dyn Rows> {
        let edit = &|file, text| plant(faults, file, text);
        match self {
            Self::Postgres { pool, .. } => {
                let rows = PostgresRows::edited(pool.clone(), table.clone(), edit);
                Box::new(rows.await.unwrap())
            }
            Self::Sqlite { writer, .. } => {
                let clock = Arc::new(SystemClock);
                let rows = SqliteRows::edited(writer.clone(), clock, table.clone(), edit);
                Box::new(rows.await.unwrap())
            }
        }
    }

    async fn execute(&self, sql: &str) {
        match self {
            Self::Postgres { pool, .. } => {
                let done = pool
                    .execute(sqlx::raw_sql(AssertSqlSafe(sql.to_owned())))
                    .await;
                done.unwrap_or_else(|error| panic!("{error}\n{sql}"));
            }
            Self::Sqlite { path, .. } => {
                let conn = rusqlite::Connection::open(path).unwrap();
                let done = conn.execute_batch(sql);
                done.unwrap_or_else(|error| panic!("{error}\n{sql}"));
            }
        }
    }

    /// Runs a statement of another program; returns the number of changed rows.
    async fn change(&self, sql: &str) -> usize {
        let changed = self.try_change(sql).await;
        changed.unwrap_or_else(|error| panic!("{error}\n{sql}"))
    }

    /// Runs a statement of another program; returns the number of changed rows, or the database's
    /// error.
    async fn try_change(&self, sql: &str) -> Result<usize, String> {
        match self {
            Self::Postgres { pool, .. } => {
                let done = pool.execute(AssertSqlSafe(sql.to_owned())).await;
                done.map(|done| usize::try_from(done.rows_affected()).unwrap())
                    .map_err(|e| e.to_string())
            }
            Self::Sqlite { path, .. } => {
                let conn = rusqlite::Connection::open(path).unwrap();
                conn.execute(sql, []).map_err(|e| e.to_string())
            }
        }
    }

    /// A timestamp in this database's form.
    fn moment(&self, at: Option<Timestamp>) -> String {
        match (at, self) {
            (None, _) => "null".to_owned(),
            (Some(at), Self::Postgres { .. }) => {
                let micros = at.as_micros();
                format!("timestamptz 'epoch' + {micros} * interval '1 microsecond'")
            }
            (Some(at), Self::Sqlite { .. }) => at.as_micros().to_string(),
        }
    }

    /// The whole contents of the table.
    async fn table(&self, table: &LeaseTable) -> Table {
        match self {
            Self::Postgres { pool, .. } => postgres_table(pool, table).await,
            Self::Sqlite { path, .. } => sqlite_table(path, table),
        }
    }
}

async fn postgres_table(pool: &PgPool, table: &LeaseTable) -> Table {
    // Timestamps are read as microseconds, so that both databases return the same.
    let sql = format!(
        "select t.{key}, e.key, case
                    when e.value ~ '^[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}}T' then
                        (extract(epoch from e.value::timestamptz) * 1000000)::bigint::text
                    else coalesce(e.value, 'null') end
           from {name} t, json_each_text(to_json(t)) e",
        key = table.key.quoted(),
        name = table.name.quoted(),
    );
    let mut found = Table::new();
    for row in sqlx::query(AssertSqlSafe(sql))
        .fetch_all(pool)
        .await
        .unwrap()
    {
        let columns = found.entry(row.get(0)).or_default();
        columns.insert(row.get(1), row.get(2));
    }
    found
}

fn sqlite_table(path: &PathBuf, table: &LeaseTable) -> Table {
    let conn = rusqlite::Connection::open(path).unwrap();
    let mut all = conn
        .prepare(&format!("select * from {}", table.name.quoted()))
        .unwrap();
    let names: Vec<String> = all.column_names().iter().map(ToString::to_string).collect();
    let read = |row: &rusqlite::Row<'_>| -> rusqlite::Result<(i64, BTreeMap<String, String>)> {
        let mut columns = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            let value = match row.get_ref(index)? {
                ValueRef::Null => "null".to_owned(),
                ValueRef::Integer(number) => number.to_string(),
                ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                ValueRef::Real(_) | ValueRef::Blob(_) => panic!("no such value is stored"),
            };
            columns.insert(name.clone(), value);
        }
        Ok((row.get(table.key.as_str())?, columns))
    };
    let rows = all.query_map([], read).unwrap();
    rows.map(Result::unwrap).collect()
}

/// The statement that creates the table, with or without its check constraints.
fn written(create: &str, checks: Checks) -> String {
    if checks == Checks::Kept {
        return create.to_owned();
    }
    let lines = create
        .lines()
        .filter(|line| !line.starts_with("    check ("));
    let text: Vec<&str> = lines.collect();
    text.join("\n").replace(",\n)", "\n)")
}

fn ids(numbers: &[i64]) -> Vec<ItemId> {
    numbers.iter().copied().map(ItemId::new).collect()
}

/// Settles one row as a Tenure worker does.
async fn settle(
    rows: &dyn Rows,
    mine: &Token,
    (id, outcome): (i64, Outcome),
    now: Timestamp,
) -> Guarded {
    let settle = Settle::new(mine.clone()).item(ItemId::new(id), outcome);
    rows.settle(&settle.at(now)).await.unwrap().items[0].1
}

fn identifier(name: &str) -> Identifier {
    Identifier::new(name).unwrap()
}

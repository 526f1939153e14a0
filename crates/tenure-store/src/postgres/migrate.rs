//! Migrations: forward only, in order, recorded in `tenure_migrations`; one transaction applies all
//! missing ones.

use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tenure_core::Identifier;
use tenure_core::store::{StoreError, StoreErrorKind};
use tokio::time::timeout;

use super::CONNECTION_TIMEOUT;
use super::error::{is_cancelled, is_missing, store_error};
use super::session::RunOn as _;
use super::statements::Statement;
use crate::migration::{self, Migration};
use crate::open::{Migrated, SchemaFit, SchemaVersion};

/// The first version, one text per feature.
const FIRST: Migration = Migration {
    readable_from: 1,
    texts: &[
        include_str!("../../migrations/postgres/0001/1_queue.sql"),
        include_str!("../../migrations/postgres/0001/2_keys.sql"),
        include_str!("../../migrations/postgres/0001/3_outbox.sql"),
        include_str!("../../migrations/postgres/0001/4_replays.sql"),
        include_str!("../../migrations/postgres/0001/5_cluster.sql"),
        include_str!("../../migrations/postgres/0001/6_work_lease.sql"),
        include_str!("../../migrations/postgres/0001/7_webhooks.sql"),
        include_str!("../../migrations/postgres/0001/8_jobs.sql"),
        include_str!("../../migrations/postgres/0001/9_tables.sql"),
    ],
};

/// All versions, oldest first: the n-th migration creates version n. Never edit a released one.
const MIGRATIONS: &[Migration] = &[FIRST];

/// Serializes concurrent migrations; only Tenure uses this lock number.
const TURN: &str = "select pg_advisory_xact_lock(7407170001)";

/// Limits the time in which a migration locks all tables. The limit is below `deadlock_timeout`
/// (1 s), so that PostgreSQL never ends another transaction for a deadlock with the migration, and
/// transactions that wait behind it go on soon.
const BRIEFLY: &str = "set local statement_timeout = '500ms'";
const AS_BEFORE: &str = "set local statement_timeout to default";
const LOCK_ALL: &str = "do $$ begin
    execute (select 'lock table ' || string_agg(oid::regclass::text, ', ')
             from pg_class
             where relkind = 'r' and relname like 'tenure\\_%'
               and relnamespace = (select relnamespace from pg_class
                                   where oid = 'tenure_migrations'::regclass));
end $$";
/// Maximum attempts to lock the tables.
const TRIES: u32 = 30;
/// Pause between two attempts, so that other transactions can proceed.
const PAUSE: Duration = Duration::from_secs(2);

const READ_ONLY: &str = "show transaction_read_only";

const JOURNAL: &str = "create table if not exists tenure_migrations (
    version       int         primary key,
    readable_from int         not null check (readable_from between 1 and version),
    applied_at    timestamptz not null default now()
);";

/// Upgrades the database to the schema version of this program.
pub(crate) async fn migrate(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
) -> Result<Migrated, StoreError> {
    let before = run(conn, schema, MIGRATIONS).await?;
    before.migrated("migrate", MIGRATIONS)
}

/// Applies the missing migrations; returns the versions before.
async fn run(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
    migrations: &[Migration],
) -> Result<SchemaVersion, StoreError> {
    for _ in 0..TRIES {
        let tried = attempt(conn, schema, migrations).await;
        if let Some(before) = tried.map_err(|error| store_error("migrate", error))? {
            return Ok(before);
        }
        tokio::time::sleep(PAUSE).await;
    }
    let message = "the tables are in use by a long transaction; nothing was migrated";
    Err(
        StoreError::new("migrate", StoreErrorKind::Unavailable, message).with_hint(
            "look for it in pg_stat_activity (a backup, or state 'idle in transaction'), let it \
             end, and run the same command again",
        ),
    )
}

/// Applies the missing migrations in one transaction; `None`: the tables are in use.
async fn attempt(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
    migrations: &[Migration],
) -> Result<Option<SchemaVersion>, sqlx::Error> {
    let found = version(conn, schema, migrations).await?;
    if found.fit() != SchemaFit::Older && is_writable(conn).await? {
        // A role without schema rights suffices.
        return Ok(Some(found));
    }
    let mut tx = conn.begin().await?;
    sqlx::raw_sql(TURN).execute(&mut *tx).await?;
    if let Some(schema) = schema {
        enter(&mut tx, schema).await?;
    }
    sqlx::raw_sql(JOURNAL).execute(&mut *tx).await?;
    if !locked(&mut tx).await? {
        return Ok(None);
    }
    // Another process may have been faster.
    let found = version(&mut tx, None, migrations).await?;
    for (number, migration) in migration::missing(migrations, found.tables) {
        for text in migration.texts {
            sqlx::raw_sql(*text).execute(&mut *tx).await?;
        }
        let note = "insert into tenure_migrations (version, readable_from) values ($1, $2)";
        let note = sqlx::query(note).bind(signed(number));
        let note = note.bind(signed(migration.readable_from));
        note.rows_on(&mut tx).await?;
    }
    tx.commit().await?;
    Ok(Some(found))
}

/// Locks all tables at once, so that the statements of the migration wait for no lock.
async fn locked(tx: &mut PgConnection) -> Result<bool, sqlx::Error> {
    sqlx::raw_sql(BRIEFLY).execute(&mut *tx).await?;
    match sqlx::raw_sql(LOCK_ALL).execute(&mut *tx).await {
        Err(error) if is_cancelled(&error) => return Ok(false),
        locked => locked?,
    };
    sqlx::raw_sql(AS_BEFORE).execute(&mut *tx).await?;
    Ok(true)
}

/// Returns false on a read-only database: there, a migration must fail with the right error even if
/// nothing is missing.
async fn is_writable(conn: &mut PgConnection) -> Result<bool, sqlx::Error> {
    let row = sqlx::raw_sql(READ_ONLY).fetch_one(conn).await?;
    let read_only: String = super::row::get(&row, 0)?;
    Ok(read_only == "off")
}

/// Creates the schema and makes it the search path of this transaction.
async fn enter(conn: &mut PgConnection, schema: &Identifier) -> Result<(), sqlx::Error> {
    let name = schema.quoted();
    let text = format!("create schema if not exists {name}; set local search_path to {name};");
    Statement::new(&text, None).raw(conn).await
}

/// Returns the versions of the tables, and of a program with these migrations.
async fn version(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
    migrations: &[Migration],
) -> Result<SchemaVersion, sqlx::Error> {
    let text = "select coalesce(max(version), 0), coalesce(max(readable_from), 0)
                from tenure_migrations";
    let statement = Statement::new(text, schema);
    // A migration may take long, but not the look before it.
    let look = timeout(CONNECTION_TIMEOUT, statement.query().row_on(conn)).await;
    let (tables, readable_from) = match look.unwrap_or(Err(sqlx::Error::PoolTimedOut)) {
        Ok(row) => (super::row::get(&row, 0)?, super::row::get(&row, 1)?),
        Err(error) if is_missing(&error) => (0, 0),
        Err(error) => return Err(error),
    };
    Ok(SchemaVersion::compared(
        unsigned(tables),
        unsigned(readable_from),
        migrations,
    ))
}

/// Reads the versions of the tables and of this program.
pub(super) async fn read(
    verb: &'static str,
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
) -> Result<SchemaVersion, StoreError> {
    let found = version(conn, schema, MIGRATIONS).await;
    found.map_err(|error| store_error(verb, error))
}

/// Compares these two numbers of the tables with the version of this program.
pub(super) fn compared(tables: i32, readable_from: i32) -> SchemaVersion {
    SchemaVersion::compared(unsigned(tables), unsigned(readable_from), MIGRATIONS)
}

/// Applies another migration, as a newer program would.
#[cfg(all(feature = "testing", feature = "postgres", feature = "sqlite"))]
pub(crate) async fn migrate_further(
    conn: &mut PgConnection,
    further: Migration,
) -> Result<(), StoreError> {
    let all = migration::followed_by(MIGRATIONS, further);
    run(conn, None, &all).await.map(drop)
}

fn unsigned(version: i32) -> u32 {
    u32::try_from(version).unwrap_or(0)
}

fn signed(version: u32) -> i32 {
    i32::try_from(version).unwrap_or(i32::MAX)
}

/// Returns the SQL of all migrations, for a database administrator to apply by hand.
pub fn migration_sql() -> String {
    let version = MIGRATIONS.len();
    let mut text = format!(
        "-- Tenure's tables, version {version}. Apply in one transaction.\n\
         -- Use a separate role for Tenure, so that its statements are planned once and use\n\
         -- indexes:\n\
         --   create role tenure login;\n\
         --   alter role tenure set plan_cache_mode = force_generic_plan;\n\
         --   alter role tenure set enable_seqscan = off;\n\
         --   alter role tenure set enable_bitmapscan = off;\n\
         --   alter role tenure set jit = off;\n\
         begin;\n\n{JOURNAL}\n"
    );
    for (number, migration) in migration::missing(MIGRATIONS, 0) {
        text.extend(["\n", &migration::heading(number, migration), "\n"]);
        for part in migration.texts {
            text.extend(["\n", part]);
        }
        let from = migration.readable_from;
        let note = format!(
            "\ninsert into tenure_migrations (version, readable_from) values ({number}, {from});\n"
        );
        text.push_str(&note);
    }
    text.push_str("\ncommit;\n");
    text
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;
    use crate::testing::postgres;

    /// A later version with two texts; the second depends on the first.
    const SECOND: Migration = Migration {
        readable_from: 1,
        texts: &[
            "create table tenure_second (id int primary key);",
            "insert into tenure_second values (7);",
        ],
    };

    /// A later version whose second text fails.
    const HALF: Migration = Migration {
        readable_from: 1,
        texts: &["create table tenure_second (id int);", "select 1 / 0;"],
    };

    async fn migrated(conn: &mut PgConnection, to: &[Migration]) -> (u32, u32) {
        let found = run(conn, None, to).await.expect("it migrates");
        let migrated = found.migrated("migrate", to).expect("it is usable");
        (migrated.from, migrated.to.tables)
    }

    async fn number(conn: &mut PgConnection, query: &'static str) -> i64 {
        sqlx::query_scalar(query)
            .fetch_one(conn)
            .await
            .expect("it answers")
    }

    #[tokio::test]
    async fn a_later_version_is_applied_once_and_keeps_the_events() {
        let database = postgres().await;
        let mut conn = PgConnection::connect(&database.url).await.unwrap();
        assert_eq!(migrated(&mut conn, &[FIRST]).await, (0, 1));
        let event = "select tenure_enqueue('a', '1')";
        assert_eq!(number(&mut conn, event).await, 1);

        assert_eq!(migrated(&mut conn, &[FIRST, SECOND]).await, (1, 2));
        assert_eq!(migrated(&mut conn, &[FIRST, SECOND]).await, (2, 2));
        let kept = "select count(*) from tenure_second, tenure_events";
        assert_eq!(number(&mut conn, kept).await, 1);
        let versions = "select sum(version) from tenure_migrations";
        assert_eq!(number(&mut conn, versions).await, 3);
        assert_eq!(migrated(&mut conn, &[FIRST]).await, (2, 2), "it is newer");
    }

    #[tokio::test]
    async fn all_versions_are_applied_in_order_to_an_empty_database() {
        let database = postgres().await;
        let mut conn = PgConnection::connect(&database.url).await.unwrap();
        assert_eq!(migrated(&mut conn, &[FIRST, SECOND]).await, (0, 2));
        let versions = "select count(*) from tenure_migrations";
        assert_eq!(number(&mut conn, versions).await, 2);
    }

    /// A second transaction uses the tables for longer than an attempt waits.
    #[tokio::test]
    async fn a_migration_waits_for_transactions_without_blocking_others_for_long() {
        let database = postgres().await;
        let mut conn = PgConnection::connect(&database.url).await.unwrap();
        let mut other = PgConnection::connect(&database.url).await.unwrap();
        assert_eq!(migrated(&mut conn, &[FIRST]).await, (0, 1));
        let mut tx = other.begin().await.unwrap();
        let event = "select tenure_enqueue('a', '1')";
        assert_eq!(number(&mut tx, event).await, 1);

        let history = [FIRST, SECOND];
        let refused = attempt(&mut conn, None, &history).await;
        assert!(matches!(refused, Ok(None)), "{refused:?}");
        let third = PgConnection::connect(&database.url).await;
        assert_eq!(number(&mut third.unwrap(), event).await, 2);
        tx.commit().await.unwrap();
        assert_eq!(migrated(&mut conn, &history).await, (1, 2));
        let events = "select count(*) from tenure_events";
        assert_eq!(number(&mut conn, events).await, 2);
    }

    #[tokio::test]
    async fn a_failed_migration_leaves_nothing_behind() {
        let database = postgres().await;
        let mut conn = PgConnection::connect(&database.url).await.unwrap();
        assert_eq!(migrated(&mut conn, &[FIRST]).await, (0, 1));
        run(&mut conn, None, &[FIRST, HALF]).await.unwrap_err();
        assert_eq!(migrated(&mut conn, &[FIRST, SECOND]).await, (1, 2));
    }
}

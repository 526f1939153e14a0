//! Migrations: forward only, in order, recorded in `tenure_migrations`; one transaction applies all
//! missing ones.

use sqlx::{Connection, PgConnection};
use tenure_core::Identifier;
use tenure_core::store::{Finding, StoreError, StoreErrorKind};
use tokio::time::timeout;

use super::CONNECTION_TIMEOUT;
use super::error::{is_missing, store_error};
use super::session::RunOn as _;
use super::statements::Statement;
use crate::open::Migrated;

/// One version of the schema: SQL texts, applied in this order in one transaction.
type Migration = &'static [&'static str];

/// The first version, one text per feature.
const FIRST: Migration = &[
    include_str!("../../migrations/postgres/0001/1_queue.sql"),
    include_str!("../../migrations/postgres/0001/2_keys.sql"),
    include_str!("../../migrations/postgres/0001/3_outbox.sql"),
    include_str!("../../migrations/postgres/0001/4_replays.sql"),
    include_str!("../../migrations/postgres/0001/5_cluster.sql"),
    include_str!("../../migrations/postgres/0001/6_work_lease.sql"),
    include_str!("../../migrations/postgres/0001/7_webhooks.sql"),
    include_str!("../../migrations/postgres/0001/8_jobs.sql"),
    include_str!("../../migrations/postgres/0001/9_tables.sql"),
];

/// All versions, oldest first: the n-th migration creates version n. Never edit a released one.
const MIGRATIONS: [Migration; 1] = [FIRST];

/// The schema version of this program.
pub(crate) const VERSION: i32 = 1;

/// Serializes concurrent migrations; only Tenure uses this lock number.
const TURN: &str = "select pg_advisory_xact_lock(7407170001)";

const READ_ONLY: &str = "show transaction_read_only";

const JOURNAL: &str = "create table if not exists tenure_migrations (
    version    int         primary key,
    applied_at timestamptz not null default now()
);";

/// Upgrades the database to the schema version of this program.
pub(crate) async fn migrate(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
) -> Result<Migrated, StoreError> {
    run(conn, schema, &MIGRATIONS)
        .await
        .map_err(|error| store_error("migrate", error))?
        .ok_or_else(|| too_new("migrate"))
}

/// Applies the missing migrations; `None`: the database has a newer version.
async fn run(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
    migrations: &[Migration],
) -> Result<Option<Migrated>, sqlx::Error> {
    let to = i32::try_from(migrations.len()).unwrap_or(i32::MAX);
    // A migration may take long, but not the look before it.
    let look = timeout(CONNECTION_TIMEOUT, is_current(conn, schema, to)).await;
    if look.unwrap_or(Err(sqlx::Error::PoolTimedOut))? {
        let version = unsigned(to);
        return Ok(Some(Migrated {
            from: version,
            to: version,
        }));
    }
    let mut tx = conn.begin().await?;
    sqlx::raw_sql(TURN).execute(&mut *tx).await?;
    if let Some(schema) = schema {
        enter(&mut tx, schema).await?;
    }
    sqlx::raw_sql(JOURNAL).execute(&mut *tx).await?;
    let from = version(&mut tx, None).await?;
    if from > to {
        return Ok(None);
    }
    for (number, texts) in (1..).zip(migrations).filter(|(number, _)| *number > from) {
        for text in *texts {
            sqlx::raw_sql(*text).execute(&mut *tx).await?;
        }
        let note = sqlx::query("insert into tenure_migrations (version) values ($1)");
        note.bind::<i32>(number).rows_on(&mut tx).await?;
    }
    tx.commit().await?;
    Ok(Some(Migrated {
        from: unsigned(from),
        to: unsigned(to),
    }))
}

/// True if there is nothing to migrate: then a role without schema rights suffices. False on a
/// read-only database, so that the migration fails with the right error.
async fn is_current(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
    known: i32,
) -> Result<bool, sqlx::Error> {
    match version(conn, schema).await {
        Ok(found) if found == known => {}
        Ok(_) => return Ok(false),
        Err(error) if is_missing(&error) => return Ok(false),
        Err(error) => return Err(error),
    }
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

/// Returns the highest applied version; 0: none.
pub(crate) async fn version(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
) -> Result<i32, sqlx::Error> {
    let text = "select coalesce(max(version), 0) from tenure_migrations";
    let row = Statement::new(text, schema).query().row_on(conn).await?;
    super::row::get(&row, 0)
}

/// Rejects a database with an older or newer schema than this program's.
pub(crate) async fn check(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
) -> Result<(), StoreError> {
    let found = version(conn, schema).await.map_err(|error| {
        if is_missing(&error) {
            let message = "Tenure's tables are not in this database";
            return StoreError::new("open", StoreErrorKind::Invalid, message)
                .with_hint("create them: run `tenure migrate`, or call `tenure::migrate`");
        }
        store_error("open", error)
    })?;
    match found.cmp(&VERSION) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(too_new("open")),
        std::cmp::Ordering::Less => {
            let message =
                format!("the tables are of version {found}, this program needs {VERSION}");
            Err(StoreError::new("open", StoreErrorKind::Invalid, message)
                .with_hint("run `tenure migrate`, or call `tenure::migrate`"))
        }
    }
}

pub(super) fn finding(found: i32) -> Finding {
    let text = format!("version {found}");
    match found.cmp(&VERSION) {
        std::cmp::Ordering::Equal => Finding::good("schema", text),
        std::cmp::Ordering::Less => {
            let text = format!("{text}, this program needs {VERSION}");
            Finding::bad("schema", text, "run `tenure migrate`")
        }
        std::cmp::Ordering::Greater => {
            let text = format!("{text}, newer than schema version {VERSION} of this program");
            Finding::bad("schema", text, "use a newer `tenure`")
        }
    }
}

fn too_new(verb: &'static str) -> StoreError {
    let message = format!("the tables are newer than schema version {VERSION} of this program");
    StoreError::new(verb, StoreErrorKind::Invalid, message).with_hint("use a newer `tenure`")
}

fn unsigned(version: i32) -> u32 {
    u32::try_from(version).unwrap_or(0)
}

/// Returns the SQL of all migrations, for a database administrator to apply by hand.
pub fn migration_sql() -> String {
    let mut text = format!(
        "-- Tenure's tables, version {VERSION}. Apply in one transaction.\n\
         -- Use a separate role for Tenure, so that its statements are planned once and use\n\
         -- indexes:\n\
         --   create role tenure login;\n\
         --   alter role tenure set plan_cache_mode = force_generic_plan;\n\
         --   alter role tenure set enable_seqscan = off;\n\
         --   alter role tenure set enable_bitmapscan = off;\n\
         --   alter role tenure set jit = off;\n\
         begin;\n\n{JOURNAL}\n"
    );
    for (number, texts) in (1..).zip(MIGRATIONS) {
        for part in texts {
            text.extend(["\n", part]);
        }
        let note = format!("\ninsert into tenure_migrations (version) values ({number});\n");
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
    const SECOND: Migration = &[
        "create table tenure_second (id int primary key);",
        "insert into tenure_second values (7);",
    ];

    /// A later version whose second text fails.
    const HALF: Migration = &["create table tenure_second (id int);", "select 1 / 0;"];

    async fn migrated(conn: &mut PgConnection, to: &[Migration]) -> Option<(u32, u32)> {
        let answer = run(conn, None, to).await.expect("it migrates");
        answer.map(|migrated| (migrated.from, migrated.to))
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
        assert_eq!(usize::try_from(VERSION).unwrap(), MIGRATIONS.len());
        assert_eq!(migrated(&mut conn, &[FIRST]).await, Some((0, 1)));
        let event = "select tenure_enqueue('a', '1')";
        assert_eq!(number(&mut conn, event).await, 1);

        assert_eq!(migrated(&mut conn, &[FIRST, SECOND]).await, Some((1, 2)));
        assert_eq!(migrated(&mut conn, &[FIRST, SECOND]).await, Some((2, 2)));
        let kept = "select count(*) from tenure_second, tenure_events";
        assert_eq!(number(&mut conn, kept).await, 1);
        let versions = "select sum(version) from tenure_migrations";
        assert_eq!(number(&mut conn, versions).await, 3);
        assert_eq!(migrated(&mut conn, &[FIRST]).await, None, "it is newer");
    }

    #[tokio::test]
    async fn all_versions_are_applied_in_order_to_an_empty_database() {
        let database = postgres().await;
        let mut conn = PgConnection::connect(&database.url).await.unwrap();
        assert_eq!(migrated(&mut conn, &[FIRST, SECOND]).await, Some((0, 2)));
        let versions = "select count(*) from tenure_migrations";
        assert_eq!(number(&mut conn, versions).await, 2);
    }

    #[tokio::test]
    async fn a_failed_migration_leaves_nothing_behind() {
        let database = postgres().await;
        let mut conn = PgConnection::connect(&database.url).await.unwrap();
        assert_eq!(migrated(&mut conn, &[FIRST]).await, Some((0, 1)));
        run(&mut conn, None, &[FIRST, HALF]).await.unwrap_err();
        assert_eq!(migrated(&mut conn, &[FIRST, SECOND]).await, Some((1, 2)));
    }
}

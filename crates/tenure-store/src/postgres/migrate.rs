//! Migrations: forward only, in order, each in one transaction, noted in `tenure_migrations`.

use sqlx::{Connection, PgConnection};
use tenure_core::Identifier;
use tenure_core::store::{Finding, StoreError, StoreErrorKind};

use super::error::{is_missing, store_error};
use super::statements::Statement;
use crate::open::Migrated;

/// Every migration, oldest first. Never edited once released.
const MIGRATIONS: [&str; 5] = [
    include_str!("../../migrations/postgres/0001_queue.sql"),
    include_str!("../../migrations/postgres/0002_webhooks.sql"),
    include_str!("../../migrations/postgres/0003_jobs.sql"),
    include_str!("../../migrations/postgres/0004_tables.sql"),
    include_str!("../../migrations/postgres/0005_retries.sql"),
];

/// The version that this program knows.
pub(crate) const VERSION: i32 = 5;

/// Two programs that migrate at once take turns; the number is only ours.
const TURN: &str = "select pg_advisory_xact_lock(7407170001)";

const READ_ONLY: &str = "show transaction_read_only";

const JOURNAL: &str = "create table if not exists tenure_migrations (
    version    int         primary key,
    applied_at timestamptz not null default now()
);";

/// Brings the database to the version that this program knows.
pub(crate) async fn migrate(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
) -> Result<Migrated, StoreError> {
    run(conn, schema)
        .await
        .map_err(|error| store_error("migrate", error))?
        .ok_or_else(too_new)
}

async fn run(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
) -> Result<Option<Migrated>, sqlx::Error> {
    if is_current(conn, schema).await? {
        let version = unsigned(VERSION);
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
    if from > VERSION {
        return Ok(None);
    }
    let done = usize::try_from(from).unwrap_or(0);
    for (step, text) in MIGRATIONS.iter().enumerate().skip(done) {
        sqlx::raw_sql(*text).execute(&mut *tx).await?;
        let number = i32::try_from(step + 1).unwrap_or(i32::MAX);
        let note = sqlx::query("insert into tenure_migrations (version) values ($1)");
        note.bind(number).execute(&mut *tx).await?;
    }
    tx.commit().await?;
    Ok(Some(Migrated {
        from: unsigned(from),
        to: unsigned(VERSION),
    }))
}

/// Whether nothing is to be done: then a role that may change no schema will do. Where nothing can
/// be written, that is for the migration to tell.
async fn is_current(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
) -> Result<bool, sqlx::Error> {
    match version(conn, schema).await {
        Ok(VERSION) => {}
        Ok(_) => return Ok(false),
        Err(error) if is_missing(&error) => return Ok(false),
        Err(error) => return Err(error),
    }
    let row = sqlx::query(READ_ONLY).fetch_one(conn).await?;
    let read_only: String = super::row::get(&row, 0)?;
    Ok(read_only == "off")
}

/// Makes the schema and writes into it for the rest of the transaction.
async fn enter(conn: &mut PgConnection, schema: &Identifier) -> Result<(), sqlx::Error> {
    let name = schema.quoted();
    let text = format!("create schema if not exists {name}; set local search_path to {name};");
    Statement::new(&text, None).raw(conn).await
}

/// The version of the database: the highest that was applied; 0: none.
pub(crate) async fn version(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
) -> Result<i32, sqlx::Error> {
    let text = "select coalesce(max(version), 0) from tenure_migrations";
    let row = Statement::new(text, schema).query().fetch_one(conn).await?;
    super::row::get(&row, 0)
}

/// Refuses a database that is older or newer than this program.
pub(crate) async fn check(
    conn: &mut PgConnection,
    schema: Option<&Identifier>,
) -> Result<(), StoreError> {
    let found = version(conn, schema).await.map_err(|error| {
        if is_missing(&error) {
            let message = "Tenure's tables are not in this database";
            return StoreError::new("open", StoreErrorKind::Invalid, message)
                .hint("make them: run `tenure migrate`");
        }
        store_error("open", error)
    })?;
    match found.cmp(&VERSION) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(too_new()),
        std::cmp::Ordering::Less => {
            let message =
                format!("the tables are of version {found}, this program needs {VERSION}");
            Err(StoreError::new("open", StoreErrorKind::Invalid, message)
                .hint("run `tenure migrate`"))
        }
    }
}

/// What to think of tables of this version.
pub(super) fn finding(found: i32) -> Finding {
    let text = format!("version {found}");
    match found.cmp(&VERSION) {
        std::cmp::Ordering::Equal => Finding::good("schema", text),
        std::cmp::Ordering::Less => {
            let text = format!("{text}, this program needs {VERSION}");
            Finding::bad("schema", text, "run `tenure migrate`")
        }
        std::cmp::Ordering::Greater => {
            let text = format!("{text}, newer than {VERSION}, which this program knows");
            Finding::bad("schema", text, "use a newer `tenure`")
        }
    }
}

fn too_new() -> StoreError {
    let message =
        format!("the tables are of a newer version than {VERSION}, which this program knows");
    StoreError::new("open", StoreErrorKind::Invalid, message).hint("use a newer `tenure`")
}

fn unsigned(version: i32) -> u32 {
    u32::try_from(version).unwrap_or(0)
}

/// Everything, for a database administrator to apply by hand.
pub fn migration_sql() -> String {
    let mut text = format!(
        "-- Tenure's tables, version {VERSION}. Apply in one transaction.\n\
         -- Best as a role of Tenure's own, whose statements are then planned once and by index:\n\
         --   create role tenure login;\n\
         --   alter role tenure set plan_cache_mode = force_generic_plan;\n\
         --   alter role tenure set enable_seqscan = off;\n\
         --   alter role tenure set enable_bitmapscan = off;\n\
         --   alter role tenure set jit = off;\n\
         begin;\n\n{JOURNAL}\n"
    );
    for (step, migration) in MIGRATIONS.iter().enumerate() {
        let note = format!(
            "insert into tenure_migrations (version) values ({});",
            step + 1
        );
        text.extend(["\n", migration, "\n", &note, "\n"]);
    }
    text.push_str("\ncommit;\n");
    text
}

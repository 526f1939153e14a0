//! Migrations: forward only, in order, in one transaction, noted in `tenure_migrations`. (Not in
//! `user_version`: that belongs to the application whose file it is.)

use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};
use tenure_core::store::{Finding, StoreError, StoreErrorKind};

use super::error::failed;
use super::writer::Writer;
use super::{SqliteStore, moment_of};
use crate::config::StoreConfig;
use crate::memory::SystemClock;
use crate::open::Migrated;

/// Every migration, oldest first; the n-th makes version n. Never edited once released.
const MIGRATIONS: [&str; 5] = [
    include_str!("../../migrations/sqlite/0001_queue.sql"),
    include_str!("../../migrations/sqlite/0002_webhooks.sql"),
    include_str!("../../migrations/sqlite/0003_jobs.sql"),
    include_str!("../../migrations/sqlite/0004_tables.sql"),
    include_str!("../../migrations/sqlite/0005_retries.sql"),
];
const VERB: &str = "migrate";

const JOURNAL: &str = "create table if not exists tenure_migrations (
    version    integer primary key,
    applied_at integer not null
) strict;";

impl SqliteStore {
    /// Creates the file and its tables, or brings them to the version of this program.
    ///
    /// # Errors
    /// As [`SqliteStore::open`].
    pub async fn migrate(path: &Path, config: &StoreConfig) -> Result<Migrated, StoreError> {
        let writer = Writer::open(path, config).await?;
        migrate(&writer).await
    }
}

/// Brings the file to the version of this program. One that is there already is only read, so that
/// it can be opened while another process writes.
pub(super) async fn migrate(writer: &Writer) -> Result<Migrated, StoreError> {
    let from = writer.read(VERB, version).await?;
    if missing(from)?.is_empty() {
        return Ok(Migrated { from, to: from });
    }
    writer.write(VERB, apply).await
}

/// Whether a file has the tables of this program. It is only read.
pub(crate) fn is_current(path: &Path) -> Result<bool, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed(VERB))?;
    Ok(missing(version(&connection)?)?.is_empty())
}

/// Asks for the version again, within the transaction: another process may have been faster.
fn apply(connection: &Connection) -> Result<Migrated, StoreError> {
    let from = version(connection)?;
    let mut to = from;
    let now = moment_of(&SystemClock, None).as_micros();
    connection.execute_batch(JOURNAL).map_err(failed(VERB))?;
    for migration in missing(from)? {
        to += 1;
        connection.execute_batch(migration).map_err(failed(VERB))?;
        let note = "insert into tenure_migrations (version, applied_at) values (?1, ?2)";
        connection
            .execute(note, params![to, now])
            .map_err(failed(VERB))?;
    }
    Ok(Migrated { from, to })
}

/// The migrations that a file of this version has not seen.
fn missing(version: u32) -> Result<&'static [&'static str], StoreError> {
    usize::try_from(version)
        .ok()
        .and_then(|seen| MIGRATIONS.get(seen..))
        .ok_or_else(|| {
            let known = MIGRATIONS.len();
            let message = format!(
                "the tables are of version {version}, newer than {known}, which this program knows"
            );
            StoreError::new(VERB, StoreErrorKind::Invalid, message).hint("use a newer `tenure`")
        })
}

/// What to think of tables of this version.
pub(super) fn finding(found: u32) -> Finding {
    let text = format!("version {found}");
    let known = MIGRATIONS.len();
    match missing(found) {
        Ok([]) => Finding::good("schema", text),
        Ok(_) => {
            let text = format!("{text}, this program needs {known}");
            Finding::bad("schema", text, "run `tenure migrate`")
        }
        Err(_) => {
            let text = format!("{text}, newer than {known}, which this program knows");
            Finding::bad("schema", text, "use a newer `tenure`")
        }
    }
}

/// The version of the file: the highest that was applied; 0: none.
fn version(connection: &Connection) -> Result<u32, StoreError> {
    let find = || {
        // Asked of the file: `table_exists` answers from what this connection saw of it before.
        let is_there = "select count(*) from sqlite_schema where name = 'tenure_migrations'";
        if connection.query_row(is_there, [], |row| row.get::<_, u32>(0))? == 0 {
            return Ok(0);
        }
        let sql = "select coalesce(max(version), 0) from tenure_migrations";
        connection.query_row(sql, [], |row| row.get(0))
    };
    find().map_err(failed(VERB))
}

/// Everything, for people who change their database by hand.
pub fn migration_sql() -> String {
    let mut steps = vec![
        format!("-- Tenure's tables, version {}.", MIGRATIONS.len()),
        "begin immediate;\n".to_owned(),
        JOURNAL.to_owned(),
    ];
    for (number, migration) in (1..).zip(MIGRATIONS) {
        steps.push(format!(
            "\n{migration}\ninsert into tenure_migrations (version, applied_at)\n\
             values ({number}, strftime('%s', 'now') * 1000000);"
        ));
    }
    steps.push("\ncommit;\n".to_owned());
    steps.join("\n")
}

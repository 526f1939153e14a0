//! Migrations: forward only, in order, in one transaction, recorded in `tenure_migrations`. (Not in
//! `user_version`: that belongs to the application that owns the file.)

use std::path::Path;

use rusqlite::{Connection, OpenFlags, params};
use tenure_core::store::{Finding, StoreError, StoreErrorKind};

use super::error::failed;
use super::writer::Writer;
use super::{SqliteStore, moment_of};
use crate::config::StoreConfig;
use crate::memory::SystemClock;
use crate::open::Migrated;

/// One version of the schema: texts applied in this order, in one transaction.
type Migration = &'static [&'static str];

/// The first version, a text per feature.
const FIRST: Migration = &[
    include_str!("../../migrations/sqlite/0001/1_queue.sql"),
    include_str!("../../migrations/sqlite/0001/2_keys.sql"),
    include_str!("../../migrations/sqlite/0001/3_outbox.sql"),
    include_str!("../../migrations/sqlite/0001/4_replays.sql"),
    include_str!("../../migrations/sqlite/0001/5_cluster.sql"),
    include_str!("../../migrations/sqlite/0001/6_work_lease.sql"),
    include_str!("../../migrations/sqlite/0001/7_webhooks.sql"),
    include_str!("../../migrations/sqlite/0001/8_jobs.sql"),
    include_str!("../../migrations/sqlite/0001/9_tables.sql"),
];

/// All versions, oldest first: the n-th migration produces version n. Never edit a released one.
const MIGRATIONS: &[Migration] = &[FIRST];

const VERB: &str = "migrate";

const JOURNAL: &str = "create table if not exists tenure_migrations (
    version    integer primary key,
    applied_at integer not null
) strict;";

impl SqliteStore {
    /// Creates the file and its tables, or migrates them to the version of this program.
    ///
    /// # Errors
    /// Same as [`SqliteStore::open`].
    pub async fn migrate(path: &Path, config: &StoreConfig) -> Result<Migrated, StoreError> {
        let writer = Writer::open(path, config).await?;
        migrate(&writer).await
    }
}

/// Migrates the file to the version of this program. A current file is only read, so that it can be
/// opened while another process writes.
pub(super) async fn migrate(writer: &Writer) -> Result<Migrated, StoreError> {
    let from = writer.read(VERB, version).await?;
    if missing(MIGRATIONS, from)?.is_empty() {
        return Ok(Migrated { from, to: from });
    }
    let apply = |connection: &Connection| apply(connection, MIGRATIONS);
    writer.write(VERB, apply).await
}

/// Returns true if the file has the tables of this program; only reads it.
pub(crate) fn is_current(path: &Path) -> Result<bool, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed(VERB))?;
    Ok(missing(MIGRATIONS, version(&connection)?)?.is_empty())
}

/// Applies the missing migrations. Reads the version again within the transaction: another process
/// may have been faster.
fn apply(
    connection: &Connection,
    migrations: &'static [Migration],
) -> Result<Migrated, StoreError> {
    let from = version(connection)?;
    let mut to = from;
    let now = moment_of(&SystemClock, None).as_micros();
    connection.execute_batch(JOURNAL).map_err(failed(VERB))?;
    for texts in missing(migrations, from)? {
        to += 1;
        for text in *texts {
            connection.execute_batch(text).map_err(failed(VERB))?;
        }
        let note = "insert into tenure_migrations (version, applied_at) values (?1, ?2)";
        connection
            .execute(note, params![to, now])
            .map_err(failed(VERB))?;
    }
    Ok(Migrated { from, to })
}

/// Returns the migrations that a file of this version lacks.
fn missing(
    migrations: &'static [Migration],
    version: u32,
) -> Result<&'static [Migration], StoreError> {
    usize::try_from(version)
        .ok()
        .and_then(|applied| migrations.get(applied..))
        .ok_or_else(|| {
            let known = migrations.len();
            let message = format!(
                "the tables are of version {version}, newer than schema version {known} of this \
                 program"
            );
            StoreError::new(VERB, StoreErrorKind::Invalid, message)
                .with_hint("use a newer `tenure`")
        })
}

/// Builds the finding for tables of this version.
pub(super) fn finding(found: u32) -> Finding {
    let text = format!("version {found}");
    let known = MIGRATIONS.len();
    match missing(MIGRATIONS, found) {
        Ok([]) => Finding::good("schema", text),
        Ok(_) => {
            let text = format!("{text}, this program needs {known}");
            Finding::bad("schema", text, "run `tenure migrate`")
        }
        Err(_) => {
            let text = format!("{text}, newer than schema version {known} of this program");
            Finding::bad("schema", text, "use a newer `tenure`")
        }
    }
}

/// Returns the highest version applied to the file; 0 if none.
fn version(connection: &Connection) -> Result<u32, StoreError> {
    let find = || {
        // Query the file: `table_exists` answers from this connection's cached schema.
        let is_there = "select count(*) from sqlite_schema where name = 'tenure_migrations'";
        if connection.query_row(is_there, [], |row| row.get::<_, u32>(0))? == 0 {
            return Ok(0);
        }
        let sql = "select coalesce(max(version), 0) from tenure_migrations";
        connection.query_row(sql, [], |row| row.get(0))
    };
    find().map_err(failed(VERB))
}

/// Returns the SQL of all migrations, for a database administrator to apply by hand.
pub fn migration_sql() -> String {
    let mut steps = vec![
        format!("-- Tenure's tables, version {}.", MIGRATIONS.len()),
        "begin immediate;\n".to_owned(),
        JOURNAL.to_owned(),
    ];
    for (number, texts) in (1..).zip(MIGRATIONS) {
        steps.extend(texts.iter().map(|text| format!("\n{text}")));
        steps.push(format!(
            "insert into tenure_migrations (version, applied_at)\n\
             values ({number}, strftime('%s', 'now') * 1000000);"
        ));
    }
    steps.push("\ncommit;\n".to_owned());
    steps.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A later version in two texts; the second depends on the first.
    const SECOND: Migration = &[
        "create table tenure_second (id integer primary key);",
        "insert into tenure_second values (7);",
    ];

    /// A later version that fails halfway.
    const HALF: Migration = &[
        "create table tenure_second (id integer);",
        "insert into tenure_nowhere values (7);",
    ];

    /// Applies the migrations like [`migrate`], in one transaction.
    fn migrated(
        connection: &mut Connection,
        to: &'static [Migration],
    ) -> Result<Migrated, StoreError> {
        let tx = connection.transaction().unwrap();
        let migrated = apply(&tx, to)?;
        tx.commit().unwrap();
        Ok(migrated)
    }

    fn number(connection: &Connection, query: &str) -> u32 {
        connection.query_row(query, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_later_version_is_applied_once_and_keeps_the_events() {
        let mut file = Connection::open_in_memory().unwrap();
        let first = migrated(&mut file, &[FIRST]).unwrap();
        assert_eq!(first, Migrated { from: 0, to: 1 });
        let event = "insert into tenure_outbox (topic, payload) values ('a', '1')";
        file.execute_batch(event).unwrap();

        let second = migrated(&mut file, &[FIRST, SECOND]).unwrap();
        assert_eq!(second, Migrated { from: 1, to: 2 });
        let again = migrated(&mut file, &[FIRST, SECOND]).unwrap();
        assert_eq!(again, Migrated { from: 2, to: 2 });
        let kept = "select count(*) from tenure_second, tenure_events";
        assert_eq!(number(&file, kept), 1);
        assert_eq!(
            number(&file, "select sum(version) from tenure_migrations"),
            3
        );
        let newer = migrated(&mut file, &[FIRST]).unwrap_err();
        assert_eq!(newer.kind(), StoreErrorKind::Invalid);
    }

    #[test]
    fn all_versions_are_applied_in_order_to_an_empty_file() {
        let mut file = Connection::open_in_memory().unwrap();
        let both = migrated(&mut file, &[FIRST, SECOND]).unwrap();
        assert_eq!(both, Migrated { from: 0, to: 2 });
        assert_eq!(number(&file, "select count(*) from tenure_migrations"), 2);
    }

    #[test]
    fn a_failed_migration_leaves_nothing_behind() {
        let mut file = Connection::open_in_memory().unwrap();
        migrated(&mut file, &[FIRST]).unwrap();
        migrated(&mut file, &[FIRST, HALF]).unwrap_err();
        let second = migrated(&mut file, &[FIRST, SECOND]).unwrap();
        assert_eq!(second, Migrated { from: 1, to: 2 });
    }
}

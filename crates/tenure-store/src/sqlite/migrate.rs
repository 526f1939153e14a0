//! Migrations: forward only, in order, in one transaction, recorded in `tenure_migrations`. (Not in
//! `user_version`: that belongs to the application that owns the file.)

use std::path::Path;

#[cfg(all(feature = "testing", feature = "postgres", feature = "sqlite"))]
use rusqlite::TransactionBehavior;
use rusqlite::{Connection, OpenFlags, params};
use tenure_core::store::StoreError;

use super::error::failed;
use super::writer::Writer;
use super::{SqliteStore, moment_of};
use crate::config::StoreConfig;
use crate::memory::SystemClock;
use crate::migration::{self, Migration};
use crate::open::{Migrated, SchemaFit, SchemaVersion};

/// The first version, a text per feature.
const FIRST: Migration = Migration {
    readable_from: 1,
    texts: &[
        include_str!("../../migrations/sqlite/0001/1_queue.sql"),
        include_str!("../../migrations/sqlite/0001/2_keys.sql"),
        include_str!("../../migrations/sqlite/0001/3_outbox.sql"),
        include_str!("../../migrations/sqlite/0001/4_replays.sql"),
        include_str!("../../migrations/sqlite/0001/5_cluster.sql"),
        include_str!("../../migrations/sqlite/0001/6_work_lease.sql"),
        include_str!("../../migrations/sqlite/0001/7_webhooks.sql"),
        include_str!("../../migrations/sqlite/0001/8_jobs.sql"),
        include_str!("../../migrations/sqlite/0001/9_tables.sql"),
    ],
};

/// All versions, oldest first: the n-th migration produces version n. Never edit a released one.
const MIGRATIONS: &[Migration] = &[FIRST];

const VERB: &str = "migrate";

const JOURNAL: &str = "create table if not exists tenure_migrations (
    version       integer primary key,
    readable_from integer not null check (readable_from between 1 and version),
    applied_at    integer not null
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

/// Migrates the file to the version of this program. A file without missing migrations is only
/// read, so that it can be opened while another process writes.
pub(super) async fn migrate(writer: &Writer) -> Result<Migrated, StoreError> {
    let look = |connection: &Connection| version(connection, MIGRATIONS);
    let found = writer.read(VERB, look).await?;
    if found.fit() != SchemaFit::Older {
        return found.migrated(VERB, MIGRATIONS);
    }
    let apply = |connection: &Connection| apply(connection, MIGRATIONS);
    writer.write(VERB, apply).await
}

/// Reads the versions of the file's tables and of this program; does not create the file.
pub(super) fn of_file(path: &Path) -> Result<SchemaVersion, StoreError> {
    if !path.exists() {
        return Ok(compared(0, 0));
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(path, flags).map_err(failed(VERB))?;
    version(&connection, MIGRATIONS)
}

/// Applies the missing migrations. Reads the version again within the transaction: another process
/// may have been faster.
fn apply(connection: &Connection, migrations: &[Migration]) -> Result<Migrated, StoreError> {
    let found = version(connection, migrations)?;
    let now = moment_of(&SystemClock, None).as_micros();
    connection.execute_batch(JOURNAL).map_err(failed(VERB))?;
    for (number, migration) in migration::missing(migrations, found.tables) {
        for text in migration.texts {
            connection.execute_batch(text).map_err(failed(VERB))?;
        }
        let note = "insert into tenure_migrations (version, readable_from, applied_at)
                    values (?1, ?2, ?3)";
        connection
            .execute(note, params![number, migration.readable_from, now])
            .map_err(failed(VERB))?;
    }
    found.migrated(VERB, migrations)
}

/// Returns the versions of the file's tables, and of a program with these migrations.
fn version(connection: &Connection, migrations: &[Migration]) -> Result<SchemaVersion, StoreError> {
    let find = || {
        // Query the file: `table_exists` answers from this connection's cached schema.
        let is_there = "select count(*) from sqlite_schema where name = 'tenure_migrations'";
        if connection.query_row(is_there, [], |row| row.get::<_, u32>(0))? == 0 {
            return Ok((0, 0));
        }
        let sql = "select coalesce(max(version), 0), coalesce(max(readable_from), 0)
                   from tenure_migrations";
        connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?)))
    };
    let (tables, readable_from) = find().map_err(failed(VERB))?;
    Ok(SchemaVersion::compared(tables, readable_from, migrations))
}

/// Compares these two numbers of the tables with the version of this program.
pub(super) fn compared(tables: u32, readable_from: u32) -> SchemaVersion {
    SchemaVersion::compared(tables, readable_from, MIGRATIONS)
}

/// Applies another migration, as a newer program would.
#[cfg(all(feature = "testing", feature = "postgres", feature = "sqlite"))]
pub(crate) fn migrate_further(path: &Path, further: Migration) -> Result<(), StoreError> {
    let all = migration::followed_by(MIGRATIONS, further);
    let wait = StoreConfig::default().busy_timeout;
    let immediately = TransactionBehavior::Immediate;
    let mut connection = Connection::open(path).map_err(failed(VERB))?;
    connection.busy_timeout(wait).map_err(failed(VERB))?;
    let tx = connection.transaction_with_behavior(immediately);
    let tx = tx.map_err(failed(VERB))?;
    apply(&tx, &all)?;
    tx.commit().map_err(failed(VERB))
}

/// Returns the SQL of all migrations, for a database administrator to apply by hand.
pub fn migration_sql() -> String {
    let mut steps = vec![
        format!("-- Tenure's tables, version {}.", MIGRATIONS.len()),
        "begin immediate;\n".to_owned(),
        JOURNAL.to_owned(),
    ];
    for (number, migration) in migration::missing(MIGRATIONS, 0) {
        steps.push(format!("\n{}", migration::heading(number, migration)));
        steps.extend(migration.texts.iter().map(|text| format!("\n{text}")));
        steps.push(format!(
            "insert into tenure_migrations (version, readable_from, applied_at)\n\
             values ({number}, {}, strftime('%s', 'now') * 1000000);",
            migration.readable_from
        ));
    }
    steps.push("\ncommit;\n".to_owned());
    steps.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A later version in two texts; the second depends on the first.
    const SECOND: Migration = Migration {
        readable_from: 1,
        texts: &[
            "create table tenure_second (id integer primary key);",
            "insert into tenure_second values (7);",
        ],
    };

    /// A later version that fails halfway.
    const HALF: Migration = Migration {
        readable_from: 1,
        texts: &[
            "create table tenure_second (id integer);",
            "insert into tenure_nowhere values (7);",
        ],
    };

    /// Applies the migrations like [`migrate`], in one transaction.
    fn migrated(
        connection: &mut Connection,
        to: &'static [Migration],
    ) -> Result<(u32, u32), StoreError> {
        let tx = connection.transaction().unwrap();
        let migrated = apply(&tx, to)?;
        tx.commit().unwrap();
        Ok((migrated.from, migrated.to.tables))
    }

    fn number(connection: &Connection, query: &str) -> u32 {
        connection.query_row(query, [], |row| row.get(0)).unwrap()
    }

    #[test]
    fn a_later_version_is_applied_once_and_keeps_the_events() {
        let mut file = Connection::open_in_memory().unwrap();
        let first = migrated(&mut file, &[FIRST]).unwrap();
        assert_eq!(first, (0, 1));
        let event = "insert into tenure_outbox (topic, payload) values ('a', '1')";
        file.execute_batch(event).unwrap();

        let second = migrated(&mut file, &[FIRST, SECOND]).unwrap();
        assert_eq!(second, (1, 2));
        let again = migrated(&mut file, &[FIRST, SECOND]).unwrap();
        assert_eq!(again, (2, 2));
        let kept = "select count(*) from tenure_second, tenure_events";
        assert_eq!(number(&file, kept), 1);
        assert_eq!(
            number(&file, "select sum(version) from tenure_migrations"),
            3
        );
        let newer = migrated(&mut file, &[FIRST]).unwrap();
        assert_eq!(newer, (2, 2), "it is newer");
    }

    #[test]
    fn all_versions_are_applied_in_order_to_an_empty_file() {
        let mut file = Connection::open_in_memory().unwrap();
        let both = migrated(&mut file, &[FIRST, SECOND]).unwrap();
        assert_eq!(both, (0, 2));
        assert_eq!(number(&file, "select count(*) from tenure_migrations"), 2);
    }

    #[test]
    fn a_failed_migration_leaves_nothing_behind() {
        let mut file = Connection::open_in_memory().unwrap();
        migrated(&mut file, &[FIRST]).unwrap();
        migrated(&mut file, &[FIRST, HALF]).unwrap_err();
        let second = migrated(&mut file, &[FIRST, SECOND]).unwrap();
        assert_eq!(second, (1, 2));
    }
}

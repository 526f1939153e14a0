//! Brings the tables of a file up to date. Forward only; each file says in `tenure_schema` which it is.

use rusqlite::Connection;
use tenure_core::store::{StoreError, StoreErrorKind};

use super::error::failed;
use super::writer::Writer;

/// Every migration, in order; the n-th makes version n.
const MIGRATIONS: [&str; 1] = [include_str!("../../migrations/sqlite/0001_queue.sql")];
const VERB: &str = "migrate";

/// All migrations as one script, for people whose database is changed by hand.
pub fn migration_sql() -> String {
    format!("begin immediate;\n\n{}\ncommit;\n", MIGRATIONS.join("\n"))
}

/// Migrates if there is something to do. A file that is up to date is only read, so that it can be
/// opened while another process writes.
pub(super) async fn migrate(writer: &Writer) -> Result<(), StoreError> {
    if writer.read(VERB, missing).await?.is_empty() {
        return Ok(());
    }
    // Asked again within the transaction: another process may have been faster.
    let write = |connection: &Connection| {
        missing(connection)?
            .iter()
            .try_for_each(|sql| connection.execute_batch(sql).map_err(failed(VERB)))
    };
    writer.write(VERB, write).await
}

/// The migrations that this file has not seen.
fn missing(connection: &Connection) -> Result<&'static [&'static str], StoreError> {
    let version = version(connection).map_err(failed(VERB))?;
    let newest = MIGRATIONS.len();
    MIGRATIONS.get(version..).ok_or_else(|| {
        let message = format!("the file has schema version {version}; expected at most {newest}");
        StoreError::new(VERB, StoreErrorKind::Invalid, message)
            .hint("a newer program has written it: use that one, or a newer one")
    })
}

fn version(connection: &Connection) -> rusqlite::Result<usize> {
    if !connection.table_exists(None, "tenure_schema")? {
        return Ok(0);
    }
    let sql = "select coalesce(max(version), 0) from tenure_schema";
    connection.query_row(sql, [], |row| row.get(0))
}

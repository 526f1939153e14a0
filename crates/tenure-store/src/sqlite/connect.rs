//! Connections: how the file is opened, for the one writer and for readers.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use tenure_core::store::{StoreError, StoreErrorKind};

use super::error::failed;
use crate::config::{StoreConfig, Synchronous};

/// Prepared statements that a connection keeps: all of the queue layout's and a few tables'.
const STATEMENTS_KEPT: usize = 128;
/// How often the change to a write-ahead log is tried while others open the same new file.
const JOURNAL_TRIES: u32 = 100;
/// Pages that the log may hold before they are copied to the file, 16 MiB of them. An item's page
/// is written when it is claimed and when it is settled: with SQLite's own 1,000 the two are often
/// copied apart, which costs a drain of a table a tenth of its speed.
const LOG_PAGES: u32 = 4000;
/// A longer wait for another writer is cut to this: the library takes none beyond 24 days.
const BUSY_MAX: Duration = Duration::from_hours(24);
const VERB: &str = "open";

/// The connection that writes; creates the file if there is none.
pub(super) fn writer(path: &Path, config: &StoreConfig) -> Result<Connection, StoreError> {
    check_place(path)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = open(path, flags, config)?;
    refuse_read_only(&connection)?;
    set_journal(&connection)?;
    let synchronous = match config.synchronous {
        Synchronous::Full => "pragma synchronous = full",
        Synchronous::Normal => "pragma synchronous = normal",
    };
    connection
        // What a statement may have to undo stays in memory instead of a temporary file.
        .execute_batch("pragma temp_store = memory")
        .and_then(|()| connection.execute_batch(synchronous))
        .and_then(|()| connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES))
        .map_err(failed(VERB))?;
    Ok(connection)
}

/// A connection that cannot write. The file is there: the writer was opened first.
pub(super) fn reader(path: &Path, config: &StoreConfig) -> Result<Connection, StoreError> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    open(path, flags, config)
}

fn open(path: &Path, flags: OpenFlags, config: &StoreConfig) -> Result<Connection, StoreError> {
    let connection = Connection::open_with_flags(path, flags).map_err(failed(VERB))?;
    connection
        .busy_timeout(config.busy_timeout.min(BUSY_MAX))
        .map_err(failed(VERB))?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS_KEPT);
    Ok(connection)
}

/// SQLite opens a file that this user may not write as one to read, and says nothing.
fn refuse_read_only(connection: &Connection) -> Result<(), StoreError> {
    if !connection.is_readonly("main").map_err(failed(VERB))? {
        return Ok(());
    }
    let message = "the database file is read-only";
    Err(StoreError::new(VERB, StoreErrorKind::Unavailable, message)
        .hint("may this user write the file and its folder?"))
}

/// With a write-ahead log readers do not wait for the writer, and a commit is one sync.
///
/// SQLite does not wait for its turn to change to one, as it does for a transaction. So after each
/// refusal an exclusive transaction is waited for, and it is tried again.
fn set_journal(connection: &Connection) -> Result<(), StoreError> {
    let change = || connection.query_row("pragma journal_mode = wal", [], |row| row.get(0));
    let mut answer: rusqlite::Result<String> = change();
    for _ in 0..JOURNAL_TRIES {
        match &answer {
            Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => {
                let turn = connection.execute_batch("begin exclusive; rollback");
                turn.map_err(failed(VERB))?;
                answer = change();
            }
            _ => break,
        }
    }
    let mode = answer.map_err(failed(VERB))?;
    if mode == "wal" {
        return Ok(());
    }
    let message = "the file cannot have a write-ahead log";
    Err(StoreError::new(VERB, StoreErrorKind::Invalid, message)
        .hint("keep it on a local disk; for a store without a file use memory"))
}

/// Says clearly what SQLite would only call unable to open.
fn check_place(path: &Path) -> Result<(), StoreError> {
    let invalid = |message: String, hint: &str| {
        Err(StoreError::new(VERB, StoreErrorKind::Invalid, message).hint(hint))
    };
    let folder = path
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty());
    match folder {
        Some(folder) if !folder.is_dir() => invalid(
            format!("there is no folder {}", folder.display()),
            "make it first, or name another place",
        ),
        _ if path.is_dir() => invalid(
            format!("{} is a folder", path.display()),
            "name a file in it, such as tenure.db",
        ),
        _ => Ok(()),
    }
}

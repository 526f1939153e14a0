//! Opens connections to the file, for the one writer and for readers.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags};
use tenure_core::store::{StoreError, StoreErrorKind};

use super::error::failed;
use crate::config::{StoreConfig, Synchronous};

/// Prepared statements cached per connection: all of Tenure's own tables and those of a few lease
/// tables.
const STATEMENTS_KEPT: usize = 256;
/// Maximum attempts to switch to a write-ahead log while other connections open the same new file.
const JOURNAL_TRIES: u32 = 100;
/// Pages in the log before a checkpoint (16 MiB). A claim and a settle both write an item's page:
/// with SQLite's default of 1,000 a checkpoint often copies the page between the two and again
/// after them, which makes draining a table a tenth slower.
const LOG_PAGES: u32 = 4000;
/// Maximum busy timeout; SQLite does not accept more than 24 days.
const BUSY_MAX: Duration = Duration::from_hours(24);
const VERB: &str = "open";

/// Opens the writing connection; creates the file if it does not exist.
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
        // Keep the undo data of statements in memory instead of a temporary file.
        .execute_batch("pragma temp_store = memory")
        .and_then(|()| connection.execute_batch(synchronous))
        .and_then(|()| connection.pragma_update(None, "wal_autocheckpoint", LOG_PAGES))
        .map_err(failed(VERB))?;
    Ok(connection)
}

/// Opens a read-only connection. The file exists: the writer was opened first.
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

/// SQLite silently opens a file without write permission as read-only; refuse that.
fn refuse_read_only(connection: &Connection) -> Result<(), StoreError> {
    if !connection.is_readonly("main").map_err(failed(VERB))? {
        return Ok(());
    }
    let message = "the database file is read-only";
    Err(StoreError::new(VERB, StoreErrorKind::Unavailable, message)
        .with_hint("may this user write the file and its folder?"))
}

/// Enables the write-ahead log, with which readers do not wait for the writer and a commit is one
/// sync.
///
/// The busy timeout does not apply to this switch. So after each refusal, wait for an exclusive
/// transaction and try again.
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
        .with_hint("keep it on a local disk; for a store without a file use memory"))
}

/// Explains errors that SQLite would only report as unable to open.
fn check_place(path: &Path) -> Result<(), StoreError> {
    let invalid = |message: String, hint: &str| {
        Err(StoreError::new(VERB, StoreErrorKind::Invalid, message).with_hint(hint))
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

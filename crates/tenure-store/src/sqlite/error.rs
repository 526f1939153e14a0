//! Maps SQLite errors to store errors.

use rusqlite::ffi::{self, ErrorCode};
use tenure_core::LeaseTable;
use tenure_core::store::{StoreError, StoreErrorKind};

use crate::rows::changed_hint;

use StoreErrorKind::{Conflict, Corrupt, Invalid, Unavailable};

/// Maps a driver error to a store error; for `map_err`.
pub(crate) fn failed(verb: &'static str) -> impl Fn(rusqlite::Error) -> StoreError {
    move |error| store_error(verb, error)
}

/// Converts a driver error to a store error, whose kind follows from the possible remedy.
pub(crate) fn store_error(verb: &'static str, error: rusqlite::Error) -> StoreError {
    let (kind, message, hint) = meaning(&error);
    let told = StoreError::new(verb, kind, message);
    // The driver error quotes the whole statement; the message alone says what is wrong with it.
    let is_quoted = matches!(error, rusqlite::Error::SqlInputError { .. });
    let told = if is_quoted {
        told
    } else {
        told.with_cause(error)
    };
    match hint {
        Some(hint) => told.with_hint(hint),
        None => told,
    }
}

/// Like [`store_error`], for an operation on the rows of `table`. No migration adds the missing
/// column of an adopted table, so the hint differs.
pub(crate) fn row_error(
    verb: &'static str,
    table: &LeaseTable,
    error: rusqlite::Error,
) -> StoreError {
    let message = if let rusqlite::Error::InvalidColumnName(column) = &error {
        format!("no such column: {column}")
    } else {
        sqlite_code(&error).map_or_else(String::new, |(_, message)| message.to_owned())
    };
    let is_gone = message.contains("no such table") && !message.contains("tenure_");
    let is_changed = is_gone || message.contains("no such column");
    match changed_hint(table) {
        Some(hint) if is_changed => StoreError::new(verb, Invalid, message).with_hint(hint),
        _ => store_error(verb, error),
    }
}

type ErrorParts = (StoreErrorKind, String, Option<&'static str>);

fn meaning(error: &rusqlite::Error) -> ErrorParts {
    match sqlite_code(error) {
        Some((code, message)) => meaning_of_code(code, message),
        // Any other error is a value of a type that Tenure's schema does not allow.
        None => (Corrupt, "a stored value cannot be read".to_owned(), None),
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "any other code means that a statement of Tenure cannot run on this file"
)]
fn meaning_of_code(code: ffi::Error, message: &str) -> ErrorParts {
    let (kind, phrase, hint) = match code.code {
        ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked => (
            Unavailable,
            "another process keeps the database file locked",
            Some("which program leaves a write transaction open on this file?"),
        ),
        ErrorCode::DiskFull => (
            Unavailable,
            "the disk is full",
            Some("free some space; nothing that was accepted is lost"),
        ),
        ErrorCode::ReadOnly => (
            Unavailable,
            "the database file is read-only",
            Some("may this user write the file and its folder?"),
        ),
        ErrorCode::CannotOpen | ErrorCode::PermissionDenied => (
            Unavailable,
            "the database file cannot be opened",
            Some("does its folder exist, and may this user write there?"),
        ),
        ErrorCode::NotADatabase => (
            Invalid,
            "the file is not an SQLite database",
            Some("name another file, or move this one away"),
        ),
        ErrorCode::DatabaseCorrupt => (
            Corrupt,
            "the database file is damaged",
            Some("run `pragma integrity_check`; restore a backup if it complains"),
        ),
        ErrorCode::ConstraintViolation => return meaning_of_constraint(code, message),
        ErrorCode::TooBig => (Invalid, "a value is too long for the database", None),
        ErrorCode::Unknown if message.contains("no such table") => (
            Invalid,
            "the tables of Tenure are missing or older than this program",
            Some("open the file once as a store, or run `tenure migrate`"),
        ),
        ErrorCode::SystemIoFailure
        | ErrorCode::OutOfMemory
        | ErrorCode::OperationInterrupted
        | ErrorCode::OperationAborted
        | ErrorCode::FileLockingProtocolFailed
        | ErrorCode::NoLargeFileSupport
        | ErrorCode::SchemaChanged => return (Unavailable, message.to_owned(), None),
        _ => return (Corrupt, message.to_owned(), None),
    };
    (kind, phrase.to_owned(), hint)
}

fn meaning_of_constraint(code: ffi::Error, message: &str) -> ErrorParts {
    let is_double = matches!(
        code.extended_code,
        ffi::SQLITE_CONSTRAINT_UNIQUE
            | ffi::SQLITE_CONSTRAINT_PRIMARYKEY
            | ffi::SQLITE_CONSTRAINT_ROWID
    );
    let kind = if is_double { Conflict } else { Invalid };
    (kind, message.to_owned(), None)
}

/// Returns the code and message of an error from SQLite itself. The message names columns, never
/// values.
fn sqlite_code(error: &rusqlite::Error) -> Option<(ffi::Error, &str)> {
    if let rusqlite::Error::SqliteFailure(code, message) = error {
        return Some((*code, message.as_deref().unwrap_or("the database failed")));
    }
    if let rusqlite::Error::SqlInputError { error, msg, .. } = error {
        return Some((*error, msg));
    }
    None
}

/// The failure of a whole batch; every write in it gets an error.
pub(crate) struct BatchFailure {
    kind: StoreErrorKind,
    message: String,
    hint: Option<&'static str>,
}

impl BatchFailure {
    /// The transaction could not begin.
    pub(crate) fn of(error: &rusqlite::Error) -> Self {
        let (kind, message, hint) = meaning(error);
        Self {
            kind,
            message,
            hint,
        }
    }

    /// The commit failed. A retry is always possible: nothing of the batch took effect.
    pub(crate) fn of_commit(error: &rusqlite::Error) -> Self {
        Self {
            kind: Unavailable,
            ..Self::of(error)
        }
    }

    /// SQLite rolled back the transaction before the commit.
    pub(crate) fn given_up() -> Self {
        Self {
            kind: Unavailable,
            message: "the transaction was rolled back".to_owned(),
            hint: None,
        }
    }

    /// Builds the error for one write of the batch.
    pub(crate) fn told(&self, verb: &'static str) -> StoreError {
        let told = StoreError::new(verb, self.kind, self.message.clone());
        match self.hint {
            Some(hint) => told.with_hint(hint),
            None => told,
        }
    }
}

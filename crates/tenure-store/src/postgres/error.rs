//! Maps PostgreSQL errors to store errors. No other module examines PostgreSQL errors.

use std::io::ErrorKind;

use sqlx::error::DatabaseError;
use tenure_core::LeaseTable;
use tenure_core::store::{StoreError, StoreErrorKind};

use crate::rows::changed_hint;

const READ_ONLY: &str = "the database is read-only: is this a replica, is a failover going on, or \
     is default_transaction_read_only set? `tenure doctor` says which";

/// Converts an error of the driver to a store error of the operation `verb`. Only the message of a
/// server's error is kept: its details quote the row, which holds tokens and payloads.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "all other errors are unexpected"
)]
pub(crate) fn store_error(verb: &'static str, error: sqlx::Error) -> StoreError {
    match &error {
        sqlx::Error::Database(database) => {
            let (kind, hint) = judge(database.as_ref());
            let is_absent = is_missing(&error) || lacks_column(&error);
            let is_ours = verb != "adopt" || database.message().contains("tenure_");
            // `tenure migrate` does not manage the user's own tables.
            let hint = if is_absent && !is_ours {
                Some("was the table changed meanwhile? run the same command again")
            } else {
                hint
            };
            with_hint(StoreError::new(verb, kind, database.message()), hint)
        }
        sqlx::Error::Configuration(_) | sqlx::Error::InvalidArgument(_) => {
            // The error text may contain the address with its password: do not repeat it.
            StoreError::new(
                verb,
                StoreErrorKind::Invalid,
                "the address of the database is not valid",
            )
            .with_hint("expected postgres://user:password@host:port/database")
        }
        sqlx::Error::Io(cause) if cause.kind() == ErrorKind::ReadOnlyFilesystem => StoreError::new(
            verb,
            StoreErrorKind::Unavailable,
            "the database accepts no writes",
        )
        .with_hint(READ_ONLY),
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolClosed => StoreError::new(
            verb,
            StoreErrorKind::Unavailable,
            "the database cannot be reached",
        )
        .with_hint("is PostgreSQL running, and are host and port right?")
        .with_cause(error),
        // A server that starts or shuts down may refuse before it answers the SSL request.
        sqlx::Error::Protocol(text) if text.contains("SSLRequest") => StoreError::new(
            verb,
            StoreErrorKind::Unavailable,
            "the database refuses connections",
        )
        .with_hint(
            "does another program listen on this host and port, or is PostgreSQL starting or \
             shutting down?",
        )
        .with_cause(error),
        sqlx::Error::PoolTimedOut => StoreError::new(
            verb,
            StoreErrorKind::Unavailable,
            "no connection became free in time",
        )
        .with_hint("the database is down or slow, or more connections are needed")
        .with_cause(error),
        _ => StoreError::new(
            verb,
            StoreErrorKind::Corrupt,
            "the database's answer was not understood",
        )
        .with_cause(error),
    }
}

/// Like [`store_error`], for the rows of `table`: `tenure migrate` does not add what an adopted
/// table lacks.
pub(crate) fn row_error(verb: &'static str, table: &LeaseTable, error: sqlx::Error) -> StoreError {
    let is_gone = is_missing(&error) && !error.to_string().contains("tenure_");
    let is_changed = is_gone || lacks_column(&error);
    let told = store_error(verb, error);
    match changed_hint(table) {
        Some(hint) if is_changed => told.with_hint(hint),
        _ => told,
    }
}

fn with_hint(error: StoreError, hint: Option<&str>) -> StoreError {
    match hint {
        Some(hint) => error.with_hint(hint),
        None => error,
    }
}

/// Classifies by SQLSTATE: first the codes that have a hint, then the classes.
fn judge(error: &dyn DatabaseError) -> (StoreErrorKind, Option<&'static str>) {
    use StoreErrorKind::{Conflict, Corrupt, Invalid, Unavailable};
    let code = error.code().unwrap_or_default();
    match code.as_ref() {
        "42P01" | "3F000" | "42883" | "42703" => (
            Invalid,
            Some("Tenure's tables are missing or of another version: run `tenure migrate`"),
        ),
        "3D000" => (Invalid, Some("create the database first: createdb NAME")),
        "28P01" | "28000" => (
            Invalid,
            Some("check the user and the password in the address"),
        ),
        "42501" => (
            Invalid,
            Some(
                "grant the role that Tenure connects as the rights it needs: docs/OPERATIONS.md \
                 lists them, for producers, workers and operators, in its section on PostgreSQL",
            ),
        ),
        "25006" => (Unavailable, Some(READ_ONLY)),
        "25P03" => (
            Unavailable,
            Some("this process was paused in the middle of a transaction, or is overloaded"),
        ),
        "53100" => (Unavailable, Some("the disk of the database is full")),
        "53300" => (
            Unavailable,
            Some("the database has no connection left: lower `connections`"),
        ),
        "08P01" if error.message().contains("statement pooling") => (
            Invalid,
            Some("Tenure needs transactions: set pool_mode = transaction in the pooler"),
        ),
        // Poolers report most problems of their own with this code; they pass.
        "08P01" if is_unsupported(error) => (
            Invalid,
            Some("a pooler refuses `options` of the address: set them on the role instead"),
        ),
        "26000" | "42P05" => (
            Unavailable,
            Some(
                "a pooler mixes the statements of its clients: set store.statements = \"unnamed\"",
            ),
        ),
        code => match code.get(..2).unwrap_or_default() {
            "40" => (Conflict, None),
            "22" | "23" | "0A" => (Invalid, None),
            "08" | "53" | "55" | "57" | "58" => (Unavailable, None),
            _ => (Corrupt, None),
        },
    }
}

/// True if a pooler does not pass a start-up parameter on.
fn is_unsupported(error: &dyn DatabaseError) -> bool {
    error.message().contains("unsupported startup parameter")
}

/// True if a pooler refuses the options of a connection's start.
pub(crate) fn refuses_options(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(database) = error else {
        return false;
    };
    // Amazon's proxy reports them as a feature that it does not have.
    is_unsupported(database.as_ref()) || database.code().as_deref() == Some("0A000")
}

/// An error after which its connection is of no more use.
pub(crate) trait EndsConnection {
    fn ends_connection(&self) -> bool;
}

impl EndsConnection for sqlx::Error {
    /// True if the server only reads, shuts down, or knows a statement by another name: another
    /// connection may lead to another server.
    fn ends_connection(&self) -> bool {
        let Self::Database(database) = self else {
            return matches!(self, Self::Io(_) | Self::Tls(_) | Self::Protocol(_));
        };
        let code = database.code();
        let code = code.as_deref().unwrap_or_default();
        let is_away = code.starts_with("08") || code.starts_with("57P");
        is_away || matches!(code, "25006" | "25P03" | "26000" | "42P05")
    }
}

impl EndsConnection for StoreError {
    fn ends_connection(&self) -> bool {
        self.is_transient()
    }
}

/// True if PostgreSQL rejected the row's own contents: a value out of range or a violated
/// constraint.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only errors of the server have a code"
)]
pub(crate) fn is_refused(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(database) => database.code(),
        _ => None,
    };
    let code = code.as_deref().unwrap_or_default();
    code.starts_with("22") || code.starts_with("23")
}

/// True if the error is a violation of this constraint.
pub(crate) fn breaks(error: &sqlx::Error, constraint: &str) -> bool {
    matches!(error, sqlx::Error::Database(database) if database.constraint() == Some(constraint))
}

/// True if a column does not exist.
pub(crate) fn lacks_column(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(database) if database.code().as_deref() == Some("42703"))
}

/// True for a lock timeout or a deadlock: the caller should retry.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only errors of the server have a code"
)]
pub(crate) fn is_in_use(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(database) => database.code(),
        _ => None,
    };
    matches!(code.as_deref(), Some("55P03" | "40P01"))
}

/// True if a statement took longer than its timeout, or was cancelled.
pub(crate) fn is_cancelled(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(database) if database.code().as_deref() == Some("57014"))
}

/// True if the table or schema does not exist.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only errors of the server have a code"
)]
pub(crate) fn is_missing(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(database) => database.code(),
        _ => None,
    };
    matches!(code.as_deref(), Some("42P01" | "3F000"))
}

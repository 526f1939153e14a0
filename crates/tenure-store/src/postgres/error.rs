//! What PostgreSQL's errors mean to us. The only place that matches them.

use sqlx::error::DatabaseError;
use tenure_core::LeaseTable;
use tenure_core::store::{StoreError, StoreErrorKind};

use crate::rows::changed_hint;

/// Turns a driver's error under `verb` into ours. Of what the server said only the message is kept:
/// its details quote the row, and a row holds tokens and payloads.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "whatever else comes is not expected"
)]
pub(crate) fn store_error(verb: &'static str, error: sqlx::Error) -> StoreError {
    match &error {
        sqlx::Error::Database(database) => {
            let (kind, hint) = judge(database.as_ref());
            let is_absent = is_missing(&error) || lacks_column(&error);
            let is_ours = verb != "adopt" || database.message().contains("tenure_");
            // Of a table of the user's own a migration knows nothing.
            let hint = if is_absent && !is_ours {
                Some("was the table changed meanwhile? run the same command again")
            } else {
                hint
            };
            with_hint(StoreError::new(verb, kind, database.message()), hint)
        }
        sqlx::Error::Configuration(_) | sqlx::Error::InvalidArgument(_) => {
            // The text may hold the address with its password: it is not repeated.
            StoreError::new(
                verb,
                StoreErrorKind::Invalid,
                "the address of the database is not valid",
            )
            .hint("expected postgres://user:password@host:port/database")
        }
        sqlx::Error::Io(_) | sqlx::Error::Tls(_) | sqlx::Error::PoolClosed => StoreError::new(
            verb,
            StoreErrorKind::Unavailable,
            "the database cannot be reached",
        )
        .hint("is PostgreSQL running, and are host and port right?")
        .cause(error),
        // A server that goes down or comes up may say no before it says whether it encrypts.
        sqlx::Error::Protocol(text) if text.contains("SSLRequest") => StoreError::new(
            verb,
            StoreErrorKind::Unavailable,
            "the database refuses connections",
        )
        .hint("is PostgreSQL starting or shutting down?")
        .cause(error),
        sqlx::Error::PoolTimedOut => StoreError::new(
            verb,
            StoreErrorKind::Unavailable,
            "no connection became free in time",
        )
        .hint("the database is away or slow, or more connections are needed")
        .cause(error),
        _ => StoreError::new(
            verb,
            StoreErrorKind::Corrupt,
            "the database's answer makes no sense",
        )
        .cause(error),
    }
}

/// The same for a verb on the rows of `table`: what an adopted one lacks, no migration adds.
pub(crate) fn row_error(verb: &'static str, table: &LeaseTable, error: sqlx::Error) -> StoreError {
    let is_gone = is_missing(&error) && !error.to_string().contains("tenure_");
    let is_changed = is_gone || lacks_column(&error);
    let told = store_error(verb, error);
    match changed_hint(table) {
        Some(hint) if is_changed => told.hint(hint),
        _ => told,
    }
}

fn with_hint(error: StoreError, hint: Option<&str>) -> StoreError {
    match hint {
        Some(hint) => error.hint(hint),
        None => error,
    }
}

/// Sorts by SQLSTATE: first what needs a word of advice, then the classes.
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
            Some("grant the role that Tenure connects as the rights it needs"),
        ),
        "25006" => (
            Unavailable,
            Some(
                "the database is read-only: is this a replica, is a failover going on, or is \
                 default_transaction_read_only set? `tenure doctor` says which",
            ),
        ),
        "53100" => (Unavailable, Some("the disk of the database is full")),
        "53300" => (
            Unavailable,
            Some("the database has no connection left: lower `connections`"),
        ),
        "08P01" => (
            Invalid,
            Some(
                "does a pooler refuse start-up options? take the planner's settings from the role",
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

/// Whether the error says that a row's own contents are in the way: a value out of range, or a
/// constraint.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only the server's own words are asked"
)]
pub(crate) fn is_refused(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(database) => database.code(),
        _ => None,
    };
    let code = code.as_deref().unwrap_or_default();
    code.starts_with("22") || code.starts_with("23")
}

/// Whether the error says that this constraint was broken.
pub(crate) fn breaks(error: &sqlx::Error, constraint: &str) -> bool {
    matches!(error, sqlx::Error::Database(database) if database.constraint() == Some(constraint))
}

/// Whether the error says that a column is not there.
pub(crate) fn lacks_column(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(database) if database.code().as_deref() == Some("42703"))
}

/// Whether the error says that others have what is needed: it is to be asked for again.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only the server's own words are asked"
)]
pub(crate) fn is_in_use(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(database) => database.code(),
        _ => None,
    };
    matches!(code.as_deref(), Some("55P03" | "40P01"))
}

/// Whether the error says that there is no such table or schema.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "only the server's own words are asked"
)]
pub(crate) fn is_missing(error: &sqlx::Error) -> bool {
    let code = match error {
        sqlx::Error::Database(database) => database.code(),
        _ => None,
    };
    matches!(code.as_deref(), Some("42P01" | "3F000"))
}

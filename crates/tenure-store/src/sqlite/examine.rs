//! Examine: the state of the file, and findings about it.

use rusqlite::{Connection, ErrorCode};
use tenure_core::store::{Answer, Examine, Finding, StoreError};

use super::error::failed;
use super::{SqliteStore, migrate, row, statements as sql};

/// Maximum file size for an integrity check: checking every page of a larger file takes long.
const CHECKED_BYTES_MAX: u64 = 100_000_000;
const VERB: &str = "examine";

impl Examine for SqliteStore {
    fn examine(&self) -> Answer<'_, Vec<Finding>> {
        Box::pin(async move {
            let look = |connection: &Connection| file(connection).map_err(failed(VERB));
            let mut findings = self.writer.read(VERB, look).await?;
            // A write without changes: it waits for its turn like any other and runs on the writing
            // connection.
            let turn = self.write(VERB, None, |connection, _| {
                let level = connection.query_row(sql::EXAMINE_SYNCHRONOUS, [], |row| row.get(0));
                level.map_err(failed(VERB))
            });
            findings.extend(writing(turn.await));
            Ok(findings)
        })
    }
}

/// Findings from a read-only connection.
fn file(connection: &Connection) -> rusqlite::Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut look = connection.prepare_cached(sql::EXAMINE_FILE)?;
    let bytes = look.query_row([], |found| {
        let version: String = found.get(0)?;
        let mode: String = found.get(2)?;
        findings.push(Finding::good("version", format!("SQLite {version}")));
        findings.push(migrate::compared(found.get(1)?, found.get(6)?).finding());
        findings.push(journal(&mode));
        let (page, pages, free) = (
            row::count(found, 3)?,
            row::count(found, 4)?,
            row::count(found, 5)?,
        );
        let bytes = page.saturating_mul(pages);
        findings.push(room(bytes, pages, free));
        Ok(bytes)
    })?;
    let first_fault = if bytes <= CHECKED_BYTES_MAX {
        Some(first_fault(connection)?)
    } else {
        None
    };
    findings.push(integrity(first_fault.as_deref()));
    Ok(findings)
}

/// Returns the first fault of the file, or `ok`. The check runs on a read-only connection and does
/// not block the writer. It covers the pages, but not check constraints: SQLite does not load them
/// on such a connection.
fn first_fault(connection: &Connection) -> rusqlite::Result<String> {
    let answer = connection.query_row(sql::EXAMINE_INTEGRITY, [], |row| row.get(0));
    // Damage may abort the check itself.
    match answer {
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
            Ok(error.to_string())
        }
        answer => answer,
    }
}

fn journal(mode: &str) -> Finding {
    if mode == "wal" {
        return Finding::good("journal", "write-ahead log");
    }
    let found = format!("{mode}: readers and the writer wait for each other");
    let hint = "another program changed it: open the file with Tenure again";
    Finding::warning("journal", found, hint)
}

fn room(bytes: u64, pages: u64, free: u64) -> Finding {
    let found = format!("{}, {free} of {pages} pages free", size(bytes));
    if bytes <= CHECKED_BYTES_MAX || free <= pages / 2 {
        return Finding::good("file", found);
    }
    let hint = "free pages are reused; to shrink the file, run `vacuum` while nothing else has the \
                file open";
    Finding::warning("file", found, hint)
}

/// `None`: the file was not checked.
fn integrity(first_fault: Option<&str>) -> Finding {
    match first_fault {
        None => Finding::good(
            "integrity",
            format!(
                "not looked at: the file is over {}",
                size(CHECKED_BYTES_MAX)
            ),
        ),
        Some("ok") => Finding::good("integrity", "every page is sound"),
        // SQLite's message names pages, tables and indexes, never a value.
        Some(fault) => Finding::bad(
            "integrity",
            fault,
            "stop all programs that use the file, then restore it from a backup",
        ),
    }
}

/// Findings about the write: `turn` is the level of `synchronous`, or the error.
fn writing(turn: Result<i64, StoreError>) -> Vec<Finding> {
    match turn {
        Ok(level) => vec![synchronous(level), Finding::good("writable", "yes")],
        Err(error) => {
            let found = format!("no: {error}");
            let hint = error.hint().unwrap_or("see what the error says");
            vec![if error.is_transient() {
                Finding::warning("writable", found, hint)
            } else {
                Finding::bad("writable", found, hint)
            }]
        }
    }
}

fn synchronous(level: i64) -> Finding {
    match level {
        2 => Finding::good("synchronous", "full"),
        3 => Finding::good("synchronous", "extra"),
        _ => Finding::warning(
            "synchronous",
            if level == 1 { "normal" } else { "off" }.to_owned()
                + ": a power failure loses what was accepted last",
            "set it to full, unless this is intended",
        ),
    }
}

/// Formats a size in bytes, kB or MB.
fn size(bytes: u64) -> String {
    match bytes {
        0..=9_999 => format!("{bytes} bytes"),
        10_000..=9_999_999 => format!("{} kB", bytes / 1_000),
        _ => format!("{} MB", bytes / 1_000_000),
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::store::{StoreErrorKind, Verdict};

    use super::*;

    #[test]
    fn each_fault_is_found() {
        assert_eq!(journal("delete").verdict, Verdict::Warning);
        assert_eq!(synchronous(0).verdict, Verdict::Warning);
        assert_eq!(synchronous(1).verdict, Verdict::Warning);
        assert_eq!(synchronous(2).verdict, Verdict::Good);
        assert_eq!(
            integrity(Some("row 7 missing from index a")).verdict,
            Verdict::Bad
        );
        let large = integrity(None);
        assert_eq!(large.verdict, Verdict::Good);
        assert_eq!(large.text, "not looked at: the file is over 100 MB");
        assert_eq!(room(400_000_000, 100_000, 50_000).verdict, Verdict::Good);
        let roomy = room(400_000_000, 100_000, 50_001);
        assert_eq!(roomy.verdict, Verdict::Warning);
        assert_eq!(roomy.text, "400 MB, 50001 of 100000 pages free");
        assert_eq!(room(400_000, 100, 90).verdict, Verdict::Good);
    }

    #[test]
    fn a_failed_write_is_a_finding_and_not_an_error() {
        let error = |kind| StoreError::new(VERB, kind, "the file is busy").with_hint("wait");
        let busy = writing(Err(error(StoreErrorKind::Unavailable)));
        assert_eq!(busy.len(), 1);
        assert_eq!(busy[0].verdict, Verdict::Warning);
        assert_eq!(busy[0].hint.as_deref(), Some("wait"));
        let refused = writing(Err(error(StoreErrorKind::Invalid)));
        assert_eq!(refused[0].verdict, Verdict::Bad);
    }
}

//! Converts rows of the two tables to core types.

use rusqlite::{Connection, Row, ToSql, named_params};
use tenure_core::job::{ChunkRecord, Job, KindStatus, MatrixName, Progress};
use tenure_core::store::{HeldChunks, StoreError};
use tenure_core::{Counters, Timestamp};

use super::super::error::failed;
use super::super::{row, statements as sql};
use crate::jobs::{StoredChunk, StoredJob, StoredKind, StoredLease, matrix_of, unsigned};

/// A statement and its parameters.
type Query<'a> = (&'a str, &'a [(&'a str, &'a dyn ToSql)]);

/// Reads the jobs of `job.sql` and `page.sql`.
pub(super) fn jobs(
    connection: &Connection,
    verb: &'static str,
    (text, params): Query<'_>,
    now: Timestamp,
) -> Result<Vec<Job>, StoreError> {
    let read = || -> rusqlite::Result<Vec<StoredJob>> {
        let mut statement = connection.prepare_cached(text)?;
        statement.query_map(params, stored_job)?.collect()
    };
    let stored = read().map_err(failed(verb))?;
    stored.into_iter().map(|job| job.read(verb, now)).collect()
}

fn stored_job(found: &Row<'_>) -> rusqlite::Result<StoredJob> {
    Ok(StoredJob {
        id: found.get(0)?,
        kind: found.get(1)?,
        matrix: found.get(2)?,
        payload: found.get(3)?,
        priority: found.get(4)?,
        created_at: row::moment(found, 5)?,
        available_at: row::past(found, 6)?,
        lease: StoredLease {
            until: row::past(found, 7)?,
            holder: found.get(8)?,
            claimed_at: row::past(found, 9)?,
            fence: found.get(10)?,
            done_at: row::past(found, 16)?,
            dead_at: row::past(found, 17)?,
        },
        counters: Counters {
            attempts: found.get(11)?,
            failures: found.get(12)?,
            crashes: found.get(13)?,
            generation: found.get(14)?,
        },
        error: found.get(15)?,
        result: found.get(18)?,
        cursor: found.get(19)?,
        chunks_total: found.get(20)?,
        retry_of: found.get(21)?,
        is_cancelled: found.get(22)?,
    })
}

/// Reads the chunks of `chunks.sql` and `notable_chunks.sql`.
pub(super) fn chunks(
    connection: &Connection,
    matrix: &MatrixName,
    (text, params): Query<'_>,
    now: Timestamp,
) -> Result<Vec<ChunkRecord>, StoreError> {
    let read = || -> rusqlite::Result<Vec<StoredChunk>> {
        let mut statement = connection.prepare_cached(text)?;
        statement.query_map(params, stored_chunk)?.collect()
    };
    let stored = read().map_err(failed("chunks"))?;
    let chunks = stored.into_iter();
    chunks
        .map(|chunk| chunk.read("chunks", matrix, now))
        .collect()
}

/// Reads the chunks of `held_chunks.sql`.
pub(super) fn held_chunks(
    connection: &Connection,
    which: &HeldChunks,
    now: Timestamp,
) -> Result<Vec<ChunkRecord>, StoreError> {
    let verb = "held chunks";
    let read = || -> rusqlite::Result<Vec<(StoredChunk, String)>> {
        let ask = named_params! {
            ":matrix": which.matrix.as_ref().map(MatrixName::as_str),
            ":before": which.lapsed_for.map(|span| now.before(span).as_micros()),
            ":limit": which.limit,
        };
        let mut statement = connection.prepare_cached(sql::HELD_CHUNKS)?;
        let both = |found: &Row<'_>| Ok((stored_chunk(found)?, found.get(11)?));
        statement.query_map(ask, both)?.collect()
    };
    let stored = read().map_err(failed(verb))?;
    let chunks = stored.into_iter();
    chunks
        .map(|(chunk, matrix)| chunk.read(verb, &matrix_of(verb, &matrix)?, now))
        .collect()
}

/// Reads the kinds of `kinds.sql`.
pub(super) fn kinds(
    connection: &Connection,
    since: Timestamp,
    now: Timestamp,
) -> Result<Vec<KindStatus>, StoreError> {
    let read = || -> rusqlite::Result<Vec<StoredKind>> {
        let ask = named_params! {":now": now.as_micros(), ":since": since.as_micros()};
        let mut statement = connection.prepare_cached(sql::KINDS)?;
        statement.query_map(ask, stored_kind)?.collect()
    };
    let stored = read().map_err(failed("kinds"))?;
    stored.into_iter().map(|kind| kind.read(now)).collect()
}

fn stored_kind(found: &Row<'_>) -> rusqlite::Result<StoredKind> {
    Ok(StoredKind {
        kind: found.get(0)?,
        due: row::count(found, 1)?,
        oldest_due: row::past(found, 2)?,
        delayed: row::count(found, 3)?,
        running: row::count(found, 4)?,
        lapsed: row::count(found, 5)?,
        lapsed_at: row::past(found, 6)?,
        lapsed_job: found.get(7)?,
        crashing: row::count(found, 8)?,
        crashing_job: found.get(9)?,
        failed: row::count(found, 10)?,
        failed_job: found.get(11)?,
    })
}

fn stored_chunk(found: &Row<'_>) -> rusqlite::Result<StoredChunk> {
    Ok(StoredChunk {
        chunk: found.get(0)?,
        lease: StoredLease {
            until: row::past(found, 1)?,
            holder: found.get(2)?,
            claimed_at: row::past(found, 3)?,
            fence: found.get(4)?,
            done_at: row::past(found, 5)?,
            dead_at: row::past(found, 6)?,
        },
        row_count: found.get(7)?,
        synced_at: row::past(found, 8)?,
        cursor: found.get(9)?,
        error: found.get(10)?,
    })
}

/// Reads the answer of `progress.sql`.
pub(super) fn progress(
    connection: &Connection,
    matrix: &MatrixName,
    now: Timestamp,
) -> rusqlite::Result<Progress> {
    let ask = named_params! {":now": now.as_micros(), ":matrix": matrix.as_str()};
    let mut statement = connection.prepare_cached(sql::PROGRESS)?;
    statement.query_row(ask, |found| {
        let total: Option<i64> = found.get(0)?;
        Ok(Progress {
            total: total.map(unsigned),
            done: row::count(found, 1)?,
            running: row::count(found, 2)?,
            failed: row::count(found, 3)?,
            rows: row::count(found, 4)?,
            began_at: row::past(found, 5)?,
            now,
        })
    })
}

//! Converts rows of `tenure_jobs` and `tenure_checkpoints` to core types.

use sqlx::postgres::PgRow;
use tenure_core::job::{ChunkRecord, Job, JobId, KindStatus, MatrixName, Noted, Progress, Retried};
use tenure_core::store::StoreError;
use tenure_core::{Counters, Guarded, Refusal};

use super::super::error::{breaks, store_error};
use super::super::row::{get, get_count, get_moment, get_timestamp, get_total};
use crate::jobs::{
    JobRow, StoredChunk, StoredJob, StoredKind, StoredLease, matrix_of, note_refusal, repeated,
    unsigned,
};

type RowsResult = Result<Vec<PgRow>, sqlx::Error>;
type OptionalRow = Result<Option<PgRow>, sqlx::Error>;

/// Reads the jobs of `job.sql` and `page.sql`.
pub(super) fn jobs(verb: &'static str, rows: RowsResult) -> Result<Vec<Job>, StoreError> {
    let failed = |e| store_error(verb, e);
    let mut jobs = Vec::new();
    for row in rows.map_err(failed)? {
        let stored = stored_job(&row).map_err(failed)?;
        let now = get_timestamp(&row, 23).map_err(failed)?;
        jobs.push(stored.read(verb, now)?);
    }
    Ok(jobs)
}

fn stored_job(row: &PgRow) -> Result<StoredJob, sqlx::Error> {
    Ok(StoredJob {
        id: get(row, 0)?,
        kind: get(row, 1)?,
        matrix: get(row, 2)?,
        payload: get(row, 3)?,
        priority: get(row, 4)?,
        created_at: get_timestamp(row, 5)?,
        available_at: get_moment(row, 6)?,
        lease: StoredLease {
            until: get_moment(row, 7)?,
            holder: get(row, 8)?,
            claimed_at: get_moment(row, 9)?,
            fence: get(row, 10)?,
            done_at: get_moment(row, 16)?,
            dead_at: get_moment(row, 17)?,
        },
        counters: Counters {
            attempts: get_count(row, 11)?,
            failures: get_count(row, 12)?,
            crashes: get_count(row, 13)?,
            generation: get_count(row, 14)?,
        },
        error: get(row, 15)?,
        result: get(row, 18)?,
        cursor: get(row, 19)?,
        chunks_total: get(row, 20)?,
        retry_of: get(row, 21)?,
        is_cancelled: get(row, 22)?,
    })
}

/// Reads the job ids of `enqueue.sql`, in order.
pub(super) fn enqueued(rows: RowsResult) -> Result<Vec<JobId>, StoreError> {
    let ids = rows.and_then(|rows| rows.iter().map(|row| get(row, 0)).collect());
    let mut ids: Vec<i64> = ids.map_err(|error| {
        if breaks(&error, "tenure_jobs_retry_of") {
            return repeated();
        }
        store_error("enqueue jobs", error)
    })?;
    ids.sort_unstable();
    Ok(ids.into_iter().map(JobId::new).collect())
}

/// Reads the answer of `retry.sql`; `None`: retry the statement.
pub(super) fn retried(row: OptionalRow) -> Result<Option<Retried>, StoreError> {
    let read = |row: PgRow| -> Result<Option<Retried>, sqlx::Error> {
        let written = get::<Option<i64>>(&row, 0)?.map(JobId::new);
        let before = get::<Option<i64>>(&row, 1)?.map(JobId::new);
        Ok(match (get(&row, 2)?, get(&row, 3)?) {
            (false, _) => Some(Retried::Refused(Refusal::NotFound)),
            (true, false) => Some(Retried::Refused(Refusal::NotSettled)),
            (true, true) => written
                .map(Retried::Written)
                .or(before.map(Retried::Before)),
        })
    };
    let answer = row.and_then(|row| read(row.ok_or(sqlx::Error::RowNotFound)?));
    answer.map_err(|e| store_error("retry", e))
}

/// Reads the answer of `note.sql`.
pub(super) fn noted(row: OptionalRow) -> Result<Noted, StoreError> {
    let read = |row: PgRow| -> Result<Noted, sqlx::Error> {
        if get(&row, 0)? {
            return Ok(Guarded::Accepted(()));
        }
        let seen = JobRow {
            until: get_moment(&row, 2)?,
            done_at: get_moment(&row, 3)?,
            dead_at: get_moment(&row, 4)?,
            is_mine: get(&row, 5)?,
        };
        let is_there: bool = get(&row, 1)?;
        let now = get_timestamp(&row, 6)?;
        let why = note_refusal(is_there.then_some(seen), now);
        Ok(Guarded::Refused(why))
    };
    let noted = row.and_then(|row| read(row.ok_or(sqlx::Error::RowNotFound)?));
    noted.map_err(|e| store_error("note job", e))
}

/// Reads the chunks of `chunks.sql` and `notable_chunks.sql`.
pub(super) fn chunks(
    matrix: &MatrixName,
    rows: RowsResult,
) -> Result<Vec<ChunkRecord>, StoreError> {
    let failed = |e| store_error("chunks", e);
    let mut chunks = Vec::new();
    for row in rows.map_err(failed)? {
        let stored = stored_chunk(&row).map_err(failed)?;
        let now = get_timestamp(&row, 11).map_err(failed)?;
        chunks.push(stored.read("chunks", matrix, now)?);
    }
    Ok(chunks)
}

/// Reads the chunks of `held_chunks.sql`.
pub(super) fn held_chunks(rows: RowsResult) -> Result<Vec<ChunkRecord>, StoreError> {
    let verb = "held chunks";
    let failed = |e| store_error(verb, e);
    let mut chunks = Vec::new();
    for row in rows.map_err(failed)? {
        let stored = stored_chunk(&row).map_err(failed)?;
        let now = get_timestamp(&row, 11).map_err(failed)?;
        let matrix: String = get(&row, 12).map_err(failed)?;
        chunks.push(stored.read(verb, &matrix_of(verb, &matrix)?, now)?);
    }
    Ok(chunks)
}

/// Reads the kinds of `kinds.sql`.
pub(super) fn kinds(rows: RowsResult) -> Result<Vec<KindStatus>, StoreError> {
    let failed = |e| store_error("kinds", e);
    let mut kinds = Vec::new();
    for row in rows.map_err(failed)? {
        let stored = stored_kind(&row).map_err(failed)?;
        kinds.push(stored.read(get_timestamp(&row, 12).map_err(failed)?)?);
    }
    Ok(kinds)
}

fn stored_kind(row: &PgRow) -> Result<StoredKind, sqlx::Error> {
    Ok(StoredKind {
        kind: get(row, 0)?,
        due: get_total(row, 1)?,
        oldest_due: get_moment(row, 2)?,
        delayed: get_total(row, 3)?,
        running: get_total(row, 4)?,
        lapsed: get_total(row, 5)?,
        lapsed_at: get_moment(row, 6)?,
        lapsed_job: get(row, 7)?,
        crashing: get_total(row, 8)?,
        crashing_job: get(row, 9)?,
        failed: get_total(row, 10)?,
        failed_job: get(row, 11)?,
    })
}

fn stored_chunk(row: &PgRow) -> Result<StoredChunk, sqlx::Error> {
    Ok(StoredChunk {
        chunk: get(row, 0)?,
        lease: StoredLease {
            until: get_moment(row, 1)?,
            holder: get(row, 2)?,
            claimed_at: get_moment(row, 3)?,
            fence: get(row, 4)?,
            done_at: get_moment(row, 5)?,
            dead_at: get_moment(row, 6)?,
        },
        row_count: get(row, 7)?,
        synced_at: get_moment(row, 8)?,
        cursor: get(row, 9)?,
        error: get(row, 10)?,
    })
}

/// Reads the answer of `progress.sql`.
pub(super) fn progress(row: OptionalRow) -> Result<Progress, StoreError> {
    let read = |row: PgRow| -> Result<Progress, sqlx::Error> {
        Ok(Progress {
            total: get::<Option<i64>>(&row, 0)?.map(unsigned),
            done: get_total(&row, 1)?,
            running: get_total(&row, 2)?,
            failed: get_total(&row, 3)?,
            rows: get_total(&row, 4)?,
            began_at: get_moment(&row, 5)?,
            now: get_timestamp(&row, 6)?,
        })
    };
    let told = row.and_then(|row| read(row.ok_or(sqlx::Error::RowNotFound)?));
    told.map_err(|e| store_error("progress", e))
}

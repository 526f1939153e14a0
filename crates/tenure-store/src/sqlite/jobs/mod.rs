//! Jobs and checkpoints: leases on the rows of two tables that Tenure owns.
//!
//! The lease of a job uses the row layout; a chunk is claimed, renewed and ended by its whole key,
//! with its own statements.

mod chunk;
mod read;
#[cfg(feature = "testing")]
mod testing;

use std::sync::Arc;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, named_params};
use tenure_core::job::{
    ChunkClaim, ChunkName, ChunkRecord, Job, JobId, JobKind, KindStatus, MatrixName, NewJob, Note,
    Noted, Progress, Retried,
};
use tenure_core::store::{
    Answer, ChunkHold, ClaimChunk, EndChunk, HeldChunks, HoldError, JobFilter, JobHold, Jobs,
    LeaseStore, Operate, ProvidesJobs, RenewChunks, Renewed, StoreError, StoreErrorKind, accepted,
};
use tenure_core::{Clock, Guarded, Refusal, SyncState, Timestamp};

use super::error::failed;
use super::rows::SqliteRows;
use super::statements::HoldStatements;
use super::writer::Writer;
use super::{SqliteStore, moment_of, row, statements as sql};
use crate::jobs::{
    JobOperations, JobRow, check_end, check_jobs, check_note, jobs_table, note_refusal, repeated,
    signed, state_word,
};
use crate::memory::SystemClock;

/// The statements that check leases, and the job table as a lease table.
#[derive(Clone, Debug)]
pub(super) struct JobStore {
    holds: &'static HoldStatements,
    jobs: JobOperations<SqliteRows>,
}

impl JobStore {
    /// Opens the tables of a migrated file.
    pub(super) async fn open(writer: &Writer, clock: &Arc<dyn Clock>) -> Result<Self, StoreError> {
        let rows = |table| SqliteRows::open(writer.clone(), Arc::clone(clock), table);
        Ok(Self {
            holds: &HoldStatements::WRITTEN,
            jobs: JobOperations(rows(jobs_table()).await?.counted_by(sql::COUNT_JOBS)),
        })
    }

    /// The same store, judging leases by this clock.
    #[cfg(feature = "testing")]
    pub(super) fn with_clock(self, clock: &Arc<dyn Clock>) -> Self {
        Self {
            holds: self.holds,
            jobs: JobOperations(self.jobs.0.with_clock(Arc::clone(clock))),
        }
    }
}

/// A connection, and the statements that check leases on it.
#[derive(Clone, Copy)]
struct JobTables<'a> {
    connection: &'a Connection,
    sql: &'a HoldStatements,
}

impl HoldStatements {
    fn at<'a>(&'a self, connection: &'a Connection) -> JobTables<'a> {
        let sql = self;
        JobTables { connection, sql }
    }
}

/// Treatment of a hold whose term is over but that no other worker has claimed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LatePolicy {
    Accepted,
    Refused,
}

impl ProvidesJobs for SqliteStore {
    fn job_store(&self) -> Option<&dyn Jobs> {
        Some(self)
    }
}

impl Jobs for SqliteStore {
    fn enqueue_jobs<'a>(
        &'a self,
        jobs: &'a [NewJob],
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<JobId>> {
        let jobs = jobs.to_vec();
        Box::pin(self.write("enqueue jobs", now, move |connection, now| {
            check_jobs(&jobs)?;
            enqueue(connection, &jobs, now)
        }))
    }

    fn retry_job(&self, id: JobId, now: Option<Timestamp>) -> Answer<'_, Retried> {
        Box::pin(self.write("retry", now, move |connection, now| {
            retry(connection, id, now)
        }))
    }

    fn job(&self, id: JobId, now: Option<Timestamp>) -> Answer<'_, Option<Job>> {
        let now = self.moment(now);
        Box::pin(self.writer.read("job", move |connection| {
            let ask = named_params! {":id": id.number()};
            Ok(read::jobs(connection, "job", (sql::JOB, ask), now)?.pop())
        }))
    }

    fn jobs<'a>(&'a self, filter: &'a JobFilter, limit: u32) -> Answer<'a, Vec<Job>> {
        let (filter, now) = (filter.clone(), self.moment(None));
        Box::pin(self.writer.read("jobs", move |connection| {
            page(connection, &filter, limit, now)
        }))
    }

    fn note_job<'a>(&'a self, hold: &'a JobHold, note: &'a Note) -> Answer<'a, Noted> {
        let (hold, note, sql) = (hold.clone(), note.clone(), self.jobs.holds);
        Box::pin(self.write("note job", None, move |connection, now| {
            check_note(&note)?;
            let noted = write_note(
                sql.at(connection),
                (&hold, &note),
                LatePolicy::Accepted,
                now,
            );
            noted.map_err(failed("note job"))
        }))
    }

    fn job_leases(&self) -> &dyn LeaseStore {
        &self.jobs.jobs.0
    }

    fn job_operations(&self) -> &dyn Operate {
        &self.jobs.jobs
    }

    fn claim_chunk<'a>(&'a self, claim: &'a ClaimChunk) -> Answer<'a, ChunkClaim> {
        let (claim, sql) = (claim.clone(), self.jobs.holds);
        Box::pin(
            self.write("claim chunk", claim.now, move |connection, now| {
                chunk::claim(sql.at(connection), &claim, now)
            }),
        )
    }

    fn renew_chunks<'a>(
        &'a self,
        renew: &'a RenewChunks,
    ) -> Answer<'a, Vec<(ChunkHold, Guarded<Renewed>)>> {
        let (renew, sql) = (renew.clone(), self.jobs.holds);
        Box::pin(
            self.write("renew chunks", renew.now, move |connection, now| {
                let tables = sql.at(connection);
                chunk::renew_all(tables, renew, now).map_err(failed("renew chunks"))
            }),
        )
    }

    fn end_chunk<'a>(&'a self, end: &'a EndChunk) -> Answer<'a, Guarded<()>> {
        let (end, sql) = (end.clone(), self.jobs.holds);
        Box::pin(self.write("end chunk", end.now, move |connection, now| {
            check_end(&end)?;
            chunk::end(sql.at(connection), &end, now).map_err(failed("end chunk"))
        }))
    }

    fn chunks<'a>(
        &'a self,
        matrix: &'a MatrixName,
        after: Option<&'a ChunkName>,
        limit: u32,
    ) -> Answer<'a, Vec<ChunkRecord>> {
        let (matrix, after, now) = (matrix.clone(), after.cloned(), self.moment(None));
        Box::pin(self.writer.read("chunks", move |connection| {
            let ask = named_params! {
                ":matrix": matrix.as_str(),
                ":after": after.as_ref().map(ChunkName::as_str),
                ":limit": limit,
            };
            read::chunks(connection, &matrix, (sql::CHUNKS, ask), now)
        }))
    }

    fn notable_chunks<'a>(
        &'a self,
        matrix: &'a MatrixName,
        limit: u32,
    ) -> Answer<'a, Vec<ChunkRecord>> {
        let (matrix, now) = (matrix.clone(), self.moment(None));
        Box::pin(self.writer.read("chunks", move |connection| {
            let ask = named_params! {":matrix": matrix.as_str(), ":limit": limit};
            read::chunks(connection, &matrix, (sql::NOTABLE_CHUNKS, ask), now)
        }))
    }

    fn held_chunks<'a>(
        &'a self,
        which: &'a HeldChunks,
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<ChunkRecord>> {
        let (which, now) = (which.clone(), self.moment(now));
        Box::pin(self.writer.read("held chunks", move |connection| {
            read::held_chunks(connection, &which, now)
        }))
    }

    fn kinds(&self, lately: Duration, now: Option<Timestamp>) -> Answer<'_, Vec<KindStatus>> {
        let now = self.moment(now);
        Box::pin(self.writer.read("kinds", move |connection| {
            read::kinds(connection, now.before(lately), now)
        }))
    }

    fn progress<'a>(
        &'a self,
        matrix: &'a MatrixName,
        now: Option<Timestamp>,
    ) -> Answer<'a, Progress> {
        let (matrix, now) = (matrix.clone(), self.moment(now));
        Box::pin(self.writer.read("progress", move |connection| {
            read::progress(connection, &matrix, now).map_err(failed("progress"))
        }))
    }
}

impl SqliteStore {
    /// Ends the hold on a chunk, or writes its cursor, in a transaction that the caller has begun
    /// on its own connection, as the last statement before the commit. The store refuses this if
    /// another worker has claimed the chunk; the caller must then roll back.
    ///
    /// The hold must be the caller's and live, and so must the hold on the job, if `end` names one.
    /// The store also refuses an end that was committed before: if the result of a commit is
    /// unknown, look at the chunk before repeating the work. Begin the transaction with
    /// `begin immediate` if it reads before it writes.
    ///
    /// ```no_run
    /// # fn example(shop: &mut rusqlite::Connection, end: &tenure_core::store::EndChunk)
    /// # -> Result<(), Box<dyn std::error::Error>> {
    /// use tenure_store::sqlite::SqliteStore;
    ///
    /// let tx = shop.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    /// tx.execute("insert into orders (id) values (7)", [])?;
    /// SqliteStore::end_chunk_in(&tx, end)?; // refused: `tx` is dropped and rolled back
    /// tx.commit()?; // the order is there iff the chunk is done
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The hold is gone or its term is over; [`EndChunk::check`] rejects it; or the file is busy.
    pub fn end_chunk_in(connection: &Connection, end: &EndChunk) -> Result<(), HoldError> {
        check_end(end)?;
        end_strictly(HoldStatements::WRITTEN.at(connection), end)
    }

    /// Writes a note about a job in the caller's own transaction, as its last statement, like
    /// [`SqliteStore::end_chunk_in`] for a chunk.
    ///
    /// # Errors
    /// Same as [`SqliteStore::end_chunk_in`].
    pub fn note_job_in(
        connection: &Connection,
        hold: &JobHold,
        note: &Note,
    ) -> Result<(), HoldError> {
        check_note(note)?;
        note_strictly(HoldStatements::WRITTEN.at(connection), (hold, note))
    }

    /// Writes jobs in a transaction that the caller has begun on its own connection: they exist if
    /// and only if it commits.
    ///
    /// # Errors
    /// A job is not valid, or the file has no tables of Tenure or is busy.
    pub fn enqueue_jobs_on(
        connection: &Connection,
        jobs: &[NewJob],
    ) -> Result<Vec<JobId>, StoreError> {
        check_jobs(jobs)?;
        let now = moment_of(&SystemClock, None);
        enqueue(connection, jobs, now)
    }
}

fn end_strictly(tables: JobTables<'_>, end: &EndChunk) -> Result<(), HoldError> {
    let now = moment_of(&SystemClock, end.now);
    let ended = chunk::try_end(tables, end, LatePolicy::Refused, now);
    if ended.map_err(failed("end chunk"))? {
        return Ok(());
    }
    let look = chunk::look_at(tables, end, now).map_err(failed("end chunk"))?;
    Err(HoldError::Refused(look.refusal()))
}

fn note_strictly(tables: JobTables<'_>, what: (&JobHold, &Note)) -> Result<(), HoldError> {
    let now = moment_of(&SystemClock, None);
    let noted = write_note(tables, what, LatePolicy::Refused, now);
    accepted(noted.map_err(failed("note job"))?)
}

fn enqueue(
    connection: &Connection,
    jobs: &[NewJob],
    now: Timestamp,
) -> Result<Vec<JobId>, StoreError> {
    write_jobs(connection, jobs, now).map_err(|error| {
        let told = failed("enqueue jobs")(error);
        // Besides the id, which is new, the only unique column is `retry_of`.
        if told.kind() == StoreErrorKind::Conflict {
            return repeated();
        }
        told
    })
}

/// Reads and writes in one transaction, so that a concurrent retry cannot intervene.
fn retry(connection: &Connection, id: JobId, now: Timestamp) -> Result<Retried, StoreError> {
    let ask = named_params! {":id": id.number()};
    let Some(job) = read::jobs(connection, "retry", (sql::JOB, ask), now)?.pop() else {
        return Ok(Retried::Refused(Refusal::NotFound));
    };
    if job.completed_at.or(job.failed_at).is_none() {
        return Ok(Retried::Refused(Refusal::NotSettled));
    }
    let before = || -> rusqlite::Result<Option<JobId>> {
        let mut retried = connection.prepare_cached(sql::RETRIED)?;
        retried
            .query_row(ask, |row| row.get(0).map(JobId::new))
            .optional()
    };
    if let Some(before) = before().map_err(failed("retry"))? {
        return Ok(Retried::Before(before));
    }
    let again = NewJob {
        kind: job.kind,
        payload: job.payload,
        priority: job.priority,
        matrix: Some(job.matrix),
        delay: Duration::ZERO,
        retry_of: Some(id),
    };
    let ids = enqueue(connection, &[again], now)?;
    let written = ids.first().copied().ok_or_else(|| {
        let message = "the new job got no id";
        StoreError::new("retry", StoreErrorKind::Corrupt, message)
    })?;
    Ok(Retried::Written(written))
}

fn write_jobs(
    connection: &Connection,
    jobs: &[NewJob],
    now: Timestamp,
) -> rusqlite::Result<Vec<JobId>> {
    let mut next = connection.prepare_cached(sql::ENQUEUE_JOBS_NEXT)?;
    let first: i64 = next.query_row([], |found| found.get(0))?;
    let mut write = connection.prepare_cached(sql::ENQUEUE_JOBS_JOB)?;
    let mut ids = Vec::with_capacity(jobs.len());
    for (id, job) in (first..).zip(jobs) {
        let available_at = (!job.delay.is_zero()).then(|| now.after(job.delay).as_micros());
        write.execute(named_params! {
            ":id": id,
            ":now": now.as_micros(),
            ":kind": job.kind.as_str(),
            ":matrix": job.matrix.as_ref().map(MatrixName::as_str),
            ":payload": job.payload,
            ":priority": job.priority,
            ":available_at": available_at,
            ":retry_of": job.retry_of.map(JobId::number),
        })?;
        ids.push(JobId::new(id));
    }
    Ok(ids)
}

/// Reads a page with the statement whose index fits the filter best.
fn page(
    connection: &Connection,
    filter: &JobFilter,
    limit: u32,
    now: Timestamp,
) -> Result<Vec<Job>, StoreError> {
    let kind = filter.kind.as_ref().map(JobKind::as_str);
    let matrix = filter.matrix.as_ref().map(MatrixName::as_str);
    let state = filter.state.map(state_word);
    let below = filter.before.map_or(i64::MAX, JobId::number);
    let at = now.as_micros();
    let get = |text, ask| read::jobs(connection, "jobs", (text, ask), now);
    if matrix.is_some() {
        let ask = named_params! {
            ":matrix": matrix, ":kind": kind, ":state": state, ":now": at,
            ":below": below, ":limit": limit,
        };
        return get(sql::JOBS_OF_MATRIX, ask);
    }
    match filter.state {
        Some(SyncState::Available | SyncState::Running | SyncState::Lapsed) => {
            let ask = named_params! {
                ":kind": kind, ":state": state, ":now": at, ":below": below, ":limit": limit,
            };
            get(sql::JOBS_OPEN, ask)
        }
        Some(SyncState::Failed) => {
            let ask = named_params! {":kind": kind, ":below": below, ":limit": limit};
            get(sql::JOBS_FAILED, ask)
        }
        None | Some(SyncState::Completed) if kind.is_some() => {
            let ask =
                named_params! {":kind": kind, ":state": state, ":below": below, ":limit": limit};
            get(sql::JOBS_OF_KIND, ask)
        }
        None | Some(SyncState::Completed) => {
            let ask = named_params! {":state": state, ":below": below, ":limit": limit};
            get(sql::JOBS_ALL, ask)
        }
    }
}

fn write_note(
    tables: JobTables<'_>,
    (hold, note): (&JobHold, &Note),
    late: LatePolicy,
    now: Timestamp,
) -> rusqlite::Result<Noted> {
    let (token, holder) = (hold.token.expose(), hold.token.holder());
    let noted = tables
        .connection
        .prepare_cached(tables.sql.note)?
        .query_row(
            named_params! {
                ":now": now.as_micros(),
                ":id": hold.id.number(),
                ":token": token,
                ":holder": holder,
                ":cursor": note.cursor,
                ":chunks_total": note.chunks_total.map(signed),
                ":result": note.result,
                ":strict": late == LatePolicy::Refused,
            },
            |_| Ok(()),
        )
        .optional()?;
    if noted.is_some() {
        return Ok(Guarded::Accepted(()));
    }
    let ask = named_params! {":id": hold.id.number(), ":token": token, ":holder": holder};
    let seen = tables
        .connection
        .prepare_cached(tables.sql.note_look)?
        .query_row(ask, |found| {
            Ok(JobRow {
                until: row::past(found, 0)?,
                done_at: row::past(found, 1)?,
                dead_at: row::past(found, 2)?,
                is_mine: found.get(3)?,
            })
        })
        .optional()?;
    Ok(Guarded::Refused(note_refusal(seen, now)))
}

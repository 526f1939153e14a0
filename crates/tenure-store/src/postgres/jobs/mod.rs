//! Jobs and checkpoints: leases on the rows of two tables that Tenure owns.
//!
//! A job's lease uses the row layout; a chunk has its own statements, which claim, renew and end it
//! by its full key.

mod chunk;
mod read;

use std::sync::atomic::AtomicBool;
use std::time::Duration;

use sqlx::PgConnection;
use tenure_core::job::{
    ChunkClaim, ChunkName, ChunkRecord, Job, JobId, JobKind, KindStatus, MatrixName, NewJob, Note,
    Noted, Progress, Retried,
};
use tenure_core::store::{
    Answer, ChunkHold, ClaimChunk, EndChunk, HeldChunks, HoldError, JobFilter, JobHold, Jobs,
    LeaseStore, Operate, ProvidesJobs, RenewChunks, Renewed, StoreError, StoreErrorKind, accepted,
};
use tenure_core::{Guarded, Identifier, Timestamp, Token};

use super::PostgresStore;
use super::error::store_error;
use super::pool::{Borrow as _, Pool};
use super::queue::Sql;
use super::row::moment;
use super::rows::{PostgresRows, renewal};
use super::session::RunOn as _;
use super::statements::JobStatements;
use crate::jobs::{
    JobOperations, check_end, check_jobs, check_note, jobs_table, signed, state_word,
};
use crate::limits::micros;
use crate::render::as_written;

/// Maximum attempts of a retry that loses against a concurrent one.
const RETRY_ROUNDS: u32 = 3;

/// The statements of jobs and chunks, and the job table as a lease table.
#[derive(Debug)]
pub(super) struct JobStore {
    statements: JobStatements,
    jobs: JobOperations<PostgresRows>,
    /// Set if the last chunk claim created its chunk: the next one most likely will too, so it
    /// tries that first.
    is_making: AtomicBool,
}

impl JobStore {
    /// Uses the tables of a migrated database.
    pub(super) fn new(pool: &Pool, schema: Option<&Identifier>) -> Result<Self, StoreError> {
        let rows = |table| PostgresRows::migrated(pool.clone(), table, schema);
        let statements = JobStatements::new(schema, &as_written);
        let jobs = rows(jobs_table())?.counted_by(statements.count.clone());
        Ok(Self {
            statements,
            jobs: JobOperations(jobs),
            is_making: AtomicBool::new(false),
        })
    }

    /// Returns a copy that uses another pool.
    pub(super) fn through(&self, pool: &Pool) -> Self {
        Self {
            statements: self.statements.clone(),
            jobs: JobOperations(self.jobs.0.through(pool.clone())),
            is_making: AtomicBool::new(false),
        }
    }

    /// Returns this store with its statement files changed by `edit`.
    #[cfg(feature = "testing")]
    pub(super) fn edited(self, schema: Option<&Identifier>, edit: crate::render::Edit<'_>) -> Self {
        Self {
            statements: JobStatements::new(schema, edit),
            ..self
        }
    }

    pub(super) fn statements(&self) -> &JobStatements {
        &self.statements
    }
}

/// Treatment of a hold whose term is over but that has no new holder.
#[derive(Clone, Copy, PartialEq, Eq)]
enum LatePolicy {
    Accepted,
    Refused,
}

impl ProvidesJobs for PostgresStore {
    fn job_store(&self) -> Option<&dyn Jobs> {
        Some(self)
    }
}

impl Jobs for PostgresStore {
    fn enqueue_jobs<'a>(
        &'a self,
        jobs: &'a [NewJob],
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<JobId>> {
        Box::pin(async move {
            check_jobs(jobs)?;
            read::enqueued(self.enqueue_query(jobs, now).all_from(&self.pool).await)
        })
    }

    fn retry_job(&self, id: JobId, now: Option<Timestamp>) -> Answer<'_, Retried> {
        Box::pin(async move {
            let mut rounds = 0;
            loop {
                let query = self.jobs.statements.retry.query();
                let query = query.bind(moment(now)).bind(id.number());
                // `None`: a concurrent retry was faster; the next attempt sees its job.
                if let Some(answer) = read::retried(query.first_from(&self.pool).await)? {
                    return Ok(answer);
                }
                rounds += 1;
                if rounds >= RETRY_ROUNDS {
                    let message = "other callers are retrying the same job";
                    return Err(StoreError::new("retry", StoreErrorKind::Conflict, message));
                }
            }
        })
    }

    fn job(&self, id: JobId, now: Option<Timestamp>) -> Answer<'_, Option<Job>> {
        Box::pin(async move {
            let query = self.jobs.statements.job.query();
            let rows = query
                .bind(moment(now))
                .bind(id.number())
                .all_from(&self.pool)
                .await;
            Ok(read::jobs("job", rows)?.pop())
        })
    }

    fn jobs<'a>(&'a self, filter: &'a JobFilter, limit: u32) -> Answer<'a, Vec<Job>> {
        Box::pin(async move {
            let query = self.jobs.statements.page.query();
            let query = query
                .bind(moment(None))
                .bind(filter.kind.as_ref().map(JobKind::as_str))
                .bind(filter.matrix.as_ref().map(MatrixName::as_str))
                .bind(filter.state.map(state_word))
                .bind(filter.before.map(JobId::number))
                .bind(i64::from(limit));
            read::jobs("jobs", query.all_from(&self.pool).await)
        })
    }

    fn note_job<'a>(&'a self, hold: &'a JobHold, note: &'a Note) -> Answer<'a, Noted> {
        Box::pin(async move {
            check_note(note)?;
            let query = self.note_query(hold, note, LatePolicy::Accepted);
            read::noted(query.first_from(&self.pool).await)
        })
    }

    fn job_leases(&self) -> &dyn LeaseStore {
        &self.jobs.jobs.0
    }

    fn job_operations(&self) -> &dyn Operate {
        &self.jobs.jobs
    }

    fn claim_chunk<'a>(&'a self, claim: &'a ClaimChunk) -> Answer<'a, ChunkClaim> {
        Box::pin(self.claim_one_chunk(claim))
    }

    fn renew_chunks<'a>(
        &'a self,
        renew: &'a RenewChunks,
    ) -> Answer<'a, Vec<(ChunkHold, Guarded<Renewed>)>> {
        Box::pin(async move {
            let ask = |open| self.renew_some_chunks(renew, open);
            let answers = renewal::renew(&renew.holds, ask).await;
            answers.map_err(|e| store_error("renew chunks", e))
        })
    }

    fn end_chunk<'a>(&'a self, end: &'a EndChunk) -> Answer<'a, Guarded<()>> {
        Box::pin(async move {
            check_end(end)?;
            let lent = self.pool.borrow().await;
            let mut lent = lent.map_err(|e| store_error("end chunk", e))?;
            let answer = self.end_one_chunk(lent.connection(), end).await;
            lent.give_back(&answer);
            answer
        })
    }

    fn chunks<'a>(
        &'a self,
        matrix: &'a MatrixName,
        after: Option<&'a ChunkName>,
        limit: u32,
    ) -> Answer<'a, Vec<ChunkRecord>> {
        Box::pin(async move {
            let query = self.jobs.statements.chunks.query();
            let query = query
                .bind(moment(None))
                .bind(matrix.as_str())
                .bind(after.map(ChunkName::as_str))
                .bind(i64::from(limit));
            read::chunks(matrix, query.all_from(&self.pool).await)
        })
    }

    fn notable_chunks<'a>(
        &'a self,
        matrix: &'a MatrixName,
        limit: u32,
    ) -> Answer<'a, Vec<ChunkRecord>> {
        Box::pin(async move {
            let query = self.jobs.statements.notable_chunks.query();
            let query = query
                .bind(moment(None))
                .bind(matrix.as_str())
                .bind(i64::from(limit));
            read::chunks(matrix, query.all_from(&self.pool).await)
        })
    }

    fn held_chunks<'a>(
        &'a self,
        which: &'a HeldChunks,
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<ChunkRecord>> {
        Box::pin(async move {
            let query = self.jobs.statements.held_chunks.query();
            let query = query
                .bind(moment(now))
                .bind(which.matrix.as_ref().map(MatrixName::as_str))
                .bind(which.lapsed_for.map(micros))
                .bind(i64::from(which.limit));
            read::held_chunks(query.all_from(&self.pool).await)
        })
    }

    fn kinds(&self, lately: Duration, now: Option<Timestamp>) -> Answer<'_, Vec<KindStatus>> {
        Box::pin(async move {
            let query = self.jobs.statements.kinds.query();
            let query = query.bind(moment(now)).bind(micros(lately));
            read::kinds(query.all_from(&self.pool).await)
        })
    }

    fn progress<'a>(
        &'a self,
        matrix: &'a MatrixName,
        now: Option<Timestamp>,
    ) -> Answer<'a, Progress> {
        Box::pin(async move {
            let query = self.jobs.statements.progress.query();
            let query = query.bind(moment(now)).bind(matrix.as_str());
            read::progress(query.first_from(&self.pool).await)
        })
    }
}

impl PostgresStore {
    /// Ends the hold on a chunk, or records its cursor, in the caller's transaction. Call it as the
    /// last statement, since the row stays locked until commit. The next claim of the chunk can
    /// succeed only after that commit; if another holder has claimed it before, this call is
    /// refused, and the transaction must be rolled back.
    ///
    /// The hold must belong to the caller and be live, and so must the hold on the job, if `end`
    /// names one. A chunk that was already ended is refused too: if the answer to a commit was
    /// lost, read the chunk before redoing the work.
    ///
    /// ```no_run
    /// # async fn example(
    /// #     store: tenure_store::postgres::PostgresStore,
    /// #     pool: sqlx::PgPool,
    /// #     end: tenure_core::store::EndChunk,
    /// # ) -> Result<(), Box<dyn std::error::Error>> {
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("insert into orders (id) values (7)").execute(&mut *tx).await?;
    /// store.end_chunk_in(&mut tx, &end).await?; // refused: `tx` is dropped and rolled back
    /// tx.commit().await?; // the order is there iff the chunk is done
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The hold is gone or its term is over; [`EndChunk::check`] rejects it; or the database cannot
    /// be reached.
    pub async fn end_chunk_in(
        &self,
        conn: &mut PgConnection,
        end: &EndChunk,
    ) -> Result<(), HoldError> {
        check_end(end)?;
        self.meet("end chunk", conn).await?;
        if self.try_end(conn, end, LatePolicy::Refused).await? {
            return Ok(());
        }
        let look = self.look_at(conn, end).await?;
        Err(HoldError::Refused(look.refusal()))
    }

    /// Records a note on a job in the caller's transaction, as its last statement; see
    /// [`PostgresStore::end_chunk_in`].
    ///
    /// # Errors
    /// Same as [`PostgresStore::end_chunk_in`].
    pub async fn note_job_in(
        &self,
        conn: &mut PgConnection,
        hold: &JobHold,
        note: &Note,
    ) -> Result<(), HoldError> {
        check_note(note)?;
        self.meet("note job", conn).await?;
        let query = self.note_query(hold, note, LatePolicy::Refused);
        accepted(read::noted(query.first_on(conn).await)?)
    }

    /// Writes jobs in the caller's transaction: they exist if and only if it commits.
    ///
    /// # Errors
    /// A job is not valid, or the database returns an error or cannot be reached.
    pub async fn enqueue_jobs_on(
        &self,
        conn: &mut PgConnection,
        jobs: &[NewJob],
    ) -> Result<Vec<JobId>, StoreError> {
        check_jobs(jobs)?;
        self.meet("enqueue", conn).await?;
        read::enqueued(self.enqueue_query(jobs, None).rows_on(conn).await)
    }

    fn enqueue_query(&self, jobs: &[NewJob], now: Option<Timestamp>) -> Sql<'static> {
        fn all<T>(jobs: &[NewJob], each: impl Fn(&NewJob) -> T) -> Vec<T> {
            jobs.iter().map(each).collect()
        }
        let matrix = |job: &NewJob| job.matrix.as_ref().map(|name| name.as_str().to_owned());
        let query = self.jobs.statements.enqueue.query();
        query
            .bind(moment(now))
            .bind(all(jobs, |job| job.kind.as_str().to_owned()))
            .bind(all(jobs, matrix))
            .bind(all(jobs, |job| job.payload.clone()))
            .bind(all(jobs, |job| job.priority))
            .bind(all(jobs, |job| micros(job.delay)))
            .bind(all(jobs, |job| job.retry_of.map(JobId::number)))
    }

    fn note_query(&self, hold: &JobHold, note: &Note, late: LatePolicy) -> Sql<'static> {
        let query = self.jobs.statements.note.query();
        query
            .bind(moment(None))
            .bind(hold.id.number())
            .bind(hold.token.expose().to_owned())
            .bind(hold.token.holder().to_owned())
            .bind(note.cursor.clone())
            .bind(note.chunks_total.map(signed))
            .bind(note.result.clone())
            .bind(late == LatePolicy::Refused)
    }
}

/// Id, token and holder of a job hold, as statement parameters.
fn hold_params(job: Option<&JobHold>) -> (Option<i64>, Option<&str>, Option<&str>) {
    let token = job.map(|job| &job.token);
    (
        job.map(|job| job.id.number()),
        token.map(Token::expose),
        token.map(Token::holder),
    )
}

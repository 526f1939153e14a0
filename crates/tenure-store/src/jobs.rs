//! Jobs and checkpoints, shared by both databases: the tables, the conversion of rows, and the
//! decisions on a chunk that was read.

use std::time::Duration;

use tenure_core::job::{
    ChunkClaim, ChunkKey, ChunkName, ChunkRecord, Job, JobId, JobKind, KindStatus, MatrixName,
    NewJob, Note,
};
use tenure_core::store::{
    Answer, Bury, ChunkEnd, Counts, EndChunk, Filter, Operate, Page, Replay, Replayed, StoreError,
    StoreErrorKind,
};
use tenure_core::{
    Counters, Fence, Guarded, Hold, Identifier, Invalid, ItemId, LeaseTable, PastHold, Record,
    Refusal, State, SyncState, Timestamp, refusal_of,
};

use crate::error_text::error_text;
use crate::rows::hold_of;

/// Maximum rounds of a claim that read its chunk as free but could not claim it.
#[cfg(feature = "postgres")]
pub(crate) const CLAIM_ROUNDS: u32 = 3;

/// Maximum number of completed jobs, and of failed ones, deleted in one round: each may have many
/// chunks.
pub(crate) const PRUNED_MAX: u32 = 100;

/// The table of jobs as a lease table; its rows have a kind.
pub(crate) fn jobs_table() -> LeaseTable {
    let mut table = LeaseTable::sync_jobs().named(name("tenure_jobs"));
    table.kind = Some(name("kind"));
    table
}

fn name(text: &str) -> Identifier {
    Identifier::new(text).expect("these are the names of our own tables")
}

/// Lease columns, the same in both tables.
#[derive(Clone, Debug)]
pub(crate) struct StoredLease {
    pub(crate) until: Option<Timestamp>,
    pub(crate) holder: Option<String>,
    pub(crate) claimed_at: Option<Timestamp>,
    pub(crate) fence: i64,
    pub(crate) done_at: Option<Timestamp>,
    pub(crate) dead_at: Option<Timestamp>,
}

impl StoredLease {
    fn state(&self, now: Timestamp) -> SyncState {
        SyncState::of(self.until, self.done_at, self.dead_at, now)
    }

    fn hold(&self, now: Timestamp) -> Option<Hold> {
        let times = (self.claimed_at, self.until);
        let fence = Fence::new(self.fence);
        hold_of(self.state(now).state(), self.holder.clone(), fence, times)
    }
}

/// A row of `tenure_jobs`.
#[derive(Debug)]
pub(crate) struct StoredJob {
    pub(crate) id: i64,
    pub(crate) kind: String,
    pub(crate) matrix: String,
    pub(crate) payload: String,
    pub(crate) priority: i16,
    pub(crate) created_at: Timestamp,
    pub(crate) available_at: Option<Timestamp>,
    pub(crate) lease: StoredLease,
    pub(crate) counters: Counters,
    pub(crate) error: Option<String>,
    pub(crate) result: Option<String>,
    pub(crate) cursor: Option<String>,
    pub(crate) chunks_total: Option<i64>,
    pub(crate) retry_of: Option<i64>,
    pub(crate) is_cancelled: bool,
}

impl StoredJob {
    /// The job at `now`.
    ///
    /// # Errors
    /// A name in the row is not valid; another program wrote it.
    pub(crate) fn read(self, verb: &'static str, now: Timestamp) -> Result<Job, StoreError> {
        let failed = |problem: Invalid| unreadable(verb, &problem).with_item(ItemId::new(self.id));
        Ok(Job {
            id: JobId::new(self.id),
            kind: JobKind::new(&self.kind).map_err(failed)?,
            matrix: MatrixName::new(&self.matrix).map_err(failed)?,
            payload: self.payload,
            priority: self.priority,
            state: self.lease.state(now),
            hold: self.lease.hold(now),
            counters: self.counters,
            created_at: self.created_at,
            available_at: self.available_at,
            completed_at: self.lease.done_at,
            failed_at: self.lease.dead_at,
            is_cancelled: self.is_cancelled,
            error: self.error,
            result: self.result,
            cursor: self.cursor,
            chunks_total: self.chunks_total.map(unsigned),
            retry_of: self.retry_of.map(JobId::new),
        })
    }
}

/// A row of `tenure_checkpoints`.
#[derive(Debug)]
pub(crate) struct StoredChunk {
    pub(crate) chunk: String,
    pub(crate) lease: StoredLease,
    pub(crate) row_count: Option<i64>,
    pub(crate) synced_at: Option<Timestamp>,
    pub(crate) cursor: Option<String>,
    pub(crate) error: Option<String>,
}

impl StoredChunk {
    /// The chunk at `now`.
    ///
    /// # Errors
    /// A name in the row is not valid; another program wrote it.
    pub(crate) fn read(
        self,
        verb: &'static str,
        matrix: &MatrixName,
        now: Timestamp,
    ) -> Result<ChunkRecord, StoreError> {
        let chunk = ChunkName::new(&self.chunk).map_err(|problem| unreadable(verb, &problem))?;
        Ok(ChunkRecord {
            key: ChunkKey {
                matrix: matrix.clone(),
                chunk,
            },
            state: self.lease.state(now),
            hold: self.lease.hold(now),
            row_count: self.row_count.map(unsigned),
            synced_at: self.synced_at,
            cursor: self.cursor,
            error: self.error,
        })
    }
}

/// A row of `kinds.sql`.
#[derive(Debug)]
pub(crate) struct StoredKind {
    pub(crate) kind: String,
    pub(crate) due: u64,
    pub(crate) oldest_due: Option<Timestamp>,
    pub(crate) delayed: u64,
    pub(crate) running: u64,
    pub(crate) lapsed: u64,
    pub(crate) lapsed_at: Option<Timestamp>,
    pub(crate) lapsed_job: Option<i64>,
    pub(crate) crashing: u64,
    pub(crate) crashing_job: Option<i64>,
    pub(crate) failed: u64,
    pub(crate) failed_job: Option<i64>,
}

impl StoredKind {
    /// The kind at `now`.
    ///
    /// # Errors
    /// The name is not valid; another program wrote it.
    pub(crate) fn read(self, now: Timestamp) -> Result<KindStatus, StoreError> {
        let kind = JobKind::new(&self.kind);
        Ok(KindStatus {
            kind: kind.map_err(|problem| unreadable("kinds", &problem))?,
            due: self.due,
            oldest_due: self.oldest_due.map(|moment| now.since(moment)),
            delayed: self.delayed,
            running: self.running,
            lapsed: self.lapsed,
            longest_lapsed: self.lapsed_at.map(|moment| now.since(moment)),
            lapsed_job: self.lapsed_job.map(JobId::new),
            crashing: self.crashing,
            crashing_job: self.crashing_job.map(JobId::new),
            failed: self.failed,
            failed_job: self.failed_job.map(JobId::new),
        })
    }
}

/// The matrix of a stored chunk.
///
/// # Errors
/// The name is not valid; another program wrote it.
pub(crate) fn matrix_of(verb: &'static str, name: &str) -> Result<MatrixName, StoreError> {
    MatrixName::new(name).map_err(|problem| unreadable(verb, &problem))
}

fn unreadable(verb: &'static str, problem: &Invalid) -> StoreError {
    StoreError::new(verb, StoreErrorKind::Corrupt, problem.to_string())
        .with_hint("a row that another program wrote has an invalid name: correct it")
}

/// Name of a state in the filter of `page.sql`.
pub(crate) fn state_word(state: SyncState) -> &'static str {
    if state == SyncState::Lapsed {
        return "LAPSED";
    }
    state.as_str()
}

/// A stored count, which is never negative.
pub(crate) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// A count to store. Larger values were rejected before.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Checks new jobs before they are written.
pub(crate) fn check_jobs(jobs: &[NewJob]) -> Result<(), StoreError> {
    let checked = jobs.iter().try_for_each(NewJob::check);
    checked.map_err(|problem| StoreError::invalid("enqueue jobs", &problem))
}

/// Error for a second retry of the same job.
pub(crate) fn repeated() -> StoreError {
    let message = "another job is already a retry of the same job";
    StoreError::new("enqueue jobs", StoreErrorKind::Invalid, message)
        .with_hint("a job has one retry at most: retry that one")
}

/// Checks progress before it is saved.
pub(crate) fn check_note(note: &Note) -> Result<(), StoreError> {
    let checked = note.check();
    checked.map_err(|problem| StoreError::invalid("note job", &problem))
}

/// Checks the end of a chunk before it is written.
pub(crate) fn check_end(end: &EndChunk) -> Result<(), StoreError> {
    let checked = end.check();
    checked.map_err(|problem| StoreError::invalid("end chunk", &problem))
}

/// State of the job's lease under which a chunk is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobHoldState {
    /// Held by the caller and live; or the caller names no job.
    Live,
    /// Held by the caller, but lapsed.
    Lapsed,
    /// Not held by the caller.
    Gone,
}

/// A chunk and its job's lease, read together.
#[derive(Debug)]
pub(crate) struct ChunkSnapshot {
    pub(crate) now: Timestamp,
    pub(crate) job: JobHoldState,
    pub(crate) chunk: Option<ChunkRow>,
}

/// The stored row of a chunk.
#[derive(Debug)]
pub(crate) struct ChunkRow {
    pub(crate) until: Option<Timestamp>,
    pub(crate) holder: Option<String>,
    pub(crate) done_at: Option<Timestamp>,
    pub(crate) dead_at: Option<Timestamp>,
    pub(crate) synced_at: Option<Timestamp>,
    /// Held under the caller's token.
    pub(crate) is_mine: bool,
    /// Outcome that the caller's token reported, if that token ended the last lease.
    pub(crate) word: Option<String>,
}

/// Result of checking whether a chunk can be claimed.
#[derive(Debug)]
pub(crate) enum ClaimCheck {
    /// There is no row yet; create it.
    Missing,
    /// The chunk can be claimed.
    Free,
    /// The chunk cannot be claimed; this is the answer.
    Refused(ChunkClaim),
}

impl ChunkSnapshot {
    /// Checks whether the chunk can be claimed. A chunk done less than `fresh_for` ago cannot.
    pub(crate) fn check_claim(&self, fresh_for: Option<Duration>) -> ClaimCheck {
        if self.job != JobHoldState::Live {
            return ClaimCheck::Refused(ChunkClaim::JobLost);
        }
        let Some(chunk) = &self.chunk else {
            return ClaimCheck::Missing;
        };
        match SyncState::of(chunk.until, chunk.done_at, chunk.dead_at, self.now) {
            SyncState::Failed => ClaimCheck::Refused(ChunkClaim::Failed),
            SyncState::Completed => {
                let at = chunk.done_at.unwrap_or(self.now);
                ClaimCheck::Refused(ChunkClaim::Done { at })
            }
            SyncState::Running => ClaimCheck::Refused(self.held()),
            SyncState::Available | SyncState::Lapsed => match (chunk.synced_at, fresh_for) {
                (Some(at), Some(span)) if self.now.before(span) < at => {
                    ClaimCheck::Refused(ChunkClaim::Done { at })
                }
                _ => ClaimCheck::Free,
            },
        }
    }

    /// The answer while another holder has the chunk, by a lease or by an open transaction.
    pub(crate) fn held(&self) -> ChunkClaim {
        let chunk = self.chunk.as_ref();
        ChunkClaim::Held {
            holder: chunk.and_then(|c| c.holder.clone()).unwrap_or_default(),
            until: chunk.and_then(|c| c.until).unwrap_or(self.now),
        }
    }

    /// Reason why the end of a chunk was refused.
    pub(crate) fn refusal(&self) -> Refusal {
        let Some(chunk) = &self.chunk else {
            return Refusal::NotFound;
        };
        if chunk.is_mine {
            // The caller holds the chunk, so one of the two leases has lapsed, or the job has
            // another holder.
            return match self.job {
                JobHoldState::Gone => Refusal::Lost,
                JobHoldState::Live | JobHoldState::Lapsed => Refusal::Lapsed,
            };
        }
        let state = SyncState::of(chunk.until, chunk.done_at, chunk.dead_at, self.now);
        refusal_of(Some(state.state()))
    }

    /// The answer to an end that changed nothing: a repetition of the same outcome under the same
    /// token is accepted.
    pub(crate) fn answer(&self, word: Option<&str>) -> Guarded<()> {
        let previous = self.chunk.as_ref().and_then(|chunk| chunk.word.as_deref());
        if word.is_some() && previous == word {
            return Guarded::Accepted(());
        }
        Guarded::Refused(self.refusal())
    }
}

/// Reason why the store refused to save the progress of a job.
pub(crate) fn note_refusal(job: Option<JobRow>, now: Timestamp) -> Refusal {
    let Some(job) = job else {
        return Refusal::NotFound;
    };
    let state = SyncState::of(job.until, job.done_at, job.dead_at, now);
    if job.is_mine && state == SyncState::Lapsed {
        return Refusal::Lapsed;
    }
    refusal_of(Some(state.state()))
}

/// Lease columns of a job whose progress is saved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobRow {
    pub(crate) until: Option<Timestamp>,
    pub(crate) done_at: Option<Timestamp>,
    pub(crate) dead_at: Option<Timestamp>,
    /// Held under the caller's token.
    pub(crate) is_mine: bool,
}

/// Parameters of the statement that ends a chunk: outcome, rows, error.
pub(crate) type EndParams = (Option<&'static str>, Option<i64>, Option<String>);

pub(crate) fn end_params(end: Option<&ChunkEnd>) -> EndParams {
    match end {
        None => (None, None, None),
        Some(ChunkEnd::Synced { row_count }) => (Some("synced"), Some(signed(*row_count)), None),
        Some(ChunkEnd::Completed { row_count }) => {
            (Some("completed"), Some(signed(*row_count)), None)
        }
        Some(ChunkEnd::Failed { error }) => (Some("failed"), None, Some(error_text(error))),
        Some(ChunkEnd::Dead { error }) => (Some("dead"), None, Some(error_text(error))),
        Some(ChunkEnd::Released) => (Some("released"), None, None),
    }
}

/// Operator's commands on jobs. A settled job is never replayed: a retry creates a new job.
#[derive(Clone, Debug)]
pub(crate) struct JobOperations<R>(pub(crate) R);

impl<R: Operate> Operate for JobOperations<R> {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        self.0.find(ids)
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<PastHold>> {
        self.0.timeline(id)
    }

    fn list<'a>(&'a self, filter: &'a Filter, limit: u32) -> Answer<'a, Page> {
        self.0.list(filter, limit)
    }

    fn count(&self, now: Option<Timestamp>) -> Answer<'_, Counts> {
        self.0.count(now)
    }

    fn replay<'a>(&'a self, replay: &'a Replay) -> Answer<'a, Replayed> {
        Box::pin(async move {
            let found = self.0.find(&replay.ids).await?;
            let answer = |id: &ItemId| {
                let record = found.iter().find(|record| record.id == *id);
                let refusal = match record.map(|record| record.state) {
                    None => Refusal::NotFound,
                    Some(State::Pending | State::Claimed) => Refusal::NotSettled,
                    Some(State::Done | State::Dead) => Refusal::AlreadySettled,
                };
                (*id, Guarded::Refused(refusal))
            };
            Ok(replay.ids.iter().map(answer).collect())
        })
    }

    fn bury<'a>(&'a self, bury: &'a Bury) -> Answer<'a, Guarded> {
        self.0.bury(bury)
    }
}

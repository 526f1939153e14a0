//! What both databases share of jobs and checkpoints: the tables described, rows as the words of
//! the core, and the answers that follow from a look at a chunk.

use std::time::Duration;

use tenure_core::job::{
    ChunkClaim, ChunkKey, ChunkName, ChunkRecord, Job, JobKind, KindStanding, MatrixName, NewJob,
    Note,
};
use tenure_core::store::{
    Answer, Bury, ChunkEnd, Counts, EndChunk, Filter, Operate, Page, Replay, Replayed, StoreError,
    StoreErrorKind,
};
use tenure_core::{
    Counters, EndedHold, Fence, Guarded, Hold, Identifier, Invalid, ItemId, LeaseTable, Record,
    Refusal, State, SyncState, Timestamp, refusal_of,
};

use crate::error_text::error_text;
use crate::rows::hold_of;

/// How often a claim looks again at a chunk that is free and yet could not be taken.
#[cfg(feature = "postgres")]
pub(crate) const CLAIM_ROUNDS: u32 = 3;

/// At most so many ended jobs of each kind are deleted at a time: each may have many chunks.
pub(crate) const PRUNED_MAX: u32 = 100;

/// The table of the jobs, whose rows have a kind.
pub(crate) fn jobs_table() -> LeaseTable {
    let mut table = LeaseTable::sync_jobs().named(name("tenure_jobs"));
    table.kind = Some(name("kind"));
    table
}

fn name(text: &str) -> Identifier {
    Identifier::new(text).expect("these are the names of our own tables")
}

/// The columns that tell of a lease and of how it ended, the same in both tables.
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

/// A row of `tenure_jobs`, as it was read.
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
    /// The job as it stands at this moment.
    ///
    /// # Errors
    /// Somebody else has written a name that is none.
    pub(crate) fn read(self, verb: &'static str, now: Timestamp) -> Result<Job, StoreError> {
        let failed = |problem: Invalid| unreadable(verb, &problem).item(ItemId::new(self.id));
        Ok(Job {
            id: self.id,
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
            retry_of: self.retry_of,
        })
    }
}

/// A row of `tenure_checkpoints`, as it was read.
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
    /// The chunk of this matrix as it stands at this moment.
    ///
    /// # Errors
    /// Somebody else has written a name that is none.
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

/// A row of `kinds.sql`, as it was read.
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
    /// The kind as it stands at this moment.
    ///
    /// # Errors
    /// Somebody else has written a name that is none.
    pub(crate) fn read(self, now: Timestamp) -> Result<KindStanding, StoreError> {
        let kind = JobKind::new(&self.kind);
        Ok(KindStanding {
            kind: kind.map_err(|problem| unreadable("kinds", &problem))?,
            due: self.due,
            oldest_due: self.oldest_due.map(|moment| now.since(moment)),
            delayed: self.delayed,
            running: self.running,
            lapsed: self.lapsed,
            longest_lapsed: self.lapsed_at.map(|moment| now.since(moment)),
            lapsed_job: self.lapsed_job,
            crashing: self.crashing,
            crashing_job: self.crashing_job,
            failed: self.failed,
            failed_job: self.failed_job,
        })
    }
}

/// The matrix of a chunk, as it was read.
///
/// # Errors
/// Somebody else has written a name that is none.
pub(crate) fn matrix_of(verb: &'static str, name: &str) -> Result<MatrixName, StoreError> {
    MatrixName::new(name).map_err(|problem| unreadable(verb, &problem))
}

fn unreadable(verb: &'static str, problem: &Invalid) -> StoreError {
    StoreError::new(verb, StoreErrorKind::Corrupt, problem.to_string())
        .hint("a row that was written by hand has a name that is none: set it right")
}

/// A state as the lists of jobs take it.
pub(crate) fn state_word(state: SyncState) -> &'static str {
    if state == SyncState::Lapsed {
        return "LAPSED";
    }
    state.as_str()
}

/// A stored count; it is never below zero.
pub(crate) fn unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

/// A count to be stored. What is too large was refused before.
pub(crate) fn signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Refuses jobs that must not be written.
pub(crate) fn check_jobs(jobs: &[NewJob]) -> Result<(), StoreError> {
    let checked = jobs.iter().try_for_each(NewJob::check);
    checked.map_err(|problem| StoreError::invalid("enqueue jobs", &problem))
}

/// The complaint about a second job that repeats the same one.
pub(crate) fn repeated() -> StoreError {
    let message = "another job repeats the same one already";
    StoreError::new("enqueue jobs", StoreErrorKind::Invalid, message)
        .hint("a job has one retry at most: retry that one")
}

/// Refuses a note of which a part must not be written.
pub(crate) fn check_note(note: &Note) -> Result<(), StoreError> {
    let checked = note.check();
    checked.map_err(|problem| StoreError::invalid("note job", &problem))
}

/// Refuses an end that must not be written.
pub(crate) fn check_end(end: &EndChunk) -> Result<(), StoreError> {
    let checked = end.check();
    checked.map_err(|problem| StoreError::invalid("end chunk", &problem))
}

/// How the hold on the job stands that a chunk is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum JobStands {
    /// It is the asker's and runs; or there is no job.
    Live,
    /// It is the asker's, but its term is over.
    Lapsed,
    /// It is not the asker's.
    Gone,
}

/// How a chunk stands, as somebody saw it.
#[derive(Debug)]
pub(crate) struct ChunkLook {
    pub(crate) now: Timestamp,
    pub(crate) job: JobStands,
    pub(crate) chunk: Option<SeenChunk>,
}

/// A chunk that is there.
#[derive(Debug)]
pub(crate) struct SeenChunk {
    pub(crate) until: Option<Timestamp>,
    pub(crate) holder: Option<String>,
    pub(crate) done_at: Option<Timestamp>,
    pub(crate) dead_at: Option<Timestamp>,
    pub(crate) synced_at: Option<Timestamp>,
    /// Held under the token that asks.
    pub(crate) is_mine: bool,
    /// What that token said last, if the last end was its own.
    pub(crate) word: Option<String>,
}

/// What a claim finds.
#[derive(Debug)]
pub(crate) enum Found {
    /// It is to be made.
    Absent,
    /// It may be taken.
    Free,
    /// It may not.
    Answer(ChunkClaim),
}

impl ChunkLook {
    /// Whether the chunk may be claimed, if not because it was done less than so long ago.
    pub(crate) fn found(&self, fresh_for: Option<Duration>) -> Found {
        if self.job != JobStands::Live {
            return Found::Answer(ChunkClaim::JobLost);
        }
        let Some(chunk) = &self.chunk else {
            return Found::Absent;
        };
        match SyncState::of(chunk.until, chunk.done_at, chunk.dead_at, self.now) {
            SyncState::Failed => Found::Answer(ChunkClaim::Failed),
            SyncState::Completed => {
                let at = chunk.done_at.unwrap_or(self.now);
                Found::Answer(ChunkClaim::Done { at })
            }
            SyncState::Running => Found::Answer(self.held()),
            SyncState::Available | SyncState::Lapsed => match (chunk.synced_at, fresh_for) {
                (Some(at), Some(span)) if self.now.before(span) < at => {
                    Found::Answer(ChunkClaim::Done { at })
                }
                _ => Found::Free,
            },
        }
    }

    /// Somebody has it: by a lease, or by a transaction that is not over.
    pub(crate) fn held(&self) -> ChunkClaim {
        let chunk = self.chunk.as_ref();
        ChunkClaim::Held {
            holder: chunk.and_then(|c| c.holder.clone()).unwrap_or_default(),
            until: chunk.and_then(|c| c.until).unwrap_or(self.now),
        }
    }

    /// What an end is told that was not carried out.
    pub(crate) fn refusal(&self) -> Refusal {
        let Some(chunk) = &self.chunk else {
            return Refusal::NotFound;
        };
        if chunk.is_mine {
            // It is held by the asker, so the term of one of the two leases is over; or the job is
            // another's.
            return match self.job {
                JobStands::Gone => Refusal::Lost,
                JobStands::Live | JobStands::Lapsed => Refusal::Lapsed,
            };
        }
        let state = SyncState::of(chunk.until, chunk.done_at, chunk.dead_at, self.now);
        refusal_of(Some(state.state()))
    }

    /// What an end is told that was not carried out: what the token said before counts as said.
    pub(crate) fn answer(&self, word: Option<&str>) -> Guarded<()> {
        let said = self.chunk.as_ref().and_then(|chunk| chunk.word.as_deref());
        if word.is_some() && said == word {
            return Guarded::Kept(());
        }
        Guarded::Refused(self.refusal())
    }
}

/// What a note is told that was not written: of a job with these moments, or of none.
pub(crate) fn note_refusal(job: Option<SeenJob>, now: Timestamp) -> Refusal {
    let Some(job) = job else {
        return Refusal::NotFound;
    };
    let state = SyncState::of(job.until, job.done_at, job.dead_at, now);
    if job.is_mine && state == SyncState::Lapsed {
        return Refusal::Lapsed;
    }
    refusal_of(Some(state.state()))
}

/// A job, as a note saw it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SeenJob {
    pub(crate) until: Option<Timestamp>,
    pub(crate) done_at: Option<Timestamp>,
    pub(crate) dead_at: Option<Timestamp>,
    /// Held under the token that asks.
    pub(crate) is_mine: bool,
}

/// What an end says, as the statements take it: the word, the rows, the error.
pub(crate) type Said = (Option<&'static str>, Option<i64>, Option<String>);

pub(crate) fn said(end: Option<&ChunkEnd>) -> Said {
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

/// What people do with jobs. What has ended stays ended: a job is repeated by a new one.
#[derive(Clone, Debug)]
pub(crate) struct JobDesk<R>(pub(crate) R);

impl<R: Operate> Operate for JobDesk<R> {
    fn find<'a>(&'a self, ids: &'a [ItemId]) -> Answer<'a, Vec<Record>> {
        self.0.find(ids)
    }

    fn timeline(&self, id: ItemId) -> Answer<'_, Vec<EndedHold>> {
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

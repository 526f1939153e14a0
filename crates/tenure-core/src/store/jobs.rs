//! Jobs and checkpoints: what workers, handlers and people ask of a store about them.

use std::fmt;
use std::time::Duration;

use super::{Answer, LeaseStore, Operate, Renewed, StoreError};
use crate::guard::{Guarded, Refusal};
use crate::job::{
    ChunkClaim, ChunkKey, ChunkName, ChunkRecord, Job, JobKind, KindStanding, MatrixName, NewJob,
    Note, Noted, Progress, Retried,
};
use crate::lease::Term;
use crate::table::SyncState;
use crate::time::Timestamp;
use crate::token::Token;

/// The hold on a job that a chunk is worked on for: a second fence.
#[derive(Clone, Debug)]
pub struct JobHold {
    /// Which job.
    pub id: i64,
    /// By which claim.
    pub token: Token,
}

/// The hold on a chunk, by its whole key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChunkHold {
    /// Which chunk.
    pub key: ChunkKey,
    /// By which claim.
    pub token: Token,
}

/// Which jobs to list.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Of this kind.
    pub kind: Option<JobKind>,
    /// On this matrix.
    pub matrix: Option<MatrixName>,
    /// In this state.
    pub state: Option<SyncState>,
    /// With a smaller number than this: the page before.
    pub before: Option<i64>,
}

/// Which of the chunks to list that somebody has in hand, or left there.
#[derive(Clone, Debug)]
pub struct HeldChunks {
    /// Of this matrix; `None`: of all on which the youngest job has not ended, or which have none.
    pub matrix: Option<MatrixName>,
    /// Only those whose term has been over for at least this long.
    pub lapsed_for: Option<Duration>,
    /// At most this many.
    pub limit: u32,
}

/// Asks for a chunk.
#[derive(Clone, Debug)]
pub struct ClaimChunk {
    /// Which.
    pub key: ChunkKey,
    /// The token of this claim, new for each; it names the holder.
    pub token: Token,
    /// How long the lease runs.
    pub term: Term,
    /// Not if it was done less than this long ago; `None`: however lately.
    pub fresh_for: Option<Duration>,
    /// For this job; `None`: for none, as helpers on a matrix do.
    pub job: Option<JobHold>,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

/// How the hold on a chunk ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkEnd {
    /// Done, with so many rows; it may be done again later.
    Synced {
        /// How many.
        row_count: u64,
    },
    /// Done for good, with so many rows.
    Completed {
        /// How many.
        row_count: u64,
    },
    /// It went wrong; it may be tried again.
    Failed {
        /// How.
        error: String,
    },
    /// It went wrong and is given up; final.
    Dead {
        /// How.
        error: String,
    },
    /// Given back as it is.
    Released,
}

/// Ends the hold on a chunk, or writes down where it is and keeps it.
#[derive(Clone, Debug)]
pub struct EndChunk {
    /// Which.
    pub key: ChunkKey,
    /// By which claim.
    pub token: Token,
    /// For this job.
    pub job: Option<JobHold>,
    /// How; `None`: it goes on.
    pub end: Option<ChunkEnd>,
    /// Where it is; `None` leaves what is there.
    pub cursor: Option<String>,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

/// Asks to prolong leases on chunks.
#[derive(Clone, Debug)]
pub struct RenewChunks {
    /// The holds.
    pub holds: Vec<ChunkHold>,
    /// They run at least this long from now; never shorter than before.
    pub term: Term,
    /// The moment, for tests.
    pub now: Option<Timestamp>,
}

impl RenewChunks {
    /// Renews these holds for `term`.
    pub fn new(holds: Vec<ChunkHold>, term: Term) -> Self {
        Self {
            holds,
            term,
            now: None,
        }
    }

    /// At this moment.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// Jobs and the checkpoints of their chunks.
pub trait Jobs: Send + Sync + fmt::Debug {
    /// Writes all of these jobs or none; their numbers in order.
    fn enqueue_jobs<'a>(
        &'a self,
        jobs: &'a [NewJob],
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<i64>>;

    /// Writes a job that repeats one which has ended, unless another that is kept does so already:
    /// however many ask at once, one job is written.
    fn retry_job(&self, id: i64, now: Option<Timestamp>) -> Answer<'_, Retried>;

    /// One job.
    fn job(&self, id: i64, now: Option<Timestamp>) -> Answer<'_, Option<Job>>;

    /// Jobs, the newest first, at most `limit`.
    fn jobs<'a>(&'a self, filter: &'a JobFilter, limit: u32) -> Answer<'a, Vec<Job>>;

    /// Writes down something of a job, if the hold is still this one.
    fn note_job<'a>(&'a self, hold: &'a JobHold, note: &'a Note) -> Answer<'a, Noted>;

    /// The leases of jobs: claimed one at a time, the urgent first, then the oldest.
    fn job_leases(&self) -> &dyn LeaseStore;

    /// What people do with jobs: cancelling one is burying it.
    fn job_desk(&self) -> &dyn Operate;

    /// Asks for a chunk; one that is not there yet is made. Never waits for another's transaction.
    fn claim_chunk<'a>(&'a self, claim: &'a ClaimChunk) -> Answer<'a, ChunkClaim>;

    /// Prolongs leases on chunks; answers for each hold in order, as [`LeaseStore::renew`] does.
    fn renew_chunks<'a>(
        &'a self,
        renew: &'a RenewChunks,
    ) -> Answer<'a, Vec<(ChunkHold, Guarded<Renewed>)>>;

    /// Ends the hold on a chunk by its whole key and its token.
    fn end_chunk<'a>(&'a self, end: &'a EndChunk) -> Answer<'a, Guarded<()>>;

    /// Chunks of a matrix in the order of their names, those behind `after`, at most `limit`.
    fn chunks<'a>(
        &'a self,
        matrix: &'a MatrixName,
        after: Option<&'a ChunkName>,
        limit: u32,
    ) -> Answer<'a, Vec<ChunkRecord>>;

    /// At most `limit` chunks of a matrix that people should see: first those that somebody has in
    /// hand or left there, then those that failed for good, then those that were given back with an
    /// error.
    fn notable_chunks<'a>(
        &'a self,
        matrix: &'a MatrixName,
        limit: u32,
    ) -> Answer<'a, Vec<ChunkRecord>>;

    /// Chunks that somebody has in hand or left there, those first whose term ends or ended first.
    fn held_chunks<'a>(
        &'a self,
        which: &'a HeldChunks,
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<ChunkRecord>>;

    /// How the jobs of each kind stand that have not ended or failed less than `lately` ago, by
    /// the name of the kind.
    fn kinds(&self, lately: Duration, now: Option<Timestamp>) -> Answer<'_, Vec<KindStanding>>;

    /// How far the work on a matrix has come.
    fn progress<'a>(
        &'a self,
        matrix: &'a MatrixName,
        now: Option<Timestamp>,
    ) -> Answer<'a, Progress>;
}

/// A store that may keep jobs.
pub trait KeepsJobs: Send + Sync + fmt::Debug {
    /// What keeps them; `None`: this store keeps none.
    fn job_book(&self) -> Option<&dyn Jobs> {
        None
    }
}

/// Why a checkpoint was not written in the caller's own transaction.
///
/// ```
/// use tenure_core::Refusal;
/// use tenure_core::store::CheckpointError;
///
/// let error = CheckpointError::Refused(Refusal::Lost);
/// assert!(error.to_string().contains("roll the transaction back"));
/// ```
#[derive(Debug)]
pub enum CheckpointError {
    /// The work is not the caller's any more: the transaction must be rolled back, or what it did
    /// would be done twice.
    Refused(Refusal),
    /// The store could not be asked; the transaction is to be rolled back as well.
    Store(StoreError),
}

impl fmt::Display for CheckpointError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(why) => {
                write!(
                    f,
                    "the checkpoint was refused, roll the transaction back: {why}"
                )
            }
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CheckpointError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(_) => None,
            Self::Store(error) => error.source(),
        }
    }
}

impl From<StoreError> for CheckpointError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

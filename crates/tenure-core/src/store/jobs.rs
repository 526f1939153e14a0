//! Jobs and checkpoints: the store operations for workers, handlers and operators.

use std::fmt;
use std::time::Duration;

use super::{Answer, LeaseStore, Operate, Renewed, StoreError, StoreErrorKind};
use crate::guard::{Guarded, Refusal};
use crate::job::{
    ChunkClaim, ChunkKey, ChunkName, ChunkRecord, Job, JobId, JobKind, KindStatus, MatrixName,
    NewJob, Note, Noted, Progress, Retried,
};
use crate::lease::Term;
use crate::table::SyncState;
use crate::time::Timestamp;
use crate::token::Token;

/// Proof of the lease on a job. Writes to a chunk that is held for the job also check this lease.
#[derive(Clone, Debug)]
pub struct JobHold {
    /// Number of the job.
    pub id: JobId,
    /// Token of the claim.
    pub token: Token,
}

/// Proof of the lease on a chunk.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChunkHold {
    /// Key of the chunk.
    pub key: ChunkKey,
    /// Token of the claim.
    pub token: Token,
}

/// Filter for listing jobs.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Only this kind.
    pub kind: Option<JobKind>,
    /// Only this matrix.
    pub matrix: Option<MatrixName>,
    /// Only this state.
    pub state: Option<SyncState>,
    /// Only lower numbers, for the next page of older jobs.
    pub before: Option<JobId>,
}

/// Filter for chunks under a lease, live or lapsed.
#[derive(Clone, Debug)]
pub struct HeldChunks {
    /// Only this matrix; `None` for all matrices whose newest job is open, or which have no job.
    pub matrix: Option<MatrixName>,
    /// Only chunks whose lease has been over for at least this long.
    pub lapsed_for: Option<Duration>,
    /// Maximum number of chunks.
    pub limit: u32,
}

/// Claim of a chunk.
#[derive(Clone, Debug)]
pub struct ClaimChunk {
    /// Key of the chunk.
    pub key: ChunkKey,
    /// New token of this claim; it names the holder.
    pub token: Token,
    /// Length of the lease.
    pub term: Term,
    /// Skip the chunk if it was done less than this long ago; `None` claims it even then.
    pub fresh_for: Option<Duration>,
    /// Job for which it is claimed; `None` if the caller works on the matrix without a job.
    pub job: Option<JobHold>,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

/// Result with which the lease on a chunk ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChunkEnd {
    /// The chunk is done; it may be done again later.
    Synced {
        /// Number of rows.
        row_count: u64,
    },
    /// The chunk is done for good.
    Completed {
        /// Number of rows.
        row_count: u64,
    },
    /// The chunk failed; it may be retried.
    Failed {
        /// Error text.
        error: String,
    },
    /// The chunk failed for good.
    Dead {
        /// Error text.
        error: String,
    },
    /// The chunk is released unchanged.
    Released,
}

/// Ends the lease on a chunk, or saves its cursor and keeps the lease.
#[derive(Clone, Debug)]
pub struct EndChunk {
    /// Key of the chunk.
    pub key: ChunkKey,
    /// Token of the claim.
    pub token: Token,
    /// Job for which it is held.
    pub job: Option<JobHold>,
    /// Result that ends the lease; `None` keeps the lease.
    pub end: Option<ChunkEnd>,
    /// New cursor; `None` leaves it unchanged.
    pub cursor: Option<String>,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

/// Renewal of leases on chunks.
#[derive(Clone, Debug)]
pub struct RenewChunks {
    /// Leases to renew.
    pub holds: Vec<ChunkHold>,
    /// New length from now; a renewal never shortens a lease.
    pub term: Term,
    /// Overrides the current time, for tests.
    pub now: Option<Timestamp>,
}

impl RenewChunks {
    /// Creates a request to renew these leases for `term`.
    pub fn new(holds: Vec<ChunkHold>, term: Term) -> Self {
        Self {
            holds,
            term,
            now: None,
        }
    }

    /// Overrides the current time, for tests.
    #[must_use]
    pub fn at(mut self, now: Timestamp) -> Self {
        self.now = Some(now);
        self
    }
}

/// Store operations for jobs and the checkpoints of their chunks.
pub trait Jobs: Send + Sync + fmt::Debug {
    /// Writes all of these jobs or none; returns their numbers in order.
    fn enqueue_jobs<'a>(
        &'a self,
        jobs: &'a [NewJob],
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<JobId>>;

    /// Writes a job that repeats a settled one, unless such a retry is stored already. Of
    /// concurrent calls only one writes a job.
    fn retry_job(&self, id: JobId, now: Option<Timestamp>) -> Answer<'_, Retried>;

    /// Reads one job.
    fn job(&self, id: JobId, now: Option<Timestamp>) -> Answer<'_, Option<Job>>;

    /// Lists jobs, newest first, at most `limit`.
    fn jobs<'a>(&'a self, filter: &'a JobFilter, limit: u32) -> Answer<'a, Vec<Job>>;

    /// Saves values with a job, if the lease is still valid.
    fn note_job<'a>(&'a self, hold: &'a JobHold, note: &'a Note) -> Answer<'a, Noted>;

    /// Leases on jobs. A claim takes jobs by priority, then oldest first.
    fn job_leases(&self) -> &dyn LeaseStore;

    /// Operations on jobs for operators. Burying a job cancels it.
    fn job_operations(&self) -> &dyn Operate;

    /// Claims a chunk, creating it if needed. Never waits for another transaction.
    fn claim_chunk<'a>(&'a self, claim: &'a ClaimChunk) -> Answer<'a, ChunkClaim>;

    /// Renews leases on chunks; returns a result for each lease in order, like
    /// [`LeaseStore::renew`].
    fn renew_chunks<'a>(
        &'a self,
        renew: &'a RenewChunks,
    ) -> Answer<'a, Vec<(ChunkHold, Guarded<Renewed>)>>;

    /// Ends the lease on a chunk, or saves its cursor and keeps the lease.
    fn end_chunk<'a>(&'a self, end: &'a EndChunk) -> Answer<'a, Guarded<()>>;

    /// Lists chunks of a matrix by name, starting after `after`, at most `limit`.
    fn chunks<'a>(
        &'a self,
        matrix: &'a MatrixName,
        after: Option<&'a ChunkName>,
        limit: u32,
    ) -> Answer<'a, Vec<ChunkRecord>>;

    /// Lists at most `limit` chunks of a matrix that need attention: first those under a lease,
    /// live or lapsed, then those that failed for good, then those released with an error.
    fn notable_chunks<'a>(
        &'a self,
        matrix: &'a MatrixName,
        limit: u32,
    ) -> Answer<'a, Vec<ChunkRecord>>;

    /// Lists chunks under a lease, live or lapsed, earliest end of term first.
    fn held_chunks<'a>(
        &'a self,
        which: &'a HeldChunks,
        now: Option<Timestamp>,
    ) -> Answer<'a, Vec<ChunkRecord>>;

    /// Status of each kind with open jobs or with failures less than `lately` ago, by name.
    fn kinds(&self, lately: Duration, now: Option<Timestamp>) -> Answer<'_, Vec<KindStatus>>;

    /// Progress of the work on a matrix.
    fn progress<'a>(
        &'a self,
        matrix: &'a MatrixName,
        now: Option<Timestamp>,
    ) -> Answer<'a, Progress>;
}

/// A store that may support jobs.
pub trait ProvidesJobs: Send + Sync + fmt::Debug {
    /// Jobs of this store; `None` if it does not support them.
    fn job_store(&self) -> Option<&dyn Jobs> {
        None
    }
}

/// Reason why nothing was written for a job or a chunk.
///
/// ```
/// use tenure_core::Refusal;
/// use tenure_core::store::HoldError;
///
/// let error = HoldError::Refused(Refusal::Lost);
/// assert!(error.is_over(), "another worker may hold it: stop");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The lease is over, and nothing was changed. Roll back your own transaction, because another
    /// worker may repeat its work.
    #[error("the hold is over: {0}")]
    Refused(Refusal),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl HoldError {
    /// Returns true if the lease is over.
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

/// Turns a refusal into an error.
///
/// # Errors
/// The write was refused.
pub fn accepted(answer: Guarded) -> Result<(), HoldError> {
    match answer {
        Guarded::Accepted(()) => Ok(()),
        Guarded::Refused(why) => Err(HoldError::Refused(why)),
    }
}

/// Returns the only number in the answer to the enqueue of one job.
///
/// # Errors
/// The answer is empty.
pub fn only_job(ids: &[JobId]) -> Result<JobId, StoreError> {
    ids.first().copied().ok_or_else(|| {
        let message = "the store answered for no job; expected one answer";
        StoreError::new("enqueue", StoreErrorKind::Corrupt, message)
    })
}

//! Jobs: long work, done chunk by chunk, that another worker can resume where the last one stopped.
//!
//! A job is a leased row; its state derives from its timestamps ([`SyncState`]). A *matrix* is a
//! set of chunks that jobs work through; the checkpoint of a chunk is a separate row, leased under
//! the key of matrix and chunk. Several jobs may work on one matrix.
//!
//! [`SyncState`]: crate::SyncState

mod bounds;
mod chunk;
mod kinds;
mod name;
mod progress;

pub use bounds::{COUNT_MAX, CURSOR_BYTES_MAX};
pub use chunk::{Chunk, ChunkClaim, ChunkKey, ChunkRecord};
pub use kinds::KindStatus;
pub use name::{ChunkName, JobKind, MatrixName};
pub use progress::Progress;

use std::fmt;

use crate::guard::{Guarded, Refusal};
use crate::invalid::Invalid;
use crate::item::{Counters, Hold, ItemId};
use crate::table::SyncState;
use crate::time::Timestamp;

/// A job to be written.
///
/// ```
/// use tenure_core::job::NewJob;
///
/// let job = NewJob::new("import.orders", r#"{"from": 2020}"#)?.priority(5);
/// assert_eq!(job.kind.as_str(), "import.orders");
/// assert!(NewJob::new("import.orders", "no json").is_err());
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewJob {
    /// Kind of work: it selects the handler.
    pub kind: JobKind,
    /// Input of the handler: JSON, stored as given.
    pub payload: String,
    /// Claim order: higher numbers first.
    pub priority: i16,
    /// Set of chunks to work through; `None` gives the job a matrix of its own.
    pub matrix: Option<MatrixName>,
    /// Delay before the first claim.
    pub delay: std::time::Duration,
    /// Job that this one repeats.
    pub retry_of: Option<JobId>,
}

impl NewJob {
    /// A job of this kind with this payload, without delay.
    ///
    /// # Errors
    /// The kind is not a valid name, or the payload is not JSON or exceeds 1 MiB.
    pub fn new(kind: &str, payload: &str) -> Result<Self, Invalid> {
        // A payload has the limits of an event's payload.
        let event = crate::Event::from_json("job", payload.to_owned())?;
        Ok(Self {
            kind: JobKind::new(kind)?,
            payload: event.payload().to_owned(),
            priority: 0,
            matrix: None,
            delay: std::time::Duration::ZERO,
            retry_of: None,
        })
    }

    /// Sets the priority.
    #[must_use]
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the matrix; other jobs may work on it, too.
    #[must_use]
    pub fn matrix(mut self, matrix: MatrixName) -> Self {
        self.matrix = Some(matrix);
        self
    }
}

/// Number of a job within its store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JobId(i64);

impl JobId {
    /// Creates the id with this number.
    pub const fn new(number: i64) -> Self {
        Self(number)
    }

    /// Raw number.
    pub const fn number(self) -> i64 {
        self.0
    }
}

impl From<JobId> for ItemId {
    /// Converts the id of a job to the id of its item.
    fn from(id: JobId) -> Self {
        Self::new(id.0)
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A stored job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Number of the job; each new job gets a higher one.
    pub id: JobId,
    /// Kind of work.
    pub kind: JobKind,
    /// Set of chunks that it works through.
    pub matrix: MatrixName,
    /// Input of the handler: JSON.
    pub payload: String,
    /// Claim order: higher numbers first.
    pub priority: i16,
    /// State, derived from its timestamps.
    pub state: SyncState,
    /// Current lease, if there is one.
    pub hold: Option<Hold>,
    /// Numbers of leases, failures and lapses.
    pub counters: Counters,
    /// Time at which the job was written.
    pub created_at: Timestamp,
    /// Earliest time of a claim; `None` for at once.
    pub available_at: Option<Timestamp>,
    /// Time of completion.
    pub completed_at: Option<Timestamp>,
    /// Time of the final failure or cancellation.
    pub failed_at: Option<Timestamp>,
    /// An operator cancelled the job; `error` is the reason.
    pub is_cancelled: bool,
    /// Last error.
    pub error: Option<String>,
    /// Result of the handler: JSON.
    pub result: Option<String>,
    /// Last cursor that the handler saved.
    pub cursor: Option<String>,
    /// Number of chunks, as reported by the handler.
    pub chunks_total: Option<u64>,
    /// Job that this one repeats.
    pub retry_of: Option<JobId>,
}

/// Result of retrying a job. A job has at most one retry until that retry is pruned; to repeat the
/// work once more, retry the retry.
///
/// ```
/// use tenure_core::Refusal;
/// use tenure_core::job::{JobId, Retried};
///
/// let id = JobId::new(18);
/// assert_eq!(Retried::Before(id).id(), Some(id));
/// assert_eq!(Retried::Refused(Refusal::NotSettled).id(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "nothing may have been written"]
pub enum Retried {
    /// A job with this number was written.
    Written(JobId),
    /// The job already has a retry, with this number; nothing was written.
    Before(JobId),
    /// The job is not settled, or does not exist.
    Refused(Refusal),
}

impl Retried {
    /// Number of the retry, new or existing.
    pub const fn id(self) -> Option<JobId> {
        match self {
            Self::Written(id) | Self::Before(id) => Some(id),
            Self::Refused(_) => None,
        }
    }
}

/// Values that a holder saves with its job; `None` leaves a value unchanged.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Position of the work.
    pub cursor: Option<String>,
    /// Number of chunks.
    pub chunks_total: Option<u64>,
    /// Result: JSON.
    pub result: Option<String>,
}

/// Result of saving a [`Note`]; refused if the lease on the job is lost.
pub type Noted = Guarded<()>;

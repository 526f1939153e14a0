//! Jobs: long work, done chunk by chunk, that whoever comes next can take up where it was left.
//!
//! A job is a row that is leased; its state is read from its moments ([`SyncState`]). A chunk is a
//! part of the work of a *matrix*, the thing that is worked through; its checkpoint is a row of its
//! own, leased under the whole key of matrix and chunk. Several jobs may work on one matrix.
//!
//! [`SyncState`]: crate::SyncState

mod bounds;
mod chunk;
mod kinds;
mod name;
mod progress;

pub use bounds::{COUNT_MAX, CURSOR_BYTES_MAX};
pub use chunk::{Chunk, ChunkClaim, ChunkKey, ChunkRecord};
pub use kinds::KindStanding;
pub use name::{ChunkName, JobKind, MatrixName};
pub use progress::Progress;

use crate::guard::{Guarded, Refusal};
use crate::invalid::Invalid;
use crate::item::{Counters, Hold};
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
    /// What is to be done: it chooses the handler.
    pub kind: JobKind,
    /// With what: JSON, kept as it was written.
    pub payload: String,
    /// The urgent first: larger numbers.
    pub priority: i16,
    /// What is worked through; `None`: something of this job alone.
    pub matrix: Option<MatrixName>,
    /// Not to be claimed before this long has passed.
    pub delay: std::time::Duration,
    /// The job that this one repeats.
    pub retry_of: Option<i64>,
}

impl NewJob {
    /// A job of this kind with this payload, to be done at once.
    ///
    /// # Errors
    /// The kind is no name, or the payload no JSON or over 1 MiB.
    pub fn new(kind: &str, payload: &str) -> Result<Self, Invalid> {
        // What an event's payload may be, a job's may be.
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

    /// As urgent as this.
    #[must_use]
    pub fn priority(mut self, priority: i16) -> Self {
        self.priority = priority;
        self
    }

    /// On the chunks of this matrix, maybe beside other jobs.
    #[must_use]
    pub fn matrix(mut self, matrix: MatrixName) -> Self {
        self.matrix = Some(matrix);
        self
    }
}

/// A job as it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Its number; later ones have higher ones.
    pub id: i64,
    /// What is to be done.
    pub kind: JobKind,
    /// What is worked through.
    pub matrix: MatrixName,
    /// With what: JSON.
    pub payload: String,
    /// The urgent first.
    pub priority: i16,
    /// Where it stands.
    pub state: SyncState,
    /// Who has it, if someone does.
    pub hold: Option<Hold>,
    /// How often it was held, failed and lapsed.
    pub counters: Counters,
    /// When it was written.
    pub created_at: Timestamp,
    /// Not to be claimed before; `None`: at once.
    pub available_at: Option<Timestamp>,
    /// When it was completed.
    pub completed_at: Option<Timestamp>,
    /// When it failed for good or was cancelled.
    pub failed_at: Option<Timestamp>,
    /// Whether somebody cancelled it; then `error` says why.
    pub is_cancelled: bool,
    /// What went wrong last.
    pub error: Option<String>,
    /// What its handler said of its result: JSON.
    pub result: Option<String>,
    /// Where its handler was, as it wrote it down last.
    pub cursor: Option<String>,
    /// How many chunks there are, as its handler said.
    pub chunks_total: Option<u64>,
    /// The job that this one repeats.
    pub retry_of: Option<i64>,
}

/// What came of the order to repeat a job. A job is repeated once at most, for as long as its retry
/// is kept and not pruned: what fails again is repeated by a retry of the retry.
///
/// ```
/// use tenure_core::Refusal;
/// use tenure_core::job::Retried;
///
/// assert_eq!(Retried::Before(18).id(), Some(18));
/// assert_eq!(Retried::Refused(Refusal::NotSettled).id(), None);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "nothing may have been written"]
pub enum Retried {
    /// The job with this number was written.
    Written(i64),
    /// The job with this number repeats it already, and nothing was written.
    Before(i64),
    /// It has not ended, or there is no such job.
    Refused(Refusal),
}

impl Retried {
    /// The job that repeats it, whoever wrote that.
    pub const fn id(self) -> Option<i64> {
        match self {
            Self::Written(id) | Self::Before(id) => Some(id),
            Self::Refused(_) => None,
        }
    }
}

/// What a holder writes down of its job; `None` leaves what is there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Note {
    /// Where it is.
    pub cursor: Option<String>,
    /// How many chunks there are.
    pub chunks_total: Option<u64>,
    /// What came of it: JSON.
    pub result: Option<String>,
}

/// Whether what a holder wrote was taken; refused when the hold is not its any more.
pub type Noted = Guarded<()>;

//! A job in the hands of its handler.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::job::{Job, Note};
use tenure_core::store::{CheckpointError, JobHold, StoreError};
use tenure_core::{Fence, Guarded, Refusal};
use tenure_engine::Context;
use tokio::time::Instant;

use crate::chunk::{ChunkAsk, Workplace};
use crate::jobs::book;

/// Why something was not written for a job or a chunk.
///
/// ```
/// use tenure::{HoldError, Refusal};
///
/// let error = HoldError::Refused(Refusal::Lost);
/// assert!(error.is_over(), "somebody else may have it: leave it");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HoldError {
    /// The hold is over, and nothing was changed. Whoever has it now goes on; roll a transaction
    /// back that was to be committed with it.
    #[error("the hold is over: {0}")]
    Refused(Refusal),
    /// The store could not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl HoldError {
    /// Whether the work is no longer the caller's.
    pub const fn is_over(&self) -> bool {
        matches!(self, Self::Refused(_))
    }
}

impl From<CheckpointError> for HoldError {
    fn from(error: CheckpointError) -> Self {
        match error {
            CheckpointError::Refused(why) => Self::Refused(why),
            CheckpointError::Store(error) => Self::Store(error),
        }
    }
}

/// A guarded answer as a result: what is refused is an error to whoever works.
pub(crate) fn kept(answer: Guarded) -> Result<(), HoldError> {
    match answer {
        Guarded::Kept(()) => Ok(()),
        Guarded::Refused(why) => Err(HoldError::Refused(why)),
    }
}

/// A job in the hands of its handler.
///
/// The clones are the same hold, for work that is handed to others. Everything that is written
/// through it is refused once the hold is over.
///
/// ```
/// use tenure::{ChunkAnswer, Failure, HeldJob, Outcome};
///
/// async fn import(job: HeldJob) -> Result<Outcome, Failure> {
///     let first: u64 = job.cursor().map_or(Ok(0), str::parse)?; // where it was left
///     job.total(10).await?;
///     for month in first..10 {
///         let chunk = match job.chunk(&format!("month-{month}")).wait().await? {
///             ChunkAnswer::Claimed(chunk) => chunk,
///             _ => continue, // done already, or failed for good
///         };
///         let rows = 1000; // work here
///         chunk.complete(rows).await?;
///         job.checkpoint(&(month + 1).to_string()).await?;
///     }
///     job.result(&serde_json::json!({"months": 10}).to_string()).await?;
///     Ok(Outcome::Done)
/// }
/// ```
#[derive(Clone)]
pub struct HeldJob {
    inner: Arc<Inner>,
}

struct Inner {
    job: Job,
    cx: Context,
    hold: JobHold,
    place: Arc<Workplace>,
    /// When it is to end, if that is before the engine ends it.
    ends_at: Option<Instant>,
}

impl HeldJob {
    /// This job under this hold; its chunks are asked for at this place.
    pub(crate) fn new(
        job: Job,
        cx: Context,
        mut place: Workplace,
        ends_at: Option<Instant>,
    ) -> Self {
        let hold = JobHold {
            id: job.id,
            token: cx.token().clone(),
        };
        place.job = Some((hold.clone(), cx.clone()));
        Self {
            inner: Arc::new(Inner {
                job,
                cx,
                hold,
                place: Arc::new(place),
                ends_at,
            }),
        }
    }

    /// Its number.
    pub fn id(&self) -> i64 {
        self.inner.job.id
    }

    /// The job as it stood when it was claimed.
    pub fn job(&self) -> &Job {
        &self.inner.job
    }

    /// With what it is to be done: JSON.
    pub fn payload(&self) -> &str {
        &self.inner.job.payload
    }

    /// Where its last handler was, as that wrote it down; `None`: at the beginning.
    pub fn cursor(&self) -> Option<&str> {
        self.inner.job.cursor.as_deref()
    }

    /// How often it was held before, and once more: 1 at the first try.
    pub fn attempt(&self) -> u32 {
        self.inner.cx.attempt()
    }

    /// The number of the claim. Hand it to the receiver: it refuses what is older than what it has
    /// seen.
    pub fn fence(&self) -> Fence {
        self.inner.cx.fence()
    }

    /// How long the handler may go on; then it is stopped, and the job is tried again.
    pub fn time_left(&self) -> Duration {
        let left = self.inner.cx.time_left();
        let ends_at = self.inner.ends_at;
        ends_at.map_or(left, |at| at.duration_since(Instant::now()).min(left))
    }

    /// Whether the hold is over: the job was cancelled, or somebody else may have it.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cx.is_cancelled()
    }

    /// Waits until the hold is over. A handler is dropped then by itself; this is for work that it
    /// has handed to others.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static {
        let cx = self.inner.cx.clone();
        async move { cx.cancelled().await }
    }

    /// Asks for a chunk of its matrix. The chunk is worked on for this job: what is written for it
    /// is refused once the hold on the job is over.
    pub fn chunk(&self, name: &str) -> ChunkAsk {
        ChunkAsk::new(Arc::clone(&self.inner.place), name)
    }

    /// Writes down where it is: whoever takes the job up next begins there. A cursor has at most
    /// 64 KiB and no NUL character.
    ///
    /// # Errors
    /// The hold is over, the cursor is none, or the store could not answer.
    pub async fn checkpoint(&self, cursor: &str) -> Result<(), HoldError> {
        self.note(&at(cursor)).await
    }

    /// Writes down how many chunks there are, for those who watch the progress.
    ///
    /// # Errors
    /// As [`HeldJob::checkpoint`].
    pub async fn total(&self, chunks: u64) -> Result<(), HoldError> {
        let note = Note {
            chunks_total: Some(chunks),
            ..Note::default()
        };
        self.note(&note).await
    }

    /// Writes down what came of it: JSON.
    ///
    /// # Errors
    /// As [`HeldJob::checkpoint`], and when it is no JSON or over 1 MiB.
    pub async fn result(&self, json: &str) -> Result<(), HoldError> {
        let note = Note {
            result: Some(json.to_owned()),
            ..Note::default()
        };
        self.note(&note).await
    }

    /// Writes down several things at once: all of them or none.
    ///
    /// ```
    /// use tenure::job::Note;
    /// use tenure::{HeldJob, HoldError};
    ///
    /// async fn begin(job: &HeldJob) -> Result<(), HoldError> {
    ///     let note = Note {
    ///         cursor: Some("2026-01".to_owned()),
    ///         chunks_total: Some(12),
    ///         ..Note::default()
    ///     };
    ///     job.note(&note).await
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`HeldJob::checkpoint`], and when [`Note::check`] refuses it.
    pub async fn note(&self, note: &Note) -> Result<(), HoldError> {
        let place = &self.inner.place;
        kept(book(&place.tenure)?.note_job(self.hold(), note).await?)
    }

    /// What proves the hold.
    pub(crate) fn hold(&self) -> &JobHold {
        &self.inner.hold
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn tenure(&self) -> &crate::tenure::Tenure {
        &self.inner.place.tenure
    }
}

/// A note of where a job is.
pub(crate) fn at(cursor: &str) -> Note {
    Note {
        cursor: Some(cursor.to_owned()),
        ..Note::default()
    }
}

impl fmt::Debug for HeldJob {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldJob")
            .field("id", &self.id())
            .field("kind", &self.inner.job.kind)
            .field("attempt", &self.attempt())
            .finish_non_exhaustive()
    }
}

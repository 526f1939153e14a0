//! `HeldJob`: a job held by its handler.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::job::{Job, JobId, Note};
use tenure_core::store::{HoldError, JobHold, accepted};
use tenure_core::{Fence, TraceParent};
use tenure_engine::Context;
use tokio::time::Instant;

use crate::chunk::{ChunkAsk, Workplace};
use crate::tenure::Tenure;

/// A job held by its handler.
///
/// Clones share the hold, for tasks that the handler spawns. All writes through it are refused once
/// the hold is over.
///
/// ```
/// use tenure::job::{ChunkAnswer, HeldJob};
/// use tenure::{Failure, Outcome};
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
    inner: Arc<HeldJobInner>,
}

struct HeldJobInner {
    job: Job,
    cx: Context,
    hold: JobHold,
    place: Arc<Workplace>,
    /// Deadline of the handler, if it is earlier than the engine's.
    ends_at: Option<Instant>,
}

impl HeldJob {
    /// Combines a job with its hold; its chunks are claimed with `place`.
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
            inner: Arc::new(HeldJobInner {
                job,
                cx,
                hold,
                place: Arc::new(place),
                ends_at,
            }),
        }
    }

    /// Number of the job.
    pub fn id(&self) -> JobId {
        self.inner.job.id
    }

    /// The job as it was at the claim.
    pub fn job(&self) -> &Job {
        &self.inner.job
    }

    /// Payload of the job: JSON.
    pub fn payload(&self) -> &str {
        &self.inner.job.payload
    }

    /// Last saved cursor; `None` at the beginning.
    pub fn cursor(&self) -> Option<&str> {
        self.inner.job.cursor.as_deref()
    }

    /// Number of the attempt, starting with 1.
    pub fn attempt(&self) -> u32 {
        self.inner.cx.attempt()
    }

    /// Number of the claim. Send it along: the receiver can refuse a lower fence for the same job.
    pub fn fence(&self) -> Fence {
        self.inner.cx.fence()
    }

    /// Position in the trace, to be passed on; see [`Context::trace_parent`].
    pub fn trace_parent(&self) -> Option<TraceParent> {
        self.inner.cx.trace_parent()
    }

    /// Time until the handler is cancelled and the job is retried.
    pub fn time_left(&self) -> Duration {
        let left = self.inner.cx.time_left();
        let ends_at = self.inner.ends_at;
        ends_at.map_or(left, |at| at.duration_since(Instant::now()).min(left))
    }

    /// Returns true if the hold is over: the job was cancelled, or another worker may hold it.
    pub fn is_cancelled(&self) -> bool {
        self.inner.cx.is_cancelled()
    }

    /// Waits until the hold is over. The handler itself is dropped then; this is for tasks that it
    /// spawned.
    pub fn cancelled(&self) -> impl Future<Output = ()> + Send + 'static {
        let cx = self.inner.cx.clone();
        async move { cx.cancelled().await }
    }

    /// Creates the request for a chunk of its matrix. Writes for the chunk are refused once the
    /// hold on the job is over.
    pub fn chunk(&self, name: &str) -> ChunkAsk {
        ChunkAsk::new(Arc::clone(&self.inner.place), name)
    }

    /// Saves the cursor, at which the next handler of the job begins: at most 64 KiB, without NUL
    /// characters.
    ///
    /// # Errors
    /// The hold is over, the cursor is not valid, or the store failed.
    pub async fn checkpoint(&self, cursor: &str) -> Result<(), HoldError> {
        self.note(&at(cursor)).await
    }

    /// Saves the total number of chunks, for progress reports.
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

    /// Saves the result of the job: JSON.
    ///
    /// # Errors
    /// As [`HeldJob::checkpoint`], or the result is not JSON or exceeds 1 MiB.
    pub async fn result(&self, json: &str) -> Result<(), HoldError> {
        let note = Note {
            result: Some(json.to_owned()),
            ..Note::default()
        };
        self.note(&note).await
    }

    /// Saves several values at once, all or none.
    ///
    /// ```
    /// use tenure::job::{HeldJob, HoldError, Note};
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
    /// As [`HeldJob::checkpoint`], or [`Note::check`] fails.
    pub async fn note(&self, note: &Note) -> Result<(), HoldError> {
        let place = &self.inner.place;
        accepted(place.tenure.job_port()?.note_job(self.hold(), note).await?)
    }

    /// Id of the job and token of its lease.
    pub(crate) fn hold(&self) -> &JobHold {
        &self.inner.hold
    }

    pub(crate) fn tenure(&self) -> &Tenure {
        &self.inner.place.tenure
    }
}

/// A note with this cursor.
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

//! `Jobs`: enqueue, inspect, cancel and retry jobs, and build a worker on them.

use std::future::Future;
use std::time::Duration;

use tenure_core::job::{
    ChunkName, ChunkRecord, Job, JobId, KindStatus, MatrixName, NewJob, Progress, Retried,
};
use tenure_core::store::{
    Bury, Counts, HeldChunks, JobFilter, Jobs as Book, StoreError, StoreErrorKind, only_job,
};
use tenure_core::{Guarded, IntoOutcome, ItemId, Settings, Why};
use tenure_store::explain_job;

use crate::held_job::HeldJob;
use crate::tenure::Tenure;
use crate::worker::{JobSource, WorkerBuilder};

/// Jobs of a store: long work, done in chunks, which another worker can resume. Created by
/// [`Tenure::jobs`].
///
/// PostgreSQL and SQLite support jobs; the memory store does not.
///
/// ```
/// use tenure::job::{ChunkAnswer, HeldJob, NewJob};
/// use tenure::{Outcome, Tenure};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
/// let tenure = Tenure::open(&url).await?;
/// let jobs = tenure.jobs();
/// let job = NewJob::new("import.orders", r#"{"months": ["2026-10", "2026-11"]}"#)?;
/// let id = jobs.enqueue(job).await?;
///
/// let (sender, mut received) = tokio::sync::mpsc::channel(1);
/// let worker = jobs.on("import.orders", move |job: HeldJob| {
///     let sender = sender.clone();
///     async move {
///         job.total(2).await?;
///         for month in ["2026-10", "2026-11"] {
///             // A finished chunk is skipped, also if another worker did it.
///             if let ChunkAnswer::Claimed(chunk) = job.chunk(month).claim().await? {
///                 chunk.complete(1000).await?; // its rows
///             }
///         }
///         sender.send(()).await?;
///         Ok(Outcome::Done)
///     }
/// });
/// let worker = worker.start().await?;
/// received.recv().await;
/// worker.stop().await;
///
/// let job = jobs.find(id).await?.expect("it was enqueued");
/// assert!(job.completed_at.is_some());
/// assert_eq!(jobs.progress(&job.matrix).await?.rows, 2000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Jobs {
    tenure: Tenure,
}

impl Jobs {
    pub(crate) fn new(tenure: Tenure) -> Self {
        Self { tenure }
    }

    /// Writes a job in a transaction of its own; returns its number.
    ///
    /// # Errors
    /// The store does not support jobs, or the database is unavailable.
    pub async fn enqueue(&self, job: NewJob) -> Result<JobId, StoreError> {
        only_job(&self.enqueue_all(std::slice::from_ref(&job)).await?)
    }

    /// Writes all of these jobs or none; returns their numbers in order.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn enqueue_all(&self, jobs: &[NewJob]) -> Result<Vec<JobId>, StoreError> {
        let ids = self.tenure.job_port()?.enqueue_jobs(jobs, None).await?;
        self.tenure.wake();
        Ok(ids)
    }

    /// Reads one job.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn find(&self, id: JobId) -> Result<Option<Job>, StoreError> {
        self.tenure.job_port()?.job(id, None).await
    }

    /// Lists jobs, newest first, at most `limit`.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn list(&self, filter: &JobFilter, limit: u32) -> Result<Vec<Job>, StoreError> {
        self.tenure.job_port()?.jobs(filter, limit).await
    }

    /// Counts the jobs of all kinds by state. Lapsed jobs count as claimed; dead jobs have failed
    /// or were cancelled.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn count(&self) -> Result<Counts, StoreError> {
        self.tenure.job_port()?.job_operations().count(None).await
    }

    /// Settles a job as failed for this reason, even if a worker holds it. That worker's writes are
    /// refused from then on, and its handler is cancelled at the next heartbeat. Refused if the job
    /// has ended.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn cancel(&self, id: JobId, reason: &str) -> Result<Guarded, StoreError> {
        let bury = Bury::new(ItemId::from(id), self.tenure.token(), reason);
        self.tenure.job_port()?.job_operations().bury(&bury).await
    }

    /// Writes a new job with the same payload and matrix; it skips chunks that are done or failed
    /// for good. The ended job stays unchanged, and gets no second retry until the first is pruned,
    /// even if several callers ask at once; if the retry fails, retry that one. Refused if the job
    /// has not ended.
    ///
    /// ```
    /// use tenure::job::{NewJob, Retried};
    /// use tenure::lease::Refusal;
    /// use tenure::Tenure;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    /// let jobs = Tenure::open(&url).await?.jobs();
    /// let id = jobs.enqueue(NewJob::new("import.orders", "{}")?).await?;
    /// assert_eq!(jobs.retry(id).await?, Retried::Refused(Refusal::NotSettled));
    ///
    /// assert!(jobs.cancel(id, "the wrong file").await?.is_accepted());
    /// let Retried::Written(again) = jobs.retry(id).await? else { panic!("it has ended") };
    /// assert_eq!(jobs.find(again).await?.expect("it is there").retry_of, Some(id));
    /// assert_eq!(jobs.retry(id).await?, Retried::Before(again));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn retry(&self, id: JobId) -> Result<Retried, StoreError> {
        let retried = self.tenure.job_port()?.retry_job(id, None).await?;
        if matches!(retried, Retried::Written(_)) {
            self.tenure.wake();
        }
        Ok(retried)
    }

    /// Explains in one sentence why a job is not being worked on, or which worker holds it; `None`
    /// if it does not exist. Pass the settings of the workers, which limit retries and crashes.
    ///
    /// ```
    /// use tenure::job::NewJob;
    /// use tenure::{Settings, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    /// let jobs = Tenure::open(&url).await?.jobs();
    /// let id = jobs.enqueue(NewJob::new("import.orders", "{}")?).await?;
    /// let why = jobs.why(id, &Settings::default()).await?.expect("it was written");
    /// assert_eq!(why.sentence, "it is due, but no worker for jobs is running");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn why(&self, id: JobId, settings: &Settings) -> Result<Option<Why>, StoreError> {
        explain_job(self.tenure.store(), self.tenure.job_port()?, id, settings).await
    }

    /// Returns the status of each kind that has open jobs, or failures less than `lately` ago.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn kinds(&self, lately: Duration) -> Result<Vec<KindStatus>, StoreError> {
        self.tenure.job_port()?.kinds(lately, None).await
    }

    /// Lists chunks with a hold, live or lapsed, earliest end of term first.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn held_chunks(&self, which: &HeldChunks) -> Result<Vec<ChunkRecord>, StoreError> {
        self.tenure.job_port()?.held_chunks(which, None).await
    }

    /// Returns the progress of the work on a matrix.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn progress(&self, matrix: &MatrixName) -> Result<Progress, StoreError> {
        self.tenure.job_port()?.progress(matrix, None).await
    }

    /// Lists chunks of a matrix by name, starting after `after`, at most `limit`.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn chunks(
        &self,
        matrix: &MatrixName,
        after: Option<&ChunkName>,
        limit: u32,
    ) -> Result<Vec<ChunkRecord>, StoreError> {
        self.tenure.job_port()?.chunks(matrix, after, limit).await
    }

    /// Lists at most `limit` chunks of a matrix that need attention: first those with a hold, live
    /// or lapsed, then those that failed for good, then those released with an error.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn notable_chunks(
        &self,
        matrix: &MatrixName,
        limit: u32,
    ) -> Result<Vec<ChunkRecord>, StoreError> {
        self.tenure.job_port()?.notable_chunks(matrix, limit).await
    }

    /// Creates the builder of a worker that calls `function` with each job of this kind; see
    /// [`JobSource`].
    pub fn on<F, Fut>(&self, kind: &str, function: F) -> WorkerBuilder<JobSource>
    where
        F: Fn(HeldJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        WorkerBuilder::jobs(self.tenure.clone()).on(kind, function)
    }

    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }
}

impl Tenure {
    /// The job port of the open store; an error if it does not support jobs.
    pub(crate) fn job_port(&self) -> Result<&dyn Book, StoreError> {
        self.store().job_store().ok_or_else(|| {
            let message = "this store does not support jobs";
            StoreError::new("jobs", StoreErrorKind::Invalid, message)
                .with_hint("open an SQLite file or PostgreSQL")
        })
    }
}

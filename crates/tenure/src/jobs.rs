//! Jobs: what a program and its operators do with them. A worker on them is built here, too.

use std::future::Future;
use std::time::Duration;

use tenure_core::job::{
    ChunkName, ChunkRecord, Job, KindStanding, MatrixName, NewJob, Progress, Retried,
};
use tenure_core::store::{
    Bury, Counts, HeldChunks, JobFilter, Jobs as Book, StoreError, StoreErrorKind,
};
use tenure_core::{Failure, Guarded, ItemId, JobFacts, Outcome, Settings, Why, why_job};

use crate::held_job::HeldJob;
use crate::job_worker::JobWorkerBuilder;
use crate::operate::{WORKERS, credible, present};
use crate::tenure::Tenure;

/// So many chunks in hand are looked at to say why a job is not done.
const HELD_LOOKED_AT: u32 = 1_000;

/// Jobs on a store: long work, done chunk by chunk, that whoever comes next can take up where it
/// was left. [`Tenure::jobs`] gives them.
///
/// They are kept on PostgreSQL and SQLite; the memory store has none.
///
/// ```
/// use tenure::job::NewJob;
/// use tenure::{ChunkAnswer, HeldJob, Outcome, Tenure};
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
/// let (said, mut heard) = tokio::sync::mpsc::channel(1);
/// let worker = jobs.on("import.orders", move |job: HeldJob| {
///     let said = said.clone();
///     async move {
///         job.total(2).await?;
///         for month in ["2026-10", "2026-11"] {
///             // A chunk that is done is not done again, whoever did it.
///             if let ChunkAnswer::Claimed(chunk) = job.chunk(month).claim().await? {
///                 chunk.complete(1000).await?; // its rows
///             }
///         }
///         said.send(()).await?;
///         Ok(Outcome::Done)
///     }
/// });
/// let worker = worker.start().await?;
/// heard.recv().await;
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

    /// Writes a job in a transaction of its own; answers its number.
    ///
    /// # Errors
    /// The store keeps no jobs, or the database is away.
    pub async fn enqueue(&self, job: NewJob) -> Result<i64, StoreError> {
        let ids = self.enqueue_all(std::slice::from_ref(&job)).await?;
        first(&ids)
    }

    /// Writes all of these jobs or none; their numbers in order.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn enqueue_all(&self, jobs: &[NewJob]) -> Result<Vec<i64>, StoreError> {
        let ids = self.book()?.enqueue_jobs(jobs, None).await?;
        self.tenure.wake();
        Ok(ids)
    }

    /// One job.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn find(&self, id: i64) -> Result<Option<Job>, StoreError> {
        self.book()?.job(id, None).await
    }

    /// Jobs, the newest first, at most `limit`.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn list(&self, filter: &JobFilter, limit: u32) -> Result<Vec<Job>, StoreError> {
        self.book()?.jobs(filter, limit).await
    }

    /// How many jobs stand where, of all kinds together. Those that lapsed are among those that
    /// are claimed; those that are dead failed or were cancelled.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn count(&self) -> Result<Counts, StoreError> {
        self.book()?.job_desk().count(None).await
    }

    /// Ends a job as failed for this reason, whether somebody has it or not: whoever has it is
    /// refused from then on, and its handler is stopped at the next heartbeat. Refused when it has
    /// ended already.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn cancel(&self, id: i64, reason: &str) -> Result<Guarded, StoreError> {
        let bury = Bury::new(ItemId::new(id), self.tenure.token(), reason);
        self.book()?.job_desk().bury(&bury).await
    }

    /// Writes a new job with the same payload, on the same matrix: what is done of its chunks is
    /// not done again, nor what failed for good. A job has one retry at most, however many ask for
    /// one at once and for as long as that retry is kept: what fails again is repeated by a retry
    /// of its retry. Refused when the job has not ended: what has ended stays as it is.
    ///
    /// ```
    /// use tenure::job::{NewJob, Retried};
    /// use tenure::{Refusal, Tenure};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let folder = tempfile::tempdir()?;
    /// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    /// let jobs = Tenure::open(&url).await?.jobs();
    /// let id = jobs.enqueue(NewJob::new("import.orders", "{}")?).await?;
    /// assert_eq!(jobs.retry(id).await?, Retried::Refused(Refusal::NotSettled));
    ///
    /// assert!(jobs.cancel(id, "the wrong file").await?.is_kept());
    /// let Retried::Written(again) = jobs.retry(id).await? else { panic!("it has ended") };
    /// assert_eq!(jobs.find(again).await?.expect("it is there").retry_of, Some(id));
    /// assert_eq!(jobs.retry(id).await?, Retried::Before(again));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn retry(&self, id: i64) -> Result<Retried, StoreError> {
        let retried = self.book()?.retry_job(id, None).await?;
        if matches!(retried, Retried::Written(_)) {
            self.tenure.wake();
        }
        Ok(retried)
    }

    /// Why a job is not being worked on, or by whom it is, in one sentence; `None` when there is no
    /// such job. The settings are those that workers run by: they say how often it may fail.
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
    /// assert_eq!(why.sentence, "it is due, but no worker on jobs is here");
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn why(&self, id: i64, settings: &Settings) -> Result<Option<Why>, StoreError> {
        // The workers first: they bring the moment, and what is looked at later is never older.
        let (moment, workers) = self.tenure.workers(WORKERS).await?;
        let Some(job) = self.find(id).await? else {
            return Ok(None);
        };
        let held = HeldChunks {
            matrix: Some(job.matrix.clone()),
            lapsed_for: None,
            limit: HELD_LOOKED_AT,
        };
        let facts = JobFacts {
            kinds: self.kinds(Duration::ZERO).await?,
            workers: present(workers, moment),
            settings: settings.clone(),
            chunks: self.held_chunks(&held).await?,
        };
        let now = credible(moment, job.created_at);
        Ok(Some(why_job(&job, &facts, now)))
    }

    /// How the jobs of each kind stand that have not ended or failed less than `lately` ago.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn kinds(&self, lately: Duration) -> Result<Vec<KindStanding>, StoreError> {
        self.book()?.kinds(lately, None).await
    }

    /// Chunks that somebody has in hand or left there, those first whose term ends or ended first.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn held_chunks(&self, which: &HeldChunks) -> Result<Vec<ChunkRecord>, StoreError> {
        self.book()?.held_chunks(which, None).await
    }

    /// How far the work on a matrix has come.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn progress(&self, matrix: &MatrixName) -> Result<Progress, StoreError> {
        self.book()?.progress(matrix, None).await
    }

    /// Chunks of a matrix in the order of their names, those behind `after`, at most `limit`.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn chunks(
        &self,
        matrix: &MatrixName,
        after: Option<&ChunkName>,
        limit: u32,
    ) -> Result<Vec<ChunkRecord>, StoreError> {
        self.book()?.chunks(matrix, after, limit).await
    }

    /// At most `limit` chunks of a matrix that people should see: first those that somebody has in
    /// hand or left there, then those that failed for good, then those that were given back with an
    /// error.
    ///
    /// # Errors
    /// As [`Jobs::enqueue`].
    pub async fn notable_chunks(
        &self,
        matrix: &MatrixName,
        limit: u32,
    ) -> Result<Vec<ChunkRecord>, StoreError> {
        self.book()?.notable_chunks(matrix, limit).await
    }

    /// Begins a worker that calls `function` with each job of this kind; see
    /// [`JobWorkerBuilder::on`].
    pub fn on<F, Fut>(&self, kind: &str, function: F) -> JobWorkerBuilder
    where
        F: Fn(HeldJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        JobWorkerBuilder::new(self.tenure.clone()).on(kind, function)
    }

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn tenure(&self) -> &Tenure {
        &self.tenure
    }

    fn book(&self) -> Result<&dyn Book, StoreError> {
        book(&self.tenure)
    }
}

/// What keeps the jobs of the open store.
pub(crate) fn book(tenure: &Tenure) -> Result<&dyn Book, StoreError> {
    tenure.store().job_book().ok_or_else(|| {
        let message = "this store keeps no jobs";
        StoreError::new("jobs", StoreErrorKind::Invalid, message)
            .hint("open an SQLite file or PostgreSQL")
    })
}

/// The only answer to an enqueue of one job.
pub(crate) fn first(ids: &[i64]) -> Result<i64, StoreError> {
    ids.first().copied().ok_or_else(|| {
        let message = "the store answered for no job; expected one answer";
        StoreError::new("enqueue", StoreErrorKind::Corrupt, message)
    })
}

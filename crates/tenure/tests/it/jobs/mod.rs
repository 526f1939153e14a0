//! Jobs through the public API, on both databases, with terms short enough for a test to wait for a
//! lapse.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "the lints allow this in test functions, but not in functions that they call"
)]

mod chunks;
mod holds;
mod killed;
mod people;
mod resume;
mod transaction;

use std::future::Future;
use std::path::PathBuf;
use std::time::Duration;

use tenure::job::{HeldJob, Job, JobId, NewJob, SyncState};
use tenure::worker::JobSource;
use tenure::{Failure, Outcome, StoreConfig, Tenure, Term, WorkerBuilder};
use tenure_store::testing::{self, Database};

/// Term of the leases.
pub(crate) const TERM: Duration = Duration::from_secs(3);
/// A renewal must be answered within four fifths of it.
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(900);
/// Timeout, longer than any step of a test.
const LONG: Duration = Duration::from_mins(1);

/// The database of one test.
pub(crate) struct JobPlace {
    pub(crate) url: String,
    pub(crate) path: PathBuf,
    keeps: Keeps,
}

enum Keeps {
    File(#[expect(dead_code, reason = "dropping it deletes the database")] tempfile::TempDir),
    Database(#[expect(dead_code, reason = "dropping it deletes the database")] Box<Database>),
}

impl JobPlace {
    async fn postgres() -> Self {
        let database = testing::migrated().await;
        Self {
            url: database.url.clone(),
            path: PathBuf::new(),
            keeps: Keeps::Database(Box::new(database)),
        }
    }

    fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("jobs.db");
        Self {
            url: format!("sqlite://{}", path.display()),
            path,
            keeps: Keeps::File(folder),
        }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self.keeps, Keeps::File(_))
    }

    /// Opens the database like another process: another worker, other connections.
    pub(crate) async fn open(&self, name: &str) -> Tenure {
        let config = StoreConfig::default();
        Tenure::open_with(&self.url, &config, name).await.unwrap()
    }
}

/// Runs a case on both databases.
pub(crate) async fn on_both<Fut: Future<Output = ()>>(case: impl Fn(JobPlace) -> Fut) {
    let postgres = Box::pin(async { case(JobPlace::postgres().await).await });
    tokio::join!(Box::pin(case(JobPlace::sqlite())), postgres);
}

/// Runs a case on one database and then on the other: a case that waits for processes blocks its
/// thread, and a connection opened meanwhile would time out.
pub(crate) async fn on_each<Fut: Future<Output = ()>>(case: impl Fn(JobPlace) -> Fut) {
    Box::pin(case(JobPlace::sqlite())).await;
    Box::pin(case(JobPlace::postgres().await)).await;
}

pub(crate) fn term() -> Term {
    Term::new(TERM).unwrap()
}

/// A worker with one handler and short leases.
pub(crate) fn worker<F, Fut>(tenure: &Tenure, handler: F) -> WorkerBuilder<JobSource>
where
    F: Fn(HeldJob) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    tenure
        .jobs()
        .on("import", handler)
        .timing(term(), HEARTBEAT)
        .chunk_timing(term(), HEARTBEAT)
}

pub(crate) fn import() -> NewJob {
    NewJob::new("import", r#"{"file": "orders.csv"}"#).unwrap()
}

/// Waits for an answer, with a timeout.
pub(crate) async fn soon<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, answer)
        .await
        .expect("it comes within a minute")
}

/// Waits until a job is finished, and returns it.
pub(crate) async fn ended(tenure: &Tenure, id: JobId) -> Job {
    until(tenure, id, |job| {
        matches!(job.state, SyncState::Completed | SyncState::Failed)
    })
    .await
}

/// Waits until a job meets the condition, and returns it.
pub(crate) async fn until(tenure: &Tenure, id: JobId, holds: impl Fn(&Job) -> bool) -> Job {
    soon(async {
        loop {
            let job = tenure.jobs().find(id).await.unwrap().unwrap();
            if holds(&job) {
                return job;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
}

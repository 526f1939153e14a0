//! Jobs through the front door, on both databases, with leases so short that a test can wait for
//! their end.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "the lints spare test functions, but not what these call"
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

use tenure::job::{Job, NewJob};
use tenure::{
    Failure, HeldJob, JobWorkerBuilder, Outcome, StoreConfig, SyncState, Tenure, Term, migrate,
};
use tenure_store::testing::{self, Database};

/// How long leases run here.
pub(crate) const TERM: Duration = Duration::from_secs(3);
pub(crate) const HEARTBEAT: Duration = Duration::from_millis(500);
/// Longer than anything here takes.
const LONG: Duration = Duration::from_mins(1);

/// A database of its own.
pub(crate) struct House {
    pub(crate) url: String,
    pub(crate) path: PathBuf,
    keeps: Keeps,
}

enum Keeps {
    File(#[expect(dead_code, reason = "gone when it is dropped")] tempfile::TempDir),
    Database(#[expect(dead_code, reason = "gone when it is dropped")] Box<Database>),
}

impl House {
    async fn postgres() -> Self {
        let database = testing::postgres().await;
        migrate(&database.url, &StoreConfig::default())
            .await
            .unwrap();
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

    /// As another process does: another worker, other connections.
    pub(crate) async fn open(&self, name: &str) -> Tenure {
        let config = StoreConfig::default();
        Tenure::open_with(&self.url, &config, name).await.unwrap()
    }
}

/// Runs a case on both databases.
pub(crate) async fn on_both<Fut: Future<Output = ()>>(case: impl Fn(House) -> Fut) {
    let postgres = Box::pin(async { case(House::postgres().await).await });
    tokio::join!(Box::pin(case(House::sqlite())), postgres);
}

/// Runs a case on one database and then on the other: one that waits for processes blocks its
/// thread, and a connection that is being made meanwhile would come too late.
pub(crate) async fn on_each<Fut: Future<Output = ()>>(case: impl Fn(House) -> Fut) {
    Box::pin(case(House::sqlite())).await;
    Box::pin(case(House::postgres().await)).await;
}

pub(crate) fn term() -> Term {
    Term::new(TERM).unwrap()
}

/// A worker with one handler and short leases.
pub(crate) fn worker<F, Fut>(tenure: &Tenure, handler: F) -> JobWorkerBuilder
where
    F: Fn(HeldJob) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<Outcome, Failure>> + Send + 'static,
{
    tenure
        .jobs()
        .on("import", handler)
        .rhythm(term(), HEARTBEAT)
        .chunk_rhythm(term(), HEARTBEAT)
}

pub(crate) fn import() -> NewJob {
    NewJob::new("import", r#"{"file": "orders.csv"}"#).unwrap()
}

/// Waits for an answer, but not for ever.
pub(crate) async fn soon<T>(answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, answer)
        .await
        .expect("it comes within a minute")
}

/// Waits until a job has ended, and gives it.
pub(crate) async fn ended(tenure: &Tenure, id: i64) -> Job {
    until(tenure, id, |job| {
        matches!(job.state, SyncState::Completed | SyncState::Failed)
    })
    .await
}

/// Waits until this holds of a job, and gives it.
pub(crate) async fn until(tenure: &Tenure, id: i64, holds: impl Fn(&Job) -> bool) -> Job {
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

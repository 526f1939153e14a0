//! A worker on jobs: handlers by kind, put together with a store and run by the engine.

use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::job::JobKind;
use tenure_core::store::Store;
use tenure_core::{
    Content, Failure, Invalid, Item, Outcome, Rhythm, Settings, Term, WorkerId, duration_text,
};
use tenure_engine::{
    ChunkKeeper, Context, Duties, Duty, Ended, EngineConfig, Handler, Handling, Parts, Recovery,
    RowClaims, RowStore,
};
use tokio::time::{Instant, timeout_at};

use crate::chunk::{ChunkHome, Workplace};
use crate::held_job::HeldJob;
use crate::jobs::book;
use crate::signal::Signals;
use crate::tenure::Tenure;
use crate::worker::{Worker, WorkerError, check, launch_on};

/// How long a lease on a job runs without being renewed.
const TERM: Duration = Duration::from_mins(5);
/// How often it is renewed.
const HEARTBEAT: Duration = Duration::from_mins(1);
/// How long a job may be worked on, unless set.
const MAX_HOLD: Duration = Duration::from_hours(24);
/// A job that could not be read is given back for so long.
const READ_AGAIN: Duration = Duration::from_secs(1);

/// A worker on jobs that is being put together; [`Jobs::on`](crate::Jobs::on) begins one.
///
/// A job is leased for 5 minutes, renewed every minute, and tried again as the settings say when
/// its handler fails (`retry.max_retries`) or its worker dies (`retry.max_crashes`). It is claimed
/// when there is a place for it, the urgent first, then the oldest.
///
/// ```
/// use std::time::Duration;
/// use tenure::{HeldJob, Outcome, Tenure};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
/// let tenure = Tenure::open(&url).await?;
/// tenure
///     .jobs()
///     .on("import.orders", |job: HeldJob| async move {
///         println!("{}: from {:?} on", job.payload(), job.cursor());
///         Ok(Outcome::Done)
///     })
///     .max_hold("import.orders", Duration::from_secs(3600))
///     .concurrency(4)
///     .run_until(tokio::time::sleep(Duration::from_millis(10)))
///     .await?;
/// # Ok(())
/// # }
/// ```
#[must_use = "it does nothing until it is started"]
pub struct JobWorkerBuilder {
    tenure: Tenure,
    kinds: BTreeMap<JobKind, Route>,
    config: EngineConfig,
    chunks: Option<ChunkKeeper>,
    /// What was wrong so far; told when it is started, all at once.
    problems: Vec<Invalid>,
}

type Function = Arc<dyn Fn(HeldJob) -> Handling<'static> + Send + Sync>;

/// What is done with jobs of one kind.
struct Route {
    function: Option<Function>,
    max_hold: Duration,
}

impl Default for Route {
    fn default() -> Self {
        Self {
            function: None,
            max_hold: MAX_HOLD,
        }
    }
}

impl JobWorkerBuilder {
    pub(crate) fn new(tenure: Tenure) -> Self {
        let mut config = EngineConfig {
            // What has lapsed is taken back by the claims, and jobs are neither pruned nor
            // replayed.
            duties: Duties {
                reaper: Duty::Left,
                pruner: Duty::Left,
                replayer: Duty::Left,
            },
            ..EngineConfig::default()
        };
        config.settings.batch = 1;
        config.rows.recovery = Recovery::InClaim;
        let rhythm = Term::new(TERM).map(|term| rhythm(term, HEARTBEAT));
        config.rhythm = rhythm.ok();
        Self {
            tenure,
            kinds: BTreeMap::new(),
            config,
            chunks: None,
            problems: Vec::new(),
        }
    }

    /// Calls `function` with each job of this kind. Jobs of other kinds are left to other workers.
    ///
    /// An error is a failure, to be tried again as the settings say; so is a panic. The same job
    /// comes again after a crash or a lapse: its chunks and its cursor tell how far it was. The
    /// function is dropped at its next await when the hold on the job is over.
    pub fn on<F, Fut>(mut self, kind: &str, function: F) -> Self
    where
        F: Fn(HeldJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<Outcome, Failure>> + Send + 'static,
    {
        let function: Function = Arc::new(move |job| Box::pin(function(job)));
        if let Some(route) = self.route(kind) {
            route.function = Some(function);
        }
        self
    }

    /// A job of this kind may be worked on for so long at once; 24 hours unless set.
    /// Then it fails, and is tried again from where it was.
    pub fn max_hold(mut self, kind: &str, longest: Duration) -> Self {
        if let Some(route) = self.route(kind) {
            route.max_hold = longest;
        }
        self
    }

    /// Works on at most this many jobs at once; 10 unless set.
    pub fn concurrency(mut self, jobs: u32) -> Self {
        self.config.settings.concurrency = jobs;
        self
    }

    /// Leases on jobs run this long and are renewed this often; 5 minutes and 1 minute unless set.
    pub fn rhythm(mut self, term: Term, heartbeat: Duration) -> Self {
        self.config.rhythm = Some(rhythm(term, heartbeat));
        self
    }

    /// Leases on chunks run this long and are renewed this often; 2 minutes and 30 s unless set.
    pub fn chunk_rhythm(mut self, term: Term, heartbeat: Duration) -> Self {
        match ChunkKeeper::new(term, heartbeat) {
            Ok(keeper) => self.chunks = Some(keeper),
            Err(problem) => self.problems.push(problem),
        }
        self
    }

    /// Works as these settings say, but for the leases, the jobs at once and the batch.
    pub fn settings(mut self, mut settings: Settings) -> Self {
        settings.concurrency = self.config.settings.concurrency;
        settings.batch = self.config.settings.batch;
        self.config.settings = settings;
        self
    }

    /// Shows this as its machine to people who look at the workers.
    pub fn host(mut self, host: impl Into<String>) -> Self {
        self.config.host = host.into();
        self
    }

    /// Starts it on the current runtime, which is one with time and I/O enabled.
    ///
    /// # Errors
    /// Everything that is wrong with its kinds and settings, and a store that keeps no jobs.
    #[expect(
        clippy::unused_async,
        reason = "it spawns, so it is to be called on a runtime"
    )]
    pub async fn start(mut self) -> Result<Worker, WorkerError> {
        let unhandled = self
            .kinds
            .iter()
            .find(|(_, route)| route.function.is_none());
        if let Some((kind, _)) = unhandled {
            let expected = "a handler for it: `.on(…)`";
            let problem = Invalid::new("a longest hold", format!("for {kind}"), expected);
            self.problems.push(problem);
        }
        let stores = rows(&self.tenure);
        if stores.is_none() {
            let expected = "PostgreSQL or SQLite";
            let problem = Invalid::new("the store", "one that keeps no jobs", expected);
            self.problems.push(problem);
        }
        check(&self.tenure, &self.config, self.problems)?;
        let invalid = |problem| WorkerError::Invalid(vec![problem]);
        let worker = self.tenure.worker_id_for("jobs").map_err(invalid)?;
        let (store, keeper_store) =
            stores.unwrap_or_else(|| (self.tenure.shared(), self.tenure.companion()));
        let home = match self.chunks {
            Some(keeper) => Arc::new(ChunkHome::new(keeper)),
            None => Arc::clone(self.tenure.chunk_home()),
        };
        self.config.chunks = Some(Arc::clone(home.keeper()));
        self.config.rows = RowClaims {
            table: Some("tenure_jobs".to_owned()),
            kinds: self.kinds.keys().map(ToString::to_string).collect(),
            ..self.config.rows
        };
        let handler = JobHandlers {
            tenure: self.tenure.clone(),
            worker: worker.clone(),
            home: Arc::clone(&home),
            kinds: self.kinds,
            term: self
                .config
                .rhythm
                .map_or(TERM, |rhythm| rhythm.term.length()),
        };
        let parts = Parts {
            store,
            keeper_store,
            worker,
            handler: Arc::new(handler),
            config: self.config,
            wrap: None,
        };
        Ok(launch_on(&self.tenure, parts)?.with_chunks(home))
    }

    /// Runs it until `end` comes, then stops it: what is in hand is finished or given back.
    ///
    /// # Errors
    /// As [`JobWorkerBuilder::start`], and when the worker fails, which it never should.
    pub async fn run_until(self, end: impl Future) -> Result<Ended, WorkerError> {
        self.start().await?.until(end).await
    }

    /// Runs it until the process is told to end (SIGINT, SIGTERM), then stops it: what is in hand
    /// is finished or given back.
    ///
    /// # Errors
    /// As [`JobWorkerBuilder::run_until`], and when signals cannot be received.
    pub async fn run_until_signal(self) -> Result<Ended, WorkerError> {
        let mut signals = Signals::new().map_err(WorkerError::Signals)?;
        self.run_until(signals.next()).await
    }

    fn route(&mut self, kind: &str) -> Option<&mut Route> {
        match JobKind::new(kind) {
            Ok(kind) => Some(self.kinds.entry(kind).or_default()),
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        }
    }
}

impl fmt::Debug for JobWorkerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobWorkerBuilder")
            .field("tenure", &self.tenure)
            .field("kinds", &self.kinds.keys())
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// The longest hold is each kind's own; this one is the shortest that there may be.
fn rhythm(term: Term, heartbeat: Duration) -> Rhythm {
    Rhythm {
        term,
        heartbeat,
        max_hold: term.length(),
    }
}

/// The jobs of the open store, and the same for the heartbeat.
fn rows(tenure: &Tenure) -> Option<(Arc<dyn Store>, Arc<dyn Store>)> {
    let store = RowStore::of_jobs(&tenure.shared())?;
    let companion = RowStore::of_jobs(&tenure.companion())?;
    Some((Arc::new(store), Arc::new(companion)))
}

/// Handlers by kind.
struct JobHandlers {
    tenure: Tenure,
    worker: WorkerId,
    home: Arc<ChunkHome>,
    kinds: BTreeMap<JobKind, Route>,
    /// How long the lease on a job runs.
    term: Duration,
}

impl JobHandlers {
    async fn work(&self, item: Item, cx: Context) -> Result<Outcome, Failure> {
        let id = item.id.number();
        let job = match book(&self.tenure)?.job(id, None).await {
            Ok(Some(job)) => job,
            Ok(None) => return Err(Failure::new(format!("there is no job {id} any more"))),
            // That is no failure of the job.
            Err(error) if error.is_transient() => return Ok(Outcome::snooze(READ_AGAIN)),
            Err(error) => return Err(error.into()),
        };
        let route = self.kinds.get(&job.kind);
        let Some(function) = route.and_then(|route| route.function.as_ref()) else {
            // A failure, not a death: a newer worker that knows the kind may come.
            return Err(Failure::new(format!(
                "no handler takes jobs of {}",
                job.kind
            )));
        };
        let place = Workplace {
            tenure: self.tenure.clone(),
            home: Arc::clone(&self.home),
            worker: self.worker.clone(),
            matrix: job.matrix.clone(),
            job: None,
        };
        // The engine lets nothing be held for less than its term: what is to end sooner ends here.
        let longest = route.map(|route| route.max_hold);
        let Some(longest) = longest.filter(|longest| *longest < self.term) else {
            return function(HeldJob::new(job, cx, place, None)).await;
        };
        let ends_at = Instant::now() + longest;
        let work = function(HeldJob::new(job, cx, place, Some(ends_at)));
        timeout_at(ends_at, work).await.unwrap_or_else(|_| {
            let longest = duration_text(longest);
            let error = format!("processing time exceeded: longer than {longest}");
            Err(Failure::new(error))
        })
    }
}

impl Handler for JobHandlers {
    fn handle(&self, item: Item, cx: Context) -> Handling<'_> {
        Box::pin(self.work(item, cx))
    }

    fn max_hold(&self, item: &Item) -> Option<Duration> {
        let Content::Row(row) = &item.content else {
            return None;
        };
        let kind = JobKind::of_row(row)?;
        self.kinds.get(&kind).map(|route| route.max_hold)
    }
}

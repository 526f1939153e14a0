//! Worker on jobs: handlers by kind.

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::job::{JobId, JobKind};
use tenure_core::{
    Content, Failure, IntoOutcome, Invalid, Item, LeaseTiming, Outcome, Term, WorkerId,
    duration_text,
};
use tenure_engine::{
    ChunkRenewer, Context, Duties, Duty, EngineConfig, Handler, HandlerOptions, Handling, Leases,
    Recovery, RowClaims, Rules,
};
use tokio::time::{Instant, timeout_at};

use super::private::Work;
use super::{WorkerBuilder, no_handler_yet, private};
use crate::chunk::{ChunkHome, Workplace};
use crate::held_job::HeldJob;
use crate::tenure::Tenure;

/// Default term of a lease on a job.
const TERM: Duration = Duration::from_mins(5);
/// Default interval between two renewals.
const HEARTBEAT: Duration = Duration::from_mins(1);
/// Default maximum hold of a job.
const MAX_HOLD: Duration = Duration::from_hours(24);
/// Default number of concurrent jobs.
const CONCURRENCY: u32 = 10;
/// Delay before a job that could not be read is claimed again.
const READ_RETRY_DELAY: Duration = Duration::from_secs(1);

/// Jobs, with handlers by kind.
///
/// A job is leased for 5 minutes and renewed every minute. It is retried as the settings say when
/// its handler fails (`retry.max_retries`) or its worker dies (`retry.max_crashes`). A job is
/// claimed when an executor is free, by priority, then by age.
///
/// ```
/// use std::time::Duration;
/// use tenure::job::HeldJob;
/// use tenure::{Outcome, Tenure};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let folder = tempfile::tempdir()?;
/// # let url = format!("sqlite://{}", folder.path().join("shop.db").display());
/// let tenure = Tenure::open(&url).await?;
/// tenure
///     .jobs()
///     .on("import.orders", |job: HeldJob| async move {
///         println!("{}: resumes at {:?}", job.payload(), job.cursor());
///         Ok(Outcome::Done)
///     })
///     .max_hold("import.orders", Duration::from_secs(3600))
///     .concurrency(4)
///     .run_until(tokio::time::sleep(Duration::from_millis(10)))
///     .await?;
/// # Ok(())
/// # }
/// ```
#[derive(Default)]
#[expect(missing_debug_implementations, reason = "handlers are functions")]
pub struct JobSource {
    kinds: BTreeMap<JobKind, Route>,
    /// Kind whose handler was registered last.
    last: Option<JobKind>,
    chunks: Option<ChunkRenewer>,
}

type Function = Arc<dyn Fn(HeldJob) -> Handling<'static> + Send + Sync>;

/// Handler and limits of one kind.
#[derive(Default)]
struct Route {
    function: Option<Function>,
    max_hold: Option<Duration>,
    rules: Rules,
}

impl Route {
    fn max_hold(&self) -> Duration {
        self.max_hold.unwrap_or(MAX_HOLD)
    }
}

impl WorkerBuilder<JobSource> {
    pub(crate) fn jobs(tenure: Tenure) -> Self {
        let mut config = EngineConfig {
            // Claims reap lapsed leases; this worker neither prunes nor replays.
            duties: Duties {
                reaper: Duty::Left,
                pruner: Duty::Left,
                replayer: Duty::Left,
            },
            ..EngineConfig::default()
        };
        config.rows = RowClaims {
            leases: Leases::Jobs,
            table: Some("tenure_jobs".to_owned()),
            recovery: Recovery::InClaim,
            ..RowClaims::default()
        };
        config.timing = Term::new(TERM).map(|term| timing(term, HEARTBEAT)).ok();
        Self::of(tenure, JobSource::default(), config)
    }

    /// Calls `function` with each job of this kind. Jobs of other kinds are left to other workers.
    ///
    /// An error is retried with backoff, as the settings say; so is a panic. The same job arrives
    /// again after a crash or a lapse, with its finished chunks and its cursor. When its hold is
    /// over, the function is dropped at its next await.
    pub fn on<F, Fut>(mut self, kind: &str, function: F) -> Self
    where
        F: Fn(HeldJob) -> Fut + Send + Sync + 'static,
        Fut: Future<Output: IntoOutcome> + Send + 'static,
    {
        let function: Function = Arc::new(move |job| {
            let work = function(job);
            Box::pin(async move { work.await.into_outcome() })
        });
        if let Some(route) = self.route(kind) {
            route.function = Some(function);
        }
        self.source.last = JobKind::new(kind).ok();
        self
    }

    /// Sets retries, timeout and concurrency of the handler that was registered last. The timeout
    /// is the [`max_hold`](Self::max_hold) of its kind.
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the other sources consume the options"
    )]
    pub fn with(mut self, options: HandlerOptions) -> Self {
        let JobSource { kinds, last, .. } = &mut self.source;
        let last = last.as_ref();
        if let Some(route) = last.and_then(|kind| kinds.get_mut(kind)) {
            route.max_hold = options.own_timeout().or(route.max_hold);
            route.rules = Rules {
                retry: options.own_retry(),
                limit: options.own_limit(),
            };
        } else if self.problems.is_empty() {
            self.problems.push(no_handler_yet());
        }
        self
    }

    /// Sets the maximum hold of jobs of this kind; 24 hours by default. A job that runs longer
    /// fails and is retried from its last checkpoint.
    pub fn max_hold(mut self, kind: &str, longest: Duration) -> Self {
        if let Some(route) = self.route(kind) {
            route.max_hold = Some(longest);
        }
        self
    }

    /// Sets term and heartbeat of leases on jobs; 5 minutes and 1 minute by default.
    pub fn timing(mut self, term: Term, heartbeat: Duration) -> Self {
        self.config.timing = Some(timing(term, heartbeat));
        self
    }

    /// Sets term and heartbeat of leases on chunks; 2 minutes and 30 s by default.
    pub fn chunk_timing(mut self, term: Term, heartbeat: Duration) -> Self {
        self.source.chunks = self.valid(ChunkRenewer::new(term, heartbeat));
        self
    }

    fn route(&mut self, kind: &str) -> Option<&mut Route> {
        let kind = self.valid(JobKind::new(kind))?;
        Some(self.source.kinds.entry(kind).or_default())
    }
}

impl private::Source for JobSource {
    const LIMITS: Option<(u32, u32)> = Some((CONCURRENCY, 1));

    const TRADE: Option<&'static str> = Some("jobs");

    fn check(&self, tenure: &Tenure, problems: &mut Vec<Invalid>) {
        let mut kinds = self.kinds.iter();
        if let Some((kind, _)) = kinds.find(|(_, route)| route.function.is_none()) {
            let expected = "a handler for this kind: `.on(…)`";
            let found = format!("set for {kind}");
            problems.push(Invalid::new("max_hold", found, expected));
        }
        if tenure.store().job_store().is_none() {
            let (found, expected) = ("one that does not support jobs", "PostgreSQL or SQLite");
            problems.push(Invalid::new("the store", found, expected));
        }
    }

    fn into_handler(self, work: &mut Work) -> Result<Arc<dyn Handler>, Invalid> {
        let home = match self.chunks {
            Some(renewer) => Arc::new(ChunkHome::new(renewer)),
            None => Arc::clone(work.tenure.chunk_home()),
        };
        let config = &mut work.config;
        config.chunks = Some(Arc::clone(home.keeper()));
        config.rows.kinds = self.kinds.keys().map(ToString::to_string).collect();
        let handler = JobHandlers {
            tenure: work.tenure.clone(),
            worker: work.worker.clone(),
            home: Arc::clone(&home),
            kinds: self.kinds,
            term: config.timing.map_or(TERM, |timing| timing.term.length()),
        };
        work.chunks = Some(home);
        Ok(Arc::new(handler))
    }
}

/// Uses the shortest maximum hold allowed, because each kind has its own.
fn timing(term: Term, heartbeat: Duration) -> LeaseTiming {
    LeaseTiming {
        term,
        heartbeat,
        max_hold: term.length(),
    }
}

/// Handlers by kind.
struct JobHandlers {
    tenure: Tenure,
    worker: WorkerId,
    home: Arc<ChunkHome>,
    kinds: BTreeMap<JobKind, Route>,
    /// Term of a lease on a job.
    term: Duration,
}

impl JobHandlers {
    fn route(&self, item: &Item) -> Option<&Route> {
        let Content::Row(row) = &item.content else {
            return None;
        };
        self.kinds.get(&JobKind::of_row(row)?)
    }

    async fn work(&self, item: Item, cx: Context) -> Result<Outcome, Failure> {
        let id = item.id.number();
        let job = match self.tenure.job_port()?.job(JobId::new(id), None).await {
            Ok(Some(job)) => job,
            Ok(None) => return Err(Failure::new(format!("there is no job {id} any more"))),
            // The read failed, not the job.
            Err(error) if error.is_transient() => return Ok(Outcome::snooze(READ_RETRY_DELAY)),
            Err(error) => return Err(error.into()),
        };
        let Some((function, longest)) = self.kinds.get(&job.kind).and_then(|route| {
            let function = route.function.as_ref()?;
            Some((function, route.max_hold()))
        }) else {
            // Retried: a newer worker may know the kind.
            let error = format!("no handler takes jobs of {}", job.kind);
            return Err(Failure::new(error));
        };
        let place = Workplace {
            tenure: self.tenure.clone(),
            home: Arc::clone(&self.home),
            worker: self.worker.clone(),
            matrix: job.matrix.clone(),
            job: None,
        };
        // The engine cannot end a hold before its term is over, so enforce a shorter maximum here.
        if longest >= self.term {
            return function(HeldJob::new(job, cx, place, None)).await;
        }
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
        self.route(item).map(Route::max_hold)
    }

    /// The kind of the job.
    fn route_name(&self, item: &Item) -> Option<&str> {
        let Content::Row(row) = &item.content else {
            return None;
        };
        let kind = JobKind::of_row(row)?;
        self.kinds
            .get_key_value(&kind)
            .map(|(kind, _)| kind.as_str())
    }

    fn rules(&self, item: &Item) -> Rules {
        self.route(item)
            .map(|route| route.rules)
            .unwrap_or_default()
    }
}

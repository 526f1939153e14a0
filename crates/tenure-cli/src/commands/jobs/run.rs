//! `tenure jobs run`: runs a command for each job.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tenure::job::JobKind;
use tenure::{
    Exec, ExecCall, Failure, HeldJob, HoldError, Invalid, Jobs, Outcome, PublishError,
    PublishErrorKind, StoreError, StoreErrorKind, Term, Watch, Worker,
};

use super::desk::Desk;
use super::sweep;
use crate::assemble::{self, Schema};
use crate::commands::Context;
use crate::commands::serve::{given, greet, signals, sum_up};
use crate::config::Override;
use crate::exit::Exit;
use crate::problem::Stop;
use crate::{env, logs, time};

/// How often `--drain` looks whether anything is left, and how often in a row it must see nothing.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: u32 = 2;
/// A command that cannot take a job now is not asked again before this long has passed.
const AWAY: Duration = Duration::from_secs(10);

pub(super) const HELP: &str = "\
The command is run through `sh -c`, with the job's payload on its input and TENURE_ID, \
TENURE_KIND, TENURE_MATRIX, TENURE_ATTEMPT, TENURE_FENCE, TENURE_TIME_LEFT_MS and, if one was \
written down, TENURE_CURSOR in its environment. Exit code 0: the job is done, and the last line \
that it printed, if that is JSON, is its result. 65: it failed for good. 75: not now, tried again \
without counting a failure. Any other: tried again by the retry policy. `tenure jobs note` and \
`tenure jobs chunk` speak to the worker from within the command.

Examples:
  tenure jobs run --kind import.orders --exec ./import.sh
  tenure jobs run --kind import.orders --exec ./import.sh --concurrency 4 --drain";

#[derive(Debug, Args)]
pub(super) struct RunJobs {
    /// Take jobs of this kind; may be given often
    #[arg(long = "kind", value_name = "KIND", required = true, value_parser = JobKind::new)]
    kinds: Vec<JobKind>,

    /// Run this command for each job
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    exec: String,

    /// Work on this many jobs at once
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,

    /// Stop when nothing of these kinds is due any more, and say what became of it; ends with 0
    #[arg(long)]
    drain: bool,

    /// A command may run this long; then it is stopped, and the job tried again from where it was
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = time::duration)]
    max_hold: Duration,

    /// Leases on jobs run this long, and are renewed every fifth of it
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = time::term)]
    term: Term,

    /// Leases on chunks run this long, and are renewed every quarter of it
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = time::term)]
    chunk_term: Term,

    /// Keep trying this long when the database does not answer at the start
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time::duration)]
    wait: Duration,

    /// Call this worker so; a random part behind it tells two starts apart
    #[arg(long)]
    name: Option<String>,
}

impl RunJobs {
    pub(super) fn overrides(&self) -> Vec<Override> {
        let concurrency = self.concurrency.as_ref();
        [
            given("worker.name", self.name.as_ref(), "--name"),
            given("worker.concurrency", concurrency, "--concurrency"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

pub(super) async fn run(cx: &Context, args: &RunJobs) -> Result<Exit, Stop> {
    let config = &cx.config;
    let id = tenure::new_worker_id(&config.worker_name)?;
    logs::init(&config.log, Some(id.as_str()))?;
    logs::tell_remarks(&config.remarks);
    let mut signals = signals()?;
    let opened = assemble::open(config, &id, Schema::Expected, args.wait);
    let tenure = tokio::select! {
        opened = opened => opened?,
        () = signals.next() => return Ok(Exit::Done),
    };
    sweep::sweep().await;
    let jobs = tenure.jobs();
    let worker = start(cx, args, &jobs).await?;
    greet(
        cx,
        format_args!("works on jobs of {} as {id}", config.database),
    );
    let watch = worker.watch();
    let enough = async {
        if args.drain {
            drained(&jobs, &watch, &args.kinds).await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let exit = tokio::select! {
        () = signals.next() => Exit::Done,
        () = enough => Exit::Done,
        why = worker.failed() => {
            tracing::error!(why, "the worker failed");
            Exit::Failed
        }
    };
    tokio::select! {
        ended = worker.stop() => {
            if args.drain {
                sum_up(cx, "jobs", ended.tallied, "jobs list --state failed");
            }
            Ok(exit)
        }
        () = signals.next() => {
            tracing::warn!("ended at once by a second signal; what was held lapses");
            Ok(Exit::Failed)
        }
    }
}

async fn start(cx: &Context, args: &RunJobs, jobs: &Jobs) -> Result<Worker, Stop> {
    let exec = Arc::new(Exec::new(&args.exec).hide(env::hidden()));
    let work = move |job: HeldJob| {
        let exec = Arc::clone(&exec);
        async move { work(job, &exec).await }
    };
    let Some((first, rest)) = args.kinds.split_first() else {
        return Err(Invalid::new("--kind", "none", "the kind of jobs to take").into());
    };
    let mut builder = jobs.on(first.as_str(), work.clone());
    for kind in rest {
        builder = builder.on(kind.as_str(), work.clone());
    }
    for kind in &args.kinds {
        builder = builder.max_hold(kind.as_str(), args.max_hold);
    }
    builder
        .concurrency(cx.config.settings.concurrency)
        .settings(cx.config.settings.clone())
        .rhythm(args.term, args.term.length() / 5)
        .chunk_rhythm(args.chunk_term, args.chunk_term.length() / 4)
        .host(assemble::host())
        .start()
        .await
        .map_err(|error| assemble::cannot_start(&error))
}

/// Runs the command for one job, and answers what it asks meanwhile.
async fn work(job: HeldJob, exec: &Exec) -> Result<Outcome, Failure> {
    let desk = Desk::open(job.clone())
        .map_err(|error| Failure::new(format!("no socket for the command: {error}")))?;
    let call = ExecCall {
        input: job.payload().as_bytes().to_vec(),
        variables: variables(&job, &desk),
        time_left: job.time_left(),
    };
    // What the command has said before its end is written before its end is told.
    let run = async {
        let ended = exec.call(call).await;
        desk.written().await;
        ended
    };
    let ended = tokio::select! {
        ended = run => ended,
        error = desk.serve() => {
            return Err(Failure::new(format!("the command was not heard any more: {error}")));
        }
    };
    match ended {
        Ok(printed) => {
            if let Some(line) = printed.filter(|line| is_json(line)) {
                keep_result(&job, &line).await?;
            }
            Ok(Outcome::Done)
        }
        Err(error) => judge(&error),
    }
}

/// Keeps what the command printed last. One that can never be kept is told and left out: the work
/// is done, and to do it again would bring the same result.
async fn keep_result(job: &HeldJob, line: &str) -> Result<(), HoldError> {
    match job.result(line).await {
        Err(HoldError::Store(error)) if error.kind() == StoreErrorKind::Invalid => {
            let job = job.id();
            tracing::warn!(job, %error, "completed without its result, which was refused");
            Ok(())
        }
        kept => kept,
    }
}

fn is_json(line: &str) -> bool {
    serde_json::from_str::<&serde_json::value::RawValue>(line).is_ok()
}

/// As the exit codes of `tenure work --exec` mean it.
fn judge(error: &PublishError) -> Result<Outcome, Failure> {
    let failure = Failure::new(format!("command: {}", error.reason));
    match error.kind {
        PublishErrorKind::Away { after } => {
            tracing::warn!(reason = error.reason, "the command was away; the job waits");
            Ok(Outcome::snooze(after.unwrap_or(AWAY)))
        }
        PublishErrorKind::Reject => Err(failure.never()),
        PublishErrorKind::Retry { .. } | _ => Err(failure),
    }
}

fn variables(job: &HeldJob, desk: &Desk) -> Vec<(String, String)> {
    let given = |name: &str, value: String| (name.to_owned(), value);
    let mut variables = vec![
        given("TENURE_ID", job.id().to_string()),
        given("TENURE_KIND", job.job().kind.to_string()),
        given("TENURE_MATRIX", job.job().matrix.to_string()),
        given("TENURE_ATTEMPT", job.attempt().to_string()),
        given("TENURE_FENCE", job.fence().to_string()),
        given(env::JOB_SOCKET, desk.path().display().to_string()),
    ];
    variables.extend(
        job.cursor()
            .map(|cursor| given("TENURE_CURSOR", cursor.to_owned())),
    );
    variables
}

/// Waits until nothing of these kinds is due and nothing is in hand.
async fn drained(jobs: &Jobs, watch: &Watch, kinds: &[JobKind]) {
    let mut quiet = 0;
    while quiet < LOOKS {
        // Others enqueue and settle, too: the store alone knows, and it gives no notice.
        tokio::time::sleep(LOOK).await;
        let is_holding = || watch.health().is_none_or(|health| health.held > 0);
        if is_holding() {
            quiet = 0;
            continue;
        }
        quiet = match is_due(jobs, kinds).await {
            // Looked at last: what was claimed since is in hand, or settled.
            Ok(false) if !is_holding() => quiet + 1,
            Ok(_) => 0,
            Err(error) => {
                tracing::warn!(%error, "the store did not say what is left");
                0
            }
        };
    }
}

/// Whether a job of these kinds waits to be claimed, or is past its term.
async fn is_due(jobs: &Jobs, kinds: &[JobKind]) -> Result<bool, StoreError> {
    // It is asked again and again, and reads only what is open: not the jobs that have ended.
    let standings = jobs.kinds(Duration::ZERO).await?;
    let mut taken = standings.iter().filter(|told| kinds.contains(&told.kind));
    Ok(taken.any(|told| told.due > 0 || told.lapsed > 0))
}

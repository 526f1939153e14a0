//! `tenure jobs run`: runs a command for each job.

use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tenure::job::{HeldJob, HoldError, JobKind, Jobs};
use tenure::operate::Watch;
use tenure::publish::{Exec, ExecCall, PublishError, PublishErrorKind};
use tenure::{Failure, Invalid, Outcome, StoreError, StoreErrorKind, Term, Worker};

use super::session::CommandSocket;
use super::sweep;
use crate::assemble::{self, Schema};
use crate::commands::Context;
use crate::commands::serve::{announce, given, print_outcomes, signals};
use crate::commands::work::drained;
use crate::config::Override;
use crate::exit::Exit;
use crate::problem::Stop;
use crate::spans::Spans;
use crate::{env, logs, time};

/// Delay of a job whose command is unavailable.
const UNAVAILABLE_DELAY: Duration = Duration::from_secs(10);

pub(super) const HELP: &str = "\
The command runs through `sh -c`, with the job's payload on its input and TENURE_ID, TENURE_KIND, \
TENURE_MATRIX, TENURE_ATTEMPT, TENURE_FENCE, TENURE_TIME_LEFT_MS, TENURE_PAYLOAD_BYTES and, if \
one was saved, TENURE_CURSOR in its environment. Exit code 0: the job is done, and the last line \
of its output, if that is JSON, is its result. 65: it failed for good. 75: unavailable, retried \
without counting a failure. Any other: retried by the retry policy. `tenure jobs note` and \
`tenure jobs chunk` talk to the worker from within the command.

Examples:
  tenure jobs run --kind import.orders --exec ./import.sh
  tenure jobs run --kind import.orders --exec ./import.sh --concurrency 4 --drain";

#[derive(Debug, Args)]
pub(super) struct RunJobs {
    /// Take jobs of this kind; repeatable
    #[arg(long = "kind", value_name = "KIND", required = true, value_parser = JobKind::new)]
    kinds: Vec<JobKind>,

    /// Run this command for each job
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    exec: String,

    /// Work on this many jobs at once
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,

    /// Stop when nothing of these kinds is due any more, and print the outcomes; exits with 0
    #[arg(long)]
    drain: bool,

    /// Maximum run time of a command; then the worker stops it and retries the job from its cursor
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = time::duration)]
    max_hold: Duration,

    /// Term of leases on jobs; the worker renews after every fifth of it
    #[arg(long, value_name = "DURATION", default_value = "5m", value_parser = time::term)]
    term: Term,

    /// Term of leases on chunks; the worker renews after every quarter of it
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = time::term)]
    chunk_term: Term,

    /// Keep trying for this long if the database does not answer at the start
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time::duration)]
    wait: Duration,

    /// Worker name; a random suffix is added at each start
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
    let id = tenure::lease::new_worker_id(&config.worker_name)?;
    logs::init(&config.log, Some(id.as_str()))?;
    logs::warn_of_mistakes(&config.warnings);
    let mut signals = signals()?;
    let opened = assemble::open(config, &id, Schema::Expected, args.wait);
    let tenure = tokio::select! {
        opened = opened => opened?,
        () = signals.next() => return Ok(Exit::Done),
    };
    sweep::sweep().await;
    let jobs = tenure.jobs();
    let spans = Spans::start();
    let worker = start(cx, args, &jobs, &spans).await?;
    announce(
        cx,
        format_args!("works on jobs of {} as {id}", config.database),
    );
    let watch = worker.watch();
    let enough = async {
        if args.drain {
            drained(async || is_quiet(&jobs, &watch, &args.kinds).await).await;
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
        report = worker.stop() => {
            spans.stop().await;
            if args.drain {
                print_outcomes(cx, "jobs", report.outcomes, "jobs list --state failed");
            }
            Ok(exit)
        }
        () = signals.next() => {
            tracing::warn!("stopped at once by a second signal; held leases will lapse");
            Ok(Exit::Failed)
        }
    }
}

async fn start(cx: &Context, args: &RunJobs, jobs: &Jobs, spans: &Spans) -> Result<Worker, Stop> {
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
    spans
        .of(builder)
        .concurrency(cx.config.settings.concurrency)
        .settings(cx.config.settings.clone())
        .timing(args.term, args.term.length() / 5)
        .chunk_timing(args.chunk_term, args.chunk_term.length() / 4)
        .host(assemble::host())
        .start()
        .await
        .map_err(|error| assemble::cannot_start(&error))
}

/// Runs the command for one job, and answers its requests meanwhile.
async fn work(job: HeldJob, exec: &Exec) -> Result<Outcome, Failure> {
    let socket = CommandSocket::open(job.clone())
        .map_err(|error| Failure::new(format!("no socket for the command: {error}")))?;
    let call = ExecCall {
        input: job.payload().as_bytes().to_vec(),
        variables: variables(&job, &socket),
        time_left: job.time_left(),
    };
    // Wait until the command's requests are written, before its end is reported.
    let run = async {
        let result = exec.call(call).await;
        socket.written().await;
        result
    };
    let result = tokio::select! {
        result = run => result,
        error = socket.serve() => {
            return Err(Failure::new(format!("lost the socket of the command: {error}")));
        }
    };
    match result {
        Ok(printed) => {
            if let Some(line) = printed.filter(|line| is_json(line)) {
                save_result(&job, &line).await?;
            }
            Ok(Outcome::Done)
        }
        Err(error) => judge(&error),
    }
}

/// Saves the last line of the output. An invalid result is logged and dropped: the work is done,
/// and a retry would print the same result.
async fn save_result(job: &HeldJob, line: &str) -> Result<(), HoldError> {
    match job.result(line).await {
        Err(HoldError::Store(error)) if error.kind() == StoreErrorKind::Invalid => {
            let job = job.id();
            tracing::warn!(%job, %error, "completed without its result, which is invalid");
            Ok(())
        }
        saved => saved,
    }
}

fn is_json(line: &str) -> bool {
    serde_json::from_str::<&serde_json::value::RawValue>(line).is_ok()
}

/// Maps exit codes to outcomes as `tenure work --exec` does.
fn judge(error: &PublishError) -> Result<Outcome, Failure> {
    let failure = Failure::new(format!("command: {}", error.reason));
    match error.kind {
        PublishErrorKind::Away { after } => {
            tracing::warn!(
                reason = error.reason,
                "the command is unavailable; the job waits"
            );
            Ok(Outcome::snooze(after.unwrap_or(UNAVAILABLE_DELAY)))
        }
        PublishErrorKind::Reject => Err(failure.never()),
        PublishErrorKind::Retry { .. } | _ => Err(failure),
    }
}

fn variables(job: &HeldJob, socket: &CommandSocket) -> Vec<(String, String)> {
    let given = |name: &str, value: String| (name.to_owned(), value);
    let mut variables = vec![
        given("TENURE_ID", job.id().to_string()),
        given("TENURE_KIND", job.job().kind.to_string()),
        given("TENURE_MATRIX", job.job().matrix.to_string()),
        given("TENURE_ATTEMPT", job.attempt().to_string()),
        given("TENURE_FENCE", job.fence().to_string()),
        given(env::JOB_SOCKET, socket.path().display().to_string()),
    ];
    variables.extend(
        job.cursor()
            .map(|cursor| given("TENURE_CURSOR", cursor.to_owned())),
    );
    let trace = job.trace_parent();
    variables.extend(trace.map(|parent| given("TRACEPARENT", parent.to_string())));
    variables
}

/// Returns true if no job of these kinds is due, and the worker claims and holds nothing.
async fn is_quiet(jobs: &Jobs, watch: &Watch, kinds: &[JobKind]) -> Result<bool, StoreError> {
    let is_busy = || watch.health().is_none_or(|health| !health.is_idle);
    // Check the worker last: a job that is no longer due is claimed, held or settled by then.
    Ok(!is_busy() && !is_due(jobs, kinds).await? && !is_busy())
}

/// Returns true if a job of these kinds is due or has lapsed.
async fn is_due(jobs: &Jobs, kinds: &[JobKind]) -> Result<bool, StoreError> {
    // Polled often, so it reads only open jobs.
    let statuses = jobs.kinds(Duration::ZERO).await?;
    let mut taken = statuses
        .iter()
        .filter(|status| kinds.contains(&status.kind));
    Ok(taken.any(|status| status.due > 0 || status.lapsed > 0))
}

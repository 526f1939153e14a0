//! `tenure jobs`: manages and runs jobs (long work, done chunk by chunk) from a shell.

mod enqueue;
mod follow;
mod list;
mod request;
mod run;
mod script;
mod session;
mod show;
mod sweep;
mod view;
mod why;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use tenure::Invalid;
use tenure::job::{JobId, JobKind, MatrixName, Retried, SyncState};
use tenure::lease::Refusal;

use self::enqueue::EnqueueJob;
use self::run::RunJobs;
use self::script::{ChunkCommand, NoteJob};
use super::Context;
use crate::args::reason;
use crate::config::Override;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

#[derive(Debug, Args)]
pub(crate) struct Jobs {
    #[command(subcommand)]
    command: Option<JobCommand>,
}

#[derive(Debug, Subcommand)]
enum JobCommand {
    /// Enqueue a job
    #[command(after_help = "\
A matrix is a set of chunks. Jobs on the same matrix share its chunks, and done chunks are not \
repeated. Without --matrix a job has a matrix of its own.

Examples:
  tenure jobs enqueue import.orders '{\"from\": 2020}'
  tenure jobs enqueue import.orders '{}' --matrix orders --priority 5 --follow
  tenure jobs enqueue report.monthly --delay 1h < report.json")]
    Enqueue(EnqueueJob),
    /// List jobs, newest first; exits with 3 when there are none
    #[command(after_help = "\
Examples:
  tenure jobs list
  tenure jobs list --kind import.orders --state failed
  tenure jobs list --json | jq .error")]
    List(ListJobs),
    /// Show a job: its facts, its progress, its payload
    #[command(after_help = "\
With --follow it runs until the job has ended, and exits with 1 if the job failed. `tenure jobs \
why ID` explains in one sentence why a job is not running.

It lists chunks that are held or lapsed, then those that failed for good, then those that were \
released with an error; the progress counts all chunks. JSON has them, as `chunks`, only with \
--chunks.

Examples:
  tenure jobs show 17
  tenure jobs show 17 --follow
  tenure jobs show 17 --json | jq .progress")]
    Show {
        /// The number of the job
        #[arg(value_parser = job_id)]
        id: i64,
        /// Follow the progress until the job is settled
        #[arg(long)]
        follow: bool,
        /// Show at most this many chunks of the job, 1 to 1000 [default: 10]
        #[arg(
            long,
            value_name = "N",
            value_parser = clap::value_parser!(u32).range(1..=i64::from(show::CHUNKS_MAX))
        )]
        chunks: Option<u32>,
    },
    /// Explain in one sentence why a job is not running, or which worker holds it, and what to do
    #[command(after_help = "\
Examples:
  tenure jobs why 17
  tenure jobs why 17 --json | jq -r .code")]
    Why {
        /// The number of the job
        #[arg(value_parser = job_id)]
        id: i64,
    },
    /// Mark jobs failed now, even if a worker holds them
    #[command(after_help = "\
A worker that holds the job is refused from then on, and kills its command at the next \
heartbeat.

Examples:
  tenure jobs cancel 17 18 --reason 'the wrong file'")]
    Cancel {
        /// The numbers of the jobs
        #[arg(value_name = "ID", required = true, value_parser = job_id)]
        ids: Vec<i64>,
        /// The reason, for people
        #[arg(long, value_parser = reason, default_value = "cancelled by an operator")]
        reason: String,
    },
    /// Enqueue a new job with the payload and the matrix of a settled job
    #[command(after_help = "\
The ended job does not change. Chunks that are done or failed for good are not repeated. A job has \
at most one retry until that retry is pruned: a second `retry` writes nothing, names the existing \
retry job and exits with 4.

Examples:
  tenure jobs retry 17")]
    Retry {
        /// The number of the job
        #[arg(value_parser = job_id)]
        id: i64,
    },
    /// Run a command for each job, until stopped
    #[command(after_help = run::HELP)]
    Run(RunJobs),
    /// In a job's command: save the job's progress
    #[command(after_help = "\
It sends the values to the worker that runs the command. Exits with 4 when the job's lease is over.

Examples:
  tenure jobs note --total 1000
  tenure jobs note --cursor 2026-11
  tenure jobs note --result '{\"rows\": 7}'")]
    Note(NoteJob),
    /// In a job's command: claim a chunk and settle it
    #[command(after_help = "\
The worker that runs the command holds the chunk and renews its lease. Exits with 4 when the lease \
is over: the command should stop then.

Examples:
  tenure jobs chunk claim 2026-11
  tenure jobs chunk done 2026-11 --rows 1000")]
    Chunk {
        #[command(subcommand)]
        command: ChunkCommand,
    },
}

#[derive(Debug, Args)]
struct ListJobs {
    /// Only those of this kind
    #[arg(long, value_parser = JobKind::new)]
    kind: Option<JobKind>,

    /// Only those in this state
    #[arg(long)]
    state: Option<JobStateArg>,

    /// Only those on this matrix
    #[arg(long, value_parser = MatrixName::new)]
    matrix: Option<MatrixName>,

    /// At most this many, 1 to 1000
    #[arg(long, default_value = "50", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,

    /// Only those before this number: the next page
    #[arg(long, value_name = "ID", value_parser = job_id)]
    before: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum JobStateArg {
    Available,
    Running,
    Lapsed,
    Completed,
    Failed,
}

impl From<JobStateArg> for SyncState {
    fn from(arg: JobStateArg) -> Self {
        match arg {
            JobStateArg::Available => Self::Available,
            JobStateArg::Running => Self::Running,
            JobStateArg::Lapsed => Self::Lapsed,
            JobStateArg::Completed => Self::Completed,
            JobStateArg::Failed => Self::Failed,
        }
    }
}

impl Jobs {
    /// Returns true for commands that talk only to their worker, and need neither a database nor a
    /// configuration.
    pub(super) fn is_bare(&self) -> bool {
        let command = self.command.as_ref();
        matches!(
            command,
            Some(JobCommand::Note(_) | JobCommand::Chunk { .. })
        )
    }

    /// Returns true for commands that run a worker and use all processors.
    pub(super) fn is_working(&self) -> bool {
        matches!(self.command, Some(JobCommand::Run(_)))
    }

    pub(super) fn overrides(&self) -> Vec<Override> {
        match &self.command {
            Some(JobCommand::Run(args)) => args.overrides(),
            _ => Vec::new(),
        }
    }
}

pub(super) async fn run(cx: &Context, args: Jobs) -> Result<Exit, Stop> {
    match args.command {
        None => list::run(cx, &ListJobs::default()).await,
        Some(JobCommand::List(args)) => list::run(cx, &args).await,
        Some(JobCommand::Enqueue(args)) => enqueue::run(cx, args).await,
        Some(JobCommand::Show { id, follow, chunks }) => show::run(cx, id, follow, chunks).await,
        Some(JobCommand::Why { id }) => why::run(cx, id).await,
        Some(JobCommand::Cancel { ids, reason }) => cancel(cx, &ids, &reason).await,
        Some(JobCommand::Retry { id }) => retry(cx, id).await,
        Some(JobCommand::Run(args)) => run::run(cx, &args).await,
        Some(JobCommand::Note(args)) => script::note(cx, args),
        Some(JobCommand::Chunk { command }) => script::chunk(cx, command),
    }
}

impl Default for ListJobs {
    fn default() -> Self {
        Self {
            kind: None,
            state: None,
            matrix: None,
            limit: 50,
            before: None,
        }
    }
}

/// The answer for one job in JSON.
#[derive(Serialize)]
struct JobAnswerView {
    id: i64,
    /// The operation took effect.
    accepted: bool,
    /// The code of the refusal.
    refused: Option<&'static str>,
}

async fn cancel(cx: &Context, ids: &[i64], reason: &str) -> Result<Exit, Stop> {
    let jobs = cx.database.open(IfMissing::Report).await?.jobs();
    let mut exit = Exit::Done;
    let mut known = std::collections::HashSet::new();
    for id in ids.iter().copied().filter(|id| known.insert(*id)) {
        let refusal = jobs.cancel(JobId::new(id), reason).await?.refusal();
        let object = JobAnswerView {
            id,
            accepted: refusal.is_none(),
            refused: refusal.map(Refusal::as_str),
        };
        cx.output.either(&object, || match refusal {
            None => format!("cancelled {id}"),
            Some(why) => format!("not cancelled {id}: {why}"),
        })?;
        exit = exit.max(match refusal {
            None => Exit::Done,
            Some(Refusal::NotFound) => Exit::Nothing,
            Some(_) => Exit::Refused,
        });
    }
    Ok(exit)
}

/// The new job in JSON.
#[derive(Serialize)]
struct RetryView {
    id: i64,
    retry_of: i64,
}

async fn retry(cx: &Context, id: i64) -> Result<Exit, Stop> {
    let jobs = cx.database.open(IfMissing::Report).await?.jobs();
    match jobs.retry(JobId::new(id)).await? {
        Retried::Written(new) => {
            let object = RetryView {
                id: new.number(),
                retry_of: id,
            };
            cx.output.either(&object, || {
                format!("enqueued {new} as a retry of {id}, on the same matrix")
            })?;
            Ok(Exit::Done)
        }
        Retried::Before(retry) => {
            let message = format!("job {id} has a retry already: job {retry}; nothing was written");
            let hint = format!(
                "`tenure jobs show {retry}` shows it, `tenure jobs retry {retry}` retries it once \
                 it has ended"
            );
            Err(Problem::new(Exit::Refused, message).hint(hint).into())
        }
        Retried::Refused(Refusal::NotFound) => Err(no_such_job(id).into()),
        Retried::Refused(_) => {
            let message = format!("job {id} has not ended; expected one that completed or failed");
            let hint =
                format!("`tenure jobs show {id}` shows it, `tenure jobs cancel {id}` ends it");
            Err(Problem::new(Exit::Refused, message).hint(hint).into())
        }
    }
}

fn no_such_job(id: i64) -> Problem {
    Problem::new(Exit::Nothing, format!("there is no job {id}"))
        .hint("`tenure jobs list` lists the newest")
}

/// Parses the number of a job.
fn job_id(text: &str) -> Result<i64, Invalid> {
    let number = text.parse().ok().filter(|number| *number > 0);
    let expected = "the number of a job, such as 17";
    number.ok_or_else(|| Invalid::new("the job", format!("{text:?}"), expected))
}

//! `tenure jobs`: long work, done chunk by chunk, from a shell.

mod ask;
mod desk;
mod enqueue;
mod follow;
mod list;
mod run;
mod script;
mod show;
mod shown;
mod sweep;
mod why;

use clap::{Args, Subcommand, ValueEnum};
use serde::Serialize;
use tenure::job::{JobKind, MatrixName, Retried};
use tenure::{Invalid, Refusal, SyncState};

use self::enqueue::EnqueueJob;
use self::run::RunJobs;
use self::script::{ChunkCommand, NoteJob};
use super::Context;
use crate::args::reason;
use crate::config::Override;
use crate::database::Absent;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};

#[derive(Debug, Args)]
pub(crate) struct Jobs {
    #[command(subcommand)]
    command: Option<JobCommand>,
}

#[derive(Debug, Subcommand)]
enum JobCommand {
    /// Write a job
    #[command(after_help = "\
Jobs on one matrix share its chunks: what is done of them is not done again. Without --matrix a \
job has one of its own.

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
    /// Show all that is known of a job: its facts, its progress, its payload
    #[command(after_help = "\
With --follow it goes on until the job has ended, and exits with 1 if it failed. `tenure jobs why \
ID` says in one sentence why a job is not running.

The chunks that it shows are those in hand or left there, then those that failed for good, then \
those that were given back with an error; the line of progress counts all. JSON has them, as \
`chunks`, only when --chunks is given.

Examples:
  tenure jobs show 17
  tenure jobs show 17 --follow
  tenure jobs show 17 --json | jq .progress")]
    Show {
        /// The number of the job
        #[arg(value_parser = job_id)]
        id: i64,
        /// Watch its progress until it has ended
        #[arg(long)]
        follow: bool,
        /// Show at most this many of its chunks, 1 to 1000 [default: 10]
        #[arg(
            long,
            value_name = "N",
            value_parser = clap::value_parser!(u32).range(1..=i64::from(show::CHUNKS_SHOWN_MAX))
        )]
        chunks: Option<u32>,
    },
    /// Say in one sentence why a job is not running, or who has it, and what to do
    #[command(after_help = "\
Examples:
  tenure jobs why 17
  tenure jobs why 17 --json | jq -r .code")]
    Why {
        /// The number of the job
        #[arg(value_parser = job_id)]
        id: i64,
    },
    /// End jobs as failed, now, whoever has them in hand
    #[command(after_help = "\
A worker that has the job in hand is refused from then on; its command is killed at its next \
heartbeat.

Examples:
  tenure jobs cancel 17 18 --reason 'the wrong file'")]
    Cancel {
        /// The numbers of the jobs
        #[arg(value_name = "ID", required = true, value_parser = job_id)]
        ids: Vec<i64>,
        /// Why, for people
        #[arg(long, value_parser = reason, default_value = "cancelled by an operator")]
        reason: String,
    },
    /// Write a new job with the payload and the matrix of one that has ended
    #[command(after_help = "\
What has ended stays as it is. The chunks that are done are not done again, nor those that failed \
for good. A job has one retry for as long as that retry is kept: for a second one it says which \
that is, writes nothing and exits with 4.

Examples:
  tenure jobs retry 17")]
    Retry {
        /// The number of the job
        #[arg(value_parser = job_id)]
        id: i64,
    },
    /// Run a command for each job, until it is told to stop
    #[command(after_help = run::HELP)]
    Run(RunJobs),
    /// In a job's command: write down where the job is
    #[command(after_help = "\
It speaks to the worker that runs the command. Exits with 4 when the hold on the job is over.

Examples:
  tenure jobs note --total 1000
  tenure jobs note --cursor 2026-11
  tenure jobs note --result '{\"rows\": 7}'")]
    Note(NoteJob),
    /// In a job's command: claim a chunk, say how it ended
    #[command(after_help = "\
The worker that runs the command holds the chunk and renews its lease. Exits with 4 when the hold \
is over: stop then.

Examples:
  tenure jobs chunk claim 2026-11
  tenure jobs chunk done 2026-11 --rows 1000")]
    Chunk {
        #[command(subcommand)]
        command: ChunkCommand,
    },
}

/// Which jobs are listed.
#[derive(Debug, Args)]
struct ListJobs {
    /// Only those of this kind
    #[arg(long, value_parser = JobKind::new)]
    kind: Option<JobKind>,

    /// Only those in this state
    #[arg(long)]
    state: Option<StateWord>,

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

/// The word for a state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum StateWord {
    Available,
    Running,
    Lapsed,
    Completed,
    Failed,
}

impl From<StateWord> for SyncState {
    fn from(word: StateWord) -> Self {
        match word {
            StateWord::Available => Self::Available,
            StateWord::Running => Self::Running,
            StateWord::Lapsed => Self::Lapsed,
            StateWord::Completed => Self::Completed,
            StateWord::Failed => Self::Failed,
        }
    }
}

impl Jobs {
    /// Whether it speaks to its worker alone, and needs neither a database nor a configuration.
    pub(super) fn is_bare(&self) -> bool {
        let command = self.command.as_ref();
        matches!(
            command,
            Some(JobCommand::Note(_) | JobCommand::Chunk { .. })
        )
    }

    /// Whether it works, and wants all processors.
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

/// The answer for one job, in JSON.
#[derive(Serialize)]
struct Answered {
    id: i64,
    /// It took effect.
    kept: bool,
    /// Why not, as one word.
    refused: Option<&'static str>,
}

async fn cancel(cx: &Context, ids: &[i64], reason: &str) -> Result<Exit, Stop> {
    let jobs = cx.database.open(Absent::Report).await?.jobs();
    let mut exit = Exit::Done;
    let mut seen = std::collections::HashSet::new();
    for id in ids.iter().copied().filter(|id| seen.insert(*id)) {
        let refusal = jobs.cancel(id, reason).await?.refusal();
        let object = Answered {
            id,
            kept: refusal.is_none(),
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

/// The new job, in JSON.
#[derive(Serialize)]
struct Again {
    id: i64,
    retry_of: i64,
}

async fn retry(cx: &Context, id: i64) -> Result<Exit, Stop> {
    let jobs = cx.database.open(Absent::Report).await?.jobs();
    match jobs.retry(id).await? {
        Retried::Written(again) => {
            let object = Again {
                id: again,
                retry_of: id,
            };
            cx.output.either(&object, || {
                format!("enqueued {again}: {id} again, on the same matrix")
            })?;
            Ok(Exit::Done)
        }
        Retried::Before(again) => {
            let message = format!("job {id} has a retry already: job {again}; nothing was written");
            let hint = format!(
                "`tenure jobs show {again}` tells how it stands, `tenure jobs retry {again}` \
                 repeats it when it has ended"
            );
            Err(Problem::new(Exit::Refused, message).hint(hint).into())
        }
        Retried::Refused(Refusal::NotFound) => Err(no_such_job(id).into()),
        Retried::Refused(_) => {
            let message = format!("job {id} has not ended; expected one that completed or failed");
            let hint = format!("`tenure jobs cancel {id}` ends it, `tenure jobs show {id}` tells");
            Err(Problem::new(Exit::Refused, message).hint(hint).into())
        }
    }
}

fn no_such_job(id: i64) -> Problem {
    Problem::new(Exit::Nothing, format!("there is no job {id}"))
        .hint("`tenure jobs list` lists the newest")
}

/// Reads the number of a job.
fn job_id(text: &str) -> Result<i64, Invalid> {
    let number = text.parse().ok().filter(|number| *number > 0);
    let expected = "the number of a job, such as 17";
    number.ok_or_else(|| Invalid::new("the job", format!("{text:?}"), expected))
}

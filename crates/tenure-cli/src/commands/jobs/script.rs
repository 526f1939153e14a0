//! `tenure jobs note` and `tenure jobs chunk`: what a job's command says to its worker.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::ask::{Ask, How, LINE_BYTES_MAX, Reply};
use crate::commands::Context;
use crate::commands::enqueue::read_payload;
use crate::env::{self, JOB_SOCKET};
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};
use crate::time;

#[derive(Debug, Args)]
#[group(required = true, multiple = true)]
pub(super) struct NoteJob {
    /// Where the job is: the cursor of whoever takes it up next
    #[arg(long, allow_hyphen_values = true)]
    cursor: Option<String>,

    /// How many chunks there are, for those who watch
    #[arg(long, value_name = "CHUNKS", value_parser = clap::value_parser!(u64).range(..1 << 53))]
    total: Option<u64>,

    /// What came of it; `-` reads it from the input
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    result: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum ChunkCommand {
    /// Claim a chunk and print its cursor; exits with 3 when it is not to be worked on
    #[command(after_help = "\
Exits with 0 when the chunk is ours, with 3 when it is done or failed for good, with 4 when the \
hold on the job is over, or when this command has the chunk already. It waits while somebody else \
has the chunk; with --no-wait it exits with 3.

Examples:
  cursor=$(tenure jobs chunk claim 2026-11) || exit
  tenure jobs chunk claim EUR --fresh-for 1h --no-wait")]
    Claim {
        /// Which
        #[arg(allow_hyphen_values = true)]
        name: String,
        /// Not if it was synced less than this long ago
        #[arg(long, value_name = "DURATION", value_parser = time::duration)]
        fresh_for: Option<Duration>,
        /// Do not wait for somebody else to end it
        #[arg(long)]
        no_wait: bool,
    },
    /// The chunk is done
    #[command(after_help = "\
Examples:
  tenure jobs chunk done 2026-11 --rows 1000
  tenure jobs chunk done EUR --rows 40 --again")]
    Done {
        /// Which
        #[arg(allow_hyphen_values = true)]
        name: String,
        /// How many rows it had
        #[arg(long, default_value = "0", value_parser = clap::value_parser!(u64).range(..1 << 53))]
        rows: u64,
        /// It may be done again later: see --fresh-for
        #[arg(long)]
        again: bool,
    },
    /// The chunk went wrong; it may be tried again, unless it is for good
    #[command(after_help = "\
Without --for-good it is given back, and whoever claims it next tries it again. With it nobody \
does, not even a retry of the job: a later claim exits with 3.

Examples:
  tenure jobs chunk fail 2026-11 --error 'the file was cut off'
  tenure jobs chunk fail 2026-13 --error 'there is no such month' --for-good")]
    Fail {
        /// Which
        #[arg(allow_hyphen_values = true)]
        name: String,
        /// What went wrong, for people
        #[arg(long)]
        error: String,
        /// Nobody is to try it again
        #[arg(long)]
        for_good: bool,
    },
    /// Write down where the chunk is: its cursor for whoever has it next
    #[command(after_help = "\
Examples:
  tenure jobs chunk note 2026-11 --cursor 'row 500'")]
    Note {
        /// Which
        #[arg(allow_hyphen_values = true)]
        name: String,
        /// Where it is
        #[arg(long, allow_hyphen_values = true)]
        cursor: String,
    },
    /// Give the chunk back as it is
    #[command(after_help = "\
Examples:
  tenure jobs chunk release 2026-11")]
    Release {
        /// Which
        #[arg(allow_hyphen_values = true)]
        name: String,
    },
}

pub(super) fn note(cx: &Context, args: NoteJob) -> Result<Exit, Stop> {
    let result = match args.result.as_deref() {
        Some("-") => Some(read_payload(cx)?),
        Some(json) => Some(json.to_owned()),
        None => None,
    };
    let ask = Ask::Note {
        cursor: args.cursor,
        total: args.total,
        result,
    };
    told(cx, "the job", &ask)
}

pub(super) fn chunk(cx: &Context, command: ChunkCommand) -> Result<Exit, Stop> {
    let (chunk, ask) = match command {
        ChunkCommand::Claim {
            name,
            fresh_for,
            no_wait,
        } => (
            name.clone(),
            Ask::Claim {
                chunk: name,
                fresh_for_ms: fresh_for.map(millis),
                wait: !no_wait,
            },
        ),
        ChunkCommand::Note { name, cursor } => (
            name.clone(),
            Ask::NoteChunk {
                chunk: name,
                cursor,
            },
        ),
        ChunkCommand::Done { name, rows, again } => {
            let how = if again {
                How::Synced { rows }
            } else {
                How::Completed { rows }
            };
            ended(name, how)
        }
        ChunkCommand::Fail {
            name,
            error,
            for_good: false,
        } => ended(name, How::Failed { error }),
        ChunkCommand::Fail {
            name,
            error,
            for_good: true,
        } => ended(name, How::Dead { error }),
        ChunkCommand::Release { name } => ended(name, How::Released),
    };
    told(cx, &format!("chunk {}", plain(&chunk)), &ask)
}

fn ended(name: String, how: How) -> (String, Ask) {
    (name.clone(), Ask::End { chunk: name, how })
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Asks the worker, and says what it answered.
fn told(cx: &Context, what: &str, ask: &Ask) -> Result<Exit, Stop> {
    let reply = exchange(ask)?;
    if cx.output.is_json() {
        cx.output.json(&reply)?;
    }
    let note = |text: String| cx.output.note(text);
    match reply {
        Reply::Kept => Ok(Exit::Done),
        Reply::Claimed { cursor, .. } => {
            if !cx.output.is_json() {
                cx.output.data(&cursor.unwrap_or_default())?;
            }
            Ok(Exit::Done)
        }
        Reply::Done { at } => {
            note(format!("{what} was done at {at}"));
            Ok(Exit::Nothing)
        }
        Reply::Held { holder, until } => {
            note(format!(
                "{what} is held by {} until {until}",
                plain(&holder)
            ));
            Ok(Exit::Nothing)
        }
        Reply::Failed => {
            note(format!("{what} failed for good"));
            Ok(Exit::Nothing)
        }
        Reply::Over { why } => {
            let message = format!("{what} is no longer ours: {why}");
            Err(Problem::new(Exit::Refused, message)
                .hint("stop: whoever has it now goes on")
                .into())
        }
        Reply::InHand => {
            let message = format!("{what} is in hand already: this job's command claimed it");
            Err(Problem::new(Exit::Refused, message)
                .hint("`tenure jobs chunk done NAME` ends it, `release` gives it back")
                .into())
        }
        Reply::NotClaimed => {
            let message = format!("{what} is not in hand");
            Err(Problem::new(Exit::Refused, message)
                .hint("`tenure jobs chunk claim NAME` comes first, in the same job")
                .into())
        }
        Reply::Problem { message } => Err(Problem::new(Exit::Failed, plain(&message)).into()),
    }
}

fn exchange(ask: &Ask) -> Result<Reply, Problem> {
    let Some(path) = env::job_socket() else {
        let message = format!("{JOB_SOCKET} is not set: this is not the command of a job");
        return Err(Problem::new(Exit::Usage, message)
            .hint("`tenure jobs run --kind KIND --exec CMD` runs a command for each job"));
    };
    let gone = |cause: std::io::Error| {
        let message = "the worker that runs this command does not answer";
        Problem::new(Exit::Refused, message)
            .cause(cause)
            .hint("stop: somebody else takes the job up")
    };
    let mut line = serde_json::to_string(ask).map_err(|cause| gone(cause.into()))?;
    line.push('\n');
    let mut stream = UnixStream::connect(path).map_err(gone)?;
    stream.write_all(line.as_bytes()).map_err(gone)?;
    let mut text = String::new();
    let mut input = BufReader::new(stream.take(LINE_BYTES_MAX));
    input.read_line(&mut text).map_err(gone)?;
    serde_json::from_str(&text).map_err(|cause| gone(cause.into()))
}

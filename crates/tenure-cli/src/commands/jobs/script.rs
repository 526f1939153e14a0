//! `tenure jobs note` and `tenure jobs chunk`: requests of a job's command to its worker.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use clap::{Args, Subcommand};

use super::request::{How, LINE_BYTES_MAX, Reply, Request};
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
    /// The job's cursor, from which the next worker continues
    #[arg(long, allow_hyphen_values = true)]
    cursor: Option<String>,

    /// The total number of chunks, for the progress
    #[arg(long, value_name = "CHUNKS", value_parser = clap::value_parser!(u64).range(..1 << 53))]
    total: Option<u64>,

    /// The result; `-` reads it from the input
    #[arg(long, value_name = "JSON", allow_hyphen_values = true)]
    result: Option<String>,
}

#[derive(Debug, Subcommand)]
pub(super) enum ChunkCommand {
    /// Claim a chunk and print its cursor; exits with 3 when there is nothing to do
    #[command(after_help = "\
Exits with 0 when the chunk was claimed, with 3 when it is done or failed for good, with 4 when \
the job's lease is over or when this command holds the chunk already. It waits while another \
worker holds the chunk. With --no-wait it exits with 3 if the chunk is held, even by this command.

Examples:
  cursor=$(tenure jobs chunk claim 2026-11) || exit
  tenure jobs chunk claim EUR --fresh-for 1h --no-wait")]
    Claim {
        /// The name of the chunk
        #[arg(allow_hyphen_values = true)]
        name: String,
        /// Skip the chunk if it was synced less than this long ago
        #[arg(long, value_name = "DURATION", value_parser = time::duration)]
        fresh_for: Option<Duration>,
        /// Do not wait while another worker holds the chunk
        #[arg(long)]
        no_wait: bool,
    },
    /// Settle a chunk as done
    #[command(after_help = "\
Examples:
  tenure jobs chunk done 2026-11 --rows 1000
  tenure jobs chunk done EUR --rows 40 --again")]
    Done {
        /// The name of the chunk
        #[arg(allow_hyphen_values = true)]
        name: String,
        /// The number of rows in the chunk
        #[arg(long, default_value = "0", value_parser = clap::value_parser!(u64).range(..1 << 53))]
        rows: u64,
        /// The chunk may be claimed again: see `chunk claim --fresh-for`
        #[arg(long)]
        again: bool,
    },
    /// Settle a chunk as failed; it may be retried, unless --for-good is given
    #[command(after_help = "\
Without --for-good the chunk is released, and the next claim retries it. With --for-good it is \
never retried, not even by a retry of the job: a later claim exits with 3.

Examples:
  tenure jobs chunk fail 2026-11 --error 'the file was cut off'
  tenure jobs chunk fail 2026-13 --error 'there is no such month' --for-good")]
    Fail {
        /// The name of the chunk
        #[arg(allow_hyphen_values = true)]
        name: String,
        /// The error, for people
        #[arg(long)]
        error: String,
        /// Never retry the chunk
        #[arg(long)]
        for_good: bool,
    },
    /// Save the cursor of a chunk, from which the next holder continues
    #[command(after_help = "\
Examples:
  tenure jobs chunk note 2026-11 --cursor 'row 500'")]
    Note {
        /// The name of the chunk
        #[arg(allow_hyphen_values = true)]
        name: String,
        /// The cursor
        #[arg(long, allow_hyphen_values = true)]
        cursor: String,
    },
    /// Release a chunk unchanged
    #[command(after_help = "\
Examples:
  tenure jobs chunk release 2026-11")]
    Release {
        /// The name of the chunk
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
    let request = Request::Note {
        cursor: args.cursor,
        total: args.total,
        result,
    };
    send(cx, "the job", &request)
}

pub(super) fn chunk(cx: &Context, command: ChunkCommand) -> Result<Exit, Stop> {
    let (chunk, request) = match command {
        ChunkCommand::Claim {
            name,
            fresh_for,
            no_wait,
        } => (
            name.clone(),
            Request::Claim {
                chunk: name,
                fresh_for_ms: fresh_for.map(millis),
                wait: !no_wait,
            },
        ),
        ChunkCommand::Note { name, cursor } => (
            name.clone(),
            Request::NoteChunk {
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
            end(name, how)
        }
        ChunkCommand::Fail {
            name,
            error,
            for_good: false,
        } => end(name, How::Failed { error }),
        ChunkCommand::Fail {
            name,
            error,
            for_good: true,
        } => end(name, How::Dead { error }),
        ChunkCommand::Release { name } => end(name, How::Released),
    };
    send(cx, &format!("chunk {}", plain(&chunk)), &request)
}

fn end(name: String, how: How) -> (String, Request) {
    (name.clone(), Request::End { chunk: name, how })
}

fn millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Sends a request to the worker, and prints its reply.
fn send(cx: &Context, what: &str, request: &Request) -> Result<Exit, Stop> {
    let reply = exchange(request)?;
    if cx.output.is_json() {
        cx.output.json(&reply)?;
    }
    let note = |text: String| cx.output.note(text);
    match reply {
        Reply::Accepted => Ok(Exit::Done),
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
            let message = format!("the lease on {what} is over: {why}");
            Err(Problem::new(Exit::Refused, message)
                .hint("stop: its next holder continues the work")
                .into())
        }
        Reply::AlreadyClaimed => {
            let message = format!("this command has claimed {what} already");
            Err(Problem::new(Exit::Refused, message)
                .hint("`tenure jobs chunk done NAME` settles it, `release` releases it")
                .into())
        }
        Reply::NotClaimed => {
            let message = format!("this command has not claimed {what}");
            Err(Problem::new(Exit::Refused, message)
                .hint("`tenure jobs chunk claim NAME` comes first, in the same job")
                .into())
        }
        Reply::Problem { message } => Err(Problem::new(Exit::Failed, plain(&message)).into()),
    }
}

fn exchange(request: &Request) -> Result<Reply, Problem> {
    let Some(path) = env::job_socket() else {
        let message = format!("{JOB_SOCKET} is not set: this is not the command of a job");
        return Err(Problem::new(Exit::Usage, message)
            .hint("`tenure jobs run --kind KIND --exec CMD` runs a command for each job"));
    };
    let gone = |cause: std::io::Error| {
        let message = "the worker that runs this command does not answer";
        Problem::new(Exit::Refused, message)
            .cause(cause)
            .hint("stop: another worker takes over the job")
    };
    let mut line = serde_json::to_string(request).map_err(|cause| gone(cause.into()))?;
    line.push('\n');
    let mut stream = UnixStream::connect(path).map_err(gone)?;
    stream.write_all(line.as_bytes()).map_err(gone)?;
    let mut text = String::new();
    let mut input = BufReader::new(stream.take(LINE_BYTES_MAX));
    input.read_line(&mut text).map_err(gone)?;
    serde_json::from_str(&text).map_err(|cause| gone(cause.into()))
}

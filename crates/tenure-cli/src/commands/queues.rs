//! `tenure queues`: lists, adds, pauses and resumes queues.

use clap::{Args, Subcommand};
use comfy_table::Cell;
use serde::Serialize;
use tenure::lease::Guarded;
use tenure::operate::Queue;
use tenure::store::QueueName;
use tenure::{Tenure, Term};

use super::{Context, paused_cell};
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::time::{self, brief};

#[derive(Debug, Args)]
pub(crate) struct Queues {
    #[command(subcommand)]
    pub(crate) command: Option<QueueCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum QueueCommand {
    /// List the queues
    #[command(after_help = "\
Examples:
  tenure queues list --json")]
    List,
    /// Add a queue, or change the term of an existing one
    #[command(after_help = "\
Examples:
  tenure queues add mail
  tenure queues add mail --term 90s")]
    Add {
        /// The name of the queue
        #[arg(value_parser = QueueName::new)]
        queue: QueueName,
        /// The term of leases on events of this queue, in place of lease.term: 30s, 90s
        #[arg(long, value_name = "DURATION", value_parser = time::term, allow_hyphen_values = true)]
        term: Option<Term>,
    },
    /// Pause a queue: claims skip it
    #[command(after_help = "\
Events that are held already are still worked on, and new ones are still written.

Examples:
  tenure queues pause mail")]
    Pause {
        /// The name of the queue
        #[arg(value_parser = QueueName::new)]
        queue: QueueName,
    },
    /// Resume a paused queue
    #[command(after_help = "\
Examples:
  tenure queues resume mail")]
    Resume {
        /// The name of the queue
        #[arg(value_parser = QueueName::new)]
        queue: QueueName,
    },
}

/// A queue in JSON.
#[derive(Serialize)]
struct QueueView<'a> {
    queue: &'a str,
    /// Null means lease.term.
    term_ms: Option<i64>,
    paused: bool,
}

pub(super) async fn run(cx: &Context, command: Option<QueueCommand>) -> Result<Exit, Stop> {
    match command {
        None | Some(QueueCommand::List) => list(cx).await,
        Some(QueueCommand::Add { queue, term }) => {
            let tenure = cx.database.open(IfMissing::Make).await?;
            let queues = tenure.queues().await?;
            let before = queues.into_iter().find(|other| other.name == queue);
            // Without `--term` the existing term stays: scripts repeat the command at every deploy.
            let old = before.as_ref().and_then(|queue| queue.term);
            let done = match &before {
                None => "added queue",
                Some(_) if term.is_none() || term == old => "unchanged queue",
                Some(_) => "changed queue",
            };
            tenure.add_queue(&queue, term.or(old)).await?;
            let exit = print(cx, &tenure, &queue, done).await?;
            if quoted(&queue) != queue.as_str() {
                cx.output.note(
                    "letters, digits, dots, dashes and underscores make a name that needs no \
                     quotes in a shell",
                );
            }
            Ok(exit)
        }
        Some(QueueCommand::Pause { queue }) => {
            let tenure = cx.database.open(IfMissing::Report).await?;
            accepted(&queue, tenure.pause_queue(&queue).await?)?;
            print(cx, &tenure, &queue, "paused queue").await
        }
        Some(QueueCommand::Resume { queue }) => {
            let tenure = cx.database.open(IfMissing::Report).await?;
            accepted(&queue, tenure.resume_queue(&queue).await?)?;
            print(cx, &tenure, &queue, "resumed queue").await
        }
    }
}

/// The name as it is, or in quotes if a shell would split or expand it.
fn quoted(name: &QueueName) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '.' | '-' | '_');
    if name.as_str().chars().all(is_plain) {
        return name.to_string();
    }
    format!("{:?}", name.as_str())
}

async fn list(cx: &Context) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let queues = tenure.queues().await?;
    let general = cx.settings(&tenure).await?.term;
    if cx.output.is_json() {
        for queue in &queues {
            cx.output.json(&view(queue))?;
        }
        return Ok(Exit::Done);
    }
    let rows = queues.iter().map(|queue| {
        vec![
            Cell::new(&queue.name),
            Cell::new(brief(queue.term.unwrap_or(general).length())),
            paused_cell(queue.paused),
        ]
    });
    cx.output.table(&["QUEUE", "TERM", ""], rows.collect())?;
    Ok(Exit::Done)
}

/// Prints one queue after a change.
async fn print(cx: &Context, tenure: &Tenure, name: &QueueName, done: &str) -> Result<Exit, Stop> {
    let queues = tenure.queues().await?;
    let queue = queues
        .iter()
        .find(|queue| queue.name == *name)
        .ok_or_else(|| no_such_queue(name))?;
    cx.output
        .either(&view(queue), || format!("{done} {}", quoted(name)))?;
    Ok(Exit::Done)
}

fn accepted(name: &QueueName, answer: Guarded) -> Result<(), Problem> {
    match answer {
        Guarded::Accepted(()) => Ok(()),
        Guarded::Refused(_) => Err(no_such_queue(name)),
    }
}

fn no_such_queue(name: &QueueName) -> Problem {
    Problem::new(Exit::Nothing, format!("there is no queue {name}"))
        .hint("`tenure queues` lists them, `tenure queues add NAME` adds one")
}

fn view(queue: &Queue) -> QueueView<'_> {
    QueueView {
        queue: queue.name.as_str(),
        term_ms: queue.term.map(Term::millis),
        paused: queue.paused,
    }
}

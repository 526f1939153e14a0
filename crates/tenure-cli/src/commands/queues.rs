//! `tenure queues`: lists, adds, pauses and resumes queues.

use clap::{Args, Subcommand};
use comfy_table::Cell;
use serde::Serialize;
use tenure::{Guarded, Queue, QueueName, Tenure, Term};

use super::{Context, paused_cell};
use crate::database::Absent;
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
    /// Declare a queue, or give one that is there another term
    #[command(after_help = "\
Examples:
  tenure queues add mail
  tenure queues add mail --term 90s")]
    Add {
        /// Its name
        #[arg(value_parser = QueueName::new)]
        queue: QueueName,
        /// The term of the leases on its events, instead of the general one: 30s, 90s
        #[arg(long, value_name = "DURATION", value_parser = time::term, allow_hyphen_values = true)]
        term: Option<Term>,
    },
    /// Let claims pass a queue by
    #[command(after_help = "\
What is in hand is not called back, and new events are still written.

Examples:
  tenure queues pause mail")]
    Pause {
        /// Its name
        #[arg(value_parser = QueueName::new)]
        queue: QueueName,
    },
    /// Let claims take from a queue again
    #[command(after_help = "\
Examples:
  tenure queues resume mail")]
    Resume {
        /// Its name
        #[arg(value_parser = QueueName::new)]
        queue: QueueName,
    },
}

/// A queue, in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    queue: &'a str,
    /// Null: the standard term.
    term_ms: Option<i64>,
    paused: bool,
}

pub(super) async fn run(cx: &Context, command: Option<QueueCommand>) -> Result<Exit, Stop> {
    match command {
        None | Some(QueueCommand::List) => list(cx).await,
        Some(QueueCommand::Add { queue, term }) => {
            let tenure = cx.database.open(Absent::Make).await?;
            // Said again without a term, as a script does at every deploy, it keeps the one it has.
            let term = match term {
                Some(term) => Some(term),
                None => term_of(&tenure, &queue).await?,
            };
            tenure.add_queue(&queue, term).await?;
            one(cx, &tenure, &queue, "there is a queue").await
        }
        Some(QueueCommand::Pause { queue }) => {
            let tenure = cx.database.open(Absent::Report).await?;
            kept(&queue, tenure.pause_queue(&queue).await?)?;
            one(cx, &tenure, &queue, "paused").await
        }
        Some(QueueCommand::Resume { queue }) => {
            let tenure = cx.database.open(Absent::Report).await?;
            kept(&queue, tenure.resume_queue(&queue).await?)?;
            one(cx, &tenure, &queue, "resumed").await
        }
    }
}

/// The term that a queue has of its own, if it is there.
async fn term_of(tenure: &Tenure, name: &QueueName) -> Result<Option<Term>, Stop> {
    let queues = tenure.queues().await?;
    let queue = queues.iter().find(|queue| queue.name == *name);
    Ok(queue.and_then(|queue| queue.term))
}

async fn list(cx: &Context) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let queues = tenure.queues().await?;
    let general = cx.settings(&tenure).await?.term;
    if cx.output.is_json() {
        for queue in &queues {
            cx.output.json(&shown(queue))?;
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

/// Says what one queue is like now.
async fn one(cx: &Context, tenure: &Tenure, name: &QueueName, word: &str) -> Result<Exit, Stop> {
    let queues = tenure.queues().await?;
    let queue = queues
        .iter()
        .find(|queue| queue.name == *name)
        .ok_or_else(|| no_such_queue(name))?;
    cx.output
        .either(&shown(queue), || format!("{word} {name}"))?;
    Ok(Exit::Done)
}

fn kept(name: &QueueName, answer: Guarded) -> Result<(), Problem> {
    match answer {
        Guarded::Kept(()) => Ok(()),
        Guarded::Refused(_) => Err(no_such_queue(name)),
    }
}

fn no_such_queue(name: &QueueName) -> Problem {
    Problem::new(Exit::Nothing, format!("there is no queue {name}"))
        .hint("`tenure queues` lists them, `tenure queues add NAME` declares one")
}

fn shown(queue: &Queue) -> Shown<'_> {
    Shown {
        queue: queue.name.as_str(),
        term_ms: queue.term.map(Term::millis),
        paused: queue.paused,
    }
}

//! `tenure queues`: lists, adds, pauses and resumes queues.

use std::time::Duration;

use clap::{Args, Subcommand};
use comfy_table::Cell;
use serde::Serialize;
use tenure::lease::{Guarded, RetryPolicy, RetryRules};
use tenure::operate::{Queue, QueueRules};
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
    /// Add a queue, or change the rules of an existing one
    #[command(after_help = "\
A rule that is not given stays as it is; at first it is that of the settings. The options of a \
handler override the rules of its queue.

Examples:
  tenure queues add mail
  tenure queues add mail --term 90s
  tenure queues add mail --max-retries 3 --retry-base 5s --retry-cap 1h")]
    Add {
        /// The name of the queue
        #[arg(value_parser = QueueName::new)]
        queue: QueueName,
        #[command(flatten)]
        rules: RuleArgs,
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

/// The rules of a queue.
#[derive(Debug, Args)]
pub(crate) struct RuleArgs {
    /// The term of leases on events of this queue, in place of lease.term: 30s, 90s
    #[arg(long, value_name = "DURATION", value_parser = time::term, allow_hyphen_values = true)]
    term: Option<Term>,
    /// The maximum number of retries of an event, in place of `retry.max_retries`
    #[arg(long, value_name = "NUMBER", allow_hyphen_values = true)]
    max_retries: Option<u32>,
    /// The maximum delay after the first failure, in place of `retry.base`; it doubles each time
    #[arg(long, value_name = "DURATION", value_parser = time::delay, allow_hyphen_values = true)]
    retry_base: Option<Duration>,
    /// The upper limit of the delays, in place of `retry.cap`
    #[arg(long, value_name = "DURATION", value_parser = time::delay, allow_hyphen_values = true)]
    retry_cap: Option<Duration>,
}

impl RuleArgs {
    /// The given rules, and `old` for the others: scripts repeat the command at every deploy.
    fn over(&self, old: QueueRules) -> Result<QueueRules, Problem> {
        let retry = RetryRules {
            max_retries: self.max_retries,
            base: self.retry_base,
            cap: self.retry_cap,
        };
        let term = self.term;
        let rules = QueueRules { term, retry }.or(old);
        match rules.retry.check() {
            Ok(()) => Ok(rules),
            Err(problem) => Err(Problem::new(Exit::Usage, problem.to_string())
                .hint("`tenure queues` lists the rules; nothing was changed")),
        }
    }
}

/// A queue in JSON; a rule that is null is that of the settings.
#[derive(Serialize)]
struct QueueView<'a> {
    queue: &'a str,
    term_ms: Option<i64>,
    max_retries: Option<u32>,
    retry_base_ms: Option<u128>,
    retry_cap_ms: Option<u128>,
    paused: bool,
}

pub(super) async fn run(cx: &Context, command: Option<QueueCommand>) -> Result<Exit, Stop> {
    match command {
        None | Some(QueueCommand::List) => list(cx).await,
        Some(QueueCommand::Add { queue, rules }) => {
            let tenure = cx.database.open(IfMissing::Make).await?;
            let queues = tenure.queues().await?;
            let before = queues.into_iter().find(|other| other.name == queue);
            // Rules that are not given stay: scripts repeat the command at every deploy.
            let old = before.as_ref().map(|queue| queue.rules).unwrap_or_default();
            let rules = rules.over(old)?;
            let done = match &before {
                None => "added queue",
                Some(_) if rules == old => "unchanged queue",
                Some(_) => "changed queue",
            };
            tenure.add_queue(&queue, rules).await?;
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
    let settings = cx.settings(&tenure).await?;
    if cx.output.is_json() {
        for queue in &queues {
            cx.output.json(&view(queue))?;
        }
        return Ok(Exit::Done);
    }
    let rows = queues.iter().map(|queue| {
        vec![
            Cell::new(&queue.name),
            Cell::new(brief(queue.rules.term.unwrap_or(settings.term).length())),
            Cell::new(retries(&settings.retry_policy().with(queue.rules.retry))),
            paused_cell(queue.paused),
        ]
    });
    cx.output
        .table(&["QUEUE", "TERM", "RETRIES", ""], rows.collect())?;
    Ok(Exit::Done)
}

/// The number of retries, and the longest time that they take.
fn retries(policy: &RetryPolicy) -> String {
    let most = policy.max_retries;
    match policy.window(0) {
        Duration::ZERO => most.to_string(),
        window => format!("{most} in up to {}", brief(window)),
    }
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
        term_ms: queue.rules.term.map(Term::millis),
        max_retries: queue.rules.retry.max_retries,
        retry_base_ms: queue.rules.retry.base.map(|base| base.as_millis()),
        retry_cap_ms: queue.rules.retry.cap.map(|cap| cap.as_millis()),
        paused: queue.paused,
    }
}

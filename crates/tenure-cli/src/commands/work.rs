//! `tenure work`: works without HTTP.

use std::collections::BTreeSet;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tenure::operate::OutcomeCounts;
use tenure::settings::Setting;
use tenure::store::QueueName;
use tenure::table::Table;
use tenure::webhook::EndpointState;
use tenure::{StoreError, Tenure};

use super::Context;
use super::config::fault;
use super::serve::{WorkerArgs, announce, given, print_outcomes, run_until_stopped, signals};
use crate::assemble::{self, Schema};
use crate::config::{Config, Override, PublisherConfig, nearest};
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::team::{TeamOutcomes, TeamWatch};
use crate::{logs, time};

/// The names of the publishers of `--exec` and `--exec-lines`.
const EXEC: &str = "exec";
const EXEC_LINES: &str = "exec-lines";
/// Interval between two polls of `--drain`.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Consecutive quiet polls that end `--drain`.
const QUIET_POLLS: u32 = 2;

#[derive(Debug, Args)]
pub(crate) struct Work {
    /// Serve only this queue; repeatable
    #[arg(long = "queue", value_name = "QUEUE", value_parser = QueueName::new)]
    queues: Vec<QueueName>,

    /// Run this command for each event, in place of the configured routes
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    exec: Option<String>,

    /// Print each event as a line of JSON and mark it done, in place of the configured routes
    #[arg(long, conflicts_with_all = ["exec", "exec_lines"])]
    print: bool,

    /// Keep this command running, with an event per line in and an answer per line out, in place
    /// of the configured routes; one process per event that is worked on (--concurrency)
    #[arg(
        long,
        value_name = "CMD",
        conflicts_with = "exec",
        value_parser = NonEmptyStringValueParser::new()
    )]
    exec_lines: Option<String>,

    /// Work on the rows of this adopted table, in place of events
    #[arg(long, value_name = "NAME", conflicts_with = "queues")]
    table: Option<String>,

    /// Stop when nothing is due any more, and print the outcomes; exits with 0, or with 2 when a
    /// queue does not exist or a command cannot run
    #[arg(long)]
    drain: bool,

    /// Term of the leases, in place of `lease.term`
    #[arg(long, value_name = "DURATION")]
    term: Option<String>,

    #[command(flatten)]
    working: WorkerArgs,
}

impl Work {
    pub(super) fn overrides(&self) -> Vec<Override> {
        let names: Vec<_> = self.queues.iter().map(QueueName::as_str).collect();
        let queues = (!names.is_empty()).then(|| names.join(","));
        let own = [
            given("worker.queues", queues.as_ref(), "--queue"),
            given(Setting::Term.as_str(), self.term.as_ref(), "--term"),
        ];
        let own = own.into_iter().flatten();
        own.chain(self.working.overrides()).collect()
    }

    /// The configuration with `--exec`, `--exec-lines` or `--print` in place of its routes.
    fn routed(&self, config: &Config) -> Config {
        let (name, publisher) = match (&self.exec, &self.exec_lines) {
            (Some(command), _) => {
                let command = command.clone();
                let timeout = None;
                (EXEC, PublisherConfig::Exec { command, timeout })
            }
            (None, Some(command)) => {
                let publisher = PublisherConfig::ExecLines {
                    command: command.clone(),
                    timeout: None,
                    processes: None,
                };
                (EXEC_LINES, publisher)
            }
            (None, None) => return config.or_print(self.print),
        };
        config.with_only(name, publisher)
    }
}

pub(super) async fn run(cx: &Context, args: &Work) -> Result<Exit, Stop> {
    let config = args.routed(&cx.config);
    let can_deliver = config.webhook.fan_out || config.webhook.send;
    if args.drain && config.routes.is_empty() && (args.table.is_some() || !can_deliver) {
        return Err(nothing_to_do().into());
    }
    if args.drain {
        check_commands(&config)?;
    }
    let worker = tenure::lease::new_worker_id(&config.worker_name)?;
    logs::init(&config.log, Some(worker.as_str()))?;
    logs::warn_of_mistakes(&config.warnings);
    let mut signals = signals()?;
    let opened = assemble::open(&config, &worker, Schema::Expected, args.working.wait);
    let tenure = tokio::select! {
        opened = opened => opened?,
        () = signals.next() => return Ok(Exit::Done),
    };
    if args.drain {
        check_queues(&tenure, &config.serve_queues).await?;
    }
    if args.drain && config.routes.is_empty() && tenure.endpoints_by_number().await?.is_empty() {
        return Err(nothing_to_do().into());
    }
    let table = match &args.table {
        Some(name) => Some(tenure.table(name).await?),
        None => None,
    };
    let running = match &table {
        Some(table) => assemble::start_on(table, &config).await?,
        None => assemble::start(&tenure, &config).await?,
    };
    announce(cx, format_args!("works on {} as {worker}", config.database));
    let watch = running.watch();
    let enough = async {
        if args.drain {
            drained(async || match &table {
                Some(table) => is_quiet_table(table, &watch).await,
                None => is_quiet(&tenure, &watch, &config.serve_queues).await,
            })
            .await;
        } else {
            std::future::pending::<()>().await;
        }
    };
    let over = std::future::ready(());
    let (exit, outcomes) = run_until_stopped(running, &mut signals, enough, over).await;
    if let Some(outcomes) = outcomes.filter(|_| args.drain) {
        print_drained(cx, args, &outcomes);
    }
    Ok(exit)
}

/// Refuses a command that cannot run: nothing would ever be done, and a drain ends all the same.
fn check_commands(config: &Config) -> Result<(), Stop> {
    let routed = config.routes.iter().map(|route| route.publisher.as_str());
    let routed: BTreeSet<&str> = routed.collect();
    let publishers = config.publishers.iter();
    let problems: Vec<Problem> = publishers
        .filter(|(name, _)| routed.contains(name.as_str()))
        .filter_map(|(name, publisher)| fault(name, publisher))
        .collect();
    if problems.is_empty() {
        return Ok(());
    }
    Err(Stop::Problems(problems))
}

/// Refuses a queue that does not exist, which is most likely mistyped.
async fn check_queues(tenure: &Tenure, served: &[QueueName]) -> Result<(), Stop> {
    let known = tenure.queues().await?;
    let is_known = |name: &&QueueName| known.iter().any(|queue| queue.name == **name);
    let Some(unknown) = served.iter().find(|name| !is_known(name)) else {
        return Ok(());
    };
    let names: Vec<&str> = known.iter().map(|queue| queue.name.as_str()).collect();
    let message = format!(
        "there is no queue {:?}, so nothing would ever be done; expected one of {}",
        unknown.as_str(),
        names.join(", ")
    );
    let hint = match nearest(unknown.as_str(), names.iter().copied()) {
        Some(meant) => format!("did you mean {meant}?"),
        None => format!("`tenure queues add {unknown}` adds it"),
    };
    Err(Problem::new(Exit::Usage, message).hint(hint).into())
}

fn nothing_to_do() -> Problem {
    let message = "no route is configured: nothing would ever be done";
    let hint = "give --exec CMD, --exec-lines CMD or --print, or routes in the configuration";
    Problem::new(Exit::Usage, message).hint(hint)
}

/// Prints the outcomes of a drain.
fn print_drained(cx: &Context, args: &Work, outcomes: &TeamOutcomes) {
    if let Some(name) = &args.table {
        let command = format!("events --table {name} --state dead");
        return print_outcomes(cx, "rows", outcomes.items, &command);
    }
    print_outcomes(cx, "events", outcomes.items, "events --state dead");
    let sent = outcomes.deliveries;
    if let Some(sent) = sent.filter(|sent| *sent != OutcomeCounts::default()) {
        print_outcomes(cx, "deliveries", sent, "deliveries list --state dead");
    }
}

/// Waits until `is_quiet` has been true twice in a row.
pub(super) async fn drained(is_quiet: impl AsyncFn() -> Result<bool, StoreError>) {
    let mut quiet = 0;
    while quiet < QUIET_POLLS {
        // Other processes enqueue and settle, too, and the store does not notify, so poll.
        tokio::time::sleep(POLL_INTERVAL).await;
        quiet = match is_quiet().await {
            Ok(true) => quiet + 1,
            Ok(false) => 0,
            Err(error) => {
                tracing::warn!(%error, "could not count the remaining work");
                0
            }
        };
    }
}

/// Returns true if no row is due or lapsed, and nothing is held.
async fn is_quiet_table(table: &Table, watch: &TeamWatch) -> Result<bool, StoreError> {
    let counts = table.count().await?;
    let is_due = counts.queues.iter().any(|(_, waits)| waits.due > 0);
    Ok(!is_due && counts.lapsed == 0 && !watch.is_busy())
}

async fn is_quiet(
    tenure: &Tenure,
    watch: &TeamWatch,
    served: &[QueueName],
) -> Result<bool, StoreError> {
    if watch.is_busy() {
        // Counting is dear while many events wait.
        return Ok(false);
    }
    let is_due = tenure.has_due(served, &watch.topics()).await?;
    let has_deliveries = watch.sends() && has_deliveries(tenure, watch).await?;
    // Check the workers last: an item that is no longer due is claimed, held or settled by then.
    Ok(!is_due && !has_deliveries && !watch.is_busy())
}

/// Returns true if a delivery is due to an endpoint that this process sends to.
async fn has_deliveries(tenure: &Tenure, watch: &TeamWatch) -> Result<bool, StoreError> {
    let due = tenure.due_endpoints().await?;
    if due.is_empty() {
        return Ok(false);
    }
    let now = time::now();
    let endpoints = tenure.endpoints_by_number().await?;
    let is_open = |number: &u32| {
        endpoints.get(number).is_some_and(|endpoint| {
            endpoint.state == EndpointState::Enabled
                && !endpoint.health.is_paused(now)
                && watch.can_call(endpoint)
        })
    };
    Ok(due.iter().any(is_open))
}

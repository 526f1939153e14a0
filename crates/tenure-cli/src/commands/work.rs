//! `tenure work`: work, without HTTP.

use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use tenure::webhook::EndpointState;
use tenure::{Counts, QueueName, Setting, StoreError, Table, Tallied, Tenure, TopicPattern};

use super::Context;
use super::serve::{Working, given, greet, signals, sum_up, until_the_end};
use crate::assemble::{self, Schema};
use crate::config::{Config, Override, PublisherConfig, Route};
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::team::{TeamWatch, Worked};
use crate::{logs, time};

/// The name of the publisher that `--exec` makes.
const EXEC: &str = "exec";
/// How often `--drain` looks whether anything is left.
const LOOK: Duration = Duration::from_millis(100);
/// How often in a row it must see nothing.
const LOOKS: u32 = 2;

#[derive(Debug, Args)]
pub(crate) struct Work {
    /// Serve only this queue; may be given often
    #[arg(long = "queue", value_name = "QUEUE", value_parser = QueueName::new)]
    queues: Vec<QueueName>,

    /// Run this command for each event, in place of the configured routes
    #[arg(long, value_name = "CMD", value_parser = NonEmptyStringValueParser::new())]
    exec: Option<String>,

    /// Work on the rows of this adopted table, in place of events
    #[arg(long, value_name = "NAME", conflicts_with = "queues")]
    table: Option<String>,

    /// Stop when nothing is due any more, and say what became of it; ends with 0
    #[arg(long)]
    drain: bool,

    /// Leases run this long unless they are renewed, in place of `lease.term`
    #[arg(long, value_name = "DURATION")]
    term: Option<String>,

    #[command(flatten)]
    working: Working,
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

    /// The configuration with `--exec` in place of its routes.
    fn routed(&self, config: &Config) -> Config {
        let mut config = config.clone();
        if let Some(command) = &self.exec {
            let exec = PublisherConfig::Exec {
                command: command.clone(),
                timeout: None,
            };
            config.remarks.clear();
            config.publishers = [(EXEC.to_owned(), exec)].into();
            config.routes = vec![Route {
                topics: vec![TopicPattern::any()],
                publisher: EXEC.to_owned(),
            }];
        }
        config
    }
}

pub(super) async fn run(cx: &Context, args: &Work) -> Result<Exit, Stop> {
    let config = args.routed(&cx.config);
    if args.drain && config.routes.is_empty() {
        return Err(Problem::new(
            Exit::Usage,
            "no route is configured: nothing would ever be done",
        )
        .hint("give --exec CMD, or routes in the configuration")
        .into());
    }
    let worker = tenure::new_worker_id(&config.worker_name)?;
    logs::init(&config.log, Some(worker.as_str()))?;
    logs::tell_remarks(&config.remarks);
    let mut signals = signals()?;
    let opened = assemble::open(&config, &worker, Schema::Expected, args.working.wait);
    let tenure = tokio::select! {
        opened = opened => opened?,
        () = signals.next() => return Ok(Exit::Done),
    };
    let table = match &args.table {
        Some(name) => Some(tenure.table(name).await?),
        None => None,
    };
    let running = match &table {
        Some(table) => assemble::start_on(table, &config).await?,
        None => assemble::start(&tenure, &config).await?,
    };
    greet(cx, format_args!("works on {} as {worker}", config.database));
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
    let (exit, worked) = until_the_end(running, &mut signals, enough, over).await;
    if let Some(worked) = worked.filter(|_| args.drain) {
        tell(cx, args, &worked);
    }
    Ok(exit)
}

/// Says what became of what a drain worked on.
fn tell(cx: &Context, args: &Work, worked: &Worked) {
    if let Some(name) = &args.table {
        let look = format!("events --table {name} --state dead");
        return sum_up(cx, "rows", worked.items, &look);
    }
    sum_up(cx, "events", worked.items, "events --state dead");
    let sent = worked.deliveries;
    if let Some(sent) = sent.filter(|sent| *sent != Tallied::default()) {
        sum_up(cx, "deliveries", sent, "deliveries list --state dead");
    }
}

/// Waits until nothing is due and nothing is in hand.
async fn drained(is_quiet: impl AsyncFn() -> Result<bool, StoreError>) {
    let mut quiet = 0;
    while quiet < LOOKS {
        // Others enqueue and settle, too: the store alone knows, and it gives no notice.
        tokio::time::sleep(LOOK).await;
        quiet = match is_quiet().await {
            Ok(true) => quiet + 1,
            Ok(false) => 0,
            Err(error) => {
                tracing::warn!(%error, "the store did not say what is left");
                0
            }
        };
    }
}

/// Whether no row is due, nor held past its term, and nothing is in hand.
async fn is_quiet_table(table: &Table, watch: &TeamWatch) -> Result<bool, StoreError> {
    let counts = table.count().await?;
    let is_due = counts.queues.iter().any(|(_, waits)| waits.due > 0);
    Ok(!is_due && counts.lapsed == 0 && !watch.is_holding())
}

async fn is_quiet(
    tenure: &Tenure,
    watch: &TeamWatch,
    served: &[QueueName],
) -> Result<bool, StoreError> {
    let queues = tenure.queues().await?;
    let is_open = |name: &QueueName| {
        queues
            .iter()
            .any(|queue| queue.name == *name && !queue.paused)
    };
    let is_ours = |name: &QueueName| served.is_empty() || served.contains(name);
    let counts = tenure.count().await?;
    let mut waits = counts.queues.iter();
    let is_due = waits.any(|(name, waits)| waits.due > 0 && is_ours(name) && is_open(name));
    let is_owed = watch.sends() && is_owed(tenure, watch, &counts).await?;
    // Looked at last: what was claimed since is in hand, or settled.
    Ok(!is_due && !is_owed && !watch.is_holding())
}

/// Whether something is due for an endpoint that this process sends to.
async fn is_owed(tenure: &Tenure, watch: &TeamWatch, counts: &Counts) -> Result<bool, StoreError> {
    let lines = &counts.deliveries.endpoints;
    if lines.iter().all(|(_, line)| line.due == 0) {
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
    Ok(lines
        .iter()
        .any(|(number, line)| line.due > 0 && is_open(number)))
}

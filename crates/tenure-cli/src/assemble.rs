//! Builds the running parts from the configuration: store, publishers, workers, metrics, ports of
//! the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use tenure::lease::{Item, WorkerId};
use tenure::operate::{Duties, Duty};
use tenure::publish::{
    Exec, ExecLines, Handler, Handling, Lines, Readiness, Relay, TopicPattern, TopicSet, Topics,
    TopicsAnswer,
};
use tenure::server::Ports;
use tenure::settings::Setting;
use tenure::table::Table;
use tenure::{Failure, Publisher, StoreError, Tenure, WorkerBuilder, WorkerError};
use tokio::time::Instant;

use crate::config::{Config, Place, PublisherConfig};
use crate::database::{OPEN_TIMEOUT, silent};
use crate::env;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::spans::Spans;
use crate::team::{Sending, Team, TeamWatch};
use crate::webhook::{self, ReloadingCaller};

/// Delay before reconnecting to a database that does not answer.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Shortest time for an attempt to open the database, however little of `--wait` is left.
const ATTEMPT_TIME_MIN: Duration = Duration::from_secs(1);
/// Interval between two upkeep runs of the metrics recorder.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);
/// Bounds of the histograms, in seconds.
const BUCKETS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0,
];

/// Handling of the schema when a store is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Schema {
    /// Bring it up to date.
    Migrated,
    /// Require one that this program can use, and a database that is not read-only.
    Kept,
    /// Require one that this program can use; an SQLite file is migrated anyway.
    Expected,
}

/// Opens the store and adds the configured queues. Retries up to `wait` while the database does not
/// answer.
pub(crate) async fn open(
    config: &Config,
    worker: &WorkerId,
    schema: Schema,
    wait: Duration,
) -> Result<Tenure, Stop> {
    config.database.check_lasting()?;
    check_connections(config)?;
    let began = Instant::now();
    loop {
        let left = wait.saturating_sub(began.elapsed());
        let limit = if wait.is_zero() { OPEN_TIMEOUT } else { left };
        let limit = limit.clamp(ATTEMPT_TIME_MIN, OPEN_TIMEOUT);
        let (error, stop) = match attempt(config, worker, schema, limit).await {
            Ok(Ok(tenure)) => return Ok(tenure),
            Ok(Err(error)) if !error.is_transient() => return Err(error.into()),
            Ok(Err(error)) => (error.to_string(), Stop::from(error)),
            Err(problem) => (problem.message.clone(), problem.into()),
        };
        let left = wait.saturating_sub(began.elapsed());
        if left.is_zero() {
            return Err(stop);
        }
        let error = config.database.hide(&error);
        tracing::warn!(
            error,
            seconds_left = left.as_secs(),
            "the database did not answer"
        );
        // The database does not notify when it is available again, so poll.
        tokio::time::sleep(RETRY_DELAY.min(left)).await;
    }
}

/// Refuses too few connections for a worker, before a database is opened.
pub(crate) fn check_connections(config: &Config) -> Result<(), Problem> {
    let (number, least) = (config.store.connections, Tenure::CONNECTIONS_MIN);
    if !config.database.is_postgres() || number >= least {
        return Ok(());
    }
    let place = config.place("store.connections");
    let message =
        format!("{place}: store.connections is {number}; expected {least} or more for a worker");
    Err(Problem::new(Exit::Usage, message)
        .hint("two of the connections only renew leases; other commands work with one"))
}

/// Opens the store once. The outer error reports a database that takes the connection and does not
/// answer within `limit`; a migration may take longer.
async fn attempt(
    config: &Config,
    worker: &WorkerId,
    schema: Schema,
    limit: Duration,
) -> Result<Result<Tenure, StoreError>, Problem> {
    let url = config.database.expose();
    let migrates = match schema {
        Schema::Migrated => true,
        // With nothing to migrate, this only refuses a read-only database.
        Schema::Kept => match tenure::store::schema_version(url, &config.store).await {
            Ok(version) => version.is_usable(),
            Err(error) => return Ok(Err(error)),
        },
        Schema::Expected => false,
    };
    if migrates {
        match tenure::migrate(url, &config.store).await {
            Ok(moved) if moved.is_changed() => {
                let (from, to) = (moved.from, moved.to.tables);
                tracing::info!(from, to, "migrated the schema");
            }
            Ok(_) => {}
            Err(error) => return Ok(Err(error)),
        }
    }
    let open = async {
        let tenure = Tenure::open_as(url, &config.store, worker.clone()).await?;
        add_queues(&tenure, config).await?;
        Ok(tenure)
    };
    let opened = tokio::time::timeout(limit, open).await;
    opened.map_err(|_elapsed| silent(limit))
}

/// Adds the configured queues, or changes their rules. A rule that the configuration does not give
/// stays as it is, like one that `queues add` does not give.
async fn add_queues(tenure: &Tenure, config: &Config) -> Result<(), StoreError> {
    if config.queues.is_empty() {
        return Ok(());
    }
    let all = tenure.queues().await?;
    for (name, rules) in &config.queues {
        let old = all.iter().find(|queue| queue.name == *name);
        let old = old.map(|queue| queue.rules).unwrap_or_default();
        tenure.add_queue(name, rules.or(old)).await?;
    }
    Ok(())
}

/// Starts the configured workers.
pub(crate) async fn start(tenure: &Tenure, config: &Config) -> Result<Team, Stop> {
    let mut relays = Relays::new(config);
    let spans = Spans::start();
    let mut relay = spans.of(worker(tenure, &mut relays)?);
    // Start the sender first, so that the relay can wake it.
    let mut sender = None;
    if config.webhook.send {
        let own = webhook::own_addresses(config).await;
        let caller = Arc::new(ReloadingCaller::new(config.webhook.clone(), own));
        let left = Duties {
            reaper: Duty::Left,
            pruner: Duty::Left,
            replayer: Duty::Left,
        };
        let started = spans
            .of(tenure.sender(Arc::<ReloadingCaller>::clone(&caller)))
            .settings(config.settings.clone())
            .concurrency(config.webhook.concurrency)
            .term(config.webhook.term)
            .duties(left)
            .host(host())
            .start()
            .await
            .map_err(|error| cannot_start(&error))?;
        relay = relay.wakes(&started);
        sender = Some(Sending {
            worker: started,
            caller,
        });
    }
    let relay = relay.start().await;
    let relay = relay.map_err(|error| cannot_start(&error))?;
    Ok(Team::new(relay, sender, relays.processes, spans))
}

/// Starts a worker on the rows of a table, with the same routes: the topic is the table's name.
pub(crate) async fn start_on(table: &Table, config: &Config) -> Result<Team, Stop> {
    let mut topics = Topics::new();
    let mut relays = Relays::new(config);
    for route in &config.routes {
        let relay = relays.get(&route.publisher)?;
        for pattern in &route.topics {
            topics.add(pattern.clone(), Arc::clone(&relay));
        }
    }
    if config.routes.is_empty() {
        tracing::warn!("no route is configured; rows stay pending");
        topics.add(TopicPattern::any(), Arc::new(NoRoute));
    }
    let spans = Spans::start();
    let mut worker = spans
        .of(table.worker())
        .handler(Arc::new(topics))
        .settings(config.settings.clone())
        .host(host());
    let of_leases = [Setting::Term, Setting::Heartbeat];
    if of_leases
        .iter()
        .any(|setting| *config.place(setting.as_str()) != Place::Default)
    {
        // A configured value applies to rows, too, even if it equals the default for events.
        worker = worker.term_as_set();
    }
    let worker = worker.start().await.map_err(|error| cannot_start(&error))?;
    Ok(Team::new(worker, None, relays.processes, spans))
}

/// The configured worker, ready to start.
fn worker(tenure: &Tenure, relays: &mut Relays<'_>) -> Result<WorkerBuilder, Problem> {
    let config = relays.config;
    let mut builder = tenure
        .worker()
        .queues(
            config
                .serve_queues
                .iter()
                .map(tenure::store::QueueName::as_str),
        )
        .settings(config.settings.clone())
        .host(host());
    for route in &config.routes {
        let relay = relays.get(&route.publisher)?;
        for pattern in &route.topics {
            builder = builder.route(pattern.clone(), Arc::clone(&relay));
        }
    }
    if config.routes.is_empty() {
        tracing::warn!(
            "no routes: events without a subscribed endpoint stay pending; add [[routes]] to the \
             configuration, or print events with --print"
        );
    }
    if config.webhook.fan_out {
        builder = builder.fan_out();
    } else if config.routes.is_empty() {
        builder = builder.route(TopicPattern::any(), Arc::new(NoRoute));
    }
    Ok(builder)
}

/// The handlers that give events to the publishers of the routes, one per publisher.
struct Relays<'a> {
    config: &'a Config,
    made: BTreeMap<&'a str, Arc<dyn Handler>>,
    /// Publishers whose processes are to be ended when the worker has stopped.
    processes: Vec<ExecLines>,
}

impl<'a> Relays<'a> {
    fn new(config: &'a Config) -> Self {
        Self {
            config,
            made: BTreeMap::new(),
            processes: Vec::new(),
        }
    }

    fn get(&mut self, name: &'a str) -> Result<Arc<dyn Handler>, Problem> {
        if let Some(relay) = self.made.get(name) {
            return Ok(Arc::clone(relay));
        }
        let relay: Arc<dyn Handler> = Arc::new(Relay::new(name, self.publisher(name)?));
        self.made.insert(name, Arc::clone(&relay));
        Ok(relay)
    }

    fn publisher(&mut self, name: &str) -> Result<Arc<dyn Publisher>, Problem> {
        let Some(publisher) = self.config.publishers.get(name) else {
            let message = format!("a route names the publisher {name}, which does not exist");
            return Err(Problem::new(Exit::Usage, message));
        };
        Ok(match publisher {
            PublisherConfig::Lines { path: None } => {
                Arc::new(Lines::stdout().map_err(|cause| cannot_publish(name, &cause))?)
            }
            PublisherConfig::Lines { path: Some(path) } => {
                Arc::new(Lines::file(path).map_err(|cause| cannot_publish(name, &cause))?)
            }
            PublisherConfig::Exec { command, timeout } => {
                let exec = Exec::new(command).hide(env::hidden());
                Arc::new(match timeout {
                    Some(timeout) => exec.timeout(*timeout),
                    None => exec,
                })
            }
            PublisherConfig::ExecLines {
                command,
                timeout,
                processes,
            } => {
                let mut exec = ExecLines::new(command).hide(env::hidden());
                if let Some(timeout) = timeout {
                    exec = exec.timeout(*timeout);
                }
                if let Some(processes) = processes {
                    exec = exec.processes(usize::from(*processes));
                }
                self.processes.push(exec.clone());
                Arc::new(exec)
            }
        })
    }
}

fn cannot_publish(name: &str, cause: &std::io::Error) -> Problem {
    let message = format!("cannot set up the publisher {name}");
    Problem::new(Exit::Failed, message).cause(cause)
}

/// The handler of a process without routes: it takes no topic and is never ready, so that the
/// worker claims nothing.
#[derive(Debug)]
struct NoRoute;

impl Handler for NoRoute {
    fn handle(&self, _item: Item, _cx: tenure::Context) -> Handling<'_> {
        Box::pin(async { Err(Failure::new("no route is configured")) })
    }

    fn topics(&self) -> TopicsAnswer<'_> {
        Box::pin(std::future::ready(TopicSet::from_iter([])))
    }

    fn readiness(&self) -> Readiness {
        Readiness::Away {
            reason: "no route is configured".to_owned(),
        }
    }
}

/// The host name of this machine.
pub(crate) fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Installs the metrics recorder; once per process.
pub(crate) fn figures() -> Result<PrometheusHandle, Problem> {
    let by_bounds = |builder: PrometheusBuilder, end: &str| {
        builder.set_buckets_for_metric(Matcher::Suffix(end.to_owned()), &BUCKETS)
    };
    let handle = by_bounds(PrometheusBuilder::new(), "_seconds")
        .and_then(|builder| by_bounds(builder, "_duration"))
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(|cause| Problem::new(Exit::Failed, "cannot collect metrics").cause(cause))?;
    let recorder = handle.clone();
    tokio::spawn(async move {
        let mut ticks = tokio::time::interval(UPKEEP_INTERVAL);
        loop {
            ticks.tick().await;
            recorder.run_upkeep();
        }
    });
    Ok(handle)
}

/// The ports that the server reads from.
pub(crate) fn ports(tenure: &Tenure, watch: TeamWatch, figures: PrometheusHandle) -> Ports {
    Ports {
        store: tenure.shared(),
        health: Arc::new(move || watch.health()),
        metrics: Arc::new(move || figures.render()),
    }
}

/// Reports that a worker cannot start.
pub(crate) fn cannot_start(error: &WorkerError) -> Stop {
    if let WorkerError::Invalid(problems) = error {
        let problems = problems.iter();
        let problems = problems.map(|problem| Problem::new(Exit::Usage, problem.to_string()));
        return Stop::Problems(problems.collect());
    }
    Problem::new(Exit::Failed, error.to_string()).into()
}

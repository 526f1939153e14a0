//! `tenure serve`: works and answers HTTP in one process; migrates first if told to.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tenure::operate::OutcomeCounts;
use tenure::{Signals, server};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::Context;
use crate::assemble::{self, Schema};
use crate::config::{Config, LogFormat, Override};
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::team::{Team, TeamOutcomes};
use crate::{logs, time};

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Listen here; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,

    /// Print each event as a line of JSON and mark it done, in place of the configured routes
    #[arg(long)]
    print: bool,

    /// Bring the schema up to date first; without it, an older PostgreSQL schema is an error
    #[arg(long)]
    migrate: bool,

    #[command(flatten)]
    working: WorkerArgs,
}

/// Options of the commands that work on events.
#[derive(Debug, Args)]
pub(crate) struct WorkerArgs {
    /// Keep trying for this long if the database does not answer at the start
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time::duration)]
    pub(super) wait: Duration,

    /// Worker name; a random suffix is added at each start
    #[arg(long)]
    name: Option<String>,

    /// Work on this many events at once
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,

    /// Claim at most this many events at once
    #[arg(long, value_name = "N")]
    batch: Option<u32>,
}

/// The override by a flag, if it was given.
pub(super) fn given(
    setting: &str,
    value: Option<&impl ToString>,
    flag: &'static str,
) -> Option<Override> {
    value.map(|value| (setting.to_owned(), value.to_string(), flag))
}

impl WorkerArgs {
    pub(super) fn overrides(&self) -> Vec<Override> {
        [
            given("worker.name", self.name.as_ref(), "--name"),
            given(
                "worker.concurrency",
                self.concurrency.as_ref(),
                "--concurrency",
            ),
            given("worker.batch", self.batch.as_ref(), "--batch"),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

impl Serve {
    pub(super) fn overrides(&self) -> Vec<Override> {
        let migrate = self.migrate.then_some(&true);
        [
            given("server.listen", self.listen.as_ref(), "--listen"),
            given("migrate.at_start", migrate, "--migrate"),
        ]
        .into_iter()
        .flatten()
        .chain(self.working.overrides())
        .collect()
    }
}

pub(super) async fn run(cx: &Context, args: &Serve) -> Result<Exit, Stop> {
    let config = &cx.config.or_print(args.print);
    check_private(config.listen)?;
    let worker = tenure::lease::new_worker_id(&config.worker_name)?;
    logs::init(&config.log, Some(worker.as_str()))?;
    logs::warn_of_mistakes(&config.warnings);
    let mut signals = signals()?;
    let listener = bind(config.listen).await?;
    let address = listener.local_addr()?;

    let opened = assemble::open(config, &worker, schema(config), args.working.wait);
    let tenure = tokio::select! {
        opened = opened => opened?,
        () = signals.next() => return Ok(Exit::Done),
    };
    let figures = assemble::figures()?;
    let running = assemble::start(&tenure, config).await?;
    let router = server::router(assemble::ports(&tenure, running.watch(), figures));
    let (close, closed) = oneshot::channel::<()>();
    let http = tokio::spawn(server::serve(listener, router, closed).in_current_span());
    announce(
        cx,
        format_args!("serves {} on http://{address} as {worker}", config.database),
    );
    tracing::info!(%address, "listening");

    // Probes are answered until the end: live, but no longer ready.
    let end_http = async {
        drop(close);
        if let Err(error) = http.await {
            tracing::error!(%error, "the server stopped early");
        }
    };
    let enough = std::future::pending();
    let (exit, _outcomes) = run_until_stopped(running, &mut signals, enough, end_http).await;
    Ok(exit)
}

/// An SQLite file belongs to one machine, and every command that opens it migrates it. Programs on
/// other machines may use a PostgreSQL database, so its migration is an operator's decision.
fn schema(config: &Config) -> Schema {
    if config.migrate_at_start || config.database.is_file() {
        Schema::Migrated
    } else {
        Schema::Kept
    }
}

/// Announces the start to people; with JSON logs, as a line of the log.
pub(super) fn announce(cx: &Context, what: fmt::Arguments<'_>) {
    let version = env!("CARGO_PKG_VERSION");
    match cx.config.log.format {
        LogFormat::Text => cx.output.note(format_args!("tenure {version} {what}")),
        LogFormat::Json => tracing::info!(version, database = %cx.config.database, "opened"),
    }
}

/// Prints the outcomes of a drain, however it ended. Dead and retried items are recorded as such
/// and are not failures of the worker, so the exit code ignores them. `command` lists the dead
/// ones.
pub(super) fn print_outcomes(cx: &Context, what: &str, outcomes: OutcomeCounts, command: &str) {
    let OutcomeCounts {
        done,
        retried,
        dead,
        released,
        ..
    } = outcomes;
    if cx.output.is_json() || cx.config.log.format == LogFormat::Json {
        return tracing::info!(what, done, retried, released, dead, "drained");
    }
    let mut parts = vec![format!("{done} done")];
    if retried > 0 {
        parts.push(format!("{retried} to be retried"));
    }
    if released > 0 {
        parts.push(format!("{released} released"));
    }
    if dead > 0 {
        parts.push(format!("{dead} dead"));
    }
    cx.output.note(format_args!("{what}: {}", parts.join(", ")));
    if dead > 0 {
        cx.output.hint(format_args!(
            "`tenure {command}` lists the dead {what} with their reasons"
        ));
    }
}

/// Runs the workers until a signal arrives or `enough` completes, stops them, then awaits `after`.
/// A second signal ends the process at once, without printing outcomes.
pub(super) async fn run_until_stopped(
    team: Team,
    signals: &mut Signals,
    enough: impl Future<Output = ()>,
    after: impl Future<Output = ()>,
) -> (Exit, Option<TeamOutcomes>) {
    let exit = tokio::select! {
        () = signals.next() => Exit::Done,
        () = enough => Exit::Done,
        why = team.failed() => {
            tracing::error!(why, "the worker failed");
            Exit::Failed
        }
    };
    // The worker logs that it stops and what it still holds.
    let stopped = async {
        let outcomes = team.stop().await;
        after.await;
        outcomes
    };
    tokio::select! {
        outcomes = stopped => (exit, Some(outcomes)),
        () = signals.next() => {
            tracing::warn!("stopped at once by a second signal; held leases will lapse");
            (Exit::Failed, None)
        }
    }
}

/// The signals that stop this process.
pub(super) fn signals() -> Result<Signals, Problem> {
    Signals::new()
        .map_err(|cause| Problem::new(Exit::Failed, "cannot listen for signals").cause(cause))
}

/// Refuses an address that other machines reach: there are no API keys yet.
pub(super) fn check_private(address: SocketAddr) -> Result<(), Problem> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let message = format!(
        "the address to listen on is {address}, which other machines can reach; expected a \
         loopback address: there are no API keys yet"
    );
    Err(Problem::new(Exit::Usage, message)
        .hint("give --listen 127.0.0.1:7070, and put a proxy that authenticates in front of it"))
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Problem> {
    TcpListener::bind(address).await.map_err(|cause| {
        let message = format!("cannot listen on {address}");
        let mut problem = Problem::new(Exit::Failed, message);
        if cause.kind() == io::ErrorKind::AddrInUse {
            problem = problem.hint(
                "another program listens there, maybe another `tenure serve`: give --listen \
                 another port; port 0 takes a free one",
            );
        }
        problem.cause(cause)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_private() {
        for (address, is_private) in [
            ("127.0.0.1:7070", true),
            ("127.8.8.8:0", true),
            ("[::1]:7070", true),
            ("[::ffff:127.0.0.1]:7070", true),
            ("0.0.0.0:7070", false),
            ("[::]:7070", false),
            ("10.0.0.1:7070", false),
            ("[::ffff:10.0.0.1]:7070", false),
        ] {
            let answer = check_private(address.parse().unwrap());
            assert_eq!(answer.is_ok(), is_private, "{address}");
        }
    }
}

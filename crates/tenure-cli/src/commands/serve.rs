//! `tenure serve`: migrate, work and answer HTTP, in one process.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use tenure::{Signals, Tallied, server};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::Context;
use crate::assemble::{self, Schema};
use crate::config::{LogFormat, Override};
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::team::{Team, Worked};
use crate::{logs, time};

#[derive(Debug, Args)]
pub(crate) struct Serve {
    /// Listen here; port 0 takes a free one
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,

    #[command(flatten)]
    working: Working,
}

/// What every command that works can be told.
#[derive(Debug, Args)]
pub(crate) struct Working {
    /// Keep trying this long when the database does not answer at the start
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = time::duration)]
    pub(super) wait: Duration,

    /// Call this worker so; a random part behind it tells two starts apart
    #[arg(long)]
    name: Option<String>,

    /// Work on this many events at once
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,

    /// Claim at most this many events at once
    #[arg(long, value_name = "N")]
    batch: Option<u32>,
}

/// The override of a flag that was given.
pub(super) fn given(
    setting: &str,
    value: Option<&impl ToString>,
    flag: &'static str,
) -> Option<Override> {
    value.map(|value| (setting.to_owned(), value.to_string(), flag))
}

impl Working {
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
        let listen = given("server.listen", self.listen.as_ref(), "--listen");
        listen.into_iter().chain(self.working.overrides()).collect()
    }
}

pub(super) async fn run(cx: &Context, args: &Serve) -> Result<Exit, Stop> {
    let config = &cx.config;
    check_private(config.listen)?;
    let worker = tenure::new_worker_id(&config.worker_name)?;
    logs::init(&config.log, Some(worker.as_str()))?;
    logs::tell_remarks(&config.remarks);
    let mut signals = signals()?;
    let listener = bind(config.listen).await?;
    let address = listener.local_addr()?;

    let opened = assemble::open(config, &worker, Schema::Migrated, args.working.wait);
    let tenure = tokio::select! {
        opened = opened => opened?,
        () = signals.next() => return Ok(Exit::Done),
    };
    let figures = assemble::figures()?;
    let running = assemble::start(&tenure, config).await?;
    let router = server::router(assemble::ports(&tenure, running.watch(), figures));
    let (close, closed) = oneshot::channel::<()>();
    let http = tokio::spawn(server::serve(listener, router, closed).in_current_span());
    greet(
        cx,
        format_args!("serves {} on http://{address} as {worker}", config.database),
    );
    tracing::info!(%address, "began to serve");

    // Probes are answered to the end: alive, and no longer ready.
    let end_http = async {
        drop(close);
        if let Err(error) = http.await {
            tracing::error!(%error, "the server ended early");
        }
    };
    let enough = std::future::pending();
    let (exit, _worked) = until_the_end(running, &mut signals, enough, end_http).await;
    Ok(exit)
}

/// Says to people that it runs now; programs read the logs, which stay whole.
pub(super) fn greet(cx: &Context, what: fmt::Arguments<'_>) {
    let version = env!("CARGO_PKG_VERSION");
    match cx.config.log.format {
        LogFormat::Text => cx.output.note(format_args!("tenure {version} {what}")),
        LogFormat::Json => tracing::info!(version, database = %cx.config.database, "opened"),
    }
}

/// Says what became of what a drain worked on, whether nothing was due any more, a signal came or
/// the worker failed. That an item is dead or waits for another try is kept with it, and is no
/// failure of the worker's: the exit code does not tell of it.
pub(super) fn sum_up(cx: &Context, what: &str, tallied: Tallied, look: &str) {
    let Tallied {
        done,
        retried,
        dead,
        released,
        ..
    } = tallied;
    if cx.output.is_json() || cx.config.log.format == LogFormat::Json {
        return tracing::info!(what, done, retried, released, dead, "drained");
    }
    let mut parts = vec![format!("{done} done")];
    if retried > 0 {
        parts.push(format!("{retried} to be tried again"));
    }
    if released > 0 {
        parts.push(format!("{released} given back"));
    }
    if dead > 0 {
        parts.push(format!("{dead} dead"));
    }
    cx.output.note(format_args!("{what}: {}", parts.join(", ")));
    if dead > 0 {
        cx.output
            .hint(format_args!("`tenure {look}` lists what is dead, and why"));
    }
}

/// Runs the workers until a signal comes or `enough` does, stops them, then does `after`. A second
/// signal ends everything at once, and leaves nothing to tell of what was worked on.
pub(super) async fn until_the_end(
    team: Team,
    signals: &mut Signals,
    enough: impl Future<Output = ()>,
    after: impl Future<Output = ()>,
) -> (Exit, Option<Worked>) {
    let exit = tokio::select! {
        () = signals.next() => Exit::Done,
        () = enough => Exit::Done,
        why = team.failed() => {
            tracing::error!(why, "the worker failed");
            Exit::Failed
        }
    };
    // The worker tells in the log that it stops, and what it left.
    let stopped = async {
        let worked = team.stop().await;
        after.await;
        worked
    };
    tokio::select! {
        worked = stopped => (exit, Some(worked)),
        () = signals.next() => {
            tracing::warn!("ended at once by a second signal; what was held lapses");
            (Exit::Failed, None)
        }
    }
}

/// The signals that end this process.
pub(super) fn signals() -> Result<Signals, Problem> {
    Signals::new()
        .map_err(|cause| Problem::new(Exit::Failed, "signals cannot be received").cause(cause))
}

/// Refuses an address that others than this machine reach: there are no API keys yet.
fn check_private(address: SocketAddr) -> Result<(), Problem> {
    if address.ip().to_canonical().is_loopback() {
        return Ok(());
    }
    let message = format!(
        "the address to listen on is {address}, which other machines reach; expected a loopback \
         address: there are no API keys yet"
    );
    Err(Problem::new(Exit::Usage, message).hint(
        "give --listen 127.0.0.1:7070, and put a proxy that knows who may call in front of it",
    ))
}

async fn bind(address: SocketAddr) -> Result<TcpListener, Problem> {
    TcpListener::bind(address).await.map_err(|cause| {
        let message = format!("the address {address} cannot be listened on");
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

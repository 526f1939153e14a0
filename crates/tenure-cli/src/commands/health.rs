//! `tenure health`: asks the process that serves on this machine for its health checks.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use clap::Args;
use comfy_table::{Cell, Color};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::{Deserialize, Serialize};
use tokio::net::TcpStream;

use super::Context;
use super::serve::{check_private, given};
use crate::config::Override;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::{Problem, Stop};
use crate::time::brief;

/// Timeout of the whole request. The server gives up on its database after 2 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of an answer.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

#[derive(Debug, Args)]
pub(crate) struct Health {
    /// Ask the process that listens here [default: server.listen of the configuration]
    #[arg(long, value_name = "ADDR")]
    listen: Option<String>,

    /// Ask only whether the process answers, for a probe that restarts it
    #[arg(long)]
    live: bool,
}

impl Health {
    pub(super) fn overrides(&self) -> Vec<Override> {
        let listen = given("server.listen", self.listen.as_ref(), "--listen");
        listen.into_iter().collect()
    }
}

/// The answer of a server, printed in the same shape.
#[derive(Debug, Deserialize, Serialize)]
struct HealthView {
    status: String,
    /// Empty when only liveness was asked for.
    #[serde(default)]
    checks: Vec<CheckView>,
}

#[derive(Debug, Deserialize, Serialize)]
struct CheckView {
    name: String,
    problem: Option<String>,
    last_seen_ms: Option<u64>,
}

pub(super) async fn run(cx: &Context, args: &Health) -> Result<Exit, Stop> {
    let address = cx.config.listen;
    check_private(address)?;
    let path = if args.live {
        "/health/live"
    } else {
        "/health/ready"
    };
    let answer = tokio::time::timeout(ANSWER_TIMEOUT, ask(address, path));
    let answer = answer.await.unwrap_or_else(|_late| Err(silent(address)))?;
    let (status, health) = answer;
    if cx.output.is_json() {
        cx.output.json(&health)?;
    } else if health.checks.is_empty() {
        cx.output.line(plain(&health.status))?;
    } else {
        let rows = health.checks.iter().map(row).collect();
        cx.output
            .table(&["", "CHECK", "LAST SEEN", "PROBLEM"], rows)?;
    }
    Ok(if status == StatusCode::OK {
        Exit::Done
    } else {
        Exit::Failed
    })
}

fn row(check: &CheckView) -> Vec<Cell> {
    let verdict = match check.problem {
        None => Cell::new("good").fg(Color::Green),
        Some(_) => Cell::new("bad").fg(Color::Red),
    };
    let seen = check.last_seen_ms.map(Duration::from_millis);
    vec![
        verdict,
        Cell::new(plain(&check.name)),
        Cell::new(seen.map_or_else(String::new, |seen| format!("{} ago", brief(seen)))),
        Cell::new(plain(check.problem.as_deref().unwrap_or_default())),
    ]
}

/// Requests a path of the server at `address`.
async fn ask(address: SocketAddr, path: &str) -> Result<(StatusCode, HealthView), Problem> {
    let stream = TcpStream::connect(address).await;
    let stream = stream.map_err(|cause| unreachable(address, &cause))?;
    let odd = |cause: &dyn std::error::Error| other_program(address).cause(cause);
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|cause| odd(&cause))?;
    // The connection ends with the command.
    drop(tokio::spawn(connection));
    let request = Request::get(path).header(HOST, address.to_string());
    let request = request
        .body(Empty::<Bytes>::new())
        .map_err(|cause| odd(&cause))?;
    let sent = sender.send_request(request).await;
    let (head, body) = sent.map_err(|cause| odd(&cause))?.into_parts();
    let body = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|cause| odd(&*cause))?.to_bytes();
    let health = serde_json::from_slice(&body).map_err(|cause| odd(&cause))?;
    Ok((head.status, health))
}

/// Reports that there is no connection.
fn unreachable(address: SocketAddr, cause: &io::Error) -> Problem {
    if cause.kind() == io::ErrorKind::ConnectionRefused {
        let message = format!("no process listens on {address}");
        return Problem::new(Exit::Nothing, message).hint(
            "is `tenure serve` running? --listen names another address; `tenure work` has none",
        );
    }
    Problem::new(Exit::Failed, format!("cannot connect to {address}")).cause(cause)
}

/// Reports that the process did not answer in time.
fn silent(address: SocketAddr) -> Problem {
    let message = format!(
        "the process on {address} did not answer within {}",
        brief(ANSWER_TIMEOUT)
    );
    Problem::new(Exit::Failed, message).hint(
        "it may still be starting and waiting for its database, or its standard error is a full \
         pipe; its log tells",
    )
}

/// Reports an answer that is not one of `tenure serve`.
fn other_program(address: SocketAddr) -> Problem {
    let message = format!("the answer of {address} is not a health check of Tenure");
    Problem::new(Exit::Failed, message)
        .hint("another program may listen there; --listen names another address")
}

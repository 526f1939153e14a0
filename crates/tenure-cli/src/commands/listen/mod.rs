//! `tenure listen`: a receiver on this machine that verifies calls, prints them, and can be slow
//! or fail on purpose.

mod drip;
mod heard;

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use clap::Args;
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use serde::Serialize;
use tenure::Invalid;
use tenure::webhook::verify::{Latest, Verifier};
use tokio::net::TcpListener;

use self::drip::{Drip, drip};
use self::heard::{Heard, judge, print};
use super::Context;
use super::serve::signals;
use crate::config::Hidden;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::time;

/// No body is read further.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// How long the head of a call may take.
const HEAD_MAX: Duration = Duration::from_secs(30);
/// As many messages are remembered, to tell repeats.
const MESSAGES: usize = 10_000;

#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// The port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value = "9000")]
    port: u16,

    /// A secret or public key that calls are signed with: whsec_…, whpk_…; may be given often
    #[arg(long = "secret", value_name = "KEY")]
    secrets: Vec<Hidden>,

    /// Answer with this status; with :N only the first N calls: 500, 503:3
    #[arg(long, value_name = "STATUS[:N]", value_parser = Fail::parse)]
    fail: Option<Fail>,

    /// Wait this long before answering
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    late: Option<Duration>,

    /// Begin to answer at once, and take this long to end
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    slow: Option<Duration>,

    /// Say this in Retry-After when failing
    #[arg(long, value_name = "DURATION", value_parser = time::duration, requires = "fail")]
    retry_after: Option<Duration>,

    /// End after this many calls
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

/// How calls are failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fail {
    status: StatusCode,
    /// The first ones; `None`: all.
    first: Option<u64>,
}

impl Fail {
    fn parse(text: &str) -> Result<Self, Invalid> {
        let wrong = || {
            let expected = "a status such as 500, or 503:3 for the first three calls";
            Invalid::new("what to fail with", format!("{text:?}"), expected)
        };
        let (status, first) = match text.split_once(':') {
            None => (text, None),
            Some((status, first)) => (status, Some(first.parse().map_err(|_cause| wrong())?)),
        };
        let status = status.parse::<u16>().ok();
        let status = status.and_then(|status| StatusCode::from_u16(status).ok());
        let status = status.filter(|status| status.as_u16() >= 200);
        let status = status.ok_or_else(wrong)?;
        Ok(Self { status, first })
    }
}

/// What all calls share.
struct Receiver {
    cx: Context,
    args: Listen,
    verifier: Option<Verifier>,
    memory: Mutex<Memory>,
    over: tokio::sync::Notify,
}

struct Memory {
    calls: u64,
    latest: Latest,
}

/// Where it listens, in JSON.
#[derive(Serialize)]
struct Listening {
    listening: String,
}

pub(super) async fn run(cx: &Context, args: Listen) -> Result<Exit, Stop> {
    let verifier = match args.secrets.as_slice() {
        [] => None,
        secrets => Some(Verifier::new(secrets)?.accept_plain()),
    };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener = TcpListener::bind(address).await.map_err(|cause| {
        Problem::new(
            Exit::Failed,
            format!("the address {address} cannot be listened on"),
        )
        .cause(cause)
        .hint("give --port another one; 0 takes a free one")
    })?;
    let listening = format!("http://{}", listener.local_addr()?);
    tell(cx, &listening, verifier.is_some())?;
    let mut signals = signals()?;
    let receiver = Arc::new(Receiver {
        cx: cx.clone(),
        args,
        verifier,
        memory: Mutex::new(Memory {
            calls: 0,
            latest: Latest::new(MESSAGES),
        }),
        over: tokio::sync::Notify::new(),
    });
    tokio::select! {
        () = accept(listener, Arc::clone(&receiver)) => {}
        () = signals.next() => {}
        () = receiver.over.notified() => {}
    }
    Ok(Exit::Done)
}

fn tell(cx: &Context, listening: &str, is_verifying: bool) -> Result<(), Stop> {
    if cx.output.is_json() {
        let listening = listening.to_owned();
        return cx.output.json(&Listening { listening });
    }
    cx.output
        .note(format_args!("listens on {listening}; Ctrl-C ends it"));
    if !is_verifying {
        cx.output
            .hint("--secret whsec_… verifies what comes; without it everything is believed");
    }
    Ok(())
}

async fn accept(listener: TcpListener, receiver: Arc<Receiver>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many open at once, say: those that are open end first.
            tokio::task::yield_now().await;
            continue;
        };
        let receiver = Arc::clone(&receiver);
        tokio::spawn(async move {
            let serve = service_fn(|request| {
                let receiver = Arc::clone(&receiver);
                async move { Ok::<_, Infallible>(receiver.take(request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_MAX)
                .serve_connection(TokioIo::new(stream), serve);
            // A caller that hangs up early is its own affair.
            drop(connection.await);
        });
    }
}

impl Receiver {
    async fn take(&self, request: Request<Incoming>) -> Response<Drip> {
        let (head, body) = request.into_parts();
        let body = read(body).await;
        let now = time::now();
        let (number, heard) = {
            let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            memory.calls += 1;
            let verifier = self.verifier.as_ref();
            let heard = judge(
                verifier,
                &mut memory.latest,
                &head.headers,
                body.as_deref(),
                now,
            );
            (memory.calls, heard)
        };
        let status = self.status(number, body.is_some(), &heard);
        if let Some(late) = self.args.late {
            // To be late is what it was asked for.
            tokio::time::sleep(late).await;
        }
        let path = head.uri.path();
        if print(&self.cx, path, &heard, status.as_u16(), body.as_deref()).is_err() {
            // Nobody reads any more.
            self.over.notify_one();
        }
        if self.args.count.is_some_and(|count| number >= count) {
            self.over.notify_one();
        }
        self.answer(status)
    }

    /// What the call of this number is answered with.
    fn status(&self, number: u64, has_body: bool, heard: &Heard) -> StatusCode {
        match self.args.fail {
            Some(Fail { status, first }) if first.is_none_or(|first| number <= first) => status,
            _ if !has_body => StatusCode::PAYLOAD_TOO_LARGE,
            _ if heard.is_refused() => StatusCode::UNAUTHORIZED,
            _ => StatusCode::OK,
        }
    }

    fn answer(&self, status: StatusCode) -> Response<Drip> {
        let text = if status.is_success() {
            "taken"
        } else {
            "not taken"
        };
        let over = self.args.slow.unwrap_or_default();
        let mut response = Response::new(drip(Bytes::from(text), over));
        *response.status_mut() = status;
        if let Some(wait) = self.args.retry_after.filter(|_| !status.is_success()) {
            let seconds = wait.as_secs().into();
            response
                .headers_mut()
                .insert(hyper::header::RETRY_AFTER, seconds);
        }
        response
    }
}

/// The whole body; `None`: it is too long, or broke off.
async fn read(mut body: Incoming) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    loop {
        let next = std::future::poll_fn(|cx| std::pin::Pin::new(&mut body).poll_frame(cx));
        let Some(frame) = next.await else {
            return Some(bytes);
        };
        if let Ok(part) = frame.ok()?.into_data() {
            bytes.extend_from_slice(&part);
        }
        if bytes.len() > BODY_BYTES_MAX {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_to_fail_with_is_a_status_and_perhaps_a_number() {
        for (text, status, first) in [("500", 500, None), ("503:3", 503, Some(3))] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(Fail::parse(text), Ok(Fail { status, first }));
        }
        for bad in ["", "5", "abc", "100", "500:", "500:x", "1000"] {
            assert!(Fail::parse(bad).is_err(), "{bad}");
        }
    }
}

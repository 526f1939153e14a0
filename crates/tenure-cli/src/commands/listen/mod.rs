//! `tenure listen`: a local receiver that verifies and prints calls, and can be slow or fail on
//! purpose.

mod call;
mod slow_body;

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

use self::call::{ReceivedCall, print, receive};
use self::slow_body::{SlowBody, slow_body};
use super::Context;
use super::serve::signals;
use crate::config::Hidden;
use crate::exit::Exit;
use crate::problem::{Problem, Stop};
use crate::time;

/// Maximum size of a body.
const BODY_BYTES_MAX: usize = 2 * 1024 * 1024;
/// Timeout for the headers of a call.
const HEADERS_TIMEOUT: Duration = Duration::from_secs(30);
/// Number of messages remembered, to recognise repeats.
const MESSAGES: usize = 10_000;

#[derive(Debug, Args)]
pub(crate) struct Listen {
    /// The port on 127.0.0.1; 0 takes a free one
    #[arg(long, default_value = "9000")]
    port: u16,

    /// A secret or public key to verify calls with: whsec_…, whpk_…; repeatable
    #[arg(long = "secret", value_name = "KEY")]
    secrets: Vec<Hidden>,

    /// Answer with this status; with :N, only the first N calls: 500, 503:3
    #[arg(long, value_name = "STATUS[:N]", value_parser = Fail::parse)]
    fail: Option<Fail>,

    /// Wait this long before answering
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    late: Option<Duration>,

    /// Begin to answer at once, and spread the answer over this time
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    slow: Option<Duration>,

    /// Send this Retry-After with failures
    #[arg(long, value_name = "DURATION", value_parser = time::duration, requires = "fail")]
    retry_after: Option<Duration>,

    /// Stop after this many calls
    #[arg(long, value_name = "N")]
    count: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fail {
    status: StatusCode,
    /// Number of calls that fail; `None` means all.
    first: Option<u64>,
}

impl Fail {
    fn parse(text: &str) -> Result<Self, Invalid> {
        let wrong = || {
            let expected = "a status such as 500, or 503:3 for the first three calls";
            Invalid::new("--fail", format!("{text:?}"), expected)
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

/// State shared by all calls.
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

/// The address in JSON.
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
        Problem::new(Exit::Failed, format!("cannot listen on {address}"))
            .cause(cause)
            .hint("give another --port; 0 takes a free one")
    })?;
    let listening = format!("http://{}", listener.local_addr()?);
    announce(cx, &listening, verifier.is_some())?;
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

fn announce(cx: &Context, listening: &str, is_verifying: bool) -> Result<(), Stop> {
    if cx.output.is_json() {
        let listening = listening.to_owned();
        return cx.output.json(&Listening { listening });
    }
    cx.output
        .note(format_args!("listening on {listening}; Ctrl-C stops it"));
    if !is_verifying {
        cx.output
            .hint("--secret whsec_… verifies calls; without it every call is accepted");
    }
    Ok(())
}

async fn accept(listener: TcpListener, receiver: Arc<Receiver>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // For example, too many open files: let open connections finish first.
            tokio::task::yield_now().await;
            continue;
        };
        let receiver = Arc::clone(&receiver);
        tokio::spawn(async move {
            let serve = service_fn(|request| {
                let receiver = Arc::clone(&receiver);
                async move { Ok::<_, Infallible>(receiver.handle(request).await) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADERS_TIMEOUT)
                .serve_connection(TokioIo::new(stream), serve);
            // A caller that hangs up early is not an error here.
            drop(connection.await);
        });
    }
}

impl Receiver {
    async fn handle(&self, request: Request<Incoming>) -> Response<SlowBody> {
        let (head, body) = request.into_parts();
        let body = read(body).await;
        let now = time::now();
        let (number, received) = {
            let mut memory = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            memory.calls += 1;
            let verifier = self.verifier.as_ref();
            let received = receive(
                verifier,
                &mut memory.latest,
                &head.headers,
                body.as_deref(),
                now,
            );
            (memory.calls, received)
        };
        let status = self.status(number, body.is_some(), &received);
        if let Some(late) = self.args.late {
            // The delay is the purpose of `--late`.
            tokio::time::sleep(late).await;
        }
        let path = head.uri.path();
        if print(&self.cx, path, &received, status.as_u16(), body.as_deref()).is_err() {
            // The reader of the output is gone.
            self.over.notify_one();
        }
        if self.args.count.is_some_and(|count| number >= count) {
            self.over.notify_one();
        }
        self.answer(status)
    }

    /// The status of the answer to a call.
    fn status(&self, number: u64, has_body: bool, received: &ReceivedCall) -> StatusCode {
        match self.args.fail {
            Some(Fail { status, first }) if first.is_none_or(|first| number <= first) => status,
            _ if !has_body => StatusCode::PAYLOAD_TOO_LARGE,
            _ if received.is_refused() => StatusCode::UNAUTHORIZED,
            _ => StatusCode::OK,
        }
    }

    fn answer(&self, status: StatusCode) -> Response<SlowBody> {
        let text = if status.is_success() {
            "accepted"
        } else {
            "not accepted"
        };
        let over = self.args.slow.unwrap_or_default();
        let mut response = Response::new(slow_body(Bytes::from(text), over));
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

/// The whole body; `None` when it is too long or incomplete.
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
    fn fail_is_a_status_and_an_optional_number() {
        for (text, status, first) in [("500", 500, None), ("503:3", 503, Some(3))] {
            let status = StatusCode::from_u16(status).unwrap();
            assert_eq!(Fail::parse(text), Ok(Fail { status, first }));
        }
        for bad in ["", "5", "abc", "100", "500:", "500:x", "1000"] {
            assert!(Fail::parse(bad).is_err(), "{bad}");
        }
    }
}

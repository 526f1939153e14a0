//! Receivers in this process, on loopback: they read a whole call and answer 200, at once or after
//! a delay. Both sides of a measurement include their cost.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::stop::Stop;

/// Called with the body of each call.
type OnBody = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A few receivers; dropping the value stops them.
pub(super) struct Receivers {
    addresses: Vec<SocketAddr>,
    shared: Arc<ReceiverState>,
    _accepting: JoinSet<()>,
}

struct ReceiverState {
    taken: AtomicU32,
    answered: AtomicU32,
    hold: Duration,
    on_body: Option<OnBody>,
}

impl Receivers {
    /// Receivers that answer at once.
    pub(super) async fn open(count: u32) -> Result<Self, Stop> {
        Self::start(count, Duration::ZERO, None).await
    }

    /// Receivers that take this long to answer.
    pub(super) async fn slow(count: u32, hold: Duration) -> Result<Self, Stop> {
        Self::start(count, hold, None).await
    }

    /// Receivers that pass on each body and answer at once.
    pub(super) async fn reading(
        count: u32,
        on_body: impl Fn(&[u8]) + Send + Sync + 'static,
    ) -> Result<Self, Stop> {
        Self::start(count, Duration::ZERO, Some(Box::new(on_body))).await
    }

    async fn start(count: u32, hold: Duration, on_body: Option<OnBody>) -> Result<Self, Stop> {
        let shared = Arc::new(ReceiverState {
            taken: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            hold,
            on_body,
        });
        let mut addresses = Vec::new();
        let mut accepting = JoinSet::new();
        for _ in 0..count {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            addresses.push(listener.local_addr()?);
            accepting.spawn(accept(listener, Arc::clone(&shared)));
        }
        Ok(Self {
            addresses,
            shared,
            _accepting: accepting,
        })
    }

    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Calls received so far.
    pub(super) fn taken(&self) -> u32 {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// Calls answered so far.
    pub(super) fn answered(&self) -> u32 {
        self.shared.answered.load(Ordering::Relaxed)
    }
}

async fn accept(listener: TcpListener, shared: Arc<ReceiverState>) {
    // Connections end with their receiver.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            Some(_) = connections.join_next() => {}
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    connections.spawn(serve(stream, Arc::clone(&shared)));
                }
                // Too many files are open: let connections end first.
                Err(_) => tokio::task::yield_now().await,
            }
        }
    }
}

async fn serve(stream: TcpStream, shared: Arc<ReceiverState>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let take = service_fn(|request| take(request, &shared));
    let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), take);
    // The counts show a caller that hangs up early.
    drop(connection.await);
}

async fn take(
    request: Request<Incoming>,
    shared: &ReceiverState,
) -> Result<Response<Empty<Bytes>>, Infallible> {
    if let Ok(body) = request.into_body().collect().await {
        let body = body.to_bytes();
        if let Some(on_body) = &shared.on_body {
            on_body(&body);
        }
        shared.taken.fetch_add(1, Ordering::Relaxed);
    }
    if !shared.hold.is_zero() {
        // The delay is the purpose of a slow receiver.
        tokio::time::sleep(shared.hold).await;
    }
    shared.answered.fetch_add(1, Ordering::Relaxed);
    Ok(Response::new(Empty::new()))
}

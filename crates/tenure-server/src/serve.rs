//! Serve: takes connections and answers their requests until it is told to stop.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tracing::Instrument as _;

use crate::REQUEST_TIME_MAX;

/// A connection that is being answered.
type Connection = http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>>;

/// How long the head of a request may take.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// How many connections are held at once; more wait at the door.
const CONNECTIONS_MAX: usize = 512;
/// How long a connection takes new requests; who goes on asks for another one. Without an end to
/// each, clients that never read their answers would keep everybody else out.
const CONNECTION_TIME_MAX: Duration = Duration::from_mins(1);
/// How long requests in hand may take once the end has come.
const END_TIME_MAX: Duration = Duration::from_secs(5);
/// How long to wait when the system gives no connection, for one to be closed.
const BREATH: Duration = Duration::from_millis(100);

/// Answers requests until `shutdown` comes; then it takes no more connections and lets those in
/// hand end, for a few seconds.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX);
    let (end, ending) = watch::channel(());
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, accepted(&listener).await)
        };
        let (place, stream) = tokio::select! {
            next = next => next,
            Some(_) = connections.join_next() => continue,
            _ = &mut shutdown => break,
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let ending = ending.clone();
        let answered = async move {
            answer(connection, ending).await;
            drop(place);
        };
        connections.spawn(answered.in_current_span());
    }
    drop(listener);
    drop(end);
    let all = async { while connections.join_next().await.is_some() {} };
    let in_time = tokio::time::timeout(END_TIME_MAX, all).await;
    if in_time.is_err() {
        tracing::warn!(left = connections.len(), "requests were cut off");
    }
    connections.shutdown().await;
}

/// Answers what comes on a connection, until it ends, its time is over or the end of all has come;
/// what is in hand then is still answered, within the time of one request.
async fn answer(connection: Connection, mut ending: watch::Receiver<()>) {
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => Some(ended),
        // The end is told by dropping the sender.
        _ = ending.changed() => None,
        () = tokio::time::sleep(CONNECTION_TIME_MAX) => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        connection.as_mut().graceful_shutdown();
        let Ok(ended) = tokio::time::timeout(REQUEST_TIME_MAX, connection).await else {
            return tracing::debug!("a connection whose answers nobody read was closed");
        };
        ended
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// The next connection. When the system has none to give, it is asked again a little later.
async fn accepted(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(BREATH).await;
            }
        }
    }
}

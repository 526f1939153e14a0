//! Accept loop: takes connections and answers their requests until shutdown.

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

/// A connection being served.
type Connection = http1::Connection<TokioIo<TcpStream>, TowerToHyperService<Router>>;

/// Time limit for reading the head of a request.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// Limit of open connections; further ones wait in the accept queue.
const CONNECTIONS_MAX: usize = 512;
/// Time after which a connection takes no new requests, so that clients which never read their
/// responses cannot occupy all connections.
const CONNECTION_TIME_MAX: Duration = Duration::from_mins(1);
/// Time limit for open requests after the start of the shutdown.
const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);
/// Delay after a failed accept, so that another connection can close first.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);

/// Answers requests until `shutdown` completes; then accepts no more connections and lets open
/// requests finish for a few seconds.
pub async fn serve(listener: TcpListener, router: Router, shutdown: impl Future) {
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX);
    let (end, ending) = watch::channel(());
    let permits = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        let next = async {
            let permit = Arc::clone(&permits).acquire_owned().await;
            (permit, accept(&listener).await)
        };
        let (permit, stream) = tokio::select! {
            next = next => next,
            Some(_) = connections.join_next() => continue,
            _ = &mut shutdown => break,
        };
        let service = TowerToHyperService::new(router.clone());
        let connection = http.serve_connection(TokioIo::new(stream), service);
        let ending = ending.clone();
        let served = async move {
            answer(connection, ending).await;
            drop(permit);
        };
        connections.spawn(served.in_current_span());
    }
    drop(listener);
    drop(end);
    let all = async { while connections.join_next().await.is_some() {} };
    let in_time = tokio::time::timeout(SHUTDOWN_TIME_MAX, all).await;
    if in_time.is_err() {
        tracing::warn!(left = connections.len(), "shutdown cut off open requests");
    }
    connections.shutdown().await;
}

/// Serves a connection until it closes, its time is over or the shutdown begins. A request that is
/// open then is still answered, within `REQUEST_TIME_MAX`.
async fn answer(connection: Connection, mut ending: watch::Receiver<()>) {
    let mut connection = pin!(connection);
    let result = tokio::select! {
        result = connection.as_mut() => Some(result),
        // Dropping the sender signals the shutdown.
        _ = ending.changed() => None,
        () = tokio::time::sleep(CONNECTION_TIME_MAX) => None,
    };
    let result = if let Some(result) = result {
        result
    } else {
        connection.as_mut().graceful_shutdown();
        let Ok(result) = tokio::time::timeout(REQUEST_TIME_MAX, connection).await else {
            return tracing::debug!("closed a connection whose client did not read its responses");
        };
        result
    };
    if let Err(error) = result {
        tracing::debug!(%error, "a connection closed early");
    }
}

/// Accepts the next connection; retries after an error of the system.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            Err(error) => {
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }
}

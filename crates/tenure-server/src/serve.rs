//! Serve: takes connections and answers their requests until it is told to stop.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tracing::Instrument as _;

/// How long the head of a request may take.
const HEAD_TIME_MAX: Duration = Duration::from_secs(10);
/// How many connections are held at once; more wait at the door.
const CONNECTIONS_MAX: usize = 512;
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
    let ending = GracefulShutdown::new();
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
        let connection = ending.watch(connection);
        let answered = async move {
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection ended early");
            }
            drop(place);
        };
        connections.spawn(answered.in_current_span());
    }
    drop(listener);
    let in_time = tokio::time::timeout(END_TIME_MAX, ending.shutdown()).await;
    if in_time.is_err() {
        tracing::warn!(left = connections.len(), "requests were cut off");
    }
    connections.shutdown().await;
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

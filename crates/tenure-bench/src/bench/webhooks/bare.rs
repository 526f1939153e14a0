//! The calls without Tenure: an HTTP client alone, and the same client with a row per call,
//! inserted before and updated after it, in batches.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use http_body_util::{BodyExt as _, Full};
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Request, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tokio::task::JoinSet;

use super::CONCURRENCY;
use crate::bench::LOOPS;
use crate::stop::{Failure, Stop};
use crate::yardstick::{Stopwatch, Yardstick, event};

/// A client, its addresses and its body. It keeps connections from turn to turn, as the sender
/// does.
#[derive(Clone)]
pub(super) struct Bare {
    client: Client<HttpConnector, Full<Bytes>>,
    urls: Arc<[Uri]>,
    body: Bytes,
}

impl Bare {
    /// A client that calls these addresses in turn.
    pub(super) fn new(addresses: &[SocketAddr]) -> Result<Self, Stop> {
        let mut connector = HttpConnector::new();
        connector.set_nodelay(true);
        let urls: Result<Vec<Uri>, _> = addresses
            .iter()
            .map(|address| Uri::try_from(format!("http://{address}/")))
            .collect();
        Ok(Self {
            client: Client::builder(TokioExecutor::new()).build(connector),
            urls: urls.map_err(std::io::Error::other)?.into(),
            body: Bytes::from(event().payload().to_owned()),
        })
    }

    /// Makes this many calls; returns calls per second.
    pub(super) async fn rate(&self, calls: u32) -> Result<f64, Stop> {
        let turn = Arc::new(AtomicU32::new(0));
        let watch = Stopwatch::start();
        let mut loops = JoinSet::new();
        for _ in 0..CONCURRENCY {
            let (bare, turn) = (self.clone(), Arc::clone(&turn));
            loops.spawn(async move {
                loop {
                    let nth = turn.fetch_add(1, Ordering::Relaxed);
                    if nth >= calls {
                        return Ok(());
                    }
                    bare.call(nth).await?;
                }
            });
        }
        all(loops).await?;
        Ok(watch.rate(calls))
    }

    /// Makes this many calls in batches, each between two writes; returns calls per second.
    pub(super) async fn recorded(&self, yardstick: &Yardstick, calls: u32) -> Result<f64, Stop> {
        let turn = AtomicU32::new(0);
        let watch = Stopwatch::start();
        // Two loops, as in the SQL measurements: one writes while the other calls.
        tokio::try_join!(
            self.batches(yardstick, &turn, calls),
            self.batches(yardstick, &turn, calls)
        )?;
        Ok(watch.rate(calls))
    }

    async fn batches(
        &self,
        yardstick: &Yardstick,
        turn: &AtomicU32,
        calls: u32,
    ) -> Result<(), Stop> {
        let most = CONCURRENCY / LOOPS;
        loop {
            let first = turn.fetch_add(most, Ordering::Relaxed);
            let count = calls.saturating_sub(first).min(most);
            if count == 0 {
                return Ok(());
            }
            let attempts = yardstick.open_attempts(count).await?;
            let mut batch = JoinSet::new();
            for nth in first..first + count {
                let bare = self.clone();
                batch.spawn(async move { bare.call(nth).await });
            }
            all(batch).await?;
            yardstick.close_attempts(attempts, 200).await?;
        }
    }

    async fn call(&self, nth: u32) -> Result<(), Failure> {
        let count = self.urls.len().max(1);
        let place = usize::try_from(nth).map_or(0, |nth| nth % count);
        let mut request = Request::new(Full::new(self.body.clone()));
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.urls.get(place).cloned().unwrap_or_default();
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        let failed = |cause: String| Failure::new("a call of the bare loop failed").cause(cause);
        let answer = self.client.request(request).await;
        let answer = answer.map_err(|error| failed(error.to_string()))?;
        if !answer.status().is_success() {
            return Err(failed(format!("it was answered {}", answer.status())));
        }
        // The connection is free for the next call once the response is read.
        let body = answer.into_body().collect().await;
        body.map_err(|error| failed(error.to_string()))?;
        Ok(())
    }
}

/// Waits for all tasks; the first failure aborts the others.
async fn all(mut tasks: JoinSet<Result<(), Failure>>) -> Result<(), Stop> {
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(std::io::Error::other)??;
    }
    Ok(())
}

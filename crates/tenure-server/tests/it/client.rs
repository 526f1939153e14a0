//! A server on its own port, and a minimal HTTP client.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::net::SocketAddr;
use std::sync::Arc;

use tenure_core::store::Store;
use tenure_server::{HealthCheck, Ports, router, serve};
use tenure_store::memory::{MemoryStore, SystemClock};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// A running server; call `stop`, or drop it at the end of the test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    end: oneshot::Sender<()>,
    running: JoinHandle<()>,
}

/// An empty store in memory.
pub(crate) fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(Arc::new(SystemClock)))
}

/// Ports of a healthy process.
pub(crate) fn ports(store: Arc<dyn Store>) -> Ports {
    Ports {
        store,
        health: Arc::new(Vec::new),
        metrics: Arc::new(|| "tenure_claims_total 7\n".to_owned()),
    }
}

/// A check with this problem.
pub(crate) fn check(name: &str, problem: Option<&str>) -> HealthCheck {
    HealthCheck {
        name: name.to_owned(),
        problem: problem.map(str::to_owned),
        last_seen: None,
    }
}

impl Server {
    pub(crate) async fn start(ports: Ports) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, stopped) = oneshot::channel::<()>();
        let running = tokio::spawn(serve(listener, router(ports), stopped));
        Self {
            address,
            end,
            running,
        }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends this method and path; returns the response.
    pub(crate) async fn request(&self, method: &str, path: &str) -> Answer {
        self.send(&format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n"
        ))
        .await
    }

    /// Sends this request, after which the connection closes; returns the response.
    pub(crate) async fn send(&self, request: &str) -> Answer {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        Answer::read(&text)
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.request("GET", path).await
    }

    /// Stops the server and waits for its end.
    pub(crate) async fn stop(self) {
        self.end.send(()).unwrap();
        self.running.await.unwrap();
    }
}

/// A response of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    head: String,
    pub(crate) body: String,
}

impl Answer {
    fn read(text: &str) -> Self {
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Self {
            status,
            head: head.to_owned(),
            body: body.to_owned(),
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (actual, value) = line.split_once(": ")?;
            (actual == name).then_some(value)
        })
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Asserts that the response is a problem with this status and code.
    #[track_caller]
    pub(crate) fn is_problem(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let kind = self.header("content-type");
        assert_eq!(kind, Some("application/problem+json"), "{self:?}");
        let body = self.json();
        assert_eq!(
            (&body["status"], &body["code"]),
            (&status.into(), &code.into())
        );
        assert!(body["title"].is_string(), "{self:?}");
    }
}

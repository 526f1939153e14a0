//! Start and end of connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::{Server, memory, ports};

/// Goal: a client that sends its request too slowly is disconnected. Method: the runtime's clock
/// advances whenever the runtime is idle.
#[tokio::test(start_paused = true)]
async fn a_request_whose_head_never_ends_is_cut_off() {
    let server = Server::start(ports(memory())).await;
    let mut stream = server.connect().await;
    stream
        .write_all(b"GET /health/live HTTP/1.1\r\nhost: te")
        .await
        .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
}

#[tokio::test]
async fn a_silent_connection_delays_no_other() {
    let server = Server::start(ports(memory())).await;
    let mut idle = Vec::new();
    for _ in 0..50 {
        idle.push(server.connect().await);
    }
    assert_eq!(server.get("/health/live").await.status, 200);
}

#[tokio::test]
async fn one_connection_takes_many_requests() {
    let server = Server::start(ports(memory())).await;
    let mut stream = server.connect().await;
    for _ in 0..3 {
        stream
            .write_all(b"GET /health/live HTTP/1.1\r\nhost: test\r\n\r\n")
            .await
            .unwrap();
        let mut received = Vec::new();
        while !received.ends_with(br#"{"status":"live"}"#) {
            received.push(stream.read_u8().await.unwrap());
        }
    }
}

#[tokio::test]
async fn a_stopped_server_closes_its_listener_and_idle_connections() {
    let server = Server::start(ports(memory())).await;
    let mut idle = server.connect().await;
    assert_eq!(server.get("/health/live").await.status, 200);
    let address = server.address;
    server.stop().await;
    assert_eq!(idle.read(&mut [0; 16]).await.unwrap_or(0), 0);
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

/// Goal: a client that never reads does not keep its connection for ever. Method: it requests more
/// than the buffers on the way hold, reads only after the connection's time is over, and gets only
/// a part of the responses.
#[tokio::test(start_paused = true)]
async fn a_client_that_never_reads_loses_its_connection() {
    const REQUESTS: usize = 400;
    const LONG: usize = 256 * 1024;
    let mut ports = ports(memory());
    let long = format!("# {}\n", "x".repeat(LONG));
    ports.metrics = Arc::new(move || long.clone());
    let server = Server::start(ports).await;
    let mut stream = server.connect().await;
    let request = b"GET /metrics HTTP/1.1\r\nhost: test\r\n\r\n";
    stream.write_all(&request.repeat(REQUESTS)).await.unwrap();
    tokio::time::sleep(Duration::from_mins(10)).await;
    let (mut answered, mut chunk) = (0, vec![0; 1 << 20]);
    // The connection is expected to break.
    while let Ok(bytes @ 1..) = stream.read(&mut chunk).await {
        answered += bytes;
    }
    assert!(answered < REQUESTS * LONG, "all were answered");
    assert_eq!(server.get("/health/live").await.status, 200);
}

//! Limits against receivers that waste our time or memory.

use std::time::Duration;

use tenure_core::webhook::{CallErrorKind, Caller as _, Reply};
use tokio::time::Instant;

use super::{Answering, Receiver, call, caller, endpoint, event, request, secrets};

/// Makes one call with this time limit, and measures it.
async fn timed(url: &str, limit: Duration) -> (Reply, Duration) {
    let endpoint = endpoint(url, &secrets());
    let event = event();
    let mut request = request(&endpoint, &event);
    request.time_limit = limit;
    let start = Instant::now();
    let reply = caller().call(&request).await;
    (reply, start.elapsed())
}

const SHORT: Duration = Duration::from_millis(300);
/// Tolerance over the limit on a busy machine.
const SLACK: Duration = Duration::from_secs(10);

#[tokio::test]
async fn a_silent_receiver_times_out() {
    let receiver = Receiver::answering(Answering::Silence).await;
    let (reply, took) = timed(&receiver.url(), SHORT).await;
    let error = reply.status.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Timeout);
    assert_eq!(error.text, "it did not answer within 300ms");
    assert!((SHORT..SHORT + SLACK).contains(&took));
    assert_eq!(reply.peer, Some(receiver.address.ip()));
    receiver.closed(1).await;
}

/// The time limit covers the whole exchange, whether head or body comes byte by byte.
#[tokio::test]
async fn a_response_that_comes_byte_by_byte_ends_with_the_time_limit() {
    let body = "HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\nx-a: b\r\n\r\n";
    let receiver = Receiver::answering(Answering::Drip(body.to_owned())).await;
    let (reply, took) = timed(&receiver.url(), SHORT).await;
    let error = reply.status.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Timeout);
    assert_eq!(
        error.text,
        "it answered 200, but the response did not end within 300ms"
    );
    assert!((SHORT..SHORT + SLACK).contains(&took));
    assert!(reply.body.starts_with(b"xx") && reply.timings.first_byte.is_some());
    receiver.closed(1).await;

    let head = "HTTP/1.1 200 OK\r\nx-a: ";
    let receiver = Receiver::answering(Answering::Drip(head.to_owned())).await;
    let (reply, took) = timed(&receiver.url(), SHORT).await;
    assert_eq!(reply.status.unwrap_err().kind, CallErrorKind::Timeout);
    assert!((SHORT..SHORT + SLACK).contains(&took));
    receiver.closed(1).await;
}

/// Ten gigabytes, announced or not: 64 KiB are read, 16 KiB stored, the status counts.
#[tokio::test]
async fn an_endless_response_is_read_up_to_64_kib_and_stored_up_to_16() {
    let heads = [
        "HTTP/1.1 200 OK\r\ncontent-length: 10000000000\r\n\r\n",
        "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n",
    ];
    for head in heads {
        let answering = Answering::Forever(head.to_owned(), vec![b'y'; 32 * 1024]);
        let receiver = Receiver::answering(answering).await;
        let (reply, took) = timed(&receiver.url(), Duration::from_mins(5)).await;
        assert_eq!(reply.status, Ok(200));
        assert!(reply.is_cut && reply.body == vec![b'y'; 16 * 1024]);
        assert!(took < SLACK);
        receiver.closed(1).await;
        // At most what the sockets buffer on both sides.
        assert!(
            receiver.written() < 16 * 1024 * 1024,
            "{}",
            receiver.written()
        );
    }
}

#[tokio::test]
async fn an_endless_chunked_response_is_cut_too() {
    let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = format!("1000\r\n{}\r\n", "z".repeat(0x1000));
    let answering = Answering::Forever(head.to_owned(), chunk.into_bytes());
    let receiver = Receiver::answering(answering).await;
    let (reply, took) = timed(&receiver.url(), Duration::from_mins(5)).await;
    assert_eq!(reply.status, Ok(200));
    assert!(reply.is_cut && reply.body == vec![b'z'; 16 * 1024] && took < SLACK);
    receiver.closed(1).await;
}

#[tokio::test]
async fn an_endless_head_is_an_error() {
    let line = format!("x-more: {}\r\n", "h".repeat(1000));
    let head = "HTTP/1.1 200 OK\r\n".to_owned();
    let receiver = Receiver::answering(Answering::Forever(head, line.into_bytes())).await;
    let (reply, took) = timed(&receiver.url(), Duration::from_mins(5)).await;
    assert_eq!(reply.status.unwrap_err().kind, CallErrorKind::Broken);
    assert!(took < SLACK);
    receiver.closed(1).await;

    // Interim responses, without end.
    let again = b"HTTP/1.1 100 Continue\r\n\r\n".to_vec();
    let receiver = Receiver::answering(Answering::Forever(String::new(), again)).await;
    let (reply, took) = timed(&receiver.url(), SHORT).await;
    assert!(reply.status.is_err() && took < SHORT + SLACK);
    receiver.closed(1).await;
}

#[tokio::test]
async fn of_many_headers_eight_kib_are_stored() {
    let one = |n| format!("x-{n}: {}", "v".repeat(500));
    let many = (0..60).map(one).collect::<Vec<_>>().join("\r\n");
    let text = format!("HTTP/1.1 200 OK\r\n{many}\r\ncontent-length: 0\r\n\r\n");
    let receiver = Receiver::answering(Answering::Text(text)).await;
    let reply = call(&caller(), &receiver.url()).await;
    assert_eq!(reply.status, Ok(200));
    let bytes: usize = reply.headers.iter().map(|(n, v)| n.len() + v.len()).sum();
    assert!((7 * 1024..=8 * 1024).contains(&bytes), "{bytes}");
}

#[tokio::test]
async fn a_response_that_is_not_http_is_broken() {
    let texts = [
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 abc\r\n\r\n",
        "HTTP/1.1 200 OK\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nshort",
        "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        "",
    ];
    for text in texts {
        let receiver = Receiver::answering(Answering::AndClose(text.to_owned())).await;
        let (reply, _) = timed(&receiver.url(), Duration::from_secs(30)).await;
        let error = reply.status.unwrap_err();
        assert_eq!(error.kind, CallErrorKind::Broken, "{text:?}");
        assert!(
            !error.text.contains("SSH") && !error.text.contains("for=us"),
            "{}",
            error.text
        );
    }
}

#[tokio::test]
async fn a_refused_connection_is_reported() {
    let receiver = Receiver::answering(Answering::Silence).await;
    let url = receiver.url();
    let address = receiver.address;
    drop(receiver);
    super::super::until("the port is free again", || async move {
        tokio::net::TcpListener::bind(address).await.is_ok()
    })
    .await;
    let (reply, _) = timed(&url, Duration::from_secs(30)).await;
    let error = reply.status.unwrap_err();
    assert_eq!(error.kind, CallErrorKind::Connect);
    assert_eq!(error.text, "could not connect (connection refused)");
}

/// A dropped call leaves nothing behind: the receiver sees the connection close at once.
#[tokio::test]
async fn a_dropped_call_closes_its_connection() {
    let receiver = Receiver::answering(Answering::Silence).await;
    let endpoint = endpoint(&receiver.url(), &secrets());
    let event = event();
    let request = request(&endpoint, &event);
    let caller = caller();
    {
        let calling = caller.call(&request);
        tokio::select! {
            _ = calling => panic!("the receiver does not answer"),
            () = receiver.received(1) => {}
        }
    }
    receiver.closed(1).await;
}

//! `tenure health`: a probe of the process beside it.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::thread;

use crate::program::{Finished, Place, everywhere, soon, sqlite};
use crate::serve::served;

fn health(place: &Place, address: SocketAddr, args: &[&str]) -> Finished {
    let address = address.to_string();
    place.run(&[&["health", "--listen", &address], args].concat())
}

/// An address without a listener.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap()
}

/// A server that gives one caller this answer.
fn answering(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 1024];
        assert_ne!(stream.read(&mut request).unwrap(), 0);
        stream.write_all(answer.as_bytes()).unwrap();
    });
    address
}

#[tokio::test]
async fn a_server_that_can_work_is_ready() {
    for place in everywhere().await {
        let (running, address) = served(&place, &[]);
        let is_ready = async || (health(&place, address, &[]).code == Some(0)).then_some(());
        soon(is_ready).await;
        let output = health(&place, address, &[]).succeeded();
        for check in ["store", "claims", "settings", "reaper", "sender claims"] {
            assert!(output.out.contains(check), "no {check} in {output:?}");
        }
        assert_eq!(output.err, "");
        let answer = health(&place, address, &["--json"]).succeeded().objects();
        assert_eq!(answer[0]["status"], "ready");
        assert_eq!(answer[0]["checks"][0]["problem"], serde_json::Value::Null);

        let output = health(&place, address, &["--live"]).succeeded();
        assert_eq!(output.out, "live\n");
        running.terminate();
        running.wait().succeeded();
        health(&place, address, &[]).failed(3, "no process listens", "tenure serve");
    }
}

/// The address comes from the configuration of the server, so a probe needs no options.
#[test]
fn the_probe_reads_the_address_of_the_server() {
    let place = sqlite();
    let address = answering("HTTP/1.1 200 OK\r\ncontent-length: 17\r\n\r\n{\"status\":\"live\"}");
    place.write("tenure.toml", &format!("server.listen = '{address}'\n"));
    place.run(&["health", "--live"]).succeeded();
    assert!(!place.file().exists(), "a probe needs no database");
}

#[test]
fn a_check_that_fails_is_shown_and_the_exit_code_is_1() {
    let answer = "HTTP/1.1 503 Service Unavailable\r\ncontent-length: 115\r\n\r\n\
        {\"status\":\"unready\",\"checks\":[{\"name\":\"store\",\
        \"problem\":\"no answer\\nwithin 2 s\",\"last_seen_ms\":null},{\"name\":\"x\"}]}";
    let place = sqlite();
    let output = health(&place, answering(answer), &[]).ended(1);
    assert!(output.out.contains("no answer within 2 s"), "{output:?}");
    let output = health(&place, answering(answer), &["--json"]).ended(1);
    assert_eq!(output.field("status"), "\"unready\"");
}

#[test]
fn an_answer_of_another_program_is_reported() {
    let place = sqlite();
    for answer in [
        "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        "HTTP/1.1 404 Not Found\r\ncontent-length: 14\r\n\r\n{\"status\":404}",
        "SSH-2.0-OpenSSH\r\n",
        "",
    ] {
        let output = health(&place, answering(answer), &[]);
        output.failed(1, "is not a health check of Tenure", "another program");
    }
}

#[test]
fn a_process_that_waits_for_its_database_is_not_live_yet() {
    let mut place = sqlite();
    place.url = format!("postgres://u@{}/nothing", free_address());
    let address = free_address().to_string();
    let mut running = place.start(&["serve", "--listen", &address, "--wait", "10m"]);
    running.line_with("the database did not answer");
    let output = place.run(&["health", "--live", "--listen", &address]);
    output.failed(1, "did not answer within 5s", "waiting for its database");
    running.terminate();
    running.wait().succeeded();
}

#[test]
fn only_this_machine_is_asked() {
    let place = sqlite();
    let output = place.run(&["health", "--listen", "192.0.2.1:7070"]);
    output.failed(2, "192.0.2.1:7070", "--listen 127.0.0.1:7070");
    assert_eq!(place.run(&["health", "--listen", "here"]).code, Some(2));
}

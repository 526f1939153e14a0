//! `tenure serve` with real processes, real HTTP and real signals.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::program::{Place, Running, everywhere, postgres, soon, sqlite};
use crate::receiver::Receiver;

/// Waits until the server is ready: all its health checks pass.
async fn ready(address: SocketAddr) {
    soon(async || (get(address, "/health/ready").0 == 200).then_some(())).await;
}

/// Requests a path of the server at `address`; returns the status and the body.
pub(crate) fn get(address: SocketAddr, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// Starts a server in this place; returns it with its address.
pub(crate) fn served(place: &Place, args: &[&str]) -> (Running, SocketAddr) {
    let all = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
    let mut running = place.start(&all);
    let line = running.line_with(" on http://");
    let (_, address) = line.split_once(" on http://").unwrap();
    let address = address.split(' ').next().unwrap().parse().unwrap();
    (running, address)
}

#[tokio::test]
async fn a_server_answers_until_stopped() {
    for place in [sqlite(), postgres().await] {
        let (running, address) = served(&place, &["--migrate", "--name", "front"]);
        assert_eq!(
            get(address, "/health/live"),
            (200, r#"{"status":"live"}"#.to_owned())
        );
        ready(address).await;
        let (status, body) = get(address, "/metrics");
        assert_eq!(status, 200);
        assert!(
            body.contains("tenure_items{state=\"pending\"} 0\n"),
            "{body}"
        );
        assert_eq!(get(address, "/nothing").0, 404);

        place.run(&["queues", "pause", "default"]).succeeded();
        place.enqueue("a");
        let (status, stats) = get(address, "/v1/stats");
        assert_eq!(status, 200, "{stats}");
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        assert_eq!(stats["deliveries"]["pending"], 0, "{stats}");
        let mut same = place
            .run(&["stats", "--json"])
            .succeeded()
            .objects()
            .remove(0);
        // Only the age may differ between the two outputs.
        same["queues"][0]["oldest_due_ms"] = stats["queues"][0]["oldest_due_ms"].clone();
        assert_eq!(stats, same);

        running.terminate();
        let output = running.wait().succeeded();
        let first = output.err.lines().find(|line| line.starts_with("tenure "));
        let first = first.unwrap_or_else(|| panic!("{output:?}"));
        assert!(first.contains(" as front-"), "{first}");
        assert!(!output.err.contains("canary"), "{output:?}");
    }
}

/// The HTTP API and the command report the same deliveries.
#[tokio::test]
async fn deliveries_are_counted_with_the_events() {
    for place in everywhere().await {
        let receiver = Receiver::start(&[500]);
        receiver.allow(&place);
        let url = receiver.url();
        let add = ["endpoints", "add", &url, "--id", "billing"];
        place
            .run(&[&add[..], &["--schedule", "1h"]].concat())
            .succeeded();
        place.enqueue("order.paid");
        place.run(&["work", "--drain"]).succeeded();
        receiver.next();

        let (running, address) = served(&place, &[]);
        let (status, stats) = get(address, "/v1/stats");
        assert_eq!(status, 200, "{stats}");
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        let deliveries = &stats["deliveries"];
        assert_eq!(
            (&deliveries["pending"], &stats["done"]),
            (&1.into(), &1.into())
        );
        let endpoint = &deliveries["endpoints"][0];
        let delayed = (&"billing".into(), &1.into());
        assert_eq!(
            (&endpoint["endpoint"], &endpoint["delayed"]),
            delayed,
            "{stats}"
        );
        let same = place.run(&["stats", "--json"]).succeeded().objects();
        assert_eq!(stats, same[0]);
        running.terminate();
        running.wait().succeeded();
    }
}

#[test]
fn a_port_in_use_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let place = sqlite();
    let output = place.run(&["serve", "--listen", &address]);
    output.failed(1, &address, "another port");
    assert!(
        !place.file().exists(),
        "no file is created before the port is bound"
    );
}

#[test]
fn an_address_that_other_machines_reach_is_refused() {
    let place = sqlite();
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:7070"] {
        let output = place.run(&["serve", "--listen", address]);
        output.failed(2, "no API keys yet", "--listen 127.0.0.1:7070");
    }
    assert!(!place.file().exists());
}

#[test]
fn an_unreachable_database_is_reported_after_the_wait() {
    let mut place = sqlite();
    // A port without a listener.
    let port = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    place.url = format!("postgres://u:canary@127.0.0.1:{port}/nothing");
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["work"]] {
        let args = [command, &["--wait", "2s"]].concat();
        let output = place.run(&args).ended(1);
        assert!(
            output.err.contains("the database did not answer"),
            "{output:?}"
        );
        assert!(output.err.contains("error: "), "{output:?}");
        assert!(output.err.contains("hint: "), "{output:?}");
        assert!(!output.err.contains("canary"), "{output:?}");
    }
}

#[test]
fn a_signal_ends_the_wait_for_a_database() {
    let mut place = sqlite();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    drop(listener);
    place.url = format!("postgres://u@127.0.0.1:{port}/nothing");
    let mut running = place.start(&["serve", "--listen", "127.0.0.1:0", "--wait", "10m"]);
    running.line_with("the database did not answer");
    running.terminate();
    running.wait().succeeded();
}

/// A file belongs to one machine; a server has other programs, which may not know the new schema.
#[tokio::test]
async fn a_server_migrates_a_file_by_itself_and_postgres_only_when_told() {
    let (file, server) = (sqlite(), postgres().await);
    let (running, _) = served(&file, &[]);
    running.terminate();
    running.wait().succeeded();

    let args = ["serve", "--listen", "127.0.0.1:0", "--wait", "1m"];
    server
        .run(&args)
        .failed(2, "Tenure's tables are not", "`tenure serve --migrate`");
    server.run(&["migrate", "--status"]).ended(1);
    server.write("tenure.toml", "[migrate]\nat_start = true\n");
    let (running, _) = served(&server, &[]);
    running.terminate();
    running.wait().succeeded();
    server.run(&["migrate", "--status"]).succeeded();
}

#[tokio::test]
async fn two_servers_share_one_file() {
    let place = sqlite();
    let (one, first) = served(&place, &[]);
    let (two, second) = served(&place, &[]);
    assert_ne!(first, second);
    place.run(&["queues", "pause", "default"]).succeeded();
    place.enqueue("a");
    for address in [first, second] {
        let (status, stats) = get(address, "/v1/stats");
        assert_eq!(status, 200, "{stats}");
        assert!(stats.contains("\"pending\":1"), "{stats}");
        ready(address).await;
    }
    for running in [one, two] {
        running.terminate();
        running.wait().succeeded();
    }
}

/// A rule that the configuration does not give stays as it is.
#[test]
fn configured_queues_are_added_or_changed() {
    let place = sqlite();
    let add = [
        "queues",
        "add",
        "mail",
        "--term",
        "30s",
        "--max-retries",
        "3",
    ];
    place.run(&add).succeeded();
    place.write(
        "tenure.toml",
        "[[queues]]\nname = \"mail\"\nterm = \"90s\"\n[[queues]]\nname = \"audit\"\n",
    );
    let (running, _) = served(&place, &[]);
    let output = place.run(&["queues", "--json"]).succeeded();
    assert_eq!(
        output.column("queue"),
        ["\"audit\"", "\"default\"", "\"mail\""]
    );
    assert_eq!(output.column("term_ms"), ["null", "null", "90000"]);
    assert_eq!(output.column("max_retries"), ["null", "null", "3"]);
    running.terminate();
    running.wait().succeeded();
}

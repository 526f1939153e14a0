//! Bad input and bad conditions from outside: the program reports or handles each of them, and
//! loses nothing that it has accepted.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tenure::{Event, ItemId};
use tenure_store::testing::Server;

use crate::program::{Finished, Place, everywhere, finish, soon, sqlite};
use crate::serve::{get, served};

/// A configuration that publishes to a file of this name.
fn to_file(name: &str) -> String {
    format!(
        "[publishers.lines]\nkind = \"lines\"\npath = \"{name}\"\n\
         [[routes]]\ntopics = [\"*\"]\npublisher = \"lines\"\n"
    )
}

/// Reads the ids of the published events from the file of this name.
fn published(place: &Place, name: &str) -> Vec<i64> {
    let text = fs::read_to_string(place.file().with_file_name(name)).unwrap_or_default();
    let id = |line: &str| {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        line["id"].as_i64().unwrap()
    };
    text.lines().map(id).collect()
}

/// Waits until this many events are done.
async fn done(place: &Place, number: u64) {
    let tenure = place.tenure().await;
    soon(async || (tenure.count().await.unwrap().done >= number).then_some(())).await;
}

#[test]
fn a_line_of_ten_megabytes_is_reported_and_the_lines_before_it_are_written() {
    let place = sqlite();
    let huge = "x".repeat(10 << 20);
    let input = format!("1\n2\n\"{huge}\"\n3\n");
    let output = place.run_with(&["enqueue", "--lines", "t"], input.as_bytes());
    let output = output.ended(2);
    assert!(output.err.contains("line 3"), "{}", output.err.len());
    assert!(output.err.contains("over 2 MiB"), "{}", output.err.len());
    assert!(output.err.len() < 1000, "the payload is not shown");
    let stats = place.run(&["stats", "--json"]).succeeded();
    assert_eq!(stats.field("pending"), "2");
}

#[test]
fn an_endless_configuration_is_refused() {
    let place = sqlite();
    let output = place.run(&["--config", "/dev/zero", "stats"]).ended(2);
    assert!(output.err.contains("longer than 1 MiB"), "{output:?}");
}

#[tokio::test]
async fn an_event_without_a_route_stays_pending_and_does_not_delay_others() {
    for place in everywhere().await {
        let file = to_file("lines").replace("\"*\"", "\"known.*\"");
        place.write("tenure.toml", &file);
        let stranger = place.enqueue("unknown.a");
        let others: Vec<_> = (0..5).map(|_| place.enqueue("known.a")).collect();
        let (running, _) = served(&place, &[]);
        done(&place, 5).await;
        let ids: Vec<i64> = others.iter().map(|id| id.parse().unwrap()).collect();
        let mut published = published(&place, "lines");
        published.sort_unstable();
        assert_eq!(published, ids);

        let tenure = place.tenure().await;
        let id = ItemId::new(stranger.parse().unwrap());
        let why = place.run(&["why", &stranger]).succeeded();
        let sentence = "no running worker takes the topic unknown.a";
        assert!(why.out.contains(sentence), "{why:?}");
        let doctor = place.run(&["doctor"]);
        assert!(
            doctor.out.contains("no active worker takes unknown.a"),
            "{doctor:?}"
        );
        let stats = place.run(&["stats", "--json"]).succeeded();
        let untaken = &stats.objects()[0]["untaken_topics"][0];
        assert_eq!(
            (untaken["topic"].as_str(), untaken["due"].as_u64()),
            (Some("unknown.a"), Some(1))
        );
        running.terminate();
        running.wait().succeeded();
        let record = tenure.find(&[id]).await.unwrap().pop().unwrap();
        assert_eq!(
            (record.state, record.counters.attempts),
            (tenure::State::Pending, 0)
        );
    }
}

/// Proves: S1-019
#[test]
fn intervals_that_conflict_with_the_term_are_refused_in_every_layer() {
    let wrong = [
        ("lease.heartbeat", "10s"),
        ("reaper.interval", "30s"),
        ("worker.shutdown_timeout", "31s"),
    ];
    let all_reported = |output: &Finished| {
        for (name, value) in wrong {
            let text = format!("{name} is {value}; expected");
            assert!(output.err.contains(&text), "no {text:?} in {output:?}");
        }
    };
    let place = sqlite();
    for command in [&["serve", "--listen", "127.0.0.1:0"][..], &["work"]] {
        let mut program = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        for (name, value) in wrong {
            let name = name.replace('.', "_").to_uppercase();
            program.env(format!("TENURE_{name}"), value);
        }
        program.args(command);
        all_reported(&finish(program, b"").ended(2));
        place.write(
            "wrong.toml",
            "[lease]\nheartbeat = \"10s\"\n[reaper]\ninterval = \"30s\"\n\
             [worker]\nshutdown_timeout = \"31s\"\n",
        );
        let output = place.run(&[command, &["--config", "wrong.toml"]].concat());
        all_reported(&output.ended(2));
    }
    assert!(!place.file().exists());
    place.run(&["migrate"]).succeeded();
    let sets = wrong.map(|(name, value)| format!("{name}={value}"));
    let sets = sets.iter().map(String::as_str);
    let args: Vec<_> = ["settings", "set"].into_iter().chain(sets).collect();
    all_reported(&place.run(&args).ended(2));
}

#[tokio::test]
async fn a_server_starts_when_its_database_comes_up_within_the_wait() {
    let server = Server::start().await;
    let database = server.database().await;
    let mut place = sqlite();
    place.url = database.url.clone();
    server.kill().await;
    let args = [
        "serve",
        "--print",
        "--migrate",
        "--listen",
        "127.0.0.1:0",
        "--wait",
        "60s",
    ];
    let mut running = place.start(&args);
    running.line_with("the database did not answer");
    server.restart().await;
    let line = running.line_with(" on http://");
    let (_, address) = line.split_once(" on http://").unwrap();
    let address = address.split(' ').next().unwrap().parse().unwrap();
    place.enqueue("a");
    done(&place, 1).await;
    assert_eq!(get(address, "/health/live").0, 200);
    running.terminate();
    running.wait().succeeded();
}

#[tokio::test]
async fn a_server_does_not_start_on_a_read_only_database() {
    let [_, mut place] = everywhere().await;
    place.enqueue("a");
    let writable = place.url.clone();
    let sign = if place.url.contains('?') { '&' } else { '?' };
    place.url = format!("{writable}{sign}options[default_transaction_read_only]=on");
    let args = ["serve", "--listen", "127.0.0.1:0", "--wait", "1s"];
    let output = place.run(&args).ended(1);
    assert!(output.err.contains("read-only"), "{output:?}");
    place.url = writable;
    let stats = place.run(&["stats", "--json"]).succeeded();
    assert_eq!(stats.field("pending"), "1");
}

#[test]
fn a_server_does_not_start_on_a_read_only_file() {
    let place = sqlite();
    place.enqueue("a");
    let output = place.run_unwritable(&["serve", "--listen", "127.0.0.1:0", "--wait", "1s"]);
    let output = output.ended(1);
    assert!(output.err.contains("error: "), "{output:?}");
    assert!(output.err.contains("hint: "), "{output:?}");
    let stats = place.run(&["stats", "--json"]).succeeded();
    assert_eq!(stats.field("pending"), "1");
}

/// Returns the program with a limit on the size of files, in the blocks of `ulimit -f`. A write
/// beyond the limit fails as on a full disk.
fn limited(place: &Place, blocks: u32) -> std::process::Command {
    let mut command = place.command(Path::new("sh"));
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_tenure")]);
    command
}

/// Goal: accepted events survive a full disk under load. Method: the server and the producers run
/// with a limit on the size of files until one of them fails, and then without the limit.
#[tokio::test]
async fn a_full_disk_loses_nothing_that_was_accepted() {
    let place = sqlite();
    place.write("tenure.toml", &to_file("lines"));
    place.run(&["migrate"]).succeeded();
    let mut command = limited(&place, 2000);
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let mut running = Place::start_command(command);
    running.line_with(" on http://");

    let line = format!("\"{}\"\n", "x".repeat(2000));
    let mut accepted = Vec::new();
    let refused = loop {
        let topic = format!("t{}", accepted.len());
        let mut command = limited(&place, 2000);
        command.args(["enqueue", "--lines", &topic]);
        let output = finish(command, line.repeat(50).as_bytes());
        if output.code != Some(0) {
            break output;
        }
        accepted.push(topic);
        assert!(accepted.len() < 1000, "the limit is not reached");
    };
    let refused = refused.ended(1);
    assert!(refused.err.contains("error: "), "{refused:?}");
    assert!(refused.err.contains("hint: "), "{refused:?}");
    assert!(!accepted.is_empty());

    running.terminate();
    let output = running.wait();
    assert!(matches!(output.code, Some(0 | 1)), "{output:?}");
    assert!(!output.err.contains("panicked"), "{output:?}");

    let (running, _) = served(&place, &[]);
    let tenure = place.tenure().await;
    soon(async || {
        let counts = tenure.count().await.unwrap();
        (counts.pending() + counts.claimed == 0).then_some(())
    })
    .await;
    for topic in &accepted {
        let args = ["events", "--state", "done", "--topic", topic, "--json"];
        let events = place.run(&args).succeeded().objects().len();
        assert_eq!(events, 50, "{topic}");
    }
    running.terminate();
    running.wait().succeeded();
}

#[tokio::test]
async fn two_servers_on_one_file_publish_each_event_once_between_them() {
    let place = sqlite();
    place.write("one.toml", &to_file("one"));
    place.write("two.toml", &to_file("two"));
    let args = |file| ["--config", file, "--batch", "3", "--concurrency", "3"];
    let (one, _) = served(&place, &args("one.toml"));
    let (two, _) = served(&place, &args("two.toml"));
    let events = vec![Event::new("t", &1).unwrap(); 300];
    let tenure = place.tenure().await;
    let mut written = Vec::new();
    // One worker may finish all events before the other claims again, so the test adds more.
    while ["one", "two"]
        .iter()
        .any(|name| published(&place, name).is_empty())
    {
        written.extend(tenure.enqueue_now(&events).await.unwrap());
        done(&place, u64::try_from(written.len()).unwrap()).await;
    }
    for running in [one, two] {
        running.terminate();
        running.wait().succeeded();
    }
    let [first, second] = ["one", "two"].map(|name| published(&place, name));
    assert!(!first.is_empty() && !second.is_empty(), "both publish");
    let all: BTreeSet<_> = first.iter().chain(&second).copied().collect();
    let expected: BTreeSet<_> = written.iter().map(|id| id.id().number()).collect();
    assert_eq!(all, expected);
    assert_eq!(first.len() + second.len(), written.len(), "none twice");
}

#[tokio::test]
async fn a_second_signal_ends_a_server_at_once() {
    let place = sqlite();
    let config = "[publishers.slow]\nkind = \"exec\"\ncommand = \"sleep 20\"\n\
                  [[routes]]\ntopics = [\"*\"]\npublisher = \"slow\"\n";
    place.write("tenure.toml", config);
    place.enqueue("a");
    let (mut running, _) = served(&place, &[]);
    let tenure = place.tenure().await;
    soon(async || (tenure.count().await.unwrap().claimed > 0).then_some(())).await;
    running.terminate();
    running.line_with("stopped claiming");
    let began = tokio::time::Instant::now();
    running.terminate();
    let output = running.wait().ended(1);
    assert!(began.elapsed().as_secs() < 10, "the server waited");
    assert!(output.err.contains("second signal"), "{output:?}");
}

#[tokio::test]
async fn the_logs_of_a_server_name_worker_and_event_but_show_no_content() {
    for mut place in everywhere().await {
        if place.url.starts_with("postgres:") {
            // The test server does not check passwords.
            place.url = place.url.replacen('@', ":canary-3@", 1);
            assert!(place.url.contains(":canary-3@"));
        }
        let config = "[publishers.no]\nkind = \"exec\"\ncommand = \"test $TENURE_ATTEMPT = 2\"\n\
                      [[routes]]\ntopics = [\"*\"]\npublisher = \"no\"\n";
        place.write("tenure.toml", config);
        let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        command
            .env("TENURE_LOG_FORMAT", "json")
            // This level prints no more lines than the pipe holds before the test reads them.
            .env("TENURE_LOG_LEVEL", "info,tenure_engine=debug")
            .args(["serve", "--listen", "127.0.0.1:0", "--name", "front"]);
        let mut running = Place::start_command(command);
        let line = running.line_with("\"listening\"");
        let args = ["enqueue", "t", "\"canary-1\"", "--header", "k=canary-2"];
        let event = place.run(&[&args[..], &["--json"]].concat()).succeeded();
        let id = event.field("id");
        done(&place, 1).await;
        let serving: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = serving["fields"]["address"].as_str().unwrap();
        // The store shows the event as done before the worker has counted the answer.
        let metrics = soon(async || {
            let (_, metrics) = get(address.parse().unwrap(), "/metrics");
            let done = "queue=\"default\",outcome=\"done\"} 1\n";
            metrics.contains(done).then_some(metrics)
        })
        .await;
        for name in [
            "reaper_recovered_count",
            "reaper_stale_duration",
            "reaper_runs_total",
            "# HELP tenure_items_settled_total ",
            "tenure_handler_seconds_count{worker=\"front\",instance=\"",
        ] {
            assert!(metrics.contains(name), "no {name} in {metrics}");
        }
        running.terminate();
        let output = running.wait().succeeded();
        assert!(!output.err.contains("canary"), "{output:?}");
        assert!(!metrics.contains("canary"), "{metrics}");

        let details = place.run(&["show", &id, "--json"]).succeeded().objects();
        let lines = output.err.lines();
        let lines: Vec<serde_json::Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for message in ["failed; will be retried", "done"] {
            let is_it = |line: &&serde_json::Value| line["fields"]["message"] == message;
            let line = lines.iter().find(is_it);
            let line = line.unwrap_or_else(|| panic!("no {message:?} in {output:?}"));
            assert_eq!(line["fields"]["event"], details[0]["event_id"], "{line}");
            assert!(line["worker"].as_str().unwrap().starts_with("front-"));
        }
    }
}

#[test]
fn a_worker_warns_of_a_publisher_without_a_route() {
    let place = sqlite();
    let config = "[publishers.spare]\nkind = \"lines\"\npath = \"spare.jsonl\"\n\
                  [[routes]]\ntopics = [\"a\"]\npublisher = \"output\"\n";
    place.write("tenure.toml", config);
    place.run(&["migrate"]).succeeded();
    let output = place.run(&["work", "--drain"]).succeeded();
    let is_warning = |line: &str| {
        line.contains(" WARN ")
            && line.contains("tenure.toml:1: no route leads to publishers.spare")
    };
    assert_eq!(
        output.err.lines().filter(|line| is_warning(line)).count(),
        1,
        "{output:?}"
    );
    // `--exec` replaces the routes, so none is missing.
    let output = place
        .run(&["work", "--drain", "--exec", "true"])
        .succeeded();
    assert!(!output.err.contains("spare"), "{output:?}");
}

#[test]
fn values_beyond_a_limit_are_named() {
    let place = sqlite();
    for (args, said) in [
        (
            &["enqueue", "a", "1", "--delay", "99999999999d"][..],
            "too long",
        ),
        (
            &["why", "99999999999999999999999"],
            "expected a smaller number",
        ),
        (
            &["show", "d99999999999999999999999"],
            "expected a smaller number",
        ),
        (
            &["replay", "--state", "dead", "--rate", "0/s"],
            "expected 1 to 1000000",
        ),
        (
            &["endpoints", "add", "https://example.com", "--rate", "0/s"],
            "expected above 0",
        ),
    ] {
        let output = place.run(args).ended(2);
        assert!(output.err.contains(said), "no {said:?} in {output:?}");
    }
    assert!(!place.file().exists());
}

#[test]
fn odd_names_are_accepted_with_a_remark() {
    let place = sqlite();
    let output = place.run(&["queues", "add", "bad name!"]).succeeded();
    assert_eq!(output.out, "added queue \"bad name!\"\n");
    assert!(output.err.contains("needs no quotes"), "{output:?}");
    for (args, said) in [
        (&["mail"][..], "added queue mail\n"),
        (&["mail"], "unchanged queue mail\n"),
        (&["mail", "--term", "90s"], "changed queue mail\n"),
        (&["mail", "--term", "90s"], "unchanged queue mail\n"),
        (&["mail"], "unchanged queue mail\n"),
    ] {
        let output = place.run(&[&["queues", "add"], args].concat()).succeeded();
        assert_eq!((output.out.as_str(), output.err.as_str()), (said, ""));
    }
    let output = place.run(&["enqueue", "order paid", "{}"]).succeeded();
    assert!(output.err.contains("has a blank"), "{output:?}");
}

#[tokio::test]
async fn a_file_that_is_deleted_under_a_server_makes_it_unready() {
    let place = sqlite();
    let (running, address) = served(&place, &[]);
    let ready = || get(address, "/health/ready").0;
    soon(async || (ready() == 200).then_some(())).await;
    for name in ["tenure.db", "tenure.db-wal", "tenure.db-shm"] {
        fs::remove_file(place.path(name)).unwrap();
    }
    soon(async || (ready() == 503).then_some(())).await;
    // Other events go into a new file, which the server does not work.
    place.run(&["enqueue", "a", "1"]).succeeded();
    assert_eq!(ready(), 503);
    running.terminate();
    drop(running.wait());
}

#[test]
fn another_server_at_the_address_is_suspected() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u@{}/db", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let answer = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n";
            drop(std::io::Write::write_all(&mut stream, answer));
        }
    });
    let output = sqlite().run(&["stats", "--database", &url]).ended(1);
    assert!(
        output.err.contains("does another program listen"),
        "{output:?}"
    );
}

//! What comes from outside and is wrong, too much or not there: each is told or worked around, and
//! nothing that was accepted is lost.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also where it is not in the test function itself"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tenure::{Event, ItemId};
use tenure_store::testing::Server;

use crate::program::{Place, Said, everywhere, said, soon, sqlite};
use crate::serve::{get, served};

/// A configuration that publishes to a file of this name.
fn to_file(name: &str) -> String {
    format!(
        "[publishers.lines]\nkind = \"lines\"\npath = \"{name}\"\n\
         [[routes]]\ntopics = [\"*\"]\npublisher = \"lines\"\n"
    )
}

/// The ids of the events in a file that events were published to.
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
fn a_line_of_ten_megabytes_is_told_and_what_came_before_it_is_kept() {
    let place = sqlite();
    let huge = "x".repeat(10 << 20);
    let input = format!("1\n2\n\"{huge}\"\n3\n");
    let said = place.run_with(&["enqueue", "--lines", "t"], input.as_bytes());
    let said = said.ended(2);
    assert!(said.err.contains("line 3"), "{}", said.err.len());
    assert!(said.err.contains("over 2 MiB"), "{}", said.err.len());
    assert!(said.err.len() < 1000, "the payload is not shown");
    let stats = place.run(&["stats", "--json"]).succeeded();
    assert_eq!(stats.field("pending"), "2");
}

#[test]
fn a_configuration_without_an_end_is_not_read_to_it() {
    let place = sqlite();
    let said = place.run(&["--config", "/dev/zero", "stats"]).ended(2);
    assert!(said.err.contains("longer than 1 MiB"), "{said:?}");
}

#[tokio::test]
async fn an_event_that_no_route_takes_is_kept_and_holds_nothing_up() {
    for place in everywhere().await {
        let file = to_file("lines").replace("\"*\"", "\"known.*\"");
        place.write("tenure.toml", &file);
        let stranger = place.enqueue("unknown.a");
        let others: Vec<_> = (0..5).map(|_| place.enqueue("known.a")).collect();
        let (running, _) = served(&place, &[]);
        done(&place, 5).await;
        let ids: Vec<i64> = others.iter().map(|id| id.parse().unwrap()).collect();
        let mut seen = published(&place, "lines");
        seen.sort_unstable();
        assert_eq!(seen, ids);

        let tenure = place.tenure().await;
        let id = ItemId::new(stranger.parse().unwrap());
        soon(async || {
            let record = tenure.find(&[id]).await.unwrap().pop().unwrap();
            (record.counters.failures > 0).then_some(())
        })
        .await;
        for command in ["why", "show"] {
            // At the moment at which it is tried again, `why` says that it is due.
            soon(async || {
                let said = place.run(&[command, &stranger]).succeeded();
                said.out
                    .contains("no handler takes the topic")
                    .then_some(())
            })
            .await;
        }
        running.terminate();
        running.wait().succeeded();
        let said = place.run(&["show", &stranger, "--json"]).succeeded();
        assert_eq!(said.field("state"), "\"pending\"");
    }
}

/// Proves: S1-019
#[test]
fn intervals_that_do_not_fit_the_term_are_refused_wherever_they_are_set() {
    let wrong = [
        ("lease.heartbeat", "10s"),
        ("reaper.interval", "30s"),
        ("worker.shutdown_timeout", "31s"),
    ];
    let all_told = |said: &Said| {
        for (name, value) in wrong {
            let text = format!("{name} is {value}; expected");
            assert!(said.err.contains(&text), "no {text:?} in {said:?}");
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
        all_told(&said(program, b"").ended(2));
        place.write(
            "wrong.toml",
            "[lease]\nheartbeat = \"10s\"\n[reaper]\ninterval = \"30s\"\n\
             [worker]\nshutdown_timeout = \"31s\"\n",
        );
        let said = place.run(&[command, &["--config", "wrong.toml"]].concat());
        all_told(&said.ended(2));
    }
    assert!(!place.file().exists());
    place.run(&["migrate"]).succeeded();
    let sets = wrong.map(|(name, value)| format!("{name}={value}"));
    let sets = sets.iter().map(String::as_str);
    let args: Vec<_> = ["settings", "set"].into_iter().chain(sets).collect();
    all_told(&place.run(&args).ended(2));
}

#[tokio::test]
async fn a_database_that_comes_up_within_the_wait_is_served() {
    let server = Server::start().await;
    let database = server.database().await;
    let mut place = sqlite();
    place.url = database.url.clone();
    server.kill().await;
    let args = ["serve", "--listen", "127.0.0.1:0", "--wait", "60s"];
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
async fn a_server_does_not_start_on_a_database_that_takes_no_writes() {
    let [_, mut place] = everywhere().await;
    place.enqueue("a");
    let writable = place.url.clone();
    let sign = if place.url.contains('?') { '&' } else { '?' };
    place.url = format!("{writable}{sign}options[default_transaction_read_only]=on");
    let args = ["serve", "--listen", "127.0.0.1:0", "--wait", "1s"];
    let said = place.run(&args).ended(1);
    assert!(said.err.contains("read-only"), "{said:?}");
    place.url = writable;
    let stats = place.run(&["stats", "--json"]).succeeded();
    assert_eq!(stats.field("pending"), "1");
}

#[test]
fn a_server_does_not_start_on_a_file_that_takes_no_writes() {
    let place = sqlite();
    place.enqueue("a");
    let said = place.run_unwritable(&["serve", "--listen", "127.0.0.1:0", "--wait", "1s"]);
    let said = said.ended(1);
    assert!(said.err.contains("error: "), "{said:?}");
    assert!(said.err.contains("hint: "), "{said:?}");
    let stats = place.run(&["stats", "--json"]).succeeded();
    assert_eq!(stats.field("pending"), "1");
}

/// Runs the program with this as the largest size of a file, in blocks of the shell; what is
/// written beyond fails as on a full disk.
fn limited(place: &Place, blocks: u32) -> std::process::Command {
    let mut command = place.command(Path::new("sh"));
    let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_tenure")]);
    command
}

/// Goal: what was accepted outlives a full disk under load. Method: server and producers run with a
/// bound on the size of files until one of them is told of it, then without.
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
        let said = said(command, line.repeat(50).as_bytes());
        if said.code != Some(0) {
            break said;
        }
        accepted.push(topic);
        assert!(accepted.len() < 1000, "the limit is not reached");
    };
    let refused = refused.ended(1);
    assert!(refused.err.contains("error: "), "{refused:?}");
    assert!(refused.err.contains("hint: "), "{refused:?}");
    assert!(!accepted.is_empty());

    running.terminate();
    let said = running.wait();
    assert!(matches!(said.code, Some(0 | 1)), "{said:?}");
    assert!(!said.err.contains("panicked"), "{said:?}");

    let (running, _) = served(&place, &[]);
    let tenure = place.tenure().await;
    soon(async || {
        let counts = tenure.count().await.unwrap();
        (counts.pending() + counts.claimed == 0).then_some(())
    })
    .await;
    for topic in &accepted {
        let args = ["events", "--state", "done", "--topic", topic, "--json"];
        let found = place.run(&args).succeeded().objects().len();
        assert_eq!(found, 50, "{topic}");
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
    // One may be done with all of them before the other looks again.
    while ["one", "two"]
        .iter()
        .any(|name| published(&place, name).is_empty())
    {
        written.extend(tenure.enqueue_all(&events).await.unwrap());
        done(&place, u64::try_from(written.len()).unwrap()).await;
    }
    for running in [one, two] {
        running.terminate();
        running.wait().succeeded();
    }
    let [first, second] = ["one", "two"].map(|name| published(&place, name));
    assert!(!first.is_empty() && !second.is_empty(), "both work");
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
    let said = running.wait().ended(1);
    assert!(began.elapsed().as_secs() < 10, "it did not wait");
    assert!(said.err.contains("second signal"), "{said:?}");
}

#[tokio::test]
async fn the_logs_of_a_server_name_worker_and_event_and_no_content() {
    for mut place in everywhere().await {
        if place.url.starts_with("postgres:") {
            // The test server asks nobody for a password.
            place.url = place.url.replacen('@', ":canary-3@", 1);
            assert!(place.url.contains(":canary-3@"));
        }
        let config = "[publishers.no]\nkind = \"exec\"\ncommand = \"test $TENURE_ATTEMPT = 2\"\n\
                      [[routes]]\ntopics = [\"*\"]\npublisher = \"no\"\n";
        place.write("tenure.toml", config);
        let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        command
            .env("TENURE_LOG_FORMAT", "json")
            // No more than the pipe takes until it is read.
            .env("TENURE_LOG_LEVEL", "info,tenure_engine=debug")
            .args(["serve", "--listen", "127.0.0.1:0", "--name", "front"]);
        let mut running = Place::start_command(command);
        let line = running.line_with("\"began to serve\"");
        let args = ["enqueue", "t", "\"canary-1\"", "--header", "k=canary-2"];
        let event = place.run(&[&args[..], &["--json"]].concat()).succeeded();
        let id = event.field("id");
        done(&place, 1).await;
        let serving: serde_json::Value = serde_json::from_str(&line).unwrap();
        let address = serving["fields"]["address"].as_str().unwrap();
        let (_, metrics) = get(address.parse().unwrap(), "/metrics");
        for name in [
            "reaper_recovered_count",
            "reaper_stale_duration",
            "reaper_runs_total",
        ] {
            assert!(metrics.contains(name), "no {name} in {metrics}");
        }
        running.terminate();
        let said = running.wait().succeeded();
        assert!(!said.err.contains("canary"), "{said:?}");
        assert!(!metrics.contains("canary"), "{metrics}");

        let shown = place.run(&["show", &id, "--json"]).succeeded().objects();
        let lines = said.err.lines();
        let lines: Vec<serde_json::Value> = lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        for message in ["failed; will be tried again", "worked"] {
            let is_it = |line: &&serde_json::Value| line["fields"]["message"] == message;
            let line = lines.iter().find(is_it);
            let line = line.unwrap_or_else(|| panic!("no {message:?} in {said:?}"));
            assert_eq!(line["fields"]["event"], shown[0]["event_id"], "{line}");
            assert!(line["worker"].as_str().unwrap().starts_with("front-"));
        }
    }
}

#[test]
fn whoever_works_warns_of_a_publisher_that_no_route_leads_to() {
    let place = sqlite();
    let config = "[publishers.spare]\nkind = \"lines\"\npath = \"spare.jsonl\"\n";
    place.write("tenure.toml", config);
    place.run(&["migrate"]).succeeded();
    let said = place.run(&["work", "--drain"]).succeeded();
    let is_warning = |line: &str| {
        line.contains(" WARN ")
            && line.contains("tenure.toml:1: no route leads to publishers.spare")
    };
    assert_eq!(
        said.err.lines().filter(|line| is_warning(line)).count(),
        1,
        "{said:?}"
    );
    // `--exec` is in place of the routes, so that none is missing.
    let said = place
        .run(&["work", "--drain", "--exec", "true"])
        .succeeded();
    assert!(!said.err.contains("spare"), "{said:?}");
}

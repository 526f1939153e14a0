//! `tenure work`: a worker without HTTP.

use std::path::Path;

use crate::program::{postgres, said, sqlite};

#[test]
fn a_worker_runs_until_it_is_told_to_end() {
    let place = sqlite();
    let mut running = place.start(&["work", "--name", "back"]);
    let line = running.line_with(" works on ");
    assert!(line.contains(" as back-"), "{line}");
    assert!(place.file().exists(), "an SQLite file migrates itself");
    running.terminate();
    running.wait().succeeded();
}

#[tokio::test]
async fn a_worker_does_not_migrate_a_server() {
    let place = postgres().await;
    let said = place.run(&["work", "--wait", "0s"]).ended(2);
    assert!(said.err.contains("tenure migrate"), "{said:?}");
}

#[test]
fn a_drain_ends_by_itself_when_nothing_is_due() {
    let place = sqlite();
    place
        .run(&["enqueue", "later", "1", "--delay", "1h"])
        .succeeded();
    place.run(&["queues", "add", "held"]).succeeded();
    place.run(&["queues", "pause", "held"]).succeeded();
    place
        .run(&["enqueue", "a", "1", "--queue", "held"])
        .succeeded();
    let said = place.run(&["work", "--drain", "--exec", "cat"]).succeeded();
    assert!(said.err.contains("works on"), "{said:?}");
}

#[test]
fn a_drain_says_what_became_of_the_events_and_ends_with_0() {
    let place = sqlite();
    for topic in ["good", "bad", "good"] {
        place.enqueue(topic);
    }
    let exec = "case $TENURE_TOPIC in bad) exit 65;; esac";
    let said = place.run(&["work", "--drain", "--exec", exec]).succeeded();
    assert!(said.err.contains("events: 2 done, 1 dead\n"), "{said:?}");
    let hint = "hint: `tenure events --state dead` ";
    assert!(said.err.contains(hint), "{said:?}");
}

/// A lease that lapses before a heartbeat can come would take every item to its grave.
#[test]
fn a_term_that_no_heartbeat_can_keep_is_refused_wherever_it_is_typed() {
    let place = sqlite();
    let expected = "is 1ms; expected 100ms to 24h";
    let work = ["work", "--term", "1ms", "--concurrency", "0"];
    let said = place.run(&work).ended(2);
    let told = format!("error: --term: lease.term {expected}\n");
    assert!(said.err.contains(&told), "{said:?}");
    assert_eq!(said.err.matches("error: ").count(), 2, "{said:?}");
    let jobs = ["jobs", "run", "--kind", "a", "--exec", "true"];
    for (args, named) in [
        (&["settings", "set", "lease.term=1ms"][..], "lease.term"),
        (&["queues", "add", "mail", "--term", "1ms"], "--term"),
        (&[&jobs[..], &["--term", "1ms"]].concat(), "--term"),
        (
            &[&jobs[..], &["--chunk-term", "1ms"]].concat(),
            "--chunk-term",
        ),
    ] {
        let said = place.run(args).ended(2);
        assert!(said.err.contains(expected), "{said:?}");
        assert!(said.err.contains(named), "{said:?}");
    }
    let file = "[lease]\nterm = \"1ms\"\n[webhook]\nterm = \"99ms\"\n\
                [[queues]]\nname = \"mail\"\nterm = \"1ms\"\n";
    place.write("tenure.toml", file);
    let said = place.run(&["stats"]).ended(2);
    for line in [
        format!("tenure.toml:2: lease.term {expected}\n"),
        "tenure.toml:4: webhook.term is \"99ms\"; expected a duration from 100ms".to_owned(),
        format!("tenure.toml:7: queues.term {expected}\n"),
    ] {
        assert!(said.err.contains(&line), "no {line:?} in {said:?}");
    }
    assert_eq!(said.err.matches("error: ").count(), 3, "{said:?}");
}

#[test]
fn a_drain_without_a_route_is_refused() {
    let place = sqlite();
    place.write("tenure.toml", "routes = []\n");
    let said = place.run(&["work", "--drain"]);
    said.failed(2, "no route", "--exec");
}

#[test]
fn a_setting_that_cannot_be_is_told_with_its_flag() {
    let place = sqlite();
    let said = place.run(&["work", "--concurrency", "0"]).ended(2);
    assert!(said.err.contains("--concurrency"), "{said:?}");
}

#[test]
fn a_command_sees_its_event_and_neither_our_settings_nor_our_secrets() {
    let place = sqlite();
    place
        .run(&["enqueue", "a", "1", "--header", "trace=7"])
        .succeeded();
    let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
    command
        .env("PLAIN", "stays")
        .env("PGPASSWORD", "canary")
        .env("TENURE_HEADER_AUTH", "canary")
        .env("TENURE_KEY", "canary")
        .env("TENURE_WORKER_NAME", "canary")
        .args(["work", "--drain", "--exec", "export -p > seen"]);
    said(command, b"").succeeded();
    let seen = std::fs::read_to_string(place.file().with_file_name("seen")).expect("it ran");
    assert!(!seen.contains("canary"), "{seen}");
    assert!(!seen.contains("TENURE_DATABASE"), "{seen}");
    assert!(seen.contains("PLAIN='stays'"), "{seen}");
    assert!(seen.contains("TENURE_HEADER_TRACE='7'"), "{seen}");
}

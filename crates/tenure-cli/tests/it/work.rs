//! `tenure work`: a worker without HTTP.

use std::path::Path;

use crate::program::{finish, postgres, sqlite};

#[test]
fn a_worker_runs_until_stopped() {
    let place = sqlite();
    let mut running = place.start(&["work", "--name", "back"]);
    let line = running.line_with(" works on ");
    assert!(line.contains(" as back-"), "{line}");
    assert!(place.file().exists(), "the worker creates the SQLite file");
    running.terminate();
    running.wait().succeeded();
}

#[tokio::test]
async fn a_worker_does_not_migrate_a_server() {
    let place = postgres().await;
    let output = place.run(&["work", "--wait", "0s"]).ended(2);
    assert!(output.err.contains("tenure migrate"), "{output:?}");
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
    let output = place.run(&["work", "--drain", "--exec", "cat"]).succeeded();
    assert!(output.err.contains("works on"), "{output:?}");
}

#[test]
fn a_drain_prints_the_outcomes_and_exits_with_0() {
    let place = sqlite();
    for topic in ["good", "bad", "good"] {
        place.enqueue(topic);
    }
    let exec = "case $TENURE_TOPIC in bad) exit 65;; esac";
    let output = place.run(&["work", "--drain", "--exec", exec]).succeeded();
    assert!(
        output.err.contains("events: 2 done, 1 dead\n"),
        "{output:?}"
    );
    let hint = "hint: `tenure events --state dead` ";
    assert!(output.err.contains(hint), "{output:?}");
}

/// With a term of 1 ms, each lease would lapse before its first heartbeat, and every item would
/// become dead.
#[test]
fn a_term_too_short_for_heartbeats_is_refused_wherever_it_is_set() {
    let place = sqlite();
    let expected = "is 1ms; expected 100ms to 24h";
    let work = ["work", "--term", "1ms", "--concurrency", "0"];
    let output = place.run(&work).ended(2);
    let message = format!("error: --term: lease.term {expected}\n");
    assert!(output.err.contains(&message), "{output:?}");
    assert_eq!(output.err.matches("error: ").count(), 2, "{output:?}");
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
        let output = place.run(args).ended(2);
        assert!(output.err.contains(expected), "{output:?}");
        assert!(output.err.contains(named), "{output:?}");
    }
    let file = "[lease]\nterm = \"1ms\"\n[webhook]\nterm = \"99ms\"\n\
                [[queues]]\nname = \"mail\"\nterm = \"1ms\"\n";
    place.write("tenure.toml", file);
    let output = place.run(&["stats"]).ended(2);
    for line in [
        format!("tenure.toml:2: lease.term {expected}\n"),
        "tenure.toml:4: webhook.term is \"99ms\"; expected a duration from 100ms".to_owned(),
        format!("tenure.toml:7: queues.term {expected}\n"),
    ] {
        assert!(output.err.contains(&line), "no {line:?} in {output:?}");
    }
    assert_eq!(output.err.matches("error: ").count(), 3, "{output:?}");
}

#[test]
fn a_drain_without_a_route_is_refused() {
    let place = sqlite();
    place.write("tenure.toml", "routes = []\n");
    let output = place.run(&["work", "--drain"]);
    output.failed(2, "no route", "--exec");
}

#[test]
fn a_drain_that_can_do_nothing_is_refused() {
    let place = sqlite();
    let id = place.enqueue("a");
    let drain = ["work", "--drain", "--exec"];
    let output = place.run(&[&drain[..], &["/no/such/cmd --x"]].concat());
    let said = "begins with \"/no/such/cmd\", which is not an executable file";
    output.failed(2, said, "give its whole path");
    let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
    command.env("PATH", "/bin:/usr/bin").args(drain);
    command.arg("nosuch-command");
    let output = finish(command, b"").ended(2);
    assert!(output.err.contains("is in no folder of PATH"), "{output:?}");

    let output = place.run(&["work", "--drain", "--queue", "defalt", "--exec", "true"]);
    output.failed(2, "there is no queue \"defalt\"", "did you mean default?");
    let output = place.run(&["work", "--drain", "--queue", "nosuch", "--exec", "true"]);
    output.failed(2, "expected one of default", "`tenure queues add nosuch`");
    let shown = place.run(&["show", &id, "--json"]).succeeded();
    assert_eq!(shown.field("state"), "\"pending\"");
}

#[test]
fn an_invalid_setting_is_reported_with_its_flag() {
    let place = sqlite();
    let output = place.run(&["work", "--concurrency", "0"]).ended(2);
    assert!(output.err.contains("--concurrency"), "{output:?}");
}

#[test]
fn a_command_gets_its_event_but_neither_our_settings_nor_our_secrets() {
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
        .args(["work", "--drain", "--exec", "export -p > variables"]);
    finish(command, b"").succeeded();
    let variables =
        std::fs::read_to_string(place.file().with_file_name("variables")).expect("the command ran");
    assert!(!variables.contains("canary"), "{variables}");
    assert!(!variables.contains("TENURE_DATABASE"), "{variables}");
    assert!(variables.contains("PLAIN='stays'"), "{variables}");
    assert!(variables.contains("TENURE_HEADER_TRACE='7'"), "{variables}");
}

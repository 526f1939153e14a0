//! `tenure events`: filters, pages, JSON lines, and readers that close the output.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;

use tenure::Outcome;
use tenure::lease::Settle;

use crate::program::{everywhere, finish};

#[tokio::test]
async fn a_filter_selects_by_state_topic_queue_and_time() {
    for place in everywhere().await {
        let dead = place.enqueue("a");
        place.run(&["bury", &dead, "--reason", "test"]).succeeded();
        let pending = place.enqueue("a");
        let other = place.enqueue("b");
        let selected = |args: &[&str]| {
            let args = [&["events", "--json"], args].concat();
            place.run(&args).succeeded().column("id")
        };
        assert_eq!(selected(&[]), [&other[..], &pending, &dead]);
        assert_eq!(selected(&["--topic", "a"]), [&pending[..], &dead]);
        assert_eq!(selected(&["--state", "dead"]), [&dead[..]]);
        assert_eq!(
            selected(&["--state", "pending", "--topic", "b"]),
            [&other[..]]
        );
        assert_eq!(selected(&["--queue", "default", "--since", "1h"]).len(), 3);
        assert_eq!(selected(&["--limit", "1"]), [&other[..]]);
        assert_eq!(
            selected(&["--limit", "1", "--before", &other]),
            [&pending[..]]
        );
    }
}

#[tokio::test]
async fn a_filter_selects_by_key() {
    for place in everywhere().await {
        let first = place.enqueue_keyed("customer-7");
        place.enqueue("a");
        place.enqueue_keyed("customer-8");
        let last = place.enqueue_keyed("customer-7");
        let args = ["events", "--key", "customer-7"];
        let output = place.run(&[&args[..], &["--json"]].concat()).succeeded();
        assert_eq!(output.column("id"), [&last[..], &first]);
        assert_eq!(output.column("key"), ["\"customer-7\"", "\"customer-7\""]);
        let output = place.run(&["events"]).succeeded();
        let heading = output.out.lines().next().unwrap();
        assert!(heading.contains("QUEUE    KEY         AGE"), "{output:?}");
        let output = place.run(&["events", "--topic", "a"]).succeeded();
        assert!(!output.out.contains("KEY"), "{output:?}");
        place.run(&["events", "--key", "customer-9"]).ended(3);
        place
            .run(&["events", "--key", "customer-7", "--state", "done"])
            .ended(3);
        place
            .run(&["events", "--key", ""])
            .failed(2, "ordering key is empty", "");
    }
}

#[tokio::test]
async fn when_nothing_matches_the_exit_code_is_3() {
    for place in everywhere().await {
        let output = place.run(&["events"]).ended(3);
        assert_eq!(
            (output.out.as_str(), output.err.as_str()),
            ("", "no events match\n")
        );
        place.enqueue("a");
        for args in [
            &["--topic", "b"][..],
            &["--state", "done"],
            &["--since", "2999-01-01"],
            &["--before", "1"],
        ] {
            let output = place.run(&[&["events", "--json"], args].concat()).ended(3);
            assert_eq!(
                (output.out.as_str(), output.err.as_str()),
                ("", ""),
                "{args:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_table_has_a_row_per_event_and_hints_at_the_next_page() {
    for place in everywhere().await {
        place.enqueue("a");
        place.enqueue("b");
        let output = place.run(&["events", "--limit", "1"]).succeeded();
        let lines: Vec<_> = output.out.lines().collect();
        assert_eq!(lines.len(), 2, "{output:?}");
        assert!(
            lines[0].starts_with("ID  STATE    TOPIC  QUEUE"),
            "{output:?}"
        );
        assert!(
            lines[1].starts_with("2   pending  b      default"),
            "{output:?}"
        );
        assert_eq!(output.err, "there are more: add --before 2\n");
        assert!(output.out.lines().all(|line| line == line.trim_end()));
    }
}

/// Goal: the text of an event cannot control the terminal, and a pipe gets no colours.
#[tokio::test]
async fn no_control_character_reaches_the_screen() {
    for place in everywhere().await {
        place.enqueue("a");
        let (tenure, held) = place.held().await;
        let outcome = Outcome::Dead {
            reason: "rejected".into(),
            error: "\u{1b}[31mred\r\nline".into(),
        };
        let settle = Settle::new(held.lease.token.clone()).item(held.ids()[0], outcome);
        assert_eq!(tenure.settle(&settle).await.unwrap().refused().count(), 0);
        for args in [&["events"][..], &["show", "1"], &["events", "--json"]] {
            let output = place.run(args).succeeded();
            let wild = output.out.chars().find(|c| c.is_control() && *c != '\n');
            assert_eq!(wild, None, "{output:?}");
        }
    }
}

#[tokio::test]
async fn colours_depend_on_the_environment() {
    let [place, _] = everywhere().await;
    place.enqueue("a");
    let coloured = |variables: &[(&str, &str)]| {
        let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        command.arg("events").envs(variables.iter().copied());
        finish(command, b"").succeeded().out.contains('\u{1b}')
    };
    assert!(coloured(&[("CLICOLOR_FORCE", "1")]));
    assert!(!coloured(&[]));
    assert!(!coloured(&[("NO_COLOR", "1")]));
}

/// Goal: `tenure events | head -1` does not fail. Method: the reader closes the output after one
/// line, while the program has more to print than a pipe holds.
#[tokio::test]
async fn a_reader_that_closes_the_output_is_not_a_failure() {
    for place in everywhere().await {
        place.enqueue_many(500).await;
        for args in [
            &["events", "--limit", "500", "--json"][..],
            &["events", "--limit", "500"],
        ] {
            let mut child = place
                .command(Path::new(env!("CARGO_BIN_EXE_tenure")))
                .args(args)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::with_capacity(64, child.stdout.take().unwrap())
                .read_line(&mut line)
                .unwrap();
            let output = child.wait_with_output().unwrap();
            assert_eq!(String::from_utf8_lossy(&output.stderr), "");
            assert_eq!(output.status.code(), Some(0));
        }
    }
}

/// Goal: the program reports output that it could not write. Method: a device that is always full.
#[tokio::test]
async fn an_output_that_cannot_be_written_is_a_failure() {
    let [place, _] = everywhere().await;
    place.enqueue("a");
    for args in [&["events"][..], &["events", "--json"], &["stats"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = place
            .command(Path::new(env!("CARGO_BIN_EXE_tenure")))
            .args(args)
            .stdout(full)
            .output()
            .unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            errors.starts_with("error: cannot write the output"),
            "{errors}"
        );
        assert_eq!(output.status.code(), Some(1));
    }
}

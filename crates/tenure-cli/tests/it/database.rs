//! Errors about databases that are missing, unreachable, read-only or without Tenure's tables; no
//! error shows the password of an address.

use std::fs;
use std::path::Path;

use crate::program::{everywhere, finish, postgres, sqlite};

/// Commands that need an existing database and do not create one.
const READING: [&[&str]; 7] = [
    &["events"],
    &["show", "1"],
    &["stats"],
    &["replay", "1"],
    &["bury", "1", "--reason", "test"],
    &["reap"],
    &["queues"],
];

#[test]
fn a_command_on_a_missing_file_does_not_create_it_and_hints_how_to_begin() {
    let place = sqlite();
    for args in READING {
        place
            .run(args)
            .failed(3, "there is no database at", "tenure enqueue TOPIC JSON");
    }
    assert!(!place.file().exists());
    place.run(&["enqueue", "a", "1"]).succeeded();
    place.run(&["show", "1"]).succeeded();
}

#[test]
fn without_an_address_the_database_is_a_file_in_the_current_folder() {
    let place = sqlite();
    let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
    command.env_remove("TENURE_DATABASE");
    command.args(["enqueue", "a", "1"]);
    finish(command, b"").succeeded();
    assert!(place.file().exists());
}

#[test]
fn a_database_in_memory_is_refused_because_it_would_end_with_the_command() {
    let place = sqlite();
    for args in [&["enqueue", "a", "1"][..], &["stats"], &["migrate"]] {
        let args = [args, &["--database", "memory:"]].concat();
        place
            .run(&args)
            .failed(2, "it would end with this command", "sqlite://PATH");
    }
}

#[test]
fn an_unsupported_address_is_refused() {
    let place = sqlite();
    for (url, said) in [
        ("", "the database address is empty"),
        ("shop.db", "did you mean sqlite://shop.db?"),
        (
            "mysql://u:canary@host/db",
            r#"address is "mysql://u:…@host/db""#,
        ),
        ("sqlite:", r#"address is "sqlite:""#),
    ] {
        for args in [&["enqueue", "a", "1"][..], &["config", "check"], &["work"]] {
            let output = place.run(&[args, &["--database", url]].concat()).ended(2);
            assert!(output.err.contains("error: --database: "), "{output:?}");
            assert!(output.err.contains(said), "{output:?}");
            assert!(output.err.contains("expected sqlite://FILE"), "{output:?}");
            assert!(!output.err.contains("canary"), "{output:?}");
        }
    }
}

#[test]
fn a_server_that_is_down_is_reported_without_its_password() {
    let place = sqlite();
    for url in [
        "postgres://u:canary@127.0.0.1:1/db",
        "postgres://u:c%61nary@127.0.0.1:1/db",
        "postgres://u@127.0.0.1:1/db?password=canary",
        "postgres://u:canary@no-such-host.invalid/db",
        "postgres://u:canary@[/db",
    ] {
        for args in [&["enqueue", "a", "1"][..], &["stats"], &["migrate"]] {
            let output = place.run(&[args, &["--database", url]].concat());
            assert!(matches!(output.code, Some(1 | 2)), "{output:?}");
            assert!(output.err.contains("hint: "), "{output:?}");
            assert!(!format!("{output:?}").contains("canary"), "{output:?}");
            assert!(!format!("{output:?}").contains("c%61nary"), "{output:?}");
        }
    }
    let down = ["stats", "--database", "postgres://u@127.0.0.1:1/db"];
    place.run(&down).failed(1, "cannot be reached", "running");
}

#[test]
fn help_and_usage_errors_show_no_password() {
    let place = sqlite();
    let secret = "postgres://u:canary@h/db";
    for args in [
        &["--help"][..],
        &["events", secret],
        &["show", secret],
        &["events", "--database", secret, "--limit", "0"],
    ] {
        let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
        command.env("TENURE_DATABASE", secret).args(args);
        let output = finish(command, b"");
        assert!(!format!("{output:?}").contains("canary"), "{output:?}");
    }
}

#[tokio::test]
async fn a_server_without_our_tables_is_refused_with_a_hint_to_migrate() {
    let place = postgres().await;
    for args in [&["enqueue", "a", "1"][..], &["stats"]] {
        place.run(args).failed(2, "", "tenure migrate");
    }
    place.run(&["migrate"]).succeeded();
    place.run(&["enqueue", "a", "1"]).succeeded();
}

#[tokio::test]
async fn a_read_only_server_is_reported_and_nothing_is_lost() {
    let [_, place] = everywhere().await;
    place.enqueue("a");
    let sign = if place.url.contains('?') { '&' } else { '?' };
    let url = format!(
        "{}{sign}options[default_transaction_read_only]=on",
        place.url
    );
    let output = place.run(&["enqueue", "a", "1", "--database", &url]);
    output.failed(1, "read-only", "");
    let output = place
        .run(&["stats", "--json", "--database", &url])
        .succeeded();
    assert_eq!(output.field("pending"), "1");
}

#[test]
fn a_read_only_file_is_reported_and_nothing_is_lost() {
    let place = sqlite();
    place.enqueue("a");
    let output = place.run_unwritable(&["enqueue", "a", "1"]);
    output.failed(1, "", "");
    let output = place.run(&["stats", "--json"]).succeeded();
    assert_eq!(output.field("pending"), "1");
}

#[test]
fn a_file_that_is_not_a_database_is_not_changed() {
    let place = sqlite();
    let text = "these are not the tables you are looking for\n".repeat(100);
    fs::write(place.file(), &text).unwrap();
    for args in [&["enqueue", "a", "1"][..], &["stats"], &["migrate"]] {
        let output = place.run(args);
        assert!(matches!(output.code, Some(1 | 2)), "{output:?}");
        assert!(output.err.starts_with("error: "), "{output:?}");
    }
    assert_eq!(fs::read_to_string(place.file()).unwrap(), text);
}

#[test]
fn a_folder_in_place_of_a_file_is_reported() {
    let place = sqlite();
    fs::create_dir(place.file()).unwrap();
    let output = place.run(&["enqueue", "a", "1"]);
    assert!(matches!(output.code, Some(1 | 2)), "{output:?}");
    assert!(output.err.starts_with("error: "), "{output:?}");
}

#[test]
fn an_address_without_a_file_is_a_usage_error() {
    let mut place = sqlite();
    place.url = "sqlite://".to_owned();
    place
        .run(&["stats"])
        .failed(2, "expected sqlite://FILE", "");
}

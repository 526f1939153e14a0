//! The configuration: its file, variables and flags, its error messages, and the page that
//! describes it.

use std::fs;
use std::path::Path;

use sqlx::{Connection as _, PgConnection};

use crate::program::{Finished, Place, finish, postgres, sqlite};

const PAGE: &str = "docs/CONFIG.md";
const DEFAULTS: &str = include_str!("../../tenure.default.toml");

/// Runs the program in this place with additional variables.
fn run_with(place: &Place, variables: &[(&str, &str)], args: &[&str]) -> Finished {
    let mut command = place.command(Path::new(env!("CARGO_BIN_EXE_tenure")));
    command
        .env_remove("TENURE_DATABASE")
        .envs(variables.iter().copied())
        .args(args);
    finish(command, b"")
}

/// Writes a file next to the database.
fn write(place: &Place, name: &str, text: &str) {
    fs::write(place.file().with_file_name(name), text).expect("the folder can be written");
}

#[test]
fn every_command_reads_the_file_then_the_environment_then_flags() {
    let place = sqlite();
    write(&place, "tenure.toml", "database = 'sqlite://file.db'\n");
    write(&place, "other.toml", "database = 'sqlite://other.db'\n");
    let made = |name: &str| place.file().with_file_name(name).exists();
    let variable = ("TENURE_DATABASE", "sqlite://variable.db");
    let other = ("TENURE_CONFIG", "other.toml");
    for (variables, args, file) in [
        (&[][..], &["migrate"][..], "file.db"),
        (&[other], &["migrate"], "other.db"),
        (&[variable, other], &["migrate"], "variable.db"),
        (
            &[variable],
            &["migrate", "--database", "sqlite://flag.db"],
            "flag.db",
        ),
    ] {
        assert!(!made(file));
        run_with(&place, variables, args).succeeded();
        assert!(made(file), "{args:?}");
    }
    write(&place, "third.toml", "database = 'sqlite://third.db'\n");
    run_with(&place, &[other], &["migrate", "--config", "third.toml"]).succeeded();
    assert!(made("third.db"));
}

#[test]
fn all_faults_are_reported_before_anything_is_done() {
    let place = sqlite();
    let text = "\
database = \"sqlite://file.db\"
[lease]
heartbeat = \"10s\"
trem = \"60s\"
";
    write(&place, "tenure.toml", text);
    let variables = [("TENURE_LEASE_TREM", "60s"), ("TENURE_WORKER_BATCH", "x")];
    for args in [&["enqueue", "a", "1"][..], &["stats"], &["migrate"]] {
        let output = run_with(&place, &variables, args).ended(2);
        assert_eq!(output.out, "");
        insta::assert_snapshot!("all_that_is_wrong", output.err);
    }
    assert!(!place.file().with_file_name("file.db").exists());
}

#[tokio::test]
async fn the_store_is_opened_as_it_is_configured() {
    let place = postgres().await;
    let schema = [
        ("TENURE_DATABASE", place.url.as_str()),
        ("TENURE_STORE_SCHEMA", "shop"),
    ];
    let mut conn = PgConnection::connect(&place.url).await.unwrap();
    let made = "create schema shop";
    sqlx::raw_sql(made).execute(&mut conn).await.unwrap();
    run_with(&place, &schema, &["migrate"]).succeeded();
    run_with(&place, &schema, &["enqueue", "a", "1"]).succeeded();
    let output = run_with(&place, &schema, &["stats", "--json"]).succeeded();
    assert_eq!(output.field("pending"), "1");
    place.run(&["stats"]).failed(2, "", "tenure migrate");
}

#[test]
fn a_named_file_must_exist() {
    let place = sqlite();
    for (variables, args, by) in [
        (&[][..], &["stats", "--config", "gone.toml"][..], "--config"),
        (
            &[("TENURE_CONFIG", "gone.toml")],
            &["stats"],
            "TENURE_CONFIG",
        ),
    ] {
        let output = run_with(&place, variables, args).ended(2);
        let message = format!("error: {by}: cannot read \"gone.toml\"");
        assert!(output.err.starts_with(&message), "{output:?}");
    }
    fs::create_dir(place.file().with_file_name("tenure.toml")).unwrap();
    let output = run_with(&place, &[], &["stats"]).ended(2);
    assert!(
        output.err.contains("cannot read \"tenure.toml\""),
        "{output:?}"
    );
}

#[test]
fn faults_of_a_configuration_are_reported_without_passwords() {
    let place = sqlite();
    let secret = "postgres://u:canary@127.0.0.1:1/db";
    for text in [
        format!("databse = \"{secret}\"\n"),
        format!("database = [\"{secret}\"]\n"),
        format!("database = \"{secret}\nx = 1\n"),
        format!("[server]\nlisten = \"{secret}\"\n"),
        format!("[publishers.x]\nkind = \"{secret}\"\n"),
        format!("[publishers.x]\nkind = \"exec\"\ncommand = [\"{secret}\"]\n"),
    ] {
        write(&place, "tenure.toml", &text);
        let output = run_with(&place, &[], &["stats"]).ended(2);
        assert!(!output.err.contains("canary"), "{output:?}");
    }
    write(&place, "tenure.toml", "");
    for name in [
        "TENURE_DATABSE",
        "TENURE_SERVER_LISTEN",
        "TENURE_LEASE_TERM",
    ] {
        let output = run_with(&place, &[(name, secret)], &["stats"]).ended(2);
        assert!(!output.err.contains("canary"), "{output:?}");
    }
}

#[test]
fn variables_of_tests_and_of_commands_are_not_mistaken_for_settings() {
    let place = sqlite();
    for name in [
        "TENURE_TEST_POSTGRES",
        "TENURE_UPDATE_DOCS",
        "TENURE_EVENT_ID",
        "TENURE_TOPIC",
        "TENURE_HEADER_TRACE",
    ] {
        run_with(&place, &[(name, "x")], &["migrate"]).succeeded();
    }
}

/// A setting of `tenure.default.toml`; the value is `None` if the line is commented out.
struct Described<'a> {
    name: String,
    value: Option<&'a str>,
    text: String,
}

/// The described settings of `tenure.default.toml`, without those of queues, publishers and routes.
fn described() -> Vec<Described<'static>> {
    let mut section = "";
    let mut text: Vec<&str> = Vec::new();
    let mut settings = Vec::new();
    for line in DEFAULTS.lines() {
        let is_set = !line.starts_with('#');
        if let Some(prose) = line.strip_prefix("# ") {
            text.push(prose);
        } else if let Some(name) = line.strip_prefix('[') {
            section = name.trim_end_matches(']');
            text.clear();
        } else if let Some((name, value)) = line.trim_start_matches('#').split_once(" = ") {
            let prefix = if section.is_empty() { "" } else { "." };
            settings.push(Described {
                name: format!("{section}{prefix}{name}"),
                value: is_set.then_some(value),
                text: text.join(" "),
            });
            text.clear();
        } else {
            text.clear();
        }
    }
    let is_single = |one: &Described<'_>| one.name.split('.').count() <= 2 && !one.text.is_empty();
    settings.into_iter().filter(is_single).collect()
}

fn page() -> String {
    let mut page = "\
# Configuration

<!-- Printed from crates/tenure-cli/tenure.default.toml by a test; \
TENURE_UPDATE_DOCS=1 cargo test -p tenure-cli --test it config -->

Each layer overrides the one before it: the defaults, the file, the environment, flags.
The file is `tenure.toml` in the working directory, or the one that `--config` or `TENURE_CONFIG` \
names.
Settings made for all workers with `tenure settings set` override the configuration of each.
A command reports all errors at once, with their lines, before it does anything, and exits with 2.
A duration is text with units: `30s`, `5m`, `1h 30m`, `7d`.
`tenure settings` shows the settings in force and their sources.
`tenure config check` checks the file, routes and commands without a database.
The variables of OpenTelemetry configure the export of spans: [Tracing](OPERATIONS.md#tracing).

## Settings

| setting | default | variable | |
|---|---|---|---|
"
    .to_owned();
    let rows = described().into_iter().map(|one| {
        let value = one
            .value
            .map_or_else(String::new, |value| format!("`{value}`"));
        let variable = one.name.replace('.', "_").to_uppercase();
        let text = one.text.replace('|', "\\|");
        format!(
            "| `{}` | {value} | `TENURE_{variable}` | {text} |\n",
            one.name
        )
    });
    page.extend(rows);
    page + &format!(
        "
In a variable, commas separate several names, networks or ports.
`TENURE_WEBHOOK_KEY` holds the contents of `webhook.key_file` and overrides it; no file may set \
it.
`TENURE_CONFIG` names the file.
Any other variable that begins with `TENURE_` is an error, except those of the tests and those \
that Tenure sets for a command that it runs, which may run `tenure` itself.

## The defaults, as a file

```toml
{}
```
",
        DEFAULTS.trim_end()
    )
}

#[test]
fn the_page_of_the_configuration_is_up_to_date() {
    assert_eq!(
        described().len(),
        37,
        "the number of settings in tenure.default.toml has changed"
    );
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(PAGE);
    #[expect(clippy::disallowed_methods, reason = "a switch of this test")]
    if std::env::var_os("TENURE_UPDATE_DOCS").is_some() {
        fs::write(&path, page()).unwrap();
    }
    assert!(
        fs::read_to_string(&path).is_ok_and(|text| text == page()),
        "{PAGE} is stale; TENURE_UPDATE_DOCS=1 cargo test -p tenure-cli --test it config"
    );
}

#[test]
fn a_check_resolves_routes_and_reports_all_faults_without_a_database() {
    let place = sqlite();
    let bin = place.path("bin");
    fs::create_dir(&bin).expect("a folder");
    std::os::unix::fs::symlink("/bin/true", bin.join("send-mail")).expect("a link");
    let path = bin.display().to_string();
    let good = "\
database = 'postgres://app:canary@db/shop'
[publishers.mailer]
kind = 'exec'
command = 'LANG=C send-mail --stdin'
[[routes]]
topics = ['mail.*', 'order.late']
publisher = 'mailer'
[[routes]]
topics = ['*']
publisher = 'output'
";
    write(&place, "tenure.toml", good);
    let check = |variables: &[(&str, &str)], args: &[&str]| {
        let variables = [&[("PATH", path.as_str())], variables].concat();
        run_with(&place, &variables, &[&["config", "check"], args].concat())
    };
    let output = check(&[], &["--json"]).succeeded();
    let view = &output.objects()[0];
    assert_eq!(view["file"], "tenure.toml");
    assert_eq!(view["database"], "postgres://app:…@db/shop");
    let route = &view["routes"][0];
    assert_eq!(route["topics"], serde_json::json!(["mail.*", "order.late"]));
    assert_eq!(route["target"], bin.join("send-mail").display().to_string());
    let output = check(&[], &[]).succeeded();
    assert!(
        output.err.contains("the configuration is valid"),
        "{output:?}"
    );
    assert!(!output.out.contains("canary"), "{output:?}");

    let bad = good.replace("send-mail", "sendmial");
    let bad =
        format!("{bad}[lease]\ntrem = '30s'\n[publishers.file]\nkind = 'lines'\npath = 'no/x'\n");
    write(&place, "tenure.toml", &bad);
    let output = check(&[("TENURE_STORE_CONNECTIONS", "2")], &[]).ended(2);
    for said in [
        "did you mean lease.term?",
        "begins with \"sendmial\", which is in no folder of PATH",
        "publishers.file.path is no/x, which is in a folder that does not exist",
        "TENURE_STORE_CONNECTIONS: store.connections is 2; expected 3 or more for a worker",
    ] {
        assert!(output.err.contains(said), "no {said:?} in {output:?}");
    }
    assert!(!place.file().exists());
}

#[test]
fn settings_without_a_database_are_those_of_the_configuration() {
    let place = sqlite();
    write(&place, "tenure.toml", "[lease]\nterm = '40s'\n");
    let output = place.run(&["settings", "get", "lease.term"]).succeeded();
    assert!(output.out.contains("40s"), "{output:?}");
    assert!(
        output
            .err
            .contains("the configuration of this process alone"),
        "{output:?}"
    );
    assert!(!place.file().exists());
}

#[tokio::test]
async fn too_few_connections_for_a_worker_are_refused_before_the_database_is_opened() {
    let down = ("TENURE_DATABASE", "postgres://u@127.0.0.1:1/db");
    let two = ("TENURE_STORE_CONNECTIONS", "2");
    let place = sqlite();
    let output = run_with(&place, &[down, two], &["work", "--exec", "true"]);
    output.failed(2, "expected 3 or more for a worker", "only renew leases");
}

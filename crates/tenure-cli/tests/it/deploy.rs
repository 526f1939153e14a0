//! The files in `deploy/` fit the program: metrics, settings, commands and times of a shutdown.
//! `scripts/check-deploy` runs the tools that read these files.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tenure::Settings;

use crate::help::COMMANDS;
use crate::program::{everywhere, sqlite};
use crate::receiver::{Receiver, allowing};

const DASHBOARD: &str = "deploy/grafana/tenure.json";
const RULES: &str = "deploy/prometheus/alerts.yml";
const RULES_TEST: &str = "deploy/prometheus/alerts.test.yml";
const UNIT: &str = "deploy/systemd/tenure.service";
const EXEC_UNIT: &str = "deploy/systemd/tenure-exec.service";
const OPERATIONS: &str = "docs/OPERATIONS.md";

/// Time of the final settles, after the shutdown timeout.
const FINAL_SETTLES: Duration = Duration::from_secs(15);

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(name)
}

fn read(name: &str) -> String {
    std::fs::read_to_string(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The files of a folder and its folders.
fn files_in(folder: &str) -> Vec<String> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(path(folder)).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{folder}/{}", entry.file_name().to_string_lossy());
        if entry.path().is_dir() {
            files.extend(files_in(&name));
        } else {
            files.push(name);
        }
    }
    files.sort();
    files
}

/// The words of a text: runs of letters, digits and `_`.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

fn is_metric(word: &str) -> bool {
    word.starts_with("tenure_") || word.starts_with("reaper_")
}

/// The metrics of the page for operators, each with its labels.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = read(OPERATIONS);
    let (_, section) = page.split_once("\n### Metrics\n").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let (_, of_process) = section.split_once("Metrics of a process").unwrap();
    let mut metrics = BTreeMap::new();
    for row in section.lines().filter(|line| line.starts_with("| `")) {
        let names = row.split('|').nth(1).unwrap();
        let own: &[&str] = if of_process.contains(row) {
            &["worker", "instance"]
        } else {
            &[]
        };
        for name in names.split('`').filter(|name| is_metric(name)) {
            let (name, labels) = name.split_once('{').unwrap_or((name, ""));
            let labels = words(labels).filter(|label| !label.is_empty());
            let labels = labels.chain(own.iter().copied()).map(str::to_owned);
            metrics.insert(name.to_owned(), labels.collect());
        }
    }
    metrics
}

/// The metrics that the program exports, by its sources.
fn exported() -> BTreeSet<String> {
    let sources = [
        "crates/tenure-engine/src/metrics.rs",
        "crates/tenure-server/src/metrics.rs",
    ];
    let mut names = BTreeSet::new();
    for source in sources.map(read) {
        let shipped = source.split("#[cfg(test)]").next().unwrap_or_default();
        let literals = shipped.split('"').skip(1).step_by(2);
        let of_metrics = literals.filter(|text| is_metric(text) && words(text).count() == 1);
        names.extend(of_metrics.map(str::to_owned));
    }
    names
}

/// The name of a metric without the suffix of a series of a histogram.
fn base(word: &str) -> &str {
    let ends = ["_bucket", "_sum", "_count"];
    let stripped = ends.iter().find_map(|end| word.strip_suffix(end));
    stripped
        .filter(|name| name.ends_with("_seconds"))
        .unwrap_or(word)
}

/// Finds metrics that do not exist, and labels that a metric does not have.
fn unknown(text: &str, known: &BTreeMap<String, BTreeSet<String>>) -> Vec<String> {
    let mut violations = Vec::new();
    for name in words(text).filter(|word| is_metric(word)) {
        if !known.contains_key(base(name)) {
            violations.push(format!("there is no metric {name}"));
        }
    }
    for (position, _) in text.match_indices('{') {
        let (before, after) = text.split_at(position);
        let name = words(before).last().unwrap_or_default();
        let Some(labels) = known.get(base(name)) else {
            continue;
        };
        let matchers = after.trim_start_matches('{').split('}').next();
        for matcher in matchers.unwrap_or_default().split(',') {
            let label = words(matcher).next().unwrap_or_default();
            if label != "job" && !labels.contains(label) {
                violations.push(format!("{name} has no label {label}"));
            }
        }
    }
    let grouped = text
        .split("by (")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    for label in grouped.flat_map(|labels| labels.split(", ")) {
        let is_known = known.values().any(|labels| labels.contains(label));
        if !is_known && !["job", "le", "alertname"].contains(&label) {
            violations.push(format!("no metric has the label {label}"));
        }
    }
    violations
}

#[test]
fn the_page_lists_every_metric() {
    let documented: BTreeSet<String> = documented().into_keys().collect();
    assert!(documented.len() > 30, "{documented:?}");
    assert_eq!(documented, exported());
}

#[test]
fn the_dashboard_and_the_alerts_name_only_metrics_and_labels_that_exist() {
    let known = documented();
    for file in [DASHBOARD, RULES, RULES_TEST] {
        let violations = unknown(&read(file), &known);
        assert!(violations.is_empty(), "{file}: {violations:#?}");
    }
    let planted = "sum by (job, color) (tenure_items{state=\"dead\"}) / tenure_nothing \
                   + rate(tenure_pickup_seconds_bucket{queue=\"a\",topic=\"b\"}[5m])";
    assert_eq!(
        unknown(planted, &known).len(),
        3,
        "{:?}",
        unknown(planted, &known)
    );
}

#[test]
fn the_dashboard_shows_every_metric() {
    let board: serde_json::Value = serde_json::from_str(&read(DASHBOARD)).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let ids: BTreeSet<u64> = panels.iter().map(|it| it["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "two panels have the same id");
    for panel in panels {
        let place = &panel["gridPos"];
        let right = place["x"].as_u64().unwrap() + place["w"].as_u64().unwrap();
        assert!(right <= 24, "{panel}");
    }
    let text = read(DASHBOARD);
    let shown: BTreeSet<&str> = words(&text).map(base).collect();
    let hidden = exported().into_iter().filter(|name| {
        // The names of the specification repeat other metrics.
        name.starts_with("tenure_") && !shown.contains(name.as_str())
    });
    assert_eq!(hidden.collect::<Vec<_>>(), Vec::<String>::new());
}

/// The name of a heading in a link, as the usual renderers make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|c| c.is_alphanumeric() || " -_".contains(*c));
    kept.collect::<String>().replace(' ', "-")
}

#[test]
fn every_alert_is_explained_tested_and_leads_to_a_section() {
    let rules = read(RULES);
    let after = |mark: &'static str| {
        let lines = rules.lines().filter_map(move |line| line.split_once(mark));
        lines.map(|(_, rest)| rest.trim().to_owned())
    };
    let alerts: BTreeSet<String> = after("- alert: ").collect();
    let page = read(OPERATIONS);
    let rows = page
        .lines()
        .filter_map(|line| line.strip_prefix("| `Tenure"));
    let names = rows.filter_map(|row| row.split('`').next());
    let explained: BTreeSet<String> = names.map(|name| format!("Tenure{name}")).collect();
    assert_eq!(alerts, explained);
    let tests = read(RULES_TEST);
    for alert in &alerts {
        assert!(tests.contains(alert.as_str()), "no test fires {alert}");
    }
    let runbooks: Vec<String> = after("runbook: ").collect();
    assert_eq!(runbooks.len(), alerts.len());
    for runbook in runbooks {
        let (page, section) = runbook.split_once('#').unwrap();
        let text = read(page);
        let mut headings = text.lines().filter(|line| line.starts_with('#'));
        assert!(headings.any(|line| anchor(line) == section), "{runbook}");
    }
}

/// The lines of a unit that are not comments.
fn directives(unit: &str) -> Vec<String> {
    let text = read(unit);
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.map(str::to_owned).collect()
}

#[test]
fn the_units_keep_the_promises_of_the_page() {
    let both = [
        "Restart=always",
        "RestartPreventExitStatus=2",
        "CapabilityBoundingSet=",
        "NoNewPrivileges=yes",
        "ProtectSystem=strict",
        "PrivateTmp=yes",
        "PrivateDevices=yes",
        "SystemCallFilter=@system-service",
    ];
    let tight = [
        "User=tenure",
        "EnvironmentFile=/etc/tenure/environment",
        "ExecStart=/usr/bin/tenure serve --config /etc/tenure/tenure.toml",
        "StateDirectory=tenure",
        "MemoryDenyWriteExecute=yes",
        "ProtectHome=yes",
    ];
    let loose = [
        "User=tenure-exec",
        "EnvironmentFile=/etc/tenure/exec.environment",
        "ExecStart=/usr/bin/tenure serve --config /etc/tenure/exec.toml",
        "StateDirectory=tenure-exec",
        "KillMode=mixed",
    ];
    for (unit, own) in [(UNIT, &tight[..]), (EXEC_UNIT, &loose[..])] {
        let directives = directives(unit);
        for line in both.iter().chain(own) {
            assert!(directives.iter().any(|own| own == line), "{unit}: {line}");
        }
        // The program does not report to a watchdog.
        assert!(
            !directives
                .iter()
                .any(|line| line.starts_with("WatchdogSec"))
        );
    }
    let executes = |line: &String| line.starts_with("MemoryDenyWriteExecute");
    assert!(
        !directives(EXEC_UNIT).iter().any(executes),
        "interpreters compile"
    );
    let users = read("deploy/systemd/tenure.sysusers");
    assert!(users.contains("\nu tenure ") && users.contains("\nu tenure-exec "));
}

#[test]
fn every_supervisor_waits_for_a_shutdown() {
    let needed = Settings::default().shutdown_timeout() + FINAL_SETTLES;
    for (file, key) in [
        (UNIT, "TimeoutStopSec="),
        (EXEC_UNIT, "TimeoutStopSec="),
        ("deploy/compose.yaml", "stop_grace_period: "),
        (
            "deploy/kubernetes/deployment.yaml",
            "terminationGracePeriodSeconds: ",
        ),
    ] {
        let text = read(file);
        let times: Vec<u64> = text
            .lines()
            .filter_map(|line| line.trim().strip_prefix(key))
            .map(|time| time.trim_end_matches('s').parse().unwrap())
            .collect();
        assert!(!times.is_empty(), "{file}: no {key}");
        for time in times {
            assert!(Duration::from_secs(time) >= needed, "{file}: {key}{time}");
        }
    }
}

/// The configuration in the manifest of Kubernetes.
fn of_configmap() -> String {
    let text = read("deploy/kubernetes/configmap.yaml");
    let (_, toml) = text.split_once("tenure.toml: |\n").unwrap();
    let lines = toml
        .lines()
        .map(|line| line.strip_prefix("    ").unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_configuration_is_valid() {
    let place = sqlite();
    for text in [
        read("deploy/tenure.toml"),
        read("deploy/exec.toml"),
        of_configmap(),
    ] {
        place.write("given.toml", &text);
        let args = ["migrate", "--print", "--config", "given.toml"];
        place.run(&args).succeeded();
    }
    // With the marks of the example deleted.
    let text = read("deploy/tenure.toml").replace("routes = []\n", "");
    let text = text.lines().map(|line| match line.strip_prefix('#') {
        Some(line) if !line.starts_with(' ') => line,
        _ => line,
    });
    let text: Vec<&str> = text.collect();
    assert!(text.contains(&"[[routes]]"), "{text:?}");
    place.write("given.toml", &text.join("\n"));
    place
        .run(&["migrate", "--print", "--config", "given.toml"])
        .succeeded();
}

#[test]
fn every_variable_is_one_of_the_program() {
    let page = read("docs/CONFIG.md");
    let known: BTreeSet<&str> = words(&page).collect();
    // A variable of the compose file, and the one that the manifest warns of.
    let others = ["TENURE_PASSWORD", "TENURE_PORT"];
    for file in files_in("deploy") {
        let text = read(&file);
        for word in words(&text).filter(|word| word.starts_with("TENURE_")) {
            assert!(
                known.contains(word) || others.contains(&word),
                "{file}: {word}"
            );
        }
    }
}

/// The commands that images and manifests run.
#[test]
fn every_command_of_the_containers_exists() {
    let probes = "exec: { command: [/usr/bin/tenure, ";
    for (file, start, number) in [
        ("deploy/Containerfile", "CMD [\"/usr/bin/tenure\", \"", 2),
        ("deploy/Containerfile", "\nCMD [\"", 2),
        (
            "deploy/compose.yaml",
            "[\"CMD\", \"/usr/bin/tenure\", \"",
            1,
        ),
        ("deploy/compose.yaml", "    command: [", 2),
        ("deploy/kubernetes/deployment.yaml", "args: [", 1),
        ("deploy/kubernetes/deployment.yaml", probes, 3),
        ("deploy/kubernetes/migrate.yaml", "args: [", 1),
    ] {
        let text = read(file);
        let commands = text
            .split(start)
            .skip(1)
            .filter_map(|rest| words(rest).next());
        let commands = commands.filter(|command| !command.is_empty());
        let commands: Vec<&str> = commands.collect();
        assert_eq!(commands.len(), number, "{file}: {commands:?}");
        for command in commands {
            assert!(COMMANDS.contains(&&[command][..]), "{file}: {command}");
        }
    }
    let image = read("deploy/Containerfile");
    assert_eq!(
        image.matches("\nUSER 65532:65532\n").count(),
        2,
        "no image has root"
    );
}

#[test]
fn the_page_names_every_file_and_the_package_contains_existing_ones() {
    let page = read("docs/DEPLOY.md");
    for file in files_in("deploy") {
        assert!(page.contains(&file), "docs/DEPLOY.md does not name {file}");
    }
    let manifest: toml::Table = read("crates/tenure-cli/Cargo.toml").parse().unwrap();
    let assets = &manifest["package"]["metadata"]["deb"]["assets"];
    for asset in assets.as_array().unwrap() {
        let source = asset[0].as_str().unwrap();
        let source = source.trim_end_matches("*.md");
        let is_built = source.contains("target/");
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        assert!(is_built || file.exists(), "there is no {source}");
    }
}

/// Goal: a process with the shipped configuration consumes nothing by mistake. Method: it settles
/// an event that an endpoint is subscribed to, and leaves the one before it pending.
#[test]
fn the_shipped_configuration_leaves_events_without_an_endpoint_pending() {
    let place = sqlite();
    let receiver = Receiver::start(&[]);
    let url = receiver.url();
    let port = url
        .rsplit(':')
        .next()
        .and_then(|rest| rest.split('/').next());
    let port = port.unwrap().parse().unwrap();
    let text = format!("{}\n{}", read("deploy/tenure.toml"), allowing(port));
    place.write("tenure.toml", &text);
    let add = ["endpoints", "add", &url, "--topics", "order.*"];
    place.run(&add).succeeded();
    let other = place.enqueue("other.topic");
    place.enqueue("order.paid");
    let running = place.start(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(receiver.next().header("webhook-topic"), Some("order.paid"));
    running.terminate();
    let output = running.wait().succeeded();
    assert_eq!(output.out, "", "no event is printed");
    let pending = place.run(&["events", "--state", "pending", "--json"]);
    assert_eq!(pending.succeeded().column("id"), [other]);
}

/// The SQL of the page on backups that raises the counters after a restore.
fn raising(database: &str) -> String {
    let page = read("docs/BACKUP.md");
    let (_, text) = page
        .split_once(&format!("\n{database}:\n\n```sql\n"))
        .unwrap();
    text.split("```").next().unwrap().to_owned()
}

/// Goal: after a restore, no fence and no id is issued a second time. Method: the statements of the
/// page run on both databases, and the counts stay right.
#[tokio::test]
async fn fences_and_ids_go_on_above_those_that_were_issued() {
    for place in everywhere().await {
        let before = place.enqueue("a");
        let (_, held) = place.held().await;
        if place.url.starts_with("sqlite:") {
            let conn = rusqlite::Connection::open(place.file()).unwrap();
            conn.execute_batch(&raising("SQLite")).unwrap();
        } else {
            let mut conn = PgConnection::connect(&place.url).await.unwrap();
            let sql = AssertSqlSafe(raising("PostgreSQL"));
            sqlx::raw_sql(sql).execute(&mut conn).await.unwrap();
        }
        let after = place.enqueue("a");
        let number = |id: &str| id.trim_matches('"').parse::<u64>().unwrap();
        assert!(number(&after) > number(&before) + 999_999_999, "{after}");
        let (_, later) = place.held().await;
        let rise = later.lease.fence.number() - held.lease.fence.number();
        assert!(rise > 999_999_999, "{rise}");
        let stats = place.run(&["stats", "--json"]).succeeded();
        assert_eq!(
            (stats.field("claimed"), stats.field("done")),
            ("2".into(), "0".into())
        );
    }
}

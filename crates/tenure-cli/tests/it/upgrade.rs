//! Rehearsals of an upgrade: the program on the schema of a newer one, under load, up and back.
//!
//! A migration of the tests makes the newer schema. `TENURE_TEST_FORMER` names an older program
//! that works beside this one; without it, this program plays both parts.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tenure::{NewEvent, Tenure};
use tenure_nemesis::until;
use tenure_store::testing::migrate_further;

use crate::help::COMMANDS;
use crate::program::{Finished, Place, Running, everywhere, finish, postgres, sqlite};

const CONFIG: &str = r#"
[worker]
concurrency = 4
batch = 20
[publishers.file]
kind = "lines"
path = "events.jsonl"
[[routes]]
topics = ["*"]
publisher = "file"
"#;

/// Tables that get a column: those that producers, workers and operators write.
const WIDENED: [&str; 16] = [
    "backlog",
    "checkpoints",
    "dead",
    "delivery_attempts",
    "endpoints",
    "events",
    "jobs",
    "keys",
    "leases",
    "queues",
    "ready",
    "replays",
    "setbacks",
    "settings",
    "settled",
    "workers",
];

/// Events of each line producer per process.
const BATCH: u64 = 20;

/// A migration that only adds: a column to many tables, and a table.
fn adding() -> String {
    let columns = WIDENED.map(|table| {
        format!("alter table tenure_{table} add column later int not null default 7;\n")
    });
    let table = "create table tenure_later (id int primary key);";
    format!("{}{table}", columns.concat())
}

fn this_program() -> PathBuf {
    env!("CARGO_BIN_EXE_tenure").into()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the other program of a rehearsal is not a setting"
)]
fn former_program() -> PathBuf {
    std::env::var_os("TENURE_TEST_FORMER").map_or_else(this_program, PathBuf::from)
}

fn command(place: &Place, program: &Path, args: &[&str]) -> Command {
    let mut command = place.command(program);
    command.args(args);
    command
}

fn worker(place: &Place, program: &Path, name: &str) -> Running {
    Place::start_command(command(place, program, &["work", "--name", name]))
}

/// The ids of the published events, one per line.
fn published(place: &Place) -> Vec<u64> {
    let text = fs::read_to_string(place.path("events.jsonl")).unwrap_or_default();
    let lines = text
        .split_inclusive('\n')
        .filter(|line| line.ends_with('\n'));
    let ids = lines.map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).unwrap();
        event["id"].as_u64().unwrap()
    });
    ids.collect()
}

/// Waits until workers have published another hundred events.
async fn goes_on(place: &Place, stage: &str) {
    let goal = published(place).len() + 100;
    until(stage, async || published(place).len() >= goal).await;
}

async fn is_working(tenure: &Tenure, name: &str) {
    let prefix = format!("{name}-");
    until("the worker reports", async || {
        let (_, workers) = tenure.workers(100).await.unwrap();
        let mut workers = workers.iter();
        workers.any(|record| record.report.worker.as_str().starts_with(&prefix))
    })
    .await;
}

/// Producers of both kinds; each enqueues until told to stop, and returns its number of events.
struct Load {
    stop: Arc<AtomicBool>,
    /// Starts one process after another.
    processes: JoinHandle<u64>,
}

impl Load {
    fn start(place: &Place, program: &Path) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let line = |n| {
            format!(
                r#"{{"topic":"order.paid","payload":{n},"key":"{}"}}"#,
                n % 4
            )
        };
        let lines: Vec<_> = (0..BATCH).map(line).collect();
        let lines = lines.join("\n");
        let args = ["enqueue", "--lines", "--json"];
        let make = {
            let (url, folder, program) = (place.url.clone(), place.path(""), program.to_owned());
            move || {
                let mut command = Command::new(&program);
                command.env_clear().env("TENURE_DATABASE", &url);
                command.current_dir(&folder).args(args);
                command
            }
        };
        let told = Arc::clone(&stop);
        let processes = thread::spawn(move || {
            let mut enqueued = 0_u64;
            while !told.load(Ordering::Relaxed) {
                finish(make(), lines.as_bytes()).succeeded();
                enqueued += BATCH;
            }
            enqueued
        });
        Self { stop, processes }
    }

    /// Enqueues through a handle that stays open; returns the number of events.
    fn keep_open(&self, tenure: Tenure) -> tokio::task::JoinHandle<u64> {
        let told = Arc::clone(&self.stop);
        tokio::spawn(async move {
            let mut pace = tokio::time::interval(Duration::from_millis(10));
            let mut enqueued = 0_u64;
            while !told.load(Ordering::Relaxed) {
                pace.tick().await;
                let event = NewEvent::new("order.sent", &enqueued);
                let event = event.key(&(enqueued % 3).to_string()).build().unwrap();
                tenure.enqueue_now(event).await.unwrap();
                enqueued += 1;
            }
            enqueued
        })
    }
}

/// Goal: an older program works on the schema of a newer one, beside it and after a rollback, and
/// no event is lost. Method: producers enqueue all the time, while the schema changes under running
/// workers and the workers are replaced, first by the newer program and then by the older one.
async fn rehearsed(place: &Place) {
    let (former, newer) = (former_program(), this_program());
    place.write("tenure.toml", CONFIG);
    let migrate = || finish(command(place, &former, &["migrate"]), b"").succeeded();
    migrate();
    let load = Load::start(place, &former);
    let one = worker(place, &former, "one");
    goes_on(place, "the former program, on its own schema").await;

    place.run(&["migrate"]).succeeded();
    let tenure = place.tenure().await;
    let kept = load.keep_open(tenure.clone());
    let migrated = migrate_further(&place.url, 1, adding()).await;
    migrated.unwrap();
    goes_on(place, "the former program, which ran before the migration").await;

    let two = worker(place, &newer, "two");
    is_working(&tenure, "two").await;
    goes_on(place, "both programs").await;
    stop(one);
    goes_on(place, "the newer program").await;

    let three = worker(place, &former, "three");
    is_working(&tenure, "three").await;
    stop(two);
    goes_on(place, "the former program, after the rollback").await;
    let nothing = migrate();
    assert!(nothing.out.contains("which can use it"), "{nothing:?}");

    load.stop.store(true, Ordering::Relaxed);
    let mut enqueued = kept.await.unwrap();
    enqueued += load.processes.join().unwrap();
    until("everything is done", async || {
        tenure.count().await.unwrap().done == enqueued
    })
    .await;
    stop(three);
    let counts = tenure.count().await.unwrap();
    assert_eq!((counts.claimed, counts.dead), (0, 0));
    let ids: BTreeSet<_> = published(place).into_iter().collect();
    assert_eq!(u64::try_from(ids.len()).unwrap(), enqueued);
    let (database, _) = place.url.split_once(':').unwrap();
    tenure_nemesis::say(&format!("{enqueued} events, none lost, on {database}"));
}

fn stop(worker: Running) {
    worker.terminate();
    worker.wait().succeeded();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_program_works_on_a_newer_schema_in_a_file() {
    rehearsed(&sqlite()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_program_works_on_a_newer_schema_on_postgres() {
    rehearsed(&postgres().await).await;
}

#[tokio::test]
async fn a_newer_schema_is_named_by_doctor_and_status() {
    for place in everywhere().await {
        migrate_further(&place.url, 1, String::new()).await.unwrap();
        let status = place.run(&["migrate", "--status", "--json"]).succeeded();
        let fields = ["schema", "readable_from", "program", "usable"];
        let fields = fields.map(|name| status.field(name));
        assert_eq!(fields, ["2", "1", "1", "true"]);
        let text = "version 2, newer than version 1 of this program, which can use it";
        let status = place.run(&["migrate", "--status"]).succeeded();
        assert_eq!(status.out, format!("the schema is at {text}\n"));
        let doctor = place.run(&["doctor", "--json"]);
        let mut findings = doctor.objects().into_iter();
        let schema = findings.find(|finding| finding["subject"] == "schema");
        let schema = schema.unwrap();
        assert_eq!(schema["verdict"], "warning", "{schema}");
        assert_eq!(schema["finding"], text);
    }
}

/// Each command that opens the database, with arguments.
const OPENING: [&[&str]; 25] = [
    &["serve", "--listen", "127.0.0.1:0", "--wait", "1m"],
    &["serve", "--listen", "127.0.0.1:0", "--migrate"],
    &["work", "--wait", "1m"],
    &["migrate"],
    &["enqueue", "a", "1"],
    &["events"],
    &["show", "1"],
    &["why", "1"],
    &["stats"],
    &["replay", "1"],
    &["retry", "1"],
    &["bury", "1", "--reason", "test"],
    &["reap"],
    &["prune", "--yes"],
    &["queues", "list"],
    &["keys", "list"],
    &["jobs", "list"],
    &["jobs", "enqueue", "t", "1"],
    &["endpoints", "list"],
    &["deliveries", "list"],
    &["adopt", "list"],
    &["adopt", "outbox", "--preset", "outbox", "--print"],
    &["settings"],
    &["settings", "set", "lease.term=40s"],
    &["workers"],
];

/// Commands that need no database, or that report the state of any.
const OTHERS: [&str; 9] = [
    "config",
    "doctor",
    "health",
    "demo",
    "completions",
    "man",
    "listen",
    "verify",
    "help",
];

#[tokio::test]
async fn a_schema_that_is_too_new_is_refused_by_every_command() {
    for [name, ..] in COMMANDS.iter().filter_map(|words| words.first_chunk::<1>()) {
        let is_tried = OPENING.iter().any(|args| args[0] == *name);
        assert!(is_tried || OTHERS.contains(name), "{name} is not tried");
    }
    for place in everywhere().await {
        place.enqueue("a");
        migrate_further(&place.url, 2, String::new()).await.unwrap();
        for args in OPENING {
            refused(place.run(args));
        }
        let doctor = place.run(&["doctor"]).ended(1);
        assert!(
            doctor.out.contains("it needs version 2 or later"),
            "{doctor:?}"
        );
        let status = place.run(&["migrate", "--status", "--json"]).ended(1);
        assert_eq!(status.field("usable"), "false");
        place.run(&["migrate", "--print"]).succeeded();
    }
}

#[track_caller]
fn refused(output: Finished) {
    let versions = "version 2, newer than version 1 of this program; it needs version 2 or later";
    output.failed(2, versions, "use a newer `tenure`");
}

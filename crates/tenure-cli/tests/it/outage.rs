//! Outages of the database: no crash is counted for items that no handler had begun, nothing is
//! lost or settled twice, and the log tells of each outage once.

#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use sqlx::postgres::PgConnection;
use sqlx::{Connection as _, Row as _};
use tenure::{Event, Tenure};
use tenure_store::testing::Server;

use crate::program::{self, Place, soon};

/// More outages than the crashes that an event survives.
const OUTAGES: u64 = 4;
const WORKERS: u64 = 2;
/// Handlers of a worker.
const CONCURRENCY: u64 = 4;
/// Longer than the term.
const OUTAGE: Duration = Duration::from_millis(2600);
/// Events per outage; more than are done before it begins.
const EVENTS: u64 = 800;
const CONFIG: &str = r#"
[lease]
term = "2s"

[retry]
max_crashes = 3

[worker]
concurrency = 4

[log]
format = "json"

[publishers.command]
kind = "exec"
command = "true"

[[routes]]
topics = ["quick"]
publisher = "command"
"#;

/// A running worker; its log is a file.
struct Worker {
    child: Child,
    log: String,
}

impl Worker {
    fn start(place: &Place, nth: u64) -> Self {
        let log = format!("worker-{nth}.log");
        let mut command = place.command(env!("CARGO_BIN_EXE_tenure").as_ref());
        command
            .args(["work", "--name", &format!("w{nth}")])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(File::create(place.path(&log)).unwrap());
        Self {
            child: command.spawn().unwrap(),
            log,
        }
    }

    /// Stops the worker in an orderly way; returns the lines of its log.
    fn stop(mut self, place: &Place) -> Vec<Value> {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        let text = fs::read_to_string(place.path(&self.log)).unwrap();
        let lines = text.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}")))
            .collect()
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Runs workers under load while `outage` makes the database unavailable again and again; returns
/// the lines of their logs.
async fn survived(place: &Place, outage: impl AsyncFn(u64)) -> Vec<Vec<Value>> {
    place.run(&["migrate"]).succeeded();
    place.write("tenure.toml", CONFIG);
    let tenure = place.tenure().await;
    let workers: Vec<Worker> = (0..WORKERS).map(|nth| Worker::start(place, nth)).collect();
    let events = vec![Event::new("quick", &1).unwrap(); usize::try_from(EVENTS).unwrap()];
    for nth in 0..OUTAGES {
        tenure.enqueue_now(&events).await.unwrap();
        let some = nth * EVENTS + 200;
        soon(async || (done(&tenure).await >= some).then_some(())).await;
        outage(nth).await;
        let all = (nth + 1) * EVENTS;
        soon(async || (done(&tenure).await == all).then_some(())).await;
    }
    workers
        .into_iter()
        .map(|worker| worker.stop(place))
        .collect()
}

/// Number of done events; 0 while the database is away.
async fn done(tenure: &Tenure) -> u64 {
    tenure.count().await.map_or(0, |counts| counts.done)
}

fn message(line: &Value) -> &str {
    line["fields"]["message"].as_str().unwrap_or_default()
}

/// Sum of a field over the lines with this message.
fn sum(logs: &[Vec<Value>], text: &str, field: &str) -> u64 {
    let lines = logs.iter().flatten();
    let of_message = lines.filter(|line| message(line).starts_with(text));
    of_message
        .map(|line| line["fields"][field].as_u64().unwrap())
        .sum()
}

/// Asserts that the workers lost leases, and released the items that no handler worked on.
fn assert_released(logs: &[Vec<Value>], lapses: &[i64]) {
    let lost = sum(logs, "lost a lease", "items");
    let released = sum(logs, "released items of lost leases", "items");
    // Only a handler that runs at the start of an outage may have crashed.
    let running = OUTAGES * WORKERS * CONCURRENCY;
    assert!(lost > 2 * running, "{lost} items lost");
    assert!(released > 0, "none of {lost} items was released");
    // On a busy machine, a release may take longer than reapers wait.
    let lapsed = u64::try_from(lapses.len()).unwrap();
    assert!(
        lapsed <= running + lost / 4,
        "{lapsed} of {lost} items lapsed"
    );
}

/// Asserts that each outage and its end are logged once per worker, and that no line comes from the
/// driver. After a kill, a process of the server may still answer for a moment.
fn assert_told_once(logs: &[Vec<Value>]) {
    for log in logs {
        for line in log {
            let target = line["target"].as_str().unwrap();
            assert!(target.starts_with("tenure"), "{line}");
        }
        let mut away = BTreeMap::new();
        let mut ends = BTreeMap::new();
        for line in log {
            let is_away = match message(line) {
                "the store failed" => true,
                "the store answered again" => false,
                _ => continue,
            };
            let worker = line["worker"].as_str().unwrap();
            let before = away.insert(worker, is_away);
            assert_ne!(before.unwrap_or(false), is_away, "{line}");
            *ends.entry(worker).or_insert(0) += u64::from(!is_away);
        }
        let is_right = |ends: &u64| (1..=2 * OUTAGES).contains(ends);
        assert!(ends.values().all(is_right), "{ends:?}");
        assert!(ends.values().sum::<u64>() >= OUTAGES, "{ends:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_postgres_is_not_counted_as_a_crash() {
    let server = Server::start().await;
    let place = program::on(server.database().await);
    let logs = survived(&place, async |nth| {
        if nth % 2 == 0 {
            server.kill().await;
        } else {
            server.stop().await;
        }
        tokio::time::sleep(OUTAGE).await;
        server.restart().await;
    })
    .await;
    let mut conn = PgConnection::connect(&place.url).await.unwrap();
    let mut ids = async |outcome: &str| -> Vec<i64> {
        let query = sqlx::query("select unnest(ids) from tenure_settled where outcome = $1");
        let rows = query.bind(outcome).fetch_all(&mut conn).await.unwrap();
        rows.iter().map(|row| row.get(0)).collect()
    };
    let mut done = ids("done").await;
    let settled = done.len();
    done.sort_unstable();
    done.dedup();
    assert_eq!(done.len(), settled, "an event was settled twice");
    assert_released(&logs, &ids("lapsed").await);
    assert_told_once(&logs);
}

/// A locked database is an outage as well: SQLite has one writer.
#[tokio::test(flavor = "multi_thread")]
async fn a_locked_sqlite_file_is_not_counted_as_a_crash() {
    let place = program::sqlite();
    let logs = survived(&place, async |_| {
        let conn = rusqlite::Connection::open(place.file()).unwrap();
        conn.busy_timeout(Duration::from_secs(5)).unwrap();
        conn.execute_batch("begin immediate").unwrap();
        tokio::time::sleep(OUTAGE).await;
        conn.execute_batch("rollback").unwrap();
    })
    .await;
    let conn = rusqlite::Connection::open(place.file()).unwrap();
    let ids = |outcome: &str| -> Vec<i64> {
        let text = "select value from tenure_settled, json_each(ids) where outcome = ?1";
        let mut query = conn.prepare(text).unwrap();
        let rows = query.query_map([outcome], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    let mut done = ids("done");
    let settled = done.len();
    done.sort_unstable();
    done.dedup();
    assert_eq!(done.len(), settled, "an event was settled twice");
    assert_released(&logs, &ids("lapsed"));
}

//! `tenure workers`: lists the workers of the cluster.

use std::time::Duration;

use clap::Args;
use comfy_table::{Attribute, Cell, Color};
use serde::Serialize;
use tenure::operate::{Presence, WorkerRecord};
use tenure::publish::TopicSet;
use tenure::store::Timestamp;

use super::Context;
use crate::database::IfMissing;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;
use crate::time::relative;

/// Maximum number of workers listed: those that reported most recently.
const WORKERS_MAX: u32 = 1_000;

/// A stopped worker is listed for this long without `--all`.
const STOPPED_MAX: Duration = Duration::from_hours(1);

#[derive(Debug, Args)]
pub(crate) struct Workers {
    /// Include those that stopped more than an hour ago
    #[arg(long)]
    all: bool,
}

/// Maximum number of topics listed per worker; JSON has all.
const TOPICS_MAX: usize = 3;

/// A worker in JSON.
#[derive(Serialize)]
struct WorkerView<'a> {
    worker: &'a str,
    presence: &'static str,
    host: &'a str,
    pid: u32,
    version: &'a str,
    /// Comma-separated; empty means all.
    queues: &'a str,
    topics: String,
    /// Null if the worker is not active: its last report is out of date.
    running: Option<u32>,
    concurrency: u32,
    held: Option<u32>,
    settings_version: u64,
    started_at: String,
    reported_at: String,
    left_at: Option<String>,
}

pub(super) async fn run(cx: &Context, args: &Workers) -> Result<Exit, Stop> {
    let tenure = cx.database.open(IfMissing::Report).await?;
    let (now, workers) = tenure.workers(WORKERS_MAX).await?;
    let workers: Vec<_> = workers
        .iter()
        .filter(|worker| args.all || is_recent(worker, now))
        .collect();
    if workers.is_empty() {
        cx.output
            .note("no workers: `tenure serve` or `tenure work` starts one");
        return Ok(Exit::Nothing);
    }
    if cx.output.is_json() {
        for worker in workers {
            cx.output.json(&view(worker, now))?;
        }
        return Ok(Exit::Done);
    }
    let heading = [
        "WORKER", "HOST", " PID", "VERSION", "QUEUES", "TOPICS", " RUNNING", " HELD", "REPORTED",
        "",
    ];
    let rows = workers.iter().map(|worker| row(worker, now)).collect();
    cx.output.table(&heading, rows)?;
    Ok(Exit::Done)
}

/// Returns true if it is listed without `--all`.
fn is_recent(worker: &WorkerRecord, now: Timestamp) -> bool {
    worker
        .left_at
        .is_none_or(|moment| now.since(moment) <= STOPPED_MAX)
}

/// Returns true if its last report is up to date. A stopped worker has released everything, and the
/// leases of a missing one lapse.
fn is_active(worker: &WorkerRecord, now: Timestamp) -> bool {
    worker.presence(now) == Presence::Active
}

fn view(worker: &WorkerRecord, now: Timestamp) -> WorkerView<'_> {
    let report = &worker.report;
    WorkerView {
        worker: report.worker.as_str(),
        presence: worker.presence(now).as_str(),
        host: &report.host,
        pid: report.pid,
        version: &report.version,
        queues: &report.queues,
        topics: report.topics.to_string(),
        running: is_active(worker, now).then_some(report.running),
        concurrency: report.concurrency,
        held: is_active(worker, now).then_some(report.held),
        settings_version: report.settings_version,
        started_at: worker.started_at.to_string(),
        reported_at: worker.reported_at.to_string(),
        left_at: worker.left_at.map(|moment| moment.to_string()),
    }
}

fn row(worker: &WorkerRecord, now: Timestamp) -> Vec<Cell> {
    let report = &worker.report;
    let queues = if report.queues.is_empty() {
        "all".to_owned()
    } else {
        plain(&report.queues)
    };
    let (running, held) = if is_active(worker, now) {
        let running = format!("{}/{}", report.running, report.concurrency);
        (running, report.held.to_string())
    } else {
        ("-".to_owned(), "-".to_owned())
    };
    vec![
        Cell::new(report.worker.as_str()),
        Cell::new(plain(&report.host)),
        Cell::new(report.pid),
        Cell::new(plain(&report.version)),
        Cell::new(queues),
        Cell::new(plain(&topics(&report.topics))),
        Cell::new(running),
        Cell::new(held),
        Cell::new(relative(worker.reported_at, now)),
        presence(worker.presence(now)),
    ]
}

/// The first topics that a worker takes, and the number of the others; a sender takes none.
fn topics(set: &TopicSet) -> String {
    if set.is_any() {
        return "all".to_owned();
    }
    if set.is_empty() {
        return "-".to_owned();
    }
    let all = set.to_string();
    let mut rest = all.split(", ");
    let named: Vec<&str> = rest.by_ref().take(TOPICS_MAX).collect();
    match rest.count() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

fn presence(presence: Presence) -> Cell {
    let cell = Cell::new(presence.as_str());
    match presence {
        Presence::Active => cell.fg(Color::Green),
        Presence::Silent => cell.fg(Color::Red),
        Presence::Left => cell.add_attribute(Attribute::Dim),
    }
}

#[cfg(test)]
mod tests {
    use tenure::lease::WorkerId;
    use tenure::operate::WorkerReport;

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    fn record(name: &str, ago: u64, left: Option<u64>) -> WorkerRecord {
        WorkerRecord {
            report: WorkerReport {
                worker: WorkerId::new(name, 7).unwrap(),
                host: "db-1".to_owned(),
                pid: 4_242,
                version: "0.1.0".to_owned(),
                queues: String::new(),
                topics: TopicSet::any(),
                concurrency: 10,
                running: 3,
                held: 12,
                settings_version: 2,
                next_within: Duration::from_secs(5),
            },
            started_at: now().before(Duration::from_hours(2)),
            reported_at: now().before(Duration::from_secs(ago)),
            left_at: left.map(|ago| now().before(Duration::from_secs(ago))),
        }
    }

    #[test]
    fn a_stopped_worker_is_listed_for_an_hour() {
        for (worker, is_listed) in [
            (record("a", 1, None), true),
            (record("a", 86_400, None), true),
            (record("a", 60, Some(60)), true),
            (record("a", 3_601, Some(3_601)), false),
        ] {
            assert_eq!(is_recent(&worker, now()), is_listed, "{worker:?}");
        }
    }

    #[test]
    fn a_row_has_name_host_load_and_presence() {
        for (worker, expected) in [
            (
                record("a", 2, None),
                "db-1 4242 0.1.0 all all 3/10 12 2s ago active",
            ),
            (
                record("a", 90, None),
                "db-1 4242 0.1.0 all all - - 1m 30s ago missing",
            ),
            (
                record("a", 90, Some(80)),
                "db-1 4242 0.1.0 all all - - 1m 30s ago stopped",
            ),
        ] {
            let cells = row(&worker, now());
            let text: Vec<String> = cells.iter().skip(1).map(Cell::content).collect();
            assert_eq!(text.join(" "), expected);
        }
    }

    #[test]
    fn the_first_topics_are_named() {
        for (text, expected) in [
            ("*", "all"),
            ("", "-"),
            ("a, b, c", "a, b, c"),
            ("a, b, c, d, e", "a, b, c and 2 more"),
        ] {
            assert_eq!(topics(&TopicSet::parse(text)), expected);
        }
    }

    #[test]
    fn the_field_names_are_stable() {
        let worker = record("a", 2, None);
        let line = serde_json::to_string(&view(&worker, now())).unwrap();
        let line = line.replace(worker.report.worker.as_str(), "WORKER");
        assert_eq!(
            line,
            r#"{"worker":"WORKER","presence":"active","host":"db-1","pid":4242,"version":"0.1.0","#
                .to_owned()
                + r#""queues":"","topics":"*","running":3,"concurrency":10,"held":12,"#
                + r#""settings_version":2,"#
                + r#""started_at":"2027-01-15T06:00:00Z","reported_at":"2027-01-15T07:59:58Z","#
                + r#""left_at":null}"#
        );
        for (ago, left) in [(90, None), (2, Some(1))] {
            let worker = record("a", ago, left);
            let line = serde_json::to_string(&view(&worker, now())).unwrap();
            let gone = r#""running":null,"concurrency":10,"held":null,"#;
            assert!(line.contains(gone), "{line}");
        }
    }
}

//! `tenure workers`: who works here, and who no longer says so.

use std::time::Duration;

use clap::Args;
use comfy_table::{Attribute, Cell, Color};
use serde::Serialize;
use tenure::{Presence, Timestamp, WorkerRecord};

use super::Context;
use crate::database::Absent;
use crate::exit::Exit;
use crate::output::plain;
use crate::problem::Stop;
use crate::time::relative;

/// Workers per call, those seen last first.
const MOST: u32 = 1_000;

/// One that left is shown this long without being asked for.
const LEFT_SHOWN: Duration = Duration::from_hours(1);

#[derive(Debug, Args)]
pub(crate) struct Workers {
    /// Also those that left more than an hour ago
    #[arg(long)]
    all: bool,
}

/// A worker, in JSON.
#[derive(Serialize)]
struct Shown<'a> {
    worker: &'a str,
    presence: &'static str,
    host: &'a str,
    pid: u32,
    version: &'a str,
    /// With commas between them; empty: all.
    queues: &'a str,
    /// Null unless it is here: what it said last is no longer so.
    running: Option<u32>,
    concurrency: u32,
    held: Option<u32>,
    settings_version: u64,
    started_at: String,
    seen_at: String,
    left_at: Option<String>,
}

pub(super) async fn run(cx: &Context, args: &Workers) -> Result<Exit, Stop> {
    let tenure = cx.database.open(Absent::Report).await?;
    let (now, workers) = tenure.workers(MOST).await?;
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
            cx.output.json(&shown(worker, now))?;
        }
        return Ok(Exit::Done);
    }
    let heading = [
        "WORKER", "HOST", " PID", "VERSION", "QUEUES", " RUNNING", " HELD", "SEEN", "",
    ];
    let rows = workers.iter().map(|worker| row(worker, now)).collect();
    cx.output.table(&heading, rows)?;
    Ok(Exit::Done)
}

/// Whether it is worth showing to someone who looks at what is.
fn is_recent(worker: &WorkerRecord, now: Timestamp) -> bool {
    worker
        .left_at
        .is_none_or(|moment| now.since(moment) <= LEFT_SHOWN)
}

/// Whether what it said last is still so. One that left has given back what it held, and the leases
/// of one that is silent lapse.
fn is_here(worker: &WorkerRecord, now: Timestamp) -> bool {
    worker.presence(now) == Presence::Here
}

fn shown(worker: &WorkerRecord, now: Timestamp) -> Shown<'_> {
    let report = &worker.report;
    Shown {
        worker: report.worker.as_str(),
        presence: worker.presence(now).as_str(),
        host: &report.host,
        pid: report.pid,
        version: &report.version,
        queues: &report.queues,
        running: is_here(worker, now).then_some(report.running),
        concurrency: report.concurrency,
        held: is_here(worker, now).then_some(report.held),
        settings_version: report.settings_version,
        started_at: worker.started_at.to_string(),
        seen_at: worker.seen_at.to_string(),
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
    let (running, held) = if is_here(worker, now) {
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
        Cell::new(running),
        Cell::new(held),
        Cell::new(relative(worker.seen_at, now)),
        presence(worker.presence(now)),
    ]
}

/// Where a worker stands, in its colour.
fn presence(presence: Presence) -> Cell {
    let cell = Cell::new(presence.as_str());
    match presence {
        Presence::Here => cell.fg(Color::Green),
        Presence::Silent => cell.fg(Color::Red),
        Presence::Left => cell.add_attribute(Attribute::Dim),
    }
}

#[cfg(test)]
mod tests {
    use tenure::{WorkerId, WorkerReport};

    use super::*;

    fn now() -> Timestamp {
        Timestamp::from_micros(1_800_000_000_000_000)
    }

    fn seen(name: &str, ago: u64, left: Option<u64>) -> WorkerRecord {
        WorkerRecord {
            report: WorkerReport {
                worker: WorkerId::new(name, 7).unwrap(),
                host: "db-1".to_owned(),
                pid: 4_242,
                version: "0.1.0".to_owned(),
                queues: String::new(),
                concurrency: 10,
                running: 3,
                held: 12,
                settings_version: 2,
                next_within: Duration::from_secs(5),
            },
            started_at: now().before(Duration::from_hours(2)),
            seen_at: now().before(Duration::from_secs(ago)),
            left_at: left.map(|ago| now().before(Duration::from_secs(ago))),
        }
    }

    #[test]
    fn one_that_left_is_shown_for_an_hour() {
        for (worker, is_shown) in [
            (seen("a", 1, None), true),
            (seen("a", 86_400, None), true),
            (seen("a", 60, Some(60)), true),
            (seen("a", 3_601, Some(3_601)), false),
        ] {
            assert_eq!(is_recent(&worker, now()), is_shown, "{worker:?}");
        }
    }

    #[test]
    fn a_row_says_who_where_how_busy_and_whether_it_is_here() {
        for (worker, expected) in [
            (
                seen("a", 2, None),
                "db-1 4242 0.1.0 all 3/10 12 2s ago here",
            ),
            (
                seen("a", 90, None),
                "db-1 4242 0.1.0 all - - 1m 30s ago silent",
            ),
            (
                seen("a", 90, Some(80)),
                "db-1 4242 0.1.0 all - - 1m 30s ago left",
            ),
        ] {
            let cells = row(&worker, now());
            let text: Vec<String> = cells.iter().skip(1).map(Cell::content).collect();
            assert_eq!(text.join(" "), expected);
        }
    }

    #[test]
    fn the_field_names_are_stable() {
        let worker = seen("a", 2, None);
        let line = serde_json::to_string(&shown(&worker, now())).unwrap();
        let line = line.replace(worker.report.worker.as_str(), "WORKER");
        assert_eq!(
            line,
            r#"{"worker":"WORKER","presence":"here","host":"db-1","pid":4242,"version":"0.1.0","#
                .to_owned()
                + r#""queues":"","running":3,"concurrency":10,"held":12,"settings_version":2,"#
                + r#""started_at":"2027-01-15T06:00:00Z","seen_at":"2027-01-15T07:59:58Z","#
                + r#""left_at":null}"#
        );
        for (ago, left) in [(90, None), (2, Some(1))] {
            let worker = seen("a", ago, left);
            let line = serde_json::to_string(&shown(&worker, now())).unwrap();
            let gone = r#""running":null,"concurrency":10,"held":null,"#;
            assert!(line.contains(gone), "{line}");
        }
    }
}

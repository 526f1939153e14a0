//! The figures of a run: one JSON object, or a table with the targets.

use std::borrow::Cow;

use comfy_table::{Cell, Color};
use serde::Serialize;

use super::Bench;
use super::sides::Compared;
use crate::host::Host;
use crate::stop::Stop;

pub(super) type Ratio = f64;

/// The median of the pushed values.
#[derive(Clone, Debug, Default)]
pub(super) struct Median(Vec<f64>);

impl Median {
    pub(super) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    pub(super) fn median(&self) -> f64 {
        percentile(&self.0, 50)
    }

    /// The median of the ratios to another series, round by round.
    pub(super) fn vs(&self, other: &Self) -> Ratio {
        let ratios = self
            .0
            .iter()
            .zip(&other.0)
            .map(|(ours, theirs)| ours / theirs);
        Self(ratios.collect()).median()
    }
}

pub(super) fn percentile(values: &[f64], percent: usize) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    sorted.get(last * percent / 100).copied().unwrap_or(0.0)
}

/// The measurements, round by round, per second.
#[derive(Debug, Default)]
pub(super) struct Rounds {
    pub(super) row: Median,
    pub(super) bare: Median,
    pub(super) drain: Median,
    pub(super) drain_100: Median,
    pub(super) enqueue: Median,
    pub(super) bare_enqueue: Median,
    pub(super) row_enqueue: Median,
    pub(super) enqueue_one: Median,
    pub(super) row_insert: Median,
}

/// Milliseconds from enqueue to the start of the handler.
#[derive(Debug)]
pub(super) struct Pickup {
    pub(super) in_process: Vec<f64>,
    pub(super) across: Vec<f64>,
}

/// A drain while many items are held.
#[derive(Debug, Serialize)]
pub(super) struct HeldItems {
    pub(super) items: u32,
    pub(super) vs_none: Ratio,
    pub(super) statements_per_tick: f64,
}

/// A drain beside the events of a topic that no worker takes.
#[derive(Debug, Serialize)]
pub(super) struct UntakenTopic {
    pub(super) events: u32,
    /// Seconds until a worker of another topic has set them aside.
    pub(super) set_aside_s: f64,
    pub(super) vs_none: Ratio,
}

/// The pickup across processes of two workers that take different topics of one queue.
#[derive(Debug, Serialize)]
pub(super) struct SharedQueue {
    pickup_p50_ms: f64,
    pickup_p99_ms: f64,
    pickup_alone_p50_ms: f64,
    pickup_alone_p99_ms: f64,
    p50_vs_alone: Ratio,
    p99_vs_alone: Ratio,
}

impl SharedQueue {
    /// From the waits, in milliseconds, of two workers and of one.
    pub(super) fn of(both: &[f64], alone: &[f64]) -> Self {
        let [pickup_p50_ms, pickup_alone_p50_ms] = [both, alone].map(|of| percentile(of, 50));
        let [pickup_p99_ms, pickup_alone_p99_ms] = [both, alone].map(|of| percentile(of, 99));
        Self {
            pickup_p50_ms,
            pickup_p99_ms,
            pickup_alone_p50_ms,
            pickup_alone_p99_ms,
            // As for the other ratios, less than 1 is worse.
            p50_vs_alone: pickup_alone_p50_ms / pickup_p50_ms,
            p99_vs_alone: pickup_alone_p99_ms / pickup_p99_ms,
        }
    }
}

/// All measurements; the median of the rounds.
#[derive(Debug, Default, Serialize)]
pub(super) struct Figures {
    database: &'static str,
    events: u32,
    rounds: u32,
    batch: u32,
    cores: usize,
    enqueue_per_s: f64,
    drain_per_s: f64,
    drain_batch_100_per_s: f64,
    row_per_s: f64,
    bare_per_s: f64,
    drain_vs_row: Ratio,
    drain_vs_bare: Ratio,
    drain_batch_100_vs_row: Ratio,
    enqueue_vs_bare: Ratio,
    enqueue_vs_row: Ratio,
    enqueue_one_by_one_per_s: f64,
    enqueue_one_by_one_vs_row: Ratio,
    pickup_p50_ms: f64,
    pickup_p99_ms: f64,
    pickup_in_process_p50_ms: f64,
    pickup_in_process_p99_ms: f64,
    pub(super) idle_statements_per_s: f64,
    pub(super) backlog_vs_empty: Option<Ratio>,
    pub(super) published_vs_empty: Option<Ratio>,
    pub(super) old_snapshot_vs_empty: Option<Ratio>,
    pub(super) held: Option<HeldItems>,
    pub(super) work_lease_pairs_per_s: f64,
    keys: Option<u32>,
    keyed_per_s: Option<f64>,
    keyed_vs_unkeyed: Option<Ratio>,
    keyed_enqueue_vs_unkeyed: Option<Ratio>,
    pub(super) blocked_vs_none: Option<Ratio>,
    pub(super) blocked_keyed_vs_none: Option<Ratio>,
    pub(super) hot_key_vs_none: Option<Ratio>,
    pub(super) untaken: Option<UntakenTopic>,
    pub(super) shared_queue: Option<SharedQueue>,
}

impl Figures {
    pub(super) fn new(args: &Bench, url: &str) -> Self {
        Self {
            database: database(url),
            events: args.events,
            rounds: args.rounds,
            batch: args.batch,
            cores: cores(),
            ..Self::default()
        }
    }

    pub(super) fn rounds(&mut self, rounds: &Rounds) {
        self.enqueue_per_s = rounds.enqueue.median();
        self.drain_per_s = rounds.drain.median();
        self.drain_batch_100_per_s = rounds.drain_100.median();
        self.row_per_s = rounds.row.median();
        self.bare_per_s = rounds.bare.median();
        self.drain_vs_row = rounds.drain.vs(&rounds.row);
        self.drain_vs_bare = rounds.drain.vs(&rounds.bare);
        self.drain_batch_100_vs_row = rounds.drain_100.vs(&rounds.row);
        self.enqueue_vs_bare = rounds.enqueue.vs(&rounds.bare_enqueue);
        self.enqueue_vs_row = rounds.enqueue.vs(&rounds.row_enqueue);
        self.enqueue_one_by_one_per_s = rounds.enqueue_one.median();
        self.enqueue_one_by_one_vs_row = rounds.enqueue_one.vs(&rounds.row_insert);
    }

    pub(super) fn keyed(&mut self, keys: u32, compared: &Compared) {
        self.keys = Some(keys);
        self.keyed_per_s = Some(compared.with_per_s);
        self.keyed_vs_unkeyed = Some(compared.drain);
        self.keyed_enqueue_vs_unkeyed = Some(compared.enqueue);
    }

    pub(super) fn pickup(&mut self, pickup: &Pickup) {
        self.pickup_p50_ms = percentile(&pickup.across, 50);
        self.pickup_p99_ms = percentile(&pickup.across, 99);
        self.pickup_in_process_p50_ms = percentile(&pickup.in_process, 50);
        self.pickup_in_process_p99_ms = percentile(&pickup.in_process, 99);
    }
}

/// The kind of database in an address.
pub(super) fn database(url: &str) -> &'static str {
    if url.starts_with("sqlite") {
        "sqlite"
    } else {
        "postgres"
    }
}

pub(super) fn cores() -> usize {
    std::thread::available_parallelism().map_or(0, std::num::NonZero::get)
}

pub(super) struct Row {
    name: Cow<'static, str>,
    value: String,
    /// The target as text; true if the figure meets it.
    promise: Option<(String, bool)>,
}

pub(super) fn at_least(name: &'static str, ratio: Ratio, promise: Ratio) -> Row {
    let is_kept = ratio >= promise;
    let promise = format!("≥ {:.0} %", promise * 100.0);
    Row {
        name: name.into(),
        value: format!("{:.0} %", ratio * 100.0),
        promise: Some((promise, is_kept)),
    }
}

pub(super) fn without_promise(name: impl Into<Cow<'static, str>>, ratio: Ratio) -> Row {
    Row {
        name: name.into(),
        value: format!("{:.0} %", ratio * 100.0),
        promise: None,
    }
}

pub(super) fn at_most(name: &'static str, value: f64, promise: f64, unit: &str) -> Row {
    Row {
        name: name.into(),
        value: format!("{value:.1}{unit}"),
        promise: Some((format!("≤ {promise}{unit}"), value <= promise)),
    }
}

pub(super) fn rate(name: &'static str, per_s: f64) -> Row {
    Row {
        name: name.into(),
        value: format!("{per_s:.0} /s"),
        promise: None,
    }
}

/// A number of statements without a target.
pub(super) fn per_tick(name: &'static str, statements: f64) -> Row {
    Row {
        name: name.into(),
        value: format!("{statements:.1}"),
        promise: None,
    }
}

fn lines(figures: &Figures) -> Vec<Row> {
    let mut lines = vec![
        rate("row loop", figures.row_per_s),
        rate("bare loop", figures.bare_per_s),
        rate("drain", figures.drain_per_s),
        rate("drain, batch 100", figures.drain_batch_100_per_s),
        rate("enqueue in bulk", figures.enqueue_per_s),
        rate("enqueue one by one", figures.enqueue_one_by_one_per_s),
    ];
    lines.extend(promised(figures));
    lines.extend(promised_on_full(figures));
    lines.extend(promised_of_keys(figures));
    lines.extend(promised_of_topics(figures));
    lines
}

fn promised_of_topics(figures: &Figures) -> Vec<Row> {
    let mut lines = Vec::new();
    if let Some(untaken) = &figures.untaken {
        lines.push(Row {
            name: "setting aside the events of an untaken topic, once".into(),
            value: format!("{:.1} s", untaken.set_aside_s),
            promise: None,
        });
        lines.push(at_least(
            "drain beside an untaken topic, vs. none",
            untaken.vs_none,
            0.8,
        ));
    }
    if let Some(shared) = &figures.shared_queue {
        for (name, ratio) in [
            (
                "pickup p50 on a shared queue, vs. alone",
                shared.p50_vs_alone,
            ),
            (
                "pickup p99 on a shared queue, vs. alone",
                shared.p99_vs_alone,
            ),
        ] {
            lines.push(at_least(name, ratio, 0.5));
        }
    }
    lines
}

fn promised_of_keys(figures: &Figures) -> Vec<Row> {
    let pairs = figures.work_lease_pairs_per_s;
    let mut lines = vec![Row {
        name: "work lease in process, pairs".into(),
        value: format!("{pairs:.0} /s"),
        promise: Some(("≥ 1000000 /s".to_owned(), pairs >= 1e6)),
    }];
    lines.extend(
        figures
            .keyed_per_s
            .map(|per_s| rate("drain with keys", per_s)),
    );
    for (what, ratio, promise) in [
        (
            "drain with keys, vs. without",
            figures.keyed_vs_unkeyed,
            Some(0.3),
        ),
        (
            "enqueue with keys, vs. without",
            figures.keyed_enqueue_vs_unkeyed,
            None,
        ),
        (
            "drain with stuck keys waiting, vs. none",
            figures.blocked_vs_none,
            Some(0.8),
        ),
        (
            "drain with keys and stuck keys waiting, vs. none",
            figures.blocked_keyed_vs_none,
            Some(0.8),
        ),
        (
            "drain with keys and a hot key waiting, vs. none",
            figures.hot_key_vs_none,
            Some(0.95),
        ),
    ] {
        lines.extend(ratio.map(|ratio| match promise {
            Some(promise) => at_least(what, ratio, promise),
            None => without_promise(what, ratio),
        }));
    }
    lines
}

fn promised(figures: &Figures) -> Vec<Row> {
    let row_promise = match figures.database {
        "sqlite" => 1.0,
        _ => 1.5,
    };
    vec![
        at_least("drain, vs. the row loop", figures.drain_vs_row, row_promise),
        at_least("drain, vs. the bare loop", figures.drain_vs_bare, 0.6),
        without_promise(
            format!(
                "drain with batch 100, vs. the row loop with batch {}",
                figures.batch
            ),
            figures.drain_batch_100_vs_row,
        ),
        at_least("enqueue, vs. the bare insert", figures.enqueue_vs_bare, 0.8),
        at_least(
            "enqueue, vs. an insert into one table",
            figures.enqueue_vs_row,
            0.6,
        ),
        at_least(
            "enqueue one by one, vs. a single insert",
            figures.enqueue_one_by_one_vs_row,
            0.8,
        ),
        at_most(
            "pickup in process, p50",
            figures.pickup_in_process_p50_ms,
            5.0,
            " ms",
        ),
        at_most(
            "pickup across processes, p50",
            figures.pickup_p50_ms,
            30.0,
            " ms",
        ),
        at_most(
            "statements of an idle worker",
            figures.idle_statements_per_s,
            5.0,
            " /s",
        ),
    ]
}

fn promised_on_full(figures: &Figures) -> Vec<Row> {
    let mut lines = Vec::new();
    for (what, ratio, promise) in [
        (
            "drain with a backlog, vs. empty tables",
            figures.backlog_vs_empty,
            0.9,
        ),
        (
            "drain with many events done, vs. empty tables",
            figures.published_vs_empty,
            0.9,
        ),
        (
            "drain with an old snapshot, vs. empty tables",
            figures.old_snapshot_vs_empty,
            0.8,
        ),
    ] {
        lines.extend(ratio.map(|ratio| at_least(what, ratio, promise)));
    }
    if let Some(held) = &figures.held {
        lines.push(at_least(
            "drain with items held, vs. none",
            held.vs_none,
            0.97,
        ));
        let statements = held.statements_per_tick;
        lines.push(at_most(
            "statements per heartbeat tick",
            statements,
            2.0,
            "",
        ));
    }
    lines
}

pub(super) fn print(host: &Host<'_>, figures: &Figures) -> Result<(), Stop> {
    if host.console.is_json() {
        return host.json(figures);
    }
    table(host, lines(figures))?;
    host.console.note(&format_args!(
        "median of {} rounds of {} events of 500 bytes on {} with {} cores",
        figures.rounds, figures.events, figures.database, figures.cores
    ));
    Ok(())
}

pub(super) fn table(host: &Host<'_>, lines: Vec<Row>) -> Result<(), Stop> {
    let rows = lines.into_iter().map(|line| {
        let (promise, verdict) = match line.promise {
            None => (String::new(), Cell::new("")),
            Some((text, true)) => (text, Cell::new("kept").fg(Color::Green)),
            Some((text, false)) => (text, Cell::new("missed").fg(Color::Red)),
        };
        vec![
            Cell::new(line.name),
            Cell::new(line.value),
            Cell::new(promise),
            verdict,
        ]
    });
    let rows = rows.collect();
    host.console
        .table(&["WHAT", "FOUND", "PROMISED", ""], rows)?;
    Ok(())
}

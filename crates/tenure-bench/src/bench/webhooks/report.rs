//! The figures of webhooks: one JSON object, or a table with the targets.

use serde::Serialize;

use super::{CONCURRENCY, RECEIVERS, Webhooks};
use crate::bench::report::{
    Median, Ratio, Row, at_least, at_most, cores, database, percentile, rate, table,
    without_promise,
};
use crate::host::Host;
use crate::stop::Stop;

/// The measurements, round by round, per second.
#[derive(Debug, Default)]
pub(super) struct WebhookRounds {
    pub(super) http: Median,
    pub(super) recorded: Median,
    pub(super) webhooks: Median,
    pub(super) fan_out: Median,
}

/// Milliseconds from commit to receipt.
#[derive(Debug)]
pub(super) struct Receipts {
    pub(super) in_process: Vec<f64>,
    pub(super) across: Vec<f64>,
}

/// Calls held open at once.
#[derive(Debug, Serialize)]
pub(super) struct HeldCalls {
    pub(super) calls: u32,
    pub(super) seconds: f64,
    /// Calls that were made twice.
    pub(super) repeated: u32,
    pub(super) connections: Option<u32>,
    pub(super) rss_before_mb: Option<f64>,
    pub(super) rss_open_mb: Option<f64>,
    pub(super) rss_end_mb: Option<f64>,
}

/// All measurements; the median of the rounds.
#[derive(Debug, Serialize)]
pub(super) struct WebhookFigures {
    database: &'static str,
    calls: u32,
    rounds: u32,
    concurrency: u32,
    endpoints: u32,
    cores: usize,
    http_per_s: f64,
    recorded_per_s: f64,
    webhooks_per_s: f64,
    webhooks_vs_http: Ratio,
    webhooks_vs_recorded: Ratio,
    fan_out_per_s: f64,
    receipt_p50_ms: f64,
    receipt_p95_ms: f64,
    receipt_in_process_p50_ms: f64,
    receipt_in_process_p95_ms: f64,
    dead_endpoint_waiting: u32,
    dead_endpoint_vs_none: Ratio,
    held_calls: HeldCalls,
}

/// The results of all parts of a run.
pub(super) struct Measured {
    pub(super) rounds: WebhookRounds,
    pub(super) receipts: Receipts,
    pub(super) dead_endpoint_vs_none: Ratio,
    pub(super) held_calls: HeldCalls,
}

impl WebhookFigures {
    pub(super) fn new(url: &str, (args, turns): (&Webhooks, u32), measured: Measured) -> Self {
        let Measured {
            rounds, receipts, ..
        } = &measured;
        Self {
            database: database(url),
            calls: args.calls.unwrap_or_default(),
            rounds: turns,
            concurrency: CONCURRENCY,
            endpoints: RECEIVERS,
            cores: cores(),
            http_per_s: rounds.http.median(),
            recorded_per_s: rounds.recorded.median(),
            webhooks_per_s: rounds.webhooks.median(),
            webhooks_vs_http: rounds.webhooks.vs(&rounds.http),
            webhooks_vs_recorded: rounds.webhooks.vs(&rounds.recorded),
            fan_out_per_s: rounds.fan_out.median(),
            receipt_p50_ms: percentile(&receipts.across, 50),
            receipt_p95_ms: percentile(&receipts.across, 95),
            receipt_in_process_p50_ms: percentile(&receipts.in_process, 50),
            receipt_in_process_p95_ms: percentile(&receipts.in_process, 95),
            dead_endpoint_waiting: args.waiting,
            dead_endpoint_vs_none: measured.dead_endpoint_vs_none,
            held_calls: measured.held_calls,
        }
    }
}

fn lines(figures: &WebhookFigures) -> Vec<Row> {
    let mut lines = vec![
        rate("bare HTTP client", figures.http_per_s),
        rate(
            "bare HTTP client with a row per call",
            figures.recorded_per_s,
        ),
        rate("webhooks", figures.webhooks_per_s),
        rate("events fanned out", figures.fan_out_per_s),
    ];
    let ratios = [
        (
            "webhooks, vs. the bare client",
            figures.webhooks_vs_http,
            0.25,
        ),
        (
            "webhooks, vs. the client with a row per call",
            figures.webhooks_vs_recorded,
            0.5,
        ),
    ];
    for (what, ratio, promise) in ratios {
        // SQLite has one writer, which syncs the file each time, so there is no target.
        lines.push(match figures.database {
            "sqlite" => without_promise(what, ratio),
            _ => at_least(what, ratio, promise),
        });
    }
    let receipt = "commit to receipt at 200 events/s, p95";
    lines.push(at_most(receipt, figures.receipt_p95_ms, 100.0, " ms"));
    lines.push(at_most(
        "the same, enqueued in the worker's process",
        figures.receipt_in_process_p95_ms,
        100.0,
        " ms",
    ));
    lines.push(at_least(
        "webhooks with a dead endpoint, vs. none",
        figures.dead_endpoint_vs_none,
        0.9,
    ));
    lines.extend(of_held(&figures.held_calls));
    lines
}

fn of_held(held: &HeldCalls) -> Vec<Row> {
    let repeated = f64::from(held.repeated);
    let mut lines = vec![at_most("calls held open, made twice", repeated, 0.0, "")];
    if let Some(connections) = held.connections {
        let what = "connections while calls are held open";
        lines.push(at_most(what, f64::from(connections), 10.0, ""));
    }
    if let (Some(open), Some(end)) = (held.rss_open_mb, held.rss_end_mb) {
        let what = "memory that grows while calls are held open";
        lines.push(at_most(what, (end - open).max(0.0), 10.0, " MB"));
    }
    lines
}

pub(super) fn print(host: &Host<'_>, figures: &WebhookFigures) -> Result<(), Stop> {
    if host.console.is_json() {
        return host.json(figures);
    }
    table(host, lines(figures))?;
    host.console.note(&format_args!(
        "median of {} rounds of {} calls of 500 bytes, {} at once to {} endpoints, on {} with {} \
         cores; {} calls held open for {:.0} s",
        figures.rounds,
        figures.calls,
        figures.concurrency,
        figures.endpoints,
        figures.database,
        figures.cores,
        figures.held_calls.calls,
        figures.held_calls.seconds
    ));
    Ok(())
}

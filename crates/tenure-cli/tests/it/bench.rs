//! `tenure bench` prints every documented figure. The tests do not check the values, which depend
//! on the machine.

use serde_json::Value;
use tenure_store::testing::Extent;

use crate::program::{postgres, sqlite};

/// Arguments for every measurement, with few events and one round.
const ARGS: [&str; 23] = [
    "bench",
    "--json",
    "--events",
    "2000",
    "--rounds",
    "1",
    "--idle",
    "5",
    "--backlog",
    "2000",
    "--published",
    "3000",
    "--held",
    "100",
    "--keyed",
    "100",
    "--blocked",
    "3000",
    "--hot-key",
    "3000",
    "--untaken",
    "3000",
    "--shared-queue",
];

const FIGURES: [&str; 22] = [
    "events",
    "rounds",
    "batch",
    "cores",
    "enqueue_per_s",
    "drain_per_s",
    "drain_batch_100_per_s",
    "row_per_s",
    "bare_per_s",
    "drain_vs_row",
    "drain_vs_bare",
    "drain_batch_100_vs_row",
    "enqueue_vs_bare",
    "enqueue_vs_row",
    "enqueue_one_by_one_per_s",
    "enqueue_one_by_one_vs_row",
    "pickup_p50_ms",
    "pickup_p99_ms",
    "pickup_in_process_p50_ms",
    "pickup_in_process_p99_ms",
    "idle_statements_per_s",
    "work_lease_pairs_per_s",
];

const MORE: [&str; 9] = [
    "backlog_vs_empty",
    "published_vs_empty",
    "keys",
    "keyed_per_s",
    "keyed_vs_unkeyed",
    "keyed_enqueue_vs_unkeyed",
    "blocked_vs_none",
    "blocked_keyed_vs_none",
    "hot_key_vs_none",
];

const SHARED_QUEUE: [&str; 6] = [
    "pickup_p50_ms",
    "pickup_p99_ms",
    "pickup_alone_p50_ms",
    "pickup_alone_p99_ms",
    "p50_vs_alone",
    "p99_vs_alone",
];

#[tokio::test]
async fn every_figure_is_measured_on_both_databases() {
    let (file, server) = (sqlite(), postgres().await);
    // The gate measures one of the databases, `scripts/prove` both, concurrently: most of the time
    // a benchmark only watches an idle worker.
    let args = [&ARGS[..], &["--old-snapshot"]].concat();
    let places = Extent::chosen().of(&[(&file, "sqlite"), (&server, "postgres")], 1);
    let started = places.into_iter().map(|(place, name)| {
        let run = place.start(&args);
        (place, name, run)
    });
    let runs: Vec<_> = started.collect();
    for (place, name, run) in runs {
        let said = run.wait().succeeded();
        assert_eq!(said.err, "", "{name}");
        let figures = said.objects().remove(0);
        assert_eq!(figures["database"], name);
        for figure in FIGURES.iter().chain(&MORE) {
            assert_positive(name, figure, &figures[figure]);
        }
        for figure in ["items", "vs_none", "statements_per_tick"] {
            assert_positive(name, figure, &figures["held"][figure]);
        }
        for figure in ["events", "set_aside_s", "vs_none"] {
            assert_positive(name, figure, &figures["untaken"][figure]);
        }
        for figure in SHARED_QUEUE {
            assert_positive(name, figure, &figures["shared_queue"][figure]);
        }
        let snapshot = &figures["old_snapshot_vs_empty"];
        match name {
            "sqlite" => assert!(snapshot.is_null(), "SQLite has no such figure: {snapshot}"),
            _ => assert_positive(name, "old_snapshot_vs_empty", snapshot),
        }
        // The benchmark drops its scratch tables at the end.
        let left: Vec<_> = std::fs::read_dir(place.path("")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

fn assert_positive(database: &str, figure: &str, value: &Value) {
    let number = value.as_f64();
    assert!(
        number.is_some_and(|number| number.is_finite() && number > 0.0),
        "{figure} on {database} is {value}"
    );
}

/// Arguments for every measurement of webhooks, with few calls and one round.
const WEBHOOKS: [&str; 11] = [
    "bench",
    "--json",
    "--rounds",
    "1",
    "--webhooks",
    "500",
    "--waiting",
    "1000",
    "--held-calls",
    "100",
    "--held-for=2s",
];

const WEBHOOK_FIGURES: [&str; 18] = [
    "calls",
    "rounds",
    "concurrency",
    "endpoints",
    "cores",
    "http_per_s",
    "recorded_per_s",
    "webhooks_per_s",
    "webhooks_vs_http",
    "webhooks_vs_recorded",
    "fan_out_per_s",
    "receipt_p50_ms",
    "receipt_p95_ms",
    "receipt_in_process_p50_ms",
    "receipt_in_process_p95_ms",
    "dead_endpoint_waiting",
    "dead_endpoint_vs_none",
    "held_calls.seconds",
];

/// Also asserts that few connections are used while calls are open, and that no call is made twice:
/// these counts do not depend on the machine.
#[tokio::test]
async fn every_figure_of_webhooks_is_measured_on_both_databases() {
    let (file, server) = (sqlite(), postgres().await);
    for (place, name) in Extent::chosen().of(&[(&file, "sqlite"), (&server, "postgres")], 1) {
        let said = place.run(&WEBHOOKS).succeeded();
        assert_eq!(said.err, "", "{name}");
        let figures = said.objects().remove(0);
        assert_eq!(figures["database"], name);
        for figure in WEBHOOK_FIGURES {
            let value = figure
                .split('.')
                .fold(&figures, |value, field| &value[field]);
            assert_positive(name, figure, value);
        }
        let held = &figures["held_calls"];
        assert_eq!(held["calls"], 100);
        assert_eq!(held["repeated"], 0);
        if name == "sqlite" {
            assert!(held["connections"].is_null(), "{held}");
        } else {
            let connections = held["connections"].as_u64().unwrap();
            assert!((1..=10).contains(&connections), "{held}");
        }
        let left: Vec<_> = std::fs::read_dir(place.path("")).unwrap().collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

#[test]
fn webhooks_and_events_are_not_measured_together() {
    let said = sqlite().run(&["bench", "--webhooks", "--keyed"]);
    said.failed(2, "cannot be used with", "");
    let said = sqlite().run(&["bench", "--held-calls", "10"]);
    said.failed(2, "--webhooks", "");
}

#[test]
fn more_items_than_one_worker_may_hold_are_refused() {
    let said = sqlite().run(&["bench", "--held", "10001"]);
    said.failed(2, "10001 is not in 1..=10000", "");
}

#[test]
fn a_drain_with_keys_needs_at_least_one_key() {
    let said = sqlite().run(&["bench", "--keyed", "0"]);
    said.failed(2, "0 is not in 1..=100000", "");
}

/// Names of the figures of jobs.
const OF_JOBS: [&str; 13] = [
    "chunks",
    "events",
    "rounds",
    "cores",
    "bare_chunks_per_s",
    "chunks_per_s",
    "chunks_vs_bare",
    "row_per_s",
    "adopted_per_s",
    "adopted_vs_row",
    "running_jobs",
    "statements_per_tick",
    "chunk_statements_per_tick",
];

#[tokio::test]
async fn every_figure_of_jobs_is_measured_on_both_databases() {
    let (file, server) = (sqlite(), postgres().await);
    for (place, name) in Extent::chosen().of(&[(&file, "sqlite"), (&server, "postgres")], 1) {
        let sizes = [
            "--jobs",
            "200",
            "--events",
            "2000",
            "--rounds",
            "1",
            "--running",
            "50",
        ];
        let said = place.run(&[&["bench", "--json"], &sizes[..]].concat());
        let said = said.succeeded();
        assert_eq!(said.err, "", "{name}");
        let [figures] = said.objects().try_into().expect("one line");
        assert_eq!(figures["database"], name);
        for figure in OF_JOBS {
            let value = figures[figure].as_f64();
            assert!(
                value.is_some_and(|value| value > 0.0),
                "{figure}: {figures}"
            );
        }
    }
    let both = ["bench", "--jobs", "200", "--keyed"];
    let said = sqlite().run(&both).ended(2);
    assert!(said.err.contains("--keyed"), "{said:?}");
}

/// Two builds run alternately; here both are the same build, so only noise differs.
#[test]
fn two_builds_are_compared_figure_by_figure() {
    let place = sqlite();
    let this = env!("CARGO_BIN_EXE_tenure");
    let sizes = [
        "--events", "2000", "--rounds", "1", "--idle", "1", "--keyed", "100",
    ];
    let compare = [&["bench", "--json", "--against", this], &sizes[..]].concat();
    let said = place.run(&compare).succeeded();
    assert_eq!(said.err, "");
    let [comparison] = said.objects().try_into().expect("one line");
    assert_eq!(comparison["rounds"], 1);
    let rows = comparison["figures"].as_array().unwrap();
    let row = |name: &str| rows.iter().find(|row| row["name"] == name);
    let figures = [
        ("drain_per_s", "too_few_rounds"),
        ("enqueue_per_s", "too_few_rounds"),
        ("enqueue_one_by_one_per_s", "too_few_rounds"),
        ("keyed_per_s", "too_few_rounds"),
        ("pickup_p50_ms", "too_few_rounds"),
        ("idle_statements_per_s", "too_few_rounds"),
        ("row_per_s", "reference"),
    ];
    for (name, verdict) in figures {
        let row = row(name).unwrap_or_else(|| panic!("{name} is not there: {comparison}"));
        for field in ["old", "new", "ratio"] {
            assert_positive("sqlite", name, &row[field]);
        }
        assert!(row["low"].is_null() && row["high"].is_null(), "{row}");
        assert_eq!(row["verdict"], verdict, "{row}");
    }
    assert!(row("events").is_none(), "a setting is not a figure");
    assert_eq!(comparison["not_compared"], serde_json::json!([]));
    let left: Vec<_> = std::fs::read_dir(place.path("")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_build_that_cannot_be_measured_is_named() {
    let said = sqlite().run(&["bench", "--against", "/nowhere/tenure"]);
    said.failed(1, "the old build /nowhere/tenure cannot be run", "");
    let said = sqlite().run(&["bench", "--against", "/bin/echo"]);
    said.failed(1, "the old build /bin/echo printed no figures as JSON", "");
    let said = sqlite().run(&["bench", "--against", "/bin/false"]);
    said.failed(
        1,
        "the old build /bin/false ended with exit status: 1",
        "run it by itself",
    );
}

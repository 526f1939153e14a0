//! Every statement prepares, and none scans a large table except the listed ones, with a reason.

use std::collections::BTreeSet;
use std::path::Path;

use tenure_core::store::{Claim, Intake, LeaseStore, Operate, Rest, Settle, Webhooks};
use tenure_core::testing::token;
use tenure_core::{Event, NewEvent, Outcome, Token};

use super::super::error::failed;
use super::super::statements::{ALL, HOLDS, JOBS, WEBHOOK, WORK_LEASE};
use super::*;

/// Statements that scan a whole table, and the reason.
const WALKS: [(&str, &str, &str); 10] = [
    (
        "page_pending",
        "tenure_ready",
        "it is narrow, and as long as what waits",
    ),
    (
        "page_pending",
        "tenure_backlog",
        "it is narrow, and as long as what waits",
    ),
    (
        "count",
        "tenure_backlog",
        "it is narrow, and as long as what waits",
    ),
    (
        "keys",
        "key_row",
        "a key is a few bytes, and only those with something open are there",
    ),
    (
        "count",
        "tenure_dead",
        "an item there is a few bytes, and they are to be counted",
    ),
    (
        "count",
        "tenure_setbacks",
        "the partial index of the items that were retried, from its end, up to 1000 of them",
    ),
    (
        "held_chunks",
        "t",
        "the partial index of the chunks in hand, which are few",
    ),
    (
        "kinds",
        "t",
        "the partial indexes of the jobs that are open or failed, which are to be counted",
    ),
    (
        "count",
        "t",
        "the partial index of the jobs that are open, which are to be counted",
    ),
    (
        "count",
        "c",
        "the narrow indexes on when jobs ended, which are to be counted",
    ),
];

/// The tables that grow, under their own names and their aliases in Tenure's statements.
const LARGE: [&str; 31] = [
    "tenure_events",
    "event",
    "tenure_ready",
    "ready",
    "tenure_settled",
    "settled",
    "tenure_setbacks",
    "setback",
    "tenure_dead",
    "dead",
    "tenure_dedupe",
    "dedupe",
    "tenure_reservations",
    "reserved",
    "waiting",
    "tenure_reservation_backlog",
    "tenure_offsets",
    "tenure_keys",
    "key_row",
    "tenure_backlog",
    "behind",
    "first",
    "last",
    "owed",
    "there",
    "tenure_delivery_attempts",
    "tenure_jobs",
    "tenure_checkpoints",
    "t",
    "j",
    "c",
];

/// Returns the steps of a plan. Unbound parameters are null; that does not change a plan.
fn plan(connection: &Connection, sql: &str) -> Vec<String> {
    let mut statement = connection
        .prepare(&format!("explain query plan {sql}"))
        .unwrap();
    let steps = statement.raw_query().mapped(|row| row.get(3));
    steps.map(Result::unwrap).collect()
}

/// Returns the large tables that a plan scans.
fn walked(connection: &Connection, sql: &str) -> BTreeSet<String> {
    plan(connection, sql)
        .iter()
        .filter_map(|step| step.strip_prefix("SCAN ")?.split(' ').next())
        .filter(|table| LARGE.contains(table))
        .map(str::to_owned)
        .collect()
}

fn check_plans(connection: &Connection, when: &str) {
    let jobs = JOBS.iter().chain(HOLDS);
    for (file, name, sql) in ALL.iter().chain(WORK_LEASE).chain(WEBHOOK).chain(jobs) {
        let allowed: BTreeSet<String> = WALKS
            .iter()
            .filter(|(of, _, _)| of == file)
            .map(|(_, table, _)| (*table).to_owned())
            .collect();
        let walked = walked(connection, sql);
        let forbidden: Vec<_> = walked.difference(&allowed).collect();
        assert!(
            forbidden.is_empty(),
            "{file}.sql, {name}, {when}: scans {forbidden:?}"
        );
    }
}

/// Many done jobs, and chunks of many matrices.
const FILL_JOBS: &str = "
    with recursive n(n) as (select 1 union all select n + 1 from n where n < 3000)
    insert into tenure_jobs (kind, matrix_id, payload, completed_at)
    select 'import', 'm' || (n % 50), '{}', case when n % 100 then 1 end from n;
    with recursive n(n) as (select 1 union all select n + 1 from n where n < 3000)
    insert into tenure_checkpoints (matrix_id, chunk_hash) select 'm' || (n % 50), 'c' || n from n;
";

/// Fills the store with items in every state: events, deliveries of some of them, and jobs.
async fn fill(store: &SqliteStore) {
    let jobs = |conn: &Connection| conn.execute_batch(FILL_JOBS).map_err(failed("fill"));
    store.writer().write("fill", jobs).await.unwrap();
    for name in ["billing", "mail", "audit"] {
        let endpoint = webhooks::new_endpoint(name, "order.*");
        store.add_endpoint(&endpoint, None).await.unwrap().unwrap();
    }
    store
        .enqueue(&vec![event("order.paid"); 3000])
        .await
        .unwrap();
    let keyed: Vec<Event> = (0..3000)
        .map(|n| {
            NewEvent::from(event("order.paid"))
                .key(&format!("customer-{}", n % 300))
                .build()
        })
        .collect::<Result<_, _>>()
        .unwrap();
    store.enqueue(&keyed).await.unwrap();
    let settle = |token: Token, outcome: Outcome| {
        let store = store.clone();
        async move {
            let held = store
                .claim(&Claim::new(token.clone(), 500))
                .await
                .unwrap()
                .unwrap();
            let mut settle = Settle::new(token);
            for id in held.ids() {
                settle = settle.item(id, outcome.clone());
                settle.fan_out.push((id, "order.paid".to_owned()));
            }
            store.settle(&settle).await.unwrap()
        }
    };
    let retry = Outcome::Retry {
        after: std::time::Duration::from_hours(1),
        error: "503".into(),
    };
    let dead = Outcome::Dead {
        reason: "rejected".into(),
        error: "404".into(),
    };
    for (n, outcome) in (1..).zip([Outcome::Done, Outcome::Done, retry, dead]) {
        assert_eq!(
            settle(token("filler", n), outcome).await.refused().count(),
            0
        );
    }
    store
        .claim(&Claim::new(token("holder", 1), 500))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn no_statement_scans_a_large_table() {
    let bench = Bench::new().await;
    let connection = bench.stranger();
    check_plans(&connection, "on empty tables");
    fill(&bench.store).await;
    check_plans(&connection, "on full tables");
    connection.execute_batch("analyze").unwrap();
    check_plans(&connection, "on full tables that were analysed");
}

/// Queries of the views by id read one item instead of all.
#[tokio::test]
async fn a_view_finds_an_item_by_its_key() {
    let bench = Bench::new().await;
    fill(&bench.store).await;
    let connection = bench.stranger();
    let has = |sql: &str, start: &str| {
        let plan = plan(&connection, sql);
        let is_there = plan.iter().any(|step| step.starts_with(start));
        assert!(is_there, "{sql}: no {start} in {plan:#?}");
        assert_eq!(walked(&connection, sql), BTreeSet::new(), "{sql}");
    };
    let by_id = "SEARCH event USING INTEGER PRIMARY KEY (rowid=?)";
    let by_key = "SEARCH event USING INDEX tenure_events_key";
    // A query of the whole view reads only events or only deliveries.
    let (events, deliveries) = (
        "SEARCH event USING INTEGER PRIMARY KEY (rowid<?)",
        "SEARCH event USING INTEGER PRIMARY KEY (rowid>?)",
    );
    for (view, half) in [("tenure_outbox", events), ("tenure_deliveries", deliveries)] {
        has(&format!("select * from {view} where id = 7"), by_id);
        has(
            &format!("select id from {view} where ordering_key = 'a'"),
            by_key,
        );
        let whole = format!("select * from {view}");
        has(&whole, half);
        // The plan does not compare the held ids with every event.
        has(&whole, "SEARCH held USING AUTOMATIC");
    }
}

#[test]
fn every_file_is_used_and_has_a_header() {
    check_files("sql/sqlite/queue", ALL);
    check_files("sql/sqlite/work_lease", WORK_LEASE);
    check_files("sql/sqlite/webhook", WEBHOOK);
    check_files("sql/sqlite/jobs", &[JOBS, HOLDS].concat());
}

fn check_files(folder: &str, all: &[(&str, &str, &str)]) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let used: BTreeSet<&str> = all.iter().map(|(file, _, _)| *file).collect();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let file = path.file_stem().unwrap().to_str().unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(
            text.starts_with(&format!("-- {file}: ")),
            "{file}.sql does not begin with its name"
        );
        let names = text
            .lines()
            .filter(|line| line.starts_with("-- statement: "))
            .count();
        let known = all.iter().filter(|(of, _, _)| *of == file).count();
        assert_eq!(names, known, "{file}.sql has unused statements");
        if known == 0 {
            continue;
        }
        assert!(used.contains(file));
        for part in [
            "-- Parameters: ",
            "-- Returns: ",
            "-- Keeps: ",
            "-- Relies on: ",
        ] {
            assert!(text.contains(part), "{file}.sql has no {part:?}");
        }
    }
}

/// Counts use the last id instead of reading every event, so ids must have no gaps.
#[tokio::test]
async fn rejected_and_rolled_back_events_leave_no_gap_between_ids() {
    let bench = Bench::new().await;
    let connection = bench.stranger();
    bench.store.enqueue(&[event("a")]).await.unwrap();
    connection.execute_batch("begin").unwrap();
    SqliteStore::enqueue_on(&connection, &[event("b"), event("b")]).unwrap();
    connection.execute_batch("rollback").unwrap();
    let unknown = [
        event("c"),
        NewEvent::from(event("c")).queue("nowhere").build().unwrap(),
    ];
    assert!(bench.store.enqueue(&unknown).await.is_err());
    let bad = "insert into tenure_outbox (topic, payload) values ('d', '1'), ('d', '{')";
    assert!(connection.execute(bad, []).is_err());
    bench.store.enqueue(&[event("e")]).await.unwrap();
    let total = number(&connection, "select count(*) from tenure_events");
    assert_eq!(
        number(&connection, "select max(id) from tenure_events"),
        total
    );
    let counts = bench.store.count(None).await.unwrap();
    assert_eq!((counts.pending(), counts.done), (2, 0));
    let all = Settle::new(token("filler", 1)).rest(Rest::Done);
    bench
        .store
        .claim(&Claim::new(token("filler", 1), 10))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(bench.store.settle(&all).await.unwrap().rest, 2);
    let counts = bench.store.count(None).await.unwrap();
    assert_eq!((counts.pending(), counts.done), (0, 2));
}

//! The plan of every PostgreSQL statement of the outbox and the work lease. A plan made on empty
//! tables and run on full ones uses an index and reads about as many rows as it works on.

use std::fmt::Write as _;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tenure_core::ItemId;
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing;

use crate::jobs::plans as jobs;

/// Small tables, which have a row per claim, queue, space or worker, or a single row.
const SMALL: [&str; 6] = [
    "tenure_endpoints_version",
    "tenure_leases",
    "tenure_queues",
    "tenure_replays",
    "tenure_spaces",
    "tenure_workers",
];

/// Statements that read a whole narrow table or skip unwanted rows, as their headers say.
const FAR: [&str; 6] = [
    "count",
    "jobs_count",
    "jobs_held_chunks",
    "page_pending",
    "page_done",
    "keys",
];

/// Arguments with which such a statement must read only a few rows.
const NEAR: [(&str, &str); 1] = [("jobs_held_chunks", "'m7'")];

/// Statements, each with a narrow table that it reads whole, as its header says.
const WHOLE: [(&str, &str); 7] = [
    ("webhook_subscriptions", "tenure_endpoints"),
    ("page_pending", "tenure_backlog"),
    ("count", "tenure_backlog"),
    ("keys", "tenure_keys"),
    ("prune_keys", "tenure_keys"),
    ("prune_keys", "tenure_strict_keys"),
    ("settings", "tenure_settings"),
];

/// Maximum number of rows, of 134,000, that a statement on a hundred items may read.
const ROWS_MAX: f64 = 8000.0;

/// Creates 60,000 done events, 30,000 pending, 3,000 held in 30 leases, 1,000 dead, 2,000 with
/// setbacks; 20,000 events of 2,000 keys, with 100 held and 1,900 available heads and an arrival
/// for each key; 100 settings, 2,000 workers.
const FILL: &str = "
    insert into tenure_events (topic, payload, created_at, available_at)
    select 'bench.event', '{}', now() - interval '1 h' + n * interval '1 ms',
           now() - interval '1 h' + n * interval '1 ms'
    from generate_series(1, 94000) as n;
    insert into tenure_ready (lane, available_at, id)
    select lane, available_at, id from tenure_events where id > 64000;
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence,
                                first_id, last_id, ids)
    select 'old-0000000000000001.' || n || '.0', 'done', now(), now(), 'old-0000000000000001', n,
           n * 100 + 1, n * 100 + 100, array(select generate_series(n * 100 + 1, n * 100 + 100))
    from generate_series(0, 599) as n;
    insert into tenure_leases (token, holder, claimed_at, locked_until, ids)
    select 'now-0000000000000001.' || n || '.0', 'now-0000000000000001', now(),
           now() + case when n < 25 then interval '1 h' else interval '-1 h' end,
           array(select generate_series(60001 + n * 100, 60100 + n * 100))
    from generate_series(0, 29) as n;
    insert into tenure_dead (id, dead_at, reason)
    select n, now(), 'failed' from generate_series(63001, 64000) as n;
    insert into tenure_setbacks (id, attempts, available_at)
    select e.id, 1, e.available_at from tenure_events e where e.id between 92001 and 94000;
    insert into tenure_events (topic, ordering_key, payload, created_at, available_at)
    select 'bench.event', 'key' || n % 2000, '{}', now() - interval '1 h', now() - interval '1 h'
    from generate_series(94001, 114000) as n;
    insert into tenure_keys (key_hash, ordering_key, head, state_since)
    select tenure_key_hash(ordering_key), ordering_key, id, now()
    from tenure_events where id between 94001 and 96000;
    insert into tenure_ready (lane, available_at, id, key_hash)
    select lane, available_at, id, tenure_key_hash(ordering_key)
    from tenure_events where id between 94101 and 96000;
    insert into tenure_leases (token, holder, claimed_at, locked_until, ids, key_hashes)
    select 'key-0000000000000001.1.0', 'key-0000000000000001', now(), now() + interval '1 h',
           array_agg(id order by id), array_agg(tenure_key_hash(ordering_key) order by id)
    from tenure_events where id between 94001 and 94100;
    insert into tenure_backlog (key_hash, turn, id, lane, available_at)
    select tenure_key_hash(ordering_key), id, id, lane, available_at
    from tenure_events where id > 96000;
    insert into tenure_arrivals (key_hash, ordering_key)
    select key_hash, ordering_key from tenure_keys;
    insert into tenure_settings (name, value)
    select 'name' || n, n from generate_series(1, 100) as n;
    insert into tenure_workers
        (worker, host, pid, version, queues, concurrency, running, held, settings_version,
         next_report_within_ms, started_at, reported_at)
    select 'mill-' || lpad(to_hex(n), 16, '0'), 'mill', n, '0.1.0', 'default', 10, 0, 0, 0,
           7500, now(), now() + n * interval '1 s'
    from generate_series(1, 2000) as n;
";

/// Creates 1,000 endpoints, 10,000 events with a delivery to one endpoint and 10,000 with a
/// delivery to another. The first deliveries are delivered after one call, the others pending.
const FILL_WEBHOOKS: &str = "
    update tenure_endpoints_version set rules_version = 1000;
    insert into tenure_endpoints (id, settings, sealed_secrets, state, state_since, created_at)
    select 'endpoint' || n, '{}', '', 'enabled', now(), now() from generate_series(1, 1000) as n;
    insert into tenure_events (id, event_id, topic, lane, source, created_at, available_at)
    select nextval('tenure_delivery_id'), event_id, topic,
           (id + turn * 500) % 1000 * 16 + 16 + 7, id, now() - interval '1 h',
           now() - interval '1 h'
    from tenure_events cross join generate_series(0, 1) as turn
    where id <= 10000
    order by turn, id;
    insert into tenure_ready (lane, available_at, id)
    select lane, available_at, id from tenure_events where id > 4503599627370496 + 10000;
    insert into tenure_settled (token, outcome, settled_at, claimed_at, holder, fence,
                                first_id, last_id, ids)
    select 'out-0000000000000001.' || n || '.0', 'done', now(), now(), 'out-0000000000000001', n,
           d.ids[1], d.ids[100], d.ids
    from generate_series(0, 99) as n
    cross join lateral (
        select array(select 4503599627370496 + n * 100 + generate_series(1, 100)) as ids) d;
    insert into tenure_delivery_attempts
        (delivery, fence, began_at, attempt, http_status, outcome, detail)
    select id, 1, now(), 1, 200, 'delivered', '{}'
    from tenure_events where id between 4503599627370497 and 4503599627370496 + 10000;
";

/// Creates two spaces of 10,000 domains with five ranges each. A quarter of the domains has an
/// offset in flight, of which half have lapsed; a quarter has a backlog of ten; one domain has a
/// backlog of 10,000.
const FILL_WORK_LEASES: &str = "
    insert into tenure_spaces (space, watermark) values ('s', 100), ('t', 0);
    insert into tenure_reservations
        (space_number, domain, current_offset, token, first_acquired_at, locked_until,
         backlog_length)
    select s.number, 'd' || n,
           case when n % 4 = 0 then 1000 end,
           case when n % 4 = 0 then 'now-0000000000000001.' || n || '.0' end,
           case when n % 4 = 0 then now() end,
           case when n % 4 = 0 then now() + (n % 8 - 2) * interval '1 h' end,
           case when n = 1 then 10000 when n % 4 = 1 then 10 else 0 end
    from tenure_spaces s cross join generate_series(1, 10000) as n
    order by n, s.number;
    insert into tenure_reservation_backlog (reservation, queue_position, log_offset)
    select r.number, n, 2000 + n
    from tenure_reservations r cross join lateral generate_series(1, r.backlog_length) as n;
    insert into tenure_offsets (reservation, space_number, first_offset, last_offset, kind)
    select r.number, r.space_number, n * 50, n * 50 + 10,
           case n when 4 then 'failed' else 'processed' end
    from tenure_reservations r cross join generate_series(1, 5) as n;
";

fn ids(from: i64, to: i64) -> String {
    let list: Vec<String> = (from..=to).map(|id| id.to_string()).collect();
    format!("array[{}]::bigint[]", list.join(","))
}

fn deliveries(from: i64, to: i64) -> String {
    ids(ItemId::FIRST_DELIVERY + from, ItemId::FIRST_DELIVERY + to)
}

const REPORT: &str =
    "null, 'mill-0000000000000007', 'mill', 7, '0.1.0', 'default', 10, 1, 1, 0, 7500, '*'";

/// The parameters of a statement, working on about a hundred items.
fn arguments(name: &str) -> String {
    let lanes = "array[0,1,2,3,4,5,6,7], array_fill('epoch'::timestamptz, array[8]), \
                 array_fill(0::bigint, array[8])";
    let claim = format!(
        "'new-0000000000000001.1.0', 'new-0000000000000001', 30000000, 100, {lanes}, 100, 16, \
         array_fill(100::bigint, array[8])"
    );
    let held = "now-0000000000000001.0.0";
    let settle = format!(
        "null, '{held}', {}, {}, array_fill(0::bigint, array[10]), \
         array_fill('e'::text, array[10]), \
         {}, array_fill('r'::text, array[10]), array_fill('e'::text, array[10]), {}, \
         array_fill(0::bigint, array[10]), null, false, false, 1000",
        ids(60001, 60060),
        ids(60061, 60070),
        ids(60071, 60080),
        ids(60081, 60090),
    );
    let events = "null, array_fill(gen_random_uuid(), array[100]), \
                  array_fill('t'::text, array[100]), \
                  array_fill(7, array[100]), array_fill('{}'::text, array[100]), \
                  array_fill(null::text, array[100]), array_fill(null::text, array[100]), \
                  array_fill(0::bigint, array[100]), array_fill('customer'::text, array[100])";
    let page = "4503599627370497, 100, null, null, null, null, null, 0, null";
    match name {
        "enqueue" => events.to_owned(),
        "enqueue_unique" => {
            let keys: Vec<String> = (0..100).map(|n| format!("'k{n}'")).collect();
            format!("{events}, array[{}]", keys.join(","))
        }
        "claim" => format!("null, {claim}"),
        "renew" => format!("null, array['{held}', 'gone-0000000000000001.1.0'], 30000000"),
        "settle" => settle,
        "settle_and_claim" => format!("{settle}, {claim}"),
        "settle_done_and_claim" => format!("null, '{held}', {}, 1000, {claim}", ids(60001, 60100)),
        "reap" => "null, 1, true, 5, array[100, 1000]::bigint[], 2, false".to_owned(),
        "look" => format!("'old-0000000000000001.3.0', {}", ids(301, 400)),
        "replay" => format!("null, {}", ids(63901, 64000)),
        other if other.contains("replay") => replay_arguments(other),
        "bury" => {
            "null, 70000, 'why', 'op-0000000000000001.1.0', 'op-0000000000000001', false".to_owned()
        }
        "enqueue_strict" => "array['k1', 'k2']".to_owned(),
        "enqueue_call" => "'a', '1', null, '{}'".to_owned(),
        "promote" | "add_keys" => "null, 100".to_owned(),
        "keys" => "false, 100, null, 10000, 600000000".to_owned(),
        "lock_key" | "pause_key" | "resume_key" => "null, 'key7'".to_owned(),
        "skip_blocked" => "null, 'key7', 7, 'why', ': ', 1000".to_owned(),
        "prune_keys" => "now() + interval '1 h', 60000000, 100".to_owned(),
        "prune_workers" => "now() + interval '1 h', 60000000".to_owned(),
        "prune_choose" => "now() + interval '1 h', 60000000, 60000000, 100".to_owned(),
        "prune" => format!(
            "now() + interval '1 h', 60000000, 60000000, 100, {}, array['(0,1)'], {}",
            ids(1, 100),
            ids(101, 200)
        ),
        "find" => ids(1, 20),
        "timeline" => "150".to_owned(),
        "page_all" | "page_pending" | "page_claimed" | "page_done" | "page_dead" => page.to_owned(),
        "count" => "null, 3600000000".to_owned(),
        "queues" | "settings" | "examine" => String::new(),
        "add_queue" => "'mail', null, null, null, null".to_owned(),
        "pause_queue" => "'default', true".to_owned(),
        "change_settings" => "0, array['name7', 'new', 'gone'], array[null, '1', null]".to_owned(),
        "report" => REPORT.to_owned(),
        "leave" => "null, 'mill-0000000000000007'".to_owned(),
        "workers" => "100".to_owned(),
        "separate" | "set_aside" | "sweep" => topic_arguments(name, held),
        other if other.starts_with("webhook_") => webhook_arguments(other, page),
        other => further_arguments(other),
    }
}

/// The parameters of a statement of an operator, or outside the outbox.
fn further_arguments(name: &str) -> String {
    match name {
        "delayed" => "null, null, null, 't', 1000, 0, 'epoch', 0".to_owned(),
        "retry_now" => format!(
            "now() - interval '2 h', {}, 'op-0000000000000001.1.0', 'op-0000000000000001'",
            ids(92_001, 92_100)
        ),
        "blocked_keys" => "null, 1000".to_owned(),
        "separate_topics" | "due_topics" => "null".to_owned(),
        _ => outside_arguments(name),
    }
}

fn outside_arguments(name: &str) -> String {
    if name.starts_with("jobs_") {
        return jobs::arguments(name);
    }
    work_lease_arguments(name)
}

/// The parameters of a statement of separate topics.
fn topic_arguments(name: &str, held: &str) -> String {
    match name {
        "separate" => "array[0, 0], array['t', 'u'], 1000".to_owned(),
        "sweep" => "null, array[0], 1000".to_owned(),
        _ => format!(
            "'{held}', {}, array_fill(39, array[50]), array_fill(0::bigint, array[50]), \
             array_fill(false, array[50])",
            ids(60_001, 60_050)
        ),
    }
}

/// The parameters of a statement of bulk replays.
fn replay_arguments(name: &str) -> String {
    let dead = r#"'{"state":"dead"}'"#;
    match name {
        "start_replay" => format!("null, {dead}, 60, 7, 0, 4503599627370496, 60000000"),
        "replays" => "100, null".to_owned(),
        "next_replay" => "null, null".to_owned(),
        "replay_dead" => {
            "0, 114000, 100, 10000, null, null, null, null, null, null, null".to_owned()
        }
        "replay_done" => {
            "0, 114000, 100, 1000, null, null, null, null, null, null, null".to_owned()
        }
        "move_replay" => "null, 7, 100, 100, 0, 0, false".to_owned(),
        "cancel_replay" => "null, 7".to_owned(),
        other => panic!("{other}.sql is new: add its arguments here"),
    }
}

/// The parameters of a statement of webhooks.
fn webhook_arguments(name: &str, page: &str) -> String {
    let arguments = match name {
        "webhook_add_endpoint" => "null, 'new', '{}', ''",
        "webhook_endpoint" => "'endpoint7'",
        "webhook_endpoints" => "'endpoint7', 100",
        "webhook_change_endpoint" => "null, 'endpoint7', 1, '{}', '', 'disabled', 'gone', null",
        "webhook_keep_health" => "'endpoint7', '{}'",
        "webhook_subscriptions" => "",
        "webhook_fan_out" => {
            return format!(
                "null, 'old-0000000000000001.3.0', 1000, {}, array_fill(7, array[100]), \
                 array_fill('endpoint7'::text, array[100])",
                ids(301, 400)
            );
        }
        "webhook_sources" => return ids(1, 100),
        "webhook_page_source" => return format!("9223372036854775807{}, 7", &page[16..]),
        "webhook_due_deliveries" => "null",
        "webhook_record_calls" => {
            return format!(
                "null, {}, array_fill(0::bigint, array[100]), array_fill(1, array[100]), \
                 array_fill(0::bigint, array[100]), array_fill('failed'::text, array[100]), \
                 array_fill(null::int, array[100]), array_fill(null::text, array[100]), \
                 array_fill('{{}}'::text, array[100]), false",
                deliveries(1, 100)
            );
        }
        "webhook_calls" => "4503599627370497",
        other => panic!("{other}.sql is new: add its arguments here"),
    };
    arguments.to_owned()
}

/// Calls on items with keys, for statements that work differently on them.
fn keyed_arguments() -> Vec<(&'static str, String)> {
    let held = "null, 'key-0000000000000001.1.0'";
    let keyed = ids(94_001, 94_100);
    let lanes: Vec<String> = (1..=100)
        .map(|number| (number * 16 + 7).to_string())
        .collect();
    let no_claim = "null, '', '', 0, 0, array[]::int[], array[]::timestamptz[], array[]::bigint[], \
                    0, 1, array[]::bigint[]";
    let none = "array[]::bigint[]";
    let words = "array[]::text[]";
    let no_words = format!("{none}, {none}, {words}, {none}, {words}, {words}, {none}, {none}");
    vec![
        (
            "settle",
            format!("{held}, {keyed}, {no_words}, null, false, false, null"),
        ),
        (
            "settle",
            format!("{held}, {none}, {no_words}, 'release', false, false, null"),
        ),
        (
            "settle_done_and_claim",
            format!("{held}, {keyed}, {no_claim}"),
        ),
        (
            "reap",
            "now() + interval '2 h', 100, true, 5, array[100, 1000]::bigint[], 2, false".to_owned(),
        ),
        (
            "bury",
            "null, 94200, 'why', 'op-0000000000000001.1.0', 'op-0000000000000001', false"
                .to_owned(),
        ),
        ("keys", "false, 1, 'key7', 10000, 600000000".to_owned()),
        // These calls are on deliveries, for statements that work differently on them.
        (
            "claim",
            format!(
                "null, 'new-0000000000000001.1.0', 'new-0000000000000001', 30000000, 100, \
                 array[{}], array_fill('epoch'::timestamptz, array[100]), \
                 array_fill(0::bigint, array[100]), 100, 1, array_fill(3::bigint, array[100])",
                lanes.join(",")
            ),
        ),
        (
            "page_all",
            "9223372036854775807, 100, null, null, null, null, null, 4503599627370496, null"
                .to_owned(),
        ),
        (
            "prune",
            format!(
                "now() + interval '1 h', 60000000, 60000000, 100, {}, array['(0,1)'], {}",
                deliveries(1, 100),
                ids(1, 100)
            ),
        ),
    ]
}

/// The parameters of a statement of the work lease.
fn work_lease_arguments(name: &str) -> String {
    let arguments = match name {
        "work_lease_view" => "null, 's', 'd1', 120",
        "work_lease_change" => {
            "1, 100, 'd1', 1, 1, 2001, 'new-0000000000000001.1.0', \
             now(), 0, null, 2001, 20001, array[60, 110]::bigint[], array[50]::bigint[], \
             array[110]::bigint[], array['processed']"
        }
        "work_lease_open_space" | "work_lease_watermark" => "'s'",
        "work_lease_advance" => "'s', 100, 0",
        "work_lease_prune" => "'s', 'processed', 100, 100",
        "work_lease_idle_with_backlog" => "'s', 100",
        "work_lease_lapsed" => "null, 's', 100",
        other => panic!("{other}.sql is new: add its arguments here"),
    };
    arguments.to_owned()
}

/// Prepares every statement as a store's connection does; returns the calls.
async fn prepared(url: &str) -> (PgConnection, Vec<(&'static str, String)>) {
    PostgresStore::migrate(url, &StoreConfig::default())
        .await
        .unwrap();
    let store = PostgresStore::open(url, &StoreConfig::default())
        .await
        .unwrap();
    let mut conn = PgConnection::connect(url).await.unwrap();
    let mut script = String::from(
        "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; \
         set enable_bitmapscan = off; set jit = off;",
    );
    let mut calls = Vec::new();
    // `written_here` is for the tests of a user's program, and reads the whole view of a small
    // database.
    let texts = store.statement_texts().into_iter();
    for (name, text) in texts.filter(|(name, _)| *name != "written_here") {
        write!(script, "prepare s_{name} as {text};").unwrap();
        let arguments = arguments(name);
        let list = if arguments.is_empty() {
            arguments
        } else {
            format!("({arguments})")
        };
        calls.push((name, format!("execute s_{name}{list}")));
    }
    for (name, arguments) in keyed_arguments().into_iter().chain(jobs::more_calls()) {
        calls.push((name, format!("execute s_{name}({arguments})")));
    }
    for (name, text, arguments) in jobs::row_calls() {
        write!(script, "prepare s_{name} as {text};").unwrap();
        calls.push((name, format!("execute s_{name}({arguments})")));
    }
    run(&mut conn, &script).await;
    (conn, calls)
}

async fn run(conn: &mut PgConnection, script: &str) {
    sqlx::raw_sql(AssertSqlSafe(script))
        .execute(conn)
        .await
        .unwrap();
}

async fn explain(conn: &mut PgConnection, how: &str, call: &str) -> Value {
    let text = format!("explain ({how}, format json) {call}");
    let row = sqlx::raw_sql(AssertSqlSafe(text))
        .fetch_one(conn)
        .await
        .unwrap();
    serde_json::from_str(row.get_unchecked::<&str, _>(0)).unwrap()
}

/// Every node of a plan.
fn nodes(plan: &Value) -> Vec<&Value> {
    let mut found = Vec::new();
    let mut rest = vec![plan];
    while let Some(value) = rest.pop() {
        match value {
            Value::Array(list) => rest.extend(list),
            Value::Object(fields) => {
                if fields.contains_key("Node Type") {
                    found.push(value);
                }
                rest.extend(fields.values());
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }
    found
}

fn sequential_scans<'a>(name: &str, plan: &'a Value) -> Vec<&'a str> {
    let is_scan = |node: &&Value| node["Node Type"] == "Seq Scan";
    let tables = nodes(plan).into_iter().filter(is_scan);
    let tables = tables.filter_map(|node| node["Relation Name"].as_str());
    tables
        .filter(|table| !SMALL.contains(table) && !WHOLE.contains(&(name, *table)))
        .collect()
}

/// Counts the index scans of `tenure_ready` that do not begin with a lane and so read the whole
/// index.
fn lost_probes(plan: &Value) -> usize {
    let is_lost = |node: &&Value| {
        let condition = node["Index Cond"].as_str();
        node["Relation Name"] == "tenure_ready"
            && condition.is_some_and(|condition| !condition.contains("lane"))
    };
    nodes(plan).into_iter().filter(is_lost).count()
}

/// Returns the largest number of rows that one node of an executed plan has read and compared.
fn rows_touched(plan: &Value) -> f64 {
    let number = |node: &Value, field: &str| node[field].as_f64().unwrap_or(0.0);
    let touched = |node: &Value| {
        let rows = number(node, "Actual Rows")
            + number(node, "Rows Removed by Filter")
            + number(node, "Rows Removed by Join Filter")
            + number(node, "Rows Removed by Index Recheck");
        rows * number(node, "Actual Loops")
    };
    nodes(plan).into_iter().map(touched).fold(0.0, f64::max)
}

#[tokio::test]
async fn every_statement_can_be_prepared_and_uses_an_index_on_empty_tables() {
    let database = testing::postgres().await;
    let (mut conn, calls) = prepared(&database.url).await;
    for (name, call) in calls {
        let plan = explain(&mut conn, "costs off", &call).await;
        let scans = sequential_scans(name, &plan);
        assert!(scans.is_empty(), "{name}.sql scans {scans:?}: {plan:#}");
    }
}

/// Runs every statement and checks the rows it read.
async fn run_and_look(mut conn: PgConnection, calls: Vec<(&str, String)>) {
    for (name, call) in calls {
        run(&mut conn, "begin").await;
        let plan = explain(&mut conn, "analyze", &call).await;
        run(&mut conn, "rollback").await;
        let scans = sequential_scans(name, &plan);
        assert!(scans.is_empty(), "{name}.sql scans {scans:?}: {plan:#}");
        let mut near = NEAR.iter();
        let is_near = near.any(|(of, asked)| *of == name && call.contains(asked));
        let is_far = FAR.contains(&name) && !is_near;
        let lost = lost_probes(&plan);
        let is_found = lost == 0 || is_far;
        assert!(is_found, "{name}.sql reads a whole index: {plan:#}");
        let rows = rows_touched(&plan);
        let is_bounded = rows <= ROWS_MAX || is_far;
        assert!(is_bounded, "{name}.sql touches {rows} rows: {plan:#}");
    }
}

/// The plans are made while the tables are empty, as on a new database, and kept while the tables
/// fill.
#[tokio::test]
async fn plans_made_on_empty_tables_read_few_rows_of_full_ones() {
    let database = testing::postgres().await;
    let (mut conn, calls) = prepared(&database.url).await;
    for (_, call) in &calls {
        explain(&mut conn, "costs off", call).await;
    }
    let mut filler = PgConnection::connect(&database.url).await.unwrap();
    run(&mut filler, FILL).await;
    run(&mut filler, FILL_WORK_LEASES).await;
    run(&mut filler, FILL_WEBHOOKS).await;
    run(&mut filler, jobs::FILL).await;
    run_and_look(conn, calls).await;
}

/// The plans are made after the tables were filled and analyzed, and must not be worse.
#[tokio::test]
async fn plans_made_on_full_tables_read_few_rows() {
    let database = testing::postgres().await;
    let (mut conn, calls) = prepared(&database.url).await;
    run(&mut conn, FILL).await;
    run(&mut conn, FILL_WORK_LEASES).await;
    run(&mut conn, FILL_WEBHOOKS).await;
    run(&mut conn, jobs::FILL).await;
    run(&mut conn, "analyze").await;
    run_and_look(conn, calls).await;
}

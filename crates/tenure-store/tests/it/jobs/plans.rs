//! Input for the plans of the statements of jobs: tables in long use, and arguments for each
//! statement.

use tenure_core::{Identifier, LeaseTable};
use tenure_store::postgres::PostgresRows;
use tenure_store::sqlite::SqliteRows;

use super::Place;

/// Creates 100,000 done jobs, 1,000 failed, 200 pending and 50 running, of ten kinds and on 100
/// matrices, and 50,000 chunks of these matrices.
pub(crate) const FILL: &str = "
    insert into tenure_jobs
        (kind, matrix_id, payload, created_at, completed_at, failed_at, locked_until, locked_by,
         lease_token, claimed_at, chunks_total)
    select 'kind' || n % 10, 'm' || n % 100, '{}', now() - interval '1 h' + n * interval '1 ms',
           case when n <= 100000 then now() end,
           case when n between 100001 and 101000 then now() end,
           case when n > 101200 then now() + interval '1 h' end,
           case when n > 101200 then 'now-0000000000000001' end,
           case when n > 101200 then 'now-0000000000000001.' || n || '.0' end,
           case when n > 101200 then now() end, 500
    from generate_series(1, 101250) as n;
    insert into tenure_checkpoints
        (matrix_id, chunk_hash, last_synced_at, row_count, locked_until, locked_by, lease_token,
         claimed_at)
    select 'm' || n % 100, 'c' || n / 100, now(), 7,
           case when n <= 50 then now() + interval '1 h' end,
           case when n <= 50 then 'now-0000000000000001' end,
           case when n <= 50 then 'now-0000000000000001.' || n || '.1' end,
           case when n <= 50 then now() end
    from generate_series(1, 50000) as n;
";

/// The parameters of a statement of jobs.
pub(crate) fn arguments(name: &str) -> String {
    let asker = "null, 'm7', 'c0', 'now-0000000000000001.7.1', 'now-0000000000000001'";
    let job = "101207, 'now-0000000000000001.101207.0', 'now-0000000000000001'";
    match name {
        "jobs_enqueue" => "null, array_fill('kind1'::text, array[100]), \
                           array_fill(null::text, array[100]), array_fill('{}'::text, array[100]), \
                           array_fill(0::smallint, array[100]), array_fill(0::bigint, array[100]), \
                           array_fill(null::bigint, array[100])"
            .to_owned(),
        "jobs_retry" | "jobs_job" => "null, 7".to_owned(),
        "jobs_page" => "null, null, null, null, null, 100".to_owned(),
        "jobs_note" => "null, 101207, 'now-0000000000000001.101207.0', 'now-0000000000000001', \
                        'here', 7, '{}', true"
            .to_owned(),
        "jobs_claim_chunk" => {
            format!(
                "null, 'm7', 'c3', 'new-0000000000000001.1.0', 'new-0000000000000001', 120000000, \
                 null, {job}"
            )
        }
        "jobs_make_chunk" => {
            format!(
                "null, 'm7', 'new', 'new-0000000000000001.1.0', 'new-0000000000000001', 120000000, \
                 {job}"
            )
        }
        "jobs_renew_chunks" => {
            let all = |part: fn(u32) -> String| {
                let parts: Vec<String> = (1..=50).map(part).collect();
                format!("array[{}]", parts.join(", "))
            };
            let matrices = all(|n| format!("'m{n}'"));
            let tokens = all(|n| format!("'now-0000000000000001.{n}.1'"));
            format!(
                "null, {matrices}, array_fill('c0'::text, array[50]), {tokens}, \
                 array_fill('now-0000000000000001'::text, array[50]), 120000000"
            )
        }
        "jobs_look_chunk" => format!("{asker}, {job}"),
        "jobs_end_chunk" => format!("{asker}, {job}, 'synced', 7, null, 'here', true"),
        "jobs_chunks" => "null, 'm7', 'c1', 100".to_owned(),
        "jobs_notable_chunks" => "null, 'm7', 11".to_owned(),
        "jobs_held_chunks" => "null, null, null, 100".to_owned(),
        "jobs_count" => "null".to_owned(),
        "jobs_kinds" => "null, 86400000000".to_owned(),
        "jobs_progress" => "null, 'm7'".to_owned(),
        // No row is that old, because the cost of deleting is not tested.
        "jobs_prune" => "null, 604800000000, 2592000000000, 100".to_owned(),
        other => panic!("{other}.sql is new: add its arguments here"),
    }
}

/// Calls of the lists with every filter, because each filter has its own index.
pub(crate) fn more_calls() -> Vec<(&'static str, String)> {
    let mut calls = Vec::new();
    for kind in ["null", "'kind7'"] {
        for matrix in ["null", "'m7'"] {
            for state in [
                "null",
                "'AVAILABLE'",
                "'RUNNING'",
                "'COMPLETED'",
                "'FAILED'",
            ] {
                let arguments = format!("null, {kind}, {matrix}, {state}, 101240, 20");
                calls.push(("jobs_page", arguments));
            }
        }
    }
    for of in ["'m7', null", "null, 600000000", "'m7', 600000000"] {
        calls.push(("jobs_held_chunks", format!("null, {of}, 100")));
    }
    calls
}

/// The table of the jobs, as the store describes it.
pub(super) fn table() -> LeaseTable {
    let name = |text| Identifier::new(text).unwrap();
    let mut table = LeaseTable::sync_jobs().named(name("tenure_jobs"));
    table.kind = Some(name("kind"));
    table
}

/// The statements of the row layout that workers run on jobs, with their arguments.
pub(crate) fn row_calls() -> Vec<(&'static str, String, String)> {
    let held = "'now-0000000000000001.101207.0'";
    let holder = "'now-0000000000000001'";
    let new = "'new-0000000000000001.1.0', 'new-0000000000000001'";
    let call = |(file, text): (&'static str, String)| {
        let (name, arguments) = match file {
            "claim" => (
                "rows_claim",
                format!("null, {new}, 300000000, 1, false, true, array['kind1', 'kind2']"),
            ),
            "renew" => (
                "rows_renew",
                format!("null, array[{held}], array[{holder}], 300000000"),
            ),
            "settle" => (
                "rows_settle",
                format!(
                    "null, {held}, {holder}, array[101207]::bigint[], array['done'], \
                     array[0]::bigint[], array[null::text], null, false"
                ),
            ),
            "settle_done" => (
                "rows_settle_done",
                format!("null, {held}, {holder}, array[101207], false"),
            ),
            "reap" => (
                "rows_reap",
                "null, 100, array[0]::bigint[], 5, true, null".to_owned(),
            ),
            "look" => ("rows_look", format!("{held}, {holder}, array[101207]")),
            "bury" => ("rows_bury", format!("null, {held}, 101100, 'why'")),
            "find" => ("rows_find", "array[101207]".to_owned()),
            _ => return None,
        };
        Some((name, text, arguments))
    };
    let all = PostgresRows::statements(&table()).unwrap();
    all.into_iter().filter_map(call).collect()
}

/// In SQLite, too, no statement of a worker scans or sorts the jobs.
#[tokio::test]
async fn sqlite_uses_an_index_despite_many_done_jobs() {
    let place = Place::sqlite().await;
    let Place::Sqlite { path, .. } = &place else {
        return;
    };
    let conn = rusqlite::Connection::open(path).unwrap();
    for what in ["empty", "full"] {
        if what == "full" {
            conn.execute_batch(
                "with recursive n(n) as (select 1 union all select n + 1 from n where n < 100200)
                 insert into tenure_jobs (kind, matrix_id, payload, completed_at)
                 select 'kind' || (n % 10), 'm' || (n % 100), '{}', case when n > 200 then 1 end
                 from n; analyze",
            )
            .unwrap();
        }
        for (file, name, text) in SqliteRows::statements(&table()).unwrap() {
            if ["create", "columns", "count", "replay"].contains(&file) {
                continue;
            }
            let mut statement = conn.prepare(&format!("explain query plan {text}")).unwrap();
            let steps = statement.raw_query().mapped(|row| row.get::<_, String>(3));
            for step in steps.map(Result::unwrap) {
                let is_walk = format!("{step} ").starts_with("SCAN t ") && !step.contains("INDEX");
                let is_sort = name.starts_with("claimable") && step.contains("TEMP B-TREE");
                assert!(
                    !is_walk && !is_sort,
                    "{file} {name} on {what} tables: {step}"
                );
            }
        }
    }
}

//! What the plans of jobs' statements are looked at with: tables that have been in use for long, and
//! how each statement is called.

/// 100,000 jobs that are done, 1,000 that failed, 200 that wait, 50 that run; on 100 matrices, of
/// ten kinds, and 50,000 chunks of these.
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
        "jobs_job" => "null, 7".to_owned(),
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
        "jobs_look_chunk" => format!("{asker}, {job}"),
        "jobs_end_chunk" => format!("{asker}, {job}, 'synced', 7, null, 'here', true"),
        "jobs_chunks" => "null, 'm7', 'c1', 100".to_owned(),
        "jobs_progress" => "null, 'm7'".to_owned(),
        other => panic!("{other}.sql is new: say here how it is called"),
    }
}

/// Lists by every filter, each of which has an index of its own.
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
    calls
}

//! Fences on PostgreSQL rise also after a failover that loses claims, after a restore, and on a
//! copy of the files.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _};
use tenure_core::job::{ChunkKey, ChunkName, MatrixName, NewJob};
use tenure_core::store::{
    Bury, Claim, ClaimChunk, Delays as _, Enqueued, Intake as _, Jobs, LeaseStore as _,
    Operate as _, ProvidesJobs as _, Rest, RetryNow, Settle,
};
use tenure_core::testing::token;
use tenure_core::{ItemId, NewEvent, Term};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database, Server};

use crate::world::fresh;

/// The distance of the fences of two timelines.
const TIMELINE: i64 = 1 << 40;
/// The least distance of the fences before and after a move to another server.
const MOVE: i64 = 16 * TIMELINE;
/// JavaScript reads only lower numbers exactly.
const FENCE_MAX: i64 = (1 << 53) - 1;
/// PostgreSQL logs 32 numbers of a sequence ahead, so that a replica repeats none of the next 32.
const LOST: usize = 40;

async fn migrated_on(server: &Server) -> Database {
    let database = server.database().await;
    let config = StoreConfig::default();
    let migrated = PostgresStore::migrate(&database.url, &config).await;
    migrated.unwrap();
    database
}

/// URL of this database on another server.
fn on(server: &Server, database: &Database) -> String {
    let (_, name) = database.url.rsplit_once('/').unwrap();
    let (front, _) = server.url().rsplit_once('/').unwrap();
    format!("{front}/{name}")
}

async fn connected(url: &str) -> PgConnection {
    PgConnection::connect(url).await.unwrap()
}

async fn number(conn: &mut PgConnection, text: &str) -> i64 {
    let row = sqlx::query(AssertSqlSafe(text)).fetch_one(conn).await;
    row.unwrap().get(0)
}

async fn order(conn: &mut PgConnection, text: &str) {
    let done = sqlx::raw_sql(AssertSqlSafe(text)).execute(conn).await;
    done.unwrap();
}

/// Claims so many new events, one by one; returns the fences.
async fn claims(url: &str, number: usize) -> Vec<i64> {
    let config = StoreConfig::default();
    let store = PostgresStore::open(url, &config).await.unwrap();
    let mut fences = Vec::new();
    for _ in 0..number {
        let event = NewEvent::new("a", &1).build().unwrap();
        store.enqueue(&[event]).await.unwrap();
        let held = store.claim(&Claim::new(fresh("worker"), 1)).await.unwrap();
        fences.push(held.unwrap().lease.fence.number());
    }
    fences
}

/// Ends the replication to a replica: it misses all later commits.
async fn cut_off(replica: &Server) {
    let mut conn = connected(replica.url()).await;
    order(&mut conn, "alter system set primary_conninfo = ''").await;
    order(&mut conn, "select pg_reload_conf()").await;
    let receivers = "select count(*) from pg_stat_wal_receiver";
    let ended = async { while number(&mut conn, receivers).await > 0 {} };
    let ended = tokio::time::timeout(Duration::from_secs(30), ended).await;
    ended.expect("the replica ends its receiver within 30 s");
}

/// Asserts that all fences rise, and the first of the later ones by at least `distance`.
fn assert_rise(earlier: &[i64], later: &[i64], distance: i64) {
    let all = [earlier, later].concat();
    assert!(all.is_sorted_by(|one, next| one < next), "{all:?}");
    assert!(later[0] - earlier[0] >= distance, "{all:?}");
    assert!(later.iter().all(|fence| *fence <= FENCE_MAX), "{all:?}");
}

/// Goal: no fence is repeated, although each promoted replica misses the last claims, and the
/// second also misses that the first raised the fences.
#[tokio::test]
async fn fences_rise_over_two_failovers_in_a_row_that_lose_claims() {
    let first = Server::start_fast().await;
    let database = migrated_on(&first).await;
    let mut fences = claims(&database.url, 2).await;
    assert_eq!(fences, [1, 2]);
    let second = first.replica().await;
    cut_off(&second).await;
    fences.extend(claims(&database.url, LOST).await);
    first.kill().await;
    second.promote().await;
    // It has the state before the first claim of the second server.
    let third = second.replica().await;
    cut_off(&third).await;
    let after = claims(&on(&second, &database), LOST).await;
    assert_rise(&fences, &after, TIMELINE);
    second.kill().await;
    third.promote().await;
    let last = claims(&on(&third, &database), 2).await;
    assert_rise(&after, &last, TIMELINE);
}

/// Runs a program of PostgreSQL on a database; the last option names the file.
fn run(program: &str, url: &str, options: &[&str], file: &Path) {
    // The driver's own parameters follow the question mark.
    let url = url.split('?').next().unwrap();
    let mut command = Command::new(program);
    let done = command.arg("-d").arg(url).args(options).arg(file).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{program}: {done:?}");
}

async fn restored(server: &Server, dump: &Path) -> Database {
    let database = server.database().await;
    run("pg_restore", &database.url, &["--exit-on-error"], dump);
    database
}

/// Goal: after a restore, fences are above those drawn since the dump, on any server. Method:
/// restore a dump from a second timeline on a new server, where the timeline is the first, twice,
/// and on the old server.
#[tokio::test]
async fn fences_rise_after_every_restore_of_a_dump() {
    let folder = tempfile::tempdir().unwrap();
    let dump = folder.path().join("dump");
    let first = Server::start_fast().await;
    let database = migrated_on(&first).await;
    claims(&database.url, 1).await;
    let old = first.replica().await;
    first.kill().await;
    old.promote().await;
    let url = on(&old, &database);
    let mut fences = claims(&url, 2).await;
    assert!(fences[0] > TIMELINE);
    run("pg_dump", &url, &["-Fc", "-f"], &dump);
    fences.extend(claims(&url, LOST).await);
    let new = Server::start_fast().await;
    let once = restored(&new, &dump).await;
    let after = claims(&once.url, LOST).await;
    assert_rise(&fences, &after, MOVE);
    let twice = restored(&new, &dump).await;
    let again = claims(&twice.url, 2).await;
    assert_rise(&after, &again, 1);
    let back = restored(&old, &dump).await;
    let last = claims(&back.url, 2).await;
    assert_rise(&fences, &last, MOVE);
}

/// Goal: fences rise on a server that was started from older files, although nothing tells it apart
/// from a restart. Method: more claims than PostgreSQL logs ahead, after the copy was made.
#[tokio::test]
async fn fences_rise_on_a_copy_of_the_files() {
    let server = Server::start_fast().await;
    let database = migrated_on(&server).await;
    let mut fences = claims(&database.url, 1).await;
    let copy = server.copy().await;
    fences.extend(claims(&database.url, LOST).await);
    server.kill().await;
    let after = claims(&on(&copy, &database), 2).await;
    assert_rise(&fences, &after, 1);
    assert!(after[0] < TIMELINE, "{after:?}");
}

/// Goal: whatever draws a fence adds the floor. Method: raise it, then read every fence that the
/// operations have stored.
#[tokio::test]
async fn every_operation_that_draws_a_fence_adds_the_floor() {
    let database = testing::migrated().await;
    let config = StoreConfig::default();
    let store = PostgresStore::open(&database.url, &config).await.unwrap();
    let mut conn = connected(&database.url).await;
    let raise = format!("update tenure_fence_floor set floor = {TIMELINE}");
    order(&mut conn, &raise).await;
    let mut events = vec![NewEvent::new("a", &1).build().unwrap(); 4];
    for _ in 0..2 {
        let later = NewEvent::new("a", &1).delay(Duration::from_hours(1));
        events.push(later.build().unwrap());
    }
    let ids = store.enqueue(&events).await.unwrap();
    let ids: Vec<ItemId> = ids.into_iter().map(Enqueued::id).collect();
    let mut held = Vec::new();
    for nth in 1..=2 {
        let claim = Claim::new(token("w", nth), 1);
        held.push(store.claim(&claim).await.unwrap().unwrap());
    }
    for (held, rest) in held.iter().zip([Rest::Done, Rest::Release]) {
        let settle = Settle::new(held.lease.token.clone()).rest(rest);
        let claim = Claim::new(fresh("w"), 1);
        let (_, next) = store.settle_and_claim(&settle, &claim).await.unwrap();
        next.unwrap();
    }
    let bury = Bury::new(ids[4], token("o", 1), "why");
    assert!(store.bury(&bury).await.unwrap().is_accepted());
    let retry = RetryNow::new(vec![ids[5]], token("o", 2));
    store.retry_now(&retry).await.unwrap();
    let chunk = "insert into tenure_checkpoints (matrix_id, chunk_hash) values ('m', 'old')";
    order(&mut conn, chunk).await;
    chunks_and_jobs(store.job_store().unwrap()).await;
    for (fences, expected) in [
        ("select fence from tenure_leases", 2),
        ("select fence from tenure_settled", 4),
        ("select fence from tenure_jobs", 2),
        ("select fence from tenure_checkpoints", 2),
    ] {
        let text = format!("select count(*) from ({fences}) t where fence > {TIMELINE}");
        assert_eq!(number(&mut conn, &text).await, expected, "{fences}");
        let text = format!("select count(*) from ({fences}) t");
        assert_eq!(number(&mut conn, &text).await, expected, "{fences}");
    }
}

/// Claims a chunk that is new and one that exists; claims a job and buries another.
async fn chunks_and_jobs(jobs: &dyn Jobs) {
    for (nth, name) in [(1, "new"), (2, "old")] {
        let claim = ClaimChunk {
            key: ChunkKey {
                matrix: MatrixName::new("m").unwrap(),
                chunk: ChunkName::new(name).unwrap(),
            },
            token: token("c", nth),
            term: Term::STANDARD,
            fresh_for: None,
            job: None,
            now: None,
        };
        jobs.claim_chunk(&claim).await.unwrap();
    }
    let job = NewJob::new("a", "1").unwrap();
    let ids = jobs.enqueue_jobs(&[job.clone(), job], None).await.unwrap();
    let claim = Claim::new(token("j", 1), 1);
    jobs.job_leases().claim(&claim).await.unwrap().unwrap();
    let bury = Bury::new(ItemId::from(ids[1]), token("o", 3), "why");
    let buried = jobs.job_operations().bury(&bury).await.unwrap();
    assert!(buried.is_accepted());
}

/// The first claim after a move raises the floor for all; a claim that comes meanwhile waits for
/// it, and raises the floor itself if the first one rolls back.
#[tokio::test]
async fn concurrent_claims_raise_the_floor_once() {
    const NEXT: &str = "select tenure_next_fence()";
    const WAITING: &str = "select count(*) from pg_stat_activity \
                           where datname = current_database() and wait_event_type = 'Lock'";
    let database = testing::migrated().await;
    let mut watch = connected(&database.url).await;
    for is_committed in [true, false] {
        let mut one = connected(&database.url).await;
        let mut other = connected(&database.url).await;
        let before = number(&mut one, NEXT).await;
        let moved = "update tenure_fence_floor set system = 1, started_at = null";
        order(&mut one, moved).await;
        let mut tx = one.begin().await.unwrap();
        let first = number(&mut tx, NEXT).await;
        let second = tokio::spawn(async move { number(&mut other, NEXT).await });
        let waits = async { while number(&mut watch, WAITING).await == 0 {} };
        let waits = tokio::time::timeout(Duration::from_secs(30), waits).await;
        waits.expect("the second claim waits within 30 s");
        if is_committed {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        let second = second.await.unwrap();
        assert!(first - before >= MOVE, "{before} {first} {second}");
        assert!(second > first, "{before} {first} {second}");
        assert!(
            second - before < MOVE + TIMELINE,
            "{before} {first} {second}"
        );
    }
}

/// After hundreds of moves the floor stays, and fences rise with the sequence alone.
#[tokio::test]
async fn fences_stay_exact_in_javascript() {
    let database = testing::migrated().await;
    let mut conn = connected(&database.url).await;
    let mut last = number(&mut conn, "select tenure_next_fence()").await;
    for _ in 0..300 {
        let moved = "update tenure_fence_floor set system = 1, started_at = null";
        order(&mut conn, moved).await;
        let fence = number(&mut conn, "select tenure_next_fence()").await;
        assert!(fence > last && fence <= FENCE_MAX, "{last} {fence}");
        last = fence;
    }
    let most = "select max_value + (select floor from tenure_fence_floor) \
                from pg_sequences where sequencename = 'tenure_fence'";
    assert_eq!(number(&mut conn, most).await, FENCE_MAX);
    let cases = "update tenure_fence_floor set timeline = 4294967295, started_at = null";
    order(&mut conn, cases).await;
    assert!(number(&mut conn, "select tenure_next_fence()").await > last);
}

/// A managed server may hide its timeline and its system; claims work there too.
#[tokio::test]
async fn fences_rise_where_the_server_hides_its_timeline() {
    let database = testing::postgres().await;
    let config = StoreConfig::default();
    let migrated = PostgresStore::migrate(&database.url, &config).await;
    migrated.unwrap();
    let mut conn = connected(&database.url).await;
    let mut tx = conn.begin().await.unwrap();
    let role = "create role hidden;
        grant select, update on tenure_fence_floor to hidden;
        grant usage on sequence tenure_fence to hidden;
        revoke execute on function pg_control_system() from public;
        revoke execute on function pg_walfile_name(pg_lsn) from public;
        set local role hidden";
    order(&mut tx, role).await;
    let first = number(&mut tx, "select tenure_next_fence()").await;
    order(&mut tx, "update tenure_fence_floor set started_at = null").await;
    assert!(number(&mut tx, "select tenure_next_fence()").await > first);
    let unknown = "select count(*) from tenure_fence_floor where timeline is null";
    assert_eq!(number(&mut tx, unknown).await, 1);
    tx.rollback().await.unwrap();
}

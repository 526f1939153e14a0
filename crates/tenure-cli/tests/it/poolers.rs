//! The program behind PgBouncer, with a database that does not answer, and with several servers.

use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tenure_store::testing::{PoolMode, Pooler, Server};
use tokio::time::Instant;

use crate::program::{self, Place, Running, everywhere, postgres, soon};

/// The pooler tries again soon after its server is back.
const SOON: &str = "server_login_retry = 1";

/// Longest time of a command that waits for a second.
const WAIT_MAX: Duration = Duration::from_secs(30);

#[tokio::test]
async fn every_command_works_behind_a_pooler_with_its_own_defaults() {
    let mut place = postgres().await;
    let pooler = Pooler::start(&place.url, PoolMode::Transaction, "").await;
    place.url = pooler.url(&place.url);
    place.run(&["migrate"]).succeeded();
    place.enqueue("a");
    place.enqueue_keyed("k");
    let drain = ["work", "--drain", "--exec", "true"];
    place.run(&drain).succeeded();
    for args in [&["events"][..], &["show", "1"], &["queues"]] {
        place.run(args).succeeded();
    }
    // The server of the tests does not wait for its disk.
    let doctor = place.run(&["doctor"]).ended(1);
    assert!(doctor.out.contains("plans once and by index"), "{doctor:?}");
    let stats = place.run(&["stats", "--json"]).succeeded();
    assert_eq!(stats.field("done"), "2", "{stats:?}");
}

/// Most problems of a pooler have the code of a protocol error; they pass, and the unit of the
/// manual does not start a worker again that ends with 2.
#[tokio::test]
async fn a_worker_started_behind_a_warm_pooler_waits_for_its_server() {
    let server = Server::start_fast().await;
    let mut place = program::on(server.database().await);
    place.run(&["migrate"]).succeeded();
    let pooler = Pooler::start(&place.url, PoolMode::Transaction, SOON).await;
    place.url = pooler.url(&place.url);
    place.run(&["stats"]).succeeded();
    server.kill().await;
    // A process of the killed server may still answer for a moment.
    while place.run(&["stats"]).code == Some(0) {}
    let mut worker = place.start(&["work", "--wait", "1m", "--exec", "true"]);
    worker.line_with("the database did not answer");
    server.restart().await;
    worker.line_with(" works on ");
    worker.terminate();
    worker.wait().succeeded();
}

/// A locked table of ours looks like a pooler whose server is away: the login succeeds, and then
/// there is no answer.
#[tokio::test(flavor = "multi_thread")]
async fn waiting_ends_when_the_database_takes_the_login_and_does_not_answer() {
    let [_, place] = everywhere().await;
    let mut conn = PgConnection::connect(&place.url).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    let lock = "lock table tenure_queues in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut *tx).await.unwrap();
    let exec = ["--exec", "true"];
    let commands = [
        [&["work"][..], &exec].concat(),
        ["serve", "--listen", "127.0.0.1:0"].to_vec(),
        [&["jobs", "run", "--kind", "a"][..], &exec].concat(),
    ];
    let ended = commands.map(|args| {
        let args = [&args[..], &["--wait", "1s"]].concat();
        let running = place.start(&args);
        let ended = tokio::task::spawn_blocking(|| Running::wait(running));
        tokio::time::timeout(WAIT_MAX, ended)
    });
    for ended in ended {
        let output = ended.await.expect("--wait ends").unwrap();
        let output = output.ended(1);
        assert!(
            output.err.contains("does not answer within 1s"),
            "{output:?}"
        );
    }
    tx.rollback().await.unwrap();
}

/// A server and its replica, with commits that wait for the replica.
async fn pair() -> (Server, Server, Place) {
    let primary = Server::start_fast().await;
    let replica = primary.replica().await;
    let conn = PgConnection::connect(primary.url()).await;
    let mut conn = conn.expect("the primary runs");
    for order in [
        "alter system set synchronous_standby_names = '*'",
        "select pg_reload_conf()",
    ] {
        let done = sqlx::raw_sql(order).execute(&mut conn).await;
        done.expect("the primary takes orders");
    }
    let mut place = program::on(primary.database().await);
    let (one, other) = (primary.port(), replica.port());
    // The replica comes first, so that its answer must be refused.
    place.url = place.url.replacen(
        &format!("127.0.0.1:{one}/"),
        &format!("127.0.0.1:{other},127.0.0.1:{one}/"),
        1,
    );
    let mark = if place.url.contains('?') { '&' } else { '?' };
    let url = format!("{}{mark}target_session_attrs=read-write", place.url);
    place.url = url;
    place.run(&["migrate"]).succeeded();
    (primary, replica, place)
}

#[tokio::test]
async fn workers_find_the_new_primary_after_a_failover() {
    let (primary, replica, place) = pair().await;
    let exec = "echo $TENURE_ID >> done";
    let mut worker = place.start(&["work", "--exec", exec]);
    worker.line_with(" works on ");
    let done = || {
        let text = std::fs::read_to_string(place.path("done")).unwrap_or_default();
        let mut ids: Vec<u32> = text.lines().filter_map(|id| id.parse().ok()).collect();
        ids.sort_unstable();
        ids.dedup();
        ids.len()
    };
    for _ in 0..3 {
        place.enqueue("a");
    }
    soon(async || (done() == 3).then_some(())).await;
    // These are acknowledged, so that the replica has them.
    place.run(&["queues", "pause", "default"]).succeeded();
    for _ in 0..3 {
        place.enqueue("a");
    }
    primary.kill().await;
    let output = place.run(&["stats"]).ended(1);
    assert!(output.err.contains("no host accepts writes"), "{output:?}");
    replica.promote().await;
    let promoted = Instant::now();
    place.run(&["queues", "resume", "default"]).succeeded();
    place.run(&["doctor"]);
    soon(async || (done() == 6).then_some(())).await;
    tenure_nemesis::say(&format!("work went on after {:?}", promoted.elapsed()));
    worker.terminate();
    worker.wait().succeeded();
}

#[tokio::test]
async fn errors_about_several_hosts_name_them_and_show_no_password() {
    let place = program::sqlite();
    let url = "postgres://u:canary@127.0.0.1:1,127.0.0.1:2/db?target_session_attrs=read-write";
    let output = place.run(&["stats", "--database", url]);
    let output = output.failed(1, "no host accepts writes", "failover");
    for host in ["127.0.0.1:1: ", "127.0.0.1:2: "] {
        assert!(output.err.contains(host), "{output:?}");
    }
    assert!(!output.err.contains("canary"), "{output:?}");
    let url = "postgres://u:canary@127.0.0.1:1/db?target_session_attrs=standby";
    let output = place.run(&["stats", "--database", url]);
    let output = output.failed(2, "does not write", "target_session_attrs=read-write");
    assert!(!output.err.contains("canary"), "{output:?}");
}

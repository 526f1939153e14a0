//! `/health/live` and `/health/ready`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::{Connection as _, PgConnection};
use tenure_core::store::Store;
use tenure_server::{HealthCheck, Ports};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing;

use crate::client::{Server, check, memory, ports};

#[tokio::test]
async fn a_process_that_answers_is_live() {
    let server = Server::start(ports(memory())).await;
    let answer = server.get("/health/live").await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (200, r#"{"status":"live"}"#)
    );
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
}

#[tokio::test]
async fn a_process_is_ready_when_every_check_passes() {
    let reaps = Arc::new(AtomicBool::new(true));
    let health = {
        let reaps = Arc::clone(&reaps);
        move || {
            let problem = (!reaps.load(Ordering::Relaxed)).then_some("it was last seen 31 s ago");
            let reaper = HealthCheck {
                last_seen: Some(Duration::from_secs(3)),
                ..check("reaper", problem)
            };
            vec![reaper, check("claims", None)]
        }
    };
    let server = Server::start(Ports {
        health: Arc::new(health),
        ..ports(memory())
    })
    .await;

    let answer = server.get("/health/ready").await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let body = answer.json();
    assert_eq!(body["status"], "ready");
    let names: Vec<_> = (0..3).map(|n| body["checks"][n]["name"].clone()).collect();
    assert_eq!(names, ["reaper", "claims", "store"]);
    assert_eq!(body["checks"][0]["last_seen_ms"], 3_000);
    assert!(body["checks"][0]["problem"].is_null(), "{body}");

    reaps.store(false, Ordering::Relaxed);
    let answer = server.get("/health/ready").await;
    assert_eq!(answer.status, 503, "{answer:?}");
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let body = answer.json();
    assert_eq!(body["status"], "unready");
    assert_eq!(body["checks"][0]["problem"], "it was last seen 31 s ago");
    assert_eq!(server.get("/health/live").await.status, 200);
}

/// Goal: a store that does not answer delays only the requests that need it, and makes the process
/// unready. Method: another connection locks the tables of a real PostgreSQL.
#[tokio::test]
async fn a_silent_store_makes_the_process_unready_and_delays_nothing_else() {
    let database = testing::migrated().await;
    let config = StoreConfig::default();
    let store: Arc<dyn Store> =
        Arc::new(PostgresStore::open(&database.url, &config).await.unwrap());
    let server = Server::start(ports(Arc::clone(&store))).await;
    assert_eq!(server.get("/health/ready").await.status, 200);
    let text = server.get("/metrics").await.body;
    assert!(text.contains("tenure_items{"), "{text}");

    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    let lock = "lock table tenure_queues, tenure_ready, tenure_leases in access exclusive mode";
    sqlx::raw_sql(lock).execute(&mut *tx).await.unwrap();

    let stats = server.get("/v1/stats");
    let others = async {
        // A recent sample may still be returned; after that the store does not answer.
        let unready = loop {
            let answer = server.get("/health/ready").await;
            if answer.status != 200 {
                break answer;
            }
        };
        let problem = unready.json()["checks"][0]["problem"].clone();
        assert_eq!(problem, "no answer within 2 s", "{unready:?}");
        assert_eq!(server.get("/health/live").await.status, 200);
        let many = ten_probes(&server).await;
        assert!(many.iter().all(|status| *status == 503), "{many:?}");
        // A server without a sample yet leaves the gauges out.
        let fresh = Server::start(ports(Arc::clone(&store))).await;
        let figures = fresh.get("/metrics").await;
        assert_eq!(figures.status, 200);
        assert_eq!(figures.body, "tenure_claims_total 7\n");
        tx.rollback().await.unwrap();
    };
    let (stats, ()) = tokio::join!(stats, others);
    assert_eq!(stats.status, 200, "it waited for the tables: {stats:?}");
    let ready = async {
        while server.get("/health/ready").await.status != 200 {
            tokio::task::yield_now().await;
        }
    };
    let soon = tokio::time::timeout(Duration::from_secs(30), ready).await;
    soon.expect("the store answers again");
}

/// Results of ten probes, two at a time. One after the other they would take 2 s each.
async fn ten_probes(server: &Server) -> Vec<u16> {
    let began = tokio::time::Instant::now();
    let probe = async || server.get("/health/ready").await.status;
    let mut answers = Vec::new();
    for _ in 0..5 {
        let (one, other) = tokio::join!(probe(), probe());
        answers.extend([one, other]);
    }
    let took = began.elapsed();
    assert!(took < Duration::from_secs(18), "{took:?}");
    answers
}

//! Producers of events with a key on PostgreSQL: which producers wait, and the order of the claims.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tenure_core::store::{Claim, Intake, LeaseStore, Settle};
use tenure_core::testing::token;
use tenure_core::{ItemId, NewEvent};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database};

async fn store() -> (Database, PostgresStore) {
    let database = testing::migrated().await;
    let config = StoreConfig::default();
    let store = PostgresStore::open(&database.url, &config).await.unwrap();
    (database, store)
}

async fn connected(database: &Database) -> PgConnection {
    PgConnection::connect(&database.url).await.unwrap()
}

async fn number(conn: &mut PgConnection, text: &str) -> i64 {
    let row = sqlx::query(AssertSqlSafe(text)).fetch_one(conn).await;
    row.unwrap().get(0)
}

/// Enqueues an event with the SQL function; returns its id.
async fn enqueue(conn: &mut PgConnection, key: &str, is_strict: bool) -> ItemId {
    let options = format!("{{\"strict\": {is_strict}}}");
    let call = format!("select tenure_enqueue('a', '1', '{key}', '{options}')");
    ItemId::new(number(conn, &call).await)
}

/// Works on all events, one claim after the other; returns their order.
async fn worked(store: &PostgresStore) -> Vec<ItemId> {
    let mut order = Vec::new();
    // A claim without a result has promoted heads for all arrivals.
    let mut empty = 0;
    for nth in 1.. {
        let held = store.claim(&Claim::new(token("w", nth), 10)).await.unwrap();
        let Some(held) = held else {
            empty += 1;
            if empty == 2 {
                break;
            }
            continue;
        };
        empty = 0;
        order.extend(held.ids());
        let settle = Settle::new(held.lease.token.clone()).done(held.ids());
        assert_eq!(store.settle(&settle).await.unwrap().refused().count(), 0);
    }
    order
}

/// Waits until a statement waits for a lock.
async fn until_one_waits(conn: &mut PgConnection) {
    let waiting = "select count(*) from pg_stat_activity \
                   where datname = current_database() and wait_event_type = 'Lock'";
    let wait = async { while number(conn, waiting).await == 0 {} };
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .expect("a statement waits within 30 s");
}

#[tokio::test]
async fn the_function_and_the_view_accept_a_key() {
    let (database, store) = store().await;
    let mut conn = connected(&database).await;
    let first = enqueue(&mut conn, "k", false).await;
    let insert = "insert into tenure_outbox (topic, payload, ordering_key) values ('a', '1', 'k') \
                  returning id";
    let second = ItemId::new(number(&mut conn, insert).await);
    let third = enqueue(&mut conn, "k", true).await;
    let event = NewEvent::new("a", &1).key("k").strict().build().unwrap();
    let fourth = store.enqueue(&[event]).await.unwrap()[0].id();
    assert_eq!(worked(&store).await, [first, second, third, fourth]);
}

/// Goal: strict enqueues of one key keep their order, regardless of the order of their commits.
/// Method: the second producer must wait for the transaction of the first; others do not wait.
#[tokio::test]
async fn only_strict_producers_of_one_key_wait_for_each_other() {
    let (database, store) = store().await;
    let mut first = connected(&database).await;
    let mut second = connected(&database).await;
    let mut other = connected(&database).await;
    let mut open = first.begin().await.unwrap();
    let early = enqueue(&mut open, "k", true).await;

    let loose = enqueue(&mut other, "k", false).await;
    let elsewhere = enqueue(&mut other, "l", true).await;

    let late = tokio::spawn(async move { enqueue(&mut second, "k", true).await });
    until_one_waits(&mut other).await;
    assert!(!late.is_finished());
    // A claim does not wait for the strict producer either.
    let mut held = store.claim(&Claim::new(token("c", 1), 10)).await.unwrap();
    if held.is_none() {
        held = store.claim(&Claim::new(token("c", 2), 10)).await.unwrap();
    }
    let held = held.expect("the committed events have heads");
    assert_eq!(held.ids(), [loose, elsewhere]);
    let settle = Settle::new(held.lease.token.clone()).done(held.ids());
    assert_eq!(store.settle(&settle).await.unwrap().refused().count(), 0);

    open.commit().await.unwrap();
    let late = late.await.unwrap();
    assert!(late > early);
    assert_eq!(worked(&store).await, [early, late]);
}

/// Goal: an open transaction delays no other producer. Method: the open transaction has the lowest
/// id of the key.
#[tokio::test]
async fn no_event_waits_for_a_late_commit() {
    let (database, store) = store().await;
    let mut slow = connected(&database).await;
    let mut quick = connected(&database).await;
    let mut open = slow.begin().await.unwrap();
    let early = enqueue(&mut open, "k", false).await;
    let late = enqueue(&mut quick, "k", false).await;
    assert!(early < late);
    assert_eq!(worked(&store).await, [late]);
    open.commit().await.unwrap();
    assert_eq!(worked(&store).await, [early]);
}

/// Reads the rights of a role from the page for operators, as SQL for another role.
fn documented_rights(role: &str, other: &str) -> String {
    let page = include_str!("../../../../docs/OPERATIONS.md");
    let end = format!(" to {role};");
    let granted = page.split(';').filter_map(|text| {
        let start = text.rfind("\ngrant ")?;
        let whole = format!("{};", text.get(start..)?);
        whole
            .ends_with(&end)
            .then(|| whole.replace(&end, &format!(" to {other};")))
    });
    granted.collect()
}

/// Goal: the documented rights are enough to enqueue and to read. Method: roles with only these
/// rights do both, with and without a key.
#[tokio::test]
async fn the_documented_rights_are_enough() {
    let (database, _store) = store().await;
    let mut conn = connected(&database).await;
    let name = number(
        &mut conn,
        "select oid::bigint from pg_database where datname = current_database()",
    );
    let name = name.await;
    for (role, verbs) in [
        (
            "shop",
            &[
                "select tenure_enqueue('a', '1')",
                "select tenure_enqueue('a', '1', 'k', '{\"strict\": true, \"dedupe\": \"d\"}')",
                "insert into tenure_outbox (topic, payload, ordering_key) values ('a', '1', 'k')",
            ][..],
        ),
        (
            "tenure",
            &[
                "select count(*) from tenure_outbox",
                "select count(*) from tenure_deliveries",
                "insert into tenure_endpoints \
                 (id, settings, sealed_secrets, state, state_since, created_at) \
                 values ('a', '{}', '', 'enabled', now(), now())",
                "update tenure_endpoints_version set rules_version = rules_version + 1",
                "insert into tenure_replays \
                 (filter, reached_id, last_id, created_at, next_step_at) \
                 values ('{}', 0, 0, now(), now())",
                "update tenure_replays set state = 'done', ended_at = now()",
                "delete from tenure_replays",
                "select nextval('tenure_delivery_id')",
                "select tenure_next_fence()",
                "insert into tenure_jobs (kind, matrix_id, payload) values ('a', 'm', '1')",
                "update tenure_jobs set failed_at = now()",
                "insert into tenure_checkpoints (matrix_id, chunk_hash) values ('m', 'c')",
                "update tenure_checkpoints set last_synced_at = now()",
                "delete from tenure_checkpoints",
                "delete from tenure_jobs",
                "select count(*) from tenure_tables",
                "select count(*) from tenure_migrations",
            ],
        ),
    ] {
        let other = format!("{role}_{name}");
        let rights = documented_rights(role, &other);
        assert!(rights.contains("tenure_backlog"), "{rights}");
        let make = format!("create role {other}; {rights}");
        sqlx::raw_sql(AssertSqlSafe(make))
            .execute(&mut conn)
            .await
            .unwrap();
        let mut tx = conn.begin().await.unwrap();
        let take = format!("set local role {other}");
        sqlx::query(AssertSqlSafe(take))
            .execute(&mut *tx)
            .await
            .unwrap();
        for verb in verbs {
            sqlx::query(*verb).execute(&mut *tx).await.unwrap();
        }
        tx.rollback().await.unwrap();
        let end = format!("drop owned by {other}; drop role {other}");
        sqlx::raw_sql(AssertSqlSafe(end))
            .execute(&mut conn)
            .await
            .unwrap();
    }
}

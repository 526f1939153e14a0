//! Producers that commit late, claims that collide and claims that die, on one key.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{Connection, PgConnection};
use tenure_core::store::{Claim, Enqueued, Intake as _, LeaseStore as _, Settle};
use tenure_core::{Event, ItemId, NewEvent};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database};

use super::faults::faults;
use crate::arena::{Arena, First, Waits};
use crate::world::fresh;

async fn store() -> (Database, Arc<PostgresStore>, PgConnection) {
    let database = testing::migrated().await;
    let config = StoreConfig::default();
    let store = PostgresStore::open(&database.url, &config).await.unwrap();
    let conn = PgConnection::connect(&database.url).await.unwrap();
    (database, Arc::new(store), conn)
}

fn event() -> Event {
    NewEvent::from_json("t", "1").key("a").build().unwrap()
}

async fn enqueue(store: &PostgresStore) -> ItemId {
    store.enqueue(&[event()]).await.unwrap()[0].id()
}

/// Claims available events, in runs of up to four, and settles them as done; returns the ids in
/// order.
async fn work(store: &PostgresStore) -> Vec<ItemId> {
    let claim = Claim::new(fresh("worker"), 4).min_parallel(1);
    let Some(held) = store.claim(&claim).await.unwrap() else {
        return Vec::new();
    };
    let settle = Settle::new(claim.token).done(held.ids());
    assert_eq!(store.settle(&settle).await.unwrap().refused().count(), 0);
    held.ids()
}

/// An event with an earlier id is worked once its transaction has committed. Events that are
/// enqueued after that commit come after it.
///
/// Proves: S4-051
#[tokio::test]
async fn a_producer_that_commits_late_delays_no_event_and_loses_none() {
    let (database, store, mut conn) = store().await;
    let mut late = PgConnection::connect(&database.url).await.unwrap();
    let mut tx = late.begin().await.unwrap();
    let answers = store.enqueue_on(&mut tx, &[event()]).await.unwrap();
    let (first, second) = (answers[0].id(), enqueue(&store).await);
    assert!(first < second);
    let claim = Claim::new(fresh("worker"), 4).min_parallel(1);
    let held = store.claim(&claim).await.unwrap().unwrap();
    assert_eq!(held.ids(), [second], "no event waits for the first");
    let waiting = enqueue(&store).await;
    assert_eq!(work(&store).await, []);
    tx.commit().await.unwrap();
    let last = enqueue(&store).await;
    assert_eq!(work(&store).await, [], "the second is still held");
    assert_eq!(faults(&mut conn).await, [""; 0]);
    let settle = Settle::new(claim.token).done([second]);
    assert_eq!(store.settle(&settle).await.unwrap().refused().count(), 0);
    let mut order = work(&store).await;
    order.extend(work(&store).await);
    assert_eq!(order, [first, waiting, last]);
    assert_eq!(faults(&mut conn).await, [""; 0]);
}

#[tokio::test]
async fn an_enqueue_that_is_rolled_back_delays_no_event() {
    let (database, store, mut conn) = store().await;
    let mut other = PgConnection::connect(&database.url).await.unwrap();
    let mut tx = other.begin().await.unwrap();
    store.enqueue_on(&mut tx, &[event()]).await.unwrap();
    let second = enqueue(&store).await;
    assert_eq!(work(&store).await, [second]);
    tx.rollback().await.unwrap();
    assert_eq!(work(&store).await, []);
    let third = enqueue(&store).await;
    assert_eq!(work(&store).await, [third]);
    assert_eq!(faults(&mut conn).await, [""; 0]);
}

/// Waits until this many statements wait for a lock.
async fn until_waiting(conn: &mut PgConnection, waiting: i64) {
    let count = "select count(*) from pg_stat_activity
                 where datname = current_database() and wait_event_type = 'Lock'";
    let seen = async {
        while sqlx::query_scalar::<_, i64>(count)
            .fetch_one(&mut *conn)
            .await
            .unwrap()
            < waiting
        {}
    };
    let seen = tokio::time::timeout(Duration::from_mins(2), seen).await;
    seen.expect("it waits");
}

#[tokio::test]
async fn only_strict_producers_wait_for_each_other() {
    let (database, store, mut conn) = store().await;
    for ends in ["commit", "rollback"] {
        let mut early = PgConnection::connect(&database.url).await.unwrap();
        let mut tx = early.begin().await.unwrap();
        let strict = NewEvent::from(event()).strict().build().unwrap();
        let answers = store
            .enqueue_on(&mut tx, std::slice::from_ref(&strict))
            .await;
        let first = answers.unwrap()[0].id();
        let (other, shared) = (strict, Arc::clone(&store));
        let second = tokio::spawn(async move { shared.enqueue(&[other]).await });
        let call = "select tenure_enqueue('t', '1', 'a', '{\"strict\": true}')";
        let mut function = PgConnection::connect(&database.url).await.unwrap();
        until_waiting(&mut conn, 1).await;
        let third = tokio::spawn(async move {
            let id: Result<i64, _> = sqlx::query_scalar(call).fetch_one(&mut function).await;
            ItemId::new(id.unwrap())
        });
        until_waiting(&mut conn, 2).await;
        let free = enqueue(&store).await;
        assert_eq!(
            work(&store).await,
            [free],
            "an ordinary event does not wait"
        );
        let mut expected = Vec::new();
        if ends == "commit" {
            tx.commit().await.unwrap();
            expected.push(first);
        } else {
            tx.rollback().await.unwrap();
        }
        let second = second.await.unwrap().unwrap().into_iter();
        let mut others: Vec<ItemId> = second.map(Enqueued::id).collect();
        others.push(third.await.unwrap());
        others.sort();
        expected.extend(others);
        assert!(
            expected[0] >= first,
            "a producer that waited gets a higher id"
        );
        let mut order = work(&store).await;
        order.extend(work(&store).await);
        assert_eq!(order, expected);
        assert_eq!(faults(&mut conn).await, [""; 0]);
    }
}

/// Two processes claim at the same time: all held items of the key have one lease.
///
/// Proves: S3-007, S4-039
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_claims_never_hold_one_key() {
    let (database, store, mut conn) = store().await;
    let config = StoreConfig::default();
    let other = PostgresStore::open(&database.url, &config).await.unwrap();
    let mut order = Vec::new();
    let mut ids = Vec::new();
    for _ in 0..60 {
        for _ in 0..2 {
            ids.push(enqueue(&store).await);
        }
        let ask = || Claim::new(fresh("worker"), 2).min_parallel(1);
        let (one, two) = (ask(), ask());
        let (one, two) = tokio::join!(store.claim(&one), other.claim(&two));
        let held: Vec<_> = [one, two].into_iter().filter_map(Result::unwrap).collect();
        assert!(held.len() < 2, "two leases hold one key: {held:?}");
        assert_eq!(faults(&mut conn).await, [""; 0]);
        for held in held {
            order.extend(held.ids());
            let settle = Settle::new(held.lease.token.clone()).done(held.ids());
            assert_eq!(other.settle(&settle).await.unwrap().refused().count(), 0);
        }
    }
    loop {
        let worked = work(&store).await;
        if worked.is_empty() {
            break;
        }
        order.extend(worked);
    }
    assert_eq!(order, ids);
}

/// One claim dies after it has deleted the arrivals and before its commit; another dies while it
/// holds a run.
#[tokio::test]
async fn a_claim_that_dies_loses_no_event() {
    let mut arena = Arena::new().await;
    // This creates the row of the key.
    let first = enqueue(&arena.free).await;
    assert_eq!(work(&arena.free).await, [first]);
    for is_promoted in [false, true] {
        let ids = [enqueue(&arena.free).await, enqueue(&arena.free).await];
        if is_promoted {
            arena.free.promote_all(None).await.unwrap();
        }
        let run = |store: &Arc<PostgresStore>| {
            let store = Arc::clone(store);
            async move {
                // The claim sees the arrivals and promotes an event to the head.
                let claim = Claim::new(fresh("worker"), 4)
                    .min_parallel(1)
                    .recovery(None);
                store
                    .claim(&claim)
                    .await
                    .map(|held| held.map(|held| held.ids()))
            }
        };
        let (dying, other) = (run(&arena.held), run(&arena.free));
        let (dying, other) = arena.race(dying, other, Waits::AtLocks, First::Dies).await;
        assert!(dying.is_err(), "its connection was cut");
        assert_eq!(other.unwrap(), None, "locked items are skipped");
        assert_eq!(faults(&mut arena.conn).await, [""; 0]);
        assert_eq!(work(&arena.free).await, ids);
    }
}

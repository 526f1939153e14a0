//! Ordering by key, where SQLite differs from PostgreSQL: the enqueue itself makes the first event
//! of an idle key its head, through any connection.

use tenure_core::store::{Claim, Intake, LeaseStore, Operate, Replay, Rest, Settle};
use tenure_core::testing::token;
use tenure_core::{ItemId, NewEvent, Timestamp};

use super::*;

fn keyed(key: &str) -> Event {
    NewEvent::from(event("order.paid"))
        .key(key)
        .build()
        .unwrap()
}

/// Returns the heads: key and id.
fn heads(connection: &Connection) -> Vec<(String, Option<i64>)> {
    let mut statement = connection
        .prepare("select ordering_key, head from tenure_keys")
        .unwrap();
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)));
    rows.unwrap().map(Result::unwrap).collect()
}

/// Settles all items, one lease after the other; returns their ids in that order.
async fn work(store: &SqliteStore) -> Vec<ItemId> {
    let mut order = Vec::new();
    for n in 1.. {
        let token = token("worker", n);
        let Some(held) = store.claim(&Claim::new(token.clone(), 9)).await.unwrap() else {
            break;
        };
        order.extend(held.ids());
        let settle = Settle::new(token).rest(Rest::Done);
        assert!(store.settle(&settle).await.unwrap().rest > 0);
    }
    order
}

#[tokio::test]
async fn a_plain_insert_keeps_the_order_of_its_key() {
    let bench = Bench::new().await;
    let connection = bench.stranger();
    bench.store.enqueue(&[keyed("a")]).await.unwrap();
    connection
        .execute(
            "insert into tenure_outbox (topic, payload, ordering_key)
             values ('x', '1', 'a'), ('x', '1', 'b'), ('x', '1', null), ('x', '1', 'b')",
            [],
        )
        .unwrap();
    assert_eq!(
        heads(&connection),
        [("a".to_owned(), Some(1)), ("b".to_owned(), Some(3))]
    );
    assert_eq!(number(&connection, "select count(*) from tenure_ready"), 3);
    assert_eq!(
        number(&connection, "select count(*) from tenure_backlog"),
        2
    );
    let pending = "select count(*) from tenure_outbox where status = 'PENDING'";
    assert_eq!(number(&connection, pending), 5);
    let order = work(&bench.store).await;
    assert_eq!(order, [1, 3, 4, 2, 5].map(ItemId::new));
    let published = "select count(*) from tenure_outbox
                     where status = 'PUBLISHED' and published_at is not null";
    assert_eq!(number(&connection, published), 5);
    assert_eq!(heads(&connection), [], "an idle key has no row");
}

#[tokio::test]
async fn a_rolled_back_event_is_not_a_head() {
    let bench = Bench::new().await;
    let connection = bench.stranger();
    connection.execute_batch("begin immediate").unwrap();
    SqliteStore::enqueue_on(&connection, &[keyed("a"), keyed("a")]).unwrap();
    assert_eq!(heads(&connection), [("a".to_owned(), Some(1))]);
    connection.execute_batch("rollback").unwrap();
    assert_eq!(heads(&connection), []);
    SqliteStore::enqueue_on(&connection, &[keyed("a")]).unwrap();
    assert_eq!(work(&bench.store).await.len(), 1);
}

/// The turn of a replay is drawn from the sequence of event ids, but does not count as an event.
#[tokio::test]
async fn a_turn_is_not_counted_as_an_event() {
    let bench = Bench::new().await;
    bench
        .store
        .enqueue(&[keyed("a"), keyed("a")])
        .await
        .unwrap();
    let done = work(&bench.store).await;
    let replay = Replay {
        ids: done.clone(),
        now: Some(Timestamp::from_micros(1)),
    };
    let answers = bench.store.replay(&replay).await.unwrap();
    assert!(answers.iter().all(|(_, answer)| answer.is_accepted()));
    bench.store.enqueue(&[keyed("a")]).await.unwrap();
    let counts = bench.store.count(None).await.unwrap();
    assert_eq!((counts.pending(), counts.done), (3, 0));
    let order = work(&bench.store).await;
    assert_eq!(order, [done[0], done[1], ItemId::new(5)]);
    let counts = bench.store.count(None).await.unwrap();
    assert_eq!((counts.pending(), counts.done), (0, 3));
}

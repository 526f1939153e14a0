//! Enqueueing in the caller's own transaction, on both databases; the wrong kind of connection.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by a panic, also where it is not in the test function itself"
)]

use sqlx::{Connection, PgConnection};
use tenure::{Event, StoreConfig, StoreErrorKind, Tenure};
use tenure_store::testing;

fn event(n: u32) -> Event {
    Event::new("order.paid", &n).unwrap()
}

async fn waiting(tenure: &Tenure) -> u64 {
    tenure.count().await.unwrap().pending()
}

#[tokio::test]
async fn on_sqlite_the_event_exists_if_and_only_if_the_change_does() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let url = format!("sqlite://{}", path.display());
    let tenure = Tenure::open(&url).await.unwrap();
    let mut shop = rusqlite::Connection::open(&path).unwrap();

    let tx = shop.transaction().unwrap();
    tenure.enqueue_on(&tx, event(1)).unwrap();
    tx.rollback().unwrap();
    assert_eq!(waiting(&tenure).await, 0);

    let tx = shop.transaction().unwrap();
    let fresh = tenure.enqueue_on(&tx, event(2)).unwrap();
    let more = tenure.enqueue_many_on(&tx, &[event(3), event(4)]).unwrap();
    assert!(fresh.is_fresh());
    assert_eq!(more.len(), 2);
    tx.commit().unwrap();
    assert_eq!(waiting(&tenure).await, 3);
}

#[tokio::test]
async fn on_postgres_the_event_exists_if_and_only_if_the_change_does() {
    let database = testing::postgres().await;
    tenure::migrate(&database.url, &StoreConfig::default())
        .await
        .unwrap();
    let tenure = Tenure::open(&database.url).await.unwrap();
    let mut shop = PgConnection::connect(&database.url).await.unwrap();

    let mut tx = shop.begin().await.unwrap();
    tenure.enqueue(&mut tx, event(1)).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(waiting(&tenure).await, 0);

    let mut tx = shop.begin().await.unwrap();
    let fresh = tenure.enqueue(&mut tx, event(2)).await.unwrap();
    let more = tenure
        .enqueue_many(&mut tx, &[event(3), event(4)])
        .await
        .unwrap();
    assert!(fresh.is_fresh());
    assert_eq!(more.len(), 2);
    tx.commit().await.unwrap();
    assert_eq!(waiting(&tenure).await, 3);
}

#[tokio::test]
async fn a_connection_of_the_wrong_kind_is_refused_with_a_hint() {
    let tenure = Tenure::open("memory:").await.unwrap();
    let other = rusqlite::Connection::open_in_memory().unwrap();
    let error = tenure.enqueue_on(&other, event(1)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert_eq!(
        error.to_string(),
        "enqueue: the connection is one of SQLite; expected one to the store that is open"
    );
    assert!(error.advice().unwrap().contains("enqueue_now"));

    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    let tenure = Tenure::open(&url).await.unwrap();
    let database = testing::postgres().await;
    let mut other = PgConnection::connect(&database.url).await.unwrap();
    let error = tenure.enqueue(&mut other, event(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert!(error.to_string().contains("one of PostgreSQL"), "{error}");
    assert_eq!(waiting(&tenure).await, 0);
}

#[tokio::test]
async fn a_bad_address_or_name_is_refused() {
    for url in ["", "mysql://host/db", "postgres"] {
        let error = Tenure::open(url).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Invalid, "{url:?}: {error}");
        assert!(error.advice().is_some(), "{url:?} got no hint: {error}");
    }
    let config = StoreConfig::default();
    let error = Tenure::open_with("memory:", &config, "two words")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("worker name"), "{error}");
}

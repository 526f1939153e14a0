//! Enqueues in the caller's transaction on both databases, and on a connection of the wrong kind.

#![expect(
    clippy::unwrap_used,
    reason = "a test fails by a panic, also in a function that the test calls"
)]

use sqlx::{Connection, PgConnection};
use tenure::operate::Filter;
use tenure::{Context, Enqueued, Event, NewEvent, StoreConfig, StoreErrorKind, Tenure};
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
    tenure.enqueue(&tx, event(1)).unwrap();
    tx.rollback().unwrap();
    assert_eq!(waiting(&tenure).await, 0);

    let tx = shop.transaction().unwrap();
    let fresh = tenure.enqueue(&tx, event(2)).unwrap();
    let more = tenure.enqueue(&tx, &[event(3), event(4)]).unwrap();
    assert!(fresh.is_fresh());
    assert_eq!(more.len(), 2);
    tx.commit().unwrap();
    assert_eq!(waiting(&tenure).await, 3);
}

#[tokio::test]
async fn on_postgres_the_event_exists_if_and_only_if_the_change_does() {
    let database = testing::migrated().await;
    let tenure = Tenure::open(&database.url).await.unwrap();
    let mut shop = PgConnection::connect(&database.url).await.unwrap();

    let mut tx = shop.begin().await.unwrap();
    tenure.enqueue(&mut tx, event(1)).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(waiting(&tenure).await, 0);

    let mut tx = shop.begin().await.unwrap();
    let fresh = tenure.enqueue(&mut tx, event(2)).await.unwrap();
    let more = tenure
        .enqueue(&mut tx, &[event(3), event(4)])
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
    let error = tenure.enqueue(&other, event(1)).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert_eq!(
        error.summary(),
        "enqueue: the connection is one of SQLite; expected one to the store that is open"
    );
    assert!(error.hint().unwrap().contains("enqueue_now"));

    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    let tenure = Tenure::open(&url).await.unwrap();
    let database = testing::migrated().await;
    let mut other = PgConnection::connect(&database.url).await.unwrap();
    let error = tenure.enqueue(&mut other, event(1)).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert!(error.to_string().contains("one of PostgreSQL"), "{error}");
    assert_eq!(waiting(&tenure).await, 0);
}

#[tokio::test]
async fn the_problems_of_all_events_are_reported_and_none_is_written() {
    let tenure = Tenure::open("memory:").await.unwrap();
    let events = [
        NewEvent::new("order.paid", &1),
        NewEvent::new("", &2).key(""),
        NewEvent::new("order.paid", &3).priority(9),
    ];
    let error = tenure.enqueue_now(events).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    let text = error.to_string();
    assert!(
        text.starts_with("enqueue: event 2: topic is empty"),
        "{text}"
    );
    assert!(text.contains("; ordering key is empty"), "{text}");
    assert!(text.contains("; event 3: priority is 9"), "{text}");
    assert_eq!(waiting(&tenure).await, 0);
}

/// An event with every option of a statement.
fn dressed() -> NewEvent {
    NewEvent::new("order.paid", &serde_json::json!({"it's": "ä\"7\""}))
        .key("customer-7")
        .priority(5)
        .delay(std::time::Duration::from_mins(1))
        .header("trace", "it's \"7\"")
}

/// The only event of the store.
async fn only(tenure: &Tenure) -> (Event, bool) {
    let page = tenure.list(&Filter::default(), 10).await.unwrap();
    let [record] = page.records.try_into().expect("one event");
    let delay = record
        .available_at
        .expect("it is pending")
        .since(record.created_at);
    let is_delayed = delay.as_secs().abs_diff(60) < 5;
    (
        record.content.event().expect("an event").clone(),
        is_delayed,
    )
}

#[tokio::test]
async fn another_driver_enqueues_on_postgres_with_the_statement() {
    let database = testing::migrated().await;
    let tenure = Tenure::open(&database.url).await.unwrap();
    // Only sqlx understands the parameters after the `?`.
    let url = database.url.split('?').next().unwrap();
    let (mut shop, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls)
        .await
        .unwrap();
    let connection = tokio::spawn(connection);

    let statement = tenure
        .enqueue_statement(dressed().dedupe("once").strict())
        .unwrap();
    let parameters: Vec<_> = statement
        .parameters
        .iter()
        .map(|text| -> &(dyn tokio_postgres::types::ToSql + Sync) { text })
        .collect();
    let tx = shop.transaction().await.unwrap();
    tx.query_one(&statement.text, &parameters).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(waiting(&tenure).await, 0);

    let first = shop.query_one(&statement.text, &parameters).await.unwrap();
    let again = shop.query_one(&statement.text, &parameters).await.unwrap();
    assert_eq!(
        first.get::<_, i64>(0),
        again.get::<_, i64>(0),
        "one dedupe key, one event"
    );
    let (event, is_delayed) = only(&tenure).await;
    assert!(is_delayed);
    let expected = dressed().event_id(statement.event_id).build().unwrap();
    assert_eq!(event.payload(), expected.payload());
    assert_eq!(event.key(), expected.key());
    assert_eq!(event.priority(), expected.priority());
    assert_eq!(event.headers(), expected.headers());
    assert_eq!(event.event_id(), expected.event_id());
    drop(shop);
    connection.await.unwrap().unwrap();
}

#[tokio::test]
async fn sqlx_enqueues_on_its_connections_to_sqlite() {
    use sqlx::SqliteConnection;

    let folder = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", folder.path().join("shop.db").display());
    let tenure = Tenure::open(&url).await.unwrap();
    let mut shop = SqliteConnection::connect(&url).await.unwrap();

    let mut tx = shop.begin().await.unwrap();
    tenure.enqueue(&mut *tx, dressed()).await.unwrap();
    tx.rollback().await.unwrap();
    assert_eq!(waiting(&tenure).await, 0);

    let mut tx = shop.begin().await.unwrap();
    let answers = tenure.enqueue(&mut tx, [dressed(), dressed()]).await;
    tx.commit().await.unwrap();
    for answer in answers.unwrap() {
        let record = tenure.find(&[answer.id()]).await.unwrap().pop().unwrap();
        let event = record.content.event().expect("an event").clone();
        let expected = dressed().build().unwrap();
        assert_eq!(event.payload(), expected.payload());
        assert_eq!(event.key(), expected.key());
        assert_eq!(event.headers(), expected.headers());
        let Enqueued::Fresh { event_id, .. } = answer else {
            panic!("nothing is deduplicated here");
        };
        assert_eq!(event.event_id(), Some(event_id));
    }

    let lost = tenure.enqueue(&mut shop, dressed().queue("unknown")).await;
    assert_eq!(lost.unwrap_err().kind(), StoreErrorKind::Invalid);

    let memory = Tenure::open("memory:").await.unwrap();
    let error = memory.enqueue(&mut shop, dressed()).await.unwrap_err();
    assert!(error.to_string().contains("one of SQLite"), "{error}");
}

#[tokio::test]
async fn another_driver_enqueues_on_sqlite_with_the_statement() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let tenure = Tenure::open(&format!("sqlite://{}", path.display()))
        .await
        .unwrap();
    // The statement is plain SQL with text parameters; rusqlite stands for any driver here.
    let statement = tenure.enqueue_statement(dressed()).unwrap();
    let mut shop = rusqlite::Connection::open(&path).unwrap();
    let parameters = || rusqlite::params_from_iter(&statement.parameters);
    let tx = shop.transaction().unwrap();
    tx.execute(&statement.text, parameters()).unwrap();
    tx.rollback().unwrap();
    assert_eq!(waiting(&tenure).await, 0);
    shop.execute(&statement.text, parameters()).unwrap();
    let (event, is_delayed) = only(&tenure).await;
    assert!(is_delayed);
    let expected = dressed().event_id(statement.event_id).build().unwrap();
    assert_eq!(event.payload(), expected.payload());
    assert_eq!(event.key(), expected.key());
    assert_eq!(event.priority(), expected.priority());
    assert_eq!(event.headers(), expected.headers());
    assert_eq!(event.event_id(), expected.event_id());

    let error = tenure
        .enqueue_statement(dressed().dedupe("once"))
        .unwrap_err();
    assert!(error.to_string().contains("rusqlite"), "{error}");
    let bytes = NewEvent::from_bytes("image.made", &[0, 255]);
    let statement = tenure.enqueue_statement(bytes).unwrap();
    let parameters = rusqlite::params_from_iter(&statement.parameters);
    shop.execute(&statement.text, parameters).unwrap();
}

/// One pool of the application serves the store, its worker and the application's own statements.
#[tokio::test]
async fn a_store_works_on_the_applications_own_pool() {
    let database = testing::postgres().await;
    let pool = sqlx::postgres::PgPoolOptions::new()
        .max_connections(3)
        .connect(&database.url)
        .await
        .unwrap();
    let error = Tenure::builder()
        .pool(pool.clone())
        .open()
        .await
        .unwrap_err();
    assert!(
        error.to_string().contains("call `tenure::migrate`"),
        "{error}"
    );
    tenure::migrate(&database.url, &StoreConfig::default())
        .await
        .unwrap();

    let both = Tenure::builder().pool(pool.clone()).url("memory:");
    assert!(both.open().await.is_err());
    assert!(Tenure::builder().open().await.is_err());

    let tenure = Tenure::builder().pool(pool.clone()).name("shop");
    let tenure = tenure.open().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    tenure.enqueue(&mut *tx, event(7)).await.unwrap();
    tx.commit().await.unwrap();
    let (tell, mut told) = tokio::sync::mpsc::channel(1);
    let worker = tenure
        .worker()
        .on_json("order.*", move |n: u32, _: Context| {
            let tell = tell.clone();
            async move {
                tell.send(n).await?;
                Ok(())
            }
        });
    let worker = worker.start().await.unwrap();
    assert_eq!(told.recv().await, Some(7));
    assert_eq!(worker.stop().await.left, 0);
    assert!(pool.size() <= 3);
}

#[tokio::test]
async fn an_invalid_url_or_name_is_refused() {
    for url in ["", "mysql://host/db", "postgres"] {
        let error = Tenure::open(url).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Invalid, "{url:?}: {error}");
        assert!(error.hint().is_some(), "{url:?} got no hint: {error}");
    }
    let config = StoreConfig::default();
    let error = Tenure::open_with("memory:", &config, "two words")
        .await
        .unwrap_err();
    assert!(error.to_string().contains("worker name"), "{error}");
}

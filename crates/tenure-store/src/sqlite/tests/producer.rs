//! Producers other than this store: the caller's own connection, and plain SQL on the view.

use tenure_core::store::{
    Claim, Enqueued, Intake, LeaseStore, Operate, QueueRules, Queues, StoreErrorKind,
};
use tenure_core::testing::token;
use tenure_core::{ItemId, NewEvent, Outcome, QueueName, State};
use uuid::Uuid;

use super::*;

/// Proves: S4-002, S4-058
#[tokio::test]
async fn an_event_exists_if_and_only_if_the_callers_transaction_commits() {
    let bench = Bench::new().await;
    let mut connection = bench.stranger();
    connection
        .execute_batch("create table orders (id integer primary key)")
        .unwrap();
    for (order, commits) in [(1, false), (2, true)] {
        let tx = connection.transaction().unwrap();
        tx.execute("insert into orders values (?1)", [order])
            .unwrap();
        SqliteStore::enqueue_on(&tx, &[event("order.paid")]).unwrap();
        if commits {
            tx.commit().unwrap();
        }
    }
    assert_eq!(number(&connection, "select sum(id) from orders"), 2);
    let held = bench
        .store
        .claim(&Claim::new(token("w", 1), 10))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(held.items.len(), 1);
}

#[tokio::test]
async fn a_refused_enqueue_leaves_the_callers_transaction_as_it_was() {
    let bench = Bench::new().await;
    let connection = bench.stranger();
    connection
        .execute_batch("create table orders (id integer primary key); begin")
        .unwrap();
    connection
        .execute("insert into orders values (1)", [])
        .unwrap();
    let events = [
        event("a"),
        NewEvent::from(event("a")).queue("nowhere").build().unwrap(),
    ];
    let error = SqliteStore::enqueue_on(&connection, &events).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert!(error.hint().unwrap().contains("tenure queues add nowhere"));
    SqliteStore::enqueue_on(&connection, &[event("b")]).unwrap();
    connection.execute_batch("commit").unwrap();
    assert_eq!(number(&connection, "select count(*) from orders"), 1);
    assert_eq!(number(&connection, "select count(*) from tenure_outbox"), 1);
}

#[tokio::test]
async fn an_enqueue_without_a_transaction_makes_its_own() {
    let bench = Bench::new().await;
    let connection = bench.stranger();
    let events = [
        event("a"),
        NewEvent::from(event("a")).queue("nowhere").build().unwrap(),
    ];
    SqliteStore::enqueue_on(&connection, &events).unwrap_err();
    assert!(connection.is_autocommit());
    assert_eq!(number(&connection, "select count(*) from tenure_events"), 0);
    SqliteStore::enqueue_on(&connection, &[event("a"), event("b")]).unwrap();
    assert!(connection.is_autocommit());
    assert_eq!(number(&connection, "select count(*) from tenure_ready"), 2);
}

#[test]
fn an_enqueue_into_a_file_without_tables_says_so() {
    let connection = Connection::open_in_memory().unwrap();
    let error = SqliteStore::enqueue_on(&connection, &[event("a")]).unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert!(
        error.to_string().contains("tables of Tenure are missing"),
        "{error}"
    );
    assert!(error.hint().unwrap().contains("migrate"));
}

#[tokio::test]
async fn a_repeated_dedupe_key_returns_the_existing_event() {
    let bench = Bench::new().await;
    let unique = |key: &str| NewEvent::from(event("a")).dedupe(key).build().unwrap();
    let first = bench
        .store
        .enqueue(&[unique("x"), event("a"), unique("x")])
        .await
        .unwrap();
    assert!(first[0].is_fresh() && first[1].is_fresh());
    assert_eq!(first[2], Enqueued::Existed { id: first[0].id() });
    let connection = bench.stranger();
    let again = SqliteStore::enqueue_on(&connection, &[unique("y"), unique("x")]).unwrap();
    assert!(again[0].is_fresh());
    assert_eq!(again[1], Enqueued::Existed { id: first[0].id() });
    assert_eq!(number(&connection, "select count(*) from tenure_ready"), 3);
}

/// Proves: S4-002
#[tokio::test]
async fn a_plain_insert_enqueues() {
    let bench = Bench::new().await;
    bench
        .store
        .add_queue(&QueueName::new("mail").unwrap(), QueueRules::default())
        .await
        .unwrap();
    let connection = bench.stranger();
    connection
        .execute(
            "insert into tenure_outbox (topic, payload) values ('order.paid', '{\"a\": 1}')",
            [],
        )
        .unwrap();
    let event_id = Uuid::now_v7();
    connection
        .execute(
            "insert into tenure_outbox
                 (topic, payload, queue, priority, available_at, headers, event_id, encoding)
             values ('order.sent', '\"AAH/\"', 'mail', 7, 1, '{\"trace\":\"abc\"}', ?1, 'base64')",
            [event_id.as_bytes()],
        )
        .unwrap();
    let records = bench
        .store
        .find(&[ItemId::new(1), ItemId::new(2)])
        .await
        .unwrap();
    let first = records[0].content.event().unwrap();
    assert_eq!(
        (first.topic(), first.payload()),
        ("order.paid", "{\"a\": 1}")
    );
    assert_eq!(
        (first.queue().as_str(), first.priority().level()),
        ("default", 0)
    );
    assert_eq!(first.event_id().unwrap().get_version_num(), 4);
    assert_eq!(records[0].state, State::Pending);
    let second = records[1].content.event().unwrap();
    assert_eq!(second.payload_bytes().unwrap(), [0, 1, 255]);
    assert_eq!(
        (second.queue().as_str(), second.priority().level()),
        ("mail", 7)
    );
    assert_eq!(second.event_id(), Some(event_id));
    assert_eq!(second.headers()["trace"], "abc");
    assert_eq!(records[1].available_at.unwrap().as_micros(), 1);
    let mail = Claim::new(token("w", 1), 10).queues(vec![QueueName::new("mail").unwrap()]);
    assert_eq!(
        bench.store.claim(&mail).await.unwrap().unwrap().ids(),
        [ItemId::new(2)]
    );
}

/// Invalid inserts, and their error messages.
const REFUSED: [(&str, &str); 25] = [
    ("(topic, payload) values ('', '1')", "topic is not"),
    ("(topic, payload) values (null, '1')", "topic is not"),
    (
        "(topic, payload) values ('a' || char(10), '1')",
        "topic is not",
    ),
    (
        "(topic, payload) values ('a' || char(0), '1')",
        "topic is not",
    ),
    (
        "(topic, payload) values (replace(hex(zeroblob(128)), '0', 'x'), '1')",
        "topic is not",
    ),
    ("(topic, payload) values ('a', '{')", "payload is not JSON"),
    ("(topic) values ('a')", "payload is not JSON"),
    (
        "(topic, payload) values ('a', x'00')",
        "payload is not JSON",
    ),
    (
        "(topic, payload) values ('a', '\"' || hex(zeroblob(524288)) || '\"')",
        "1 MiB",
    ),
    (
        "(topic, payload, queue) values ('a', '1', 'nowhere')",
        "no such queue",
    ),
    (
        "(topic, payload, priority) values ('a', '1', 8)",
        "priority is not 0 to 7",
    ),
    (
        "(topic, payload, priority) values ('a', '1', -1)",
        "priority is not 0 to 7",
    ),
    (
        "(topic, payload, priority) values ('a', '1', 'x')",
        "priority is not 0 to 7",
    ),
    (
        "(topic, payload, available_at) values ('a', '1', 'soon')",
        "available_at is not",
    ),
    (
        r#"(topic, payload) values ('a', '{"a": ["\u0000"]}')"#,
        r"the escape \u0000",
    ),
    (
        r#"(topic, payload) values ('a', '{"\u0000": 1}')"#,
        r"the escape \u0000",
    ),
    (
        "(topic, payload, headers) values ('a', '1', '[]')",
        "headers is not a JSON object",
    ),
    (
        "(topic, payload, headers) values ('a', '1', '{\"a\":1}')",
        "headers is not 16 KiB",
    ),
    (
        "(topic, payload, headers) values ('a', '1', '{\"a b\":\"c\"}')",
        "headers is not 16 KiB",
    ),
    (
        "(topic, payload, event_id) values ('a', '1', 'x')",
        "event_id is not",
    ),
    (
        "(topic, payload, encoding) values ('a', '\"x\"', 'gzip')",
        "encoding is neither",
    ),
    (
        "(topic, payload, encoding) values ('a', '{}', 'base64')",
        "encoding is neither",
    ),
    (
        "(topic, payload, ordering_key) values ('a', '1', '')",
        "ordering key is not 1 to 255 bytes",
    ),
    (
        "(topic, payload, ordering_key) values ('a', '1', 'k' || char(9))",
        "ordering key is not 1 to 255 bytes",
    ),
    (
        "(topic, payload, ordering_key) values ('a', '1', 7)",
        "ordering key is not 1 to 255 bytes",
    ),
];

#[tokio::test]
async fn an_invalid_plain_insert_says_why() {
    let bench = Bench::new().await;
    let connection = bench.stranger();
    for (insert, expected) in REFUSED {
        let error = connection
            .execute(&format!("insert into tenure_outbox {insert}"), [])
            .expect_err(insert)
            .to_string();
        assert!(
            error.contains(expected),
            "{insert}: {error:?} does not say {expected:?}"
        );
    }
    assert_eq!(number(&connection, "select count(*) from tenure_events"), 0);
    let backslash = r#"insert into tenure_outbox (topic, payload) values ('a', '"\\u0000"')"#;
    connection.execute(backslash, []).unwrap();
}

/// Proves: S4-003, S4-013, S4-014, S4-018, S4-024, S4-025, S4-030, S4-031
#[tokio::test]
async fn the_view_shows_each_state_in_its_words() {
    let bench = Bench::new().await;
    bench.store.enqueue(&vec![event("a"); 4]).await.unwrap();
    let held = bench
        .store
        .claim(&Claim::new(token("w", 1), 3))
        .await
        .unwrap()
        .unwrap();
    let dead = Outcome::Dead {
        reason: "rejected".into(),
        error: "404".into(),
    };
    let settle = tenure_core::store::Settle::new(token("w", 1))
        .item(held.ids()[0], Outcome::Done)
        .item(held.ids()[1], dead);
    assert_eq!(
        bench.store.settle(&settle).await.unwrap().refused().count(),
        0
    );
    let connection = bench.stranger();
    let text = |columns: &str| -> Vec<String> {
        let sql = format!("select concat_ws(' ', {columns}) from tenure_outbox order by id");
        let mut statement = connection.prepare(&sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    assert_eq!(
        text("status, claimed_by, fence, attempts, last_error, dead_reason"),
        [
            "PUBLISHED 0".to_owned(),
            "DEAD 1 404 rejected".to_owned(),
            "CLAIMED w-0000000000000001 1 0".to_owned(),
            "PENDING 0".to_owned(),
        ]
    );
    assert_eq!(
        text("claimed_at is null, locked_until is null, published_at is null, dead_at is null"),
        ["1 1 0 1", "1 1 1 0", "0 0 1 1", "1 1 1 1"]
    );
    let columns: Vec<String> = {
        let statement = connection.prepare("select * from tenure_outbox").unwrap();
        statement
            .column_names()
            .into_iter()
            .map(str::to_owned)
            .collect()
    };
    assert!(
        columns.iter().all(|column| !column.contains("token")),
        "{columns:?}"
    );
}

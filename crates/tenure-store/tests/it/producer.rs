//! Producers on PostgreSQL: events written in another program's transaction, from Rust, by the SQL
//! function and by a plain insert; and the errors for invalid input.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection, Row};
use tenure_core::store::{
    Bury, Claim, Enqueued, Filter, Intake, LeaseStore, Operate, QueueRules, Queues, Settle,
    StoreErrorKind,
};
use tenure_core::testing::token;
use tenure_core::{Event, Identifier, ItemId, NewEvent, Outcome, QueueName, Record, State};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database, Server};

async fn opened(database: &Database, config: StoreConfig) -> PostgresStore {
    PostgresStore::migrate(&database.url, &config)
        .await
        .unwrap();
    PostgresStore::open(&database.url, &config).await.unwrap()
}

async fn store() -> (Database, PostgresStore) {
    let database = testing::migrated().await;
    let store = opened(&database, StoreConfig::default()).await;
    (database, store)
}

fn event(topic: &str) -> Event {
    Event::new(topic, &serde_json::json!({"order": 7})).unwrap()
}

async fn topics(store: &PostgresStore) -> BTreeSet<String> {
    let page = store.list(&Filter::default(), 1000).await.unwrap();
    let events = page
        .records
        .iter()
        .filter_map(|record| record.content.event());
    events.map(|event| event.topic().to_owned()).collect()
}

async fn ask(conn: &mut PgConnection, text: &str) -> Result<i64, sqlx::Error> {
    sqlx::query(AssertSqlSafe(text))
        .fetch_one(conn)
        .await?
        .try_get(0)
}

/// Proves: S4-002, S4-058
#[tokio::test]
async fn an_event_exists_if_and_only_if_the_callers_transaction_commits() {
    let (database, store) = store().await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    sqlx::query("create table orders (id int)")
        .execute(&mut conn)
        .await
        .unwrap();
    for (topic, is_kept) in [("order.kept", true), ("order.undone", false)] {
        let mut tx = conn.begin().await.unwrap();
        sqlx::query("insert into orders values (7)")
            .execute(&mut *tx)
            .await
            .unwrap();
        store
            .enqueue_on(&mut tx, &[event(topic), event(topic)])
            .await
            .unwrap();
        assert!(
            store
                .claim(&Claim::new(token("early", 1), 10))
                .await
                .unwrap()
                .is_none()
        );
        if is_kept {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }
        if is_kept {
            let held = store
                .claim(&Claim::new(token("w", 1), 10))
                .await
                .unwrap()
                .unwrap();
            assert_eq!(held.items.len(), 2);
        }
    }
    assert_eq!(
        ask(&mut conn, "select count(*) from orders").await.unwrap(),
        1
    );
    assert_eq!(
        topics(&store).await,
        BTreeSet::from(["order.kept".to_owned()])
    );
}

#[tokio::test]
async fn a_plain_insert_is_an_event_like_any_other() {
    let (database, store) = store().await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    store
        .add_queue(&QueueName::new("mail").unwrap(), QueueRules::default())
        .await
        .unwrap();
    let plain =
        "insert into tenure_outbox (topic, payload) values ('a.b', '{ \"x\": 1 }') returning id";
    let id = ask(&mut conn, plain).await.unwrap();
    let rich = "insert into tenure_outbox (topic, payload, queue, priority, headers, available_at) \
                values ('a.c', '[1]', 'mail', 5, '{\"trace\": \"t\"}', '2000-01-01') returning id";
    let other = ask(&mut conn, rich).await.unwrap();
    let records = store
        .find(&[ItemId::new(id), ItemId::new(other)])
        .await
        .unwrap();
    assert_eq!(records.len(), 2);
    let first = records[0].content.event().unwrap();
    assert_eq!((first.topic(), first.payload()), ("a.b", "{ \"x\": 1 }"));
    assert_eq!(records[0].state, State::Pending);
    let second = records[1].content.event().unwrap();
    assert_eq!(
        (second.queue().as_str(), second.priority().level()),
        ("mail", 5)
    );
    assert_eq!(second.headers().get("trace").map(String::as_str), Some("t"));
    let mail = vec![QueueName::new("mail").unwrap()];
    let held = store
        .claim(&Claim::new(token("w", 1), 10).queues(mail))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(held.ids(), [ItemId::new(other)]);
}

#[tokio::test]
async fn the_function_enqueues_one_event_per_dedupe_key() {
    let (database, store) = store().await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let call = "select tenure_enqueue('a.b', '1', options => \
                '{\"dedupe\": \"k\", \"delay\": \"1 hour\", \"priority\": 3}')";
    let id = ask(&mut conn, call).await.unwrap();
    assert_eq!(ask(&mut conn, call).await.unwrap(), id);
    let again = store
        .enqueue(&[NewEvent::from(event("a.b")).dedupe("k").build().unwrap()])
        .await
        .unwrap();
    assert_eq!(
        again,
        [Enqueued::Existed {
            id: ItemId::new(id)
        }]
    );
    assert!(
        store
            .claim(&Claim::new(token("w", 1), 10))
            .await
            .unwrap()
            .is_none(),
        "it is delayed"
    );
    let records = store.find(&[ItemId::new(id)]).await.unwrap();
    let waits = records[0]
        .available_at
        .unwrap()
        .since(records[0].created_at);
    assert_eq!(waits, Duration::from_hours(1));
}

/// Mistakes of a producer in SQL, each with its error message.
const TOLD: [(&str, &str); 25] = [
    ("tenure_enqueue('', '1')", "topic is empty"),
    ("tenure_enqueue(repeat('x', 256), '1')", "256 bytes long"),
    (r"tenure_enqueue(E'a\nb', '1')", "control character"),
    ("tenure_enqueue('t', null)", "payload is null"),
    (
        "tenure_enqueue('t', '{')",
        "invalid input syntax for type json",
    ),
    (
        "tenure_enqueue('t', to_json(repeat('x', 10485760)))",
        "at most 1048576 bytes",
    ),
    (
        r#"tenure_enqueue('t', '{"a": "\\\u0000"}')"#,
        r"text with the escape \u0000",
    ),
    (
        r#"tenure_enqueue('t', '{"\u0000": 1}'::json)"#,
        r"text with the escape \u0000",
    ),
    (
        r#"tenure_outbox (topic, payload) values ('t', '"\u0000"')"#,
        r"text with the escape \u0000",
    ),
    (
        r#"tenure_outbox (topic, payload, headers) values ('t', '1', '{"a": "\u0000"}')"#,
        "headers has a value",
    ),
    (
        r#"tenure_enqueue('t', '"\ud800"')"#,
        "invalid input syntax for type json",
    ),
    ("tenure_enqueue('t', '1', '')", "ordering key is empty"),
    (
        r#"tenure_enqueue('t', '1', null, '{"queue": "x"}')"#,
        "no queue 'x'",
    ),
    (
        r#"tenure_enqueue('t', '1', null, '{"dely": 1}')"#,
        "no option 'dely'",
    ),
    (
        r#"tenure_enqueue('t', '1', null, '{"delay": "-1 s"}')"#,
        "delay is -1 s",
    ),
    (
        r#"tenure_enqueue('t', '1', null, '{"delay": "90 years"}')"#,
        "zero to ten years",
    ),
    (
        r#"tenure_enqueue('t', '1', null, '{"priority": 8}')"#,
        "priority is 8",
    ),
    (
        r#"tenure_enqueue('t', '1', null, '{"headers": [1]}')"#,
        "headers is a JSON array",
    ),
    (
        r#"tenure_enqueue('t', '1', null, '{"headers": {"a": 1}}')"#,
        "not a string",
    ),
    (
        r#"tenure_enqueue('t', '1', null, '{"dedupe": ""}')"#,
        "dedupe key is 0 bytes",
    ),
    (
        "tenure_outbox (topic, payload) values ('', '1')",
        "topic is empty",
    ),
    (
        "tenure_outbox (topic, payload) values ('t', null)",
        "payload is null",
    ),
    (
        "tenure_outbox (topic, payload, queue) values ('t', '1', 'x')",
        "no queue 'x'",
    ),
    (
        "tenure_outbox (topic, payload, ordering_key) values ('t', '1', repeat('x', 256))",
        "ordering key is 256 bytes long",
    ),
    (
        "tenure_outbox (topic, payload, ordering_key) values ('t', '1', '')",
        "ordering key is empty",
    ),
];

/// Nothing is written.
#[tokio::test]
async fn an_invalid_event_in_sql_gets_a_readable_error() {
    let (database, store) = store().await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    for (text, expected) in TOLD {
        let verb = if text.starts_with("tenure_outbox") {
            "insert into"
        } else {
            "select"
        };
        let answer = ask(&mut conn, &format!("{verb} {text}")).await;
        let error = answer.expect_err(expected).to_string();
        assert!(
            error.contains(expected),
            "{error:?} does not say {expected:?}"
        );
    }
    assert!(topics(&store).await.is_empty());
}

/// Calls as people write them. Each finds exactly one of the functions, and none is ambiguous.
const CALLS: [&str; 15] = [
    "'order.paid', '{\"a\": 1}'",
    "'order.paid', '{\"a\": 1}', 'k'",
    "'order.paid', '{\"a\": 1}', null, '{\"priority\": 1}'",
    "topic => 'order.paid', payload => '{\"a\": 1}', options => '{\"priority\": 1}'",
    "'order.paid', '{\"a\": 1}', key => 'k', options => jsonb_build_object('priority', 1)",
    "'order.paid', jsonb_build_object('a', 1)",
    "'order.paid', jsonb_build_object('a', 1), 'k', '{\"priority\": 1}'",
    "topic => 'order.paid', payload => '{\"a\": 1}'::jsonb",
    "'order.paid', to_jsonb(o), options => jsonb_build_object('priority', 1)",
    "'order.paid', row_to_json(o), key => 'k'",
    "'order.paid', json_build_object('a', 1), options => '{\"priority\": 1}'",
    "'order.paid', json_build_object('a', 1), 'k', json_build_object('priority', 1)",
    "'order.paid', ('{\"a\": ' || o.a || '}')::text",
    "'order.paid', ('{\"a\": ' || o.a || '}')::varchar, 'k', '{\"priority\": 1}'",
    r#"'order.paid', '{"a": 1, "b": "\\u0000 \u00e9 \ud83d\ude00"}'"#,
];

#[tokio::test]
async fn a_payload_is_json_or_jsonb_or_text_and_is_read_as_jsonb() {
    let (database, _store) = store().await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    for call in CALLS {
        let text = format!("select tenure_enqueue({call}) from (select 1 as a) as o");
        let answer = ask(&mut conn, &text).await;
        assert!(answer.is_ok(), "{call}: {answer:?}");
    }
    // A driver that does not name the types of its parameters.
    for prepared in [
        "prepare p as select tenure_enqueue($1, $2, $3, $4)",
        "prepare q(text, jsonb) as select tenure_enqueue($1, $2, options => $3)",
        "execute p('order.paid', '{\"a\": 1}', 'k', '{}')",
        "execute q('order.paid', '{\"a\": 1}', '{\"priority\": 1}')",
        "insert into tenure_outbox (topic, payload_jsonb) values ('order.paid', '{\"a\": 1}')",
    ] {
        let answer = sqlx::raw_sql(prepared).execute(&mut conn).await;
        assert!(answer.is_ok(), "{prepared}: {answer:?}");
    }
    let read = "select count(*) from tenure_outbox where payload_jsonb @> '{\"a\": 1}'";
    let number = i64::try_from(CALLS.len()).unwrap() + 3;
    assert_eq!(ask(&mut conn, read).await.unwrap(), number);
}

/// Two overlapping producers use the same dedupe keys in opposite order. Each key has one winner,
/// both producers get the same answer, and there is no deadlock.
#[tokio::test]
async fn concurrent_producers_agree_on_the_event_of_a_dedupe_key() {
    let (_database, store) = store().await;
    let keyed = |key: &str| NewEvent::from(event("t")).dedupe(key).build().unwrap();
    for round in 0..20 {
        let (one, other) = (format!("a{round}"), format!("b{round}"));
        let (ahead, back) = ([keyed(&one), keyed(&other)], [keyed(&other), keyed(&one)]);
        let (ahead, back) = tokio::join!(store.enqueue(&ahead), store.enqueue(&back));
        let (ahead, back) = (ahead.unwrap(), back.unwrap());
        assert_eq!((ahead[0].id(), ahead[1].id()), (back[1].id(), back[0].id()));
        assert_ne!(ahead[0].is_fresh(), back[1].is_fresh());
        assert_ne!(ahead[1].is_fresh(), back[0].is_fresh());
    }
}

/// A record in the form of the view.
fn in_the_views_words(record: &Record) -> String {
    let status = match record.state {
        State::Pending => "PENDING",
        State::Claimed => "CLAIMED",
        State::Done => "PUBLISHED",
        State::Dead => "DEAD",
    };
    let (counters, hold) = (record.counters, record.hold.as_ref());
    let said = |text: Option<&str>| text.unwrap_or("-").to_owned();
    let yes = |is: bool| if is { "t" } else { "f" }.to_owned();
    let words = [
        status.to_owned(),
        counters.attempts.to_string(),
        counters.failures.to_string(),
        counters.crashes.to_string(),
        said(record.last_error.as_deref()),
        said(hold.map(|hold| hold.holder.as_str())),
        said(record.dead_reason.as_deref()),
        hold.map_or("-".to_owned(), |hold| hold.fence.to_string()),
        yes(record.done_at.is_some()),
        yes(record.dead_at.is_some()),
        record.available_at.unwrap().as_micros().to_string(),
    ];
    words.join(" ")
}

/// The view is for people and `find` is for programs; both must agree on every item.
#[tokio::test]
async fn the_view_and_find_agree() {
    let (database, store) = store().await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let events: Vec<Event> = (0..10).map(|n| event(&format!("t.{n}"))).collect();
    let ids: Vec<ItemId> = store
        .enqueue(&events)
        .await
        .unwrap()
        .into_iter()
        .map(Enqueued::id)
        .collect();
    let held = store
        .claim(&Claim::new(token("w", 1), 8))
        .await
        .unwrap()
        .unwrap();
    let settle = Settle::new(held.lease.token)
        .done([ids[0], ids[1]])
        .item(
            ids[2],
            Outcome::Retry {
                after: Duration::from_secs(9),
                error: "e".into(),
            },
        )
        .item(
            ids[3],
            Outcome::Dead {
                reason: "failed".into(),
                error: "e".into(),
            },
        );
    assert_eq!(store.settle(&settle).await.unwrap().refused().count(), 0);
    let bury = Bury {
        id: ids[9],
        token: token("op", 1),
        reason: "why".into(),
        now: None,
    };
    assert!(store.bury(&bury).await.unwrap().is_accepted());
    let records = store.find(&ids).await.unwrap();
    for record in &records {
        let text = "select concat_ws(' ', status, attempts, failures, crashes, \
                    coalesce(last_error, '-'), coalesce(claimed_by, '-'), \
                    coalesce(dead_reason, '-'), coalesce(fence::text, '-'), \
                    published_at is not null, dead_at is not null, \
                    (extract(epoch from available_at) * 1000000)::bigint) \
                    from tenure_outbox where id = $1";
        let row = sqlx::query(text).bind(record.id.number());
        let row = row.fetch_one(&mut conn).await.unwrap();
        assert_eq!(row.get::<String, _>(0), in_the_views_words(record));
    }
    let states: BTreeSet<State> = records.iter().map(|record| record.state).collect();
    assert_eq!(states.len(), 4, "the example has every state");
}

#[tokio::test]
async fn the_tables_can_be_in_a_separate_schema() {
    let database = testing::postgres().await;
    let schema = Some(Identifier::new("work").unwrap());
    let store = opened(
        &database,
        StoreConfig {
            schema,
            ..StoreConfig::default()
        },
    )
    .await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    ask(&mut conn, "select work.tenure_enqueue('a.b', '1')")
        .await
        .unwrap();
    sqlx::query("insert into work.tenure_outbox (topic, payload) values ('a.c', '2')")
        .execute(&mut conn)
        .await
        .unwrap();
    store.enqueue_on(&mut conn, &[event("a.d")]).await.unwrap();
    let held = store
        .claim(&Claim::new(token("w", 1), 10))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(held.items.len(), 3);
    let settle = Settle::new(held.lease.token.clone()).done(held.ids());
    assert_eq!(store.settle(&settle).await.unwrap().refused().count(), 0);
    let strays = "select count(*) from pg_tables where schemaname = 'public'";
    assert_eq!(ask(&mut conn, strays).await.unwrap(), 0);
}

/// Proves: S1-052
#[tokio::test]
async fn connections_are_shared_and_never_more_than_allowed() {
    let database = testing::migrated().await;
    let config = StoreConfig {
        connections: 3,
        ..StoreConfig::default()
    };
    let store = opened(&database, config).await;
    let claims = (0..50).map(|n| Claim::new(token("w", n), 1));
    let claims: Vec<Claim> = claims.collect();
    let mut waiting = tokio::task::JoinSet::new();
    let store = std::sync::Arc::new(store);
    for claim in claims {
        let store = std::sync::Arc::clone(&store);
        waiting.spawn(async move { store.claim(&claim).await.map(drop) });
    }
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let count = "select count(*) from pg_stat_activity \
                 where application_name = 'tenure' and datname = current_database()";
    let mut most = 0;
    while let Some(done) = waiting.join_next().await {
        done.unwrap().unwrap();
        most = most.max(ask(&mut conn, count).await.unwrap());
    }
    assert!((1..=3).contains(&most), "{most} connections");
}

/// The file of the table's long values is replaced by a full device. Events that were enqueued
/// before stay, others get an error, and enqueues succeed again when there is space.
#[tokio::test]
async fn on_a_full_disk_an_enqueue_fails_and_no_event_is_lost() {
    let server = Server::start_fast().await;
    let database = server.database().await;
    let store = opened(&database, StoreConfig::default()).await;
    store.enqueue(&[event("small.before")]).await.unwrap();
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let path = "select current_setting('data_directory') || '/' \
                || pg_relation_filepath(reltoastrelid) \
                from pg_class where relname = 'tenure_events'";
    let row = sqlx::query(path).fetch_one(&mut conn).await.unwrap();
    let file = PathBuf::from(row.get::<String, _>(0));
    assert_eq!(
        fs::metadata(&file).unwrap().len(),
        0,
        "no long value was stored yet"
    );
    fs::remove_file(&file).unwrap();
    symlink("/dev/full", &file).unwrap();

    // The payload is random, so that the database cannot compress it to a short value.
    let digits: Vec<u64> = (0..100_000).map(|n| n * n * 7919 % 65_537).collect();
    let long = Event::new("long", &digits).unwrap();
    let fresh = PostgresStore::open(&database.url, &StoreConfig::default())
        .await
        .unwrap();
    let error = fresh
        .enqueue(&[event("small.beside"), long.clone()])
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unavailable);
    assert!(error.hint().unwrap().contains("disk"), "{error}");
    fresh.enqueue(&[event("small.after")]).await.unwrap();

    fs::remove_file(&file).unwrap();
    fs::File::create(&file).unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    let fresh = PostgresStore::open(&database.url, &StoreConfig::default())
        .await
        .unwrap();
    fresh.enqueue(&[long]).await.unwrap();
    let expected = ["long", "small.after", "small.before"].map(str::to_owned);
    assert_eq!(topics(&fresh).await, BTreeSet::from(expected));
    let held = fresh
        .claim(&Claim::new(token("w", 1), 10))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(held.items.len(), 3);
}

/// A database error may quote the row; the error for the caller must not.
#[tokio::test]
async fn errors_do_not_contain_the_token() {
    let (_database, store) = store().await;
    store.enqueue(&[event("t"), event("t")]).await.unwrap();
    let claim = Claim::new(token("w", 77), 1);
    store.claim(&claim).await.unwrap().unwrap();
    let error = store.claim(&claim).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Conflict);
    let secret = claim.token.expose().rsplit_once('.').unwrap().1;
    assert!(!format!("{error:?} {error}").contains(secret));
}

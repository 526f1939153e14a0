//! Unusual requests and untrusted input get the same answer from every store and break no rule.

use std::time::Duration;

use sqlx::{Connection, PgConnection, Row};
use tenure_core::store::{
    Claim, Enqueued, Filter, Intake, LeaseStore, Operate, Renew, Replay, Rest, Settle, StoreError,
};
use tenure_core::{Event, Guarded, ItemId, NewEvent, Outcome, QueueName, Refusal, State, Term};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database};

use crate::world::{
    T0, World, at, at_once, fresh, memory, postgres_outbox, postgres_queue, sqlite_outbox,
    sqlite_queue,
};

/// A world, with the name for messages.
type Named = (&'static str, Box<dyn World>);

async fn outboxes() -> Vec<Named> {
    vec![
        ("memory", memory().await),
        ("sqlite", sqlite_queue().await),
        ("postgres", postgres_queue().await),
    ]
}

async fn all() -> Vec<Named> {
    let mut all = outboxes().await;
    all.push(("sqlite rows", sqlite_outbox().await));
    all.push(("postgres rows", postgres_outbox().await));
    all
}

async fn store() -> (Database, PostgresStore) {
    let database = testing::migrated().await;
    let config = StoreConfig {
        connections: 2,
        ..StoreConfig::default()
    };
    let store = PostgresStore::open(&database.url, &config).await.unwrap();
    (database, store)
}

/// A statement that read a lane twice would return each of its items twice.
#[tokio::test]
async fn a_queue_that_is_named_twice_is_read_once() {
    for (name, world) in outboxes().await {
        let ids = world.add(3).await;
        let claim = Claim::new(fresh("w"), 10)
            .queues(vec![QueueName::default(), QueueName::default()])
            .recovery(None)
            .at(at(100));
        let held = world.try_claim(claim).await.unwrap();
        assert_eq!(held.ids(), ids, "{name}");
    }
}

#[tokio::test]
async fn an_item_that_is_named_twice_is_replayed_once() {
    for (name, world) in all().await {
        for state in [State::Dead, State::Done] {
            let id = world.item_by(&fresh("w"), state).await;
            let replay = Replay {
                ids: vec![id, id],
                now: Some(at(5)),
            };
            let answers = world.operate().replay(&replay).await;
            let answers = answers.unwrap_or_else(|error| panic!("{name}: {error}"));
            let expected = [
                (id, Guarded::Accepted(())),
                (id, Guarded::Refused(Refusal::NotSettled)),
            ];
            assert_eq!(answers, expected, "{name}, {state:?}");
            assert_eq!(world.counters(id).await.generation, 1, "{name}");
            world.tidy(at(100)).await;
        }
    }
}

#[tokio::test]
async fn an_item_that_is_requested_twice_is_returned_twice() {
    for (name, world) in all().await {
        for state in [State::Claimed, State::Done, State::Dead, State::Pending] {
            let id = world.item_by(&fresh("w"), state).await;
            let found = world.operate().find(&[id, id]).await.unwrap();
            assert_eq!(found.len(), 2, "{name}, {state:?}");
        }
    }
}

#[tokio::test]
async fn a_list_with_a_limit_of_zero_is_empty() {
    for (name, world) in all().await {
        world.add(2).await;
        let page = world.operate().list(&Filter::default(), 0).await.unwrap();
        assert_eq!((page.records.len(), page.next), (0, None), "{name}");
    }
}

/// A receiver may send any `Retry-After`. If a long one made the settle fail, the whole batch would
/// fail repeatedly until its lease lapses.
#[tokio::test]
async fn the_longest_delay_is_accepted() {
    let retry = Outcome::Retry {
        after: Duration::MAX,
        error: "429".into(),
    };
    let release = Outcome::Release {
        after: Duration::MAX,
    };
    for (name, world) in all().await {
        for outcome in [&retry, &release] {
            let (holder, id) = world.item_in_fresh_lease().await;
            let settle = Settle::new(holder).item(id, outcome.clone()).at(at(1));
            let answer = world.lease().settle(&settle).await;
            let answer = answer.unwrap_or_else(|error| panic!("{name}: {error}"));
            assert!(answer.items[0].1.is_accepted(), "{name}");
            let record = world.record(id).await;
            assert_eq!(record.state, State::Pending, "{name}");
            let a_century = T0.after(Duration::from_hours(24 * 36_500));
            assert!(record.available_at > Some(a_century), "{name}");
        }
    }
}

#[tokio::test]
async fn ids_at_the_ends_of_their_range_are_not_found() {
    for (name, world) in all().await {
        let (holder, _) = world.item_in_fresh_lease().await;
        for id in [i64::MIN, -1, 0, i64::MAX].map(ItemId::new) {
            let not_found = Guarded::Refused(Refusal::NotFound);
            let answer = world.settle_one(&holder, id, Outcome::Done, at(1)).await;
            assert_eq!(answer, not_found, "{name}, {id}");
            assert_eq!(world.replay(id, at(1)).await, not_found, "{name}, {id}");
            assert_eq!(world.bury(id, 1, at(1)).await, not_found, "{name}, {id}");
            assert!(world.operate().timeline(id).await.unwrap().is_empty());
        }
    }
}

#[tokio::test]
async fn two_events_with_the_same_event_id_get_different_ids() {
    for (name, world) in outboxes().await {
        let event = NewEvent::from_json("t", "1").event_id(uuid::Uuid::from_u128(7));
        let unique = event.clone().dedupe("k").build().unwrap();
        let event = event.build().unwrap();
        for batch in [[event.clone(), event.clone()], [event, unique]] {
            let outbox = world.outbox().unwrap();
            let answers = outbox.enqueue(&batch).await.unwrap();
            let ids: Vec<ItemId> = answers.into_iter().map(Enqueued::id).collect();
            assert!(ids[0] < ids[1], "{name}: {ids:?}");
        }
    }
}

/// A plain insert may carry any time, so a claim searches from the earliest one.
#[tokio::test]
async fn an_event_of_long_ago_is_claimed() {
    let (database, store) = store().await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    for long_ago in ["1960-01-01", "4713-01-01 BC", "-infinity"] {
        let insert = "insert into tenure_outbox (topic, payload, available_at)
                      values ('t', '1', $1::text::timestamptz)";
        let query = sqlx::query(insert).bind(long_ago);
        query.execute(&mut conn).await.unwrap();
        let held = store.claim(&Claim::new(fresh("w"), 10)).await.unwrap();
        assert!(held.is_some(), "{long_ago}");
    }
}

/// If the reap after a claim fails, the claim still returns its items. Otherwise they would wait
/// until their lease lapses, which would count as a crash.
#[tokio::test]
async fn a_short_claim_returns_its_items_although_its_reap_fails() {
    let (database, store) = store().await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let fail = "create function fail() returns trigger language plpgsql as
                $$ begin raise exception 'a planted fault'; end $$;
                create trigger fail before insert on tenure_settled
                for each row execute function fail()";
    sqlx::raw_sql(fail).execute(&mut conn).await.unwrap();
    let event = Event::from_json("t", "1").unwrap();
    store.enqueue(std::slice::from_ref(&event)).await.unwrap();
    let lapsed = Claim::new(fresh("w"), 1).at(T0.before(Duration::from_hours(1)));
    assert!(store.claim(&lapsed).await.unwrap().is_some());
    store.enqueue(&[event]).await.unwrap();
    let short = Claim::new(fresh("w"), 10).recovery(Some(at_once())).at(T0);
    let held = store.claim(&short).await.unwrap().unwrap();
    assert_eq!(held.items.len(), 1);
    // The server reports an error before it releases the locks of the transaction, and a reap skips
    // locked rows. So the test waits for the locks.
    let unlocked = sqlx::query("select from tenure_leases for update");
    unlocked.execute(&mut conn).await.unwrap();
    // A claim without items returns the error of the reap.
    let empty = Claim::new(fresh("w"), 10).recovery(Some(at_once())).at(T0);
    assert!(store.claim(&empty).await.is_err());
}

/// The test drops a claim after any number of polls. Once the connection of the claim is closed,
/// the claim has either taken effect or never will: no later user of a connection sends it.
#[tokio::test]
async fn a_dropped_claim_is_not_sent_later() {
    let (database, store) = store().await;
    let mut watcher = PgConnection::connect(&database.url).await.unwrap();
    let backends = "select count(*) from pg_stat_activity \
                    where application_name = 'tenure' and datname = current_database()";
    let event = Event::from_json("t", "1").unwrap();
    for polls in (0..300).map(|round| round % 5) {
        store.enqueue(std::slice::from_ref(&event)).await.unwrap();
        let token = fresh("w");
        let claim = Claim::new(token.clone(), 1).recovery(None);
        let mut given_up = store.claim(&claim);
        for _ in 0..polls {
            let is_answered = tokio::select! {
                biased;
                _ = &mut given_up => true,
                () = std::future::ready(()) => false,
            };
            if is_answered {
                break;
            }
            tokio::task::yield_now().await;
        }
        let before = store.pool().size();
        drop(given_up);
        // A closed connection may have sent the claim, so the test waits until its backend is gone.
        let mut is_gone = store.pool().size() == before;
        while !is_gone {
            let row = sqlx::query(backends).fetch_one(&mut watcher).await;
            is_gone = row.unwrap().get::<i64, _>(0) == i64::from(store.pool().size());
        }
        let release = Settle::new(token.clone()).rest(Rest::Release);
        assert!(store.settle(&release).await.unwrap().rest <= 1);
        let (one, other) = tokio::join!(store.count(None), store.count(None));
        assert_eq!(one.unwrap().claimed + other.unwrap().claimed, 0);
        let renew = Renew::new(vec![token], Term::STANDARD);
        let answer = &store.renew(&renew).await.unwrap()[0].1;
        assert_eq!(
            *answer,
            Guarded::Refused(Refusal::Lost),
            "after {polls} polls"
        );
    }
}

#[tokio::test]
async fn errors_and_debug_texts_do_not_contain_the_password() {
    let (database, _store) = store().await;
    let url = database.url.replace("postgres@", "postgres:hunter2@");
    let store = PostgresStore::open(&url, &StoreConfig::default()).await;
    assert!(!format!("{store:?}").contains("hunter2"));
    for bad in [
        "postgres://u:hunter2@127.0.0.1:1/x",
        "postgres://u:hunter2@[",
        "postgres://u:hunter2@h:99999/x",
        "postgres://u:hunter2@h/x?sslmode=hunter2",
    ] {
        let error = PostgresStore::open(bad, &StoreConfig::default()).await;
        let text = whole(&error.unwrap_err());
        assert!(!text.contains("hunter2"), "{text}");
    }
}

/// A reused token violates a constraint, and the database's message quotes the token.
#[tokio::test]
async fn errors_and_debug_texts_contain_neither_token_nor_payload() {
    let (_database, store) = store().await;
    let event = Event::from_json("t", "\"canary\"").unwrap();
    store.enqueue(&[event.clone(), event]).await.unwrap();
    let claim = Claim::new(fresh("w"), 1);
    let held = store.claim(&claim).await.unwrap().unwrap();
    let text = whole(&store.claim(&claim).await.unwrap_err());
    let secret = claim.token.expose().rsplit('.').next().unwrap();
    let renew = Renew::new(vec![claim.token.clone()], Term::STANDARD);
    for text in [text, format!("{claim:?} {held:?} {renew:?}")] {
        assert!(!text.contains(secret) && !text.contains("canary"), "{text}");
    }
}

/// Formats an error with all its causes, in both forms.
fn whole(error: &StoreError) -> String {
    let mut texts = Vec::new();
    let mut next: Option<&dyn std::error::Error> = Some(error);
    while let Some(cause) = next {
        texts.push(format!("{cause:?} {cause}"));
        next = cause.source();
    }
    texts.join(" ")
}

/// If another role has applied the migrations, this role needs no right to change the schema.
#[tokio::test]
async fn a_role_without_rights_to_change_it_can_migrate_a_current_schema() {
    let database = testing::postgres().await;
    let config = StoreConfig::default();
    let mut admin = PgConnection::connect(&database.url).await.unwrap();
    let role = "do $$ begin
                    if not exists (select from pg_roles where rolname = 'tenure_clerk') then
                        create role tenure_clerk;
                    end if;
                end $$;
                revoke create on schema public from public;";
    sqlx::raw_sql(role).execute(&mut admin).await.unwrap();
    let sign = if database.url.contains('?') { '&' } else { '?' };
    let clerk = format!("{}{sign}options[role]=tenure_clerk", database.url);
    let refused = PostgresStore::migrate(&clerk, &config).await.unwrap_err();
    assert!(
        refused.to_string().contains("permission denied"),
        "{refused}"
    );
    PostgresStore::migrate(&database.url, &config)
        .await
        .unwrap();
    let rights = "grant select on tenure_migrations to tenure_clerk";
    sqlx::raw_sql(rights).execute(&mut admin).await.unwrap();
    let migrated = PostgresStore::migrate(&clerk, &config).await.unwrap();
    assert!(!migrated.is_changed(), "{migrated:?}");
}

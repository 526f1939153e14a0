//! Concurrent webhooks on PostgreSQL: two settles at once, endpoints that change during a settle,
//! aborted transactions, pruners that race for one event; and the view of deliveries.

use std::sync::Arc;
use std::time::Duration;

use sqlx::{AssertSqlSafe, PgPool};
use tenure_core::store::{
    Claim, Enqueued, Filter, Intake, Kind, LeaseStore, Operate, Prune, Pruner, Settle, Webhooks,
};
use tenure_core::webhook::{
    AttemptOutcome, Call, EndpointId, EndpointSettings, NewEndpoint, Reply,
};
use tenure_core::{Event, Held, ItemId, NewEvent, Outcome, State, TopicPattern};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database};

use crate::arena::{Arena, First, Waits};
use crate::faults::{Plant as _, Planted};
use crate::planted::planted;
use crate::world::{dead, fresh, retry};

const USUAL: u8 = 7;

async fn open(database: &Database) -> PostgresStore {
    let config = StoreConfig {
        connections: 2,
        ..StoreConfig::default()
    };
    PostgresStore::open(&database.url, &config).await.unwrap()
}

/// Adds an endpoint for all topics; returns its number.
async fn add(store: &PostgresStore, name: &str) -> u32 {
    let new = NewEndpoint {
        id: EndpointId::new(name).unwrap(),
        settings: EndpointSettings::new("https://example.com", vec![TopicPattern::any()]),
        sealed: String::new(),
    };
    let added = store.add_endpoint(&new, None).await.unwrap();
    added.unwrap().number
}

async fn enqueue(store: &PostgresStore, n: usize) -> Vec<ItemId> {
    let events = vec![Event::from_json("order.paid", "1").unwrap(); n];
    let answers = store.enqueue(&events).await.unwrap();
    answers.into_iter().map(Enqueued::id).collect()
}

async fn claim(store: &PostgresStore, limit: u32) -> Held {
    let held = store.claim(&Claim::new(fresh("relay"), limit)).await;
    held.unwrap().unwrap()
}

/// A settle of these items of a lease as done, with a fan-out.
fn done(held: &Held, ids: &[ItemId]) -> Settle {
    let mut settle = Settle::new(held.lease.token.clone()).done(ids.iter().copied());
    settle.fan_out = ids
        .iter()
        .map(|id| (*id, "order.paid".to_owned()))
        .collect();
    settle
}

/// Settles; asserts that nothing is refused.
async fn settle_all(store: &PostgresStore, settle: &Settle) {
    let settled = store.settle(settle).await.unwrap();
    assert_eq!(settled.refused().count(), 0);
}

/// Claims the deliveries of an endpoint.
async fn take(store: &PostgresStore, endpoint: u32) -> Held {
    let due = store.due_deliveries(None).await.unwrap();
    let lanes = due.lanes.into_iter();
    let lanes = lanes.filter(|lane| lane.endpoint == endpoint);
    let lanes: Vec<_> = lanes.map(|lane| (lane, 100)).collect();
    assert!(lanes.iter().all(|(lane, _)| lane.step == USUAL));
    let claim = Claim::new(fresh("sender"), 100).lanes(lanes);
    store.claim(&claim).await.unwrap().unwrap()
}

/// The endpoints with a delivery of an event.
async fn pending(store: &PostgresStore, event: ItemId) -> Vec<u32> {
    let filter = Filter {
        kind: Kind::Deliveries,
        source: Some(event),
        ..Filter::default()
    };
    let page = store.list(&filter, 100).await.unwrap();
    let deliveries = page.records.iter().filter_map(|r| r.content.delivery());
    let mut numbers: Vec<u32> = deliveries.map(|delivery| delivery.endpoint).collect();
    numbers.sort_unstable();
    numbers
}

async fn state(store: &PostgresStore, id: ItemId) -> State {
    store.find(&[id]).await.unwrap()[0].state
}

async fn number(pool: &PgPool, text: &str) -> i64 {
    let query = sqlx::query_scalar(AssertSqlSafe(text.to_owned()));
    query.fetch_one(pool).await.unwrap()
}

/// Runs the same settle twice at once, with every end of the first transaction: each event gets its
/// deliveries once.
#[tokio::test]
async fn two_concurrent_settles_of_one_lease_create_each_delivery_once() {
    for end in [First::Commits, First::IsCancelled, First::Dies] {
        let mut arena = Arena::new().await;
        let endpoint = add(&arena.free, "one").await;
        let ids = enqueue(&arena.free, 3).await;
        let held = claim(&arena.free, 3).await;
        let settle = done(&held, &ids);
        let (one, two) = (Arc::clone(&arena.held), Arc::clone(&arena.free));
        let repeat = settle.clone();
        let first = async move { one.settle(&settle).await };
        let second = async move { two.settle(&repeat).await };
        let (first, second) = arena.race(first, second, Waits::AtLocks, end).await;
        assert_eq!(first.is_ok(), end == First::Commits);
        assert_eq!(second.unwrap().refused().count(), 0);
        for id in ids {
            assert_eq!(pending(&arena.free, id).await, [endpoint], "{end:?}");
        }
    }
}

/// A change of endpoints and a settle do not wait for each other.
#[tokio::test]
async fn an_endpoint_can_be_added_during_a_settle() {
    let mut arena = Arena::new().await;
    let one = add(&arena.free, "one").await;
    let ids = enqueue(&arena.free, 2).await;
    let held = claim(&arena.free, 1).await;
    let settle = done(&held, &ids[..1]);
    let (holding, free) = (Arc::clone(&arena.held), Arc::clone(&arena.free));
    let settled = ids[0];
    let first = async move {
        settle_all(&holding, &settle).await;
        0
    };
    let second = async move {
        let number = add(&free, "two").await;
        let before = pending(&free, settled).await;
        assert!(before.is_empty(), "the settle is not committed yet");
        number
    };
    let (_, two) = arena
        .race(first, second, Waits::AtLocks, First::Commits)
        .await;
    assert_eq!(
        pending(&arena.free, ids[0]).await,
        [one],
        "it was done before"
    );
    let held = claim(&arena.free, 1).await;
    // The other store still caches the old subscriptions.
    let settled = arena.held.settle(&done(&held, &ids[1..])).await;
    assert_eq!(settled.unwrap().refused().count(), 0);
    assert_eq!(pending(&arena.free, ids[1]).await, [one, two]);
}

/// One store has cached that there are no endpoints; then another store adds one. For each way to
/// settle (a whole lease or a part, with and without a claim), returns true if the settled event
/// gets a delivery.
async fn owed_after_a_change(faults: &[Planted]) -> [bool; 4] {
    let mut answers = [false; 4];
    for (way, answer) in answers.iter_mut().enumerate() {
        let (is_whole, has_claim) = (way % 2 == 0, way >= 2);
        let database = testing::migrated().await;
        let store = open(&database).await.planted(faults);
        let other = open(&database).await;
        enqueue(&other, 4).await;
        let held = claim(&store, 1).await;
        settle_all(&store, &done(&held, &held.ids())).await;
        let held = claim(&store, 2).await;
        let ids = held.ids();
        let endpoint = add(&other, "one").await;
        let settle = if is_whole {
            done(&held, &ids)
        } else {
            done(&held, &ids[..1]).item(ids[1], dead())
        };
        let settled = if has_claim {
            let claim = Claim::new(fresh("relay"), 1);
            let (settled, held) = store.settle_and_claim(&settle, &claim).await.unwrap();
            assert_eq!(held.unwrap().items.len(), 1);
            settled
        } else {
            store.settle(&settle).await.unwrap()
        };
        assert_eq!(settled.refused().count(), 0);
        *answer = pending(&other, ids[0]).await == [endpoint];
    }
    answers
}

#[tokio::test]
async fn a_settle_does_not_trust_its_cache_of_endpoints() {
    assert_eq!(owed_after_a_change(&[]).await, [true; 4]);
    let whole = planted(
        "settle_done_and_claim",
        "and ($4::bigint is null",
        "and (true",
    );
    let blind = planted(
        "settle_done_and_claim",
        "coalesce($4::bigint <> (",
        "false and coalesce($4::bigint <> (",
    );
    let of_whole = owed_after_a_change(&[whole, blind]).await;
    assert_eq!(of_whole, [false, true, false, true]);
    let blind = |file| {
        planted(
            file,
            "coalesce($15::bigint <> (",
            "false and coalesce($15::bigint <> (",
        )
    };
    let each = |file| planted(file, "and ($15::bigint is null", "and (true");
    let faults = [
        each("settle"),
        blind("settle"),
        each("settle_and_claim"),
        blind("settle_and_claim"),
    ];
    let of_each = owed_after_a_change(&faults).await;
    assert_eq!(of_each, [true, false, true, false]);
}

#[tokio::test]
async fn a_settle_that_cannot_write_its_deliveries_or_calls_is_undone() {
    let database = testing::migrated().await;
    let store = open(&database).await;
    let endpoint = add(&store, "one").await;
    let id = enqueue(&store, 1).await[0];
    let held = claim(&store, 1).await;
    let broken = open(&database).await.planted(&[
        planted(
            "webhook_fan_out",
            "(select count(*) from fresh) as written",
            "1 / (select count(*) - count(*) from fresh) as written",
        ),
        planted(
            "webhook_record_calls",
            "c.detail::json",
            "('no json' || c.detail)::json",
        ),
    ]);
    broken.settle(&done(&held, &[id])).await.unwrap_err();
    assert_eq!(state(&store, id).await, State::Claimed);
    assert!(pending(&store, id).await.is_empty());
    settle_all(&store, &done(&held, &[id])).await;
    assert_eq!(pending(&store, id).await, [endpoint]);
    let sent = take(&store, endpoint).await;
    let delivery = sent.ids()[0];
    let mut settle = Settle::new(sent.lease.token.clone()).item(delivery, Outcome::Done);
    settle.calls = vec![Call {
        delivery,
        fence: sent.lease.fence,
        attempt: 1,
        ago: Duration::ZERO,
        outcome: AttemptOutcome::Delivered,
        reply: Some(Reply::status(200)),
    }];
    broken.settle(&settle).await.unwrap_err();
    assert_eq!(state(&store, delivery).await, State::Claimed);
    assert_eq!(store.calls(delivery).await.unwrap(), []);
    settle_all(&store, &settle).await;
    assert_eq!(state(&store, delivery).await, State::Done);
    assert_eq!(store.calls(delivery).await.unwrap().len(), 1);
}

/// A sender claims only lanes that it knows to be due, so no claim would promote this head.
#[tokio::test]
async fn a_delivery_with_a_key_is_due_without_a_claim() {
    let database = testing::migrated().await;
    let store = open(&database).await;
    let endpoint = add(&store, "one").await;
    let event = Event::from_json("order.paid", "1").unwrap();
    store
        .enqueue(&[NewEvent::from(event).key("a").build().unwrap()])
        .await
        .unwrap();
    let held = claim(&store, 1).await;
    settle_all(&store, &done(&held, &held.ids())).await;
    let sender = open(&database).await;
    let due = sender.due_deliveries(None).await.unwrap();
    let told: Vec<u32> = due.lanes.iter().map(|lane| lane.endpoint).collect();
    assert_eq!(told, [endpoint]);
}

/// Two deliveries of one event are past their retention, and each of two pruners deletes one of
/// them. Returns the number of events that are left.
async fn left_by_two_pruners(faults: &[Planted]) -> i64 {
    let mut arena = Arena::planted(faults).await;
    let numbers = [add(&arena.free, "one").await, add(&arena.free, "two").await];
    let ids = enqueue(&arena.free, 1).await;
    let held = claim(&arena.free, 1).await;
    settle_all(&arena.free, &done(&held, &ids)).await;
    for number in numbers {
        let sent = take(&arena.free, number).await;
        let settle = Settle::new(sent.lease.token.clone()).done(sent.ids());
        settle_all(&arena.free, &settle).await;
    }
    let few = Prune {
        limit: 1,
        ..Prune::new(Duration::ZERO, Duration::ZERO)
    };
    // The journal row of the event is deleted first; the event stays, because it has deliveries.
    arena.free.prune(&few).await.unwrap();
    let (one, two) = (Arc::clone(&arena.held), Arc::clone(&arena.free));
    let again = few.clone();
    let first = async move { one.prune(&few).await.unwrap() };
    let second = async move { two.prune(&again).await.unwrap() };
    let (first, _) = arena
        .race(first, second, Waits::AtLocks, First::Commits)
        .await;
    assert_eq!(first.done, 1, "one of the deliveries");
    let all = Prune::new(Duration::ZERO, Duration::ZERO);
    while arena.free.prune(&all).await.unwrap().done > 0 {}
    arena.ask("select count(*) from tenure_events").await
}

#[tokio::test]
async fn an_event_is_pruned_with_its_last_delivery_by_any_pruner() {
    assert_eq!(left_by_two_pruners(&[]).await, 0);
    let alone = planted(
        "prune_choose",
        "where source is null or (source in (select id from owed)) is true",
        "where true",
    );
    assert_eq!(
        left_by_two_pruners(&[alone]).await,
        1,
        "the event stays for ever"
    );
}

/// Proves: S2-001, S2-002, S2-021
#[tokio::test]
async fn the_view_shows_deliveries_in_the_words_of_their_specification() {
    let database = testing::migrated().await;
    let store = open(&database).await;
    let endpoint = add(&store, "billing").await;
    let ids = enqueue(&store, 4).await;
    let held = claim(&store, 4).await;
    settle_all(&store, &done(&held, &ids)).await;
    let key = Event::from_json("order.paid", "1").unwrap();
    let key = NewEvent::from(key).key("customer-7").build().unwrap();
    store.enqueue(&[key]).await.unwrap();
    let held = claim(&store, 1).await;
    settle_all(&store, &done(&held, &held.ids())).await;
    let due = store.due_deliveries(None).await.unwrap();
    let claim = Claim::new(fresh("sender"), 3).lanes(vec![(due.lanes[0], 3)]);
    let sent = store.claim(&claim).await.unwrap().unwrap();
    let [delivered, failed, waiting] = sent.ids().try_into().unwrap();
    let settle = Settle::new(sent.lease.token.clone())
        .done([delivered])
        .item(failed, dead())
        .item(waiting, retry(60));
    settle_all(&store, &settle).await;
    let hold = Claim::new(fresh("sender"), 1).lanes(vec![(due.lanes[0], 1)]);
    let hold = store.claim(&hold).await.unwrap().unwrap();
    let rows: Vec<(String, bool, bool, bool, bool)> = sqlx::query_as(
        "select delivery_status, lease_owner is not null and lease_until > now(),
                next_attempt_at is not null, delivered_at is not null,
                failed_at is not null and last_error is not null
         from tenure_deliveries where endpoint = 'billing' and topic = 'order.paid' order by id",
    )
    .fetch_all(store.pool())
    .await
    .unwrap();
    let row =
        |status: &str, bits: [bool; 4]| (status.to_owned(), bits[0], bits[1], bits[2], bits[3]);
    let expected = [
        row("delivered", [false, false, true, false]),
        row("failed", [false, false, false, true]),
        row("pending", [false, true, false, false]),
        row("pending", [true, false, false, false]),
        row("pending", [false, true, false, false]),
    ];
    assert_eq!(rows, expected);
    let holder: String = sqlx::query_scalar(
        "select lease_owner from tenure_deliveries where lease_owner is not null",
    )
    .fetch_one(store.pool())
    .await
    .unwrap();
    assert_eq!(holder, hold.lease.token.holder());
    let pool = store.pool();
    let events = number(pool, "select count(*) from tenure_outbox").await;
    assert_eq!(events, 5, "the other view shows events only");
    let keys = "select count(*) from tenure_deliveries where ordering_key = 'billing/customer-7'";
    assert_eq!(number(pool, keys).await, 1);
    assert_eq!(endpoint, due.lanes[0].endpoint);
}

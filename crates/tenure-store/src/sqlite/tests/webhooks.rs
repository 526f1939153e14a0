//! Webhooks where this store differs: ids, view, events shared by deliveries, lanes, fan-out and
//! prune.

use std::sync::Arc;

use tenure_core::store::{
    Claim, EndpointLane, Filter, Intake, Kind, LeaseStore, Operate, Prune, Pruner, Replay, Rest,
    Settle, Webhooks,
};
use tenure_core::testing::token;
use tenure_core::webhook::{Endpoint, EndpointId, EndpointSettings, NewEndpoint};
use tenure_core::{Held, ItemId, NewEvent, Outcome, TopicPattern};

use super::*;

/// Builds an endpoint that takes this pattern.
pub(super) fn new_endpoint(name: &str, pattern: &str) -> NewEndpoint {
    let topics = vec![TopicPattern::new(pattern).unwrap()];
    NewEndpoint {
        id: EndpointId::new(name).unwrap(),
        settings: EndpointSettings::new("https://example.com", topics),
        sealed: "sealed".to_owned(),
    }
}

async fn add(store: &SqliteStore, name: &str) -> Endpoint {
    let endpoint = new_endpoint(name, "order.*");
    store.add_endpoint(&endpoint, None).await.unwrap().unwrap()
}

/// Settles all events with a fan-out.
async fn relay(store: &SqliteStore) {
    for n in 1.. {
        let token = token("relay", n);
        let Some(held) = store.claim(&Claim::new(token.clone(), 100)).await.unwrap() else {
            return;
        };
        let mut settle = Settle::new(token).rest(Rest::Done);
        settle.fan_out = held
            .ids()
            .into_iter()
            .map(|id| (id, "order.paid".to_owned()))
            .collect();
        assert!(store.settle(&settle).await.unwrap().rest > 0);
    }
}

/// Claims deliveries of these endpoints, with the default priority.
async fn take(store: &SqliteStore, nth: u64, of: &[&Endpoint]) -> Option<Held> {
    let lane = |endpoint: &&Endpoint| EndpointLane {
        endpoint: endpoint.number,
        step: 7,
    };
    let lanes = of.iter().map(|endpoint| (lane(endpoint), 100)).collect();
    let claim = Claim::new(token("sender", nth), 100).lanes(lanes);
    store.claim(&claim).await.unwrap()
}

fn delivery(nth: i64) -> ItemId {
    ItemId::new(ItemId::FIRST_DELIVERY + nth)
}

/// The next rowid is above all deliveries, so the store assigns the ids of events itself.
#[tokio::test]
async fn events_and_deliveries_have_ids_of_their_own_and_without_gaps() {
    let bench = Bench::new().await;
    let (store, connection) = (&bench.store, bench.stranger());
    add(store, "billing").await;
    store.enqueue(&[event("order.paid")]).await.unwrap();
    relay(store).await;
    let plain = "insert into tenure_outbox (topic, payload) values ('order.paid', '1')";
    connection.execute(plain, []).unwrap();
    let enqueued = store.enqueue(&[event("order.paid")]).await.unwrap();
    assert_eq!(enqueued[0].id(), ItemId::new(3));
    relay(store).await;
    // A replay creates no further deliveries.
    let all = Replay::new([1, 2, 3].map(ItemId::new).to_vec());
    let answers = store.replay(&all).await.unwrap();
    assert!(answers.iter().all(|(_, answer)| answer.is_accepted()));
    relay(store).await;
    let filter = Filter {
        kind: Kind::Deliveries,
        ..Filter::default()
    };
    let page = store.list(&filter, 10).await.unwrap();
    let ids: Vec<ItemId> = page.records.iter().map(|record| record.id).collect();
    assert_eq!(ids, [3, 2, 1].map(delivery));
    let counts = store.count(None).await.unwrap();
    assert_eq!((counts.done, counts.pending()), (3, 0));
    assert_eq!(counts.deliveries.endpoints[0].1.due, 3);
    let outbox = number(&connection, "select count(*) from tenure_outbox");
    assert_eq!(outbox, 3, "the view of events shows no deliveries");
}

#[tokio::test]
async fn the_view_shows_each_state_of_a_delivery() {
    let bench = Bench::new().await;
    let (store, connection) = (&bench.store, bench.stranger());
    let billing = add(store, "billing").await;
    store.enqueue(&vec![event("order.paid"); 3]).await.unwrap();
    relay(store).await;
    let said = || -> Vec<(String, bool, bool, bool, bool, i64)> {
        let sql = "select delivery_status, lease_owner is not null, lease_until is not null,
                       delivered_at is not null, failed_at is not null, attempts
                   from tenure_deliveries where endpoint = 'billing' order by id";
        let mut statement = connection.prepare(sql).unwrap();
        let rows = statement.query_map([], |row| {
            Ok((
                row.get(0)?,
                row.get(1)?,
                row.get(2)?,
                row.get(3)?,
                row.get(4)?,
                row.get(5)?,
            ))
        });
        rows.unwrap().map(Result::unwrap).collect()
    };
    let row = |status: &str, is_held, is_delivered, is_failed, attempts| {
        let status = status.to_owned();
        (status, is_held, is_held, is_delivered, is_failed, attempts)
    };
    let waiting = row("pending", false, false, false, 0);
    assert_eq!(said(), vec![waiting; 3]);
    take(store, 1, &[&billing]).await.unwrap();
    let held = row("pending", true, false, false, 0);
    assert_eq!(said(), vec![held.clone(); 3]);
    let dead = Outcome::Dead {
        reason: "rejected".into(),
        error: "it answered 400".into(),
    };
    let settle = Settle::new(token("sender", 1))
        .done([delivery(1)])
        .item(delivery(2), dead);
    assert_eq!(store.settle(&settle).await.unwrap().refused().count(), 0);
    let ended = [
        row("delivered", false, true, false, 0),
        row("failed", false, false, true, 1),
        held,
    ];
    assert_eq!(said(), ended);
}

#[tokio::test]
async fn an_event_is_read_once_for_all_of_its_deliveries() {
    let bench = Bench::new().await;
    let store = &bench.store;
    let (one, two) = (add(store, "one").await, add(store, "two").await);
    store.enqueue(&[event("order.paid")]).await.unwrap();
    relay(store).await;
    let stored = "select count(*) from tenure_events where payload is not null";
    assert_eq!(number(&bench.stranger(), stored), 1);
    let held = take(store, 1, &[&one, &two]).await.unwrap();
    let events: Vec<_> = held
        .items
        .iter()
        .map(|item| &item.content.delivery().unwrap().event)
        .collect();
    assert_eq!(events.len(), 2);
    assert!(Arc::ptr_eq(events[0], events[1]));
}

#[tokio::test]
async fn a_claim_by_endpoint_takes_nothing_from_the_lane_of_a_queue() {
    let bench = Bench::new().await;
    let store = &bench.store;
    let billing = add(store, "billing").await;
    store.enqueue(&[event("order.paid")]).await.unwrap();
    let queue = Endpoint {
        number: 0,
        ..billing
    };
    assert_eq!(take(store, 1, &[&queue]).await, None);
    assert_eq!(store.due_deliveries(None).await.unwrap().lanes, []);
}

/// The key of a delivery begins with the endpoint's name, so it may be longer than an event's key.
#[tokio::test]
async fn the_longest_endpoint_name_and_key_fit_into_the_key_of_a_delivery() {
    let bench = Bench::new().await;
    let store = &bench.store;
    let billing = add(store, &"b".repeat(EndpointId::BYTES_MAX)).await;
    let event = NewEvent::from(event("order.paid"))
        .key(&"k".repeat(255))
        .build()
        .unwrap();
    store.enqueue(&[event.clone(), event]).await.unwrap();
    relay(store).await;
    let first = take(store, 1, &[&billing]).await.unwrap();
    assert_eq!(first.ids(), [delivery(1)], "one after the other");
    let settle = Settle::new(token("sender", 1)).rest(Rest::Done);
    assert_eq!(store.settle(&settle).await.unwrap().rest, 1);
    let second = take(store, 2, &[&billing]).await.unwrap();
    assert_eq!(second.ids(), [delivery(2)]);
}

/// A failed fan-out undoes its settle: the event is still held.
#[tokio::test]
async fn an_event_is_not_done_without_its_deliveries() {
    let bench = Bench::new().await;
    let (store, connection) = (&bench.store, bench.stranger());
    add(store, "billing").await;
    store.enqueue(&[event("order.paid")]).await.unwrap();
    let planted = "create trigger fault before insert on tenure_events when new.source is not null
                   begin select raise(abort, 'a planted fault'); end";
    connection.execute_batch(planted).unwrap();
    let claim = Claim::new(token("relay", 1), 1);
    let held = store.claim(&claim).await.unwrap().unwrap();
    let mut settle = Settle::new(token("relay", 1)).done(held.ids());
    settle.fan_out = vec![(held.ids()[0], "order.paid".to_owned())];
    assert!(store.settle(&settle).await.is_err());
    let counts = store.count(None).await.unwrap();
    assert_eq!((counts.claimed, counts.done), (1, 0));
    connection.execute_batch("drop trigger fault").unwrap();
    let again = store.settle(&settle).await.unwrap();
    assert_eq!(again.refused().count(), 0);
    let counts = store.count(None).await.unwrap();
    assert_eq!((counts.done, counts.deliveries.endpoints.len()), (1, 1));
}

/// An event kept only for its deliveries does not keep a journal row from being pruned, and is
/// deleted with the last delivery.
#[tokio::test]
async fn prune_deletes_an_event_with_its_last_delivery() {
    let bench = Bench::new().await;
    let store = &bench.store;
    let (one, two) = (add(store, "one").await, add(store, "two").await);
    store.enqueue(&[event("order.paid")]).await.unwrap();
    relay(store).await;
    let at_once = Prune::new(std::time::Duration::ZERO, std::time::Duration::ZERO);
    let prune = || store.prune(&at_once);
    assert_eq!(prune().await.unwrap().done, 0);
    for (nth, endpoint) in (1..).zip([one, two]) {
        assert!(take(store, nth, &[&endpoint]).await.is_some());
        let settle = Settle::new(token("sender", nth)).rest(Rest::Done);
        assert_eq!(store.settle(&settle).await.unwrap().rest, 1);
        let gone = if nth == 1 { 1 } else { 2 };
        assert_eq!(prune().await.unwrap().done, gone);
    }
    let connection = bench.stranger();
    for table in ["tenure_events", "tenure_settled", "tenure_setbacks"] {
        let left = number(&connection, &format!("select count(*) from {table}"));
        assert_eq!(left, 0, "{table}");
    }
    let counts = store.count(None).await.unwrap();
    assert_eq!((counts.done, counts.deliveries.delivered), (0, 0));
}

//! Operators' lists of deliveries, and operators' commands on deliveries.

use std::time::Duration;

use tenure_core::store::{Counts, DeliveryCounts, Filter, Kind, QueueCounts, Settle};
use tenure_core::{Content, Guarded, ItemId, Record, Refusal, State, Timestamp};

use super::{
    add, deliveries, enqueue, event, held_delivery, keyed, list, publish, publish_one, saved_calls,
    source_of, take, try_take,
};
use crate::world::{T0, World, at, dead, fresh, retry, token};

on_every_keeper_of_webhooks!(
    events_and_deliveries_are_counted_separately,
    waiting_deliveries_are_counted_per_endpoint,
    events_and_deliveries_are_listed_separately,
    deliveries_are_found_by_their_ids,
    deliveries_are_listed_by_endpoint_and_by_event,
    deliveries_are_listed_by_state_and_by_topic,
    deliveries_are_listed_by_their_key,
    lists_can_be_limited_to_a_range_of_time,
    deliveries_are_listed_page_by_page,
    a_delivery_can_be_replayed,
    a_delivery_can_be_buried,
);

fn ids(records: &[Record]) -> Vec<ItemId> {
    records.iter().map(|record| record.id).collect()
}

async fn count(world: &dyn World, now: Timestamp) -> Counts {
    world.operate().count(Some(now)).await.expect("count")
}

/// Event counts: pending, claimed, lapsed, done, dead.
fn of_events(counts: &Counts) -> [u64; 5] {
    let Counts {
        claimed,
        lapsed,
        done,
        dead,
        ..
    } = *counts;
    [counts.pending(), claimed, lapsed, done, dead]
}

fn of_deliveries(counts: &Counts) -> [u64; 5] {
    let DeliveryCounts {
        claimed,
        lapsed,
        delivered,
        dead,
        ..
    } = counts.deliveries;
    let waiting = counts.deliveries.endpoints.iter();
    let pending = waiting.map(|(_, of)| of.due + of.delayed + of.behind);
    [pending.sum(), claimed, lapsed, delivered, dead]
}

async fn events_and_deliveries_are_counted_separately(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    assert_eq!(count(world, T0).await.deliveries, DeliveryCounts::default());
    publish(world, &vec![event("order.paid"); 4], T0).await;
    enqueue(world, &[event("order.paid"), event("order.paid")]).await;
    world.claim(&token("relay", 1), 1, T0).await;
    let counts = count(world, at(1)).await;
    assert_eq!(of_events(&counts), [1, 1, 0, 4, 0]);
    assert_eq!(of_deliveries(&counts), [4, 0, 0, 0, 0]);
    let held = take(world, &one, at(1)).await;
    let ids = held.ids();
    let settle = Settle::new(held.lease.token.clone()).done([ids[0]]);
    saved_calls(world, settle.item(ids[1], dead()).at(at(1))).await;
    let counts = count(world, at(2)).await;
    assert_eq!(of_events(&counts), [1, 1, 0, 4, 0]);
    assert_eq!(of_deliveries(&counts), [0, 2, 0, 1, 1]);
    let counts = count(world, at(30)).await;
    assert_eq!(of_events(&counts), [1, 1, 1, 4, 0]);
    assert_eq!(of_deliveries(&counts), [0, 2, 0, 1, 1]);
    let counts = count(world, at(31)).await;
    assert_eq!(of_deliveries(&counts), [0, 2, 2, 1, 1]);
    assert_eq!(world.reap_at(at(32)).await.len(), 3);
    let counts = count(world, at(32)).await;
    assert_eq!(of_events(&counts), [2, 0, 0, 4, 0]);
    assert_eq!(of_deliveries(&counts), [2, 0, 0, 1, 1]);
    assert_eq!(world.replay(ids[1], at(33)).await, Guarded::Accepted(()));
    assert_eq!(world.replay(ids[0], at(33)).await, Guarded::Accepted(()));
    let counts = count(world, at(33)).await;
    assert_eq!(of_events(&counts), [2, 0, 0, 4, 0]);
    assert_eq!(of_deliveries(&counts), [4, 0, 0, 0, 0]);
}

async fn waiting_deliveries_are_counted_per_endpoint(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let two = add(world, "two", &["mail.*"]).await;
    add(world, "idle", &["never"]).await;
    publish_one(world, "order.paid", T0).await;
    publish(
        world,
        &["a", "a", "a"].map(|key| keyed("mail.sent", key)),
        at(2),
    )
    .await;
    let held = try_take(world, (&one, 1), &fresh("sender"), at(2)).await;
    let held = held.expect("the oldest");
    let settle = Settle::new(held.lease.token.clone());
    saved_calls(world, settle.item(held.ids()[0], retry(60)).at(at(2))).await;
    let waiting = count(world, at(7)).await.deliveries.endpoints;
    let of = |due, delayed, behind, oldest| QueueCounts {
        due,
        delayed,
        behind,
        oldest_due: Some(Duration::from_secs(oldest)),
    };
    let expected = vec![(one.number, of(1, 1, 2, 5)), (two.number, of(1, 0, 2, 5))];
    assert!(
        one.number < two.number,
        "the later one has the larger number"
    );
    assert_eq!(waiting, expected);
}

async fn events_and_deliveries_are_listed_separately(world: &dyn World) {
    add(world, "one", &["order.*"]).await;
    let mut events = publish(world, &vec![event("order.paid"); 2], T0).await;
    events.extend(enqueue(world, &[event("order.paid")]).await);
    let page = world.operate().list(&Filter::default(), 100).await;
    let mut listed = ids(&page.expect("list").records);
    listed.reverse();
    assert_eq!(listed, events);
    let owed = deliveries(world).await;
    assert_eq!(owed.len(), 2);
    assert!(owed.iter().all(|record| record.id.is_delivery()));
    let sources: Vec<_> = owed
        .iter()
        .map(|record| source_of(&record.content))
        .collect();
    assert_eq!(sources, events[..2]);
}

async fn deliveries_are_found_by_their_ids(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let source = publish_one(world, "order.paid", at(3)).await;
    let id = deliveries(world).await[0].id;
    let stranger = ItemId::new(id.number() + 1000);
    let found = world.operate().find(&[id, stranger, source]).await;
    let found = found.expect("find");
    assert_eq!(ids(&found), [id, source]);
    assert!(matches!(found[1].content, Content::Event(_)));
    let delivery = found[0].content.delivery().expect("a delivery");
    assert_eq!((delivery.source, delivery.endpoint), (source, one.number));
    assert_eq!(deliveries(world).await, found[..1]);
}

async fn deliveries_are_listed_by_endpoint_and_by_event(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let two = add(world, "two", &["*"]).await;
    let events = publish(world, &vec![event("order.paid"); 3], T0).await;
    for endpoint in [&one, &two] {
        let filter = Filter {
            endpoint: Some(endpoint.number),
            ..Filter::default()
        };
        let listed = list(world, filter.clone()).await;
        let sources: Vec<_> = listed
            .iter()
            .map(|record| source_of(&record.content))
            .collect();
        assert_eq!(sources, events);
        let narrow = Filter {
            source: Some(events[1]),
            ..filter
        };
        assert_eq!(list(world, narrow).await, listed[1..2]);
    }
    let of_one = Filter {
        source: Some(events[2]),
        ..Filter::default()
    };
    let listed = list(world, of_one).await;
    let mut numbers: Vec<u32> = listed
        .iter()
        .filter_map(|record| record.content.delivery())
        .map(|delivery| delivery.endpoint)
        .collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [one.number, two.number]);
    let nobody = Filter {
        endpoint: Some(999_999),
        ..Filter::default()
    };
    assert_eq!(list(world, nobody).await, []);
}

async fn deliveries_are_listed_by_state_and_by_topic(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let topics = ["order.paid", "mail.sent", "order.paid", "mail.sent"];
    publish(world, &topics.map(event), T0).await;
    let all = ids(&deliveries(world).await);
    let held = try_take(world, (&one, 3), &fresh("sender"), T0).await;
    let held = held.expect("three").ids();
    assert_eq!(held, all[..3]);
    let mut by_topic = Filter {
        topic: Some("mail.sent".into()),
        ..Filter::default()
    };
    assert_eq!(ids(&list(world, by_topic.clone()).await), [all[1], all[3]]);
    by_topic.state = Some(State::Claimed);
    assert_eq!(ids(&list(world, by_topic).await), [all[1]]);
    let lease = world.record(held[0]).await.hold.expect("it is held");
    assert_eq!(lease.claimed_at, T0);
    for (state, expected) in [
        (State::Pending, &all[3..]),
        (State::Claimed, &all[..3]),
        (State::Done, &[]),
        (State::Dead, &[]),
    ] {
        let filter = Filter {
            state: Some(state),
            ..Filter::default()
        };
        assert_eq!(ids(&list(world, filter).await), expected, "{state:?}");
    }
}

async fn deliveries_are_listed_by_their_key(world: &dyn World) {
    add(world, "one", &["*"]).await;
    add(world, "two", &["*"]).await;
    let events = publish(
        world,
        &["a", "b", "a"].map(|key| keyed("order.paid", key)),
        T0,
    )
    .await;
    let filter = Filter {
        key: Some("two/a".into()),
        ..Filter::default()
    };
    let listed = list(world, filter).await;
    let sources: Vec<_> = listed
        .iter()
        .map(|record| source_of(&record.content))
        .collect();
    assert_eq!(sources, [events[0], events[2]]);
}

async fn lists_can_be_limited_to_a_range_of_time(world: &dyn World) {
    add(world, "one", &["*"]).await;
    for now in [5, 6, 7] {
        publish_one(world, "order.paid", at(now)).await;
    }
    let all = ids(&deliveries(world).await);
    let within = |since: Option<u64>, until: Option<u64>| Filter {
        since: since.map(at),
        until: until.map(at),
        ..Filter::default()
    };
    for (filter, expected) in [
        (within(None, Some(5)), &all[..0]),
        (within(None, Some(6)), &all[..1]),
        (within(Some(6), None), &all[1..]),
        (within(Some(6), Some(7)), &all[1..2]),
        (within(Some(8), None), &all[3..]),
    ] {
        assert_eq!(
            ids(&list(world, filter.clone()).await),
            expected,
            "{filter:?}"
        );
    }
    // The events were created by the store's own clock, before the start of the test's time.
    let events = |until| Filter {
        until: Some(until),
        ..Filter::default()
    };
    let page = world.operate().list(&events(T0), 10).await.expect("list");
    assert_eq!(page.records.len(), 3);
    let first = page.records.iter().map(|record| record.created_at).min();
    let page = world
        .operate()
        .list(&events(first.expect("events")), 10)
        .await;
    assert_eq!(page.expect("list").records, []);
}

async fn deliveries_are_listed_page_by_page(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    add(world, "two", &["*"]).await;
    publish(world, &vec![event("order.paid"); 5], T0).await;
    let mut filter = Filter {
        kind: Kind::Deliveries,
        endpoint: Some(one.number),
        ..Filter::default()
    };
    let mut listed = Vec::new();
    loop {
        let page = world.operate().list(&filter, 2).await.expect("list");
        assert!(page.records.len() <= 2);
        listed.extend(ids(&page.records));
        filter.before = page.next;
        if page.next.is_none() {
            break;
        }
    }
    assert_eq!(listed.len(), 5);
    assert!(listed.is_sorted_by(|a, b| a > b), "newest first, each once");
}

async fn a_delivery_can_be_replayed(world: &dyn World) {
    let (one, held) = held_delivery(world, T0).await;
    let id = held.ids()[0];
    let answer = world.replay(id, at(1)).await;
    assert_eq!(answer, Guarded::Refused(Refusal::NotSettled));
    let settle = Settle::new(held.lease.token.clone()).item(id, dead());
    saved_calls(world, settle.at(at(1))).await;
    let source = source_of(&held.items[0].content);
    let event = world.record(source).await;
    assert_eq!(world.replay(id, at(2)).await, Guarded::Accepted(()));
    let record = world.record(id).await;
    assert_eq!(record.state, State::Pending);
    assert_eq!((record.dead_at, record.last_error), (None, None));
    assert_eq!(record.counters.generation, 1);
    assert_eq!(record.counters.failures, 0);
    assert_eq!(world.record(source).await, event, "the event is as it was");
    let again = take(world, &one, at(2)).await;
    assert_eq!(again.ids(), [id]);
    let stale = Settle::new(held.lease.token.clone()).done([id]);
    assert_eq!(world.settle(stale.at(at(3))).await.refused().count(), 1);
}

async fn a_delivery_can_be_buried(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    publish(world, &vec![event("order.paid"); 2], T0).await;
    let all = ids(&deliveries(world).await);
    let held = try_take(world, (&one, 1), &fresh("sender"), T0).await;
    let held = held.expect("the first");
    for (nth, id) in (1..).zip(&all) {
        assert_eq!(world.bury(*id, nth, at(nth)).await, Guarded::Accepted(()));
        let record = world.record(*id).await;
        assert_eq!((record.state, record.dead_at), (State::Dead, Some(at(nth))));
        assert_eq!(record.dead_reason.as_deref(), Some("buried"));
    }
    let settle = Settle::new(held.lease.token.clone()).done(held.ids());
    assert_eq!(world.settle(settle.at(at(3))).await.refused().count(), 1);
    assert_eq!(super::due(world, at(9)).await.lanes, []);
    let counts = count(world, at(9)).await;
    assert_eq!(of_deliveries(&counts), [0, 0, 0, 0, 2]);
    assert_eq!(of_events(&counts), [0, 0, 0, 2, 0]);
}

//! Lanes: due deliveries, and claims from named lanes.

use tenure_core::store::{Claim, Settle};
use tenure_core::webhook::Endpoint;
use tenure_core::{Held, ItemId, NewEvent, Outcome, Priority, State, Timestamp};

use super::{
    USUAL, add, due, enqueue, event, lane, publish, publish_one, removed, saved_calls, sources,
    sources_of, take, try_take, turn,
};
use crate::world::{T0, TERM, TICK, World, ask, at, at_once, fresh, retry};

on_every_keeper_of_webhooks!(
    lanes_with_due_deliveries_are_listed,
    every_due_lane_can_be_claimed,
    a_claim_of_lanes_takes_only_from_them,
    a_claim_of_queues_takes_no_delivery,
    each_lane_has_its_limit,
    a_claim_of_lanes_respects_its_own_limit,
    lanes_are_claimed_in_the_order_of_the_request,
    a_claim_of_empty_or_unknown_lanes_changes_nothing,
    a_delivery_that_lapsed_twice_is_claimed_alone,
    deliveries_of_a_removed_endpoint_can_be_claimed,
);

/// A claim of up to this many deliveries from these lanes.
fn by_lanes(limit: u32, lanes: &[(&Endpoint, u8, u32)], now: Timestamp) -> Claim {
    let lanes = lanes.iter();
    let lanes = lanes.map(|(endpoint, step, most)| (lane(endpoint, *step), *most));
    ask(&fresh("sender"), limit, now).lanes(lanes.collect())
}

/// Publishes this many events.
async fn publish_many(world: &dyn World, n: usize) -> Vec<ItemId> {
    publish(world, &vec![event("order.paid"); n], T0).await
}

async fn lanes_with_due_deliveries_are_listed(world: &dyn World) {
    let one = add(world, "one", &["order.*"]).await;
    let two = add(world, "two", &["mail.*"]).await;
    add(world, "idle", &["never"]).await;
    enqueue(world, &[event("order.paid")]).await;
    let told = due(world, at(1)).await;
    assert_eq!(
        (told.now, told.lanes),
        (at(1), vec![]),
        "no delivery before the fan-out"
    );
    publish(world, &[event("mail.sent")], at(2)).await;
    let lanes = vec![lane(&one, USUAL), lane(&two, USUAL)];
    let mut expected = lanes.clone();
    expected.sort();
    let told = due(world, at(2)).await;
    assert_eq!((told.now, told.lanes), (at(2), expected));
    let held = take(world, &one, at(3)).await;
    assert_eq!(
        due(world, at(3)).await.lanes,
        lanes[1..],
        "the other is held"
    );
    let settle = Settle::new(held.lease.token.clone());
    saved_calls(world, settle.item(held.ids()[0], retry(60)).at(at(3))).await;
    let almost = at(63).before(TICK);
    assert_eq!(due(world, almost).await.lanes, lanes[1..], "it waits");
    assert_eq!(due(world, at(63)).await.lanes.len(), 2);
    let held = take(world, &one, at(63)).await;
    let settle = Settle::new(held.lease.token.clone()).done(held.ids());
    saved_calls(world, settle.at(at(64))).await;
    assert_eq!(
        due(world, at(999)).await.lanes,
        lanes[1..],
        "it is delivered"
    );
}

async fn every_due_lane_can_be_claimed(world: &dyn World) {
    for name in ["one", "two"] {
        add(world, name, &["*"]).await;
    }
    let events = [0, 2, 7].map(|level| {
        let priority = Priority::new(level).expect("a level");
        NewEvent::from(event("order.paid"))
            .priority(priority.level())
            .build()
            .unwrap()
    });
    publish(world, &events, T0).await;
    let told = due(world, T0).await.lanes;
    assert_eq!(told.len(), 6);
    for (nth, lane) in told.iter().enumerate() {
        let claim = ask(&fresh("sender"), 9, T0).lanes(vec![(*lane, 9)]);
        let held = world.try_claim(claim).await.expect("the lane is due");
        assert_eq!(held.items.len(), 1);
        let delivery = held.items[0].content.delivery().expect("a delivery");
        assert_eq!(delivery.endpoint, lane.endpoint);
        assert_eq!(due(world, T0).await.lanes, told[nth + 1..]);
    }
}

async fn a_claim_of_lanes_takes_only_from_them(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let two = add(world, "two", &["*"]).await;
    let ids = publish_many(world, 2).await;
    let waiting = enqueue(world, &[event("order.paid")]).await;
    let held = world
        .try_claim(by_lanes(10, &[(&one, USUAL, 10)], T0))
        .await;
    let held = held.expect("two deliveries");
    assert_eq!(sources_of(&held), ids);
    for item in &held.items {
        let delivery = item.content.delivery().expect("a delivery");
        assert_eq!(delivery.endpoint, one.number);
        assert_eq!(world.state(item.id).await, State::Claimed);
    }
    assert!(!held.is_full);
    assert_eq!(world.state(waiting[0]).await, State::Pending);
    assert_eq!(sources(world, &two, T0).await, ids);
}

async fn a_claim_of_queues_takes_no_delivery(world: &dyn World) {
    add(world, "one", &["*"]).await;
    publish_many(world, 2).await;
    assert_eq!(world.drain("worker", at(1)).await, []);
    let waiting = enqueue(world, &[event("order.paid")]).await;
    assert_eq!(world.drain("worker", at(1)).await, waiting);
}

async fn each_lane_has_its_limit(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let two = add(world, "two", &["*"]).await;
    let ids = publish_many(world, 5).await;
    let lanes = [(&one, USUAL, 2), (&two, USUAL, 3)];
    let held = world.try_claim(by_lanes(100, &lanes, T0)).await;
    let held = held.expect("deliveries");
    assert_eq!(sources_of(&held), [&ids[..2], &ids[..3]].concat());
    assert!(held.is_full, "it stopped at the limits of its lanes");
    let lanes = [(&one, USUAL, 0), (&two, USUAL, 1)];
    let held = world.try_claim(by_lanes(100, &lanes, T0)).await;
    assert_eq!(sources_of(&held.expect("a delivery")), [ids[3]]);
    let none = world
        .try_claim(by_lanes(100, &[(&one, USUAL, 0)], T0))
        .await;
    assert_eq!(none, None);
    assert_eq!(sources(world, &one, T0).await, ids[2..]);
    assert_eq!(sources(world, &two, T0).await, ids[4..]);
}

async fn a_claim_of_lanes_respects_its_own_limit(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let two = add(world, "two", &["*"]).await;
    let ids = publish_many(world, 4).await;
    let lanes = [(&one, USUAL, 3), (&two, USUAL, 100)];
    let held = world.try_claim(by_lanes(5, &lanes, T0)).await;
    let held = held.expect("deliveries");
    assert_eq!(sources_of(&held), [&ids[..3], &ids[..2]].concat());
    assert!(held.is_full);
    assert_eq!(world.try_claim(by_lanes(0, &lanes, T0)).await, None);
}

async fn lanes_are_claimed_in_the_order_of_the_request(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let two = add(world, "two", &["*"]).await;
    let urgent = NewEvent::from(event("order.paid"))
        .priority(Priority::MAX.level())
        .build()
        .unwrap();
    let usual = publish_one(world, "order.paid", T0).await;
    let urgent = publish(world, &[urgent], at(1)).await[0];
    let lanes = [
        (&two, USUAL, 1),
        (&one, 0, 1),
        (&two, 0, 1),
        (&one, USUAL, 1),
    ];
    let held = world.try_claim(by_lanes(3, &lanes, at(1))).await;
    let held = held.expect("deliveries");
    let owed: Vec<(ItemId, u32)> = held
        .items
        .iter()
        .filter_map(|item| item.content.delivery())
        .map(|delivery| (delivery.source, delivery.endpoint))
        .collect();
    let expected = [
        (usual, two.number),
        (urgent, one.number),
        (urgent, two.number),
    ];
    assert_eq!(owed, expected);
    assert_eq!(sources(world, &one, at(1)).await, [usual]);
}

async fn a_claim_of_empty_or_unknown_lanes_changes_nothing(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let before = world.dump().await;
    let lanes = [(&one, USUAL, 5), (&one, 0, 5)];
    assert_eq!(world.try_claim(by_lanes(5, &lanes, T0)).await, None);
    let nobody = Endpoint {
        number: 999_999,
        ..one.clone()
    };
    let lanes = [(&nobody, USUAL, 5)];
    assert_eq!(world.try_claim(by_lanes(5, &lanes, T0)).await, None);
    assert_eq!(world.dump().await, before);
}

/// A delivery whose sender died twice must be claimed alone.
async fn a_delivery_that_lapsed_twice_is_claimed_alone(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let ids = publish_many(world, 2).await;
    let poison = take(world, &one, T0).await.ids();
    assert_eq!(world.reap_at(at(31)).await.len(), 2);
    let twice = take(world, &one, at(31)).await;
    assert_eq!(twice.ids(), poison);
    assert_eq!(world.reap_at(at(62)).await.len(), 2);
    assert_eq!(due(world, at(62)).await.lanes, [lane(&one, 8)]);
    let none = try_take(world, (&one, 100), &fresh("sender"), at(62)).await;
    assert_eq!(none, None);
    let mut alone = Vec::new();
    for _ in &poison {
        let claim = by_lanes(100, &[(&one, 8, 100)], at(62)).alone();
        let held = world.try_claim(claim).await.expect("one of them");
        assert_eq!(held.items.len(), 1);
        alone.extend(sources_of(&held));
        end(world, &held, at(62)).await;
    }
    alone.sort();
    assert_eq!(alone, ids);
    assert_eq!(due(world, at(99)).await.lanes, []);
}

async fn end(world: &dyn World, held: &Held, now: Timestamp) {
    let settle = Settle::new(held.lease.token.clone()).done(held.ids());
    saved_calls(world, settle.at(now)).await;
}

/// A sender claims such a delivery in order to settle it as dead.
async fn deliveries_of_a_removed_endpoint_can_be_claimed(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    publish_many(world, 1).await;
    turn(world, "one", removed(), at(1)).await;
    assert_eq!(due(world, at(1)).await.lanes, [lane(&one, USUAL)]);
    let held = take(world, &one, at(1)).await;
    let outcome = Outcome::Dead {
        reason: tenure_core::reason::REMOVED.into(),
        error: "the endpoint was removed".into(),
    };
    let settle = Settle::new(held.lease.token.clone());
    saved_calls(world, settle.item(held.ids()[0], outcome).at(at(1))).await;
    let record = world.record(held.ids()[0]).await;
    assert_eq!(record.state, State::Dead);
    assert_eq!(record.dead_reason.as_deref(), Some("removed"));
    // A claim that is not full reaps lapsed leases, in lanes as in queues.
    publish_many(world, 1).await;
    let two = add(world, "two", &["*"]).await;
    publish_many(world, 1).await;
    take(world, &two, T0).await;
    let claim = by_lanes(1, &[(&two, USUAL, 1)], T0.after(TERM));
    let held = world.try_claim(claim.recovery(Some(at_once()))).await;
    assert_eq!(held.expect("it had lapsed").items[0].counters.crashes, 1);
}

//! Fan-out: a done event gets one delivery for each subscribed endpoint, whatever happens.

use std::time::Duration;

use tenure_core::store::Settle;
use tenure_core::webhook::EndpointState;
use tenure_core::{Counters, Event, Guarded, NewEvent, Outcome, Priority, Refusal, State};
use uuid::Uuid;

use super::{
    add, deliveries, deliveries_of, delivery_states, disabled, done, due, enqueue, event, lane,
    place, publish, publish_one, removed, take, turn,
};
use crate::world::{T0, TERM, World, ask, at, dead, fresh, retry};

on_every_keeper_of_webhooks!(
    an_event_gets_a_delivery_for_each_subscribed_endpoint,
    a_delivery_contains_its_event,
    bytes_are_delivered_as_bytes,
    tenure_topics_are_delivered_only_to_endpoints_that_name_them,
    an_event_that_fan_out_does_not_name_gets_no_delivery,
    only_a_done_event_gets_deliveries,
    a_refused_settle_creates_no_delivery,
    an_outcome_out_of_turn_creates_no_delivery,
    a_repeated_settle_creates_no_further_delivery,
    a_replayed_event_gets_no_second_delivery,
    a_replayed_event_gets_deliveries_for_new_endpoints,
    two_settles_of_one_event_create_one_delivery,
    deliveries_have_the_priority_of_their_event,
    settle_and_claim_creates_deliveries,
    deliveries_wait_while_their_endpoint_is_disabled,
    a_delivery_gets_no_deliveries_of_its_own,
);

async fn an_event_gets_a_delivery_for_each_subscribed_endpoint(world: &dyn World) {
    let billing = add(world, "billing", &["order.*"]).await;
    let audit = add(world, "audit", &["mail.sent", "*"]).await;
    add(world, "mail", &["mail.sent"]).await;
    add(world, "off", &["*"]).await;
    turn(world, "off", disabled(), T0).await;
    add(world, "gone", &["*"]).await;
    turn(world, "gone", removed(), T0).await;
    let paid = publish_one(world, "order.paid", at(5)).await;
    let mut expected = [(paid, audit.number), (paid, billing.number)];
    expected.sort();
    assert_eq!(deliveries_of(world).await, expected);
    for record in deliveries(world).await {
        assert!(record.id.is_delivery());
        assert_eq!(record.state, State::Pending);
        assert_eq!(record.counters, Counters::default());
        assert_eq!(record.created_at, at(5));
        assert_eq!(record.available_at, Some(at(5)));
        assert_eq!(record.hold, None);
    }
    assert_eq!(world.state(paid).await, State::Done);
    turn(world, "off", EndpointState::Enabled, at(6)).await;
    let again = publish_one(world, "order.paid", at(7)).await;
    let off = delivery_states(world, "off").await.number;
    assert!(deliveries_of(world).await.contains(&(again, off)));
    assert!(
        !deliveries_of(world).await.contains(&(paid, off)),
        "it was disabled then"
    );
}

async fn a_delivery_contains_its_event(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let receipt = Uuid::from_u128(0x0197_0000_0000_7000_8000_0000_0000_0001);
    let event = NewEvent::from_json("order.paid", "{\"n\":1e2, \"t\":\"ä'\\\"\"}")
        .header("trace", "it's \"7\"")
        .key("customer 7")
        .dedupe("once")
        .delay(Duration::from_secs(3))
        .event_id(receipt)
        .build()
        .expect("the event is well formed");
    let source = publish(world, &[event], at(5)).await[0];
    let [record] = deliveries(world).await.try_into().expect("one delivery");
    let held = take(world, &billing, at(5)).await;
    assert_eq!(held.ids(), [record.id]);
    let item = &held.items[0];
    assert_eq!(item.counters, Counters::default());
    assert_eq!(item.available_at, at(5), "the event has waited its time");
    for content in [&record.content, &item.content] {
        let delivery = content.delivery().expect("a delivery");
        assert_eq!(
            (delivery.source, delivery.endpoint),
            (source, billing.number)
        );
        let event = &delivery.event;
        assert_eq!(event.topic(), "order.paid");
        assert_eq!(event.payload(), "{\"n\":1e2, \"t\":\"ä'\\\"\"}");
        assert_eq!(event.headers().get("trace"), Some(&"it's \"7\"".to_owned()));
        assert_eq!(event.headers().len(), 1);
        assert_eq!(event.key(), Some("customer 7"));
        assert_eq!(event.event_id(), Some(receipt));
        assert_eq!(event.encoding(), None);
    }
}

async fn bytes_are_delivered_as_bytes(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let bytes = [0, 255, b'"', 10];
    let event = Event::from_bytes("order.paid", &bytes).expect("bytes");
    publish(world, &[event], at(1)).await;
    let held = take(world, &billing, at(1)).await;
    let event = held.items[0].content.event().expect("an event");
    assert_eq!(event.payload_bytes().expect("bytes"), bytes);
}

async fn tenure_topics_are_delivered_only_to_endpoints_that_name_them(world: &dyn World) {
    add(world, "all", &["*"]).await;
    add(world, "any", &["*.endpoint.disabled"]).await;
    let own = add(world, "own", &["tenure.*"]).await;
    let exact = add(world, "exact", &["tenure.endpoint.disabled"]).await;
    let event = publish_one(world, "tenure.endpoint.disabled", at(1)).await;
    let mut expected = [(event, own.number), (event, exact.number)];
    expected.sort();
    assert_eq!(deliveries_of(world).await, expected);
}

async fn an_event_that_fan_out_does_not_name_gets_no_delivery(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let ids = enqueue(world, &[event("order.paid"), event("order.paid")]).await;
    let held = world.claim(&fresh("relay"), 10, at(1)).await;
    let mut settle = done(&held, at(1));
    settle.fan_out.retain(|(id, _)| *id == ids[1]);
    assert_eq!(world.settle(settle).await.refused().count(), 0);
    assert_eq!(deliveries_of(world).await, [(ids[1], billing.number)]);
}

/// Proves: S2-005
async fn only_a_done_event_gets_deliveries(world: &dyn World) {
    add(world, "billing", &["*"]).await;
    for outcome in [retry(60), dead(), Outcome::RELEASE] {
        let id = enqueue(world, &[event("order.paid")]).await[0];
        let held = world.claim(&fresh("relay"), 1, T0).await;
        assert_eq!(held.ids(), [id]);
        let mut settle = Settle::new(held.lease.token.clone());
        settle = settle.item(id, outcome.clone()).at(T0);
        settle.fan_out = vec![(id, "order.paid".into())];
        assert_eq!(world.settle(settle).await.refused().count(), 0);
        assert_eq!(deliveries_of(world).await, [], "{outcome:?}");
    }
    // An event that a settle names for a fan-out without settling it gets no delivery either.
    let held = world.claim(&fresh("relay"), 1, T0).await;
    let mut settle = done(&held, T0);
    settle.items.clear();
    assert_eq!(world.settle(settle).await.items, []);
    assert_eq!(deliveries_of(world).await, []);
}

async fn a_refused_settle_creates_no_delivery(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let id = enqueue(world, &[event("order.paid")]).await[0];
    let held = world.claim(&fresh("relay"), 1, T0).await;
    let mut stranger = done(&held, at(1));
    stranger.token = fresh("stranger");
    let answer = world.settle(stranger).await;
    assert_eq!(answer.items, [(id, Guarded::Refused(Refusal::Lost))]);
    let late = done(&held, T0.after(TERM)).strict();
    let answer = world.settle(late).await;
    assert_eq!(answer.items, [(id, Guarded::Refused(Refusal::Lapsed))]);
    assert_eq!(deliveries_of(world).await, []);
    assert_eq!(world.reap_at(at(31)).await.len(), 1);
    let second = world.claim(&fresh("relay"), 1, at(31)).await;
    let answer = world.settle(done(&held, at(32))).await;
    assert_eq!(answer.items, [(id, Guarded::Refused(Refusal::Lost))]);
    assert_eq!(deliveries_of(world).await, []);
    assert_eq!(
        world.settle(done(&second, at(33))).await.refused().count(),
        0
    );
    assert_eq!(deliveries_of(world).await, [(id, billing.number)]);
    let answer = world.settle(done(&held, at(34))).await;
    assert_eq!(answer.refused().count(), 1);
    assert_eq!(deliveries_of(world).await, [(id, billing.number)]);
}

/// The second event of a run cannot be done before the first. Its settle is refused, so it gets no
/// delivery.
async fn an_outcome_out_of_turn_creates_no_delivery(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let events = [
        super::keyed("order.paid", "a"),
        super::keyed("order.paid", "a"),
    ];
    let ids = enqueue(world, &events).await;
    place(world).await;
    let run = ask(&fresh("relay"), 2, T0).min_parallel(1);
    let held = world.try_claim(run).await.expect("a run");
    assert_eq!(held.ids(), ids);
    let mut settle = done(&held, T0);
    settle.items.remove(0);
    let answer = world.settle(settle).await;
    assert_eq!(
        answer.items,
        [(ids[1], Guarded::Refused(Refusal::OutOfTurn))]
    );
    assert_eq!(
        deliveries_of(world).await,
        [],
        "the first is named, but it is not done"
    );
    assert_eq!(world.settle(done(&held, T0)).await.refused().count(), 0);
    let expected = [(ids[0], billing.number), (ids[1], billing.number)];
    assert_eq!(deliveries_of(world).await, expected);
}

/// The answer to the settle was lost, so the worker repeats it, possibly after further changes.
async fn a_repeated_settle_creates_no_further_delivery(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let id = enqueue(world, &[event("order.paid")]).await[0];
    let held = world.claim(&fresh("relay"), 1, T0).await;
    let settle = done(&held, at(1));
    let first = world.settle(settle.clone()).await;
    assert_eq!(first.items, [(id, Guarded::Accepted(()))]);
    let before = world.dump().await;
    assert_eq!(world.settle(settle.clone()).await.items, first.items);
    assert_eq!(world.dump().await, before);
    let delivery = take(world, &billing, at(1)).await;
    add(world, "late", &["*"]).await;
    assert_eq!(
        world.settle(settle.clone().at(at(2))).await.items,
        first.items
    );
    assert_eq!(
        deliveries_of(world).await,
        [(id, billing.number)],
        "not to the late one"
    );
    let sent = Settle::new(delivery.lease.token.clone()).done(delivery.ids());
    assert_eq!(world.settle(sent.at(at(3))).await.refused().count(), 0);
    assert_eq!(world.settle(settle.at(at(4))).await.items, first.items);
    assert_eq!(deliveries_of(world).await, [(id, billing.number)]);
}

async fn a_replayed_event_gets_no_second_delivery(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let id = publish_one(world, "order.paid", T0).await;
    let before = deliveries(world).await;
    assert_eq!(world.replay(id, at(1)).await, Guarded::Accepted(()));
    let held = world.claim(&fresh("relay"), 1, at(2)).await;
    assert_eq!(held.ids(), [id]);
    assert_eq!(world.settle(done(&held, at(2))).await.refused().count(), 0);
    assert_eq!(deliveries(world).await, before);
    let sent = take(world, &billing, at(3)).await;
    let settle = Settle::new(sent.lease.token.clone()).done(sent.ids());
    assert_eq!(world.settle(settle.at(at(3))).await.refused().count(), 0);
    assert_eq!(world.replay(id, at(4)).await, Guarded::Accepted(()));
    let held = world.claim(&fresh("relay"), 1, at(5)).await;
    assert_eq!(world.settle(done(&held, at(5))).await.refused().count(), 0);
    assert_eq!(deliveries_of(world).await, [(id, billing.number)]);
    assert_eq!(due(world, at(6)).await.lanes, []);
}

async fn a_replayed_event_gets_deliveries_for_new_endpoints(world: &dyn World) {
    let first = add(world, "first", &["*"]).await;
    let id = publish_one(world, "order.paid", T0).await;
    let second = add(world, "second", &["*"]).await;
    assert_eq!(deliveries_of(world).await, [(id, first.number)]);
    assert_eq!(world.replay(id, at(1)).await, Guarded::Accepted(()));
    let held = world.claim(&fresh("relay"), 1, at(2)).await;
    assert_eq!(world.settle(done(&held, at(2))).await.refused().count(), 0);
    let mut expected = [(id, first.number), (id, second.number)];
    expected.sort();
    assert_eq!(deliveries_of(world).await, expected);
}

/// Two workers settle one event, and only the settle of the holder counts.
async fn two_settles_of_one_event_create_one_delivery(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let id = enqueue(world, &[event("order.paid")]).await[0];
    let first = world.claim(&fresh("relay"), 1, T0).await;
    assert_eq!(world.reap_at(at(31)).await.len(), 1);
    let second = world.claim(&fresh("relay"), 1, at(31)).await;
    let (of_first, of_second) = (done(&first, at(32)), done(&second, at(32)));
    let lease = world.lease();
    let (first, second) = tokio::join!(lease.settle(&of_first), lease.settle(&of_second));
    assert_eq!(first.expect("settle").refused().count(), 1);
    assert_eq!(second.expect("settle").refused().count(), 0);
    assert_eq!(deliveries_of(world).await, [(id, billing.number)]);
}

async fn deliveries_have_the_priority_of_their_event(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let levels = [0, 3, 7];
    let events = levels.map(|level| {
        let priority = Priority::new(level).expect("a level");
        NewEvent::from(event("order.paid"))
            .priority(priority.level())
            .build()
            .unwrap()
    });
    publish(world, &events, at(1)).await;
    let expected = [lane(&billing, 0), lane(&billing, 4), lane(&billing, 7)];
    assert_eq!(due(world, at(1)).await.lanes, expected);
}

async fn settle_and_claim_creates_deliveries(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let ids = enqueue(world, &[event("order.paid"), event("order.paid")]).await;
    let held = world.claim(&fresh("relay"), 1, T0).await;
    let claim = ask(&fresh("relay"), 1, T0);
    let settle = done(&held, T0);
    let answer = world.lease().settle_and_claim(&settle, &claim).await;
    let (settled, held) = answer.expect("settle and claim");
    assert_eq!(settled.items, [(ids[0], Guarded::Accepted(()))]);
    let held = held.expect("the other event");
    assert_eq!(held.ids(), [ids[1]]);
    assert_eq!(deliveries_of(world).await, [(ids[0], billing.number)]);
    // The claim may also name lanes, as the claim of a sender does.
    let lanes = vec![(lane(&billing, super::USUAL), 10)];
    let claim = ask(&fresh("sender"), 10, at(1)).lanes(lanes);
    let settle = done(&held, at(1));
    let answer = world.lease().settle_and_claim(&settle, &claim).await;
    let (_, sending) = answer.expect("settle and claim");
    let sending = sending.expect("deliveries");
    assert_eq!(super::sources_of(&sending), ids, "also that of this settle");
}

async fn deliveries_wait_while_their_endpoint_is_disabled(world: &dyn World) {
    let billing = add(world, "billing", &["*"]).await;
    let id = publish_one(world, "order.paid", T0).await;
    turn(world, "billing", disabled(), at(1)).await;
    publish_one(world, "order.paid", at(2)).await;
    assert_eq!(deliveries_of(world).await, [(id, billing.number)]);
    assert_eq!(deliveries(world).await[0].state, State::Pending);
    turn(world, "billing", EndpointState::Enabled, at(3)).await;
    assert_eq!(super::sources(world, &billing, at(4)).await, [id]);
}

/// A settle that names a delivery for a fan-out creates no deliveries either.
async fn a_delivery_gets_no_deliveries_of_its_own(world: &dyn World) {
    let (billing, held) = super::held_delivery(world, T0).await;
    let owed_before = deliveries_of(world).await;
    add(world, "other", &["*"]).await;
    let answer = world.settle(done(&held, at(1))).await;
    assert_eq!(answer.refused().count(), 0);
    assert_eq!(deliveries_of(world).await, owed_before);
    assert_eq!(due(world, at(2)).await.lanes, [], "nothing for {billing:?}");
}

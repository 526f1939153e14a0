//! Prune deletes deliveries together with the records of their calls, and keeps an event as long as
//! it has deliveries.

use std::time::Duration;

use tenure_core::store::{Prune, Settle};
use tenure_core::webhook::{AttemptOutcome, Endpoint};
use tenure_core::{ItemId, Outcome, State, Timestamp};

use super::{
    add, call, deliveries, enqueue, event, hooks, outbox, publish, publish_one, saved_calls, take,
    told,
};
use crate::world::{T0, TICK, World, ask, at, dead, fresh};

on_every_keeper_of_webhooks!(
    a_prune_deletes_a_delivery_with_its_calls,
    an_open_delivery_is_never_pruned,
    an_event_is_kept_as_long_as_it_has_deliveries,
    an_event_without_deliveries_is_pruned,
    dead_deliveries_have_a_separate_retention,
    a_prune_passes_over_events_that_must_stay,
);

const HOUR: Duration = Duration::from_hours(1);

/// Prunes until nothing more is deleted; returns the number of deleted items.
async fn prune(world: &dyn World, asked: Prune) -> u64 {
    let mut gone = 0;
    // An event may be deleted in the round after that of its last delivery.
    for _ in 0..20 {
        let pruned = outbox(world).prune(&asked).await.expect("prune");
        gone += pruned.done + pruned.dead;
        if pruned.done + pruned.dead == 0 && !pruned.more {
            return gone;
        }
    }
    panic!("the prune does not end");
}

async fn prune_at(world: &dyn World, now: Timestamp) -> u64 {
    prune(world, Prune::new(HOUR, HOUR).at(now)).await
}

async fn exists(world: &dyn World, id: ItemId) -> bool {
    !world.operate().find(&[id]).await.expect("find").is_empty()
}

/// Sends all deliveries of an endpoint.
async fn send(world: &dyn World, endpoint: &Endpoint, now: Timestamp) -> Vec<ItemId> {
    let held = take(world, endpoint, now).await;
    let settle = Settle::new(held.lease.token.clone()).done(held.ids());
    saved_calls(world, settle.at(now)).await;
    held.ids()
}

async fn a_prune_deletes_a_delivery_with_its_calls(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let event = publish_one(world, "order.paid", T0).await;
    let held = take(world, &one, T0).await;
    let id = held.ids()[0];
    let made = call(&held, AttemptOutcome::Delivered, 200);
    saved_calls(world, told(&held, Outcome::Done, made, at(5))).await;
    assert_eq!(
        prune_at(world, at(5).after(HOUR)).await,
        0,
        "not at its end"
    );
    assert!(exists(world, id).await && exists(world, event).await);
    assert_eq!(prune_at(world, at(5).after(HOUR).after(TICK)).await, 2);
    assert!(!exists(world, id).await && !exists(world, event).await);
    assert_eq!(hooks(world).calls(id).await.expect("calls"), []);
    let counts = world.operate().count(Some(at(9))).await.expect("count");
    assert_eq!((counts.done, counts.deliveries.delivered), (0, 0));
    // A call that is recorded after the prune belongs to no delivery.
    let late = call(&held, AttemptOutcome::Superseded, 200);
    let late = hooks(world).record_calls(&[late], Some(at(9999))).await;
    late.expect("record calls");
    assert_eq!(hooks(world).calls(id).await.expect("calls"), []);
}

async fn an_open_delivery_is_never_pruned(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    publish(world, &vec![event("order.paid"); 2], T0).await;
    let held = super::try_take(world, (&one, 1), &fresh("sender"), T0).await;
    let held = held.expect("one is held, one waits");
    let long_after = at(10_000);
    assert_eq!(prune_at(world, long_after).await, 0);
    let all = deliveries(world).await;
    assert_eq!(all[0].state, State::Claimed);
    assert_eq!(all[1].state, State::Pending);
    for record in all {
        let event = record.content.event().expect("an event");
        assert_eq!(event.payload(), "{\"n\":1}", "unchanged");
        assert!(event.event_id().is_some());
    }
    assert_eq!(world.reap_at(long_after).await.len(), 1);
    let again = take(world, &one, long_after).await;
    assert_eq!(again.items.len(), 2);
    assert!(again.ids().contains(&held.ids()[0]));
}

async fn an_event_is_kept_as_long_as_it_has_deliveries(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let two = add(world, "two", &["*"]).await;
    let event = publish_one(world, "order.paid", T0).await;
    let first = send(world, &one, at(1)).await[0];
    let past_first = at(2).after(HOUR);
    assert_eq!(prune_at(world, past_first).await, 1);
    assert!(!exists(world, first).await);
    assert!(exists(world, event).await, "the other delivery is open");
    let second = take(world, &two, past_first).await;
    let owed = second.items[0].content.event().expect("an event");
    assert_eq!(owed.payload(), "{\"n\":1}");
    let settle = Settle::new(second.lease.token.clone()).done(second.ids());
    saved_calls(world, settle.at(past_first)).await;
    assert_eq!(prune_at(world, past_first.after(HOUR)).await, 0);
    assert!(exists(world, event).await);
    let past_both = past_first.after(HOUR).after(TICK);
    assert_eq!(prune_at(world, past_both).await, 2);
    assert!(!exists(world, event).await);
    assert_eq!(deliveries(world).await, []);
}

async fn an_event_without_deliveries_is_pruned(world: &dyn World) {
    let one = add(world, "one", &["order.*"]).await;
    let owed = publish_one(world, "order.paid", T0).await;
    let unwanted = publish_one(world, "mail.sent", T0).await;
    assert_eq!(prune_at(world, at(10_000)).await, 1);
    assert!(exists(world, owed).await && !exists(world, unwanted).await);
    assert_eq!(send(world, &one, at(10_000)).await.len(), 1);
}

async fn dead_deliveries_have_a_separate_retention(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let events = publish(world, &vec![event("order.paid"); 2], T0).await;
    let held = take(world, &one, T0).await;
    let ids = held.ids();
    let settle = Settle::new(held.lease.token.clone()).done([ids[0]]);
    saved_calls(world, settle.item(ids[1], dead()).at(T0)).await;
    let asked = Prune::new(HOUR, HOUR * 3);
    assert_eq!(prune(world, asked.clone().at(at(2 * 3600))).await, 2);
    assert!(!exists(world, ids[0]).await && !exists(world, events[0]).await);
    assert!(exists(world, ids[1]).await && exists(world, events[1]).await);
    assert_eq!(
        world.replay(ids[1], at(7201)).await,
        tenure_core::Guarded::Accepted(())
    );
    assert_eq!(prune(world, asked.clone().at(at(9 * 3600))).await, 0);
    assert_eq!(send(world, &one, at(9 * 3600)).await, [ids[1]]);
    assert_eq!(prune(world, asked.at(at(11 * 3600))).await, 2);
    assert!(!exists(world, ids[1]).await && !exists(world, events[1]).await);
}

/// The events with open deliveries are older than those that can be deleted.
async fn a_prune_passes_over_events_that_must_stay(world: &dyn World) {
    add(world, "one", &["order.*"]).await;
    publish(world, &vec![event("order.paid"); 5], T0).await;
    let free = enqueue(world, &vec![event("mail.sent"); 3]).await;
    let held = world.try_claim(ask(&fresh("relay"), 10, at(1))).await;
    saved_calls(world, super::done(&held.expect("three"), at(1))).await;
    let few = Prune {
        limit: 2,
        ..Prune::new(HOUR, HOUR)
    };
    assert_eq!(prune(world, few.at(at(9999))).await, 3);
    for id in free {
        assert!(!exists(world, id).await);
    }
    assert_eq!(deliveries(world).await.len(), 5);
}

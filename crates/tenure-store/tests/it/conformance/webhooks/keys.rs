//! Keys: deliveries of one key keep their order per endpoint; all others are independent.

use tenure_core::store::{Pause, Settle};
use tenure_core::{Guarded, Held, ItemId, Outcome, State, Timestamp};

use super::{
    add, deliveries, done, enqueue, keyed, lane, outbox, place, publish, saved_calls, source_of,
    sources, sources_of, take, try_take,
};
use crate::world::{T0, World, ask, at, dead, fresh, retry};

on_every_keeper_of_webhooks!(
    deliveries_of_a_key_keep_their_order_per_endpoint,
    deliveries_of_a_run_keep_its_order,
    a_failing_key_does_not_hold_back_other_deliveries,
    after_a_dead_delivery_the_next_one_of_its_key_is_claimed,
    a_replayed_delivery_goes_to_the_end_of_its_key,
    a_key_can_be_paused_for_one_endpoint,
    a_run_respects_the_limit_of_its_lane,
);

/// Settles one held delivery.
async fn end(world: &dyn World, held: &Held, nth: usize, outcome: Outcome, now: Timestamp) {
    let settle = Settle::new(held.lease.token.clone());
    saved_calls(world, settle.item(held.ids()[nth], outcome).at(now)).await;
}

async fn deliveries_of_a_key_keep_their_order_per_endpoint(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let two = add(world, "two", &["*"]).await;
    let events = ["a", "a", "b", "a"].map(|key| keyed("order.paid", key));
    let ids = publish(world, &events, T0).await;
    let first = take(world, &one, T0).await;
    let mut heads = sources_of(&first);
    heads.sort();
    assert_eq!(heads, [ids[0], ids[2]], "a head of each key");
    assert_eq!(sources(world, &one, T0).await, []);
    let nth = sources_of(&first).iter().position(|id| *id == ids[0]);
    end(world, &first, nth.expect("a head"), Outcome::Done, T0).await;
    let second = take(world, &one, T0).await;
    assert_eq!(sources_of(&second), [ids[1]]);
    end(world, &second, 0, Outcome::Done, T0).await;
    assert_eq!(sources(world, &one, T0).await, [ids[3]]);
    let other = take(world, &two, T0).await;
    let mut heads = sources_of(&other);
    heads.sort();
    assert_eq!(
        heads,
        [ids[0], ids[2]],
        "the other endpoint is where it was"
    );
}

/// The order of the events in `fan_out` does not matter.
async fn deliveries_of_a_run_keep_its_order(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let ids = enqueue(world, &["a"; 4].map(|key| keyed("order.paid", key))).await;
    place(world).await;
    let run = ask(&fresh("relay"), 4, T0).min_parallel(1);
    let held = world.try_claim(run).await.expect("a run");
    assert_eq!(held.ids(), ids);
    let mut settle = done(&held, T0);
    settle.fan_out.reverse();
    saved_calls(world, settle).await;
    place(world).await;
    let listed = deliveries(world).await;
    let listed: Vec<ItemId> = listed
        .iter()
        .map(|record| source_of(&record.content))
        .collect();
    assert_eq!(listed, ids, "their ids rise as those of the events");
    for id in ids {
        let held = take(world, &one, T0).await;
        assert_eq!(sources_of(&held), [id]);
        end(world, &held, 0, Outcome::Done, T0).await;
    }
}

async fn a_failing_key_does_not_hold_back_other_deliveries(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let events = ["a", "a"].map(|key| keyed("order.paid", key));
    let ids = publish(world, &events, T0).await;
    let held = take(world, &one, T0).await;
    end(world, &held, 0, retry(60), T0).await;
    let mut others = publish(world, &[keyed("order.paid", "b")], at(1)).await;
    others.extend(publish(world, &[super::event("order.paid")], at(1)).await);
    let mut flowing = sources(world, &one, at(59)).await;
    flowing.sort();
    assert_eq!(flowing, others);
    let held = take(world, &one, at(60)).await;
    assert_eq!(sources_of(&held), [ids[0]], "the same one again");
    end(world, &held, 0, Outcome::Done, at(60)).await;
    assert_eq!(sources(world, &one, at(60)).await, [ids[1]]);
}

async fn after_a_dead_delivery_the_next_one_of_its_key_is_claimed(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let events = ["a", "a", "a"].map(|key| keyed("order.paid", key));
    let ids = publish(world, &events, T0).await;
    let held = take(world, &one, T0).await;
    end(world, &held, 0, dead(), T0).await;
    let held = take(world, &one, T0).await;
    assert_eq!(sources_of(&held), [ids[1]]);
    let buried = world.bury(held.ids()[0], 1, at(1)).await;
    assert_eq!(buried, Guarded::Accepted(()));
    assert_eq!(sources(world, &one, at(2)).await, [ids[2]]);
}

async fn a_replayed_delivery_goes_to_the_end_of_its_key(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let events = ["a", "a", "a"].map(|key| keyed("order.paid", key));
    let ids = publish(world, &events, T0).await;
    let held = take(world, &one, T0).await;
    end(world, &held, 0, Outcome::Done, T0).await;
    assert_eq!(
        world.replay(held.ids()[0], at(1)).await,
        Guarded::Accepted(())
    );
    place(world).await;
    // Another event of the key comes after the replay.
    let last = publish(world, &[keyed("order.paid", "a")], at(2)).await[0];
    for expected in [ids[1], ids[2], ids[0], last] {
        let held = take(world, &one, at(3)).await;
        assert_eq!(sources_of(&held), [expected]);
        end(world, &held, 0, Outcome::Done, at(3)).await;
    }
}

async fn a_key_can_be_paused_for_one_endpoint(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let two = add(world, "two", &["*"]).await;
    let paused = outbox(world).pause_key("one/a", Pause::Begin).await;
    paused.expect("pause");
    let id = publish(world, &[keyed("order.paid", "a")], T0).await[0];
    assert_eq!(sources(world, &one, at(1)).await, []);
    assert_eq!(sources(world, &two, at(1)).await, [id], "and no other");
    let key = outbox(world).key("one/a").await.expect("key");
    assert_eq!(key.expect("it is known").waiting, 1);
    let resumed = outbox(world).pause_key("one/a", Pause::End).await;
    resumed.expect("resume");
    place(world).await;
    assert_eq!(sources(world, &one, at(2)).await, [id]);
}

async fn a_run_respects_the_limit_of_its_lane(world: &dyn World) {
    let one = add(world, "one", &["*"]).await;
    let two = add(world, "two", &["*"]).await;
    let ids = publish(world, &["a"; 5].map(|key| keyed("order.paid", key)), T0).await;
    let usual = super::USUAL;
    let lanes = vec![(lane(&one, usual), 3), (lane(&two, usual), 2)];
    let claim = ask(&fresh("sender"), 10, T0).min_parallel(1).lanes(lanes);
    let held = world.try_claim(claim).await.expect("two runs");
    // A store may also take only the heads.
    let expected = [&ids[..3], &ids[..2]].concat();
    let heads = [ids[0], ids[0]];
    let taken = sources_of(&held);
    assert!(taken == expected || taken == heads, "{taken:?}");
    let (of_one, of_two) = if taken == heads { (1, 1) } else { (3, 2) };
    let settle = Settle::new(held.lease.token.clone())
        .done(held.ids())
        .at(T0);
    saved_calls(world, settle).await;
    assert_eq!(sources(world, &one, T0).await, [ids[of_one]]);
    assert_eq!(sources(world, &two, T0).await, [ids[of_two]]);
    let none = try_take(world, (&one, 10), &fresh("sender"), T0).await;
    assert_eq!(none, None, "the next waits for it");
    for record in deliveries(world).await {
        assert_ne!(record.state, State::Dead);
    }
}

//! Reap: it ends lapsed leases, never live ones; a lapse is counted, and a poison item becomes
//! dead.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_core::store::{Reap, Settle};
use tenure_core::{Counters, Guarded, ItemId, LapsePolicy, Refusal, State, Term};

use crate::world::{T0, TERM, TICK, World, ask, at, at_once, fresh, token};

on_every_store!(
    a_lapsed_item_is_pending_again,
    the_reaper_waits_until_the_term_is_past,
    a_claim_reaps_as_soon_as_the_term_is_over,
    live_leases_are_left_alone,
    a_reap_is_bounded_and_takes_the_oldest_first,
    concurrent_reapers_end_each_lease_once,
    a_reap_that_ends_nothing_changes_nothing,
    only_items_that_are_still_held_lapse,
    each_lapse_delays_the_item_as_the_policy_says,
    an_item_with_more_crashes_than_allowed_is_dead,
    an_item_that_lapsed_twice_is_claimed_alone,
    a_poison_item_is_claimed_alone_until_its_replay,
    a_poison_item_dies_and_the_others_become_done,
    a_settle_after_a_reap_is_refused,
);

/// Proves: S1-023, S1-025, S1-027, S1-029, S1-042, S4-006, S4-019, S4-020, S4-021, S4-022, S4-024
/// Proves: S4-025, S4-026, S4-053
async fn a_lapsed_item_is_pending_again(world: &dyn World) {
    let ids = world.add(2).await;
    let holder = token("holder", 1);
    let held = world.claim(&holder, 2, T0).await;
    let policy = LapsePolicy::new(3, vec![Duration::from_secs(7)]).unwrap();
    let reaped = world.reap(Reap::new(10, policy).at(at(42))).await;
    let found: Vec<ItemId> = reaped.iter().map(|item| item.id).collect();
    assert_eq!(found, ids, "the reaped items, in order");
    for item in reaped {
        assert_eq!(item.holder, holder.holder());
        assert_eq!(item.fence, held.lease.fence);
        assert_eq!(item.stale, Duration::from_secs(12), "the term ended at 30");
        assert_eq!(item.state, State::Pending);
        assert_eq!(item.available_at, Some(at(49)));
        let record = world.record(item.id).await;
        assert_eq!(record.state, State::Pending);
        assert_eq!(record.available_at, Some(at(49)));
        assert_eq!(record.hold, None);
        assert_eq!(record.last_error.as_deref(), Some(LapsePolicy::ERROR));
        let expected = Counters {
            attempts: 1,
            crashes: 1,
            ..Counters::default()
        };
        assert_eq!(record.counters, expected);
    }
    assert_eq!(world.claim(&token("other", 1), 10, at(49)).await.ids(), ids);
}

/// Proves: S1-028
async fn the_reaper_waits_until_the_term_is_past(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let end = T0.after(TERM);
    let before = world.dump().await;
    for now in [T0, end.before(TICK), end] {
        assert!(world.reap_at(now).await.is_empty(), "reaped at {now}");
    }
    assert_eq!(world.dump().await, before);
    let reaped = world.reap_at(end.after(TICK)).await;
    assert_eq!(reaped.len(), 1);
    assert_eq!((reaped[0].id, reaped[0].stale), (id, TICK));
}

async fn a_claim_reaps_as_soon_as_the_term_is_over(world: &dyn World) {
    world.item_in(State::Claimed).await;
    let end = T0.after(TERM);
    let inline = Reap::new(10, at_once()).inline();
    assert!(
        world
            .reap(inline.clone().at(end.before(TICK)))
            .await
            .is_empty()
    );
    let reaped = world.reap(inline.at(end)).await;
    assert_eq!(reaped.len(), 1);
    assert_eq!(reaped[0].stale, Duration::ZERO);
}

async fn live_leases_are_left_alone(world: &dyn World) {
    let ids = world.add(3).await;
    let (old, new) = (token("old", 1), token("new", 1));
    world.claim(&old, 1, T0).await;
    world.claim(&new, 1, at(20)).await;
    let reaped = world.reap_at(at(31)).await;
    assert_eq!(reaped.len(), 1);
    assert_eq!(reaped[0].id, ids[0]);
    assert_eq!(world.state(ids[1]).await, State::Claimed);
    assert!(world.renew(&new, at(32)).await.is_accepted());
    let settle = Settle::new(new).done([ids[1]]).strict().at(at(33));
    assert_eq!(world.settle(settle).await.refused().count(), 0);
}

async fn a_reap_is_bounded_and_takes_the_oldest_first(world: &dyn World) {
    let ids = world.add(5).await;
    // The later claims have shorter terms, so they lapse sooner.
    for n in 0..5_u64 {
        let term = Term::new(Duration::from_secs(20 - 2 * n)).unwrap();
        let claim = ask(&token("holder", n), 1, at(n)).term(term);
        world.try_claim(claim).await.expect("there are items");
    }
    let mut ended = Vec::new();
    for expected in [2, 2, 1, 0] {
        let reaped = world.reap(Reap::new(2, at_once()).at(at(60))).await;
        assert_eq!(reaped.len(), expected);
        ended.extend(reaped.iter().map(|item| item.id));
    }
    let oldest_first: Vec<ItemId> = ids.into_iter().rev().collect();
    assert_eq!(ended, oldest_first);
}

/// Proves: S4-052
async fn concurrent_reapers_end_each_lease_once(world: &dyn World) {
    let ids = world.add(12).await;
    for n in 0..6 {
        world.claim(&token("holder", n), 2, T0).await;
    }
    let (a, b, c) = tokio::join!(
        world.reap_at(at(60)),
        world.reap_at(at(60)),
        world.reap_at(at(60)),
    );
    let mut reaped: Vec<ItemId> = [a, b, c].concat().iter().map(|item| item.id).collect();
    reaped.extend(world.reap_at(at(60)).await.iter().map(|item| item.id));
    assert_eq!(reaped.len(), 12, "each once");
    let distinct: BTreeSet<ItemId> = reaped.into_iter().collect();
    assert_eq!(distinct, ids.iter().copied().collect());
    for id in ids {
        assert_eq!(world.counters(id).await.crashes, 1);
    }
}

async fn a_reap_that_ends_nothing_changes_nothing(world: &dyn World) {
    world.item_in(State::Done).await;
    world.item_in_fresh_lease().await;
    world.add(1).await;
    let before = world.dump().await;
    assert!(world.reap_at(at(29)).await.is_empty());
    assert!(
        world
            .reap(Reap::new(0, at_once()).at(at(99)))
            .await
            .is_empty()
    );
    assert_eq!(world.dump().await, before);
}

async fn only_items_that_are_still_held_lapse(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    world.claim(&holder, 3, T0).await;
    let settle = Settle::new(holder).done([ids[0], ids[2]]).at(at(1));
    assert_eq!(world.settle(settle).await.refused().count(), 0);
    let reaped = world.reap_at(at(60)).await;
    let found: Vec<ItemId> = reaped.iter().map(|item| item.id).collect();
    assert_eq!(found, [ids[1]]);
    assert_eq!(world.state(ids[0]).await, State::Done);
    assert_eq!(world.counters(ids[0]).await, Counters::default());
}

/// Lets the only item lapse once more; returns the answer of the reap for it.
async fn lapse(
    world: &dyn World,
    policy: &LapsePolicy,
    now: tenure_core::Timestamp,
) -> tenure_core::store::Reaped {
    let id = world.drain("victim", now).await;
    assert_eq!(id.len(), 1, "one item can be claimed");
    let past = now.after(TERM).after(TICK);
    let mut reaped = world.reap(Reap::new(10, policy.clone()).at(past)).await;
    assert_eq!(reaped.len(), 1);
    reaped.remove(0)
}

async fn each_lapse_delays_the_item_as_the_policy_says(world: &dyn World) {
    world.add(1).await;
    let delays = [1, 20, 300].map(Duration::from_secs);
    let policy = LapsePolicy::new(4, delays.to_vec()).unwrap();
    let mut now = T0;
    for expected in [delays[0], delays[1], delays[2], delays[2]] {
        let reaped = lapse(world, &policy, now).await;
        let reaped_at = now.after(TERM).after(TICK);
        let due = reaped.available_at.expect("it is pending");
        assert_eq!(due.since(reaped_at), expected);
        assert!(world.drain("early", due.before(TICK)).await.is_empty());
        now = due;
    }
}

/// Proves: S4-007, S4-027, S4-028, S4-030, S4-031, S4-041, S4-042, S4-043
async fn an_item_with_more_crashes_than_allowed_is_dead(world: &dyn World) {
    let id = world.add(1).await[0];
    let policy = LapsePolicy::new(3, vec![Duration::ZERO]).unwrap();
    for n in 1..=3 {
        let reaped = lapse(world, &policy, at(100 * n)).await;
        assert_eq!(reaped.state, State::Pending, "lapse {n}");
    }
    let reaped = lapse(world, &policy, at(400)).await;
    assert_eq!((reaped.state, reaped.available_at), (State::Dead, None));
    let record = world.record(id).await;
    assert_eq!(record.state, State::Dead);
    assert_eq!(record.dead_at, Some(at(430).after(TICK)));
    assert_eq!(record.hold, None);
    assert_eq!(
        record.last_error.as_deref(),
        Some("crash_loop: lease lapsed")
    );
    if world.outbox().is_some() {
        assert_eq!(record.dead_reason.as_deref(), Some("crash_loop"));
    }
    let expected = Counters {
        attempts: 4,
        crashes: 4,
        ..Counters::default()
    };
    assert_eq!(record.counters, expected);
}

async fn an_item_that_lapsed_twice_is_claimed_alone(world: &dyn World) {
    let ids = world.add(3).await;
    for n in 1..=2 {
        assert_eq!(
            world
                .claim(&fresh("victim"), 3, at(100 * n))
                .await
                .ids()
                .len(),
            3
        );
        assert_eq!(world.reap_at(at(100 * n + 50)).await.len(), 3);
    }
    let new = world.add(1).await;
    let together = world.claim(&fresh("worker"), 10, at(300)).await;
    assert_eq!(together.ids(), new, "the three are not claimed with others");
    let mut alone = Vec::new();
    for _ in 0..3 {
        let mut claim = ask(&fresh("worker"), 10, at(300)).alone();
        claim.limit = 10;
        let held = world.try_claim(claim).await.expect("one is left");
        assert_eq!(held.items.len(), 1, "one at a time, whatever the limit");
        assert_eq!(held.items[0].counters.crashes, 2);
        alone.extend(held.ids());
    }
    alone.sort();
    assert_eq!(alone, ids);
    let none = ask(&fresh("worker"), 1, at(300)).alone();
    assert!(world.try_claim(none).await.is_none());
}

async fn a_poison_item_is_claimed_alone_until_its_replay(world: &dyn World) {
    let id = world.add(1).await[0];
    for n in 1..=2 {
        lapse(world, &at_once(), at(100 * n)).await;
    }
    // Neither a retry nor a release changes the number of lapses.
    for (n, outcome) in [
        (3, crate::world::retry(0)),
        (4, tenure_core::Outcome::RELEASE),
    ] {
        let now = at(100 * n);
        assert!(
            world
                .try_claim(ask(&fresh("worker"), 9, now))
                .await
                .is_none()
        );
        let holder = fresh("worker");
        let held = world.try_claim(ask(&holder, 1, now).alone()).await;
        assert_eq!(held.expect("it is alone").ids(), [id]);
        assert_eq!(
            world.settle_one(&holder, id, outcome, now).await,
            Guarded::Accepted(())
        );
    }
    assert_eq!(world.bury(id, 1, at(500)).await, Guarded::Accepted(()));
    assert_eq!(world.replay(id, at(501)).await, Guarded::Accepted(()));
    assert_eq!(world.claim(&fresh("worker"), 9, at(501)).await.ids(), [id]);
}

/// One item kills its worker at each attempt, so that all leases of that worker lapse. The other
/// items must become done, and the poison item dead.
///
/// Proves: S4-041, S4-057, S4-058
async fn a_poison_item_dies_and_the_others_become_done(world: &dyn World) {
    let ids = world.add(10).await;
    let poison = ids[4];
    let policy = LapsePolicy::new(3, vec![Duration::ZERO]).unwrap();
    for round in 0..20 {
        let now = at(100 * round);
        world.reap(Reap::new(100, policy.clone()).at(now)).await;
        // A worker holds at most one poison item, and no other item with it.
        let together = fresh("worker");
        let alone = fresh("worker");
        let held = match world.try_claim(ask(&together, 100, now)).await {
            Some(held) => Some(held),
            None => world.try_claim(ask(&alone, 1, now).alone()).await,
        };
        let Some(held) = held else { break };
        if held.ids().contains(&poison) {
            continue;
        }
        let settle = Settle::new(held.lease.token.clone()).done(held.ids());
        assert_eq!(world.settle(settle.at(now)).await.refused().count(), 0);
    }
    for id in ids {
        let expected = if id == poison {
            State::Dead
        } else {
            State::Done
        };
        assert_eq!(world.state(id).await, expected, "item {id}");
    }
}

/// Proves: S1-022, S1-023, S4-048, S4-054, S4-055
async fn a_settle_after_a_reap_is_refused(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let (old, new) = (token("holder", 1), token("other", 1));
    assert_eq!(world.reap_at(at(31)).await.len(), 1);
    world.claim(&new, 1, at(32)).await;
    let before = world.dump().await;
    let answer = world
        .settle_one(&old, id, tenure_core::Outcome::Done, at(33))
        .await;
    assert_eq!(answer, Guarded::Refused(Refusal::Lost));
    assert_eq!(world.dump().await, before);
    let answer = world
        .settle_one(&new, id, tenure_core::Outcome::Done, at(34))
        .await;
    assert_eq!(answer, Guarded::Accepted(()));
}

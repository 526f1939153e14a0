//! Operators' calls: find, count, replay, bury.

use std::time::Duration;

use tenure_core::store::{Bury, Filter, Replay, Settle};
use tenure_core::{Counters, Guarded, ItemId, Outcome, OutcomeKind, Refusal, State};

use crate::world::{T0, TICK, World, at, dead, fresh, retry, token};

on_every_store!(
    unknown_items_are_not_found,
    a_list_shows_the_newest_first_page_by_page,
    a_list_can_be_filtered_by_state_and_age,
    a_page_with_a_limit_of_zero_is_empty,
    counts_show_the_items_of_each_state,
    a_replay_opens_a_new_generation,
    a_replay_answers_for_each_item,
    an_item_that_is_named_twice_is_replayed_once,
    an_item_that_is_not_settled_is_not_replayed,
    a_claim_after_a_replay_has_a_higher_fence,
    a_pending_item_can_be_buried,
    a_claimed_item_can_be_buried,
    a_bury_does_not_affect_other_items_of_the_lease,
    a_settled_item_is_not_buried,
    a_buried_item_can_be_replayed,
    a_long_reason_is_cut_and_its_nul_characters_are_replaced,
    the_timeline_shows_how_each_hold_ended,
);

async fn unknown_items_are_not_found(world: &dyn World) {
    let ids = world.add(2).await;
    let asked = [ItemId::new(987_654), ids[1], ItemId::new(-1), ids[0]];
    let records = world.operate().find(&asked).await.expect("find");
    let mut found: Vec<ItemId> = records.iter().map(|record| record.id).collect();
    found.sort();
    assert_eq!(found, ids);
    assert!(world.operate().find(&[]).await.expect("find").is_empty());
    let timeline = world.operate().timeline(ItemId::new(987_654)).await;
    assert!(timeline.expect("timeline").is_empty());
}

async fn pages(world: &dyn World, mut filter: Filter, limit: u32) -> Vec<ItemId> {
    let mut ids = Vec::new();
    loop {
        let page = world.operate().list(&filter, limit).await.expect("list");
        assert!(page.records.len() <= usize::try_from(limit).unwrap());
        ids.extend(page.records.iter().map(|record| record.id));
        match page.next {
            None => return ids,
            Some(next) => {
                assert_eq!(
                    Some(&next),
                    ids.last(),
                    "the page goes on after its last item"
                );
                filter.before = Some(next);
            }
        }
    }
}

async fn a_list_shows_the_newest_first_page_by_page(world: &dyn World) {
    let mut ids = world.add(7).await;
    ids.reverse();
    for limit in [1, 2, 3, 7, 100] {
        assert_eq!(
            pages(world, Filter::default(), limit).await,
            ids,
            "by {limit}"
        );
    }
}

async fn a_page_with_a_limit_of_zero_is_empty(world: &dyn World) {
    world.add(2).await;
    let page = world.operate().list(&Filter::default(), 0).await;
    let page = page.expect("list");
    assert_eq!((page.records.len(), page.next), (0, None));
}

async fn a_list_can_be_filtered_by_state_and_age(world: &dyn World) {
    let ids = world.add(6).await;
    let holder = token("holder", 1);
    world.claim(&holder, 4, T0).await;
    let settle = Settle::new(holder)
        .done([ids[0], ids[3]])
        .item(ids[1], dead());
    assert_eq!(world.settle(settle.at(at(1))).await.refused().count(), 0);
    for (state, expected) in [
        (State::Pending, vec![ids[5], ids[4]]),
        (State::Claimed, vec![ids[2]]),
        (State::Done, vec![ids[3], ids[0]]),
        (State::Dead, vec![ids[1]]),
    ] {
        for limit in [1, 10] {
            let filter = Filter {
                state: Some(state),
                ..Filter::default()
            };
            assert_eq!(pages(world, filter, limit).await, expected, "{state}");
        }
    }
    let newest = world.record(ids[5]).await.created_at;
    let since = |since| Filter {
        since: Some(since),
        ..Filter::default()
    };
    assert!(pages(world, since(newest), 10).await.contains(&ids[5]));
    assert!(pages(world, since(T0), 10).await.is_empty());
}

async fn counts_show_the_items_of_each_state(world: &dyn World) {
    let ids = world.add(9).await;
    let (first, second) = (token("holder", 1), token("holder", 2));
    world.claim(&first, 4, T0).await;
    world.claim(&second, 2, at(20)).await;
    let settle = Settle::new(first)
        .done([ids[0]])
        .item(ids[1], dead())
        .item(ids[2], retry(100));
    assert_eq!(world.settle(settle.at(at(1))).await.refused().count(), 0);
    // These are left: one lapsed at 30, two held until 50, one pending again at 101, three due.
    let counts = world.operate().count(Some(at(30))).await.expect("count");
    assert_eq!(
        (counts.claimed, counts.lapsed),
        (3, 1),
        "the end of the term counts as lapsed"
    );
    assert_eq!((counts.done, counts.dead), (1, 1));
    assert_eq!(counts.pending(), 4);
    let (_, queue) = counts
        .queues
        .iter()
        .find(|(name, _)| name.as_str() == "default")
        .expect("the default queue is counted");
    assert_eq!((queue.due, queue.delayed), (3, 1));
    let first = world.record(ids[6]).await;
    let first_due = first.available_at.unwrap_or(first.created_at);
    assert_eq!(queue.oldest_due, Some(at(30).since(first_due)));
    let counts = world.operate().count(Some(at(101))).await.expect("count");
    assert_eq!((counts.claimed, counts.lapsed), (3, 3));
    assert_eq!((counts.queues[0].1.due, counts.queues[0].1.delayed), (4, 0));
}

/// A replay resets the counters and the error, and raises the generation by one.
///
/// Proves: S4-008, S4-009, S4-032, S4-033, S4-034, S4-046
async fn a_replay_opens_a_new_generation(world: &dyn World) {
    for (end, last) in [(Outcome::Done, State::Done), (dead(), State::Dead)] {
        let (holder, id) = world.item_in_fresh_lease().await;
        assert_eq!(
            world.settle_one(&holder, id, retry(0), at(1)).await,
            Guarded::Accepted(())
        );
        world.drain("victim", at(2)).await;
        assert_eq!(world.reap_at(at(60)).await.len(), 1);
        let holder = fresh("holder");
        world.claim(&holder, 1, at(60)).await;
        assert_eq!(
            world.settle_one(&holder, id, end, at(61)).await,
            Guarded::Accepted(())
        );
        assert_eq!(world.state(id).await, last);
        for generation in 1..=2 {
            let now = at(100 * u64::from(generation));
            assert_eq!(world.replay(id, now).await, Guarded::Accepted(()));
            let record = world.record(id).await;
            assert_eq!(record.state, State::Pending);
            let expected = Counters {
                generation,
                ..Counters::default()
            };
            assert_eq!(record.counters, expected, "from {last}");
            assert_eq!(record.last_error, None);
            assert_eq!(record.available_at, Some(now));
            assert_eq!((record.done_at, record.dead_at), (None, None));
            assert_eq!((record.hold, record.dead_reason), (None, None));
            let early = crate::world::ask(&fresh("worker"), 1, now.before(TICK));
            assert!(world.try_claim(early).await.is_none());
            let holder = fresh("worker");
            let held = world.claim(&holder, 1, now).await;
            assert_eq!(held.ids(), [id]);
            assert_eq!(held.items[0].counters, expected);
            let done = world.settle_one(&holder, id, Outcome::Done, now).await;
            assert_eq!(done, Guarded::Accepted(()));
        }
    }
}

async fn a_replay_answers_for_each_item(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    world.claim(&holder, 2, T0).await;
    assert_eq!(
        world
            .settle_one(&holder, ids[0], Outcome::Done, at(1))
            .await,
        Guarded::Accepted(())
    );
    let asked = vec![ids[2], ItemId::new(987_654), ids[0], ids[1]];
    let replay = Replay {
        ids: asked.clone(),
        now: Some(at(2)),
    };
    let answers = world.operate().replay(&replay).await.expect("replay");
    let expected = [
        (asked[0], Guarded::Refused(Refusal::NotSettled)),
        (asked[1], Guarded::Refused(Refusal::NotFound)),
        (asked[2], Guarded::Accepted(())),
        (asked[3], Guarded::Refused(Refusal::NotSettled)),
    ];
    assert_eq!(answers, expected);
}

async fn an_item_that_is_named_twice_is_replayed_once(world: &dyn World) {
    for state in [State::Done, State::Dead] {
        let id = world.item_in(state).await;
        let replay = Replay::new(vec![id, id]).at(at(50));
        let answers = world.operate().replay(&replay).await.expect("replay");
        let expected = [
            (id, Guarded::Accepted(())),
            (id, Guarded::Refused(Refusal::NotSettled)),
        ];
        assert_eq!(answers, expected);
        assert_eq!(world.record(id).await.counters.generation, 1);
    }
}

async fn an_item_that_is_not_settled_is_not_replayed(world: &dyn World) {
    let claimed = world.item_in(State::Claimed).await;
    let pending = world.add(1).await[0];
    let before = world.dump().await;
    for id in [pending, claimed] {
        // A claimed item is not replayed even after its lease has lapsed, because the reaper must
        // end the lease first.
        for now in [at(1), at(99)] {
            assert_eq!(
                world.replay(id, now).await,
                Guarded::Refused(Refusal::NotSettled)
            );
        }
    }
    let unknown = world.replay(ItemId::new(987_654), at(1)).await;
    assert_eq!(unknown, Guarded::Refused(Refusal::NotFound));
    assert_eq!(world.dump().await, before);
}

/// Proves: S1-062
async fn a_claim_after_a_replay_has_a_higher_fence(world: &dyn World) {
    let id = world.add(1).await[0];
    let mut last = None;
    for n in 0..3 {
        let holder = token("holder", n);
        let held = world.claim(&holder, 1, at(10 * n)).await;
        assert!(
            Some(held.lease.fence) > last,
            "{:?} after {last:?}",
            held.lease.fence
        );
        last = Some(held.lease.fence);
        let done = world
            .settle_one(&holder, id, Outcome::Done, at(10 * n + 1))
            .await;
        assert_eq!(done, Guarded::Accepted(()));
        assert_eq!(
            world.replay(id, at(10 * n + 2)).await,
            Guarded::Accepted(())
        );
    }
}

/// Proves: S4-042
async fn a_pending_item_can_be_buried(world: &dyn World) {
    let (holder, id) = world.item_in_fresh_lease().await;
    assert_eq!(
        world.settle_one(&holder, id, retry(500), at(1)).await,
        Guarded::Accepted(())
    );
    assert_eq!(world.bury(id, 1, at(2)).await, Guarded::Accepted(()));
    let record = world.record(id).await;
    assert_eq!((record.state, record.dead_at), (State::Dead, Some(at(2))));
    assert_eq!(record.last_error.as_deref(), Some("the customer is gone"));
    if world.outbox().is_some() {
        assert_eq!(record.dead_reason.as_deref(), Some("buried"));
    }
    let expected = Counters {
        attempts: 2,
        failures: 1,
        ..Counters::default()
    };
    assert_eq!(record.counters, expected, "a bury is not a failure");
    assert!(world.drain("worker", at(9999)).await.is_empty());
}

/// Proves: S4-042
async fn a_claimed_item_can_be_buried(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let holder = token("holder", 1);
    assert_eq!(world.bury(id, 1, at(2)).await, Guarded::Accepted(()));
    let record = world.record(id).await;
    assert_eq!((record.state, record.dead_at), (State::Dead, Some(at(2))));
    assert_eq!(record.hold, None);
    assert_eq!((record.counters.attempts, record.counters.failures), (1, 0));
    let before = world.dump().await;
    for outcome in crate::world::every_outcome() {
        let answer = world.settle_one(&holder, id, outcome, at(3)).await;
        assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled));
    }
    assert_eq!(world.dump().await, before);
    if world.outbox().is_some() {
        let timeline = world.operate().timeline(id).await.expect("timeline");
        assert_eq!(timeline.len(), 1);
        assert_eq!(timeline[0].outcome, OutcomeKind::Buried);
        assert_eq!(timeline[0].holder, holder.holder(), "whose hold it ended");
    }
}

async fn a_bury_does_not_affect_other_items_of_the_lease(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    world.claim(&holder, 3, T0).await;
    assert_eq!(world.bury(ids[1], 1, at(2)).await, Guarded::Accepted(()));
    let settle = Settle::new(holder).done(ids.clone()).at(at(3));
    let answers: Vec<_> = world.settle(settle).await.items;
    let expected = [
        (ids[0], Guarded::Accepted(())),
        (ids[1], Guarded::Refused(Refusal::AlreadySettled)),
        (ids[2], Guarded::Accepted(())),
    ];
    assert_eq!(answers, expected);
}

async fn a_settled_item_is_not_buried(world: &dyn World) {
    let done = world.item_in(State::Done).await;
    let dead = world.item_by(&token("holder", 2), State::Dead).await;
    let before = world.dump().await;
    for id in [done, dead] {
        let answer = world.bury(id, 1, at(5)).await;
        assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled));
    }
    let unknown = world.bury(ItemId::new(987_654), 2, at(5)).await;
    assert_eq!(unknown, Guarded::Refused(Refusal::NotFound));
    assert_eq!(world.dump().await, before);
}

async fn a_buried_item_can_be_replayed(world: &dyn World) {
    let id = world.item_in(State::Pending).await;
    assert_eq!(world.bury(id, 1, at(1)).await, Guarded::Accepted(()));
    assert_eq!(world.replay(id, at(2)).await, Guarded::Accepted(()));
    assert_eq!(world.claim(&token("worker", 1), 1, at(2)).await.ids(), [id]);
}

async fn a_long_reason_is_cut_and_its_nul_characters_are_replaced(world: &dyn World) {
    let id = world.item_in(State::Pending).await;
    let bury = Bury {
        id,
        token: token("operator", 1),
        reason: "€\0".repeat(2000),
        now: Some(at(1)),
    };
    let answer = world.operate().bury(&bury).await.expect("bury");
    assert_eq!(answer, Guarded::Accepted(()));
    let expected = "€\u{fffd}".repeat(500);
    assert_eq!(world.record(id).await.last_error, Some(expected));
}

/// Only the queue layout has a journal.
async fn the_timeline_shows_how_each_hold_ended(world: &dyn World) {
    let id = world.add(1).await[0];
    let mut now = T0;
    let mut expected = Vec::new();
    for outcome in [retry(0), Outcome::RELEASE, Outcome::Done] {
        let holder = fresh("holder");
        let held = world.claim(&holder, 1, now).await;
        let settled_at = now.after(Duration::from_secs(1));
        let word = outcome.kind();
        assert_eq!(
            world.settle_one(&holder, id, outcome, settled_at).await,
            Guarded::Accepted(())
        );
        expected.push((held.lease.fence, word, now, settled_at));
        now = now.after(Duration::from_secs(2));
    }
    assert_eq!(world.replay(id, now).await, Guarded::Accepted(()));
    let held = world.claim(&fresh("holder"), 1, now).await;
    let later = now.after(Duration::from_mins(1));
    assert_eq!(world.reap_at(later).await.len(), 1);
    expected.push((held.lease.fence, OutcomeKind::Lapsed, now, later));
    let timeline = world.operate().timeline(id).await.expect("timeline");
    let found: Vec<_> = timeline
        .iter()
        .map(|line| (line.fence, line.outcome, line.claimed_at, line.settled_at))
        .collect();
    if world.outbox().is_some() {
        assert_eq!(found, expected);
    } else {
        assert!(found.is_empty());
    }
}

//! Turns: the items of a key that a claim takes, and runs of which some items are not settled.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::store::{Claim, QueueRules, Reap, Rest, Settle};
use tenure_core::{
    Counters, Guarded, ItemId, NewEvent, OnDead, Outcome, OutcomeKind, Priority, Refusal, State,
};

use super::keys::{add_keyed, add_run, enqueue, keyed, ranked};
use crate::world::{T0, World, ask, at, at_once, dead, fresh, retry, token};

on_every_queue!(
    law_1_one_lease_holds_all_held_items_of_a_key,
    law_7_in_a_key_items_are_settled_in_order,
    only_the_head_of_a_key_is_claimed,
    a_key_spans_queues_and_priorities,
    a_claim_takes_a_run_with_its_head,
    a_claim_with_runs_that_is_not_full_leaves_no_item,
    runs_fill_the_limit_after_items_without_a_key,
    a_run_stops_before_an_item_that_is_not_due,
    a_run_stays_in_its_lane,
    a_run_stops_before_a_replayed_item,
    a_head_that_was_claimed_before_is_claimed_without_a_run,
    a_poison_head_is_claimed_without_a_run,
    an_outcome_out_of_turn_is_refused,
    the_rest_of_a_run_returns_to_the_backlog,
    outcomes_behind_a_retried_head_are_refused,
    a_release_behind_the_head_is_never_refused,
    items_behind_a_released_item_return_with_it,
    rest_done_and_release_keep_the_order_of_a_run,
    a_waiting_head_holds_back_only_its_own_key,
    a_dead_head_is_skipped,
    a_dead_head_blocks_its_key_if_the_settle_asks_for_it,
    a_lapse_of_a_run_counts_a_crash_of_its_first_item_only,
    a_head_that_crashed_too_often_is_skipped,
    a_head_that_crashed_too_often_can_block_its_key,
    a_repeated_settle_of_a_run_gives_the_same_answer,
);

/// While a worker holds an item of a key, no claim gets another item of the key, whatever its
/// options are.
///
/// Proves: S3-001, S3-007, S4-039, S4-051
async fn law_1_one_lease_holds_all_held_items_of_a_key(world: &dyn World) {
    let ids = add_keyed(world, &["a", "b", "a", "b", "a", "b", "a"]).await;
    let holder = fresh("worker");
    // The claim takes a run of two items of each key. The loop settles only the first item of each
    // run.
    let held = world.try_claim(ask(&holder, 4, T0).min_parallel(2)).await;
    let held = held.expect("there are items").ids();
    assert_eq!(sorted(held), ids[..4]);
    for settled in [None, Some(ids[0]), Some(ids[1])] {
        if let Some(id) = settled {
            let answer = world.settle_one(&holder, id, Outcome::Done, at(1)).await;
            assert_eq!(answer, Guarded::Accepted(()));
        }
        let claim = ask(&fresh("other"), 9, at(2)).recovery(Some(at_once()));
        assert_eq!(world.try_claim(claim.min_parallel(1)).await, None);
    }
    let answer = world
        .settle_one(&holder, ids[2], Outcome::Done, at(3))
        .await;
    assert_eq!(answer, Guarded::Accepted(()));
    let next = world.claim(&fresh("other"), 9, at(4)).await.ids();
    assert_eq!(next, [ids[4]], "the other key is still held");
}

/// Works through three keys with runs of several lengths and with every outcome: the items of a key
/// are always settled in their order.
///
/// Proves: S3-001, S3-021, S4-051
async fn law_7_in_a_key_items_are_settled_in_order(world: &dyn World) {
    let keys = ["a", "b", "c"];
    let mut ids: BTreeMap<ItemId, &str> = BTreeMap::new();
    for round in 0..4 {
        let batch: Vec<&str> = keys.iter().cycle().copied().take(6 + round % 3).collect();
        ids.extend(add_keyed(world, &batch).await.into_iter().zip(batch));
    }
    let mut ended: BTreeMap<&str, Vec<ItemId>> = BTreeMap::new();
    for turn in 0.. {
        let now = at(turn * 60);
        let holder = fresh("worker");
        let claim = ask(&holder, 6, now).min_parallel(1 + u32::try_from(turn % 3).unwrap());
        let Some(held) = world.try_claim(claim).await else {
            break;
        };
        let mut settle = Settle::new(holder).at(now).rest(Rest::Release);
        for (nth, id) in held.ids().into_iter().enumerate() {
            settle = match (nth + usize::try_from(turn).unwrap()) % 5 {
                0 => settle.item(id, retry(1)),
                1 => settle.item(id, dead()),
                2 => settle,
                _ => settle.item(id, Outcome::Done),
            };
        }
        for (id, answer) in world.settle(settle).await.items {
            let state = world.state(id).await;
            assert_ne!(state, State::Claimed, "nothing stays held");
            if answer.is_accepted() && state.is_terminal() {
                ended.entry(ids[&id]).or_default().push(id);
            }
        }
    }
    for (key, order) in &ended {
        let all: Vec<ItemId> = ids.iter().filter(|(_, of)| *of == key).map(id_of).collect();
        assert_eq!(*order, all, "{key}: all of them, in their order");
    }
    assert_eq!(ended.len(), keys.len());
}

fn id_of((id, _): (&ItemId, &&str)) -> ItemId {
    *id
}

fn sorted(mut ids: Vec<ItemId>) -> Vec<ItemId> {
    ids.sort();
    ids
}

/// Claims one run of up to four items and returns its ids.
async fn claim_run(world: &dyn World, now: tenure_core::Timestamp) -> Vec<ItemId> {
    let held = world
        .try_claim(ask(&fresh("worker"), 4, now).min_parallel(1))
        .await;
    held.map(|held| held.ids()).unwrap_or_default()
}

/// Proves: S3-007, S3-024
async fn only_the_head_of_a_key_is_claimed(world: &dyn World) {
    let ids = add_keyed(world, &["a", "a", "b", "a"]).await;
    let plain = world.add(1).await[0];
    let holder = token("worker", 1);
    let held = world.claim(&holder, 9, at(9)).await;
    assert_eq!(sorted(held.ids()), [ids[0], ids[2], plain]);
    assert!(!held.is_full);
    for id in [ids[1], ids[3]] {
        assert_eq!(world.state(id).await, State::Pending);
    }
    let answer = world
        .settle_one(&holder, ids[0], Outcome::Done, at(10))
        .await;
    assert_eq!(answer, Guarded::Accepted(()));
    assert_eq!(
        world.claim(&token("worker", 2), 9, at(11)).await.ids(),
        [ids[1]]
    );
}

async fn a_key_spans_queues_and_priorities(world: &dyn World) {
    let outbox = world.outbox().expect("the queue layout");
    let mail = tenure_core::QueueName::new("mail").expect("a queue's name");
    outbox
        .add_queue(&mail, QueueRules::default())
        .await
        .expect("add a queue");
    let events = [
        keyed("a"),
        NewEvent::from(keyed("a"))
            .priority(Priority::MAX.level())
            .build()
            .unwrap(),
        NewEvent::from(keyed("a"))
            .queue("mail")
            .build()
            .expect("a queue's name"),
    ];
    let ids = enqueue(world, &events).await;
    for (n, id) in (1..).zip(ids) {
        let queues = vec![mail.clone(), tenure_core::QueueName::default()];
        let claim = ask(&token("worker", n), 9, at(n)).queues(queues);
        let held = world.try_claim(claim).await.expect("a head");
        assert_eq!(
            held.ids(),
            [id],
            "priority does not change the order of a key"
        );
        let answer = world
            .settle_one(&token("worker", n), id, Outcome::Done, at(n))
            .await;
        assert_eq!(answer, Guarded::Accepted(()));
    }
}

async fn a_claim_takes_a_run_with_its_head(world: &dyn World) {
    let ids = add_keyed(world, &["a", "b", "a", "b", "a", "b", "a", "b", "a"]).await;
    // A limit of 8 with at least 2 in parallel gives runs of 4.
    let held = world
        .try_claim(ask(&fresh("worker"), 8, T0).min_parallel(2))
        .await
        .expect("there are items");
    assert!(held.is_full);
    for (nth, key) in ["a", "b"].iter().enumerate() {
        let all: Vec<ItemId> = ids.iter().skip(nth).step_by(2).copied().collect();
        let of_key = |id: &ItemId| all.contains(id);
        let run: Vec<ItemId> = held.ids().into_iter().filter(of_key).collect();
        assert_eq!(run, all[..4], "{key}: from the head on, in order");
    }
    let counts = world.operate().count(Some(T0)).await.expect("count");
    assert_eq!((counts.claimed, counts.pending()), (8, 1));
}

/// The claim considers as many items as its limit. It takes the items without a key; the heads and
/// their runs share the rest of the limit, and the last run is cut to fit. The claim passes no
/// time, because with its own clock the store may read fewer items.
async fn a_claim_with_runs_that_is_not_full_leaves_no_item(world: &dyn World) {
    let keys: Vec<String> = (0..30).map(|nth| format!("k{}", nth % 10)).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let ids = add_keyed(world, &keys).await;
    let mut taken = Vec::new();
    loop {
        let holder = fresh("worker");
        let claim = Claim::new(holder.clone(), 32)
            .min_parallel(2)
            .recovery(None);
        let held = world.lease().claim(&claim).await.expect("claim");
        let Some(held) = held else { break };
        taken.extend(held.ids());
        let settle = Settle::new(holder).done(held.ids());
        let settled = world.lease().settle(&settle).await.expect("settle");
        assert_eq!(settled.refused().count(), 0);
        if !held.is_full {
            break;
        }
    }
    assert_eq!(sorted(taken), ids);
}

async fn runs_fill_the_limit_after_items_without_a_key(world: &dyn World) {
    let keyed = add_keyed(world, &["a", "b", "a", "b", "a", "b"]).await;
    let plain = world.add(2).await;
    let claim = ask(&fresh("worker"), 5, at(9)).min_parallel(2);
    let held = world.try_claim(claim).await.expect("there are items");
    let expected = [keyed[0], keyed[1], keyed[2], plain[0], plain[1]];
    assert_eq!(sorted(held.ids()), expected);
    assert!(held.is_full);
    // A claim without `min_parallel` takes no runs.
    let more = add_keyed(world, &["c", "d", "c", "d"]).await;
    let held = world.claim(&fresh("worker"), 9, at(9)).await;
    assert_eq!(sorted(held.ids()), more[..2]);
}

async fn a_run_stops_before_an_item_that_is_not_due(world: &dyn World) {
    let events = [keyed("a"), keyed("a"), ranked("a", 3600), keyed("a")];
    let ids = enqueue(world, &events).await;
    // At this time, by the store's own clock, all events but the delayed one are due.
    let now = world.record(ids[3]).await.created_at;
    assert_eq!(claim_run(world, now).await, ids[..2]);
}

async fn a_run_stays_in_its_lane(world: &dyn World) {
    let urgent = NewEvent::from(keyed("a"))
        .priority(Priority::MAX.level())
        .build()
        .unwrap();
    let ids = enqueue(world, &[keyed("a"), keyed("a"), urgent, keyed("a")]).await;
    assert_eq!(claim_run(world, T0).await, ids[..2]);
}

async fn a_run_stops_before_a_replayed_item(world: &dyn World) {
    let done = add_run(world, 1).await;
    world.tidy(T0).await;
    let ids = add_run(world, 2).await;
    assert_eq!(world.replay(done[0], at(1)).await, Guarded::Accepted(()));
    let last = add_run(world, 1).await;
    assert_eq!(claim_run(world, at(2)).await, ids);
    assert_eq!(world.state(last[0]).await, State::Pending);
}

async fn a_head_that_was_claimed_before_is_claimed_without_a_run(world: &dyn World) {
    let ids = add_run(world, 3).await;
    world.claim(&token("worker", 1), 1, T0).await;
    assert_eq!(world.release(&token("worker", 1), T0).await, 1);
    assert_eq!(claim_run(world, at(1)).await, ids[..1]);
}

async fn a_poison_head_is_claimed_without_a_run(world: &dyn World) {
    let ids = add_run(world, 3).await;
    for n in 1..=2 {
        world.claim(&token("worker", n), 1, at(n * 60)).await;
        assert_eq!(world.reap_at(at(n * 60 + 31)).await.len(), 1);
    }
    assert_eq!(
        claim_run(world, at(300)).await,
        [],
        "an ordinary claim does not take it"
    );
    let alone = ask(&fresh("worker"), 4, at(300)).min_parallel(1).alone();
    let held = world.try_claim(alone).await.expect("the head, alone");
    assert_eq!(held.ids(), ids[..1]);
}

/// Claims a run of `n` items; returns its token and ids.
async fn held_run(world: &dyn World, n: u32) -> (tenure_core::Token, Vec<ItemId>) {
    let ids = add_run(world, n).await;
    let holder = fresh("worker");
    let held = world.try_claim(ask(&holder, n, T0).min_parallel(1)).await;
    assert_eq!(held.expect("there are items").ids(), ids);
    (holder, ids)
}

/// Proves: S3-001
async fn an_outcome_out_of_turn_is_refused(world: &dyn World) {
    let (holder, ids) = held_run(world, 3).await;
    let before = world.dump().await;
    for outcome in [Outcome::Done, dead(), retry(0)] {
        let answer = world.settle_one(&holder, ids[1], outcome, at(1)).await;
        assert_eq!(answer, Guarded::Refused(Refusal::OutOfTurn));
    }
    assert_eq!(world.dump().await, before, "not a byte was changed");
    let settle = Settle::new(holder.clone()).done([ids[0], ids[2]]);
    let answer = world.settle(settle.at(at(2))).await;
    let refused: Vec<_> = answer.refused().collect();
    assert_eq!(refused, [(ids[2], Refusal::OutOfTurn)]);
    let settle = Settle::new(holder).done([ids[2], ids[1]]).at(at(3));
    assert_eq!(
        world.settle(settle).await.refused().count(),
        0,
        "the order in which they are named does not matter"
    );
}

async fn the_rest_of_a_run_returns_to_the_backlog(world: &dyn World) {
    for outcome in [retry(0), Outcome::RELEASE] {
        let (holder, ids) = held_run(world, 4).await;
        let settle = Settle::new(holder.clone()).done([ids[0]]);
        let settle = settle.item(ids[1], outcome.clone()).at(at(1));
        let answer = world.settle(settle).await;
        assert_eq!((answer.refused().count(), answer.rest), (0, 0));
        assert!(!world.renew(&holder, at(1)).await.is_accepted(), "gone");
        for id in &ids[2..] {
            let attempts = Counters {
                attempts: 1,
                ..Counters::default()
            };
            assert_eq!(world.counters(*id).await, attempts);
            let timeline = world.operate().timeline(*id).await.expect("timeline");
            let words: Vec<OutcomeKind> = timeline.iter().map(|line| line.outcome).collect();
            assert_eq!(words, [OutcomeKind::Release]);
        }
        assert_eq!(claim_run(world, at(2)).await, ids[1..2], "{outcome:?}");
        world.reap_at(at(60)).await;
        world.tidy(at(60)).await;
    }
}

async fn outcomes_behind_a_retried_head_are_refused(world: &dyn World) {
    let (holder, ids) = held_run(world, 4).await;
    let settle = Settle::new(holder)
        .item(ids[0], retry(9))
        .done([ids[1]])
        .item(ids[2], dead())
        .item(ids[3], retry(5));
    let answer = world.settle(settle.at(at(1))).await;
    let refused: Vec<_> = answer.refused().collect();
    let all = ids[1..].iter().map(|id| (*id, Refusal::OutOfTurn));
    assert_eq!(refused, all.collect::<Vec<_>>());
    for id in &ids[1..] {
        let record = world.record(*id).await;
        assert_eq!(record.state, State::Pending);
        assert_eq!((record.counters.attempts, record.counters.failures), (1, 0));
        assert_eq!(record.last_error, None, "a refused outcome leaves no error");
        assert!(record.available_at < Some(at(1)));
    }
    assert_eq!(claim_run(world, at(9)).await, []);
    assert_eq!(claim_run(world, at(10)).await, ids[..1]);
}

async fn items_behind_a_released_item_return_with_it(world: &dyn World) {
    let (holder, ids) = held_run(world, 4).await;
    let settle = Settle::new(holder.clone()).item(ids[1], Outcome::RELEASE);
    let answer = world.settle(settle.at(at(1))).await;
    assert_eq!((answer.refused().count(), answer.rest), (0, 0));
    let late = world
        .settle_one(&holder, ids[3], Outcome::Done, at(2))
        .await;
    assert_eq!(
        late,
        Guarded::Refused(Refusal::NotClaimed),
        "it went back, too"
    );
    let first = world
        .settle_one(&holder, ids[0], Outcome::Done, at(2))
        .await;
    assert_eq!(first, Guarded::Accepted(()), "it is still held");
    assert_eq!(claim_run(world, at(3)).await, ids[1..2]);
}

async fn a_release_behind_the_head_is_never_refused(world: &dyn World) {
    let (holder, ids) = held_run(world, 3).await;
    let release = |seconds| Outcome::Release {
        after: Duration::from_secs(seconds),
    };
    let settle = Settle::new(holder)
        .item(ids[0], release(0))
        .item(ids[1], release(0))
        .item(ids[2], release(99));
    let answer = world.settle(settle.at(at(1))).await;
    assert_eq!(answer.refused().count(), 0);
    assert_eq!(world.record(ids[2]).await.available_at, Some(at(100)));
    assert_eq!(claim_run(world, at(2)).await, ids[..1]);
}

async fn rest_done_and_release_keep_the_order_of_a_run(world: &dyn World) {
    let (holder, ids) = held_run(world, 3).await;
    let settle = Settle::new(holder).rest(Rest::Done).item(ids[1], retry(0));
    let answer = world.settle(settle.at(at(1))).await;
    assert_eq!((answer.refused().count(), answer.rest), (0, 1));
    assert_eq!(world.state(ids[0]).await, State::Done);
    assert_eq!(world.state(ids[2]).await, State::Pending, "it went back");
    let holder = fresh("worker");
    world.claim(&holder, 9, at(2)).await;
    assert_eq!(world.release(&holder, at(3)).await, 1);
    let (other, more) = held_run_of(world, "b", 3).await;
    assert_eq!(world.release(&other, at(4)).await, 3);
    assert_eq!(sorted(claim_run(world, at(5)).await), [ids[1], more[0]]);
}

async fn held_run_of(world: &dyn World, key: &str, n: usize) -> (tenure_core::Token, Vec<ItemId>) {
    let ids = enqueue(
        world,
        &vec![
            NewEvent::from(keyed(key))
                .priority(Priority::MAX.level())
                .build()
                .unwrap();
            n
        ],
    )
    .await;
    let holder = fresh("worker");
    let limit = u32::try_from(n).unwrap();
    let held = world
        .try_claim(ask(&holder, limit, T0).min_parallel(1))
        .await;
    assert_eq!(held.expect("there are items").ids(), ids);
    (holder, ids)
}

/// Proves: S3-063
async fn a_waiting_head_holds_back_only_its_own_key(world: &dyn World) {
    let ids = add_keyed(world, &["a", "a", "b"]).await;
    let delayed = enqueue(world, &[ranked("c", 3600), keyed("c")]).await;
    let holder = token("worker", 1);
    let now = world.record(delayed[1]).await.created_at;
    let held = world.claim(&holder, 9, now).await;
    assert_eq!(sorted(held.ids()), [ids[0], ids[2]], "nothing of key c");
    let settle = Settle::new(holder).item(ids[0], retry(60)).done([ids[2]]);
    assert_eq!(world.settle(settle.at(T0)).await.refused().count(), 0);
    assert_eq!(claim_run(world, at(59)).await, delayed);
    assert_eq!(claim_run(world, at(60)).await, ids[..1]);
}

/// Proves: S3-059, S3-065
async fn a_dead_head_is_skipped(world: &dyn World) {
    let (holder, ids) = held_run(world, 3).await;
    let settle = Settle::new(holder).item(ids[0], dead()).done([ids[1]]);
    assert_eq!(world.settle(settle.at(at(1))).await.refused().count(), 0);
    assert_eq!(world.state(ids[0]).await, State::Dead);
    assert_eq!(world.state(ids[1]).await, State::Done);
    assert_eq!(world.state(ids[2]).await, State::Claimed);
}

async fn a_dead_head_blocks_its_key_if_the_settle_asks_for_it(world: &dyn World) {
    let (holder, ids) = held_run(world, 3).await;
    let settle = Settle::new(holder)
        .item(ids[0], dead())
        .done([ids[1]])
        .on_dead(OnDead::Block);
    let answer = world.settle(settle.at(at(1))).await;
    let refused: Vec<_> = answer.refused().collect();
    assert_eq!(refused, [(ids[1], Refusal::OutOfTurn)]);
    let more = add_keyed(world, &["a", "b"]).await;
    assert_eq!(claim_run(world, at(99)).await, more[1..]);
    for id in [ids[1], ids[2], more[0]] {
        assert_eq!(world.state(id).await, State::Pending);
    }
}

/// The dead worker was working on the first item of the run only.
async fn a_lapse_of_a_run_counts_a_crash_of_its_first_item_only(world: &dyn World) {
    let (_, ids) = held_run(world, 3).await;
    let reaped = world.reap(Reap::new(9, at_once()).at(at(31))).await;
    let of: Vec<_> = reaped.iter().map(|item| (item.id, item.state)).collect();
    let all = ids.iter().map(|id| (*id, State::Pending));
    assert_eq!(of, all.collect::<Vec<_>>());
    for (nth, id) in ids.iter().enumerate() {
        let record = world.record(*id).await;
        let crashes = u32::from(nth == 0);
        assert_eq!(
            (record.counters.attempts, record.counters.crashes),
            (1, crashes)
        );
        assert_eq!(record.last_error.is_some(), nth == 0);
        assert_eq!(record.available_at == Some(at(31)), nth == 0);
        let timeline = world.operate().timeline(*id).await.expect("timeline");
        assert_eq!(timeline[0].outcome, OutcomeKind::Lapsed);
    }
    assert_eq!(claim_run(world, at(32)).await, ids[..1]);
}

/// Lets the head lapse until it is dead. From the third claim on, the head is claimed alone.
async fn wear_out(world: &dyn World, on_dead: OnDead) -> Vec<ItemId> {
    let ids = add_run(world, 3).await;
    for n in 0..6 {
        let holder = fresh("worker");
        let mut claim = ask(&holder, 4, at(n * 60)).min_parallel(1);
        if n >= 2 {
            claim = claim.alone();
        }
        let held = world.try_claim(claim).await.expect("the head");
        assert_eq!(held.ids()[0], ids[0]);
        let policy = at_once().with_on_dead(on_dead);
        world.reap(Reap::new(9, policy).at(at(n * 60 + 31))).await;
    }
    assert_eq!(world.state(ids[0]).await, State::Dead);
    ids
}

async fn a_head_that_crashed_too_often_is_skipped(world: &dyn World) {
    let ids = wear_out(world, OnDead::Skip).await;
    assert_eq!(claim_run(world, at(999)).await, ids[1..2]);
}

async fn a_head_that_crashed_too_often_can_block_its_key(world: &dyn World) {
    let ids = wear_out(world, OnDead::Block).await;
    assert_eq!(claim_run(world, at(999)).await, []);
    assert_eq!(world.state(ids[1]).await, State::Pending);
}

/// A repeat accepts the accepted outcomes again and refuses the refused ones again.
async fn a_repeated_settle_of_a_run_gives_the_same_answer(world: &dyn World) {
    let (holder, ids) = held_run(world, 4).await;
    let settle = Settle::new(holder)
        .done([ids[0]])
        .item(ids[1], retry(0))
        .item(ids[2], Outcome::RELEASE)
        .done([ids[3]])
        .at(at(1));
    let kept = |answer: &tenure_core::store::Settlement| -> Vec<bool> {
        answer
            .items
            .iter()
            .map(|(_, it)| it.is_accepted())
            .collect()
    };
    let first = world.settle(settle.clone()).await;
    assert_eq!(kept(&first), [true, true, true, false]);
    let before = world.dump().await;
    assert_eq!(kept(&world.settle(settle).await), kept(&first));
    assert_eq!(world.dump().await, before, "nothing was done twice");
}

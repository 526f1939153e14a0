//! Keys from the operator's view: bury, replay, pause, skip; counts, lists and records.

use std::time::Duration;

use tenure_core::store::{
    Filter, KeyFilter, KeyRecord, KeyState, Pause, Prune, QueueRules, Replay, Settle, Skip, Store,
};
use tenure_core::{Event, Guarded, ItemId, NewEvent, OnDead, Outcome, Refusal, State, Timestamp};

use crate::world::{T0, World, ask, at, dead, fresh, retry, token};

on_every_queue!(
    a_key_comes_back_as_it_was_given,
    after_a_bury_of_a_pending_head_the_next_item_is_claimed,
    after_a_bury_of_a_held_head_the_next_item_is_claimed,
    the_rest_of_a_run_stays_held_after_a_bury,
    an_item_that_is_buried_behind_the_head_leaves_its_key,
    a_replayed_item_goes_to_the_end_of_its_key,
    replayed_items_keep_the_order_of_the_request,
    a_replayed_item_is_the_head_of_an_idle_key,
    a_blocking_item_is_the_head_again_after_its_replay,
    a_paused_key_is_not_claimed,
    held_items_of_a_paused_key_can_be_settled,
    a_key_without_events_can_be_paused,
    a_blocked_key_can_be_paused,
    a_blocking_head_keeps_its_age_through_a_pause,
    a_skip_continues_a_key_without_its_dead_head,
    a_skip_buries_a_head_that_is_not_dead,
    a_skip_of_an_item_that_is_not_the_head_is_refused,
    a_skip_of_a_key_without_a_head_is_refused,
    counts_include_items_behind_the_head,
    a_list_can_be_narrowed_to_a_key,
    a_record_shows_the_state_of_a_key,
    keys_are_listed_by_age_and_stuck_keys_can_be_listed_alone,
    blocked_keys_are_listed_before_paused_ones,
    a_key_with_an_old_head_is_stuck_while_items_wait_behind_it,
    a_head_that_is_retried_for_long_is_counted_while_items_wait_behind_it,
    a_key_is_listed_before_any_claim,
    an_item_that_blocks_its_key_is_not_pruned,
    an_idle_key_leaves_no_trace,
);

pub(super) fn outbox(world: &dyn World) -> &dyn Store {
    world
        .outbox()
        .expect("these checks run in the queue layout")
}

/// An event of this key.
pub(super) fn keyed(key: &str) -> Event {
    let keyed = NewEvent::from_json("order.paid", "1").key(key).build();
    keyed.expect("the event is well formed")
}

/// An event of this key that is due in this many seconds.
pub(super) fn ranked(key: &str, seconds: u64) -> Event {
    let delayed = NewEvent::from(keyed(key))
        .delay(Duration::from_secs(seconds))
        .build();
    delayed.expect("the delay is well formed")
}

pub(super) async fn enqueue(world: &dyn World, events: &[Event]) -> Vec<ItemId> {
    let answers = outbox(world).enqueue(events).await.expect("enqueue");
    let ids = answers.iter().map(|answer| answer.id()).collect();
    place(world).await;
    ids
}

/// Adds an item per key, in this order.
pub(super) async fn add_keyed(world: &dyn World, keys: &[&str]) -> Vec<ItemId> {
    let events: Vec<Event> = keys.iter().map(|key| keyed(key)).collect();
    enqueue(world, &events).await
}

/// Adds `n` items of the key `a`.
pub(super) async fn add_run(world: &dyn World, n: u32) -> Vec<ItemId> {
    let n = usize::try_from(n).expect("a few");
    add_keyed(world, &vec!["a"; n]).await
}

/// Runs a claim at a time when no item is due: on PostgreSQL, a claim chooses the heads of keys.
async fn place(world: &dyn World) {
    let claim = ask(&fresh("placer"), 1, Timestamp::from_micros(0));
    assert_eq!(world.try_claim(claim).await, None);
}

async fn claimed(world: &dyn World, now: Timestamp) -> Vec<ItemId> {
    let held = world.try_claim(ask(&fresh("worker"), 9, now)).await;
    held.map(|held| held.ids()).unwrap_or_default()
}

async fn pause(world: &dyn World, pause: Pause) {
    let answer = outbox(world).pause_key("a", pause).await;
    answer.expect("pause");
}

async fn skip(world: &dyn World, key: &str, now: Timestamp) -> Guarded<ItemId> {
    let skip = Skip::new(key, fresh("operator"), "the customer is gone").at(now);
    outbox(world).skip(&skip).await.expect("skip")
}

/// The record of the key `a`; an idle key may have no record.
async fn key(world: &dyn World) -> Option<KeyRecord> {
    let key = outbox(world).key("a").await.expect("key");
    key.filter(|key| key.state != KeyState::Idle)
}

async fn state_of(world: &dyn World) -> (KeyState, Option<ItemId>, u64) {
    let key = key(world).await.expect("it is known");
    assert_eq!(key.name, "a");
    assert!(key.since.is_some());
    let head = key.head.map(|head| head.id);
    (key.state, head, key.waiting)
}

/// Creates the key `a` with a dead head that blocks it, and two items behind the head.
async fn blocked(world: &dyn World) -> Vec<ItemId> {
    let ids = add_run(world, 3).await;
    let holder = fresh("worker");
    world.claim(&holder, 1, T0).await;
    let settle = Settle::new(holder).item(ids[0], dead()).at(T0);
    let answer = world.settle(settle.on_dead(OnDead::Block)).await;
    assert_eq!(answer.refused().count(), 0);
    ids
}

async fn a_key_comes_back_as_it_was_given(world: &dyn World) {
    let key = "ä'\"\\ ,[]customer 7";
    let ids = add_keyed(world, &[key, key]).await;
    let holder = token("worker", 1);
    let held = world.try_claim(ask(&holder, 2, T0).min_parallel(1)).await;
    let held = held.expect("a run");
    assert_eq!(held.ids(), ids);
    for item in &held.items {
        let event = item.content.event().expect("an event");
        assert_eq!(event.key(), Some(key));
    }
    let settle = Settle::new(holder).item(ids[0], retry(0)).at(T0);
    assert_eq!(world.settle(settle).await.refused().count(), 0);
    let known = outbox(world).key(key).await.expect("key");
    let known = known.expect("it is known");
    assert_eq!((known.name.as_str(), known.waiting), (key, 1));
}

async fn after_a_bury_of_a_pending_head_the_next_item_is_claimed(world: &dyn World) {
    let ids = add_run(world, 3).await;
    assert_eq!(world.bury(ids[0], 1, T0).await, Guarded::Accepted(()));
    assert_eq!(world.state(ids[0]).await, State::Dead);
    assert_eq!(claimed(world, at(1)).await, ids[1..2]);
}

async fn after_a_bury_of_a_held_head_the_next_item_is_claimed(world: &dyn World) {
    let ids = add_run(world, 2).await;
    assert_eq!(claimed(world, T0).await, ids[..1]);
    assert_eq!(world.bury(ids[0], 1, T0).await, Guarded::Accepted(()));
    assert_eq!(claimed(world, at(1)).await, ids[1..]);
}

async fn the_rest_of_a_run_stays_held_after_a_bury(world: &dyn World) {
    let ids = add_run(world, 4).await;
    let holder = token("worker", 1);
    world.try_claim(ask(&holder, 4, T0).min_parallel(1)).await;
    for (n, nth) in [(1, 1), (2, 0)] {
        assert_eq!(world.bury(ids[nth], n, T0).await, Guarded::Accepted(()));
        assert_eq!(claimed(world, at(1)).await, []);
    }
    assert_eq!(state_of(world).await, (KeyState::Held, Some(ids[2]), 0));
    let settle = Settle::new(holder).done([ids[2]]).item(ids[3], retry(0));
    let answer = world.settle(settle.at(at(2))).await;
    assert_eq!(answer.refused().count(), 0);
    assert_eq!(claimed(world, at(3)).await, ids[3..]);
}

async fn an_item_that_is_buried_behind_the_head_leaves_its_key(world: &dyn World) {
    let ids = add_run(world, 3).await;
    assert_eq!(world.bury(ids[1], 1, T0).await, Guarded::Accepted(()));
    assert_eq!(world.state(ids[1]).await, State::Dead);
    assert_eq!(world.counters(ids[1]).await.attempts, 1);
    let holder = token("worker", 1);
    assert_eq!(world.claim(&holder, 9, T0).await.ids(), ids[..1]);
    let answer = world.settle_one(&holder, ids[0], Outcome::Done, T0).await;
    assert_eq!(answer, Guarded::Accepted(()));
    assert_eq!(claimed(world, at(1)).await, ids[2..]);
}

/// Works all items one at a time, from 100 s on; returns the ids in order.
async fn order(world: &dyn World) -> Vec<ItemId> {
    let mut order = Vec::new();
    for now in (100..).map(at) {
        let holder = fresh("worker");
        let Some(held) = world.try_claim(ask(&holder, 9, now)).await else {
            return order;
        };
        assert_eq!(held.items.len(), 1, "one at a time");
        order.extend(held.ids());
        let settle = Settle::new(holder).done(held.ids()).at(now);
        assert_eq!(world.settle(settle).await.refused().count(), 0);
    }
    order
}

async fn a_replayed_item_goes_to_the_end_of_its_key(world: &dyn World) {
    let done = add_run(world, 1).await[0];
    world.tidy(T0).await;
    let ids = add_run(world, 2).await;
    assert_eq!(world.replay(done, at(1)).await, Guarded::Accepted(()));
    assert_eq!(world.state(done).await, State::Pending);
    assert_eq!(world.counters(done).await.generation, 1);
    let later = add_run(world, 1).await[0];
    assert_eq!(order(world).await, [ids[0], ids[1], done, later]);
}

async fn replayed_items_keep_the_order_of_the_request(world: &dyn World) {
    let done = add_run(world, 3).await;
    world.tidy(T0).await;
    let ids = vec![done[2], done[0], done[1]];
    let replay = Replay {
        ids: ids.clone(),
        now: Some(at(1)),
    };
    let answers = world.operate().replay(&replay).await.expect("replay");
    assert!(answers.iter().all(|(_, answer)| answer.is_accepted()));
    assert_eq!(order(world).await, ids);
}

async fn a_replayed_item_is_the_head_of_an_idle_key(world: &dyn World) {
    let done = add_run(world, 1).await;
    world.tidy(T0).await;
    assert_eq!(world.replay(done[0], at(1)).await, Guarded::Accepted(()));
    place(world).await;
    assert_eq!(state_of(world).await.1, Some(done[0]));
    assert_eq!(claimed(world, at(1)).await, done);
}

async fn a_blocking_item_is_the_head_again_after_its_replay(world: &dyn World) {
    let ids = blocked(world).await;
    assert_eq!(world.replay(ids[0], at(1)).await, Guarded::Accepted(()));
    let (_, head, waiting) = state_of(world).await;
    assert_eq!((head, waiting), (Some(ids[0]), 2));
    assert_eq!(order(world).await, ids);
}

async fn a_paused_key_is_not_claimed(world: &dyn World) {
    let ids = add_keyed(world, &["a", "a", "b"]).await;
    for _ in 0..2 {
        pause(world, Pause::Begin).await;
        assert_eq!(state_of(world).await, (KeyState::Paused, None, 2));
    }
    let more = add_run(world, 1).await;
    assert_eq!(claimed(world, T0).await, ids[2..], "the others go on");
    for _ in 0..2 {
        pause(world, Pause::End).await;
        let (state, head, waiting) = state_of(world).await;
        assert_ne!(state, KeyState::Paused);
        assert_eq!((head, waiting), (Some(ids[0]), 2));
    }
    assert_eq!(order(world).await, [ids[0], ids[1], more[0]]);
}

async fn held_items_of_a_paused_key_can_be_settled(world: &dyn World) {
    let ids = add_run(world, 4).await;
    let holder = token("worker", 1);
    world.try_claim(ask(&holder, 2, T0).min_parallel(1)).await;
    pause(world, Pause::Begin).await;
    let held = (KeyState::Paused, Some(ids[0]), 2);
    assert_eq!(state_of(world).await, held);
    let answer = world
        .settle_one(&holder, ids[0], Outcome::Done, at(1))
        .await;
    assert_eq!(answer, Guarded::Accepted(()));
    // An item that is due for a retry also waits for the end of the pause.
    let answer = world.settle_one(&holder, ids[1], retry(0), at(1)).await;
    assert_eq!(answer, Guarded::Accepted(()));
    assert_eq!(state_of(world).await, (KeyState::Paused, None, 3));
    assert_eq!(claimed(world, at(2)).await, []);
    pause(world, Pause::End).await;
    assert_eq!(order(world).await, ids[1..]);
}

async fn a_key_without_events_can_be_paused(world: &dyn World) {
    pause(world, Pause::End).await;
    assert_eq!(key(world).await, None, "nothing was paused");
    pause(world, Pause::Begin).await;
    let ids = add_run(world, 2).await;
    assert_eq!(claimed(world, T0).await, []);
    assert_eq!(state_of(world).await, (KeyState::Paused, None, 2));
    pause(world, Pause::End).await;
    assert_eq!(order(world).await, ids);
    pause(world, Pause::Begin).await;
    assert_eq!(state_of(world).await, (KeyState::Paused, None, 0));
    pause(world, Pause::End).await;
    assert_eq!(key(world).await, None);
}

async fn a_blocked_key_can_be_paused(world: &dyn World) {
    let ids = blocked(world).await;
    pause(world, Pause::Begin).await;
    // The record of a paused key also shows the block, which remains after the pause.
    let both = (KeyState::Paused, Some(ids[0]), 2);
    assert_eq!(state_of(world).await, both);
    assert!(key(world).await.is_some_and(|of| of.is_blocked()));
    pause(world, Pause::End).await;
    assert_eq!(state_of(world).await.0, KeyState::Blocked);
    pause(world, Pause::Begin).await;
    assert_eq!(world.replay(ids[0], at(1)).await, Guarded::Accepted(()));
    assert_eq!(claimed(world, at(2)).await, []);
    pause(world, Pause::End).await;
    assert_eq!(order(world).await, ids);
}

async fn a_blocking_head_keeps_its_age_through_a_pause(world: &dyn World) {
    blocked(world).await;
    pause(world, Pause::Begin).await;
    let paused = key(world).await.map(|of| of.since);
    pause(world, Pause::End).await;
    assert_eq!(key(world).await.map(|of| of.since), paused);
}

async fn a_skip_continues_a_key_without_its_dead_head(world: &dyn World) {
    let ids = blocked(world).await;
    assert_eq!(state_of(world).await, (KeyState::Blocked, Some(ids[0]), 2));
    assert_eq!(skip(world, "a", at(1)).await, Guarded::Accepted(ids[0]));
    let left = world.record(ids[0]).await;
    assert_eq!(left.state, State::Dead, "it stays dead");
    // The record has the operator, time and reason in addition to the cause of death.
    let error = left.last_error.expect("an error");
    let why = format!(" at {}: the customer is gone; last error before: ", at(1));
    assert!(error.starts_with("skipped by operator-"), "{error}");
    assert!(error.contains(&why), "{error}");
    assert_eq!(left.dead_at, Some(T0), "the time of its death stays");
    assert_eq!(order(world).await, ids[1..]);
}

async fn a_skip_buries_a_head_that_is_not_dead(world: &dyn World) {
    let ids = add_run(world, 3).await;
    assert_eq!(skip(world, "a", T0).await, Guarded::Accepted(ids[0]));
    assert_eq!(world.state(ids[0]).await, State::Dead);
    let holder = token("worker", 1);
    world.claim(&holder, 1, at(1)).await;
    assert_eq!(skip(world, "a", at(2)).await, Guarded::Accepted(ids[1]));
    let answer = world
        .settle_one(&holder, ids[1], Outcome::Done, at(3))
        .await;
    assert_eq!(answer, Guarded::Refused(Refusal::AlreadySettled));
    assert_eq!(order(world).await, ids[2..]);
}

async fn a_skip_of_an_item_that_is_not_the_head_is_refused(world: &dyn World) {
    let ids = add_run(world, 3).await;
    let skip = |head| Skip::new("a", fresh("operator"), "gone").only(head).at(T0);
    let skip_of = async |head| outbox(world).skip(&skip(head)).await.expect("skip");
    assert_eq!(skip_of(ids[1]).await, Guarded::Refused(Refusal::Lost));
    assert_eq!(skip_of(ids[0]).await, Guarded::Accepted(ids[0]));
    assert_eq!(skip_of(ids[0]).await, Guarded::Refused(Refusal::Lost));
    assert_eq!(order(world).await, ids[1..]);
}

async fn a_skip_of_a_key_without_a_head_is_refused(world: &dyn World) {
    let none = Guarded::Refused(Refusal::NotFound);
    assert_eq!(skip(world, "a", T0).await, none);
    pause(world, Pause::Begin).await;
    add_run(world, 1).await;
    assert_eq!(skip(world, "a", T0).await, none);
}

async fn counts_include_items_behind_the_head(world: &dyn World) {
    let outbox = outbox(world);
    let mail = tenure_core::QueueName::new("mail").expect("a queue's name");
    outbox
        .add_queue(&mail, QueueRules::default())
        .await
        .expect("add a queue");
    let letter = NewEvent::from(keyed("a"))
        .queue("mail")
        .build()
        .expect("a queue's name");
    enqueue(world, &[keyed("a"), keyed("a"), letter, keyed("b")]).await;
    let counts = outbox.count(Some(T0)).await.expect("count");
    let of: Vec<_> = counts
        .queues
        .iter()
        .map(|(name, queue)| (name.as_str(), queue.due, queue.delayed, queue.behind))
        .collect();
    assert_eq!(of, [("default", 2, 0, 1), ("mail", 0, 0, 1)]);
    assert_eq!((counts.pending(), counts.done), (4, 0));
    world.tidy(T0).await;
    let counts = outbox.count(Some(T0)).await.expect("count");
    let held = ask(&fresh("worker"), 9, T0).queues(vec![mail]);
    assert_eq!((counts.pending(), counts.done), (1, 3));
    assert!(world.try_claim(held).await.is_some());
}

async fn a_list_can_be_narrowed_to_a_key(world: &dyn World) {
    let ids = add_keyed(world, &["a", "b", "a", "a", "b"]).await;
    world.add(2).await;
    let holder = token("worker", 1);
    world.claim(&holder, 1, T0).await;
    let answer = world.settle_one(&holder, ids[0], Outcome::Done, T0).await;
    assert_eq!(answer, Guarded::Accepted(()));
    let mut expected = vec![(None, vec![ids[3], ids[2], ids[0]])];
    expected.push((Some(State::Pending), vec![ids[3], ids[2]]));
    expected.push((Some(State::Done), vec![ids[0]]));
    expected.push((Some(State::Dead), vec![]));
    expected.push((Some(State::Claimed), vec![]));
    for (state, ids) in expected {
        let filter = Filter {
            state,
            key: Some("a".into()),
            ..Filter::default()
        };
        let page = world.operate().list(&filter, 9).await.expect("list");
        let found: Vec<ItemId> = page.records.iter().map(|record| record.id).collect();
        assert_eq!(found, ids, "{state:?}");
        let page = world.operate().list(&filter, 2).await.expect("list");
        assert_eq!(page.next.is_some(), ids.len() > 2);
    }
}

async fn a_record_shows_the_state_of_a_key(world: &dyn World) {
    assert_eq!(key(world).await, None);
    let ids = add_run(world, 3).await;
    assert_eq!(state_of(world).await, (KeyState::Due, Some(ids[0]), 2));
    let holder = token("worker", 1);
    world.try_claim(ask(&holder, 2, T0).min_parallel(1)).await;
    assert_eq!(state_of(world).await, (KeyState::Held, Some(ids[0]), 1));
    let answer = world
        .settle_one(&holder, ids[0], Outcome::Done, at(1))
        .await;
    assert_eq!(answer, Guarded::Accepted(()));
    assert_eq!(state_of(world).await, (KeyState::Held, Some(ids[1]), 1));
    let answer = world.settle_one(&holder, ids[1], retry(9), at(2)).await;
    assert_eq!(answer, Guarded::Accepted(()));
    let delayed = (KeyState::Delayed, Some(ids[1]), 1);
    assert_eq!(state_of(world).await, delayed);
    let behind = world.record(ids[2]).await;
    assert_eq!((behind.state, behind.hold), (State::Pending, None));
    assert_eq!(behind.available_at, Some(behind.created_at));
}

async fn keys_are_listed_by_age_and_stuck_keys_can_be_listed_alone(world: &dyn World) {
    let mut ids = add_keyed(world, &["a", "b", "c"]).await;
    let mut all = keys(world, KeyFilter::Open, 9).await;
    all.sort();
    assert_eq!(all, ["a", "b", "c"]);
    assert_eq!(keys(world, KeyFilter::Stuck, 9).await, [""; 0]);
    let holder = token("worker", 1);
    world.claim(&holder, 9, T0).await;
    ids.extend(add_keyed(world, &["c", "a"]).await);
    // The next item of the third key becomes the head much later than those of the other keys.
    let settle = Settle::new(holder).done([ids[2]]).item(ids[1], retry(0));
    assert_eq!(world.settle(settle.at(T0)).await.refused().count(), 0);
    let youngest = keys(world, KeyFilter::Open, 9).await;
    assert_eq!(youngest.last().map(String::as_str), Some("c"));
    assert_eq!(keys(world, KeyFilter::Open, 2).await.len(), 2);
    pause(world, Pause::Begin).await;
    let mut stuck = keys(world, KeyFilter::Stuck, 9).await;
    stuck.sort();
    assert_eq!(stuck, ["a", "b"]);
}

async fn keys(world: &dyn World, filter: KeyFilter, limit: u32) -> Vec<String> {
    let found = outbox(world).keys(filter, limit).await;
    let found = found.expect("keys").into_iter();
    found.map(|key| key.name).collect()
}

/// Goal: a few keys that need an operator are listed before many paused ones.
async fn blocked_keys_are_listed_before_paused_ones(world: &dyn World) {
    // Keys of the same age are sorted by name.
    add_keyed(world, &["0", "0"]).await;
    for key in ["0", "00: nothing waits"] {
        let paused = outbox(world).pause_key(key, Pause::Begin).await;
        paused.expect("pause");
    }
    blocked(world).await;
    assert_eq!(keys(world, KeyFilter::Stuck, 1).await, ["a"]);
    assert_eq!(keys(world, KeyFilter::Stuck, 9).await, ["a", "0"]);
    let open = keys(world, KeyFilter::Open, 9).await;
    assert_eq!(open.last().map(String::as_str), Some("a"));
    // A blocked key comes first even if it is paused.
    pause(world, Pause::Begin).await;
    assert_eq!(keys(world, KeyFilter::Stuck, 1).await, ["a"]);
}

async fn a_key_with_an_old_head_is_stuck_while_items_wait_behind_it(world: &dyn World) {
    let ids = add_run(world, 4).await;
    let long_ago = Timestamp::from_micros(1);
    for (nth, moment, stuck) in [
        (0, long_ago, &["a"][..]),
        (1, T0, &[]),
        // No item waits behind this head.
        (2, long_ago, &[]),
    ] {
        let holder = fresh("worker");
        world.claim(&holder, 1, T0).await;
        let settle = Settle::new(holder).done([ids[nth]]).at(moment);
        assert_eq!(world.settle(settle).await.refused().count(), 0);
        assert_eq!(state_of(world).await.1, Some(ids[nth + 1]));
        assert_eq!(keys(world, KeyFilter::Stuck, 9).await, stuck);
    }
}

async fn a_head_that_is_retried_for_long_is_counted_while_items_wait_behind_it(world: &dyn World) {
    let counted = |seconds| async move {
        let counts = outbox(world).count(Some(at(seconds))).await;
        counts.expect("count").retried_keys
    };
    let end = |outcome, seconds| async move {
        let holder = fresh("worker");
        let held = world.claim(&holder, 1, at(seconds)).await;
        let settle = Settle::new(holder).item(held.ids()[0], outcome);
        let settled = world.settle(settle.at(at(seconds))).await;
        assert_eq!(settled.refused().count(), 0);
    };
    add_run(world, 3).await;
    // The second item becomes the head at 100 s and fails twice.
    end(Outcome::Done, 100).await;
    end(retry(10), 110).await;
    assert_eq!(counted(9_999).await, 0, "no retry has failed yet");
    end(retry(9_999), 120).await;
    let hour = KeyRecord::RETRIED_LONG.as_secs();
    assert_eq!(counted(100 + hour).await, 0, "not over an hour");
    assert_eq!(counted(101 + hour).await, 1);
    pause(world, Pause::Begin).await;
    assert_eq!(counted(101 + hour).await, 0, "an operator paused it");
    pause(world, Pause::End).await;
    place(world).await;
    end(Outcome::Done, 20_000).await;
    end(retry(10), 20_000).await;
    end(retry(10), 20_010).await;
    assert_eq!(
        counted(99_999).await,
        0,
        "no item waits behind the last one"
    );
}

/// On PostgreSQL the next claim chooses the head, not the enqueue.
async fn a_key_is_listed_before_any_claim(world: &dyn World) {
    let events = [keyed("a"), keyed("a"), keyed("b")];
    outbox(world).enqueue(&events).await.expect("enqueue");
    let listed = outbox(world).keys(KeyFilter::Open, 9).await;
    let mut listed: Vec<(String, u64)> = listed
        .expect("keys")
        .into_iter()
        .map(|of| (of.name, of.waiting + u64::from(of.head.is_some())))
        .collect();
    listed.sort();
    assert_eq!(listed, [("a".to_owned(), 2), ("b".to_owned(), 1)]);
    assert_eq!(keys(world, KeyFilter::Stuck, 9).await, [""; 0]);
    assert_eq!(keys(world, KeyFilter::Open, 1).await.len(), 1);
    // An arrival of a key that has a head or is paused does not list the key twice.
    place(world).await;
    pause(world, Pause::Begin).await;
    outbox(world).enqueue(&events).await.expect("enqueue");
    let mut all = keys(world, KeyFilter::Open, 9).await;
    all.sort();
    assert_eq!(all, ["a", "b"]);
}

async fn an_item_that_blocks_its_key_is_not_pruned(world: &dyn World) {
    let ids = blocked(world).await;
    let mut prune = Prune::new(Duration::ZERO, Duration::ZERO);
    prune.now = Some(at(999));
    let pruned = outbox(world).prune(&prune).await.expect("prune");
    assert_eq!((pruned.done, pruned.dead, pruned.more), (0, 0, false));
    assert_eq!(state_of(world).await, (KeyState::Blocked, Some(ids[0]), 2));
    assert_eq!(skip(world, "a", at(999)).await, Guarded::Accepted(ids[0]));
    let pruned = outbox(world).prune(&prune).await.expect("prune");
    assert_eq!(pruned.dead, 1);
    assert_eq!(order(world).await, ids[1..]);
}

async fn an_idle_key_leaves_no_trace(world: &dyn World) {
    add_run(world, 2).await;
    world.tidy(T0).await;
    assert_eq!(key(world).await, None);
    let open = outbox(world).keys(KeyFilter::Open, 9).await;
    assert_eq!(open.expect("keys"), []);
    let mut prune = Prune::new(Duration::ZERO, Duration::ZERO);
    prune.now = Some(at(999));
    let pruned = outbox(world).prune(&prune).await.expect("prune");
    assert_eq!(pruned.done, 2);
    let ids = add_run(world, 2).await;
    assert_eq!(order(world).await, ids);
}

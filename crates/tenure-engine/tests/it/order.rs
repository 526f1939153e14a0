//! Order by key: the engine works the items of a key one after the other, in order, several under
//! one lease; other keys are independent.

use tenure_core::State::{Dead, Done, Pending};
use tenure_core::store::{KeyState, Keys as _};
use tenure_core::{Event, Failure, ItemId, Outcome, Setting};
use tokio::time::{Instant, sleep};

use crate::faulty_store::{Fault, Verb};
use crate::probe::until;
use crate::warm_engine::{
    MILLI, SECOND, WarmEngine, assert_one_at_a_time, done_after, keyed, runs,
};

/// Proves: S3-001, S3-007, S4-051
#[tokio::test(start_paused = true)]
async fn a_keys_items_are_worked_in_order_one_at_a_time_whatever_the_concurrency() {
    for (concurrency, min_parallel) in [("10", 5), ("1", 1)] {
        let warm = WarmEngine::start(concurrency, |_, _| done_after(10 * MILLI)).await;
        let keys = ["a", "b", "c", "d", "e"];
        let mixed: Vec<Event> = (0..20)
            .flat_map(|n| keys.map(|key| keyed(key, n)))
            .collect();
        warm.probe.take_peak();
        let ids = warm.world.enqueue_all(&mixed).await;
        warm.until_done(&ids).await;
        assert_eq!(
            warm.probe.take_peak(),
            min_parallel,
            "other keys in parallel"
        );
        for nth in 0..keys.len() {
            let own: Vec<ItemId> = ids.iter().skip(nth).step_by(keys.len()).copied().collect();
            assert_eq!(warm.order(&own), (0..20).collect::<Vec<_>>());
            let calls = warm.calls(&own);
            assert_one_at_a_time(&calls);
            let longest = runs(&calls).into_iter().max();
            assert!(longest > Some(1), "no run was claimed: {longest:?}");
        }
        warm.assert_sound();
        warm.engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn items_that_wait_for_their_turn_take_no_executor_and_delay_no_other_key() {
    let warm = WarmEngine::start("2", |_, _| done_after(SECOND)).await;
    let ids = warm.enqueue("a", 4).await;
    let event = |n: u32| Event::new("other", &n).unwrap();
    let others: Vec<Event> = (0..4).map(event).collect();
    let others = warm.world.enqueue_all(&others).await;
    warm.world.until(|counts| counts.done == 48).await;
    let (calls, other_calls) = (warm.calls(&ids), warm.calls(&others));
    assert_one_at_a_time(&calls);
    for (call, other) in calls.iter().zip(&other_calls) {
        let apart = call.began.max(other.began) - call.began.min(other.began);
        assert!(apart < 100 * MILLI, "side by side: {call:?} {other:?}");
    }
    warm.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn a_failing_head_delays_its_own_key_only() {
    let warm = WarmEngine::start("10", |event, cx| async move {
        if event.key() == Some("a") && event.payload() == "0" && cx.attempt() < 4 {
            return Err(Failure::new("not yet").after(10 * SECOND));
        }
        done_after(MILLI).await
    })
    .await;
    let (a, b) = (warm.enqueue("a", 6).await, warm.enqueue("b", 6).await);
    warm.until_done(&b).await;
    assert_eq!(warm.order(&b), [0, 1, 2, 3, 4, 5]);
    assert_eq!(warm.order(&a), [0], "the others wait for it");
    warm.world.until(|counts| counts.done == 52).await;
    assert_eq!(warm.order(&a), [0, 0, 0, 0, 1, 2, 3, 4, 5]);
    assert_eq!(warm.world.find(a[0]).await.counters.failures, 3);
    for id in &a[1..] {
        assert_eq!(warm.world.find(*id).await.counters.failures, 0);
    }
    warm.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn a_retry_in_a_run_releases_the_rest_unstarted() {
    for outcome in ["retry", "panic", "snooze"] {
        let warm = WarmEngine::start("1", move |event, cx| async move {
            sleep(MILLI).await;
            if event.payload() == "2" && cx.attempt() == 1 {
                match outcome {
                    "retry" => return Err(Failure::new("not yet").after(SECOND)),
                    "panic" => panic!("a planted panic"),
                    _ => return Ok(Outcome::snooze(SECOND)),
                }
            }
            Ok(Outcome::Done)
        })
        .await;
        let ids = warm.enqueue("a", 6).await;
        warm.until_done(&ids).await;
        assert_eq!(warm.order(&ids), [0, 1, 2, 2, 3, 4, 5]);
        let calls = warm.calls(&ids);
        assert_eq!(runs(&calls)[0], 3, "the first three under one lease");
        // The same settle releases the later items, so that no other worker could claim one in
        // between.
        let calls = warm.world.faulty.calls();
        let settle = calls.iter().find(|(_, call)| call.is_settle_of(ids[2]));
        let settle = settle.and_then(|(_, call)| call.settle()).unwrap();
        let settled: Vec<ItemId> = settle.items.iter().map(|(id, _)| *id).collect();
        assert!(settled.ends_with(&ids[2..]), "{settled:?}");
        for id in &ids[3..] {
            let counters = warm.world.find(*id).await.counters;
            assert_eq!((counters.attempts, counters.failures), (1, 0));
        }
        warm.assert_sound();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_item_is_skipped_or_blocks_its_key_as_the_setting_says_at_that_moment() {
    let warm = WarmEngine::start("1", |event, _| async move {
        sleep(MILLI).await;
        if event.payload() == "1" {
            return Ok(Outcome::dead("a planted rejection"));
        }
        Ok(Outcome::Done)
    })
    .await;
    let a = warm.enqueue("a", 4).await;
    warm.world.until(|counts| counts.done == 43).await;
    assert_eq!(warm.order(&a), [0, 1, 2, 3]);
    assert_eq!(runs(&warm.calls(&a)), [4], "all under one lease");

    warm.world
        .change_and_follow(&warm.engine, &[(Setting::OnDead, "block")])
        .await;
    let b = warm.enqueue("b", 4).await;
    warm.world.until(|counts| counts.dead == 2).await;
    sleep(60 * SECOND).await;
    assert_eq!(warm.order(&b), [0, 1]);
    assert_eq!(warm.states(&b).await, [Done, Dead, Pending, Pending]);
    let domain = warm.world.store.key("b").await.unwrap().unwrap();
    assert_eq!((domain.state, domain.waiting), (KeyState::Blocked, 2));

    warm.world
        .change_and_follow(&warm.engine, &[(Setting::OnDead, "skip")])
        .await;
    let c = warm.enqueue("c", 4).await;
    warm.world.until(|counts| counts.done == 47).await;
    assert_eq!(warm.order(&c), [0, 1, 2, 3]);
    assert_eq!(warm.order(&b), [0, 1], "a blocked key stays blocked");
    warm.assert_sound();
}

/// The rule changes between a handler's answer and its settle. The next item started under the old
/// rule, so the old rule applies.
#[tokio::test(start_paused = true)]
async fn a_dead_item_is_settled_by_the_rule_under_which_the_next_one_started() {
    let warm = WarmEngine::start("1", |event, _| async move {
        if event.payload() == "0" {
            return Ok(Outcome::dead("a planted rejection"));
        }
        done_after(20 * SECOND).await
    })
    .await;
    let ids = warm.enqueue("a", 2).await;
    let first = ids[0];
    let is_settle = move |call: &Verb| call.is_settle_of(first);
    warm.world
        .faulty
        .rule(move |call| is_settle(call).then_some(Fault::Before));
    until(|| warm.order(&ids) == [0, 1]).await;
    warm.world
        .change_and_follow(&warm.engine, &[(Setting::OnDead, "block")])
        .await;
    warm.world.faulty.heal();
    warm.world.until(|counts| counts.done == 41).await;
    assert_eq!(warm.order(&ids), [0, 1], "the second item ran once");
    warm.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn an_executor_that_exits_in_the_middle_of_a_run_leaves_the_rest_to_another() {
    let warm = WarmEngine::start("2", |_, _| done_after(5 * SECOND)).await;
    let (a, b) = (warm.enqueue("a", 3).await, warm.enqueue("b", 3).await);
    until(|| warm.probe.running() == 2).await;
    warm.world
        .change_and_follow(&warm.engine, &[(Setting::Concurrency, "1")])
        .await;
    let begun = Instant::now();
    warm.world.until(|counts| counts.done == 46).await;
    assert!(begun.elapsed() < 31 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(warm.order(&a), [0, 1, 2]);
    assert_eq!(warm.order(&b), [0, 1, 2]);
}

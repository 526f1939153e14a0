//! Order by key: the items of a key are worked one after the other, in order, under one lease where
//! there are several; other keys go their own way.

use tenure_core::State::{Dead, Done, Pending};
use tenure_core::store::{DomainState, Domains as _};
use tenure_core::{Event, Failure, ItemId, Outcome, Setting};
use tokio::time::{Instant, sleep};

use crate::faulty::{Ask, Fault};
use crate::probe::until;
use crate::shop::{MILLI, SECOND, Shop, assert_one_at_a_time, done_after, keyed, runs};

/// Proves: S3-001, S3-007, S4-051
#[tokio::test(start_paused = true)]
async fn a_keys_items_are_worked_in_order_one_at_a_time_whatever_the_concurrency() {
    for (concurrency, abreast) in [("10", 5), ("1", 1)] {
        let shop = Shop::open(concurrency, |_, _| done_after(10 * MILLI)).await;
        let keys = ["a", "b", "c", "d", "e"];
        let mixed: Vec<Event> = (0..20)
            .flat_map(|n| keys.map(|key| keyed(key, n)))
            .collect();
        shop.probe.take_peak();
        let ids = shop.world.enqueue_all(&mixed).await;
        shop.until_done(&ids).await;
        assert_eq!(shop.probe.take_peak(), abreast, "other keys in parallel");
        for nth in 0..keys.len() {
            let own: Vec<ItemId> = ids.iter().skip(nth).step_by(keys.len()).copied().collect();
            assert_eq!(shop.order(&own), (0..20).collect::<Vec<_>>());
            let calls = shop.calls(&own);
            assert_one_at_a_time(&calls);
            let longest = runs(&calls).into_iter().max();
            assert!(longest > Some(1), "no run was claimed: {longest:?}");
        }
        shop.assert_sound();
        shop.engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_its_turn_takes_no_slot_and_holds_up_nobody() {
    let shop = Shop::open("2", |_, _| done_after(SECOND)).await;
    let ids = shop.enqueue("a", 4).await;
    let event = |n: u32| Event::new("other", &n).unwrap();
    let others: Vec<Event> = (0..4).map(event).collect();
    let others = shop.world.enqueue_all(&others).await;
    shop.world.until(|counts| counts.done == 48).await;
    let (calls, other_calls) = (shop.calls(&ids), shop.calls(&others));
    assert_one_at_a_time(&calls);
    for (call, other) in calls.iter().zip(&other_calls) {
        let apart = call.began.max(other.began) - call.began.min(other.began);
        assert!(apart < 100 * MILLI, "side by side: {call:?} {other:?}");
    }
    shop.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn a_failing_head_holds_up_its_own_key_only() {
    let shop = Shop::open("10", |event, cx| async move {
        if event.ordering_key() == Some("a") && event.payload() == "0" && cx.attempt() < 4 {
            return Err(Failure::new("not yet").after(10 * SECOND));
        }
        done_after(MILLI).await
    })
    .await;
    let (a, b) = (shop.enqueue("a", 6).await, shop.enqueue("b", 6).await);
    shop.until_done(&b).await;
    assert_eq!(shop.order(&b), [0, 1, 2, 3, 4, 5]);
    assert_eq!(shop.order(&a), [0], "the others wait for it");
    shop.world.until(|counts| counts.done == 52).await;
    assert_eq!(shop.order(&a), [0, 0, 0, 0, 1, 2, 3, 4, 5]);
    assert_eq!(shop.world.find(a[0]).await.counters.failures, 3);
    for id in &a[1..] {
        assert_eq!(shop.world.find(*id).await.counters.failures, 0);
    }
    shop.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn a_retry_in_a_run_gives_back_the_rest_unstarted() {
    for outcome in ["retry", "panic", "snooze"] {
        let shop = Shop::open("1", move |event, cx| async move {
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
        let ids = shop.enqueue("a", 6).await;
        shop.until_done(&ids).await;
        assert_eq!(shop.order(&ids), [0, 1, 2, 2, 3, 4, 5]);
        let calls = shop.calls(&ids);
        assert_eq!(runs(&calls)[0], 3, "the first three under one lease");
        // In the same breath: nobody else could have seen a later one claimable.
        let calls = shop.world.faulty.calls();
        let settle = calls.iter().find(|(_, ask)| ask.is_settle_of(ids[2]));
        let settle = settle.and_then(|(_, ask)| ask.settle()).unwrap();
        let said: Vec<ItemId> = settle.items.iter().map(|(id, _)| *id).collect();
        assert!(said.ends_with(&ids[2..]), "{said:?}");
        for id in &ids[3..] {
            let counters = shop.world.find(*id).await.counters;
            assert_eq!((counters.attempts, counters.failures), (1, 0));
        }
        shop.assert_sound();
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_item_is_skipped_or_blocks_its_key_as_the_setting_says_at_that_moment() {
    let shop = Shop::open("1", |event, _| async move {
        sleep(MILLI).await;
        if event.payload() == "1" {
            return Ok(Outcome::dead("a planted rejection"));
        }
        Ok(Outcome::Done)
    })
    .await;
    let a = shop.enqueue("a", 4).await;
    shop.world.until(|counts| counts.done == 43).await;
    assert_eq!(shop.order(&a), [0, 1, 2, 3]);
    assert_eq!(runs(&shop.calls(&a)), [4], "it goes on under its lease");

    shop.world
        .change_and_follow(&shop.engine, &[(Setting::OnDead, "block")])
        .await;
    let b = shop.enqueue("b", 4).await;
    shop.world.until(|counts| counts.dead == 2).await;
    sleep(60 * SECOND).await;
    assert_eq!(shop.order(&b), [0, 1]);
    assert_eq!(shop.states(&b).await, [Done, Dead, Pending, Pending]);
    let domain = shop.world.store.domain("b").await.unwrap().unwrap();
    assert_eq!((domain.state, domain.waiting), (DomainState::Blocked, 2));

    shop.world
        .change_and_follow(&shop.engine, &[(Setting::OnDead, "skip")])
        .await;
    let c = shop.enqueue("c", 4).await;
    shop.world.until(|counts| counts.done == 47).await;
    assert_eq!(shop.order(&c), [0, 1, 2, 3]);
    assert_eq!(shop.order(&b), [0, 1], "what is blocked stays so");
    shop.assert_sound();
}

/// The rule changes between a handler's answer and its settle: the next one was begun under the old
/// rule, so the old one is settled by it.
#[tokio::test(start_paused = true)]
async fn a_dead_item_is_settled_by_the_rule_that_the_next_one_was_begun_by() {
    let shop = Shop::open("1", |event, _| async move {
        if event.payload() == "0" {
            return Ok(Outcome::dead("a planted rejection"));
        }
        done_after(20 * SECOND).await
    })
    .await;
    let ids = shop.enqueue("a", 2).await;
    let first = ids[0];
    let is_settle = move |ask: &Ask| ask.is_settle_of(first);
    shop.world
        .faulty
        .rule(move |ask| is_settle(ask).then_some(Fault::Before));
    until(|| shop.order(&ids) == [0, 1]).await;
    shop.world
        .change_and_follow(&shop.engine, &[(Setting::OnDead, "block")])
        .await;
    shop.world.faulty.mend();
    shop.world.until(|counts| counts.done == 41).await;
    assert_eq!(shop.order(&ids), [0, 1], "the second was not called again");
    shop.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn a_slot_that_leaves_in_the_middle_of_a_run_leaves_the_rest_to_another() {
    let shop = Shop::open("2", |_, _| done_after(5 * SECOND)).await;
    let (a, b) = (shop.enqueue("a", 3).await, shop.enqueue("b", 3).await);
    until(|| shop.probe.running() == 2).await;
    shop.world
        .change_and_follow(&shop.engine, &[(Setting::Concurrency, "1")])
        .await;
    let begun = Instant::now();
    shop.world.until(|counts| counts.done == 46).await;
    assert!(begun.elapsed() < 31 * SECOND, "{:?}", begun.elapsed());
    assert_eq!(shop.order(&a), [0, 1, 2]);
    assert_eq!(shop.order(&b), [0, 1, 2]);
}

//! Faults within a run of one key: a bury, an overdue handler, a lost lease, a stop, a lost settle,
//! a poison item. The order of the key is always kept.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::State::{self, Done, Pending};
use tenure_core::store::{Bury, LeaseStore as _, Operate as _, Settle};
use tenure_core::{Failure, ItemId, Setting, Token, WorkerId, reason};
use tokio::time::{Instant, sleep};

use crate::faulty_store::{Fault, Verb};
use crate::probe::{End, until};
use crate::warm_engine::{MILLI, SECOND, WarmEngine, assert_one_at_a_time, done_after, runs};
use crate::world::World;

/// Buries this item like an operator.
async fn bury(world: &World, id: ItemId) {
    let operator = WorkerId::new("operator", 1).unwrap();
    let bury = Bury::new(id, Token::new(&operator, 1, 1), "a planted bury");
    assert!(world.store.bury(&bury).await.unwrap().is_accepted());
}

#[tokio::test(start_paused = true)]
async fn an_item_buried_before_its_turn_is_skipped() {
    let warm = WarmEngine::start("1", |_, _| done_after(10 * SECOND)).await;
    let ids = warm.enqueue("a", 4).await;
    until(|| warm.order(&ids) == [0]).await;
    assert_eq!(warm.engine.health().held, 4, "a run of four");
    bury(&warm.world, ids[1]).await;
    warm.world.until(|counts| counts.done == 43).await;
    assert_eq!(warm.order(&ids), [0, 2, 3]);
    assert_eq!(runs(&warm.calls(&ids)), [3], "under one lease");
    assert_one_at_a_time(&warm.calls(&ids));
    warm.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn the_item_after_a_buried_one_starts_when_the_handler_of_the_buried_one_has_stopped() {
    let warm = WarmEngine::start("10", |_, _| done_after(20 * SECOND)).await;
    let ids = warm.enqueue("a", 3).await;
    until(|| warm.order(&ids) == [0]).await;
    bury(&warm.world, ids[0]).await;
    warm.world.until(|counts| counts.done == 42).await;
    assert_eq!(warm.order(&ids), [0, 1, 2]);
    let calls = warm.calls(&ids);
    assert_eq!(calls[0].end, Some(End::Dropped));
    assert_one_at_a_time(&calls);
    assert_eq!(runs(&calls), [3], "under one lease");
    warm.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn an_item_buried_between_its_answer_and_its_settle_frees_the_rest() {
    let warm = WarmEngine::start("1", |event, _| async move {
        if event.payload() == "0" {
            return Err(Failure::new("not yet").after(SECOND));
        }
        done_after(MILLI).await
    })
    .await;
    let ids: Arc<Vec<ItemId>> = Arc::new(warm.enqueue("a", 3).await);
    // The settle of the first item takes effect only after the bury.
    let first = ids[0];
    let is_settle = move |call: &Verb| call.is_settle_of(first);
    warm.world.faulty.once(is_settle, Fault::Late(SECOND));
    until(|| warm.world.faulty.count(is_settle) > 0).await;
    bury(&warm.world, first).await;
    warm.world.until(|counts| counts.done == 42).await;
    assert_eq!(warm.order(&ids), [0, 1, 2]);
    warm.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn an_item_that_runs_for_too_long_is_cancelled_and_the_rest_waits_for_it() {
    let config = World::config_with(&[(Setting::Concurrency, "1"), (Setting::MaxHold, "30s")]);
    let warm = WarmEngine::start_with(config, |event, cx| {
        let is_slow = event.payload() == "1" && cx.attempt() == 1;
        done_after(if is_slow { 100 * SECOND } else { MILLI })
    })
    .await;
    let ids = warm.enqueue("a", 4).await;
    warm.until_done(&ids).await;
    assert_eq!(warm.order(&ids), [0, 1, 1, 2, 3]);
    assert_one_at_a_time(&warm.calls(&ids));
    assert_eq!(warm.world.find(ids[1]).await.counters.failures, 1);
    for id in &ids[2..] {
        let counters = warm.world.find(*id).await.counters;
        assert_eq!((counters.attempts, counters.failures), (1, 0));
    }
    warm.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn an_item_that_is_dead_because_it_ran_too_long_frees_the_rest() {
    let config = World::config_with(&[
        (Setting::Concurrency, "1"),
        (Setting::MaxHold, "30s"),
        (Setting::MaxRetries, "0"),
    ]);
    let warm = WarmEngine::start_with(config, |event, _| {
        done_after(if event.payload() == "0" {
            100 * SECOND
        } else {
            MILLI
        })
    })
    .await;
    let ids = warm.enqueue("a", 3).await;
    warm.world.until(|counts| counts.done == 42).await;
    assert_eq!(warm.order(&ids), [0, 1, 2]);
    assert_eq!(warm.world.find(ids[0]).await.state, State::Dead);
    warm.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_ends_the_whole_run_and_the_next_holder_keeps_the_order() {
    let warm = WarmEngine::start("1", |event, _| {
        done_after(if event.payload() == "1" {
            20 * SECOND
        } else {
            MILLI
        })
    })
    .await;
    let mut renewals = 0;
    warm.world.faulty.rule(move |call| {
        let is_renewal = matches!(call, Verb::Renew(_));
        renewals += u32::from(is_renewal);
        // Renewals fail until the timeout has passed.
        (is_renewal && renewals < 200).then_some(Fault::Before)
    });
    let ids = warm.enqueue("a", 4).await;
    until(|| {
        warm.calls(&ids)
            .iter()
            .any(|call| call.end == Some(End::Dropped))
    })
    .await;
    warm.world.faulty.heal();
    warm.until_done(&ids).await;
    assert_eq!(warm.order(&ids), [0, 1, 1, 2, 3]);
    let mut crashes = Vec::new();
    for id in &ids {
        crashes.push(warm.world.find(*id).await.counters.crashes);
    }
    assert_eq!(crashes, [0, 1, 0, 0], "only the running item crashed");
    warm.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_of_a_run_finishes_one_item_and_releases_the_rest() {
    let warm = WarmEngine::start("1", |_, _| done_after(10 * SECOND)).await;
    let ids = warm.enqueue("a", 5).await;
    until(|| warm.order(&ids) == [0, 1]).await;
    until(|| warm.engine.health().held == 4).await;
    let stop = tokio::spawn(warm.engine.stop());
    let begun = Instant::now();
    warm.world.until(|counts| counts.claimed == 1).await;
    assert!(begun.elapsed() < SECOND, "released at once");
    assert_eq!(stop.await.unwrap().left, 0);
    let mut states = Vec::new();
    for id in &ids {
        states.push(warm.world.find(*id).await.state);
    }
    assert_eq!(states, [Done, Done, Pending, Pending, Pending]);
    let next = warm.world.start(
        warm.probe.working(|_| MILLI),
        World::config_with(&[(Setting::Concurrency, "4")]),
    );
    warm.world.until(|counts| counts.done == 45).await;
    let mut calls = warm.probe.calls();
    calls.retain(|call| ids.contains(&call.id));
    let order: Vec<ItemId> = calls.iter().map(|call| call.id).collect();
    assert_eq!(order, ids);
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_cancels_releases_the_running_item_as_the_head() {
    let warm = WarmEngine::start("1", |_, cx| {
        done_after(if cx.attempt() == 1 { 80 } else { 1 } * SECOND)
    })
    .await;
    let ids = warm.enqueue("a", 3).await;
    until(|| warm.order(&ids) == [0]).await;
    assert_eq!(warm.engine.stop().await.left, 0);
    for id in &ids {
        let record = warm.world.find(*id).await;
        assert_eq!(record.state, Pending);
        assert_eq!((record.counters.attempts, record.counters.crashes), (1, 0));
    }
    let next = warm
        .world
        .start(warm.probe.working(|_| MILLI), World::config());
    warm.world.until(|counts| counts.done == 43).await;
    let order: Vec<ItemId> = warm.probe.calls().iter().map(|call| call.id).collect();
    assert!(order.ends_with(&ids));
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_settle_under_way_is_not_overtaken_by_the_next_settle_of_its_run() {
    for fault in [
        Fault::Before,
        Fault::After,
        Fault::Slow(5 * SECOND),
        Fault::Late(5 * SECOND),
        Fault::Hang,
    ] {
        let warm = WarmEngine::start("2", |_, _| done_after(100 * MILLI)).await;
        let ids = warm.enqueue("a", 6).await;
        for id in [ids[0], ids[3]] {
            let is_settle = move |call: &Verb| call.is_settle_of(id);
            warm.world.faulty.once(is_settle, fault);
        }
        warm.until_done(&ids).await;
        assert_eq!(warm.order(&ids), [0, 1, 2, 3, 4, 5], "{fault:?}");
        assert_eq!(runs(&warm.calls(&ids)), [6], "{fault:?}");
        warm.assert_sound();
        warm.engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn when_a_settle_is_given_up_the_rest_of_its_run_is_dropped() {
    let warm = WarmEngine::start("1", |_, cx| {
        done_after(if cx.attempt() == 1 { SECOND } else { MILLI })
    })
    .await;
    let ids = warm.enqueue("a", 4).await;
    let first = ids[0];
    let is_settle = move |call: &Verb| call.is_settle_of(first);
    warm.world.faulty.once(is_settle, Fault::Bad);
    until(|| {
        warm.calls(&ids)
            .iter()
            .any(|call| call.end == Some(End::Dropped))
    })
    .await;
    assert_eq!(warm.order(&ids), [0, 1]);
    warm.until_done(&ids).await;
    assert_eq!(warm.order(&ids), [0, 1, 0, 1, 2, 3]);
    warm.assert_sound();
}

/// Another process settles the items of this engine, in order (a bug or an attack). The engine
/// drops the run, and no item runs twice because of it.
#[tokio::test(start_paused = true)]
async fn a_run_that_another_process_settled_is_dropped() {
    let warm = WarmEngine::start("1", |_, _| done_after(10 * SECOND)).await;
    let ids = warm.enqueue("a", 3).await;
    until(|| warm.order(&ids) == [0]).await;
    let token = warm.world.token_of(ids[0]).await;
    let settle = Settle::new(token).done(ids.iter().copied());
    drop(warm.world.store.settle(&settle).await.unwrap());
    until(|| warm.calls(&ids).iter().all(|call| call.end.is_some())).await;
    sleep(60 * SECOND).await;
    assert_eq!(warm.order(&ids), [0]);
}

/// A poison event stops all renewals while it runs. Only this event becomes dead; the items before
/// and after it in its run survive.
#[tokio::test(start_paused = true)]
async fn a_poison_event_in_a_run_dies_alone() {
    let is_poisoned = Arc::new(AtomicBool::new(false));
    let poisoned = Arc::clone(&is_poisoned);
    let config = World::config_with(&[(Setting::Concurrency, "2"), (Setting::MaxCrashes, "3")]);
    let warm = WarmEngine::start_with(config, move |event, _| {
        let poisoned = Arc::clone(&poisoned);
        async move {
            if event.payload() == "3" && event.key() == Some("a") {
                poisoned.store(true, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }
            done_after(MILLI).await
        }
    })
    .await;
    let probe = warm.probe.clone();
    warm.world.faulty.rule(move |call| {
        let is_poisoned = is_poisoned.load(Ordering::Relaxed) && probe.running() > 0;
        (is_poisoned && matches!(call, Verb::Renew(_))).then_some(Fault::Before)
    });
    let (a, b) = (warm.enqueue("a", 8).await, warm.enqueue("b", 8).await);
    warm.world.until(|counts| counts.done == 55).await;
    let poison = warm.world.find(a[3]).await;
    assert_eq!(poison.dead_reason.as_deref(), Some(reason::CRASH_LOOP));
    assert_eq!(poison.counters.crashes, 4);
    assert_eq!(warm.order(&a), [0, 1, 2, 3, 3, 3, 3, 4, 5, 6, 7]);
    for id in a.iter().chain(&b).filter(|id| **id != a[3]) {
        let record = warm.world.find(*id).await;
        assert_eq!(record.state, Done);
        assert!(record.counters.crashes <= 1, "{record:?}");
    }
    warm.assert_sound();
}

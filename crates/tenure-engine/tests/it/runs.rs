//! What befalls a run of one key's items: a bury, a cut, a lost lease, a stop, a settle that gets
//! lost, poison. Whatever it is, the order stays.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tenure_core::State::{self, Done, Pending};
use tenure_core::store::{Bury, LeaseStore as _, Operate as _, Settle};
use tenure_core::{Failure, ItemId, Setting, Token, WorkerId, reason};
use tokio::time::{Instant, sleep};

use crate::faulty::{Ask, Fault};
use crate::probe::{End, until};
use crate::shop::{MILLI, SECOND, Shop, assert_one_at_a_time, done_after, runs};
use crate::world::World;

/// Buries this item as an operator does.
async fn bury(world: &World, id: ItemId) {
    let operator = WorkerId::new("operator", 1).unwrap();
    let bury = Bury::new(id, Token::new(&operator, 1, 1), "a planted bury");
    assert!(world.store.bury(&bury).await.unwrap().is_kept());
}

#[tokio::test(start_paused = true)]
async fn one_that_is_buried_while_it_waits_for_its_turn_is_passed_over() {
    let shop = Shop::open("1", |_, _| done_after(10 * SECOND)).await;
    let ids = shop.enqueue("a", 4).await;
    until(|| shop.order(&ids) == [0]).await;
    assert_eq!(shop.engine.health().held, 4, "a run of four");
    bury(&shop.world, ids[1]).await;
    shop.world.until(|counts| counts.done == 43).await;
    assert_eq!(shop.order(&ids), [0, 2, 3]);
    assert_eq!(runs(&shop.calls(&ids)), [3], "under one lease");
    assert_one_at_a_time(&shop.calls(&ids));
    shop.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn one_that_is_buried_while_it_runs_makes_way_when_its_handler_has_stopped() {
    let shop = Shop::open("10", |_, _| done_after(20 * SECOND)).await;
    let ids = shop.enqueue("a", 3).await;
    until(|| shop.order(&ids) == [0]).await;
    bury(&shop.world, ids[0]).await;
    shop.world.until(|counts| counts.done == 42).await;
    assert_eq!(shop.order(&ids), [0, 1, 2]);
    let calls = shop.calls(&ids);
    assert_eq!(calls[0].end, Some(End::Dropped));
    assert_one_at_a_time(&calls);
    assert_eq!(runs(&calls), [3], "under one lease");
    shop.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn one_that_is_buried_after_its_retry_was_answered_frees_the_rest() {
    let shop = Shop::open("1", |event, _| async move {
        if event.payload() == "0" {
            return Err(Failure::new("not yet").after(SECOND));
        }
        done_after(MILLI).await
    })
    .await;
    let ids: Arc<Vec<ItemId>> = Arc::new(shop.enqueue("a", 3).await);
    // Its settle comes through only when it has been buried.
    let first = ids[0];
    let is_settle = move |ask: &Ask| ask.is_settle_of(first);
    shop.world.faulty.once(is_settle, Fault::Late(SECOND));
    until(|| shop.world.faulty.count(is_settle) > 0).await;
    bury(&shop.world, first).await;
    shop.world.until(|counts| counts.done == 42).await;
    assert_eq!(shop.order(&ids), [0, 1, 2]);
    shop.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn one_that_runs_for_too_long_is_cut_and_the_rest_waits_for_it() {
    let config = World::config_with(&[(Setting::Concurrency, "1"), (Setting::MaxHold, "30s")]);
    let shop = Shop::open_with(config, |event, cx| {
        let is_slow = event.payload() == "1" && cx.attempt() == 1;
        done_after(if is_slow { 100 * SECOND } else { MILLI })
    })
    .await;
    let ids = shop.enqueue("a", 4).await;
    shop.until_done(&ids).await;
    assert_eq!(shop.order(&ids), [0, 1, 1, 2, 3]);
    assert_one_at_a_time(&shop.calls(&ids));
    assert_eq!(shop.world.find(ids[1]).await.counters.failures, 1);
    for id in &ids[2..] {
        let counters = shop.world.find(*id).await.counters;
        assert_eq!((counters.attempts, counters.failures), (1, 0));
    }
    shop.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn one_that_dies_of_its_length_makes_way_for_the_rest() {
    let config = World::config_with(&[
        (Setting::Concurrency, "1"),
        (Setting::MaxHold, "30s"),
        (Setting::MaxRetries, "0"),
    ]);
    let shop = Shop::open_with(config, |event, _| {
        done_after(if event.payload() == "0" {
            100 * SECOND
        } else {
            MILLI
        })
    })
    .await;
    let ids = shop.enqueue("a", 3).await;
    shop.world.until(|counts| counts.done == 42).await;
    assert_eq!(shop.order(&ids), [0, 1, 2]);
    assert_eq!(shop.world.find(ids[0]).await.state, State::Dead);
    shop.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn a_lost_lease_ends_the_whole_run_and_the_next_holder_keeps_the_order() {
    let shop = Shop::open("1", |event, _| {
        done_after(if event.payload() == "1" {
            20 * SECOND
        } else {
            MILLI
        })
    })
    .await;
    let mut renewals = 0;
    shop.world.faulty.rule(move |ask| {
        let is_renewal = matches!(ask, Ask::Renew(_));
        renewals += u32::from(is_renewal);
        // Until its bound is over.
        (is_renewal && renewals < 200).then_some(Fault::Before)
    });
    let ids = shop.enqueue("a", 4).await;
    until(|| {
        shop.calls(&ids)
            .iter()
            .any(|call| call.end == Some(End::Dropped))
    })
    .await;
    shop.world.faulty.mend();
    shop.until_done(&ids).await;
    assert_eq!(shop.order(&ids), [0, 1, 1, 2, 3]);
    let mut crashes = Vec::new();
    for id in &ids {
        crashes.push(shop.world.find(*id).await.counters.crashes);
    }
    assert_eq!(crashes, [0, 1, 0, 0], "only what was being worked crashed");
    shop.assert_sound();
}

#[tokio::test(start_paused = true)]
async fn a_stop_in_the_middle_of_a_run_finishes_one_and_gives_back_the_rest() {
    let shop = Shop::open("1", |_, _| done_after(10 * SECOND)).await;
    let ids = shop.enqueue("a", 5).await;
    until(|| shop.order(&ids) == [0, 1]).await;
    until(|| shop.engine.health().held == 4).await;
    let stop = tokio::spawn(shop.engine.stop());
    let begun = Instant::now();
    shop.world.until(|counts| counts.claimed == 1).await;
    assert!(begun.elapsed() < SECOND, "at once");
    assert_eq!(stop.await.unwrap().left, 0);
    let mut states = Vec::new();
    for id in &ids {
        states.push(shop.world.find(*id).await.state);
    }
    assert_eq!(states, [Done, Done, Pending, Pending, Pending]);
    let next = shop.world.start(
        shop.probe.working(|_| MILLI),
        World::config_with(&[(Setting::Concurrency, "4")]),
    );
    shop.world.until(|counts| counts.done == 45).await;
    let mut calls = shop.probe.calls();
    calls.retain(|call| ids.contains(&call.id));
    let order: Vec<ItemId> = calls.iter().map(|call| call.id).collect();
    assert_eq!(order, ids);
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_cancels_gives_back_the_one_that_ran_as_the_head() {
    let shop = Shop::open("1", |_, cx| {
        done_after(if cx.attempt() == 1 { 80 } else { 1 } * SECOND)
    })
    .await;
    let ids = shop.enqueue("a", 3).await;
    until(|| shop.order(&ids) == [0]).await;
    assert_eq!(shop.engine.stop().await.left, 0);
    for id in &ids {
        let record = shop.world.find(*id).await;
        assert_eq!(record.state, Pending);
        assert_eq!((record.counters.attempts, record.counters.crashes), (1, 0));
    }
    let next = shop
        .world
        .start(shop.probe.working(|_| MILLI), World::config());
    shop.world.until(|counts| counts.done == 43).await;
    let order: Vec<ItemId> = shop.probe.calls().iter().map(|call| call.id).collect();
    assert!(order.ends_with(&ids));
    next.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_settle_on_its_way_is_not_overtaken_by_the_next_one_of_its_run() {
    for fault in [
        Fault::Before,
        Fault::After,
        Fault::Slow(5 * SECOND),
        Fault::Late(5 * SECOND),
        Fault::Hang,
    ] {
        let shop = Shop::open("2", |_, _| done_after(100 * MILLI)).await;
        let ids = shop.enqueue("a", 6).await;
        for id in [ids[0], ids[3]] {
            let is_settle = move |ask: &Ask| ask.is_settle_of(id);
            shop.world.faulty.once(is_settle, fault);
        }
        shop.until_done(&ids).await;
        assert_eq!(shop.order(&ids), [0, 1, 2, 3, 4, 5], "{fault:?}");
        assert_eq!(runs(&shop.calls(&ids)), [6], "{fault:?}");
        shop.assert_sound();
        shop.engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_settle_that_is_given_up_takes_the_rest_of_its_run_with_it() {
    let shop = Shop::open("1", |_, cx| {
        done_after(if cx.attempt() == 1 { SECOND } else { MILLI })
    })
    .await;
    let ids = shop.enqueue("a", 4).await;
    let first = ids[0];
    let is_settle = move |ask: &Ask| ask.is_settle_of(first);
    shop.world.faulty.once(is_settle, Fault::Bad);
    until(|| {
        shop.calls(&ids)
            .iter()
            .any(|call| call.end == Some(End::Dropped))
    })
    .await;
    assert_eq!(shop.order(&ids), [0, 1]);
    shop.until_done(&ids).await;
    assert_eq!(shop.order(&ids), [0, 1, 0, 1, 2, 3]);
    shop.assert_sound();
}

/// Someone else settles what is ours, in order: a bug or an attack; the answer is *refused*, and
/// nothing is worked twice because of it.
#[tokio::test(start_paused = true)]
async fn a_run_that_someone_else_settled_is_dropped() {
    let shop = Shop::open("1", |_, _| done_after(10 * SECOND)).await;
    let ids = shop.enqueue("a", 3).await;
    until(|| shop.order(&ids) == [0]).await;
    let token = shop.world.token_of(ids[0]).await;
    let settle = Settle::new(token).done(ids.iter().copied());
    drop(shop.world.store.settle(&settle).await.unwrap());
    until(|| shop.calls(&ids).iter().all(|call| call.end.is_some())).await;
    sleep(60 * SECOND).await;
    assert_eq!(shop.order(&ids), [0]);
}

/// A poison event kills whoever works on it: here it stops all renewals while it runs. It dies
/// alone, and what stands before and behind it in its run lives.
#[tokio::test(start_paused = true)]
async fn a_poison_event_in_a_run_dies_alone() {
    let is_poisoned = Arc::new(AtomicBool::new(false));
    let poisoned = Arc::clone(&is_poisoned);
    let config = World::config_with(&[(Setting::Concurrency, "2"), (Setting::MaxCrashes, "3")]);
    let shop = Shop::open_with(config, move |event, _| {
        let poisoned = Arc::clone(&poisoned);
        async move {
            if event.payload() == "3" && event.ordering_key() == Some("a") {
                poisoned.store(true, Ordering::Relaxed);
                std::future::pending::<()>().await;
            }
            done_after(MILLI).await
        }
    })
    .await;
    let probe = shop.probe.clone();
    shop.world.faulty.rule(move |ask| {
        let is_poisoned = is_poisoned.load(Ordering::Relaxed) && probe.running() > 0;
        (is_poisoned && matches!(ask, Ask::Renew(_))).then_some(Fault::Before)
    });
    let (a, b) = (shop.enqueue("a", 8).await, shop.enqueue("b", 8).await);
    shop.world.until(|counts| counts.done == 55).await;
    let poison = shop.world.find(a[3]).await;
    assert_eq!(poison.dead_reason.as_deref(), Some(reason::CRASH_LOOP));
    assert_eq!(poison.counters.crashes, 4);
    assert_eq!(shop.order(&a), [0, 1, 2, 3, 3, 3, 3, 4, 5, 6, 7]);
    for id in a.iter().chain(&b).filter(|id| **id != a[3]) {
        let record = shop.world.find(*id).await;
        assert_eq!(record.state, Done);
        assert!(record.counters.crashes <= 1, "{record:?}");
    }
    shop.assert_sound();
}

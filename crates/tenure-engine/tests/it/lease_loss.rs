//! Loss of leases: the engine cancels work before its lease can go to another worker, settles none
//! of its items and logs the reason; other leases are not affected.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use tenure_core::store::{Bury, LeaseStore as _, Operate as _, QueueRules, Queues as _, Settle};
use tenure_core::{
    Event, Failure, ItemId, NewEvent, Outcome, QueueName, Setting, State, Term, Token,
};
use tenure_engine::metrics::{HEARTBEATS, LOST, OVERDUE, SETTLED};
use tenure_engine::{Context, Engine, EngineConfig, EventFn, Keeper};
use tokio::time::{Instant, advance, sleep};

use crate::faulty_store::{Fault, Verb};
use crate::log;
use crate::meter::meter;
use crate::probe::{End, Probe, until};
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);

/// Adds a queue with its own term, whose leases are renewed by a statement of their own. Enqueues
/// an event in the default queue and one in this queue.
async fn two_queues(world: &World, term: Duration) -> (ItemId, ItemId) {
    let name = QueueName::new("other").unwrap();
    let rules = QueueRules {
        term: Some(Term::new(term).unwrap()),
        ..QueueRules::default()
    };
    world.store.add_queue(&name, rules).await.unwrap();
    let events = [
        Event::new("order.paid", &0).unwrap(),
        NewEvent::new("order.paid", &1)
            .queue("other")
            .build()
            .unwrap(),
    ];
    let ids = world.enqueue_all(&events).await;
    (ids[0], ids[1])
}

fn is_renewal_of_standard(call: &Verb) -> bool {
    matches!(call, Verb::Renew(renew) if renew.term == Term::STANDARD)
}

fn lost(engine: &Engine, reason: &str) -> u64 {
    meter().count(engine.worker(), LOST, &[("reason", reason)])
}

/// Asserts that the only loss in the metric and in the log has this reason.
fn assert_only_loss(engine: &Engine, reason: &str) {
    for other in ["refused", "failed", "late", "buried"] {
        assert_eq!(lost(engine, other), u64::from(other == reason), "{other}");
    }
    let lines = log::matching(engine.worker(), "lost a lease");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert_eq!(lines[0].field("reason"), reason);
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_stops_its_own_work_and_no_other() {
    let world = World::new();
    let ids = world.enqueue(2).await;
    let probe = Probe::default();
    let engine = world.start(
        probe.working(|_| MINUTE),
        World::config_with(&[(Setting::Batch, "1")]),
    );
    probe.begun(2).await;

    // Another worker ends the lease, like a reaper whose clock runs ahead.
    let token = world.token_of(ids[0]).await;
    drop(
        world
            .store
            .settle(&Settle::new(token).done([ids[0]]))
            .await
            .unwrap(),
    );
    let taken_at = Instant::now();

    let call = probe.ended(ids[0]).await;
    assert_eq!(call.end, Some(End::Dropped));
    assert!(call.ended.unwrap() <= taken_at + engine.settings().heartbeat());
    world.until(|counts| counts.done == 2).await;
    assert_eq!(world.faulty.count(|call| call.is_settle_of(ids[0])), 0);
    assert_eq!(probe.of(ids[1]).len(), 1, "the neighbour was left alone");
    assert_only_loss(&engine, "refused");
    assert_eq!(
        meter().count(engine.worker(), HEARTBEATS, &[("answer", "refused")]),
        1
    );
    engine.stop().await;
}

/// A lease whose row a transaction has locked is neither renewed nor lost: its holder keeps it
/// until its own deadline, and all other leases continue.
#[tokio::test(start_paused = true)]
async fn a_locked_lease_stops_its_own_work_at_its_deadline_and_no_other() {
    let world = World::new();
    let ids = world.enqueue(2).await;
    let probe = Probe::default();
    let engine = world.start(
        probe.working(|_| MINUTE),
        World::config_with(&[(Setting::Batch, "1")]),
    );
    probe.begun(2).await;
    let began = Instant::now();
    let token = world.token_of(ids[0]).await;
    world.faulty.lock_row(&token);
    // The renewal is retried; a transaction that ends in time has no effect.
    sleep(Term::STANDARD.length() / 2).await;
    world.faulty.unlock_row(&token);
    sleep(Term::STANDARD.length() / 2).await;
    assert_eq!(probe.of(ids[0])[0].end, None);
    world.faulty.lock_row(&token);

    let call = probe.ended(ids[0]).await;
    assert_eq!(call.end, Some(End::Dropped));
    assert!(call.ended.unwrap() < began + Term::STANDARD.length() * 2);
    world.until(|counts| counts.done == 1).await;
    assert_eq!(probe.of(ids[1]).len(), 1, "the neighbour was left alone");
    assert_only_loss(&engine, "late");
    let busy = meter().count(engine.worker(), HEARTBEATS, &[("answer", "busy")]);
    assert!(busy >= 2, "{busy}");
    engine.stop().await;
}

/// Proves: S1-021, S1-022, S1-023
#[tokio::test(start_paused = true)]
async fn a_failed_renewal_stops_the_work_before_another_worker_can_claim_the_item() {
    let world = World::new();
    let (id, neighbour) = two_queues(&world, Duration::from_secs(40)).await;
    world
        .faulty
        .rule(|call| is_renewal_of_standard(call).then_some(Fault::Before));
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| MINUTE), World::config());

    assert_cancelled_before_the_lease_ends(&world, &probe, id).await;
    assert_only_loss(&engine, "failed");
    let stopped_at = Instant::now();
    world.faulty.heal();
    world.until(|counts| counts.done == 2).await;
    assert_eq!(probe.of(neighbour).len(), 1, "the neighbour was left alone");
    // The reaper recovered the item, and it ran again under a new lease.
    assert_eq!(world.find(id).await.counters.crashes, 1);
    let calls = probe.of(id);
    assert_eq!(calls.len(), 2);
    assert!(calls[0].fence < calls[1].fence);
    let settles = world.faulty.since(stopped_at);
    assert_eq!(
        settles.iter().filter(|call| call.is_settle_of(id)).count(),
        1
    );
    engine.stop().await;
}

/// Asserts that the first run of the item was cancelled before its lease ended in the store, and
/// that nothing was settled.
async fn assert_cancelled_before_the_lease_ends(world: &World, probe: &Probe, id: ItemId) {
    let call = probe.ended(id).await;
    assert_eq!(call.end, Some(End::Dropped));
    let record = world.find(id).await;
    let hold = record.hold.expect("the lease has not ended yet");
    assert_eq!(hold.fence, call.fence);
    assert!(
        world.at(call.ended.unwrap()) < hold.until,
        "{call:?} {hold:?}"
    );
    assert_eq!(world.faulty.count(|call| call.is_settle_of(id)), 0);
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_is_answered_too_late_or_with_an_error_has_failed() {
    for fault in [Fault::Hang, Fault::Slow(MINUTE), Fault::Bad] {
        let world = World::new();
        let (id, neighbour) = two_queues(&world, Duration::from_secs(40)).await;
        world
            .faulty
            .rule(move |call| is_renewal_of_standard(call).then_some(fault));
        let probe = Probe::default();
        let engine = world.start(probe.working(|_| MINUTE), World::config());
        assert_cancelled_before_the_lease_ends(&world, &probe, id).await;
        assert_only_loss(&engine, "failed");
        probe.ended(neighbour).await;
        assert_eq!(probe.of(neighbour)[0].end, Some(End::Answered));
        assert_eq!(world.faulty.count(|call| call.is_settle_of(id)), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_whose_answer_is_lost_is_repeated_and_the_lease_is_kept() {
    let world = World::new();
    let ids = world.enqueue(1).await;
    let mut nth = 0;
    world.faulty.rule(move |call| {
        let is_renewal = matches!(call, Verb::Renew(_));
        nth += u32::from(is_renewal);
        (is_renewal && nth % 2 == 1).then_some(Fault::After)
    });
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| MINUTE), World::config());
    world.until(|counts| counts.done == 1).await;
    assert_eq!(probe.of(ids[0]).len(), 1);
    assert_eq!(lost(&engine, "failed"), 0);
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_paused_drops_leases_past_their_deadline() {
    let world = World::new();
    let (id, neighbour) = two_queues(&world, Duration::from_secs(90)).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| MINUTE), World::config());
    probe.begun(2).await;
    let until = world.locked_until(id).await;

    // The pause ends after the deadline and before the end of the lease.
    advance(Duration::from_secs(28)).await;
    let call = probe.ended(id).await;
    assert_eq!(call.end, Some(End::Dropped));
    assert!(world.at(call.ended.unwrap()) < until);
    assert_only_loss(&engine, "late");
    let token_of_call = world.faulty.count(|call| call.is_settle_of(id));
    assert_eq!(token_of_call, 0);
    probe.ended(neighbour).await;
    assert_eq!(probe.of(neighbour)[0].end, Some(End::Answered));
    world.until(|counts| counts.done == 2).await;
    assert_eq!(
        world.find(id).await.counters.crashes,
        1,
        "it lapsed, and was not settled"
    );
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_answered_too_late_is_released_unstarted() {
    let world = World::new();
    let ids = world.enqueue(3).await;
    world.faulty.once(
        |call| matches!(call, Verb::Claim(_)),
        Fault::Slow(Duration::from_secs(28)),
    );
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_secs(1)), World::config());
    world.until(|counts| counts.done == 3).await;
    for id in ids {
        let calls = probe.of(id);
        assert_eq!(calls.len(), 1);
        assert!(calls[0].fence.number() > 1, "not under the first claim");
        assert_eq!(
            world.find(id).await.counters.crashes,
            0,
            "released, not lapsed"
        );
    }
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_hangs_does_not_delay_leases_of_another_term() {
    let world = World::new();
    let (id, neighbour) = two_queues(&world, Duration::from_secs(4)).await;
    world
        .faulty
        .rule(|call| is_renewal_of_standard(call).then_some(Fault::Hang));
    let probe = Probe::default();
    // The cancellation comes after many renewals of the shorter lease.
    let length = |event: &Event| Duration::from_secs(if event.payload() == "1" { 25 } else { 60 });
    let config = World::config_with(&[(Setting::MaxHold, "90s")]);
    let engine = world.start(probe.working(length), config);
    let call = probe.ended(neighbour).await;
    assert_eq!(
        call.end,
        Some(End::Answered),
        "{:?}",
        log::matching(engine.worker(), "lost")
    );
    assert_cancelled_before_the_lease_ends(&world, &probe, id).await;
    assert_only_loss(&engine, "failed");
}

#[tokio::test(start_paused = true)]
async fn a_buried_item_is_cancelled_and_its_neighbours_under_the_same_lease_are_not() {
    let world = World::new();
    let ids = world.enqueue(3).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| MINUTE), World::config());
    probe.begun(3).await;
    assert_eq!(
        probe.of(ids[0])[0].fence,
        probe.of(ids[1])[0].fence,
        "one lease"
    );
    let operator = Token::new(engine.worker(), 0, 0);
    let bury = Bury::new(ids[0], operator, "not wanted");
    assert!(world.store.bury(&bury).await.unwrap().is_accepted());

    assert_eq!(probe.ended(ids[0]).await.end, Some(End::Dropped));
    world.until(|counts| counts.done == 2).await;
    assert_eq!(world.faulty.count(|call| call.is_settle_of(ids[0])), 0);
    assert_eq!(world.find(ids[0]).await.state, State::Dead);
    assert_only_loss(&engine, "buried");
    engine.stop().await;
}

/// Proves: S1-057, S1-058
#[tokio::test(start_paused = true)]
async fn a_hung_handler_is_cancelled_at_the_maximum_hold_which_counts_as_a_failure() {
    let world = World::new();
    let ids = world.enqueue(2).await;
    let probe = Probe::default();
    let length = |event: &Event| match event.payload() {
        "0" => Duration::from_hours(24),
        _ => Duration::from_secs(80),
    };
    let engine = world.start(probe.working(length), World::config());
    let call = probe.ended(ids[0]).await;
    assert_eq!(call.end, Some(End::Dropped));
    let ran = call.ended.unwrap() - call.began;
    let most = engine.settings().max_hold();
    assert_eq!(most, Duration::from_secs(90), "three terms");
    assert!(
        ran >= most && ran < most + Duration::from_millis(50),
        "{ran:?}"
    );
    until(|| meter().count(engine.worker(), SETTLED, &[("outcome", "retry")]) == 1).await;
    let record = world.find(ids[0]).await;
    assert_eq!((record.counters.failures, record.counters.crashes), (1, 0));
    let most = tenure_core::duration_text(most);
    let expected = format!("processing time exceeded: longer than {most}");
    assert_eq!(record.last_error, Some(expected));
    assert_eq!(meter().count(engine.worker(), OVERDUE, &[]), 1);
    assert_eq!(
        log::matching(
            engine.worker(),
            "cancelled a handler that exceeded the maximum hold"
        )
        .len(),
        1
    );
    assert_eq!(
        world.find(ids[1]).await.state,
        State::Done,
        "the neighbour was left alone"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unanswered_settle_of_overdue_work_is_given_up_and_its_lease_lapses() {
    let world = World::new();
    let id = world.enqueue(1).await.remove(0);
    world
        .faulty
        .rule(move |call| call.is_settle_of(id).then_some(Fault::Hang));
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_hours(24)), World::config());
    probe.ended(id).await;
    // The lease is renewed while the settle may still be answered; then it lapses and the item runs
    // again.
    until(|| probe.of(id).len() == 2).await;
    assert_eq!(world.find(id).await.counters.crashes, 1);
    assert_eq!(engine.health().held, 1);
}

#[tokio::test(start_paused = true)]
async fn leases_are_renewed_until_the_last_settle_was_answered() {
    for fault in [
        Fault::Late(Duration::from_secs(12)),
        Fault::Slow(Duration::from_secs(12)),
    ] {
        let world = World::new();
        let ids = world.enqueue(1).await;
        let id = ids[0];
        world.faulty.once(move |call| call.is_settle_of(id), fault);
        let probe = Probe::default();
        let engine = world.start(probe.working(|_| Duration::from_secs(1)), World::config());
        let ended = probe.ended(id).await.ended.unwrap();
        until(|| meter().count(engine.worker(), SETTLED, &[("outcome", "done")]) == 1).await;
        let renewals = world.faulty.since(ended);
        let renewals = renewals
            .iter()
            .filter(|call| matches!(call, Verb::Renew(_)))
            .count();
        assert!(renewals >= 1, "{fault:?}");
        // A renewal after the settle is refused, which is not a loss.
        assert_eq!(lost(&engine, "refused"), 0, "{fault:?}");
        let settled_at = Instant::now();
        sleep(MINUTE).await;
        let later = world.faulty.since(settled_at + Duration::from_millis(1));
        assert!(
            !later.iter().any(|call| matches!(call, Verb::Renew(_))),
            "no renewal after the settle"
        );
        assert_eq!(probe.of(id).len(), 1);
        engine.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_when_it_is_dropped_affects_no_other() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "a planted panic");
        }
    }
    let world = World::new();
    let ids = world.enqueue(2).await;
    let probe = Probe::default();
    let inner = probe.clone();
    let handler = EventFn::new(move |event: Event, cx: Context| {
        let guard = inner.begin(&event, &cx);
        async move {
            if event.payload() == "0" && cx.attempt() == 1 {
                let bomb = Bomb;
                std::future::pending::<()>().await;
                drop(bomb);
            }
            guard.answered();
            Ok::<_, Failure>(Outcome::Done)
        }
    });
    let engine = world.start(handler, World::config());
    world.until(|counts| counts.done == 2).await;
    assert_eq!(probe.of(ids[0]).len(), 2);
    let outcome = tokio::time::timeout(Duration::from_secs(10), engine.failed()).await;
    assert!(outcome.is_err(), "{outcome:?}");
    assert_eq!(engine.stop().await.left, 0);
}

/// The handler's runtime has one thread, so the handler blocks all tasks of that runtime.
#[test]
fn a_handler_that_blocks_its_thread_keeps_its_lease_and_fails_at_the_maximum_hold() {
    // The timers of a blocked runtime stop, so the test runs on another runtime.
    let look = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    let busy = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_time()
        .build()
        .unwrap();
    let world = World::new();
    let ids = look.block_on(world.enqueue(1));
    let (go_on, blocked) = mpsc::channel::<()>();
    let blocked = Arc::new(std::sync::Mutex::new(blocked));
    let handler = EventFn::new(move |_, cx: Context| {
        let blocked = Arc::clone(&blocked);
        async move {
            if cx.attempt() == 1 {
                blocked.lock().unwrap().recv().unwrap();
            }
            Ok(Outcome::Done)
        }
    });
    let config = EngineConfig {
        keeper: Keeper::OwnThread,
        ..World::config_with(&[(Setting::Term, "600ms"), (Setting::MaxHold, "2400ms")])
    };
    let entered = busy.enter();
    let engine = world.start(handler, config);
    drop(entered);
    look.block_on(async {
        while world.find(ids[0]).await.hold.is_none() {
            sleep(Duration::from_millis(5)).await;
        }
        let held = world.find(ids[0]).await.hold.unwrap();
        // Three terms later the same lease is live.
        while world.at(Instant::now()) < held.claimed_at.after(Duration::from_millis(1800)) {
            sleep(Duration::from_millis(5)).await;
        }
        let still = world.find(ids[0]).await.hold.unwrap();
        assert_eq!(still.fence, held.fence);
        assert!(still.until > world.at(Instant::now()));
        // The keeper settles the item while the handler's thread is blocked.
        while world.find(ids[0]).await.hold.is_some() {
            sleep(Duration::from_millis(5)).await;
        }
        let record = world.find(ids[0]).await;
        assert_eq!(record.state, State::Pending);
        assert_eq!((record.counters.failures, record.counters.crashes), (1, 0));
        assert!(
            record
                .last_error
                .unwrap()
                .contains("processing time exceeded")
        );
        go_on.send(()).unwrap();
        world.until(|counts| counts.done == 1).await;
    });
    let settles = world.faulty.count(|call| call.is_settle_of(ids[0]));
    assert_eq!(
        settles, 2,
        "the failure and the second run; not the late answer of the first"
    );
    assert_eq!(busy.block_on(engine.stop()).left, 0);
}

#[tokio::test(start_paused = true)]
async fn a_worker_whose_renewals_fail_is_not_ready() {
    let world = World::new();
    world.enqueue(1).await;
    let probe = Probe::default();
    let engine = world.start(probe.working(|_| Duration::from_secs(80)), World::config());
    probe.begun(1).await;
    let problem = || {
        let checks = engine.health().checks.into_iter();
        let mut beat = checks.filter(|check| check.name == "heartbeat");
        beat.next().unwrap().problem
    };
    until(|| engine.health().is_ready()).await;
    world
        .faulty
        .rule(|call| matches!(call, Verb::Renew(_)).then_some(Fault::Before));
    until(|| problem().is_some_and(|text| text.starts_with("a renewal failed: "))).await;
    assert!(!engine.health().is_ready());
    world.faulty.heal();
    until(|| problem().is_none()).await;
    assert!(engine.health().is_ready(), "{:?}", engine.health());
}

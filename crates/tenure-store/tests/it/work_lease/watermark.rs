//! The watermark: offsets below it are terminal and need no storage.

use tenure_core::{AcquireResult, FailResult, ReplayResult, SucceedResult};

use super::{World, acquire, acquired, backlog, current, stored};

fn everything_below_is_terminal_and_nothing_at_it(world: &World) {
    let lease = world.retrying(0);
    lease.advance_watermark(10);
    for below in [9, 0, -1, i64::MIN] {
        let answer = lease.try_acquire("A", below);
        assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
        assert_eq!(
            lease.submit("A", below),
            Ok(AcquireResult::AlreadyProcessed)
        );
    }
    acquire(&lease, 10);
    assert_eq!(
        lease.try_acquire("A", i64::MAX),
        Ok(AcquireResult::Enqueued)
    );
}

fn it_never_goes_back(world: &World) {
    let lease = world.retrying(0);
    lease.advance_watermark(10);
    lease.advance_watermark(3);
    assert_eq!(lease.watermark(), 10);
    lease.advance_watermark(i64::MAX);
    let answer = lease.try_acquire("A", i64::MAX - 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
    acquire(&lease, i64::MAX);
}

fn what_is_in_flight_or_queued_stays_as_it_is(world: &World) {
    let lease = world.retrying(1);
    let token = acquire(&lease, 1);
    assert_eq!(lease.try_acquire("A", 2), Ok(AcquireResult::Enqueued));
    lease.advance_watermark(10);
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyAcquired(token.clone())));
    assert_eq!(lease.try_acquire("A", 2), Ok(AcquireResult::Enqueued));
    assert_eq!(lease.replay("A", 1), Ok(ReplayResult::NotTerminal));
    assert_eq!(lease.replay("A", 2), Ok(ReplayResult::NotTerminal));
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NextHint(2)));
    assert!(
        stored(&lease).processed().is_empty(),
        "the watermark says it"
    );

    let token = acquire(&lease, 2);
    assert_eq!(lease.fail("A", &token), Ok(FailResult::RetryScheduled(1)));
    assert_eq!(lease.fail("A", &token), Ok(FailResult::GiveUpNoBacklog));
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
    let answer = lease.try_acquire("A", 2);
    assert_eq!(answer, Ok(AcquireResult::AlreadyFailed));
}

/// Processed offsets below the watermark are forgotten. Given-up offsets stay until a call forgets
/// them, and those above the watermark stay even then.
fn failures_are_remembered_until_they_are_forgiven(world: &World) {
    let lease = world.retrying(0);
    for offset in [1, 2, 11, 12] {
        let token = acquire(&lease, offset);
        if offset % 2 == 0 {
            assert!(lease.fail("A", &token).is_ok());
        } else {
            assert!(lease.succeed("A", &token).is_ok());
        }
    }
    lease.advance_watermark(10);
    assert_eq!(
        stored(&lease).processed().ranges().collect::<Vec<_>>(),
        [(11, 11)]
    );
    let answer = lease.try_acquire("A", 2);
    assert_eq!(answer, Ok(AcquireResult::AlreadyFailed));

    lease.forget_failed_below(i64::MAX);
    let answer = lease.try_acquire("A", 2);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
    let answer = lease.try_acquire("A", 12);
    assert_eq!(answer, Ok(AcquireResult::AlreadyFailed), "not yet passed");
    lease.advance_watermark(13);
    let answer = lease.try_acquire("A", 12);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
    assert!(stored(&lease).is_blank());
}

fn what_is_below_can_be_replayed(world: &World) {
    let lease = world.retrying(0);
    lease.advance_watermark(10);
    assert_eq!(lease.replay("A", 5), Ok(ReplayResult::Enqueued));
    assert_eq!(backlog(&lease), [5]);
    let token = acquire(&lease, 5);
    assert_eq!(current(&lease).offset, 5);
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NoBacklog));
    let answer = lease.try_acquire("A", 5);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
}

/// One watermark applies to all domains, known and new.
fn it_holds_for_every_domain(world: &World) {
    let lease = world.retrying(0);
    let token = acquired(lease.try_acquire("B", 1).unwrap());
    assert!(lease.succeed("B", &token).is_ok());
    lease.advance_watermark(5);
    for domain in ["A", "B"] {
        let answer = lease.try_acquire(domain, 4);
        assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
    }
}

checks!(
    everything_below_is_terminal_and_nothing_at_it,
    it_never_goes_back,
    what_is_in_flight_or_queued_stays_as_it_is,
    failures_are_remembered_until_they_are_forgiven,
    what_is_below_can_be_replayed,
    it_holds_for_every_domain,
);

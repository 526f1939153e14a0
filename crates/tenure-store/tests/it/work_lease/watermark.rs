//! The watermark: offsets below it are terminal and need no storage.

use tenure_core::{AcquireResult, FailResult, ReplayResult, SucceedResult};

use super::{World, acquire, acquired, backlog, current, stored};

fn offsets_below_the_watermark_are_terminal_and_the_one_at_it_is_not(world: &World) {
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

fn the_watermark_never_goes_back(world: &World) {
    let lease = world.retrying(0);
    lease.advance_watermark(10);
    lease.advance_watermark(3);
    assert_eq!(lease.watermark(), 10);
    lease.advance_watermark(i64::MAX);
    let answer = lease.try_acquire("A", i64::MAX - 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
    acquire(&lease, i64::MAX);
}

fn the_watermark_does_not_end_offsets_in_flight_or_queued(world: &World) {
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
        "the watermark covers it"
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
fn failures_stay_until_the_caller_forgets_them(world: &World) {
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

fn an_offset_below_the_watermark_can_be_replayed(world: &World) {
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

fn the_watermark_applies_to_every_domain(world: &World) {
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
    offsets_below_the_watermark_are_terminal_and_the_one_at_it_is_not,
    the_watermark_never_goes_back,
    the_watermark_does_not_end_offsets_in_flight_or_queued,
    failures_stay_until_the_caller_forgets_them,
    an_offset_below_the_watermark_can_be_replayed,
    the_watermark_applies_to_every_domain,
);

//! The six scenarios of the contract.

use std::time::Duration;

use tenure_core::{AcquireResult, FailResult, SucceedResult, WorkLeaseError};

use super::{World, acquire, acquired, backlog, current, stored};

/// Proves: S3-077
fn scenario_1_happy_path(world: &World) {
    let lease = world.retrying(3);
    let token = acquired(lease.try_acquire("A", 1).unwrap());
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NoBacklog));
}

/// Proves: S3-078, S3-040, S3-044
fn scenario_2_queue_then_orchestrated_hand_off(world: &World) {
    let lease = world.retrying(3);
    let token = acquired(lease.try_acquire("A", 1).unwrap());
    assert_eq!(lease.try_acquire("A", 2), Ok(AcquireResult::Enqueued));
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NextHint(2)));
    assert_eq!(backlog(&lease), [2]);
    acquired(lease.try_acquire("A", 2).unwrap());
    assert!(backlog(&lease).is_empty());
    assert_eq!(current(&lease).offset, 2);
}

/// Between the success and the acquisition of 2, the new offset 3 is out of order. Once 2 is in
/// flight, the same call queues 3.
///
/// Proves: S3-079, S3-039, S3-067
fn scenario_3_out_of_order_acquire(world: &World) {
    let lease = world.retrying(3);
    let token = acquire(&lease, 1);
    assert_eq!(lease.try_acquire("A", 2), Ok(AcquireResult::Enqueued));
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NextHint(2)));
    let before = stored(&lease);
    match lease.try_acquire("A", 3) {
        Err(WorkLeaseError::BacklogOrdering {
            domain,
            expected: 2,
            got: 3,
        }) => assert_eq!(domain.as_str(), "A"),
        other => panic!("{other:?} instead of BacklogOrdering"),
    }
    assert_eq!(stored(&lease), before, "an error changes nothing");
    acquire(&lease, 2);
    assert_eq!(lease.try_acquire("A", 3), Ok(AcquireResult::Enqueued));
}

/// Proves: S3-080, S3-062, S3-063, S3-064, S3-066
fn scenario_4_retry(world: &World) {
    let lease = world.retrying(3);
    let token = acquire(&lease, 1);
    let first = current(&lease);
    for n in 1..=3 {
        world.pass(Duration::from_mins(1));
        assert_eq!(lease.fail("A", &token), Ok(FailResult::RetryScheduled(n)));
        let kept = current(&lease);
        assert_eq!(kept.retry_count, n);
        assert_eq!(kept.acquired_at, first.acquired_at);
        assert_eq!((kept.offset, kept.token), (1, token.clone()));
    }
}

/// Proves: S3-081, S3-058, S3-059, S3-060, S3-061, S3-065
fn scenario_5_final_give_up(world: &World) {
    let lease = world.retrying(1);
    let token = acquire(&lease, 1);
    assert_eq!(lease.try_acquire("A", 2), Ok(AcquireResult::Enqueued));
    assert_eq!(lease.fail("A", &token), Ok(FailResult::RetryScheduled(1)));
    assert_eq!(lease.fail("A", &token), Ok(FailResult::GiveUpNextHint(2)));
    assert_eq!(lease.reservation("A"), None);
    assert_eq!(backlog(&lease), [2], "a hint does not take the offset");
    assert!(stored(&lease).failed().contains(1));
    assert!(!stored(&lease).processed().contains(1));

    let token = acquire(&lease, 2);
    assert_eq!(lease.fail("A", &token), Ok(FailResult::RetryScheduled(1)));
    assert_eq!(lease.fail("A", &token), Ok(FailResult::GiveUpNoBacklog));
}

/// Proves: S3-082, S3-009, S3-030, S3-035, S3-036
fn scenario_6_idempotence(world: &World) {
    let lease = world.retrying(0);
    let token = acquire(&lease, 1);
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NoBacklog));
    let token = acquire(&lease, 2);
    assert_eq!(lease.fail("A", &token), Ok(FailResult::GiveUpNoBacklog));
    let before = stored(&lease);
    for _ in 0..2 {
        let answer = lease.try_acquire("A", 1);
        assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
        let answer = lease.try_acquire("A", 2);
        assert_eq!(answer, Ok(AcquireResult::AlreadyFailed));
    }
    assert_eq!(stored(&lease), before);
}

checks!(
    scenario_1_happy_path,
    scenario_2_queue_then_orchestrated_hand_off,
    scenario_3_out_of_order_acquire,
    scenario_4_retry,
    scenario_5_final_give_up,
    scenario_6_idempotence,
);

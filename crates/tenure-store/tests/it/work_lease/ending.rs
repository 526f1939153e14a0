//! The end of an offset in flight: the token, the two sets of terminal offsets, and the number of
//! retries.

use std::time::Duration;

use tenure_core::{AcquireResult, FailResult, SucceedResult, WorkLeaseError, testing};

use super::{World, acquire, backlog, current, stored};

/// Proves: S3-049, S3-050, S3-051, S3-052, S3-053, S3-018
fn a_success_ends_the_reservation_and_keeps_the_backlog(world: &World) {
    let lease = world.retrying(3);
    let token = acquire(&lease, 1);
    for offset in [2, 3] {
        assert!(lease.try_acquire("A", offset).is_ok());
    }
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NextHint(2)));
    assert_eq!(lease.reservation("A"), None);
    assert_eq!(backlog(&lease), [2, 3]);
    assert!(stored(&lease).processed().contains(1));
    for (offset, next) in [
        (2, SucceedResult::NextHint(3)),
        (3, SucceedResult::NoBacklog),
    ] {
        let token = acquire(&lease, offset);
        assert_eq!(lease.succeed("A", &token), Ok(next));
    }
    assert_eq!(stored(&lease).processed().count(), 3);
}

/// The two sets are disjoint. If given-up offsets were in both, `AlreadyFailed` could never be
/// returned.
///
/// Proves: S3-018, S3-019, S3-020, S3-058
fn processed_and_given_up_offsets_are_disjoint_sets(world: &World) {
    let lease = world.retrying(0);
    let token = acquire(&lease, 1);
    assert!(lease.succeed("A", &token).is_ok());
    let token = acquire(&lease, 2);
    assert!(lease.fail("A", &token).is_ok());
    let kept = stored(&lease);
    let processed: Vec<_> = kept.processed().ranges().collect();
    let failed: Vec<_> = kept.failed().ranges().collect();
    assert_eq!((processed, failed), (vec![(1, 1)], vec![(2, 2)]));
}

/// `max_retries` of n allows n retries; the next failure gives up the offset.
///
/// Proves: S3-057, S3-017, S3-062, S3-064
fn the_number_of_retries_is_exact(world: &World) {
    for max_retries in [0, 1, 2, 10] {
        let lease = world.retrying(max_retries);
        let token = acquire(&lease, 1);
        for n in 1..=max_retries {
            assert_eq!(lease.fail("A", &token), Ok(FailResult::RetryScheduled(n)));
            assert_eq!(current(&lease).retry_count, n);
        }
        assert_eq!(lease.fail("A", &token), Ok(FailResult::GiveUpNoBacklog));
    }
}

/// The next offset starts with zero retries, and so does a replayed one.
///
/// Proves: S3-017, S3-041
fn retries_are_counted_per_offset(world: &World) {
    let lease = world.retrying(1);
    for offset in [1, 2] {
        let token = acquire(&lease, offset);
        assert_eq!(lease.fail("A", &token), Ok(FailResult::RetryScheduled(1)));
        assert!(lease.succeed("A", &token).is_ok());
    }
    assert!(lease.replay("A", 1).is_ok());
    acquire(&lease, 1);
    assert_eq!(current(&lease).retry_count, 0);
}

/// The caller computes the time of the next attempt from two fields of the reservation.
///
/// Proves: S3-005, S3-011
fn a_delay_can_be_computed_from_the_reservation(world: &World) {
    let lease = world.retrying(5);
    let token = acquire(&lease, 1);
    let start = current(&lease).acquired_at;
    for n in 1..=3_u32 {
        world.pass(Duration::from_secs(100));
        assert!(lease.fail("A", &token).is_ok());
        let kept = current(&lease);
        let due = kept
            .acquired_at
            .after(Duration::from_secs(1 << kept.retry_count));
        assert_eq!(due, start.after(Duration::from_secs(1 << n)));
    }
}

/// Proves: S3-006, S3-010, S3-031, S3-048, S3-056, S3-068, S3-070
fn another_token_is_an_error_and_changes_nothing(world: &World) {
    let lease = world.retrying(0);
    let earlier = acquire(&lease, 1);
    assert!(lease.succeed("A", &earlier).is_ok());
    acquire(&lease, 2);
    let before = stored(&lease);
    for wrong in [earlier, testing::token("stranger", 1)] {
        let errors = [
            lease.succeed("A", &wrong).unwrap_err(),
            lease.fail("A", &wrong).unwrap_err(),
            lease.renew("A", &wrong).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, WorkLeaseError::TokenMismatch { .. }));
            assert!(error.is_illegal_state());
            assert!(error.to_string().starts_with("Token mismatch"));
            let said = format!("{error} {error:?}");
            assert!(!said.contains(wrong.expose()), "a token was printed");
            let current = current(&lease);
            assert!(!said.contains(current.token.expose()));
        }
        assert_eq!(stored(&lease), before);
    }
}

/// Proves: S3-006, S3-047, S3-055, S3-069
fn ending_an_offset_that_is_not_in_flight_is_an_error(world: &World) {
    let lease = world.retrying(0);
    let token = acquire(&lease, 1);
    assert!(lease.try_acquire("A", 2).is_ok());
    assert!(lease.succeed("A", &token).is_ok());
    let before = stored(&lease);
    for domain in ["A", "never-seen"] {
        let errors = [
            lease.succeed(domain, &token).unwrap_err(),
            lease.fail(domain, &token).unwrap_err(),
            lease.renew(domain, &token).unwrap_err(),
        ];
        for error in errors {
            assert!(matches!(error, WorkLeaseError::LeaseNotFound { .. }));
            assert!(error.is_illegal_state());
            assert!(error.to_string().starts_with("No lease"));
        }
    }
    assert_eq!(stored(&lease), before);
    assert_eq!(lease.domains(), 1, "an error creates no domain");
    let error = lease.try_acquire("A", 3).unwrap_err();
    assert!(!error.is_illegal_state(), "out of order is another error");
}

/// Proves: S3-031, S3-053
fn an_offset_is_ended_once(world: &World) {
    let lease = world.retrying(0);
    let token = acquire(&lease, 1);
    assert!(lease.succeed("A", &token).is_ok());
    assert!(lease.succeed("A", &token).is_err());
    let token = acquire(&lease, 2);
    assert!(lease.fail("A", &token).is_ok());
    assert!(lease.succeed("A", &token).is_err());
    let answer = lease.try_acquire("A", 2);
    assert_eq!(answer, Ok(AcquireResult::AlreadyFailed));
}

checks!(
    a_success_ends_the_reservation_and_keeps_the_backlog,
    processed_and_given_up_offsets_are_disjoint_sets,
    the_number_of_retries_is_exact,
    retries_are_counted_per_offset,
    a_delay_can_be_computed_from_the_reservation,
    another_token_is_an_error_and_changes_nothing,
    ending_an_offset_that_is_not_in_flight_is_an_error,
    an_offset_is_ended_once,
);

//! Acquiring: the offset in flight, and the backlog with its order. Nothing happens without a call.

use std::time::Duration;

use tenure_core::{AcquireResult, DomainRules, SucceedResult, Token, WorkLeaseError};

use super::{T0, World, acquire, acquired, backlog, current, stored};

/// Proves: S3-041, S3-042, S3-016, S3-017, S3-023, S3-024
fn an_acquisition_begins_a_reservation(world: &World) {
    let lease = world.retrying(3);
    assert_eq!(lease.reservation("A"), None, "idle: nothing is in flight");
    world.pass(Duration::from_secs(5));
    let token = acquire(&lease, 7);
    let reservation = current(&lease);
    assert_eq!(reservation.offset, 7);
    assert_eq!(reservation.token, token);
    assert_eq!(reservation.acquired_at, T0.after(Duration::from_secs(5)));
    assert_eq!(reservation.retry_count, 0);
    assert_eq!(reservation.until, None, "without a term it never lapses");
}

/// Proves: S3-015
fn a_token_can_be_written_as_text_and_parsed(world: &World) {
    let lease = world.retrying(3);
    let token = acquire(&lease, 7);
    let text: &str = token.expose();
    let again = Token::parse(text).expect("a token is read back");
    assert_eq!(lease.succeed("A", &again), Ok(SucceedResult::NoBacklog));
}

/// Proves: S3-037, S3-016
fn an_offset_in_flight_is_answered_with_its_token(world: &World) {
    let lease = world.retrying(3);
    let token = acquire(&lease, 1);
    let before = stored(&lease);
    world.pass(Duration::from_hours(24 * 365));
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyAcquired(token)));
    assert_eq!(stored(&lease), before);
}

/// Proves: S3-007, S3-008, S3-021, S3-025, S3-038, S3-075, S3-076
fn other_offsets_wait_once_in_the_order_of_arrival(world: &World) {
    let lease = world.retrying(3);
    acquire(&lease, 5);
    for offset in [9, 3, 9, 7, 3, 3, 9] {
        let answer = lease.try_acquire("A", offset);
        assert_eq!(answer, Ok(AcquireResult::Enqueued));
        assert_eq!(current(&lease).offset, 5, "one is in flight");
    }
    assert_eq!(backlog(&lease), [9, 3, 7]);
}

/// Proves: S3-029, S3-001
fn only_the_head_of_the_backlog_can_be_acquired(world: &World) {
    let lease = world.retrying(3);
    let mut token = acquire(&lease, 5);
    for offset in [9, 3, 7] {
        let answer = lease.try_acquire("A", offset);
        assert_eq!(answer, Ok(AcquireResult::Enqueued));
    }
    for (head, rest) in [(9, vec![3, 7]), (3, vec![7]), (7, vec![])] {
        assert_eq!(
            lease.succeed("A", &token),
            Ok(SucceedResult::NextHint(head))
        );
        let behind = rest.first().copied().unwrap_or(100);
        let error = lease.try_acquire("A", behind).unwrap_err();
        assert!(matches!(error, WorkLeaseError::BacklogOrdering { .. }));
        token = acquire(&lease, head);
        assert_eq!(backlog(&lease), rest);
    }
}

/// Neither time nor a success starts a waiting offset.
///
/// Proves: S3-002, S3-003, S3-004, S3-005, S3-012
fn only_a_call_changes_the_state(world: &World) {
    let lease = world.retrying(3);
    let token = acquire(&lease, 1);
    assert_eq!(lease.try_acquire("A", 2), Ok(AcquireResult::Enqueued));
    assert!(lease.fail("A", &token).is_ok());
    let failed = stored(&lease);
    world.pass(Duration::from_hours(1));
    // A failed offset stays in flight until a call succeeds or gives up.
    assert_eq!(stored(&lease), failed);
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyAcquired(token.clone())));

    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NextHint(2)));
    let idle = stored(&lease);
    world.pass(Duration::from_hours(1));
    assert_eq!(stored(&lease), idle);
    assert_eq!(lease.reservation("A"), None);
    assert_eq!(lease.idle_with_backlog().len(), 1);
}

/// Proves: S3-034, S3-045, S3-074, S3-022
fn a_terminal_offset_is_found_before_the_reservation_is_checked(world: &World) {
    let lease = world.retrying(0);
    let token = acquire(&lease, 1);
    assert!(lease.succeed("A", &token).is_ok());
    let token = acquire(&lease, 2);
    assert!(lease.fail("A", &token).is_ok());
    acquire(&lease, 3);
    let before = stored(&lease);
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
    let answer = lease.try_acquire("A", 2);
    assert_eq!(answer, Ok(AcquireResult::AlreadyFailed));
    assert_eq!(lease.submit("A", 1), Ok(AcquireResult::AlreadyProcessed));
    assert_eq!(lease.submit("A", 2), Ok(AcquireResult::AlreadyFailed));
    assert_eq!(stored(&lease), before, "neither was queued");
}

/// A terminal offset is not out of order even if other offsets wait and none is in flight.
///
/// Proves: S3-034
fn a_terminal_offset_is_never_out_of_order(world: &World) {
    let lease = world.retrying(0);
    let token = acquire(&lease, 1);
    assert_eq!(lease.try_acquire("A", 2), Ok(AcquireResult::Enqueued));
    assert!(lease.succeed("A", &token).is_ok());
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
}

/// The order is that of arrival, so a smaller offset may come later.
///
/// Proves: S3-043, S3-014
fn an_idle_domain_accepts_any_offset(world: &World) {
    let lease = world.retrying(0);
    for offset in [0, i64::MAX, i64::MIN, -1, 1, i64::MAX - 1, i64::MIN + 1] {
        let token = acquire(&lease, offset);
        assert_eq!(current(&lease).offset, offset);
        assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NoBacklog));
        let answer = lease.try_acquire("A", offset);
        assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
    }
    assert_eq!(stored(&lease).processed().count(), 7);
}

/// Proves: S3-014
fn the_smallest_and_the_largest_offset_can_wait(world: &World) {
    let lease = world.retrying(0);
    let token = acquire(&lease, 0);
    for offset in [i64::MAX, i64::MIN] {
        let answer = lease.try_acquire("A", offset);
        assert_eq!(answer, Ok(AcquireResult::Enqueued));
    }
    let answer = lease.succeed("A", &token);
    assert_eq!(answer, Ok(SucceedResult::NextHint(i64::MAX)));
    match lease.try_acquire("A", i64::MIN) {
        Err(WorkLeaseError::BacklogOrdering { expected, got, .. }) => {
            assert_eq!((expected, got), (i64::MAX, i64::MIN));
        }
        other => panic!("{other:?} instead of BacklogOrdering"),
    }
    acquire(&lease, i64::MAX);
}

/// Proves: S3-007
fn domains_are_independent(world: &World) {
    let lease = world.retrying(0);
    let token = acquire(&lease, 1);
    let other = acquired(lease.try_acquire("B", 1).unwrap());
    assert_ne!(token, other);
    let error = lease.succeed("A", &other).unwrap_err();
    assert!(matches!(error, WorkLeaseError::TokenMismatch { .. }));
    assert!(lease.succeed("B", &other).is_ok());
    assert_eq!(current(&lease).token, token);
}

/// Proves: S3-006
fn an_invalid_name_of_a_domain_is_an_error_with_the_reason(world: &World) {
    let lease = world.lease(DomainRules::default());
    let long = "x".repeat(10_000);
    for (name, found) in [
        ("", "domain is empty"),
        (long.as_str(), "domain is 10000 bytes long"),
        ("a\u{0}b", "with a control character"),
    ] {
        let error = lease.try_acquire(name, 1).unwrap_err();
        assert!(matches!(error, WorkLeaseError::InvalidDomain(_)));
        assert!(!error.is_illegal_state());
        let text = error.to_string();
        assert!(text.contains(found), "{text}");
        assert!(text.contains("expected 1 to 255 bytes"), "{text}");
        let token = tenure_core::testing::token("stranger", 1);
        let error = lease.succeed(name, &token).unwrap_err();
        assert!(matches!(error, WorkLeaseError::InvalidDomain(_)));
    }
    assert!(lease.try_acquire(&"x".repeat(255), 1).is_ok());
    assert_eq!(lease.domains(), 1, "an invalid name creates no domain");
}

checks!(
    an_acquisition_begins_a_reservation,
    a_token_can_be_written_as_text_and_parsed,
    an_offset_in_flight_is_answered_with_its_token,
    other_offsets_wait_once_in_the_order_of_arrival,
    only_the_head_of_the_backlog_can_be_acquired,
    only_a_call_changes_the_state,
    a_terminal_offset_is_found_before_the_reservation_is_checked,
    a_terminal_offset_is_never_out_of_order,
    an_idle_domain_accepts_any_offset,
    the_smallest_and_the_largest_offset_can_wait,
    domains_are_independent,
    an_invalid_name_of_a_domain_is_an_error_with_the_reason,
);

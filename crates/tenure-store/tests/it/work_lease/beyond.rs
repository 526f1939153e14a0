//! Additions of the work lease to its contract: submit, replay, a term, a limit of the backlog, and
//! the search for idle domains.

use std::time::Duration;

use tenure_core::{
    AcquireResult, DomainRules, FailResult, ReplayResult, SucceedResult, Term, WorkLeaseError,
};

use super::{T0, World, acquire, acquired, backlog, current, stored};

fn with_term() -> DomainRules {
    DomainRules {
        term: Some(Term::STANDARD),
        ..DomainRules::default()
    }
}

fn with_limit(limit: u64) -> DomainRules {
    DomainRules {
        backlog_limit: Some(limit),
        ..DomainRules::default()
    }
}

/// After a hint, acquiring a new offset is out of order, but submitting it is not: it waits at the
/// end of the backlog.
fn a_new_offset_between_hint_and_acquisition_is_queued(world: &World) {
    let lease = world.retrying(3);
    let token = acquired(lease.submit("A", 1).unwrap());
    assert_eq!(lease.submit("A", 2), Ok(AcquireResult::Enqueued));
    let answer = lease.submit("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyAcquired(token.clone())));
    assert!(lease.succeed("A", &token).is_ok());
    assert_eq!(lease.submit("A", 3), Ok(AcquireResult::Enqueued));
    assert_eq!(lease.submit("A", 3), Ok(AcquireResult::Enqueued));
    assert_eq!(backlog(&lease), [2, 3]);
    // No offset is ahead of the head, so submitting the head acquires it.
    let token = acquired(lease.submit("A", 2).unwrap());
    assert_eq!(backlog(&lease), [3]);
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NextHint(3)));
}

fn a_search_finds_the_domain_of_a_lost_hint(world: &World) {
    let lease = world.retrying(3);
    for domain in ["A", "B", "C"] {
        let token = acquired(lease.submit(domain, 1).unwrap());
        assert_eq!(lease.submit(domain, 2), Ok(AcquireResult::Enqueued));
        if domain != "C" {
            // The test ignores the hint to the next offset.
            assert!(lease.succeed(domain, &token).is_ok());
        }
    }
    assert!(acquired(lease.submit("D", 1).unwrap()).expose().len() > 1);
    let mut idle = lease.idle_with_backlog();
    idle.sort();
    let idle: Vec<_> = idle
        .iter()
        .map(|(name, head)| (name.as_str(), *head))
        .collect();
    assert_eq!(idle, [("A", 2), ("B", 2)]);
    for (domain, head) in idle {
        let token = acquired(lease.try_acquire(domain, head).unwrap());
        assert_eq!(lease.succeed(domain, &token), Ok(SucceedResult::NoBacklog));
    }
    assert_eq!(lease.idle_with_backlog(), []);
}

fn a_replayed_offset_waits_at_the_end_of_the_backlog(world: &World) {
    let lease = world.retrying(0);
    let done = acquire(&lease, 1);
    assert!(lease.succeed("A", &done).is_ok());
    let given_up = acquire(&lease, 2);
    assert!(lease.fail("A", &given_up).is_ok());
    acquire(&lease, 3);
    assert_eq!(lease.try_acquire("A", 4), Ok(AcquireResult::Enqueued));
    let before = stored(&lease);
    for open in [3, 4, 5] {
        assert_eq!(lease.replay("A", open), Ok(ReplayResult::NotTerminal));
    }
    assert_eq!(stored(&lease), before);

    assert_eq!(lease.replay("A", 2), Ok(ReplayResult::Enqueued));
    assert_eq!(lease.replay("A", 1), Ok(ReplayResult::Enqueued));
    assert_eq!(lease.replay("A", 1), Ok(ReplayResult::NotTerminal));
    assert_eq!(backlog(&lease), [4, 2, 1]);
    assert!(stored(&lease).failed().is_empty() && stored(&lease).processed().is_empty());

    // The replayed offset starts with fresh counters, and the old tokens stay invalid.
    let token = current(&lease).token;
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NextHint(4)));
    let token = acquire(&lease, 4);
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NextHint(2)));
    acquire(&lease, 2);
    for old in [done, given_up] {
        let error = lease.succeed("A", &old).unwrap_err();
        assert!(matches!(error, WorkLeaseError::TokenMismatch { .. }));
    }
}

/// The offset of a dead holder can be acquired again from the end of its term on, with its history,
/// and the old token is invalid.
fn a_lapsed_reservation_is_taken_over(world: &World) {
    let lease = world.lease(with_term());
    let old = acquire(&lease, 1);
    assert_eq!(lease.try_acquire("A", 2), Ok(AcquireResult::Enqueued));
    assert_eq!(lease.fail("A", &old), Ok(FailResult::RetryScheduled(1)));
    let before = current(&lease);
    assert_eq!(before.until, Some(T0.after(Term::STANDARD.length())));

    world.pass(
        Term::STANDARD
            .length()
            .saturating_sub(Duration::from_micros(1)),
    );
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyAcquired(old.clone())));
    assert_eq!(lease.lapsed(), []);

    world.pass(Duration::from_micros(1));
    let lapsed = lease.lapsed();
    let lapsed: Vec<_> = lapsed
        .iter()
        .map(|(name, at)| (name.as_str(), *at))
        .collect();
    assert_eq!(lapsed, [("A", 1)]);
    let new = acquire(&lease, 1);
    assert_ne!(new, old);
    let taken = current(&lease);
    assert_eq!(taken.acquired_at, before.acquired_at);
    assert_eq!(taken.retry_count, before.retry_count);
    assert_eq!(lease.lapsed(), []);
    let error = lease.succeed("A", &old).unwrap_err();
    assert!(matches!(error, WorkLeaseError::TokenMismatch { .. }));
    assert_eq!(lease.succeed("A", &new), Ok(SucceedResult::NextHint(2)));
}

/// A lapse alone changes nothing: until another caller takes the offset over, it belongs to its
/// holder.
fn a_late_holder_that_was_not_replaced_succeeds(world: &World) {
    let lease = world.lease(with_term());
    let token = acquire(&lease, 1);
    world.pass(Duration::from_hours(1));
    assert_eq!(lease.try_acquire("A", 2), Ok(AcquireResult::Enqueued));
    assert_eq!(lease.succeed("A", &token), Ok(SucceedResult::NextHint(2)));
}

fn a_renewal_extends_the_term_and_never_shortens_it(world: &World) {
    let lease = world.lease(with_term());
    let term = Term::STANDARD.length();
    let token = acquire(&lease, 1);
    world.pass(Duration::from_secs(20));
    let until = T0.after(Duration::from_secs(20)).after(term);
    assert_eq!(lease.renew("A", &token), Ok(Some(until)));
    assert_eq!(lease.renew("A", &token), Ok(Some(until)));
    world.pass(Duration::from_secs(20));
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyAcquired(token.clone())));
    assert_eq!(current(&lease).acquired_at, T0);

    // A failure renews the lease, too.
    assert_eq!(lease.fail("A", &token), Ok(FailResult::RetryScheduled(1)));
    let until = T0.after(Duration::from_secs(40)).after(term);
    assert_eq!(current(&lease).until, Some(until));

    let lease = world.lease(DomainRules::default());
    let token = acquire(&lease, 1);
    assert_eq!(
        lease.renew("A", &token),
        Ok(None),
        "without a term it never ends"
    );
}

fn a_full_backlog_is_an_error_and_accepts_nothing(world: &World) {
    let lease = world.lease(with_limit(2));
    let token = acquire(&lease, 1);
    for offset in [2, 3] {
        assert_eq!(lease.try_acquire("A", offset), Ok(AcquireResult::Enqueued));
    }
    let before = stored(&lease);
    for error in [
        lease.try_acquire("A", 4).unwrap_err(),
        lease.submit("A", 4).unwrap_err(),
    ] {
        assert!(matches!(
            error,
            WorkLeaseError::BacklogFull {
                limit: 2,
                got: 4,
                ..
            }
        ));
        assert!(
            error.to_string().contains("2 offsets already wait"),
            "{error}"
        );
    }
    // An offset that is in flight or already waits needs no space in the backlog.
    assert_eq!(lease.try_acquire("A", 3), Ok(AcquireResult::Enqueued));
    assert!(lease.try_acquire("A", 1).is_ok());
    assert_eq!(stored(&lease), before);

    assert!(lease.succeed("A", &token).is_ok());
    let error = lease.replay("A", 1).unwrap_err();
    assert!(matches!(error, WorkLeaseError::BacklogFull { .. }));
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed), "unchanged");
    acquire(&lease, 2);
    assert_eq!(lease.try_acquire("A", 4), Ok(AcquireResult::Enqueued));
}

checks!(
    a_new_offset_between_hint_and_acquisition_is_queued,
    a_search_finds_the_domain_of_a_lost_hint,
    a_replayed_offset_waits_at_the_end_of_the_backlog,
    a_lapsed_reservation_is_taken_over,
    a_late_holder_that_was_not_replaced_succeeds,
    a_renewal_extends_the_term_and_never_shortens_it,
    a_full_backlog_is_an_error_and_accepts_nothing,
);

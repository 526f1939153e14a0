//! The contract of the work lease in every store: its scenarios, results and errors.

use tenure_core::{AcquireResult, FailResult, ReplayResult, SucceedResult};

use crate::world::{T0, World, at, fresh, mismatch, no_lease, operator, out_of_order};

use AcquireResult::{AlreadyAcquired, AlreadyFailed, AlreadyProcessed, Enqueued};

on_every_queue!(
    happy_path,
    queue_then_orchestrated_hand_off,
    out_of_order_acquire_is_an_error_that_changes_nothing,
    a_retry_keeps_the_lease_its_token_and_its_start,
    an_offset_is_given_up_after_the_maximum_of_retries,
    a_give_up_ends_the_lease_and_hints_at_the_next_offset,
    a_terminal_offset_is_never_acquired_again,
    a_terminal_offset_is_found_before_the_order_is_checked,
    the_same_offset_gets_the_same_token_again,
    the_backlog_keeps_the_order_of_arrival_and_has_no_duplicates,
    a_hint_does_not_change_the_backlog,
    without_a_backlog_any_offset_may_follow,
    a_wrong_token_or_a_missing_lease_is_an_error_that_changes_nothing,
    reads_and_a_replay_without_effect_change_nothing,
);

/// Proves: S3-041, S3-042, S3-049, S3-050, S3-051, S3-053, S3-077
async fn happy_path(world: &dyn World) {
    let desk = operator(world);
    let token = desk.acquire("A", 1).await;
    let held = desk.reservation("A").await.unwrap();
    assert_eq!(
        (held.offset, &held.token, held.acquired_at, held.retry_count),
        (1, &token, T0, 0)
    );
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NoBacklog)
    );
    assert_eq!(desk.reservation("A").await, None);
    assert_eq!(desk.try_acquire("A", 1).await, Ok(AlreadyProcessed));
}

/// Proves: S3-004, S3-012, S3-013, S3-038, S3-040, S3-044, S3-052, S3-078
async fn queue_then_orchestrated_hand_off(world: &dyn World) {
    let desk = operator(world);
    let token = desk.acquire("A", 1).await;
    assert_eq!(desk.try_acquire("A", 2).await, Ok(Enqueued));
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NextHint(2))
    );
    // A success does not start the next offset.
    assert_eq!(desk.reservation("A").await, None);
    let token = desk.acquire("A", 2).await;
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NoBacklog)
    );
}

/// Proves: S3-006, S3-029, S3-039, S3-067, S3-079
async fn out_of_order_acquire_is_an_error_that_changes_nothing(world: &dyn World) {
    let desk = operator(world);
    let token = desk.acquire("A", 1).await;
    assert_eq!(desk.try_acquire("A", 2).await, Ok(Enqueued));
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NextHint(2))
    );
    let before = world.dump().await;
    let error = desk.try_acquire("A", 3).await.unwrap_err();
    assert_eq!(error, out_of_order("A", 2, 3));
    assert!(!error.is_illegal_state());
    assert_eq!(world.dump().await, before);
    desk.acquire("A", 2).await;
    assert_eq!(desk.try_acquire("A", 3).await, Ok(Enqueued));
}

/// Proves: S3-005, S3-016, S3-017, S3-062, S3-063, S3-064, S3-066, S3-080
async fn a_retry_keeps_the_lease_its_token_and_its_start(world: &dyn World) {
    let desk = operator(world);
    let token = desk.acquire("A", 1).await;
    for n in 1..=10 {
        let desk = desk.at(at(u64::from(n) * 60));
        assert_eq!(
            desk.fail("A", &token).await,
            Ok(FailResult::RetryScheduled(n))
        );
        let held = desk.reservation("A").await.unwrap();
        assert_eq!(
            (held.offset, &held.token, held.acquired_at, held.retry_count),
            (1, &token, T0, n)
        );
        let again = desk.try_acquire("A", 1).await;
        assert_eq!(again, Ok(AlreadyAcquired(token.clone())));
    }
}

/// Proves: S3-057
async fn an_offset_is_given_up_after_the_maximum_of_retries(world: &dyn World) {
    for limit in [0, 1, 3] {
        let desk = operator(world).rules(|rules| rules.max_retries = limit);
        let domain = format!("limit-{limit}");
        let token = desk.acquire(&domain, 1).await;
        for n in 1..=limit {
            let answer = desk.fail(&domain, &token).await;
            assert_eq!(answer, Ok(FailResult::RetryScheduled(n)));
        }
        let answer = desk.fail(&domain, &token).await;
        assert_eq!(answer, Ok(FailResult::GiveUpNoBacklog), "limit {limit}");
    }
}

/// Proves: S3-058, S3-059, S3-060, S3-061, S3-065, S3-081
async fn a_give_up_ends_the_lease_and_hints_at_the_next_offset(world: &dyn World) {
    let desk = operator(world).rules(|rules| rules.max_retries = 0);
    let token = desk.acquire("A", 1).await;
    assert_eq!(desk.try_acquire("A", 2).await, Ok(Enqueued));
    let answer = desk.fail("A", &token).await;
    assert_eq!(answer, Ok(FailResult::GiveUpNextHint(2)));
    assert_eq!(desk.reservation("A").await, None);
    assert_eq!(desk.try_acquire("A", 1).await, Ok(AlreadyFailed));
    assert_eq!(desk.give_up("A", 2).await, None);
    assert_eq!(desk.try_acquire("A", 2).await, Ok(AlreadyFailed));
}

/// Proves: S3-009, S3-030, S3-035, S3-036, S3-045, S3-074, S3-082
async fn a_terminal_offset_is_never_acquired_again(world: &dyn World) {
    let desk = operator(world).rules(|rules| rules.max_retries = 0);
    desk.process("A", 1).await;
    desk.give_up("A", 2).await;
    let token = desk.acquire("A", 3).await;
    let before = world.dump().await;
    for _ in 0..2 {
        assert_eq!(desk.try_acquire("A", 1).await, Ok(AlreadyProcessed));
        assert_eq!(desk.try_acquire("A", 2).await, Ok(AlreadyFailed));
        assert_eq!(desk.submit("A", 1).await, Ok(AlreadyProcessed));
        assert_eq!(desk.submit("A", 2).await, Ok(AlreadyFailed));
    }
    assert_eq!(world.dump().await, before);
    // No call has queued an offset.
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NoBacklog)
    );
}

/// Proves: S3-034
async fn a_terminal_offset_is_found_before_the_order_is_checked(world: &dyn World) {
    let desk = operator(world);
    desk.process("A", 1).await;
    // One offset waits and none is in flight, but the answer is not an error about the order.
    let token = desk.acquire("A", 2).await;
    assert_eq!(desk.try_acquire("A", 3).await, Ok(Enqueued));
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NextHint(3))
    );
    assert_eq!(desk.try_acquire("A", 1).await, Ok(AlreadyProcessed));
}

/// Proves: S3-037
async fn the_same_offset_gets_the_same_token_again(world: &dyn World) {
    let desk = operator(world);
    let token = desk.acquire("A", 1).await;
    let before = world.dump().await;
    let later = desk.at(at(3600));
    assert_eq!(
        later.try_acquire("A", 1).await,
        Ok(AlreadyAcquired(token.clone()))
    );
    assert_eq!(later.submit("A", 1).await, Ok(AlreadyAcquired(token)));
    assert_eq!(world.dump().await, before);
}

/// Proves: S3-001, S3-008, S3-021, S3-075, S3-076
async fn the_backlog_keeps_the_order_of_arrival_and_has_no_duplicates(world: &dyn World) {
    let desk = operator(world);
    let mut token = desk.acquire("A", 50).await;
    let order = [9, 60, -4, 9, 60, 55, 9];
    for offset in order {
        assert_eq!(desk.try_acquire("A", offset).await, Ok(Enqueued));
    }
    for offset in [9, 60, -4, 55] {
        let hint = desk.succeed("A", &token).await;
        assert_eq!(hint, Ok(SucceedResult::NextHint(offset)));
        token = desk.acquire("A", offset).await;
        // A processed offset is not queued again.
        assert_eq!(
            desk.try_acquire("A", 50).await,
            Ok(AlreadyProcessed),
            "50 is processed"
        );
    }
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NoBacklog)
    );
}

/// Proves: S3-029, S3-052, S3-061
async fn a_hint_does_not_change_the_backlog(world: &dyn World) {
    let desk = operator(world).rules(|rules| rules.max_retries = 0);
    let token = desk.acquire("A", 1).await;
    assert_eq!(desk.try_acquire("A", 2).await, Ok(Enqueued));
    assert_eq!(desk.try_acquire("A", 3).await, Ok(Enqueued));
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NextHint(2))
    );
    assert_eq!(desk.idle_with_backlog(10).await, [("A".to_owned(), 2)]);
    assert_eq!(desk.give_up("A", 2).await, Some(3));
    assert_eq!(desk.idle_with_backlog(10).await, [("A".to_owned(), 3)]);
    assert_eq!(desk.process("A", 3).await, None);
    assert_eq!(desk.idle_with_backlog(10).await, []);
}

/// Proves: S3-043
async fn without_a_backlog_any_offset_may_follow(world: &dyn World) {
    let desk = operator(world);
    for offset in [100, 3, 7, -1, 0, 99] {
        assert_eq!(desk.process("A", offset).await, None);
    }
}

/// Proves: S3-010, S3-031, S3-047, S3-048, S3-055, S3-056, S3-068, S3-069
async fn a_wrong_token_or_a_missing_lease_is_an_error_that_changes_nothing(world: &dyn World) {
    let desk = operator(world);
    let (token, stranger) = (desk.acquire("A", 1).await, fresh("stranger"));
    desk.process("B", 1).await;
    let before = world.dump().await;
    let other = mismatch("A");
    assert_eq!(desk.succeed("A", &stranger).await, Err(other.clone()));
    assert_eq!(desk.fail("A", &stranger).await, Err(other.clone()));
    assert_eq!(desk.renew("A", &stranger).await, Err(other.clone()));
    assert!(other.is_illegal_state());
    assert!(other.to_string().starts_with("Token mismatch"));
    // The first domain is idle, the second unknown.
    for domain in ["B", "nobody"] {
        let none = no_lease(domain);
        assert_eq!(desk.succeed(domain, &token).await, Err(none.clone()));
        assert_eq!(desk.fail(domain, &token).await, Err(none.clone()));
        assert_eq!(desk.renew(domain, &token).await, Err(none.clone()));
        assert!(none.is_illegal_state());
        assert!(none.to_string().starts_with("No lease"));
    }
    assert_eq!(world.dump().await, before);
    assert!(desk.succeed("A", &token).await.is_ok());
    let before = world.dump().await;
    assert_eq!(
        desk.succeed("A", &token).await,
        Err(no_lease("A")),
        "a success is accepted once"
    );
    assert_eq!(world.dump().await, before);
}

async fn reads_and_a_replay_without_effect_change_nothing(world: &dyn World) {
    let desk = operator(world);
    let before = world.dump().await;
    assert_eq!(desk.reservation("A").await, None);
    assert_eq!(desk.idle_with_backlog(10).await, []);
    assert_eq!(desk.lapsed(10).await, []);
    assert_eq!(desk.watermark().await, i64::MIN);
    assert_eq!(desk.replay("A", 1).await, Ok(ReplayResult::NotTerminal));
    assert_eq!(world.dump().await, before);
}

//! The work lease as every store keeps it: the whole contract, and what is added to it.

use tenure_core::{AcquireResult, FailResult, ReplayResult, SucceedResult};

use crate::world::{T0, World, at, desk, fresh, mismatch, no_lease, out_of_order};

use AcquireResult::{AlreadyAcquired, AlreadyFailed, AlreadyProcessed, Enqueued};

on_every_queue!(
    happy_path,
    queue_then_orchestrated_hand_off,
    out_of_order_acquire_is_an_error_that_changes_nothing,
    a_retry_keeps_the_lease_its_token_and_its_first_moment,
    the_limit_of_retries_is_tested_before_it_counts,
    a_final_give_up_clears_the_lease_and_hints,
    a_terminal_offset_is_never_acquired_again,
    the_terminal_check_comes_before_the_look_at_the_lease,
    the_same_offset_gets_the_same_token_again,
    the_backlog_is_in_order_of_arrival_and_takes_none_twice,
    hints_leave_the_backlog_as_it_is,
    any_offset_may_follow_when_nothing_waits,
    a_wrong_token_and_no_lease_are_errors_that_change_nothing,
    what_is_asked_without_effect_changes_nothing,
    both_ends_of_the_numbers_are_offsets,
    terminal_offsets_are_joined_in_any_order,
    domains_and_spaces_do_not_touch,
    domains_of_any_name_are_kept_as_they_are,
    submit_never_refuses_a_newcomer,
    a_lost_hint_is_found,
    a_full_backlog_says_so_and_changes_nothing,
    without_a_term_nothing_lapses,
    a_lapsed_reservation_is_taken_over_and_the_late_holder_told,
    a_late_holder_that_nobody_replaced_is_still_the_holder,
    a_renewal_moves_the_end_and_never_back,
    a_replay_goes_to_the_tail,
    below_the_watermark_everything_is_processed,
    what_is_in_flight_or_queued_outlives_the_watermark,
    failures_are_remembered_until_they_are_forgotten,
    a_domain_with_nothing_left_is_forgotten,
    without_a_given_moment_the_clock_of_the_store_counts_reservations,
);

/// Proves: S3-041, S3-042, S3-049, S3-050, S3-051, S3-053, S3-077
async fn happy_path(world: &dyn World) {
    let desk = desk(world);
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
    let desk = desk(world);
    let token = desk.acquire("A", 1).await;
    assert_eq!(desk.try_acquire("A", 2).await, Ok(Enqueued));
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NextHint(2))
    );
    // Nothing was handed off.
    assert_eq!(desk.reservation("A").await, None);
    let token = desk.acquire("A", 2).await;
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NoBacklog)
    );
}

/// Proves: S3-006, S3-029, S3-039, S3-067, S3-079
async fn out_of_order_acquire_is_an_error_that_changes_nothing(world: &dyn World) {
    let desk = desk(world);
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
async fn a_retry_keeps_the_lease_its_token_and_its_first_moment(world: &dyn World) {
    let desk = desk(world);
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
async fn the_limit_of_retries_is_tested_before_it_counts(world: &dyn World) {
    for limit in [0, 1, 3] {
        let desk = desk(world).rules(|rules| rules.max_retries = limit);
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
async fn a_final_give_up_clears_the_lease_and_hints(world: &dyn World) {
    let desk = desk(world).rules(|rules| rules.max_retries = 0);
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
    let desk = desk(world).rules(|rules| rules.max_retries = 0);
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
    // And nothing was queued.
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NoBacklog)
    );
}

/// Proves: S3-034
async fn the_terminal_check_comes_before_the_look_at_the_lease(world: &dyn World) {
    let desk = desk(world);
    desk.process("A", 1).await;
    // Something waits and nothing is in flight: still no word about the order.
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
    let desk = desk(world);
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
async fn the_backlog_is_in_order_of_arrival_and_takes_none_twice(world: &dyn World) {
    let desk = desk(world);
    let mut token = desk.acquire("A", 50).await;
    let order = [9, 60, -4, 9, 60, 55, 9];
    for offset in order {
        assert_eq!(desk.try_acquire("A", offset).await, Ok(Enqueued));
    }
    for offset in [9, 60, -4, 55] {
        let hint = desk.succeed("A", &token).await;
        assert_eq!(hint, Ok(SucceedResult::NextHint(offset)));
        token = desk.acquire("A", offset).await;
        // What is drained may not come back, and what comes meanwhile goes to the tail.
        assert_eq!(
            desk.try_acquire("A", 50).await,
            Ok(AlreadyProcessed),
            "50 is over"
        );
    }
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NoBacklog)
    );
}

/// Proves: S3-029, S3-052, S3-061
async fn hints_leave_the_backlog_as_it_is(world: &dyn World) {
    let desk = desk(world).rules(|rules| rules.max_retries = 0);
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
async fn any_offset_may_follow_when_nothing_waits(world: &dyn World) {
    let desk = desk(world);
    for offset in [100, 3, 7, -1, 0, 99] {
        assert_eq!(desk.process("A", offset).await, None);
    }
}

/// Proves: S3-010, S3-031, S3-047, S3-048, S3-055, S3-056, S3-068, S3-069
async fn a_wrong_token_and_no_lease_are_errors_that_change_nothing(world: &dyn World) {
    let desk = desk(world);
    let (token, stranger) = (desk.acquire("A", 1).await, fresh("stranger"));
    desk.process("B", 1).await;
    let before = world.dump().await;
    let other = mismatch("A");
    assert_eq!(desk.succeed("A", &stranger).await, Err(other.clone()));
    assert_eq!(desk.fail("A", &stranger).await, Err(other.clone()));
    assert_eq!(desk.renew("A", &stranger).await, Err(other.clone()));
    assert!(other.is_illegal_state());
    assert!(other.to_string().starts_with("Token mismatch"));
    // Idle, or never heard of.
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
        "a success is said once"
    );
    assert_eq!(world.dump().await, before);
}

async fn what_is_asked_without_effect_changes_nothing(world: &dyn World) {
    let desk = desk(world);
    let before = world.dump().await;
    assert_eq!(desk.reservation("A").await, None);
    assert_eq!(desk.idle_with_backlog(10).await, []);
    assert_eq!(desk.lapsed(10).await, []);
    assert_eq!(desk.watermark().await, i64::MIN);
    assert_eq!(desk.replay("A", 1).await, Ok(ReplayResult::NotTerminal));
    assert_eq!(world.dump().await, before);
}

/// Proves: S3-014
async fn both_ends_of_the_numbers_are_offsets(world: &dyn World) {
    let desk = desk(world).rules(|rules| rules.max_retries = 0);
    let ends = [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX - 1, i64::MAX];
    let mut token = desk.acquire("A", 7).await;
    for offset in ends {
        assert_eq!(desk.try_acquire("A", offset).await, Ok(Enqueued));
    }
    for offset in ends {
        assert_eq!(
            desk.succeed("A", &token).await,
            Ok(SucceedResult::NextHint(offset))
        );
        token = desk.acquire("A", offset).await;
        assert_eq!(desk.reservation("A").await.unwrap().offset, offset);
    }
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NoBacklog)
    );
    for offset in ends {
        assert_eq!(desk.try_acquire("A", offset).await, Ok(AlreadyProcessed));
        assert_eq!(desk.give_up("B", offset).await, None);
        assert_eq!(desk.try_acquire("B", offset).await, Ok(AlreadyFailed));
        assert_eq!(desk.replay("A", offset).await, Ok(ReplayResult::Enqueued));
        desk.process("A", offset).await;
    }
    desk.advance_watermark(i64::MAX).await;
    assert_eq!(
        desk.try_acquire("C", i64::MAX - 1).await,
        Ok(AlreadyProcessed)
    );
    desk.process("C", i64::MAX).await;
}

/// Proves: S3-018, S3-019
async fn terminal_offsets_are_joined_in_any_order(world: &dyn World) {
    let desk = desk(world).rules(|rules| rules.max_retries = 0);
    // 37 and 100 have no common divisor: every offset once, never beside the last one.
    let all: Vec<i64> = (0..100).map(|n| n * 37 % 100).collect();
    for offset in &all {
        if offset % 10 == 0 {
            desk.give_up("A", *offset).await;
        } else {
            desk.process("A", *offset).await;
        }
    }
    for offset in &all {
        let is = if offset % 10 == 0 {
            AlreadyFailed
        } else {
            AlreadyProcessed
        };
        assert_eq!(desk.try_acquire("A", *offset).await, Ok(is), "{offset}");
    }
    let token = desk.acquire("A", 100).await;
    assert_eq!(desk.try_acquire("A", -1).await, Ok(Enqueued));
    assert_eq!(
        desk.fail("A", &token).await,
        Ok(FailResult::GiveUpNextHint(-1))
    );
}

/// Proves: S3-007, S3-025
async fn domains_and_spaces_do_not_touch(world: &dyn World) {
    let here = desk(world);
    let there = desk(world).space("payments-4");
    let (a, b, elsewhere) = (
        here.acquire("A", 1).await,
        here.acquire("B", 1).await,
        there.acquire("A", 1).await,
    );
    assert_eq!(here.succeed("A", &b).await, Err(mismatch("A")));
    assert_eq!(here.succeed("A", &elsewhere).await, Err(mismatch("A")));
    assert_eq!(here.try_acquire("A", 2).await, Ok(Enqueued));
    assert_eq!(here.succeed("A", &a).await, Ok(SucceedResult::NextHint(2)));
    assert_eq!(here.succeed("B", &b).await, Ok(SucceedResult::NoBacklog));
    assert_eq!(there.idle_with_backlog(10).await, []);
    assert_eq!(here.advance_watermark(10).await, 10);
    assert_eq!(there.watermark().await, i64::MIN);
    assert_eq!(here.try_acquire("A", 5).await, Ok(AlreadyProcessed));
    assert_eq!(there.try_acquire("A", 5).await, Ok(Enqueued));
    assert_eq!(
        there.succeed("A", &elsewhere).await,
        Ok(SucceedResult::NextHint(5))
    );
}

async fn domains_of_any_name_are_kept_as_they_are(world: &dyn World) {
    let desk = desk(world);
    let longest = "ü".repeat(127);
    let names = [
        "a",
        "A",
        " ",
        "a ",
        "'; drop table tenure_offsets; --",
        "日本",
        &longest,
    ];
    for name in names {
        desk.acquire(name, 1).await;
        assert_eq!(desk.try_acquire(name, 2).await, Ok(Enqueued));
        let token = desk.reservation(name).await.unwrap().token;
        desk.end(name, &token).await;
    }
    let mut sorted = names;
    sorted.sort_unstable();
    let idle = desk.idle_with_backlog(100).await;
    let idle: Vec<&str> = idle.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(idle, sorted, "by name, byte for byte");
}

/// Proves: S3-003
async fn submit_never_refuses_a_newcomer(world: &dyn World) {
    let desk = desk(world);
    let AcquireResult::Acquired(token) = desk.submit("A", 1).await.unwrap() else {
        panic!("nothing was ahead");
    };
    assert_eq!(desk.submit("A", 2).await, Ok(Enqueued));
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NextHint(2))
    );
    // The hint is on its way: a newcomer is queued behind, where try_acquire is an error.
    assert_eq!(desk.submit("A", 3).await, Ok(Enqueued));
    assert_eq!(desk.submit("A", 3).await, Ok(Enqueued));
    assert_eq!(desk.idle_with_backlog(10).await, [("A".to_owned(), 2)]);
    // The head itself is acquired.
    assert!(matches!(
        desk.submit("A", 2).await,
        Ok(AcquireResult::Acquired(_))
    ));
}

async fn a_lost_hint_is_found(world: &dyn World) {
    let desk = desk(world);
    for n in 0..5 {
        let domain = format!("domain-{n}");
        let token = desk.acquire(&domain, 1).await;
        assert_eq!(desk.submit(&domain, 2 + n).await, Ok(Enqueued));
        // Whoever got this hint dies with it; the last domain stays in flight.
        if n < 4 {
            desk.end(&domain, &token).await;
        }
    }
    let found = desk.idle_with_backlog(3).await;
    let expected = [
        ("domain-0", 2),
        ("domain-1", 3),
        ("domain-2", 4),
        ("domain-3", 5),
    ];
    let expected = expected.map(|(domain, head)| (domain.to_owned(), head));
    assert_eq!(found, expected[..3]);
    assert_eq!(desk.idle_with_backlog(100).await, expected);
    assert_eq!(desk.idle_with_backlog(0).await, []);
    for (domain, head) in expected {
        assert_eq!(desk.process(&domain, head).await, None);
    }
    assert_eq!(desk.idle_with_backlog(100).await, []);
}

async fn a_full_backlog_says_so_and_changes_nothing(world: &dyn World) {
    let desk = desk(world).rules(|rules| rules.backlog_limit = Some(2));
    let token = desk.acquire("A", 1).await;
    for offset in [2, 3] {
        assert_eq!(desk.submit("A", offset).await, Ok(Enqueued));
    }
    let before = world.dump().await;
    let error = desk.submit("A", 4).await.unwrap_err();
    assert_eq!(error.code(), "backlog_full");
    assert_eq!(desk.try_acquire("A", 4).await, Err(error));
    // What waits already takes no room.
    assert_eq!(desk.submit("A", 3).await, Ok(Enqueued));
    assert_eq!(world.dump().await, before);
    desk.end("A", &token).await;
    desk.process("A", 2).await;
    assert_eq!(desk.submit("A", 4).await, Ok(Enqueued));
}

async fn without_a_term_nothing_lapses(world: &dyn World) {
    let desk = desk(world);
    let token = desk.acquire("A", 1).await;
    let centuries = desk.at(at(10_000_000_000));
    assert_eq!(centuries.lapsed(10).await, []);
    assert_eq!(centuries.renew("A", &token).await, Ok(None));
    let again = centuries.try_acquire("A", 1).await;
    assert_eq!(again, Ok(AlreadyAcquired(token.clone())));
    assert!(centuries.succeed("A", &token).await.is_ok());
}

/// Proves: S3-016
async fn a_lapsed_reservation_is_taken_over_and_the_late_holder_told(world: &dyn World) {
    let desk = desk(world).term(30);
    let first = desk.acquire("A", 1).await;
    assert_eq!(
        desk.fail("A", &first).await,
        Ok(FailResult::RetryScheduled(1))
    );
    desk.acquire("B", 7).await;
    let early = desk.at(at(30).before(crate::world::TICK));
    assert_eq!(early.lapsed(10).await, []);
    assert_eq!(
        early.try_acquire("A", 1).await,
        Ok(AlreadyAcquired(first.clone()))
    );
    let late = desk.at(at(30));
    let both = [("A".to_owned(), 1), ("B".to_owned(), 7)];
    assert_eq!(late.lapsed(10).await, both);
    assert_eq!(late.lapsed(1).await, both[..1]);
    let second = late.acquire("A", 1).await;
    let held = late.reservation("A").await.unwrap();
    assert_eq!(
        (&held.token, held.acquired_at, held.retry_count, held.until),
        (&second, T0, 1, Some(at(60)))
    );
    let before = world.dump().await;
    let other = mismatch("A");
    assert_eq!(late.succeed("A", &first).await, Err(other.clone()));
    assert_eq!(late.fail("A", &first).await, Err(other.clone()));
    assert_eq!(late.renew("A", &first).await, Err(other));
    assert_eq!(world.dump().await, before);
    assert!(late.succeed("A", &second).await.is_ok());
    // Another offset does not take over: it waits behind.
    assert_eq!(late.try_acquire("B", 8).await, Ok(Enqueued));
}

async fn a_late_holder_that_nobody_replaced_is_still_the_holder(world: &dyn World) {
    let desk = desk(world).term(30);
    let token = desk.acquire("A", 1).await;
    let late = desk.at(at(1000));
    assert_eq!(late.renew("A", &token).await, Ok(Some(at(1030))));
    let later = desk.at(at(5000));
    assert_eq!(
        later.succeed("A", &token).await,
        Ok(SucceedResult::NoBacklog)
    );
}

async fn a_renewal_moves_the_end_and_never_back(world: &dyn World) {
    let desk = desk(world).term(60);
    let token = desk.acquire("A", 1).await;
    let later = desk.at(at(10));
    assert_eq!(later.renew("A", &token).await, Ok(Some(at(70))));
    let shorter = later.clone().term(5);
    let before = world.dump().await;
    assert_eq!(shorter.renew("A", &token).await, Ok(Some(at(70))));
    assert_eq!(world.dump().await, before);
    let held = later.reservation("A").await.unwrap();
    assert_eq!((held.acquired_at, held.until), (T0, Some(at(70))));
}

async fn a_replay_goes_to_the_tail(world: &dyn World) {
    let desk = desk(world).rules(|rules| rules.max_retries = 0);
    for offset in 1..=5 {
        desk.process("A", offset).await;
    }
    desk.give_up("A", 6).await;
    let token = desk.acquire("A", 7).await;
    assert_eq!(desk.submit("A", 8).await, Ok(Enqueued));
    // Out of the middle of a range, and out of another set.
    for offset in [3, 6] {
        assert_eq!(desk.replay("A", offset).await, Ok(ReplayResult::Enqueued));
        let before = world.dump().await;
        assert_eq!(
            desk.replay("A", offset).await,
            Ok(ReplayResult::NotTerminal)
        );
        assert_eq!(world.dump().await, before);
    }
    assert_eq!(desk.replay("A", 7).await, Ok(ReplayResult::NotTerminal));
    for offset in [1, 2, 4, 5] {
        assert_eq!(desk.try_acquire("A", offset).await, Ok(AlreadyProcessed));
    }
    desk.end("A", &token).await;
    for (offset, hint) in [(8, Some(3)), (3, Some(6)), (6, None)] {
        assert_eq!(desk.process("A", offset).await, hint);
    }
    assert_eq!(desk.try_acquire("A", 3).await, Ok(AlreadyProcessed));
}

/// Proves: S3-018
async fn below_the_watermark_everything_is_processed(world: &dyn World) {
    let desk = desk(world);
    for offset in [10, 11, 12, 20] {
        desk.process("A", offset).await;
    }
    assert_eq!(desk.advance_watermark(12).await, 12);
    assert_eq!(desk.advance_watermark(5).await, 12, "it never goes back");
    assert_eq!(desk.watermark().await, 12);
    for offset in [i64::MIN, 5, 10, 11, 12, 20] {
        assert_eq!(desk.try_acquire("A", offset).await, Ok(AlreadyProcessed));
    }
    assert_eq!(desk.submit("new", 11).await, Ok(AlreadyProcessed));
    assert_eq!(desk.process("new", 12).await, None);
    // An operator may bring it back all the same.
    assert_eq!(desk.replay("new", 3).await, Ok(ReplayResult::Enqueued));
    assert_eq!(desk.idle_with_backlog(10).await, [("new".to_owned(), 3)]);
    assert_eq!(desk.process("new", 3).await, None);
    assert_eq!(desk.try_acquire("new", 3).await, Ok(AlreadyProcessed));
    assert_eq!(desk.replay("unheard", 3).await, Ok(ReplayResult::Enqueued));
    assert_eq!(desk.process("unheard", 3).await, None);
}

async fn what_is_in_flight_or_queued_outlives_the_watermark(world: &dyn World) {
    let desk = desk(world);
    let token = desk.acquire("A", 1).await;
    assert_eq!(desk.submit("A", 2).await, Ok(Enqueued));
    assert_eq!(desk.submit("A", 50).await, Ok(Enqueued));
    desk.advance_watermark(40).await;
    assert_eq!(
        desk.try_acquire("A", 1).await,
        Ok(AlreadyAcquired(token.clone()))
    );
    assert_eq!(desk.try_acquire("A", 2).await, Ok(Enqueued));
    assert_eq!(desk.try_acquire("A", 3).await, Ok(AlreadyProcessed));
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NextHint(2))
    );
    assert_eq!(desk.process("A", 2).await, Some(50));
    assert_eq!(desk.process("A", 50).await, None);
    assert_eq!(desk.try_acquire("A", 1).await, Ok(AlreadyProcessed));
}

async fn failures_are_remembered_until_they_are_forgotten(world: &dyn World) {
    let desk = desk(world).rules(|rules| rules.max_retries = 0);
    for offset in 1..=6 {
        desk.give_up("A", offset).await;
    }
    desk.advance_watermark(4).await;
    for offset in 1..=6 {
        assert_eq!(desk.try_acquire("A", offset).await, Ok(AlreadyFailed));
    }
    // As far as the watermark at once, and the rest when it has passed.
    desk.forget_failed_below(6).await;
    for (offset, is) in [(1, true), (3, true), (4, false), (5, false), (6, false)] {
        let expected = if is { AlreadyProcessed } else { AlreadyFailed };
        let answer = desk.try_acquire("A", offset).await;
        assert_eq!(answer, Ok(expected), "{offset}");
    }
    assert_eq!(desk.replay("A", 2).await, Ok(ReplayResult::Enqueued));
    assert_eq!(desk.give_up("A", 2).await, None);
    assert_eq!(desk.try_acquire("A", 2).await, Ok(AlreadyProcessed));
    desk.forget_failed_below(3).await;
    desk.advance_watermark(100).await;
    for (offset, is) in [(1, true), (5, true), (6, false)] {
        let expected = if is { AlreadyProcessed } else { AlreadyFailed };
        let answer = desk.try_acquire("A", offset).await;
        assert_eq!(answer, Ok(expected), "{offset}");
    }
}

/// Proves: S3-032
async fn a_domain_with_nothing_left_is_forgotten(world: &dyn World) {
    let desk = desk(world).rules(|rules| rules.max_retries = 0);
    desk.process("warm-up", 0).await;
    desk.advance_watermark(1).await;
    let empty = world.dump().await;
    desk.advance_watermark(1).await;
    assert_eq!(world.dump().await, empty);
    for domain in ["A", "B", "C"] {
        for offset in [1, 2, 4] {
            desk.process(domain, offset).await;
        }
    }
    let held = desk.acquire("B", 6).await;
    desk.give_up("C", 6).await;
    desk.forget_failed_below(7).await;
    desk.advance_watermark(7).await;
    assert!(!is_known(world, "\"A\"").await);
    assert!(is_known(world, "\"B\"").await, "6 is in flight");
    assert!(!is_known(world, "\"C\"").await);
    // What ends below the watermark leaves nothing behind either.
    desk.end("B", &held).await;
    desk.advance_watermark(7).await;
    assert!(!is_known(world, "\"B\"").await);
    assert_eq!(desk.try_acquire("B", 6).await, Ok(AlreadyProcessed));
    assert_eq!(desk.process("A", 7).await, None);
}

/// Whether a store still keeps a domain of this name, as its dump quotes it.
async fn is_known(world: &dyn World, quoted: &str) -> bool {
    let dump = world.dump().await;
    let bare = quoted.trim_matches('"');
    dump.contains(quoted) || dump.contains(&format!("<domain>{bare}</domain>"))
}

async fn without_a_given_moment_the_clock_of_the_store_counts_reservations(world: &dyn World) {
    let desk = desk(world).term(30);
    let leases = world.outbox().unwrap().work_leases();
    let mut ask = desk.ask("A");
    ask.now = None;
    let answer = leases.try_acquire(&ask, 1, &fresh("now")).await.unwrap();
    assert!(matches!(answer, Ok(AcquireResult::Acquired(_))));
    let held = desk.reservation("A").await.unwrap();
    // The tests' own time starts far in the future.
    assert!(held.acquired_at < T0);
    assert_eq!(held.until, Some(held.acquired_at.after(crate::world::TERM)));
    let now = leases.lapsed(&ask.space, 10, None).await.unwrap();
    assert!(now.is_empty());
    assert_eq!(desk.lapsed(10).await, [("A".to_owned(), 1)]);
}

//! Additions to the contract of the work lease: submit, search for lost hints, terms, replay.

use tenure_core::{AcquireResult, FailResult, ReplayResult, SucceedResult};

use crate::world::{T0, World, at, mismatch, operator};

use AcquireResult::{AlreadyAcquired, AlreadyProcessed, Enqueued};

on_every_queue!(
    submit_queues_a_new_offset_behind_the_head,
    idle_domains_with_a_backlog_are_found,
    a_full_backlog_is_an_error_that_changes_nothing,
    without_a_term_nothing_lapses,
    a_lapsed_reservation_is_taken_over_and_its_late_holder_gets_an_error,
    a_late_holder_that_was_not_replaced_is_still_the_holder,
    a_renewal_never_shortens_a_reservation,
    a_replayed_offset_goes_to_the_end_of_the_backlog,
);

/// Proves: S3-003
async fn submit_queues_a_new_offset_behind_the_head(world: &dyn World) {
    let desk = operator(world);
    let AcquireResult::Acquired(token) = desk.submit("A", 1).await.unwrap() else {
        panic!("nothing was ahead");
    };
    assert_eq!(desk.submit("A", 2).await, Ok(Enqueued));
    assert_eq!(
        desk.succeed("A", &token).await,
        Ok(SucceedResult::NextHint(2))
    );
    // The caller has the hint but has not acquired the offset. Now `submit` queues a new
    // offset behind it, whereas `try_acquire` would be an error.
    assert_eq!(desk.submit("A", 3).await, Ok(Enqueued));
    assert_eq!(desk.submit("A", 3).await, Ok(Enqueued));
    assert_eq!(desk.idle_with_backlog(10).await, [("A".to_owned(), 2)]);
    // Submitting the head acquires it.
    assert!(matches!(
        desk.submit("A", 2).await,
        Ok(AcquireResult::Acquired(_))
    ));
}

async fn idle_domains_with_a_backlog_are_found(world: &dyn World) {
    let desk = operator(world);
    for n in 0..5 {
        let domain = format!("domain-{n}");
        let token = desk.acquire(&domain, 1).await;
        assert_eq!(desk.submit(&domain, 2 + n).await, Ok(Enqueued));
        // The callers that got these hints die; the last domain stays in flight.
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

async fn a_full_backlog_is_an_error_that_changes_nothing(world: &dyn World) {
    let desk = operator(world).rules(|rules| rules.backlog_limit = Some(2));
    let token = desk.acquire("A", 1).await;
    for offset in [2, 3] {
        assert_eq!(desk.submit("A", offset).await, Ok(Enqueued));
    }
    let before = world.dump().await;
    let error = desk.submit("A", 4).await.unwrap_err();
    assert_eq!(error.code(), "backlog_full");
    assert_eq!(desk.try_acquire("A", 4).await, Err(error));
    // An offset that already waits takes no additional space in the backlog.
    assert_eq!(desk.submit("A", 3).await, Ok(Enqueued));
    assert_eq!(world.dump().await, before);
    desk.end("A", &token).await;
    desk.process("A", 2).await;
    assert_eq!(desk.submit("A", 4).await, Ok(Enqueued));
}

async fn without_a_term_nothing_lapses(world: &dyn World) {
    let desk = operator(world);
    let token = desk.acquire("A", 1).await;
    let centuries = desk.at(at(10_000_000_000));
    assert_eq!(centuries.lapsed(10).await, []);
    assert_eq!(centuries.renew("A", &token).await, Ok(None));
    let again = centuries.try_acquire("A", 1).await;
    assert_eq!(again, Ok(AlreadyAcquired(token.clone())));
    assert!(centuries.succeed("A", &token).await.is_ok());
}

/// Proves: S3-016
async fn a_lapsed_reservation_is_taken_over_and_its_late_holder_gets_an_error(world: &dyn World) {
    let desk = operator(world).term(30);
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
    // Another offset does not take over the reservation, but waits behind it.
    assert_eq!(late.try_acquire("B", 8).await, Ok(Enqueued));
}

async fn a_late_holder_that_was_not_replaced_is_still_the_holder(world: &dyn World) {
    let desk = operator(world).term(30);
    let token = desk.acquire("A", 1).await;
    let late = desk.at(at(1000));
    assert_eq!(late.renew("A", &token).await, Ok(Some(at(1030))));
    let later = desk.at(at(5000));
    assert_eq!(
        later.succeed("A", &token).await,
        Ok(SucceedResult::NoBacklog)
    );
}

async fn a_renewal_never_shortens_a_reservation(world: &dyn World) {
    let desk = operator(world).term(60);
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

async fn a_replayed_offset_goes_to_the_end_of_the_backlog(world: &dyn World) {
    let desk = operator(world).rules(|rules| rules.max_retries = 0);
    for offset in 1..=5 {
        desk.process("A", offset).await;
    }
    desk.give_up("A", 6).await;
    let token = desk.acquire("A", 7).await;
    assert_eq!(desk.submit("A", 8).await, Ok(Enqueued));
    // One replayed offset is in the middle of a processed range, the other one was given up.
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

//! Settle: the end of a lease, the counters and records of its items, and the answer to a repeat.

use std::time::Duration;

use tenure_core::store::{Rest, Settle, StoreErrorKind};
use tenure_core::{
    Again, Counters, Failure, Guarded, Outcome, OutcomeKind, Refusal, RetryPolicy, State,
};

use crate::world::{T0, TERM, TICK, World, ask, at, at_once, dead, every_outcome, retry, token};

on_every_store!(
    done_ends_the_lease_and_records_the_time,
    a_retry_makes_the_item_pending_and_counts_a_failure,
    a_dead_item_stays_dead,
    a_release_counts_only_an_attempt,
    a_release_can_delay_the_item,
    a_delay_that_is_too_long_for_a_timestamp_is_cut,
    items_that_a_settle_does_not_name_stay_held,
    rest_done_settles_the_other_items_as_done,
    rest_release_releases_the_other_items,
    one_settle_can_have_several_outcomes,
    the_answers_come_in_the_order_of_the_request,
    a_late_settle_is_accepted_and_reported_as_late,
    a_strict_settle_is_refused_at_the_end_of_the_term,
    an_item_named_twice_is_an_error,
    an_unknown_item_is_not_found,
    a_long_error_is_cut_and_its_nul_characters_are_replaced,
    a_repeated_settle_gets_the_first_answer,
    a_repeat_with_another_outcome_is_refused,
    a_repeat_may_settle_further_items,
    settle_and_claim_does_both,
    retries_end_as_the_policy_says,
    a_settle_that_names_nothing_changes_nothing,
);

/// Proves: S1-016, S4-005, S4-017, S4-018
async fn done_ends_the_lease_and_records_the_time(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let settle = Settle::new(token("holder", 1)).done([id]).at(at(3));
    let settlement = world.settle(settle).await;
    assert_eq!(settlement.items, [(id, Guarded::Accepted(()))]);
    assert_eq!((settlement.rest, settlement.late), (0, false));
    let record = world.record(id).await;
    assert_eq!(record.state, State::Done);
    assert_eq!(record.done_at, Some(at(3)));
    assert_eq!((record.dead_at, record.hold), (None, None));
    assert_eq!(
        record.counters,
        Counters::default(),
        "done changes no counter"
    );
}

/// Proves: S4-006, S4-019, S4-020, S4-021, S4-022, S4-023, S4-024, S4-025, S4-040
async fn a_retry_makes_the_item_pending_and_counts_a_failure(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let answer = world
        .settle_one(&token("holder", 1), id, retry(60), at(3))
        .await;
    assert_eq!(answer, Guarded::Accepted(()));
    let record = world.record(id).await;
    assert_eq!(record.state, State::Pending);
    assert_eq!(record.available_at, Some(at(63)));
    assert_eq!(record.last_error.as_deref(), Some("503"));
    assert_eq!(record.hold, None);
    assert_eq!((record.done_at, record.dead_at), (None, None));
    let expected = Counters {
        attempts: 1,
        failures: 1,
        ..Counters::default()
    };
    assert_eq!(record.counters, expected);
}

/// Proves: S4-007, S4-027, S4-028, S4-029, S4-030, S4-031, S4-043, S4-044, S4-045
async fn a_dead_item_stays_dead(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let answer = world
        .settle_one(&token("holder", 1), id, dead(), at(3))
        .await;
    assert_eq!(answer, Guarded::Accepted(()));
    let record = world.record(id).await;
    assert_eq!(record.state, State::Dead);
    assert_eq!(record.dead_at, Some(at(3)));
    assert_eq!((record.done_at, record.hold), (None, None));
    assert_eq!(record.last_error.as_deref(), Some("no such address"));
    if world.outbox().is_some() {
        assert_eq!(record.dead_reason.as_deref(), Some("rejected"));
    }
    assert_eq!(record.counters.attempts, 1);
    assert_eq!(record.counters.failures, 1);
    // No operation of a worker makes the item pending again, at any time.
    let before = world.dump().await;
    assert!(world.reap_at(at(1_000_000)).await.is_empty());
    let claim = ask(&token("other", 1), 10, at(1_000_000)).recovery(Some(at_once()));
    assert!(world.try_claim(claim).await.is_none());
    assert_eq!(world.dump().await, before);
}

/// During a rolling deploy, workers release items that they have not started. Releases must never
/// make an item dead.
///
/// Proves: S4-019, S4-020, S4-021, S4-024, S4-025
async fn a_release_counts_only_an_attempt(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let kept = world
        .settle_one(&token("holder", 1), id, retry(1), at(1))
        .await;
    assert_eq!(kept, Guarded::Accepted(()));
    let second = token("holder", 2);
    world.claim(&second, 1, at(2)).await;
    let kept = world.settle_one(&second, id, Outcome::RELEASE, at(3)).await;
    assert_eq!(kept, Guarded::Accepted(()));
    let record = world.record(id).await;
    assert_eq!(record.state, State::Pending);
    assert_eq!(record.hold, None);
    assert_eq!(record.last_error.as_deref(), Some("503"), "the error stays");
    assert_eq!(record.available_at, Some(at(2)), "its due time stays");
    assert_eq!(record.counters.attempts, 2);
    assert_eq!((record.counters.failures, record.counters.crashes), (1, 0));
    assert_eq!(world.claim(&token("other", 1), 1, at(3)).await.ids(), [id]);
}

async fn a_release_can_delay_the_item(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let snooze = Outcome::Release {
        after: Duration::from_mins(1),
    };
    let kept = world
        .settle_one(&token("holder", 1), id, snooze, at(3))
        .await;
    assert_eq!(kept, Guarded::Accepted(()));
    assert_eq!(world.record(id).await.available_at, Some(at(63)));
    let early = ask(&token("other", 1), 1, at(63).before(TICK));
    assert!(world.try_claim(early).await.is_none());
    assert_eq!(world.claim(&token("other", 2), 1, at(63)).await.ids(), [id]);
}

async fn a_delay_that_is_too_long_for_a_timestamp_is_cut(world: &dyn World) {
    let retry = Outcome::Retry {
        after: Duration::MAX,
        error: "not in our time".into(),
    };
    let release = Outcome::Release {
        after: Duration::MAX,
    };
    for (n, outcome) in [(1, retry), (2, release)] {
        let holder = token("patient", n);
        let id = world.item_by(&holder, State::Claimed).await;
        let answer = world.settle_one(&holder, id, outcome, at(1)).await;
        assert_eq!(answer, Guarded::Accepted(()));
        let record = world.record(id).await;
        assert_eq!(record.state, State::Pending);
        let year = at(366 * 24 * 60 * 60);
        assert!(record.available_at > Some(year));
    }
}

async fn items_that_a_settle_does_not_name_stay_held(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    world.claim(&holder, 3, T0).await;
    let kept = world
        .settle_one(&holder, ids[1], Outcome::Done, at(1))
        .await;
    assert_eq!(kept, Guarded::Accepted(()));
    for id in [ids[0], ids[2]] {
        let record = world.record(id).await;
        let hold = record.hold.expect("it is still held");
        assert_eq!((hold.until, hold.claimed_at), (T0.after(TERM), T0));
        assert_eq!(record.counters, Counters::default());
    }
    assert!(world.drain("other", at(2)).await.is_empty());
    let settlement = world
        .settle(Settle::new(holder).done([ids[0], ids[2]]).at(at(3)))
        .await;
    assert_eq!(settlement.refused().count(), 0);
}

async fn rest_done_settles_the_other_items_as_done(world: &dyn World) {
    let ids = world.add(4).await;
    let holder = token("holder", 1);
    world.claim(&holder, 3, T0).await;
    let settle = Settle::new(holder).item(ids[1], retry(60)).rest(Rest::Done);
    let settlement = world.settle(settle.at(at(5))).await;
    assert_eq!(settlement.items, [(ids[1], Guarded::Accepted(()))]);
    assert_eq!(settlement.rest, 2);
    for id in [ids[0], ids[2]] {
        let record = world.record(id).await;
        assert_eq!((record.state, record.done_at), (State::Done, Some(at(5))));
    }
    assert_eq!(world.state(ids[1]).await, State::Pending);
    assert_eq!(
        world.state(ids[3]).await,
        State::Pending,
        "it was never held"
    );
}

async fn rest_release_releases_the_other_items(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    world.claim(&holder, 3, T0).await;
    let settle = Settle::new(holder).done([ids[0]]).rest(Rest::Release);
    let settlement = world.settle(settle.at(at(5))).await;
    assert_eq!(settlement.rest, 2);
    assert_eq!(world.state(ids[0]).await, State::Done);
    for id in &ids[1..] {
        let counters = world.counters(*id).await;
        assert_eq!((counters.attempts, counters.failures), (1, 0));
    }
    assert_eq!(world.drain("other", at(5)).await, ids[1..]);
}

/// Proves: S4-056
async fn one_settle_can_have_several_outcomes(world: &dyn World) {
    let ids = world.add(4).await;
    let holder = token("holder", 1);
    world.claim(&holder, 4, T0).await;
    let mut settle = Settle::new(holder).at(at(5));
    for (id, outcome) in ids.iter().zip(every_outcome()) {
        settle = settle.item(*id, outcome);
    }
    let settlement = world.settle(settle).await;
    assert_eq!(settlement.refused().count(), 0);
    let mut states = Vec::new();
    for id in &ids {
        states.push(world.state(*id).await);
    }
    let expected = [State::Done, State::Pending, State::Dead, State::Pending];
    assert_eq!(states, expected);
    assert_eq!(world.record(ids[1]).await.available_at, Some(at(65)));
    assert_eq!(world.drain("other", at(5)).await, [ids[3]]);
}

async fn the_answers_come_in_the_order_of_the_request(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    world.claim(&holder, 2, T0).await;
    let named = [ids[2], ids[1], tenure_core::ItemId::new(987_654), ids[0]];
    let settlement = world
        .settle(Settle::new(holder).done(named).at(at(1)))
        .await;
    let expected = [
        (named[0], Guarded::Refused(Refusal::NotClaimed)),
        (named[1], Guarded::Accepted(())),
        (named[2], Guarded::Refused(Refusal::NotFound)),
        (named[3], Guarded::Accepted(())),
    ];
    assert_eq!(settlement.items, expected);
}

/// The lease still exists, so no other worker got the item, and the settle is accepted.
async fn a_late_settle_is_accepted_and_reported_as_late(world: &dyn World) {
    for (late_by, is_late) in [
        (None, false),
        (Some(Duration::ZERO), true),
        (Some(TERM), true),
    ] {
        let id = world.item_in_fresh_lease().await;
        let now = match late_by {
            None => T0.after(TERM).before(TICK),
            Some(span) => T0.after(TERM).after(span),
        };
        let settle = Settle::new(id.0).done([id.1]).at(now);
        let settlement = world.settle(settle).await;
        assert_eq!(settlement.items, [(id.1, Guarded::Accepted(()))]);
        assert_eq!(settlement.late, is_late, "settled at {now}");
        assert_eq!(world.record(id.1).await.done_at, Some(now));
    }
}

async fn a_strict_settle_is_refused_at_the_end_of_the_term(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    world.claim(&holder, 3, T0).await;
    let end = T0.after(TERM);
    let strict = Settle::new(holder).done([ids[0], ids[1]]).strict();
    let before = world.dump().await;
    for rest in [Rest::Keep, Rest::Done, Rest::Release] {
        for now in [end, end.after(TICK)] {
            let settlement = world.settle(strict.clone().rest(rest).at(now)).await;
            for (_, answer) in &settlement.items {
                assert_eq!(*answer, Guarded::Refused(Refusal::Lapsed));
            }
            assert_eq!((settlement.rest, settlement.late), (0, false));
        }
    }
    assert_eq!(world.dump().await, before);
    let settlement = world.settle(strict.at(end.before(TICK))).await;
    assert_eq!(settlement.refused().count(), 0);
}

async fn an_item_named_twice_is_an_error(world: &dyn World) {
    let id = world.item_in(State::Claimed).await;
    let before = world.dump().await;
    let settle = Settle::new(token("holder", 1)).done([id]).item(id, dead());
    let error = world.lease().settle(&settle.at(at(1))).await;
    let error = error.expect_err("it contradicts itself");
    assert_eq!(error.kind(), StoreErrorKind::Invalid);
    assert_eq!(error.item(), Some(id));
    assert_eq!(world.dump().await, before);
}

async fn an_unknown_item_is_not_found(world: &dyn World) {
    world.item_in(State::Claimed).await;
    let before = world.dump().await;
    for number in [i64::MIN, -1, 0, 987_654, i64::MAX] {
        for outcome in every_outcome() {
            let id = tenure_core::ItemId::new(number);
            let answer = world
                .settle_one(&token("holder", 1), id, outcome, at(1))
                .await;
            assert_eq!(answer, Guarded::Refused(Refusal::NotFound));
        }
    }
    assert_eq!(world.dump().await, before);
}

async fn a_long_error_is_cut_and_its_nul_characters_are_replaced(world: &dyn World) {
    let long = "ß\0ü€😀".repeat(400);
    let kept: String = long
        .chars()
        .take(1000)
        .collect::<String>()
        .replace('\0', "\u{fffd}");
    let outcomes = [
        Outcome::Retry {
            after: Duration::ZERO,
            error: long.clone(),
        },
        Outcome::Dead {
            reason: "rejected".into(),
            error: long.clone(),
        },
    ];
    for outcome in outcomes {
        let (holder, id) = world.item_in_fresh_lease().await;
        let answer = world.settle_one(&holder, id, outcome, at(1)).await;
        assert_eq!(answer, Guarded::Accepted(()));
        assert_eq!(
            world.record(id).await.last_error.as_deref(),
            Some(kept.as_str())
        );
        world.tidy(at(2)).await;
    }
}

/// Proves: S4-054, S4-055
async fn a_repeated_settle_gets_the_first_answer(world: &dyn World) {
    for outcome in every_outcome() {
        let (holder, id) = world.item_in_fresh_lease().await;
        let settle = Settle::new(holder).item(id, outcome.clone()).at(at(1));
        let first = world.settle(settle.clone()).await;
        assert_eq!(first.items, [(id, Guarded::Accepted(()))]);
        let before = world.dump().await;
        for now in [at(1), at(2), at(500)] {
            let again = world.settle(settle.clone().at(now)).await;
            assert_eq!(again.items, first.items, "{outcome:?} at {now}");
        }
        assert_eq!(world.dump().await, before, "{outcome:?}");
        world.tidy(at(500)).await;
    }
}

async fn a_repeat_with_another_outcome_is_refused(world: &dyn World) {
    for first in every_outcome() {
        let (holder, id) = world.item_in_fresh_lease().await;
        let kept = world.settle_one(&holder, id, first.clone(), at(1)).await;
        assert_eq!(kept, Guarded::Accepted(()));
        let before = world.dump().await;
        for second in every_outcome() {
            if second.kind() == first.kind() {
                continue;
            }
            let answer = world.settle_one(&holder, id, second.clone(), at(2)).await;
            let why = match first.kind() {
                OutcomeKind::Done | OutcomeKind::Dead => Refusal::AlreadySettled,
                OutcomeKind::Retry
                | OutcomeKind::Release
                | OutcomeKind::Lapsed
                | OutcomeKind::Buried => Refusal::NotClaimed,
            };
            assert_eq!(answer, Guarded::Refused(why), "{first:?}, then {second:?}");
        }
        assert_eq!(world.dump().await, before);
        world.tidy(at(500)).await;
    }
}

/// The answer to the first settle was lost, and the repeat also settles additional items.
async fn a_repeat_may_settle_further_items(world: &dyn World) {
    let ids = world.add(3).await;
    let holder = token("holder", 1);
    world.claim(&holder, 3, T0).await;
    let first = Settle::new(holder).item(ids[0], retry(60));
    assert_eq!(
        world
            .settle(first.clone().at(at(1)))
            .await
            .refused()
            .count(),
        0
    );
    let more = first.done([ids[1]]).rest(Rest::Release).at(at(2));
    let settlement = world.settle(more.clone()).await;
    let expected = [
        (ids[0], Guarded::Accepted(())),
        (ids[1], Guarded::Accepted(())),
    ];
    assert_eq!(settlement.items, expected);
    assert_eq!(settlement.rest, 1);
    assert_eq!(world.counters(ids[0]).await.failures, 1, "counted once");
    assert_eq!(world.record(ids[0]).await.available_at, Some(at(61)));
    let again = world.settle(more).await;
    assert_eq!(again.items, expected);
    assert_eq!(again.rest, 0, "nothing was held any more");
}

async fn settle_and_claim_does_both(world: &dyn World) {
    let ids = world.add(5).await;
    let (first, second) = (token("holder", 1), token("holder", 2));
    world.claim(&first, 2, T0).await;
    let settle = Settle::new(first).item(ids[0], retry(60)).rest(Rest::Done);
    let settle = settle.at(at(1));
    let claim = ask(&second, 2, at(1));
    let answer = world.lease().settle_and_claim(&settle, &claim).await;
    let (settlement, held) = answer.expect("settle and claim");
    assert_eq!(settlement.items, [(ids[0], Guarded::Accepted(()))]);
    assert_eq!((settlement.rest, settlement.late), (1, false));
    let held = held.expect("there is more");
    assert_eq!(held.ids(), ids[2..4]);
    assert_eq!((&held.lease.token, held.lease.until), (&second, at(31)));
    assert_eq!(world.state(ids[1]).await, State::Done);
    // The claim takes items even if the settle is refused.
    let stale = Settle::new(token("nobody", 1)).done([ids[2]]).at(at(2));
    let claim = ask(&token("holder", 3), 9, at(2));
    let answer = world.lease().settle_and_claim(&stale, &claim).await;
    let (settlement, held) = answer.expect("settle and claim");
    assert_eq!(
        settlement.items,
        [(ids[2], Guarded::Refused(Refusal::Lost))]
    );
    assert_eq!(held.expect("one is left").ids(), [ids[4]]);
    // The settle takes effect even if the claim is empty.
    let settle = Settle::new(second).rest(Rest::Done).at(at(3));
    let claim = ask(&token("holder", 4), 9, at(3));
    let answer = world.lease().settle_and_claim(&settle, &claim).await;
    let (settlement, held) = answer.expect("settle and claim");
    assert_eq!((settlement.rest, held), (2, None));
}

/// With `max_retries`, an item is worked `max_retries + 1` times; then it is dead.
///
/// Proves: S4-040, S4-041, S4-042, S4-043
async fn retries_end_as_the_policy_says(world: &dyn World) {
    for max_retries in [0, 1, 4] {
        let id = world.add(1).await[0];
        let policy = RetryPolicy {
            max_retries,
            ..RetryPolicy::default()
        };
        let failure = Failure {
            error: "503".into(),
            again: Again::ByPolicy,
        };
        let mut now = T0;
        let mut worked = 0;
        loop {
            let holder = token(&format!("retries-{max_retries}"), worked);
            let held = world.claim(&holder, 1, now).await;
            assert_eq!(held.ids(), [id]);
            worked += 1;
            let outcome = policy.judge(held.items[0].counters.failures, &failure, 1.0);
            assert_eq!(
                world.settle_one(&holder, id, outcome, now).await,
                Guarded::Accepted(())
            );
            let record = world.record(id).await;
            match record.available_at {
                Some(due) if record.state == State::Pending => now = due,
                _ => break,
            }
        }
        assert_eq!(worked, u64::from(max_retries) + 1);
        let record = world.record(id).await;
        assert_eq!(record.state, State::Dead);
        assert_eq!(u64::from(record.counters.failures), worked);
    }
}

async fn a_settle_that_names_nothing_changes_nothing(world: &dyn World) {
    world.item_in(State::Claimed).await;
    let before = world.dump().await;
    let settlement = world
        .settle(Settle::new(token("holder", 1)).at(at(1)))
        .await;
    assert_eq!(settlement, tenure_core::store::Settlement::default());
    assert_eq!(world.dump().await, before);
}

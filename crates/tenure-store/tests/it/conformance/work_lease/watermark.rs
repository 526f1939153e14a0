//! The watermark of a space: its effects, and the data that the store then deletes or keeps.

use tenure_core::{AcquireResult, ReplayResult, SucceedResult};

use crate::world::{T0, World, fresh, operator};

use AcquireResult::{AlreadyAcquired, AlreadyFailed, AlreadyProcessed, Enqueued};

on_every_queue!(
    below_the_watermark_everything_is_processed,
    offsets_in_flight_or_queued_stay_below_the_watermark,
    failures_below_the_watermark_stay_until_the_caller_forgets_them,
    a_domain_without_offsets_is_deleted,
    without_a_given_time_a_reservation_uses_the_clock_of_the_store,
);

/// Proves: S3-018
async fn below_the_watermark_everything_is_processed(world: &dyn World) {
    let desk = operator(world);
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
    // An operator can still replay an offset below the watermark.
    assert_eq!(desk.replay("new", 3).await, Ok(ReplayResult::Enqueued));
    assert_eq!(desk.idle_with_backlog(10).await, [("new".to_owned(), 3)]);
    assert_eq!(desk.process("new", 3).await, None);
    assert_eq!(desk.try_acquire("new", 3).await, Ok(AlreadyProcessed));
    assert_eq!(desk.replay("unheard", 3).await, Ok(ReplayResult::Enqueued));
    assert_eq!(desk.process("unheard", 3).await, None);
}

async fn offsets_in_flight_or_queued_stay_below_the_watermark(world: &dyn World) {
    let desk = operator(world);
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

async fn failures_below_the_watermark_stay_until_the_caller_forgets_them(world: &dyn World) {
    let desk = operator(world).rules(|rules| rules.max_retries = 0);
    for offset in 1..=6 {
        desk.give_up("A", offset).await;
    }
    desk.advance_watermark(4).await;
    for offset in 1..=6 {
        assert_eq!(desk.try_acquire("A", offset).await, Ok(AlreadyFailed));
    }
    // The store forgets failures below the watermark at once, and the others when the watermark has
    // passed them.
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
async fn a_domain_without_offsets_is_deleted(world: &dyn World) {
    let desk = operator(world).rules(|rules| rules.max_retries = 0);
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
    // An offset that is finished below the watermark leaves no data either.
    desk.end("B", &held).await;
    desk.advance_watermark(7).await;
    assert!(!is_known(world, "\"B\"").await);
    assert_eq!(desk.try_acquire("B", 6).await, Ok(AlreadyProcessed));
    assert_eq!(desk.process("A", 7).await, None);
}

/// Returns true if the store still has a domain of this name, quoted as in its dump.
async fn is_known(world: &dyn World, quoted: &str) -> bool {
    let dump = world.dump().await;
    let bare = quoted.trim_matches('"');
    dump.contains(quoted) || dump.contains(&format!("<domain>{bare}</domain>"))
}

async fn without_a_given_time_a_reservation_uses_the_clock_of_the_store(world: &dyn World) {
    let desk = operator(world).term(30);
    let leases = world.outbox().unwrap().work_leases();
    let mut ask = desk.ask("A");
    ask.now = None;
    let answer = leases.try_acquire(&ask, 1, &fresh("now")).await.unwrap();
    assert!(matches!(answer, Ok(AcquireResult::Acquired(_))));
    let held = desk.reservation("A").await.unwrap();
    // The time of the tests starts far in the future, so this time is the store's own.
    assert!(held.acquired_at < T0);
    assert_eq!(held.until, Some(held.acquired_at.after(crate::world::TERM)));
    let now = leases.lapsed(&ask.space, 10, None).await.unwrap();
    assert!(now.is_empty());
    assert_eq!(desk.lapsed(10).await, [("A".to_owned(), 1)]);
}

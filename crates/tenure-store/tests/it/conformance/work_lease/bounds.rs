//! The work lease at its limits: extreme offsets, unusual names, several spaces.

use tenure_core::{AcquireResult, FailResult, ReplayResult, SucceedResult};

use crate::world::{World, mismatch, operator};

use AcquireResult::{AlreadyFailed, AlreadyProcessed, Enqueued};

on_every_queue!(
    the_smallest_and_the_largest_number_are_valid_offsets,
    terminal_offsets_are_joined_in_any_order,
    domains_and_spaces_are_independent,
    unusual_names_of_domains_are_stored_unchanged,
);

/// Proves: S3-014
async fn the_smallest_and_the_largest_number_are_valid_offsets(world: &dyn World) {
    let desk = operator(world).rules(|rules| rules.max_retries = 0);
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
    let desk = operator(world).rules(|rules| rules.max_retries = 0);
    // 37 and 100 have no common divisor, so the list has every offset once, never next to the
    // previous one.
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
async fn domains_and_spaces_are_independent(world: &dyn World) {
    let here = operator(world);
    let there = operator(world).space("payments-4");
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

async fn unusual_names_of_domains_are_stored_unchanged(world: &dyn World) {
    let desk = operator(world);
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

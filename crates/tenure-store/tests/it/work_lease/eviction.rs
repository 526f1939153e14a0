//! Eviction: a domain is removed only when it is empty, and never while a caller uses its record.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU32, Ordering};
use std::thread;

use tenure_core::{AcquireResult, DomainRules};
use tenure_store::memory::WorkLease;

use super::{World, acquire, acquired};

fn only_an_empty_domain_is_evicted(world: &World) {
    let lease = world.retrying(0);
    let token = acquire(&lease, 1);
    assert_eq!(lease.evict(), 0, "in flight");
    assert!(lease.try_acquire("A", 2).is_ok());
    assert!(lease.succeed("A", &token).is_ok());
    assert_eq!(lease.evict(), 0, "something waits");
    let token = acquire(&lease, 2);
    assert!(lease.fail("A", &token).is_ok());
    assert_eq!(lease.evict(), 0, "its offsets are remembered");
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));

    lease.advance_watermark(10);
    assert_eq!(lease.evict(), 0, "a failure is remembered");
    let answer = lease.try_acquire("A", 2);
    assert_eq!(answer, Ok(AcquireResult::AlreadyFailed));
    lease.forget_failed_below(10);
    assert_eq!(lease.evict(), 1);
    assert_eq!(lease.domains(), 0);
    assert_eq!(lease.domain("A"), None);
    let answer = lease.try_acquire("A", 1);
    assert_eq!(answer, Ok(AcquireResult::AlreadyProcessed));
}

/// Empty domains make room for new ones; no call to `evict` is needed.
fn finished_domains_do_not_accumulate(world: &World) {
    let lease = world.retrying(0);
    let held = acquired(lease.try_acquire("held", i64::MAX).unwrap());
    for offset in 0..50_000 {
        let domain = format!("customer-{offset}");
        let token = acquired(lease.try_acquire(&domain, offset).unwrap());
        assert!(lease.succeed(&domain, &token).is_ok());
        lease.advance_watermark(offset + 1);
    }
    assert!(lease.domains() < 10_000, "{} are kept", lease.domains());
    assert!(lease.succeed("held", &held).is_ok());
}

/// All threads try to acquire one offset while another thread evicts domains: exactly one acquires
/// it. If a domain had two records, two threads could.
///
/// Proves: S3-032, S3-033, S3-071, S3-072
fn a_domain_never_has_two_records(world: &World) {
    assert_eq!(acquired_twice(&world.retrying(0), 3_000), None);
}

/// The first round in which an offset was not acquired exactly once.
fn acquired_twice(lease: &WorkLease, rounds: i64) -> Option<i64> {
    const CALLERS: usize = 4;
    let gate = Barrier::new(CALLERS);
    let winners = AtomicU32::new(0);
    let wrong = AtomicI64::new(i64::MAX);
    let is_over = AtomicBool::new(false);
    let caller = |is_first: bool| {
        for round in 0..rounds {
            gate.wait();
            let answer = lease.try_acquire("A", round);
            if matches!(answer, Ok(AcquireResult::Acquired(_))) {
                winners.fetch_add(1, Ordering::Relaxed);
            }
            gate.wait();
            if is_first {
                if winners.swap(0, Ordering::Relaxed) != 1 {
                    wrong.fetch_min(round, Ordering::Relaxed);
                }
                if let Some(token) = answer.iter().find_map(AcquireResult::token) {
                    // If there are two records, the first token may belong to a record that no
                    // lookup finds any more.
                    drop(lease.succeed("A", token));
                }
                lease.advance_watermark(round + 1);
            }
        }
        is_over.store(true, Ordering::Relaxed);
    };
    thread::scope(|scope| {
        for number in 0..CALLERS {
            let caller = &caller;
            scope.spawn(move || caller(number == 0));
        }
        scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                lease.evict();
            }
        });
    });
    Some(wrong.into_inner()).filter(|round| *round < i64::MAX)
}

/// The same run must detect the planted fault.
#[test]
fn an_eviction_that_ignores_references_is_caught() {
    let naive = super::faults::Fault::EvictReferenced;
    let is_found = (0..100).any(|_| {
        let lease = naive.lease(DomainRules::default());
        acquired_twice(&lease, 3_000).is_some()
    });
    assert!(is_found, "no domain ever had a second record");
}

checks!(
    only_an_empty_domain_is_evicted,
    finished_domains_do_not_accumulate,
    a_domain_never_has_two_records,
);

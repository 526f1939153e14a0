//! The contract of the in-process work lease. A check is a function of a [`World`]; `checks!` makes
//! a test of each and lists it for the planted faults.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::testing::ManualClock;
use tenure_core::work_lease::Domain;
use tenure_core::{AcquireResult, DomainRules, Reservation, Timestamp, Token};
use tenure_store::memory::WorkLease;

use self::faults::Fault;

/// A check, for the planted faults.
#[derive(Clone, Copy)]
struct Check {
    name: &'static str,
    run: fn(&World),
}

/// Makes a test of each check.
macro_rules! checks {
    ($($check:ident),* $(,)?) => {
        mod as_it_is {
            $(
                #[test]
                fn $check() {
                    super::$check(&crate::work_lease::World::new(None));
                }
            )*
        }

        pub(super) const CHECKS: &[crate::work_lease::Check] = &[
            $(crate::work_lease::Check { name: stringify!($check), run: $check }),*
        ];
    };
}

mod beyond;
mod crowd;
mod ending;
mod eviction;
mod faults;
mod invariants;
mod memory;
mod order;
mod planted;
mod scenarios;
mod watermark;

/// Start of the world's time.
const T0: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

/// The world of a check: a manual clock, and the fault of the work lease.
struct World {
    clock: Arc<ManualClock>,
    fault: Option<Fault>,
}

impl World {
    fn new(fault: Option<Fault>) -> Self {
        let clock = Arc::new(ManualClock::new(T0));
        Self { clock, fault }
    }

    /// A work lease with these rules.
    fn lease(&self, rules: DomainRules) -> WorkLease {
        let lease = match self.fault {
            None => WorkLease::new(rules),
            Some(fault) => fault.lease(rules),
        };
        let clock: Arc<ManualClock> = Arc::clone(&self.clock);
        lease.clock(clock)
    }

    /// A work lease that allows this many retries.
    fn retrying(&self, max_retries: u32) -> WorkLease {
        self.lease(DomainRules {
            max_retries,
            ..DomainRules::default()
        })
    }

    fn pass(&self, span: Duration) {
        self.clock.advance(span);
    }
}

/// The token of an acquisition that must succeed.
fn acquired(answer: AcquireResult) -> Token {
    match answer {
        AcquireResult::Acquired(token) => token,
        AcquireResult::AlreadyAcquired(_)
        | AcquireResult::Enqueued
        | AcquireResult::AlreadyProcessed
        | AcquireResult::AlreadyFailed => panic!("{answer:?} instead of Acquired"),
    }
}

/// Acquires an offset of the domain A, which must succeed.
fn acquire(lease: &WorkLease, offset: i64) -> Token {
    acquired(lease.try_acquire("A", offset).unwrap())
}

/// The reservation of the domain A, which must exist.
fn current(lease: &WorkLease) -> Reservation {
    lease.reservation("A").expect("something is in flight")
}

/// The contents of the domain A, which must exist.
fn stored(lease: &WorkLease) -> Domain {
    lease.domain("A").expect("the domain is known")
}

/// The backlog of the domain A.
fn backlog(lease: &WorkLease) -> Vec<i64> {
    stored(lease).backlog().iter().collect()
}

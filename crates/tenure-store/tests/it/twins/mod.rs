//! Twins: random scripts of verbs are run on two stores side by side; every answer and every item
//! must be the same. What may differ by nature is made equal first: ids by the order in which the
//! items were added, fences by the order in which they were drawn, times before the script began.
//!
//! Memory is the twin of each queue. The row layout orders by age and not by availability, so its
//! tables are compared with each other, and with memory by scripts that claim all there is.

mod pair;
mod script;
mod side;
mod webhooks;

use std::panic::catch_unwind;
use std::pin::Pin;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use tenure_store::memory::Fault;

use crate::world::{self, World};
use pair::Pair;
use script::{Step, script};
use side::Way;

/// A world in the making.
type Made = Pin<Box<dyn Future<Output = Box<dyn World>>>>;

/// Makes worlds.
trait Make: Fn() -> Made {}

impl<F: Fn() -> Made> Make for F {}

/// Runs `cases` scripts on both; the first that differs is made small and shown.
fn compare(one: impl Make, other: impl Make, way: Way, cases: u32) {
    let config = Config {
        max_shrink_iters: 100,
        ..Config::with_cases(cases)
    };
    compare_with(&config, one, other, way);
}

fn compare_with(config: &Config, one: impl Make, other: impl Make, way: Way) {
    let config = Config {
        failure_persistence: None,
        ..config.clone()
    };
    let run = |steps: Vec<Step>| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async {
            let mut pair = Pair::new(one().await, other().await, way);
            for (nth, step) in steps.iter().enumerate() {
                let (left, right) = pair.run(step).await;
                if left != right {
                    let message = format!("step {nth}, {step:?}:\n{left}\nbut\n{right}");
                    return Err(TestCaseError::fail(message));
                }
            }
            Ok(())
        })
    };
    let outcome = TestRunner::new(config).run(&script(), run);
    if let Err(error) = outcome {
        panic!("the twins differ: {error}");
    }
}

macro_rules! make {
    ($world:ident) => {
        || -> Made { Box::pin(world::$world()) }
    };
}

/// The scripts themselves: two memory stores must agree, or the comparison is at fault.
#[test]
fn memory_is_its_own_twin() {
    for way in [Way::Queue, Way::Rows, Way::Mixed] {
        compare(make!(memory), make!(memory), way, 100);
    }
}

#[test]
fn sqlite_queue_is_the_twin_of_memory() {
    compare(make!(memory), make!(sqlite_queue), Way::Queue, 24);
}

#[test]
fn postgres_queue_is_the_twin_of_memory() {
    compare(make!(memory), make!(postgres_queue), Way::Queue, 16);
}

#[test]
fn rows_are_twins_of_memory() {
    compare(make!(memory), make!(sqlite_outbox), Way::Mixed, 12);
    compare(make!(memory), make!(sqlite_processing), Way::Mixed, 12);
    compare(make!(memory), make!(sqlite_webhook), Way::Mixed, 12);
    compare(make!(memory), make!(postgres_outbox), Way::Mixed, 8);
    compare(make!(memory), make!(postgres_processing), Way::Mixed, 8);
    compare(make!(memory), make!(postgres_webhook), Way::Mixed, 8);
}

#[test]
fn rows_are_twins_of_each_other() {
    compare(
        make!(sqlite_outbox),
        make!(sqlite_processing),
        Way::Rows,
        12,
    );
    compare(make!(sqlite_outbox), make!(postgres_outbox), Way::Rows, 8);
    compare(
        make!(sqlite_processing),
        make!(postgres_processing),
        Way::Rows,
        8,
    );
    compare(make!(sqlite_outbox), make!(sqlite_webhook), Way::Rows, 12);
    compare(make!(sqlite_webhook), make!(postgres_webhook), Way::Rows, 8);
}

/// A twin that breaks a rule is told from one that keeps it.
#[test]
fn a_planted_fault_is_no_twin() {
    for fault in Fault::ALL {
        let is_twin = catch_unwind(|| {
            let memory = make!(memory);
            let planted = || -> Made { Box::pin(async move { world::planted(fault) }) };
            // Always the same scripts: among them is one for each fault.
            let config = Config {
                rng_seed: RngSeed::Fixed(1),
                max_shrink_iters: 0,
                ..Config::with_cases(4000)
            };
            compare_with(&config, memory, planted, Way::Queue);
        });
        assert!(is_twin.is_err(), "{fault:?} was not noticed");
    }
}

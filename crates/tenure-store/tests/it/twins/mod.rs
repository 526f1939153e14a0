//! Twins: two stores run the same random scripts of operations side by side, and every answer and
//! every item must be the same. Natural differences are normalised first: ids by the order in which
//! items were added, fences by the order in which they were drawn, and times before the start of
//! the script.
//!
//! Memory is the twin of each queue. The row layout orders by age and not by availability, so its
//! tables are compared with each other, and with memory by scripts that claim all items.

mod pair;
mod script;
mod side;
mod webhooks;

use std::pin::Pin;

use proptest::test_runner::{Config, RngSeed, TestCaseError, TestRunner};
use tenure_core::testing::Extent;

use crate::faults::Fault;
use crate::world::{self, World};
use pair::Pair;
use script::{Step, script};
use side::Way;

/// A world that is being created.
type Made = Pin<Box<dyn Future<Output = Box<dyn World>>>>;

trait Make: Fn() -> Made {}

impl<F: Fn() -> Made> Make for F {}

/// Runs `cases` scripts on both stores; the first script that differs is shrunk and printed.
fn compare(one: impl Make, other: impl Make, way: Way, cases: u32) {
    let config = Config {
        max_shrink_iters: 100,
        ..Config::with_cases(Extent::chosen().size(cases / 3, cases * 4))
    };
    if let Some(difference) = difference(&config, one, other, way) {
        panic!("the twins differ: {difference}");
    }
}

/// Runs random scripts on both stores; returns the first difference.
fn difference(config: &Config, one: impl Make, other: impl Make, way: Way) -> Option<String> {
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
    outcome.err().map(|error| error.to_string())
}

macro_rules! make {
    ($world:ident) => {
        || -> Made { Box::pin(world::$world()) }
    };
}

/// Tests the scripts themselves: if two memory stores differ, the comparison is wrong.
#[test]
fn two_memory_stores_give_the_same_answers() {
    for way in [Way::Queue, Way::Rows, Way::Mixed] {
        compare(make!(memory), make!(memory), way, 100);
    }
}

#[test]
fn the_sqlite_queue_gives_the_same_answers_as_memory() {
    compare(make!(memory), make!(sqlite_queue), Way::Queue, 24);
}

#[test]
fn the_postgres_queue_gives_the_same_answers_as_memory() {
    compare(make!(memory), make!(postgres_queue), Way::Queue, 16);
}

#[test]
fn rows_give_the_same_answers_as_memory() {
    compare(make!(memory), make!(sqlite_outbox), Way::Mixed, 12);
    compare(make!(memory), make!(sqlite_processing), Way::Mixed, 12);
    compare(make!(memory), make!(sqlite_webhook), Way::Mixed, 12);
    compare(make!(memory), make!(postgres_outbox), Way::Mixed, 8);
    compare(make!(memory), make!(postgres_processing), Way::Mixed, 8);
    compare(make!(memory), make!(postgres_webhook), Way::Mixed, 8);
}

#[test]
fn rows_of_all_presets_give_the_same_answers() {
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

/// A store with a planted fault must differ from a correct one.
#[test]
fn a_store_with_a_planted_fault_gives_another_answer() {
    for fault in Extent::chosen().of(&Fault::ALL, 2) {
        let planted = || -> Made { Box::pin(async move { world::planted(fault) }) };
        // The scripts are always the same, and include one that shows each fault.
        let config = Config {
            rng_seed: RngSeed::Fixed(1),
            max_shrink_iters: 0,
            ..Config::with_cases(4000)
        };
        let noticed = difference(&config, make!(memory), planted, Way::Queue);
        assert!(noticed.is_some(), "{fault:?} was not noticed");
    }
}

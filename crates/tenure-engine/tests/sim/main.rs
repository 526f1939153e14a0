//! Simulation: the real engine over the real memory store in one thread with paused time. A seed
//! decides everything: crashes, pauses longer than the term, lost and late answers, failing
//! handlers, operators. The checkers read the log of the run.
//!
//! `TENURE_SIM_SEEDS=10000` runs more seeds; `TENURE_SIM_SEED=7` runs one and prints its log.

#![expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test may panic, and most checkers read only a few kinds of facts"
)]

mod arrivals;
mod checkers;
#[path = "../../../tenure-store/tests/it/faults/memory/mod.rs"]
#[expect(
    dead_code,
    reason = "the faults of the store's own tests; not all concern an engine"
)]
mod faults;
mod gate;
mod handler;
mod log;
mod logged_store;
mod model;
mod network;
mod plan;
mod planted;
mod seeds;
mod world;

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::checkers::check;
use crate::log::fingerprint;
use crate::world::{Planted, run};

/// Default number of seeds.
const SEEDS: u64 = 300;

#[expect(
    clippy::disallowed_methods,
    reason = "a test binary is configured by variables"
)]
fn env_number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a whole number"))
}

/// Checks one seed; returns its violations and the command that repeats the run.
fn check_seed(seed: u64) -> Option<String> {
    let violations = check(&run(seed, Planted::Nothing));
    let first: Vec<String> = violations.iter().take(5).cloned().collect();
    (!violations.is_empty()).then(|| {
        format!(
            "seed {seed}: {} violations, the first:\n  {}\n  again: TENURE_SIM_SEED={seed} \
             cargo test -p tenure-engine --test sim one_seed",
            violations.len(),
            first.join("\n  ")
        )
    })
}

/// Checks seeds on two threads until three seeds have failed.
fn check_seeds(seeds: &[u64]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let failure = check_seed(*seed);
            let mut failures = failures.lock().expect("no thread panics in between");
            failures.extend(failure);
            if failures.len() >= 3 {
                return;
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(work);
        }
    });
    failures.into_inner().expect("no thread panics in between")
}

#[test]
fn every_law_holds_for_every_seed() {
    let mut all: Vec<u64> = seeds::FAILED_ONCE.iter().map(|(seed, _)| *seed).collect();
    all.extend(0..env_number("TENURE_SIM_SEEDS").unwrap_or(SEEDS));
    let failures = check_seeds(&all);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn one_seed_prints_its_log_on_request() {
    let Some(seed) = env_number("TENURE_SIM_SEED") else {
        return;
    };
    let result = run(seed, Planted::Nothing);
    let mut out = std::io::stderr().lock();
    let mut print = |text: &dyn std::fmt::Display| writeln!(out, "{text}").expect("it is read");
    print(&format!("{:#?}", result.plan));
    for line in &result.lines {
        print(line);
    }
    let violations = check(&result);
    let first: Vec<_> = violations.iter().take(20).cloned().collect();
    assert!(violations.is_empty(), "{}", first.join("\n"));
}

#[test]
fn the_same_seed_gives_the_same_log() {
    for seed in 0..20 {
        let first = run(seed, Planted::Nothing).lines;
        let second = run(seed, Planted::Nothing).lines;
        assert_eq!(fingerprint(&first), fingerprint(&second), "seed {seed}");
    }
    let other = run(20, Planted::Nothing).lines;
    assert_ne!(
        fingerprint(&run(21, Planted::Nothing).lines),
        fingerprint(&other)
    );
}

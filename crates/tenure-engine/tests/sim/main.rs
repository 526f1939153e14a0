//! The simulation: the real engine over the real memory store in one thread with paused time. One
//! seed decides everything that happens: crashes, pauses longer than the term, lost and late
//! answers, failing handlers, operators. The checkers read the log of it.
//!
//! `TENURE_SIM_SEEDS=10000` runs more seeds; `TENURE_SIM_SEED=7` runs one and prints its log.

#![expect(
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test may fail loudly, and most readers of the log care for a few facts only"
)]

mod checkers;
mod gate;
mod handler;
mod ledger;
mod log;
mod order;
mod plan;
mod planted;
mod seeds;
mod shadow;
mod wire;
mod world;

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::checkers::check;
use crate::log::fingerprint;
use crate::world::{Planted, run};

/// Seeds that are run when nobody says otherwise.
const SEEDS: u64 = 300;

#[expect(
    clippy::disallowed_methods,
    reason = "a test binary has no settings but these"
)]
fn asked(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a whole number"))
}

/// Judges one seed; what is wrong, with the command that repeats it.
fn judge(seed: u64) -> Option<String> {
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

/// Judges seeds on two threads, until a few have failed.
fn judge_all(seeds: &[u64]) -> Vec<String> {
    let next = AtomicUsize::new(0);
    let failures = Mutex::new(Vec::new());
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let failure = judge(*seed);
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
fn every_law_holds_whatever_a_seed_does() {
    let mut all: Vec<u64> = seeds::FAILED_ONCE.iter().map(|(seed, _)| *seed).collect();
    all.extend(0..asked("TENURE_SIM_SEEDS").unwrap_or(SEEDS));
    let failures = judge_all(&all);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

#[test]
fn one_seed_is_told_in_full_when_it_is_asked_for() {
    let Some(seed) = asked("TENURE_SIM_SEED") else {
        return;
    };
    let remains = run(seed, Planted::Nothing);
    let mut out = std::io::stderr().lock();
    let mut tell = |text: &dyn std::fmt::Display| writeln!(out, "{text}").expect("it is read");
    tell(&format!("{:#?}", remains.plan));
    for line in &remains.lines {
        tell(line);
    }
    let violations = check(&remains);
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

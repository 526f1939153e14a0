//! Scripts: random calls on a few domains.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenure_core::{DomainRules, Term};

/// The domains of a script.
pub(super) const DOMAINS: [&str; 3] = ["A", "B", "customer 7"];

/// A script: rules for all domains, then steps.
#[derive(Clone, Debug)]
pub(super) struct Script {
    pub(super) rules: DomainRules,
    pub(super) steps: Vec<Step>,
}

/// One call.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Time since the previous step.
    pub(super) wait: Duration,
    pub(super) domain: usize,
    pub(super) verb: Verb,
}

/// An operation. A token is named by the number of grants since it was issued, or is unknown.
#[derive(Clone, Debug)]
pub(super) enum Verb {
    TryAcquire(i64),
    Submit(i64),
    /// Acquires the head of the backlog, as a caller with a hint does; does nothing if the backlog
    /// is empty.
    Follow,
    /// Uses the token of the offset in flight, if there is one.
    Succeed,
    Fail,
    Renew,
    SucceedWith(usize),
    FailWith(usize),
    RenewWith(usize),
    Replay(i64),
    Advance(i64),
    Forget(i64),
}

pub(super) fn script() -> impl Strategy<Value = Script> {
    (rules(), vec(step(), 10..80)).prop_map(|(rules, steps)| Script { rules, steps })
}

fn rules() -> impl Strategy<Value = DomainRules> {
    let term = proptest::option::of(1..20_u64);
    let limit = proptest::option::weighted(0.3, 0..5_u64);
    (0..3_u32, term, limit).prop_map(|(max_retries, seconds, backlog_limit)| DomainRules {
        max_retries,
        term: seconds.map(|seconds| Term::new(Duration::from_secs(seconds)).unwrap()),
        backlog_limit,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![
        5 => Just(Duration::from_micros(1)),
        3 => (1..5_u64).prop_map(Duration::from_secs),
        1 => (5..40_u64).prop_map(Duration::from_secs),
    ];
    (wait, 0..DOMAINS.len(), verb()).prop_map(|(wait, domain, verb)| Step { wait, domain, verb })
}

fn verb() -> impl Strategy<Value = Verb> {
    let grant = || prop_oneof![4 => 0..3_usize, 1 => 0..1000_usize];
    prop_oneof![
        6 => offset().prop_map(Verb::TryAcquire),
        6 => offset().prop_map(Verb::Submit),
        6 => Just(Verb::Follow),
        6 => Just(Verb::Succeed),
        4 => Just(Verb::Fail),
        1 => Just(Verb::Renew),
        1 => grant().prop_map(Verb::SucceedWith),
        1 => grant().prop_map(Verb::FailWith),
        1 => grant().prop_map(Verb::RenewWith),
        3 => offset().prop_map(Verb::Replay),
        1 => offset().prop_map(Verb::Advance),
        1 => offset().prop_map(Verb::Forget),
    ]
}

/// Draws from a few values, so that offsets collide and adjoin, and from the extremes.
fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        16 => -2..12_i64,
        1 => prop_oneof![
            Just(i64::MIN),
            Just(i64::MIN + 1),
            Just(i64::MAX - 1),
            Just(i64::MAX)
        ],
    ]
}

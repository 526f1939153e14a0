//! The scripts: what a handful of workers and an operator might do, in any order.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenure_core::store::Rest;

/// One verb. Items and tokens are named by number, as far as there are any.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// How much later than the step before, at least a microsecond.
    pub(super) wait: Duration,
    pub(super) verb: Verb,
}

#[derive(Clone, Debug)]
pub(super) enum Verb {
    Add(u8),
    Claim(Take),
    /// A claim with a token that was used before.
    ClaimAgain(usize),
    Renew {
        tokens: Vec<usize>,
        seconds: u64,
    },
    Settle(Say),
    /// Says an earlier settle once more.
    Repeat(usize),
    SettleAndClaim(Say, Take),
    Reap {
        inline: bool,
        delay_seconds: u64,
    },
    Replay(Vec<usize>),
    Bury(usize),
    /// Retention in seconds.
    Prune {
        done: u64,
        dead: u64,
    },
}

/// A claim.
#[derive(Clone, Debug)]
pub(super) struct Take {
    pub(super) worker: u8,
    pub(super) limit: u32,
    pub(super) seconds: u64,
    pub(super) alone: bool,
    /// Reap when it comes back short, and put back after this long.
    pub(super) recovery: Option<u64>,
}

/// A settle of the items of a lease, as it was when it was claimed, and of strangers.
#[derive(Clone, Debug)]
pub(super) struct Say {
    pub(super) token: usize,
    pub(super) held: Vec<(usize, Word)>,
    pub(super) stranger: Option<(usize, Word)>,
    pub(super) rest: Rest,
    pub(super) strict: bool,
}

/// An outcome; with the seconds to wait.
#[derive(Clone, Copy, Debug)]
pub(super) enum Word {
    Done,
    Retry(u64),
    Dead,
    Release(u64),
}

pub(super) fn script() -> impl Strategy<Value = Vec<Step>> {
    vec(step(), 10..60)
}

fn step() -> impl Strategy<Value = Step> {
    let wait = prop_oneof![
        5 => Just(Duration::from_micros(1)),
        3 => (1..5_u64).prop_map(Duration::from_secs),
        2 => (5..40_u64).prop_map(Duration::from_secs),
    ];
    (wait, verb()).prop_map(|(wait, verb)| Step { wait, verb })
}

fn verb() -> impl Strategy<Value = Verb> {
    let item = 0..1000_usize;
    prop_oneof![
        3 => (1..6_u8).prop_map(Verb::Add),
        6 => take().prop_map(Verb::Claim),
        1 => item.clone().prop_map(Verb::ClaimAgain),
        3 => (vec(recent(), 1..4), 1..60_u64)
            .prop_map(|(tokens, seconds)| Verb::Renew { tokens, seconds }),
        6 => say().prop_map(Verb::Settle),
        2 => recent().prop_map(Verb::Repeat),
        2 => (say(), take()).prop_map(|(say, take)| Verb::SettleAndClaim(say, take)),
        3 => (any::<bool>(), 0..20_u64)
            .prop_map(|(inline, delay_seconds)| Verb::Reap { inline, delay_seconds }),
        2 => vec(item.clone(), 1..4).prop_map(Verb::Replay),
        1 => item.prop_map(Verb::Bury),
        1 => (0..40_u64, 0..40_u64).prop_map(|(done, dead)| Verb::Prune { done, dead }),
    ]
}

/// Counted from the last one: most things happen to what is new.
fn recent() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..3_usize, 1 => 0..1000_usize]
}

fn take() -> impl Strategy<Value = Take> {
    let recovery = prop_oneof![2 => Just(None), 1 => (0..3_u64).prop_map(Some)];
    let alone = prop::bool::weighted(0.25);
    (0..3_u8, 0..6_u32, 1..60_u64, alone, recovery).prop_map(
        |(worker, limit, seconds, alone, recovery)| Take {
            worker,
            limit,
            seconds,
            alone,
            recovery,
        },
    )
}

fn say() -> impl Strategy<Value = Say> {
    let rest = prop_oneof![3 => Just(Rest::Keep), 1 => Just(Rest::Done), 1 => Just(Rest::Release)];
    let held = vec((0..6_usize, word()), 0..4);
    let stranger = proptest::option::weighted(0.2, (0..1000_usize, word()));
    let strict = prop::bool::weighted(0.3);
    (recent(), held, stranger, rest, strict).prop_map(|(token, held, stranger, rest, strict)| Say {
        token,
        held,
        stranger,
        rest,
        strict,
    })
}

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        3 => Just(Word::Done),
        2 => (0..10_u64).prop_map(Word::Retry),
        1 => Just(Word::Dead),
        2 => (0..3_u64).prop_map(Word::Release),
    ]
}

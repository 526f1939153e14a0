//! Scripts: random operations of a few workers and an operator.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenure_core::OnDead;
use tenure_core::store::Rest;

/// Number of ordering keys.
pub(super) const KEYS: u8 = 3;

/// One operation. Items and tokens are named by number, modulo their count.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// Time since the previous step, at least a microsecond.
    pub(super) wait: Duration,
    pub(super) verb: Verb,
}

#[derive(Clone, Debug)]
pub(super) enum Verb {
    Add(Vec<New>),
    Claim(Take),
    /// Claims with a token that was used before.
    ClaimAgain(usize),
    Renew {
        tokens: Vec<usize>,
        seconds: u64,
    },
    Settle(Say),
    /// Repeats an earlier settle.
    Repeat(usize),
    SettleAndClaim(Say, Take),
    Reap {
        inline: bool,
        lapse: Lapse,
    },
    Replay(Vec<usize>),
    Bury(usize),
    Pause(u8),
    Resume(u8),
    /// Skips the head of a key.
    Skip(u8),
    /// Retention in seconds.
    Prune {
        done: u64,
        dead: u64,
    },
}

/// A new item.
#[derive(Clone, Copy, Debug)]
pub(super) struct New {
    pub(super) key: Option<u8>,
    /// The higher of two priorities; only with a key.
    pub(super) is_urgent: bool,
}

/// A claim.
#[derive(Clone, Debug)]
pub(super) struct Take {
    pub(super) worker: u8,
    pub(super) limit: u32,
    pub(super) seconds: u64,
    pub(super) alone: bool,
    /// Minimum number of items that can be worked in parallel.
    pub(super) min_parallel: u32,
    /// The claim reaps with this policy if it is not full.
    pub(super) recovery: Option<Lapse>,
}

/// The lapse policy of a recovery.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lapse {
    /// Delay in seconds.
    pub(super) seconds: u64,
    pub(super) on_dead: OnDead,
}

/// A settle of the items of a lease, as they were claimed, and of other items.
#[derive(Clone, Debug)]
pub(super) struct Say {
    pub(super) token: usize,
    pub(super) held: Vec<(usize, OutcomeKind)>,
    pub(super) stranger: Option<(usize, OutcomeKind)>,
    pub(super) rest: Rest,
    pub(super) strict: bool,
    pub(super) on_dead: OnDead,
}

/// An outcome, with a delay in seconds.
#[derive(Clone, Copy, Debug)]
pub(super) enum OutcomeKind {
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
        3 => vec(new(), 1..6).prop_map(Verb::Add),
        6 => take().prop_map(Verb::Claim),
        1 => item.clone().prop_map(Verb::ClaimAgain),
        3 => (vec(recent(), 1..4), 1..60_u64)
            .prop_map(|(tokens, seconds)| Verb::Renew { tokens, seconds }),
        6 => say().prop_map(Verb::Settle),
        2 => recent().prop_map(Verb::Repeat),
        2 => (say(), take()).prop_map(|(say, take)| Verb::SettleAndClaim(say, take)),
        3 => (any::<bool>(), lapse(20)).prop_map(|(inline, lapse)| Verb::Reap { inline, lapse }),
        2 => vec(item.clone(), 1..4).prop_map(Verb::Replay),
        1 => item.prop_map(Verb::Bury),
        1 => key().prop_map(Verb::Pause),
        2 => key().prop_map(Verb::Resume),
        1 => key().prop_map(Verb::Skip),
        1 => (0..40_u64, 0..40_u64).prop_map(|(done, dead)| Verb::Prune { done, dead }),
    ]
}

/// Draws one of a few keys, so that items share them.
fn key() -> impl Strategy<Value = u8> {
    0..KEYS
}

fn new() -> impl Strategy<Value = New> {
    let key = proptest::option::weighted(0.7, key());
    let is_urgent = prop::bool::weighted(0.2);
    (key, is_urgent).prop_map(|(key, is_urgent)| New { key, is_urgent })
}

fn lapse(seconds: u64) -> impl Strategy<Value = Lapse> {
    (0..seconds, on_dead()).prop_map(|(seconds, on_dead)| Lapse { seconds, on_dead })
}

fn on_dead() -> impl Strategy<Value = OnDead> {
    prop_oneof![Just(OnDead::Skip), Just(OnDead::Block)]
}

/// Draws a number counted from the last item, because most steps concern recent items.
fn recent() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..3_usize, 1 => 0..1000_usize]
}

fn take() -> impl Strategy<Value = Take> {
    let recovery = prop_oneof![2 => Just(None), 1 => lapse(3).prop_map(Some)];
    let alone = prop::bool::weighted(0.25);
    (0..3_u8, 0..6_u32, 1..60_u64, alone, 1..4_u32, recovery).prop_map(
        |(worker, limit, seconds, alone, min_parallel, recovery)| Take {
            worker,
            limit,
            seconds,
            alone,
            min_parallel,
            recovery,
        },
    )
}

fn say() -> impl Strategy<Value = Say> {
    let rest = prop_oneof![3 => Just(Rest::Keep), 1 => Just(Rest::Done), 1 => Just(Rest::Release)];
    let held = vec((0..6_usize, word()), 0..4);
    let stranger = proptest::option::weighted(0.2, (0..1000_usize, word()));
    let strict = prop::bool::weighted(0.3);
    (recent(), held, stranger, rest, strict, on_dead()).prop_map(
        |(token, held, stranger, rest, strict, on_dead)| Say {
            token,
            held,
            stranger,
            rest,
            strict,
            on_dead,
        },
    )
}

fn word() -> impl Strategy<Value = OutcomeKind> {
    prop_oneof![
        3 => Just(OutcomeKind::Done),
        2 => (0..10_u64).prop_map(OutcomeKind::Retry),
        1 => Just(OutcomeKind::Dead),
        2 => (0..3_u64).prop_map(OutcomeKind::Release),
    ]
}

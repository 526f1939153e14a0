//! The scripts: what a handful of workers and an operator might do, in any order.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use tenure_core::OnDead;
use tenure_core::store::Rest;

/// How many ordering keys there are.
pub(super) const KEYS: u8 = 3;

/// One verb. Items and tokens are named by number, as far as there are any.
#[derive(Clone, Debug)]
pub(super) struct Step {
    /// How much later than the step before, at least a microsecond.
    pub(super) wait: Duration,
    pub(super) verb: Verb,
}

#[derive(Clone, Debug)]
pub(super) enum Verb {
    Add(Vec<New>),
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
        lapse: Lapse,
    },
    Replay(Vec<usize>),
    Bury(usize),
    Pause(u8),
    Resume(u8),
    /// Goes on without the head of a key.
    Skip(u8),
    /// Retention in seconds.
    Prune {
        done: u64,
        dead: u64,
    },
}

/// An item.
#[derive(Clone, Copy, Debug)]
pub(super) struct New {
    pub(super) key: Option<u8>,
    /// Of two priorities the higher one; only with a key.
    pub(super) is_urgent: bool,
}

/// A claim.
#[derive(Clone, Debug)]
pub(super) struct Take {
    pub(super) worker: u8,
    pub(super) limit: u32,
    pub(super) seconds: u64,
    pub(super) alone: bool,
    /// How many items it wants that can be worked at the same time.
    pub(super) abreast: u32,
    /// Reap when it comes back short.
    pub(super) recovery: Option<Lapse>,
}

/// What becomes of what lapsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lapse {
    /// It is put back after this many seconds.
    pub(super) seconds: u64,
    pub(super) on_dead: OnDead,
}

/// A settle of the items of a lease, as it was when it was claimed, and of strangers.
#[derive(Clone, Debug)]
pub(super) struct Say {
    pub(super) token: usize,
    pub(super) held: Vec<(usize, Word)>,
    pub(super) stranger: Option<(usize, Word)>,
    pub(super) rest: Rest,
    pub(super) strict: bool,
    pub(super) on_dead: OnDead,
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

/// A few, so that items meet.
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

/// Counted from the last one: most things happen to what is new.
fn recent() -> impl Strategy<Value = usize> {
    prop_oneof![4 => 0..3_usize, 1 => 0..1000_usize]
}

fn take() -> impl Strategy<Value = Take> {
    let recovery = prop_oneof![2 => Just(None), 1 => lapse(3).prop_map(Some)];
    let alone = prop::bool::weighted(0.25);
    (0..3_u8, 0..6_u32, 1..60_u64, alone, 1..4_u32, recovery).prop_map(
        |(worker, limit, seconds, alone, abreast, recovery)| Take {
            worker,
            limit,
            seconds,
            alone,
            abreast,
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

fn word() -> impl Strategy<Value = Word> {
    prop_oneof![
        3 => Just(Word::Done),
        2 => (0..10_u64).prop_map(Word::Retry),
        1 => Just(Word::Dead),
        2 => (0..3_u64).prop_map(Word::Release),
    ]
}

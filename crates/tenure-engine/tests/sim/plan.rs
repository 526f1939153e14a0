//! Plan: what a seed means. Each seed switches some kinds of faults on and others off, so that each
//! kind is also seen by itself.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tenure_core::{OnDead, Settings, Term};

/// Mixes numbers into one that looks drawn.
pub(crate) fn mix(numbers: &[u64]) -> u64 {
    let mut mixed = 0x9e37_79b9_7f4a_7c15_u64;
    for number in numbers {
        mixed = (mixed ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
    }
    mixed
}

/// A stream of chance of its own for each actor.
pub(crate) fn dice(seed: u64, actor: u64) -> StdRng {
    StdRng::seed_from_u64(mix(&[seed, actor]))
}

/// How bad the network is, in calls per hundred that slip in each of four ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sky {
    Clear,
    Rough,
    Storm,
}

impl Sky {
    pub(crate) const fn slips_per_thousand(self) -> u32 {
        match self {
            Self::Clear => 0,
            Self::Rough => 10,
            Self::Storm => 60,
        }
    }
}

/// Whether something happens in a world.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is switched by itself, in any combination"
)]
pub(crate) struct Kinds {
    pub(crate) crashes: bool,
    pub(crate) pauses: bool,
    pub(crate) cuts: bool,
    pub(crate) deploys: bool,
    pub(crate) operator: bool,
    pub(crate) tuning: bool,
}

/// What a seed means.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) processes: u32,
    pub(crate) items: u32,
    /// How many keys there are; with none no event has one.
    pub(crate) keys: u32,
    /// Whether keyed events stand in one lane and most of the work is quick: then claims take runs.
    pub(crate) is_smooth: bool,
    /// How many of them are poison, hopeless, bad.
    pub(crate) ills: [u32; 3],
    pub(crate) settings: Settings,
    /// The term of the second queue.
    pub(crate) other_term: Term,
    pub(crate) sky: Sky,
    pub(crate) is_moody: bool,
    pub(crate) kinds: Kinds,
    /// How long faults happen.
    pub(crate) chaos: Duration,
    /// Seconds of the store's clock in a second of the processes'.
    pub(crate) drift: f64,
}

impl Plan {
    /// Whoever changes what is drawn here gives every seed another meaning.
    pub(crate) fn new(seed: u64) -> Self {
        let mut dice = dice(seed, 0);
        let lengths = [300, 600, 1200, 2400, 6000];
        let mut length = || {
            let millis = lengths[dice.random_range(0..lengths.len())];
            Term::new(Duration::from_millis(millis)).expect("a legal term")
        };
        let (term, other_term) = (length(), length());
        // Drawn by themselves: keys came later, and what a seed means beside them stayed.
        let mut of_keys = self::dice(seed, 3);
        let keys = [0, 0, 1, 2, 4, 12][of_keys.random_range(0..6)];
        let on_dead = if of_keys.random_bool(0.3) {
            OnDead::Block
        } else {
            OnDead::Skip
        };
        let is_smooth = keys > 0 && of_keys.random_bool(0.6);
        let settings = Settings {
            term,
            concurrency: dice.random_range(1..=8),
            batch: dice.random_range(1..=20),
            max_retries: dice.random_range(0..=4),
            max_crashes: dice.random_range(3..=5),
            heartbeat: dice.random_bool(0.3).then(|| term.length() / 8),
            max_hold: dice.random_bool(0.5).then(|| term.length() * 3 / 2),
            on_dead,
            ..Settings::default()
        };
        let skies = [Sky::Clear, Sky::Clear, Sky::Rough, Sky::Rough, Sky::Storm];
        let kinds = Kinds {
            crashes: dice.random_bool(0.5),
            pauses: dice.random_bool(0.5),
            cuts: dice.random_bool(0.3),
            deploys: dice.random_bool(0.3),
            operator: dice.random_bool(0.4),
            tuning: dice.random_bool(0.2),
        };
        Self {
            seed,
            processes: dice.random_range(1..=4),
            items: dice.random_range(5..=40),
            keys,
            is_smooth,
            ills: [
                dice.random_bool(0.25).into(),
                dice.random_range(0..=1),
                dice.random_range(0..=1),
            ],
            sky: skies[dice.random_range(0..skies.len())],
            is_moody: dice.random_bool(0.6),
            kinds,
            chaos: longest(term, other_term) * dice.random_range(3..=6),
            drift: if dice.random_bool(0.3) {
                dice.random_range(0.95..1.05)
            } else {
                1.0
            },
            settings,
            other_term,
        }
    }

    /// The longest term of anything in this world, at any time.
    pub(crate) fn term_max(&self) -> Duration {
        let longest = longest(self.settings.term, self.other_term);
        if self.kinds.tuning {
            longest * 2
        } else {
            longest
        }
    }

    /// The longest that a handler may go on.
    pub(crate) fn hold_max(&self) -> Duration {
        self.term_max() * 3
    }

    /// The shortest hold that may be cut for its length.
    pub(crate) fn hold_min(&self) -> Duration {
        let other = self.settings.rhythm_of(self.other_term).max_hold;
        self.settings.max_hold().min(other).mul_f64(0.9)
    }

    /// The shortest time after which what was claimed and not started may be given back: two terms,
    /// less a little for a clock that drifts.
    pub(crate) fn line_min(&self) -> Duration {
        let shortest = self.settings.term.min(self.other_term).length();
        (shortest * 2).mul_f64(0.9)
    }

    /// Everything is settled this long after the world has healed.
    pub(crate) fn patience(&self) -> Duration {
        let term = self.term_max();
        let lapses = self.settings.max_crashes + 2;
        // A lapse: term, reaper interval, restart, the longest delay.
        let lapse = term * 2 + Duration::from_secs(20);
        let retries = Duration::from_secs(40);
        self.hold_max() + term * 4 + lapse * lapses + retries
    }
}

fn longest(one: Term, other: Term) -> Duration {
    one.length().max(other.length())
}

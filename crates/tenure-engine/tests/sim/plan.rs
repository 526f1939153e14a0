//! Plan of a run, derived from its seed. Each seed enables some kinds of faults, so that each kind
//! also occurs alone.

use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};
use tenure_core::{OnDead, Settings, Term};

/// Hashes numbers into one number that looks random.
pub(crate) fn mix(numbers: &[u64]) -> u64 {
    let mut mixed = 0x9e37_79b9_7f4a_7c15_u64;
    for number in numbers {
        mixed = (mixed ^ number).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
    }
    mixed
}

/// Random source of one actor, independent of the other actors.
pub(crate) fn rng(seed: u64, actor: u64) -> StdRng {
    StdRng::seed_from_u64(mix(&[seed, actor]))
}

/// Quality of the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Quality {
    Clear,
    Rough,
    Bad,
}

impl Quality {
    pub(crate) const fn slips_per_thousand(self) -> u32 {
        match self {
            Self::Clear => 0,
            Self::Rough => 10,
            Self::Bad => 60,
        }
    }
}

/// Kinds of faults of a run.
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
    /// The store is unavailable to every process at once.
    pub(crate) outages: bool,
}

/// Plan of a run.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) processes: u32,
    pub(crate) items: u32,
    /// Number of ordering keys; 0 for events without keys.
    pub(crate) keys: u32,
    /// Keyed events share one lane and most handlers are quick, so that claims take runs.
    pub(crate) is_quick: bool,
    /// Number of poison, hopeless and bad items.
    pub(crate) bad_items: [u32; 3],
    pub(crate) settings: Settings,
    /// Term of the second queue.
    pub(crate) other_term: Term,
    pub(crate) quality: Quality,
    pub(crate) is_flaky: bool,
    pub(crate) kinds: Kinds,
    /// Time during which faults occur.
    pub(crate) chaos: Duration,
    /// Speed of the store's clock relative to the processes'.
    pub(crate) drift: f64,
}

impl Plan {
    /// Creates the plan of a seed. Changing the draws here gives every seed another meaning.
    pub(crate) fn new(seed: u64) -> Self {
        let mut rng = rng(seed, 0);
        let lengths = [300, 600, 1200, 2400, 6000];
        let mut length = || {
            let millis = lengths[rng.random_range(0..lengths.len())];
            Term::new(Duration::from_millis(millis)).expect("a legal term")
        };
        let (term, other_term) = (length(), length());
        // A separate source, because keys were added later and older draws must not change.
        let mut of_keys = self::rng(seed, 3);
        let keys = [0, 0, 1, 2, 4, 12][of_keys.random_range(0..6)];
        let on_dead = if of_keys.random_bool(0.3) {
            OnDead::Block
        } else {
            OnDead::Skip
        };
        let is_quick = keys > 0 && of_keys.random_bool(0.6);
        let settings = Settings {
            term,
            concurrency: rng.random_range(1..=8),
            batch: rng.random_range(1..=20),
            max_retries: rng.random_range(0..=4),
            max_crashes: rng.random_range(3..=5),
            heartbeat: rng.random_bool(0.3).then(|| term.length() / 8),
            max_hold: rng.random_bool(0.5).then(|| term.length() * 3 / 2),
            on_dead,
            ..Settings::default()
        };
        let qualities = [
            Quality::Clear,
            Quality::Clear,
            Quality::Rough,
            Quality::Rough,
            Quality::Bad,
        ];
        let kinds = Kinds {
            crashes: rng.random_bool(0.5),
            pauses: rng.random_bool(0.5),
            cuts: rng.random_bool(0.3),
            deploys: rng.random_bool(0.3),
            operator: rng.random_bool(0.4),
            tuning: rng.random_bool(0.2),
            // A separate source, as for keys.
            outages: self::rng(seed, 5).random_bool(0.4),
        };
        Self {
            seed,
            processes: rng.random_range(1..=4),
            items: rng.random_range(5..=40),
            keys,
            is_quick,
            bad_items: [
                rng.random_bool(0.25).into(),
                rng.random_range(0..=1),
                rng.random_range(0..=1),
            ],
            quality: qualities[rng.random_range(0..qualities.len())],
            is_flaky: rng.random_bool(0.6),
            kinds,
            chaos: longest(term, other_term) * rng.random_range(3..=6),
            drift: if rng.random_bool(0.3) {
                rng.random_range(0.95..1.05)
            } else {
                1.0
            },
            settings,
            other_term,
        }
    }

    /// Longest term of any lease during the run.
    pub(crate) fn term_max(&self) -> Duration {
        let longest = longest(self.settings.term, self.other_term);
        if self.kinds.tuning {
            longest * 2
        } else {
            longest
        }
    }

    /// Longest time that a handler may run.
    pub(crate) fn hold_max(&self) -> Duration {
        self.term_max() * 3
    }

    /// Shortest hold that may count as overdue.
    pub(crate) fn hold_min(&self) -> Duration {
        let other = self.settings.timing_of(self.other_term).max_hold;
        self.settings.max_hold().min(other).mul_f64(0.9)
    }

    /// Shortest time after which unstarted items may be released: two terms, less clock drift.
    pub(crate) fn unstarted_min(&self) -> Duration {
        let shortest = self.settings.term.min(self.other_term).length();
        (shortest * 2).mul_f64(0.9)
    }

    /// Time after the end of the faults within which everything must be settled.
    pub(crate) fn settle_timeout(&self) -> Duration {
        let term = self.term_max();
        let lapses = self.settings.max_crashes + 2;
        // A lapse takes the term, the reaper interval, a restart and the longest delay.
        let lapse = term * 2 + Duration::from_secs(20);
        let retries = Duration::from_secs(40);
        self.hold_max() + term * 4 + lapse * lapses + retries
    }
}

fn longest(one: Term, other: Term) -> Duration {
    one.length().max(other.length())
}

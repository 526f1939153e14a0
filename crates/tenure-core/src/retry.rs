//! What follows a failure, and what follows a lapse: pure functions of counters and policy.
//!
//! Two budgets with two causes. `max_retries` counts failures that a holder reported;
//! `max_crashes` counts leases that lapsed. A release costs neither, so a rolling deploy cannot
//! kill an item.

use std::time::Duration;

use crate::invalid::Invalid;
use crate::outcome::Outcome;
use crate::reason;
use crate::turn::OnDead;

/// No item comes back sooner than this after a failure or a lapse.
pub const DELAY_MIN: Duration = Duration::from_millis(100);

/// What went wrong with an attempt, as its handler reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// What went wrong, for people.
    pub error: String,
    /// Whether trying again can help, and when.
    pub again: Again,
}

impl Failure {
    /// A failure after which the policy chooses the delay.
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            again: Again::ByPolicy,
        }
    }

    /// The same, but tried again after this long.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.again = Again::After(delay);
        self
    }

    /// The same, but never tried again: trying cannot help.
    #[must_use]
    pub fn never(mut self) -> Self {
        self.again = Again::Never;
        self
    }
}

/// Any error is a failure to be tried again, so `?` in a handler is a retry. The causes stand
/// behind it, each after a colon.
impl<E: std::error::Error> From<E> for Failure {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut cause = error.source();
        while let Some(deeper) = cause {
            text.push_str(": ");
            text.push_str(&deeper.to_string());
            cause = deeper.source();
        }
        Self::new(text)
    }
}

/// Whether trying again can help.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// It can; the policy chooses the delay.
    ByPolicy,
    /// It can, after this long (a receiver said so).
    After(Duration),
    /// It cannot.
    Never,
}

/// How often and how soon a failed item is tried again.
///
/// ```
/// use tenure_core::{Again, Failure, Outcome, RetryPolicy};
///
/// let policy = RetryPolicy { max_retries: 1, ..RetryPolicy::default() };
/// let failure = Failure { error: "503".into(), again: Again::ByPolicy };
/// assert!(matches!(policy.judge(0, &failure, 0.5), Outcome::Retry { .. }));
/// assert!(matches!(policy.judge(1, &failure, 0.5), Outcome::Dead { .. }));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct RetryPolicy {
    /// Failures that are followed by another try; the next one is the last. Default 10.
    pub max_retries: u32,
    /// The longest delay after the first failure; it doubles with each. Default 1 s.
    pub base: Duration,
    /// No delay is longer. Default 5 min.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 10,
            base: Duration::from_secs(1),
            cap: Duration::from_mins(5),
        }
    }
}

impl RetryPolicy {
    /// The policy that allows `attempts` tries in all: `max_retries + 1`.
    ///
    /// # Errors
    /// There is at least one attempt.
    pub fn max_attempts(attempts: u32) -> Result<Self, Invalid> {
        let max_retries = attempts
            .checked_sub(1)
            .ok_or_else(|| Invalid::new("max_attempts", "0", "1 or more"))?;
        Ok(Self {
            max_retries,
            ..Self::default()
        })
    }

    /// Turns a failure into an outcome. `failures` is how many were reported before this one;
    /// `chance` is a random number from 0 to 1 and spreads the delays.
    pub fn judge(&self, failures: u32, failure: &Failure, chance: f64) -> Outcome {
        let error = failure.error.clone();
        let after = match failure.again {
            Again::Never => {
                return Outcome::Dead {
                    reason: reason::REJECTED.into(),
                    error,
                };
            }
            Again::After(delay) => delay.max(DELAY_MIN),
            Again::ByPolicy => self.delay(failures, chance),
        };
        if failures >= self.max_retries {
            return Outcome::Dead {
                reason: reason::FAILED.into(),
                error,
            };
        }
        Outcome::Retry { after, error }
    }

    /// The delay after `failures` earlier ones: exponential, capped, full jitter.
    pub fn delay(&self, failures: u32, chance: f64) -> Duration {
        let ceiling = self.ceiling(failures);
        // Multiplying a duration panics when rounding carries it past the longest, or on no number.
        let share = ceiling.as_secs_f64() * chance.clamp(0.0, 1.0);
        Duration::try_from_secs_f64(share)
            .unwrap_or(ceiling)
            .clamp(DELAY_MIN, ceiling.max(DELAY_MIN))
    }

    /// The longest delay after `failures` earlier ones.
    fn ceiling(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures);
        self.base.saturating_mul(factor).min(self.cap)
    }
}

/// What a reap does with an item whose lease lapsed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LapsePolicy {
    max_crashes: u32,
    delays: Vec<Duration>,
    on_dead: OnDead,
}

impl LapsePolicy {
    /// What `last_error` says of an item whose lease lapsed.
    pub const ERROR: &'static str = "lease lapsed";
    /// What `last_error` says of an item that died of its lapses.
    pub const DEAD_ERROR: &'static str = "crash_loop: lease lapsed";
    /// Lapses from which on an item is claimed alone, so that a poison item cannot take its
    /// neighbours with it.
    pub const ALONE_AFTER: u32 = 2;
    /// A lapse charges every item of a lease, so with fewer an innocent neighbour could die.
    pub const MAX_CRASHES_MIN: u32 = 3;

    /// Dead after more than `max_crashes` lapses; before, back after `delays[lapses - 1]` (the last
    /// one serves for all further lapses).
    ///
    /// # Errors
    /// `max_crashes` is below 3, or there is no delay.
    pub fn new(max_crashes: u32, delays: Vec<Duration>) -> Result<Self, Invalid> {
        if max_crashes < Self::MAX_CRASHES_MIN {
            return Err(Invalid::new(
                "max_crashes",
                max_crashes.to_string(),
                "3 or more: a lapse charges every item that was claimed together",
            ));
        }
        if delays.is_empty() {
            return Err(Invalid::new("lapse delays", "empty", "at least one delay"));
        }
        Ok(Self {
            max_crashes,
            delays,
            on_dead: OnDead::Skip,
        })
    }

    /// With this fate for the rest of a domain whose head dies.
    #[must_use]
    pub fn with_on_dead(mut self, on_dead: OnDead) -> Self {
        self.on_dead = on_dead;
        self
    }

    /// The same budget, with no delay before an item is back.
    ///
    /// ```
    /// use std::time::Duration;
    /// use tenure_core::LapsePolicy;
    ///
    /// let policy = LapsePolicy::default().without_delays();
    /// assert_eq!(policy.fate(5), Some(Duration::ZERO));
    /// assert_eq!(policy.fate(6), None);
    /// ```
    #[must_use]
    pub fn without_delays(mut self) -> Self {
        self.delays = vec![Duration::ZERO];
        self
    }

    /// What a dead item does to the rest of its domain.
    pub fn on_dead(&self) -> OnDead {
        self.on_dead
    }

    /// The lapses that an item survives; the next one is its last.
    pub fn max_crashes(&self) -> u32 {
        self.max_crashes
    }

    /// The delays by number of lapses, for a database that counts them itself.
    pub fn delays(&self) -> &[Duration] {
        &self.delays
    }

    /// What becomes of an item at its `crashes`-th lapse (this one included): `None` is dead.
    pub fn fate(&self, crashes: u32) -> Option<Duration> {
        if crashes > self.max_crashes {
            return None;
        }
        let nth = usize::try_from(crashes.saturating_sub(1)).unwrap_or(usize::MAX);
        self.delays.get(nth).or(self.delays.last()).copied()
    }
}

impl Default for LapsePolicy {
    /// Five lapses; 100 ms after the first, then doubling from 1 s up to 5 min.
    fn default() -> Self {
        let policy = RetryPolicy::default();
        let delays = std::iter::once(DELAY_MIN)
            .chain((0..9).map(|n| policy.ceiling(n)))
            .collect();
        Self {
            max_crashes: 5,
            delays,
            on_dead: OnDead::Skip,
        }
    }
}

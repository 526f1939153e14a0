//! Retry and lapse policies: pure functions of counters and settings.
//!
//! There are two budgets for two causes. `max_retries` limits failures that a holder reported;
//! `max_crashes` limits lapsed leases. A release counts towards neither, so a rolling deploy cannot
//! kill an item.

use std::ops::RangeInclusive;
use std::time::Duration;

use crate::invalid::Invalid;
use crate::outcome::Outcome;
use crate::reason;
use crate::time::duration_text;
use crate::turn::OnDead;

/// Minimum delay after a failure or a lapse.
pub const DELAY_MIN: Duration = Duration::from_millis(100);

/// The failure of an attempt, as its handler reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The error message, for people.
    pub error: String,
    /// The retry advice.
    pub again: Again,
}

impl Failure {
    /// Creates a failure after which the policy chooses the delay.
    pub fn new(error: impl Into<String>) -> Self {
        Self {
            error: error.into(),
            again: Again::ByPolicy,
        }
    }

    /// Sets the delay before the retry, instead of the policy's.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.again = Again::After(delay);
        self
    }

    /// Marks the failure as permanent: no retry.
    #[must_use]
    pub fn never(mut self) -> Self {
        self.again = Again::Never;
        self
    }
}

/// Converts every error into a failure to retry, so that `?` in a handler leads to a retry: errors
/// of `std` and of other crates, boxed errors, `anyhow::Error`, text. The error text lists the
/// causes, each after a colon.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::{Failure, Outcome};
///
/// fn price(text: &str) -> Result<u64, Box<dyn std::error::Error + Send + Sync>> {
///     Ok(text.parse()?)
/// }
///
/// fn handle(text: &str) -> Result<Outcome, Failure> {
///     if text.is_empty() {
///         return Err(Failure::new("no price yet").after(Duration::from_secs(60)));
///     }
///     if text == "free" {
///         Err(Failure::new("nothing to pay").never())?;
///     }
///     price(text)?;
///     Ok(Outcome::Done)
/// }
///
/// let failure = handle("many").unwrap_err();
/// assert_eq!(failure.error, "invalid digit found in string");
/// ```
// `Failure` does not implement `Error` itself; otherwise this conversion would conflict with
// `From<T> for T`.
impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failure {
    fn from(error: E) -> Self {
        let error: Box<dyn std::error::Error + Send + Sync> = error.into();
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

/// The retry advice of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Again {
    /// Retry; the policy chooses the delay.
    ByPolicy,
    /// Retry after this delay (for example, as a receiver requested).
    After(Duration),
    /// Do not retry; it cannot help.
    Never,
}

/// The number of retries and the delays between them.
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
    /// Maximum number of retries; the next failure is final. Default 25.
    pub max_retries: u32,
    /// Maximum delay after the first failure; the maximum doubles with each further failure.
    /// Default 1 s.
    pub base: Duration,
    /// Upper limit of the delays that the policy chooses. Default 12 h.
    pub cap: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            max_retries: 25,
            base: Duration::from_secs(1),
            cap: Duration::from_hours(12),
        }
    }
}

impl RetryPolicy {
    /// Range of `base` and `cap`.
    pub const DELAYS: RangeInclusive<Duration> =
        Duration::from_millis(1)..=Duration::from_hours(30 * 24);

    /// Creates the policy that allows `attempts` attempts in total: `max_retries + 1`.
    ///
    /// # Errors
    /// `attempts` is 0.
    pub fn max_attempts(attempts: u32) -> Result<Self, Invalid> {
        let max_retries = attempts
            .checked_sub(1)
            .ok_or_else(|| Invalid::new("max_attempts", "0", "1 or more"))?;
        Ok(Self {
            max_retries,
            ..Self::default()
        })
    }

    /// Turns a failure into an outcome. `failures` is the number of earlier failures; `chance` is a
    /// random number from 0 to 1 that spreads the delays.
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

    /// Returns the delay after `failures` earlier failures: exponential, capped, full jitter.
    pub fn delay(&self, failures: u32, chance: f64) -> Duration {
        let ceiling = self.ceiling(failures);
        // `Duration::mul_f64` panics on NaN, or when rounding exceeds the maximum.
        let share = ceiling.as_secs_f64() * chance.clamp(0.0, 1.0);
        Duration::try_from_secs_f64(share)
            .unwrap_or(ceiling)
            .clamp(DELAY_MIN, ceiling.max(DELAY_MIN))
    }

    /// Returns the longest time that the delays take together, from failure number `failures + 1`
    /// to the last retry. With full jitter, they take half of it in the mean.
    ///
    /// ```
    /// use tenure_core::{RetryPolicy, brief_duration};
    ///
    /// let policy = RetryPolicy::default();
    /// assert_eq!(brief_duration(policy.window(0)), "5d 6h");
    /// assert_eq!(policy.window(policy.max_retries).as_secs(), 0);
    /// ```
    pub fn window(&self, failures: u32) -> Duration {
        // From here on, all delays have the same maximum.
        let level = self.max_retries.min(u32::BITS);
        let rising = (failures..level).map(|failures| self.ceiling(failures));
        let rising = rising.fold(Duration::ZERO, Duration::saturating_add);
        let rest = self.max_retries.saturating_sub(failures.max(level));
        rising.saturating_add(self.ceiling(level).saturating_mul(rest))
    }

    /// Returns this policy with the rules that override it.
    #[must_use]
    pub fn with(self, rules: RetryRules) -> Self {
        Self {
            max_retries: rules.max_retries.unwrap_or(self.max_retries),
            base: rules.base.unwrap_or(self.base),
            cap: rules.cap.unwrap_or(self.cap),
        }
    }

    /// Returns the maximum delay after `failures` earlier failures.
    fn ceiling(&self, failures: u32) -> Duration {
        let factor = 2_u32.saturating_pow(failures);
        self.base.saturating_mul(factor).min(self.cap)
    }
}

/// Values of a queue or a handler that override those of a [`RetryPolicy`]; `None` overrides
/// nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetryRules {
    /// Maximum number of retries; the next failure is final.
    pub max_retries: Option<u32>,
    /// Maximum delay after the first failure.
    pub base: Option<Duration>,
    /// Upper limit of the delays.
    pub cap: Option<Duration>,
}

impl RetryRules {
    /// Returns these rules, completed by `other`: each value of `self` comes first.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self {
            max_retries: self.max_retries.or(other.max_retries),
            base: self.base.or(other.base),
            cap: self.cap.or(other.cap),
        }
    }

    /// Checks that the delays are 1 ms to 30 days, and that the cap is not below the base.
    ///
    /// # Errors
    /// A value is out of range; the message names it.
    pub fn check(&self) -> Result<(), Invalid> {
        for (field, delay) in [("retry_base", self.base), ("retry_cap", self.cap)] {
            if let Some(delay) = delay.filter(|delay| !RetryPolicy::DELAYS.contains(delay)) {
                return Err(Invalid::new(field, duration_text(delay), "1ms to 30d"));
            }
        }
        match (self.base, self.cap) {
            (Some(base), Some(cap)) if cap < base => {
                let expected = format!("at least retry_base ({})", duration_text(base));
                Err(Invalid::new("retry_cap", duration_text(cap), expected))
            }
            _ => Ok(()),
        }
    }
}

/// The effect of a lapsed lease on its items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LapsePolicy {
    max_crashes: u32,
    delays: Vec<Duration>,
    on_dead: OnDead,
}

impl LapsePolicy {
    /// Value of `last_error` for an item whose lease lapsed.
    pub const ERROR: &'static str = "lease lapsed";
    /// Value of `last_error` for an item that died of its lapses.
    pub const DEAD_ERROR: &'static str = "crash_loop: lease lapsed";
    /// Minimum number of lapses at which an item is claimed alone, so that other items do not crash
    /// with a poison item.
    pub const ALONE_AFTER: u32 = 2;
    /// Minimum of `max_crashes`. A lapse can count for several items of a lease; with a lower
    /// limit, an item could die because another item of its lease crashes.
    pub const MAX_CRASHES_MIN: u32 = 3;

    /// Creates a policy: an item is dead after more than `max_crashes` lapses; before that, it is
    /// claimable again after `delays[lapses - 1]` (the last delay applies to all further lapses).
    ///
    /// # Errors
    /// `max_crashes` is below 3, or `delays` is empty.
    pub fn new(max_crashes: u32, delays: Vec<Duration>) -> Result<Self, Invalid> {
        if max_crashes < Self::MAX_CRASHES_MIN {
            return Err(Invalid::new(
                "max_crashes",
                max_crashes.to_string(),
                "3 or more: a lapse counts for every item of the lease",
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

    /// Sets the effect of a dead head on the rest of its key.
    #[must_use]
    pub fn with_on_dead(mut self, on_dead: OnDead) -> Self {
        self.on_dead = on_dead;
        self
    }

    /// Removes the delays; the crash budget stays the same.
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

    /// Returns the effect of a dead item on the rest of its key.
    pub fn on_dead(&self) -> OnDead {
        self.on_dead
    }

    /// Returns the number of lapses that an item survives; the next one is final.
    pub fn max_crashes(&self) -> u32 {
        self.max_crashes
    }

    /// Returns the delays by number of lapses, for a database that counts the lapses itself.
    pub fn delays(&self) -> &[Duration] {
        &self.delays
    }

    /// Returns the delay after lapse number `crashes` of an item, counted from 1; `None` if that
    /// lapse makes the item dead.
    pub fn fate(&self, crashes: u32) -> Option<Duration> {
        if crashes > self.max_crashes {
            return None;
        }
        let nth = usize::try_from(crashes.saturating_sub(1)).unwrap_or(usize::MAX);
        self.delays.get(nth).or(self.delays.last()).copied()
    }
}

impl Default for LapsePolicy {
    /// Allows five lapses; the delay is 100 ms after the first, then doubles from 1 s. The list of
    /// delays goes up to 256 s, for policies that allow more lapses.
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

//! Schedule: delays between the attempts of a delivery.

use std::time::Duration;

use crate::invalid::Invalid;

/// Delays between the attempts of a delivery. A delivery has one attempt more than there are
/// delays; then it is dead.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::webhook::Schedule;
///
/// let schedule = Schedule::default();
/// assert_eq!(schedule.attempts(), 10);
/// assert_eq!(schedule.delay(0, 0.5), Some(Duration::from_secs(5)));
/// assert_eq!(schedule.delay(9, 0.5), None);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule(Vec<Duration>);

impl Schedule {
    /// Maximum number of delays.
    pub const STEPS_MAX: usize = 30;
    /// Maximum sum of the delays, without jitter.
    pub const LENGTH_MAX: Duration = Duration::from_hours(30 * 24);
    /// Jitter: maximum deviation as a share of the delay.
    const JITTER: f64 = 0.2;
    /// Minimum delay, with jitter.
    const DELAY_MIN: Duration = Duration::from_secs(1);

    /// A schedule of these delays; an empty list means one attempt.
    ///
    /// # Errors
    /// There are too many, their sum is too large, or one is under a second.
    pub fn new(waits: Vec<Duration>) -> Result<Self, Invalid> {
        let bad = |found: String| {
            let expected = "at most 30 delays of at least 1s, together at most 30 days";
            Err(Invalid::new("retry schedule", found, expected))
        };
        if waits.len() > Self::STEPS_MAX {
            return bad(format!("{} delays long", waits.len()));
        }
        if waits.iter().any(|wait| *wait < Self::DELAY_MIN) {
            return bad("a list with a delay under 1s".to_owned());
        }
        let length = waits
            .iter()
            .fold(Duration::ZERO, |sum, wait| sum.saturating_add(*wait));
        if length > Self::LENGTH_MAX {
            return bad(format!("{} hours long", length.as_secs() / 3600));
        }
        Ok(Self(waits))
    }

    /// Delays in order.
    pub fn waits(&self) -> &[Duration] {
        &self.0
    }

    /// Number of attempts of a delivery.
    pub fn attempts(&self) -> usize {
        self.0.len() + 1
    }

    /// Delay after a failure that follows `failures` earlier ones; `None` at the end of the
    /// schedule. `chance`, from 0 to 1, sets the jitter.
    pub fn delay(&self, failures: u32, chance: f64) -> Option<Duration> {
        let step = *self.0.get(usize::try_from(failures).ok()?)?;
        let share = 1.0 + Self::JITTER * (2.0 * chance.clamp(0.0, 1.0) - 1.0);
        let wait = Duration::try_from_secs_f64(step.as_secs_f64() * share).unwrap_or(step);
        Some(wait.max(Self::DELAY_MIN))
    }
}

impl Default for Schedule {
    /// Schedule of Standard Webhooks: ten attempts in about three days.
    fn default() -> Self {
        let minute = 60;
        let hour = 60 * minute;
        let waits = [
            5,
            5 * minute,
            30 * minute,
            2 * hour,
            5 * hour,
            10 * hour,
            14 * hour,
            20 * hour,
            24 * hour,
        ];
        Self(waits.map(Duration::from_secs).to_vec())
    }
}

//! Pace: time of the next poll, and an estimate of the items that will be started soon.
//!
//! While there is work, one poll follows another. After an empty poll the delay grows: from 5 ms to
//! 50 ms if the worker had work in the last two seconds, otherwise up to a second. Delays have
//! jitter, so that processes do not poll in step.

use std::time::Duration;

use tokio::time::Instant;

const POLL_DELAY_MIN: Duration = Duration::from_millis(5);
const BUSY_DELAY_MAX: Duration = Duration::from_millis(50);
const IDLE_DELAY_MAX: Duration = Duration::from_secs(1);
/// Time after its last work during which a worker counts as busy.
const BUSY_FOR: Duration = Duration::from_secs(2);
const ERROR_DELAY_MIN: Duration = Duration::from_millis(100);
const ERROR_DELAY_MAX: Duration = Duration::from_secs(5);

/// Time of the next poll.
#[derive(Debug)]
pub(crate) struct Pace {
    delay: Duration,
    next_at: Instant,
    last_work_at: Option<Instant>,
    /// Consecutive failed polls.
    errors: u32,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            delay: POLL_DELAY_MIN,
            next_at: now,
            last_work_at: None,
            errors: 0,
        }
    }

    pub(crate) fn next_at(&self) -> Instant {
        self.next_at
    }

    /// True if recent polls were empty.
    pub(crate) fn is_idle(&self) -> bool {
        self.delay > BUSY_DELAY_MAX
    }

    /// Records a poll that brought items; `is_full`: it reached its limit.
    pub(crate) fn record_work(&mut self, now: Instant, is_full: bool) {
        self.errors = 0;
        self.last_work_at = Some(now);
        self.delay = POLL_DELAY_MIN;
        self.next_at = if is_full { now } else { now + POLL_DELAY_MIN };
    }

    /// Records an empty poll. `chance` is a random number from 0 to 1, for the jitter.
    pub(crate) fn record_idle(&mut self, now: Instant, chance: f64) {
        self.errors = 0;
        self.next_at = now + spread(self.delay, chance);
        let is_busy = self.last_work_at.is_some_and(|last| now < last + BUSY_FOR);
        let most = if is_busy {
            BUSY_DELAY_MAX
        } else {
            IDLE_DELAY_MAX
        };
        self.delay = self.delay.saturating_mul(3).div_f64(2.0).min(most);
    }

    /// Records a failed poll.
    pub(crate) fn record_error(&mut self, now: Instant, chance: f64) {
        let delay = ERROR_DELAY_MIN
            .saturating_mul(2_u32.saturating_pow(self.errors))
            .min(ERROR_DELAY_MAX);
        self.errors = self.errors.saturating_add(1);
        self.next_at = now + spread(delay, chance);
    }

    /// Delays the next poll by 50 ms, because claiming is paused.
    pub(crate) fn pause(&mut self, now: Instant) {
        self.next_at = now + BUSY_DELAY_MAX;
    }

    /// Records free capacity. The next poll comes after a short delay, so that items that finish
    /// close together share it.
    pub(crate) fn poll_soon(&mut self, now: Instant) {
        if self.errors == 0 {
            self.delay = POLL_DELAY_MIN;
            self.next_at = self.next_at.min(now + POLL_DELAY_MIN);
        }
    }

    /// Polls at once, because the store answers again.
    pub(crate) fn reset(&mut self, now: Instant) {
        self.errors = 0;
        self.wake(now);
    }

    /// Polls at once, unless the store is failing.
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.errors == 0 {
            self.delay = POLL_DELAY_MIN;
            self.next_at = now;
        }
    }
}

/// Adds jitter: 75 to 125 % of the delay.
pub(crate) fn spread(delay: Duration, chance: f64) -> Duration {
    delay.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0)
}

/// Estimate of the handler's run time.
#[derive(Debug, Default)]
pub(crate) struct Speed {
    /// Running mean that follows a slowdown quickly and a speed-up slowly.
    mean: Option<Duration>,
}

impl Speed {
    /// Adds a measured run time.
    pub(crate) fn took(&mut self, length: Duration) {
        self.mean = Some(match self.mean {
            None => length,
            Some(mean) if length > mean => (mean + length) / 2,
            Some(mean) => (mean * 15 + length) / 16,
        });
    }

    /// Number of items that this many executors start within `span`; 0 before the first
    /// measurement.
    pub(crate) fn within(&self, span: Duration, executors: u32) -> u32 {
        let Some(mean) = self.mean else {
            return 0;
        };
        let each = span.as_nanos() / mean.as_nanos().max(1);
        let all = each.saturating_mul(u128::from(executors));
        u32::try_from(all).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn polls_slow_down_to_fifty_milliseconds_and_then_to_a_second() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        pace.record_work(now, true);
        assert_eq!(pace.next_at(), now, "more items are due");
        pace.record_work(now, false);
        let last_work_at = now;
        while now < last_work_at + BUSY_FOR {
            pace.record_idle(now, 0.5);
            assert!(pace.next_at() - now <= BUSY_DELAY_MAX, "still busy");
            now = pace.next_at();
        }
        for _ in 0..20 {
            pace.record_idle(now, 1.0);
            assert!(pace.next_at() - now <= IDLE_DELAY_MAX.mul_f64(1.25));
            now = pace.next_at();
        }
        assert!(pace.is_idle());
        pace.record_idle(now, 0.0);
        assert_eq!(
            pace.next_at() - now,
            IDLE_DELAY_MAX.mul_f64(0.75),
            "the delay has reached its maximum"
        );
        pace.wake(now);
        assert_eq!(pace.next_at(), now);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_is_polled_less_and_less_often() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        let mut last = Duration::ZERO;
        for _ in 0..10 {
            pace.record_error(now, 0.5);
            let delay = pace.next_at() - now;
            assert!(delay >= last && delay <= ERROR_DELAY_MAX);
            last = delay;
        }
        assert_eq!(last, ERROR_DELAY_MAX);
        pace.wake(now);
        assert_eq!(
            pace.next_at() - now,
            last,
            "a wake does not shorten the delay after errors"
        );
    }

    #[test]
    fn the_estimate_follows_a_slowdown_at_once() {
        let span = Duration::from_secs(3);
        let mut speed = Speed::default();
        assert_eq!(speed.within(span, 10), 0, "nothing is known yet");
        speed.took(Duration::from_secs(1));
        assert_eq!(speed.within(span, 10), 30);
        speed.took(Duration::from_secs(9));
        assert_eq!(speed.within(span, 10), 0, "a slowdown counts at once");
        for _ in 0..200 {
            speed.took(Duration::from_micros(1));
        }
        assert!(
            speed.within(span, 10) > 100_000,
            "a speed-up counts in the end"
        );
    }
}

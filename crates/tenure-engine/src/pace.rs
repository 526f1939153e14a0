//! Pace: when to look for work again, and how much of it will be started soon.
//!
//! While there is work a look follows a look; when there is none, looks come 5 ms apart and slow
//! down, to 50 ms as long as something was found in the last two seconds, then to a second. Each
//! delay is spread by chance, so that many processes do not look at once.

use std::time::Duration;

use tokio::time::Instant;

const SOONEST: Duration = Duration::from_millis(5);
const BUSY: Duration = Duration::from_millis(50);
const IDLE: Duration = Duration::from_secs(1);
/// So long after the last find a worker still counts as busy.
const BUSY_FOR: Duration = Duration::from_secs(2);
const ERROR_SOONEST: Duration = Duration::from_millis(100);
const ERROR_LATEST: Duration = Duration::from_secs(5);

/// When to look for work again.
#[derive(Debug)]
pub(crate) struct Pace {
    delay: Duration,
    next_at: Instant,
    found_at: Option<Instant>,
    /// Looks in a row that failed.
    errors: u32,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            delay: SOONEST,
            next_at: now,
            found_at: None,
            errors: 0,
        }
    }

    pub(crate) fn next_at(&self) -> Instant {
        self.next_at
    }

    /// Whether nothing was found for a while.
    pub(crate) fn is_idle(&self) -> bool {
        self.delay > BUSY
    }

    /// Something was found; all that was asked for, or less.
    pub(crate) fn found(&mut self, now: Instant, is_full: bool) {
        self.errors = 0;
        self.found_at = Some(now);
        self.delay = SOONEST;
        self.next_at = if is_full { now } else { now + SOONEST };
    }

    /// Nothing was found. `chance` is from 0 to 1.
    pub(crate) fn found_nothing(&mut self, now: Instant, chance: f64) {
        self.errors = 0;
        self.next_at = now + spread(self.delay, chance);
        let is_busy = self.found_at.is_some_and(|found| now < found + BUSY_FOR);
        let most = if is_busy { BUSY } else { IDLE };
        self.delay = self.delay.saturating_mul(3).div_f64(2.0).min(most);
    }

    /// The store did not answer.
    pub(crate) fn failed(&mut self, now: Instant, chance: f64) {
        let delay = ERROR_SOONEST
            .saturating_mul(2_u32.saturating_pow(self.errors))
            .min(ERROR_LATEST);
        self.errors = self.errors.saturating_add(1);
        self.next_at = now + spread(delay, chance);
    }

    /// Claiming is held back; look again soon whether it still is.
    pub(crate) fn hold_back(&mut self, now: Instant) {
        self.next_at = now + BUSY;
    }

    /// There is room for what could not be taken before: look again in a moment, so that what ends
    /// close together shares a look.
    pub(crate) fn look_soon(&mut self, now: Instant) {
        if self.errors == 0 {
            self.delay = SOONEST;
            self.next_at = self.next_at.min(now + SOONEST);
        }
    }

    /// Someone knows of work.
    pub(crate) fn wake(&mut self, now: Instant) {
        if self.errors == 0 {
            self.delay = SOONEST;
            self.next_at = now;
        }
    }
}

/// Three quarters to five quarters of a delay.
pub(crate) fn spread(delay: Duration, chance: f64) -> Duration {
    delay.mul_f64(0.75 + chance.clamp(0.0, 1.0) / 2.0)
}

/// How long a handler takes, as far as it has been seen.
#[derive(Debug, Default)]
pub(crate) struct Speed {
    /// A running mean that follows a slowdown at once and a speed-up slowly.
    mean: Option<Duration>,
}

impl Speed {
    /// A handler took this long.
    pub(crate) fn took(&mut self, length: Duration) {
        self.mean = Some(match self.mean {
            None => length,
            Some(mean) if length > mean => (mean + length) / 2,
            Some(mean) => (mean * 15 + length) / 16,
        });
    }

    /// How many items `places` handlers start within `span`; nothing is known before the first has
    /// ended.
    pub(crate) fn within(&self, span: Duration, places: u32) -> u32 {
        let Some(mean) = self.mean else {
            return 0;
        };
        let each = span.as_nanos() / mean.as_nanos().max(1);
        let all = each.saturating_mul(u128::from(places));
        u32::try_from(all).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn looks_slow_down_to_fifty_milliseconds_and_then_to_a_second() {
        let mut now = Instant::now();
        let mut pace = Pace::new(now);
        pace.found(now, true);
        assert_eq!(pace.next_at(), now, "more was there");
        pace.found(now, false);
        let found_at = now;
        while now < found_at + BUSY_FOR {
            pace.found_nothing(now, 0.5);
            assert!(pace.next_at() - now <= BUSY, "still busy");
            now = pace.next_at();
        }
        for _ in 0..20 {
            pace.found_nothing(now, 1.0);
            assert!(pace.next_at() - now <= IDLE.mul_f64(1.25));
            now = pace.next_at();
        }
        assert!(pace.is_idle());
        pace.found_nothing(now, 0.0);
        assert_eq!(pace.next_at() - now, IDLE.mul_f64(0.75), "and no faster");
        pace.wake(now);
        assert_eq!(pace.next_at(), now);
    }

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_is_asked_less_and_less() {
        let now = Instant::now();
        let mut pace = Pace::new(now);
        let mut last = Duration::ZERO;
        for _ in 0..10 {
            pace.failed(now, 0.5);
            let delay = pace.next_at() - now;
            assert!(delay >= last && delay <= ERROR_LATEST);
            last = delay;
        }
        assert_eq!(last, ERROR_LATEST);
        pace.wake(now);
        assert_eq!(
            pace.next_at() - now,
            last,
            "a wake does not hurry a store that is away"
        );
    }

    #[test]
    fn as_much_is_taken_ahead_as_will_be_started_in_time() {
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

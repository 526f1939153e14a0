//! Token bucket of calls: a rate per second, and a burst after a quiet time. It stores only the
//! time at which it will be full again, so it needs no refill.

use std::time::Duration;

use tenure_core::webhook::RateLimit;
use tokio::time::Instant;

/// Token bucket.
#[derive(Debug)]
pub(super) struct Bucket {
    full_at: Instant,
}

impl Bucket {
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// Calls allowed now.
    pub(super) fn ready(&self, rate: RateLimit, now: Instant) -> u32 {
        let interval = Self::interval(rate);
        let missing = self.full_at.saturating_duration_since(now);
        let depth = interval.saturating_mul(rate.burst);
        let left = depth.saturating_sub(missing);
        u32::try_from(left.as_nanos() / interval.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// Counts a call.
    pub(super) fn take(&mut self, rate: RateLimit, now: Instant) {
        self.full_at = self.full_at.max(now) + Self::interval(rate);
    }

    fn interval(rate: RateLimit) -> Duration {
        Duration::from_secs(1) / rate.per_second.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_allows_its_burst_and_then_its_rate() {
        let rate = RateLimit {
            per_second: 10,
            burst: 3,
        };
        let start = Instant::now();
        let mut bucket = Bucket::new(start);
        for left in [3, 2, 1] {
            assert_eq!(bucket.ready(rate, start), left);
            bucket.take(rate, start);
        }
        assert_eq!(bucket.ready(rate, start), 0);
        assert_eq!(bucket.ready(rate, start + Duration::from_millis(99)), 0);
        assert_eq!(bucket.ready(rate, start + Duration::from_millis(100)), 1);
        let (mut now, mut taken) = (start, 0);
        while now < start + Duration::from_secs(10) {
            now += Duration::from_millis(5);
            while bucket.ready(rate, now) > 0 {
                bucket.take(rate, now);
                taken += 1;
            }
        }
        assert_eq!(taken, 100, "ten a second for ten seconds");
        let quiet = now + Duration::from_hours(1);
        assert_eq!(bucket.ready(rate, quiet), 3, "never more than the burst");
    }
}

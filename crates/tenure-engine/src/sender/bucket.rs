//! A bucket of calls: so many per second over time, and a burst after a quiet while. Nothing but
//! the moment from which it would be full again is kept, so nothing has to be filled up.

use std::time::Duration;

use tenure_core::webhook::Rate;
use tokio::time::Instant;

/// A bucket of calls; see the file.
#[derive(Debug)]
pub(super) struct Bucket {
    full_at: Instant,
}

impl Bucket {
    pub(super) fn new(now: Instant) -> Self {
        Self { full_at: now }
    }

    /// How many calls may leave now.
    pub(super) fn ready(&self, rate: Rate, now: Instant) -> u32 {
        let each = Self::each(rate);
        let missing = self.full_at.saturating_duration_since(now);
        let depth = each.saturating_mul(rate.burst);
        let left = depth.saturating_sub(missing);
        u32::try_from(left.as_nanos() / each.as_nanos().max(1)).unwrap_or(u32::MAX)
    }

    /// A call leaves.
    pub(super) fn take(&mut self, rate: Rate, now: Instant) {
        self.full_at = self.full_at.max(now) + Self::each(rate);
    }

    fn each(rate: Rate) -> Duration {
        Duration::from_secs(1) / rate.per_second.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_bucket_gives_its_burst_and_then_so_many_a_second() {
        let rate = Rate {
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

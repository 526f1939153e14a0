//! Progress of the work on a matrix, for display.

use std::time::Duration;

use crate::time::Timestamp;

/// Progress of the work on a matrix.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::Timestamp;
/// use tenure_core::job::Progress;
///
/// let progress = Progress {
///     total: Some(100),
///     done: 20,
///     running: 2,
///     failed: 5,
///     rows: 50_000,
///     began_at: Some(Timestamp::from_micros(0)),
///     now: Timestamp::from_micros(10_000_000),
/// };
/// assert_eq!(progress.rows_per_second(), Some(5_000.0));
/// assert_eq!(progress.left(), Some(Duration::from_secs(30)));
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// Number of chunks, if a handler reported it.
    pub total: Option<u64>,
    /// Chunks done.
    pub done: u64,
    /// Chunks under a live lease.
    pub running: u64,
    /// Chunks that failed for good.
    pub failed: u64,
    /// Rows of the chunks done.
    pub rows: u64,
    /// Time of the first claim of a chunk.
    pub began_at: Option<Timestamp>,
    /// Time of the store.
    pub now: Timestamp,
}

impl Progress {
    /// Rows per second since the first claim; `None` before it.
    pub fn rows_per_second(&self) -> Option<f64> {
        let seconds = self.now.since(self.began_at?).as_secs_f64();
        // A float is precise enough for a rate.
        #[expect(
            clippy::as_conversions,
            clippy::cast_precision_loss,
            reason = "a rate for people"
        )]
        let rows = self.rows as f64;
        (seconds > 0.0).then(|| rows / seconds)
    }

    /// Chunks that need no more work: done, or failed for good.
    pub fn ended(&self) -> u64 {
        self.done.saturating_add(self.failed)
    }

    /// Estimated remaining time at the pace so far; `None` if the total or the pace is unknown.
    /// Chunks that failed for good count as finished.
    pub fn left(&self) -> Option<Duration> {
        let total = self.total?;
        let ended = u32::try_from(self.ended())
            .ok()
            .filter(|ended| *ended > 0)?;
        let left = u32::try_from(total.saturating_sub(self.ended())).ok()?;
        let each = self.now.since(self.began_at?) / ended;
        Some(each.saturating_mul(left))
    }
}

//! Progress: how far the work on a matrix has come, for people who wait for it.

use std::time::Duration;

use crate::time::Timestamp;

/// How far the work on a matrix has come.
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
    /// How many chunks there are, if somebody has said so.
    pub total: Option<u64>,
    /// How many are done.
    pub done: u64,
    /// How many are in hand.
    pub running: u64,
    /// How many failed for good.
    pub failed: u64,
    /// The rows of those that are done.
    pub rows: u64,
    /// When the first chunk was taken in hand.
    pub began_at: Option<Timestamp>,
    /// The store's clock.
    pub now: Timestamp,
}

impl Progress {
    /// Rows per second since it began.
    pub fn rows_per_second(&self) -> Option<f64> {
        let seconds = self.now.since(self.began_at?).as_secs_f64();
        // Rows of a table fit a float well enough for a rate.
        #[expect(
            clippy::as_conversions,
            clippy::cast_precision_loss,
            reason = "a rate for people"
        )]
        let rows = self.rows as f64;
        (seconds > 0.0).then(|| rows / seconds)
    }

    /// How many need nobody any more: those that are done, and those that failed for good.
    pub fn ended(&self) -> u64 {
        self.done.saturating_add(self.failed)
    }

    /// How long it will take at the pace so far. What failed for good took its time, and is not
    /// waited for.
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

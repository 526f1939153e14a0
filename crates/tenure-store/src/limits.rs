//! Limits that every store applies.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use std::time::Duration;

/// Maximum lapsed leases (rows, in a lease table) that one reap within a claim ends.
pub(crate) const INLINE_REAP_LIMIT: u32 = 100;

/// Maximum separate topics of a queue. Events of further topics that a claim does not take wait for
/// [`STRAY_DELAY`] in the lane of their queue.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const SEPARATE_TOPICS_MAX: i64 = 1_000;

/// Delay of an event of a topic that the claim does not take and that cannot become separate.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) const STRAY_DELAY: Duration = Duration::from_mins(1);

/// Longest span in a statement, about 1000 years; longer ones are cut to it.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
const SPAN_MAX: Duration = Duration::from_hours(24 * 366 * 1000);

/// A span in whole microseconds, the unit of the statements.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.min(SPAN_MAX).as_micros()).unwrap_or(i64::MAX)
}

//! The limits that every store keeps.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use std::time::Duration;

/// A claim that comes back short ends at most this many lapsed leases (rows, in a lease table).
pub(crate) const INLINE_REAP_LIMIT: u32 = 100;

/// Longer spans are cut: no calendar holds them.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
const SPAN_MAX: Duration = Duration::from_hours(24 * 366 * 1000);

/// A span in whole microseconds, as the statements take it.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.min(SPAN_MAX).as_micros()).unwrap_or(i64::MAX)
}

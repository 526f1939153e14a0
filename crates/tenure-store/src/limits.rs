//! Limits that every store applies.

#[cfg(any(feature = "postgres", feature = "sqlite"))]
use std::time::Duration;

/// Maximum lapsed leases (rows, in a lease table) that one reap within a claim ends.
pub(crate) const INLINE_REAP_LIMIT: u32 = 100;

/// Longest span in a statement, about 1000 years; longer ones are cut to it.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
const SPAN_MAX: Duration = Duration::from_hours(24 * 366 * 1000);

/// A span in whole microseconds, the unit of the statements.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn micros(span: Duration) -> i64 {
    i64::try_from(span.min(SPAN_MAX).as_micros()).unwrap_or(i64::MAX)
}

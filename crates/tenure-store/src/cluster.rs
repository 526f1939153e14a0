//! Cluster settings and workers in the form in which every store saves them.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_core::Invalid;
use tenure_core::store::{ChangeSettings, StoreError, WorkerReport};

use crate::error_text::error_text;

/// Time after its last report at which a worker is pruned.
pub(crate) const WORKERS_KEPT: Duration = Duration::from_hours(24);

/// The requested changes, one per name; the last value of a repeated name wins.
///
/// # Errors
/// A name or value contains NUL, which PostgreSQL's text cannot hold.
pub(crate) fn requested<'a>(
    verb: &'static str,
    change: &'a ChangeSettings,
) -> Result<BTreeMap<&'a str, Option<&'a str>>, StoreError> {
    let mut asked = BTreeMap::new();
    for (name, value) in &change.values {
        let value = value.as_deref();
        if name.contains('\0') || value.is_some_and(|value| value.contains('\0')) {
            let found = format!("{name:?}, with a NUL in its name or value");
            let problem = Invalid::new("setting", found, "text without one");
            return Err(StoreError::invalid(verb, &problem));
        }
        asked.insert(name.as_str(), value);
    }
    Ok(asked)
}

/// A worker's report as saved: texts truncated and without NUL, the time to the next report in
/// whole milliseconds, rounded up.
pub(crate) fn kept_report(report: &WorkerReport) -> WorkerReport {
    WorkerReport {
        host: error_text(&report.host),
        version: error_text(&report.version),
        queues: error_text(&report.queues),
        next_within: from_millis(millis(report.next_within)),
        ..report.clone()
    }
}

/// Whole milliseconds, rounded up, so that a worker is not reported as silent too early.
pub(crate) fn millis(span: Duration) -> i64 {
    let whole = span.as_nanos().div_ceil(1_000_000);
    i64::try_from(whole).unwrap_or(i64::MAX)
}

pub(crate) fn from_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// A version as the databases store it. A larger version was never issued, so it matches no row.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn stored_version(version: u64) -> i64 {
    i64::try_from(version).unwrap_or(i64::MAX)
}

/// A stored number, which is never negative.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn unsigned<T: TryFrom<i64> + Default>(stored: i64) -> T {
    T::try_from(stored).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_rounded_up_to_milliseconds() {
        for (span, kept) in [
            (Duration::ZERO, 0),
            (Duration::from_nanos(1), 1),
            (Duration::from_millis(7_500), 7_500),
            (Duration::from_micros(7_500_001), 7_501),
            (Duration::MAX, i64::MAX),
        ] {
            assert_eq!(millis(span), kept, "{span:?}");
            let stored = from_millis(kept);
            assert!(stored >= span || kept == i64::MAX);
        }
    }
}

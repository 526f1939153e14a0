//! Moments, and the port through which the rest of Tenure learns what time it is.
//!
//! The core never reads a clock: a moment always comes in as an argument called `now`.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

use crate::invalid::Invalid;

/// A moment, in whole microseconds since the Unix epoch.
///
/// Microseconds are what PostgreSQL keeps; with anything finer a moment that went through the
/// database would not equal the one that was sent.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::Timestamp;
///
/// let start = Timestamp::from_micros(0);
/// assert_eq!(start.after(Duration::from_secs(30)).to_string(), "1970-01-01T00:00:30Z");
/// ```
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Timestamp(i64);

impl Timestamp {
    /// The moment this many microseconds after the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The moment `span` later; stops at the end of representable time.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    /// The moment `span` earlier; stops at the start of representable time.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(micros(span)))
    }

    /// How long after `earlier` this is; zero when it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A duration in whole microseconds, as far as they fit.
fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(moment) => moment.fmt(f),
            // Outside the calendar (years ±9999): the number says more than an error.
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Reads a duration as people write it: `30s`, `5m`, `1h 30m`, `2 days`; a day has 24 hours.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(tenure_core::parse_duration("1h 30m"), Ok(Duration::from_secs(5_400)));
/// assert!(tenure_core::parse_duration("soon").is_err());
/// ```
///
/// # Errors
/// It is no duration, has no fixed length (a month), or is less than nothing.
pub fn parse_duration(text: &str) -> Result<Duration, Invalid> {
    let wrong = |found: &str| {
        let found = format!("{text:?}{found}");
        let expected = "one such as 30s, 5m or 1h 30m";
        Err(Invalid::new("the duration", found, expected))
    };
    let Ok(span) = text.parse::<Span>() else {
        return wrong("");
    };
    let Ok(length) = span.to_duration(SpanRelativeTo::days_are_24_hours()) else {
        return wrong(", of no fixed length");
    };
    if length.is_negative() {
        return wrong(", less than nothing");
    }
    Ok(length.unsigned_abs())
}

/// A duration as text that [`parse_duration`] reads back as the same: `7s 500ms`, `36h`, `7d`.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::{duration_text, parse_duration};
///
/// for (hours, text) in [(36, "36h"), (168, "7d")] {
///     let length = Duration::from_hours(hours);
///     assert_eq!(duration_text(length), text);
///     assert_eq!(parse_duration(text), Ok(length));
/// }
/// ```
pub fn duration_text(length: Duration) -> String {
    let days = length.as_secs() / DAY;
    if days > 0 && length == Duration::from_secs(days * DAY) {
        return format!("{days}d");
    }
    match SignedDuration::try_from(length) {
        Ok(length) => format!("{length:#}"),
        // Longer than the calendar; no setting is.
        Err(_) => format!("{}s", length.as_secs()),
    }
}

/// The seconds of a day.
const DAY: u64 = 86_400;

/// Units in seconds, the largest first.
const UNITS: [(u64, &str); 4] = [(DAY, "d"), (3_600, "h"), (60, "m"), (1, "s")];

/// A duration for people, in its two largest units: `0s`, `250ms`, `12s`, `3m 5s`, `2h`, `4d 7h`.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(tenure_core::brief_duration(Duration::from_secs(185)), "3m 5s");
/// ```
pub fn brief_duration(length: Duration) -> String {
    let seconds = length.as_secs();
    if seconds == 0 {
        return match length.as_millis() {
            0 => "0s".to_owned(),
            millis => format!("{millis}ms"),
        };
    }
    let mut rest = seconds;
    let mut parts = Vec::new();
    for (size, unit) in UNITS {
        let count = rest / size;
        rest %= size;
        if count > 0 {
            parts.push(format!("{count}{unit}"));
        } else if !parts.is_empty() {
            break;
        }
        if parts.len() == 2 {
            break;
        }
    }
    parts.join(" ")
}

/// Tells the time. The memory and SQLite stores judge leases by it; PostgreSQL judges by its own.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> Timestamp;
}

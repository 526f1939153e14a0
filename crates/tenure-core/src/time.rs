//! Timestamps, durations, and the port for the current time.
//!
//! The core never reads a clock: the time is always an argument called `now`.

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Span, SpanRelativeTo};

use crate::invalid::Invalid;

/// A point in time, in whole microseconds since the Unix epoch.
///
/// PostgreSQL stores microseconds; with a finer resolution a timestamp read back from the database
/// would differ from the one written.
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
    /// The time this many microseconds after the Unix epoch.
    pub const fn from_micros(micros: i64) -> Self {
        Self(micros)
    }

    /// Microseconds since the Unix epoch.
    pub const fn as_micros(self) -> i64 {
        self.0
    }

    /// The time `span` later; saturates at the end of representable time.
    #[must_use]
    pub fn after(self, span: Duration) -> Self {
        Self(self.0.saturating_add(micros(span)))
    }

    /// The time `span` earlier; saturates at the start of representable time.
    #[must_use]
    pub fn before(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(micros(span)))
    }

    /// Time since `earlier`; zero if that is not earlier.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

/// A duration in whole microseconds; saturates.
fn micros(span: Duration) -> i64 {
    i64::try_from(span.as_micros()).unwrap_or(i64::MAX)
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_microsecond(self.0) {
            Ok(moment) => moment.fmt(f),
            // Outside the calendar (years ±9999): the number is more useful than an error.
            Err(_) => write!(f, "{}us", self.0),
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Parses a duration in human notation: `30s`, `5m`, `1h 30m`, `2 days`; a day has 24 hours.
///
/// ```
/// use std::time::Duration;
///
/// assert_eq!(tenure_core::parse_duration("1h 30m"), Ok(Duration::from_secs(5_400)));
/// assert!(tenure_core::parse_duration("soon").is_err());
/// ```
///
/// # Errors
/// The text is not a duration, or the duration has no fixed length (a month) or is negative.
pub fn parse_duration(text: &str) -> Result<Duration, Invalid> {
    let wrong = |found: &str| {
        let found = format!("{text:?}{found}");
        let expected = "one such as 30s, 5m or 1h 30m";
        Err(Invalid::new("the duration", found, expected))
    };
    let span = match text.parse::<Span>() {
        Ok(span) => span,
        Err(error) if error.is_range() => return wrong(", too long"),
        Err(_) => return wrong(""),
    };
    let length = match span.to_duration(SpanRelativeTo::days_are_24_hours()) {
        Ok(length) => length,
        Err(error) if error.is_range() => return wrong(", too long"),
        Err(_) => return wrong(", without a fixed length"),
    };
    if length.is_negative() {
        return wrong(", negative");
    }
    Ok(length.unsigned_abs())
}

/// Formats a duration as text that [`parse_duration`] parses: `7s 500ms`, `36h`, `7d`.
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
        // More than `i64::MAX` seconds; settings are never that long.
        Err(_) => format!("{}s", length.as_secs()),
    }
}

/// Seconds in a day.
const DAY: u64 = 86_400;

/// Units in seconds, the largest first.
const UNITS: [(u64, &str); 4] = [(DAY, "d"), (3_600, "h"), (60, "m"), (1, "s")];

/// Formats a duration for people, in its two largest units: `0s`, `250ms`, `12s`, `3m 5s`, `4d 7h`.
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

/// Source of the time. The memory and SQLite stores judge leases by it; PostgreSQL by its own
/// clock.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Current time.
    fn now(&self) -> Timestamp;
}

//! Durations and timestamps for people: `30s`, `1h 30m`, `2026-11-15`, `3m ago`.

use std::time::Duration;

use tenure::lease::RetryPolicy;
pub(crate) use tenure::settings::{brief_duration as brief, parse_duration as duration};
use tenure::store::{Clock, SystemClock, Timestamp};
use tenure::{Invalid, Term};

/// The current time of this machine's clock, for ages and `--since`; leases use the store's clock.
pub(crate) fn now() -> Timestamp {
    SystemClock.now()
}

/// Parses a time: `2026-11-15T10:00:00Z`, `2026-11-15` (its start in UTC), or a duration before
/// now.
pub(crate) fn moment(text: &str) -> Result<Timestamp, Invalid> {
    if let Ok(moment) = text.parse::<jiff::Timestamp>() {
        return Ok(Timestamp::from_micros(moment.as_microsecond()));
    }
    if let Ok(date) = text.parse::<jiff::civil::Date>() {
        let start = date
            .to_zoned(jiff::tz::TimeZone::UTC)
            .map_err(|cause| Invalid::new("the date", format!("{text:?} ({cause})"), "a date"))?;
        return Ok(Timestamp::from_micros(start.timestamp().as_microsecond()));
    }
    if let Ok(age) = duration(text) {
        return Ok(now().before(age));
    }
    let expected = "a duration before now (1h 30m), a date (2026-11-15) or 2026-11-15T10:00:00Z";
    Err(Invalid::new("the time", format!("{text:?}"), expected))
}

/// Parses the term of a worker's leases.
pub(crate) fn term(text: &str) -> Result<Term, Invalid> {
    Term::renewable(duration(text)?)
}

/// Parses a delay before a retry.
pub(crate) fn delay(text: &str) -> Result<Duration, Invalid> {
    let delay = duration(text)?;
    if RetryPolicy::DELAYS.contains(&delay) {
        return Ok(delay);
    }
    Err(Invalid::new("the delay", format!("{text:?}"), "1ms to 30d"))
}

/// `3m 5s ago`, or `in 20s`.
pub(crate) fn relative(moment: Timestamp, now: Timestamp) -> String {
    if moment > now {
        return format!("in {}", brief(moment.since(now)));
    }
    format!("{} ago", brief(now.since(moment)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_as_people_write_them() {
        for (text, seconds) in [
            ("30s", 30),
            ("5m", 300),
            ("1h 30m", 5_400),
            ("1h30m", 5_400),
            ("2 days", 172_800),
            ("1w", 604_800),
            ("PT10S", 10),
            ("0s", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        assert_eq!(duration("100ms"), Ok(Duration::from_millis(100)));
    }

    #[test]
    fn an_invalid_duration_is_refused_with_an_example() {
        for text in [
            "",
            "30",
            "-5s",
            "5s ago",
            "1 month",
            "soon",
            "--json",
            "99999999999999999d",
        ] {
            let problem = duration(text).unwrap_err().to_string();
            assert!(problem.contains("such as 30s"), "{text:?}: {problem}");
        }
    }

    #[test]
    fn timestamps_are_parsed_as_people_write_them() {
        let day = Timestamp::from_micros(1_794_700_800_000_000);
        assert_eq!(moment("2026-11-15"), Ok(day));
        assert_eq!(moment("2026-11-15T00:00:00Z"), Ok(day));
        assert_eq!(moment("2026-11-15T01:00:00+01:00"), Ok(day));
        let hour_ago = now().before(Duration::from_hours(1));
        let read = moment("1h").unwrap();
        assert!(read >= hour_ago && read.since(hour_ago) < Duration::from_mins(1));
        assert!(moment("yesterday").is_err());
    }

    #[test]
    fn a_brief_duration_has_at_most_two_units() {
        for (millis, text) in [
            (0, "0s"),
            (250, "250ms"),
            (12_900, "12s"),
            (185_000, "3m 5s"),
            (7_200_000, "2h"),
            (7_205_000, "2h"),
            (370_800_000, "4d 7h"),
        ] {
            assert_eq!(brief(Duration::from_millis(millis)), text);
        }
        let now = Timestamp::from_micros(1_000_000_000);
        assert_eq!(relative(now.after(Duration::from_secs(20)), now), "in 20s");
        assert_eq!(
            relative(now.before(Duration::from_secs(20)), now),
            "20s ago"
        );
    }
}

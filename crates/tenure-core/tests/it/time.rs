//! Timestamps and terms: arithmetic saturates at the limits and never panics.

use std::time::Duration;

use proptest::prelude::*;
use tenure_core::{Term, Timestamp};

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        4 => any::<u64>().prop_map(Duration::from_micros),
        4 => (0_u64..1_000_000).prop_map(Duration::from_micros),
        1 => Just(Duration::MAX),
        1 => any::<u64>().prop_map(Duration::from_nanos),
    ]
}

/// Timestamp of a wide number, saturated at the nearer limit.
fn clamped(micros: i128) -> Timestamp {
    let ends = i128::from(i64::MIN)..=i128::from(i64::MAX);
    let micros = micros.clamp(*ends.start(), *ends.end());
    Timestamp::from_micros(i64::try_from(micros).expect("it was clamped"))
}

fn micros(span: Duration) -> i128 {
    i128::try_from(span.as_micros()).expect("the microseconds of a duration fit an i128")
}

proptest! {
    #[test]
    fn timestamps_are_added_like_numbers_and_saturate(start: i64, span in any_span()) {
        let moment = Timestamp::from_micros(start);
        let wide = i128::from(start);
        prop_assert_eq!(moment.as_micros(), start);
        // A span beyond the range of a timestamp counts as the longest possible span.
        let micros = micros(span).min(i128::from(i64::MAX));
        prop_assert_eq!(moment.after(span), clamped(wide + micros));
        prop_assert_eq!(moment.before(span), clamped(wide - micros));
    }

    #[test]
    fn the_time_between_two_timestamps_is_exact_or_saturates(earlier: i64, later: i64) {
        let (from, to) = (Timestamp::from_micros(earlier), Timestamp::from_micros(later));
        let exact = i128::from(later) - i128::from(earlier);
        let expected = exact.clamp(0, i128::from(i64::MAX));
        prop_assert_eq!(micros(to.since(from)), expected);
        prop_assert!(from == to || from.since(to).is_zero() || to.since(from).is_zero());
    }

    #[test]
    fn every_timestamp_can_be_formatted(micros: i64) {
        let moment = Timestamp::from_micros(micros);
        prop_assert_eq!(format!("{moment:?}"), moment.to_string());
        prop_assert!(!moment.to_string().is_empty());
    }

    #[test]
    fn a_term_is_a_millisecond_to_a_day(span in any_span()) {
        let bounds = Duration::from_millis(1)..=Duration::from_hours(24);
        match Term::new(span) {
            Ok(term) => {
                prop_assert!(bounds.contains(&span));
                prop_assert_eq!(term.length(), span);
                prop_assert_eq!(u128::try_from(term.millis()).unwrap(), span.as_millis());
            }
            Err(problem) => {
                prop_assert!(!bounds.contains(&span));
                prop_assert_eq!(problem.field(), "term");
            }
        }
    }
}

#[test]
fn the_shortest_and_the_longest_term_are_accepted_and_nothing_beyond() {
    for edge in [Duration::from_millis(1), Duration::from_hours(24)] {
        assert!(Term::new(edge).is_ok());
    }
    assert!(Term::new(Duration::from_nanos(999_999)).is_err());
    assert!(Term::new(Duration::from_hours(24) + Duration::from_nanos(1)).is_err());
}

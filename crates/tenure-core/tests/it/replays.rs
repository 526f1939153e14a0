//! Bulk replays: rates in text form, filters in their stored form.

use tenure_core::store::{Filter, Kind, NewReplay, ReplayRate};
use tenure_core::{ItemId, QueueName, State, Timestamp};

#[test]
fn a_rate_is_parsed_from_human_notation() {
    for (text, number, text_again) in [
        ("1/s", 60, "1/s"),
        ("50/s", 3_000, "50/s"),
        ("600/m", 600, "10/s"),
        ("1/m", 1, "1/m"),
        ("90 / m", 90, "90/m"),
        ("1000000/s", 60_000_000, "1000000/s"),
    ] {
        let rate = ReplayRate::parse(text).unwrap();
        assert_eq!(
            (rate.number(), rate.to_string().as_str()),
            (number, text_again)
        );
        assert_eq!(ReplayRate::per_minute(number), Some(rate));
    }
    for text in ["", "50", "0/s", "-1/s", "50/h", "/s", "1.5/s", "1000001/s"] {
        let problem = ReplayRate::parse(text).unwrap_err().to_string();
        assert!(problem.contains("50/s"), "{text:?}: {problem}");
    }
}

#[test]
fn the_size_and_the_delay_of_a_step_follow_from_the_rate() {
    for (text, size, micros) in [
        ("1/s", 1, 1_000_000),
        ("15/s", 1, 66_666),
        ("50/s", 5, 100_000),
        ("600/m", 1, 100_000),
        ("1/m", 1, 60_000_000),
        ("10000/s", 1_000, 100_000),
        ("1000000/s", 1_000, 1_000),
    ] {
        let rate = ReplayRate::parse(text).unwrap();
        assert_eq!(rate.step(1_000), size, "{text}");
        assert_eq!(rate.wait(size).as_micros(), micros, "{text}");
    }
    assert_eq!(
        ReplayRate::parse("50/s").unwrap().step(0),
        1,
        "a step has at least one item"
    );
}

#[test]
fn a_filter_is_unchanged_after_a_round_trip_through_json() {
    let filter = Filter {
        state: Some(State::Done),
        topic: Some("it's \"odd\"".to_owned()),
        queue: Some(QueueName::new("mail").unwrap()),
        key: Some("customer-7".to_owned()),
        since: Some(Timestamp::from_micros(-1)),
        until: Some(Timestamp::from_micros(7)),
        kind: Kind::Deliveries,
        endpoint: Some(3),
        source: Some(ItemId::new(17)),
        before: None,
    };
    assert_eq!(Filter::from_json(&filter.to_json()), Some(filter));
    for text in [
        "",
        "{}",
        "[]",
        r#"{"state":"odd"}"#,
        r#"{"state":"dead","queue":""}"#,
    ] {
        assert_eq!(Filter::from_json(text), None, "{text:?}");
    }
}

#[test]
fn only_settled_items_can_be_replayed() {
    for state in [None, Some(State::Pending), Some(State::Claimed)] {
        let filter = Filter {
            state,
            ..Filter::default()
        };
        let problem = NewReplay::new(filter).unwrap_err().to_string();
        assert!(problem.contains("done or dead"), "{problem}");
    }
}

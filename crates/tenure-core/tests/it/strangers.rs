//! Untrusted text: any input is parsed or refused, and nothing panics.

use std::time::Duration;

use proptest::prelude::*;
use tenure_core::{
    Event, QueueName, Setting, Settings, Token, TopicPattern, WorkerId, duration_text,
    parse_duration,
};

/// Any text, often nearly valid.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[0-9]{0,25}(\\.[0-9]{0,9})?( ?(ns|us|µs|ms|s|m|h|d|w|mo|y|days?|weeks?)){0,2}",
        "-?P?[0-9]{0,20}[YMWD]?T?[0-9]{0,20}[HMS]",
        "([a-z*]{0,3}[.]{0,2}){0,6}",
        "[\\[{\"\\\\u0-9dD:,}\\]]{0,40}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn any_text_is_parsed_as_a_duration_or_refused(text in any_text()) {
        if let Ok(span) = parse_duration(&text) {
            prop_assert!(duration_text(span).len() < 100);
        }
    }

    #[test]
    fn any_text_is_parsed_as_a_name_or_refused(text in any_text(), topic in any_text()) {
        if let Ok(pattern) = TopicPattern::new(&text) {
            prop_assert_eq!(pattern.matches(&topic), pattern.matches(&topic));
        }
        if let Ok(queue) = QueueName::new(&text) {
            prop_assert_eq!(queue.as_str(), text.as_str());
        }
        prop_assert!(Token::parse(&text).is_none_or(|token| token.expose() == text));
        prop_assert!(WorkerId::parse(&text).is_none_or(|worker| worker.as_str() == text));
    }

    #[test]
    fn any_text_is_parsed_as_an_event_or_refused(topic in any_text(), payload in any_text()) {
        if let Ok(event) = Event::from_json(&topic, &payload) {
            prop_assert!(event.payload_bytes().is_ok());
        }
    }

    /// Settings that pass the check are usable: nothing derived from them overflows.
    #[test]
    fn any_text_is_parsed_as_a_setting_or_refused(
        texts in prop::collection::vec((0..Setting::ALL.len(), any_text()), 1..9),
    ) {
        let mut settings = Settings::default();
        for (nth, text) in texts {
            // A refused value changes nothing.
            let before = settings.clone();
            if settings.set(Setting::ALL[nth], &text).is_err() {
                prop_assert_eq!(&settings, &before);
            }
        }
        if settings.check().is_ok() {
            let timing = settings.timing();
            prop_assert!(timing.heartbeat * 2 <= timing.term.length());
            prop_assert!(settings.max_hold() > Duration::ZERO);
            prop_assert!(settings.shutdown_timeout() <= timing.term.length());
            prop_assert!(timing.max_hold.checked_mul(2).is_some());
        }
    }
}

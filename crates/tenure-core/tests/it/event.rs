//! Events: the checks never panic and accept exactly the documented input, and an event returns its
//! topic and payload byte for byte.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use tenure_core::{
    DELAY_MAX, Encoding, Event, HEADERS_BYTES_MAX, Invalid, NAME_BYTES_MAX, NewEvent,
    PAYLOAD_BYTES_MAX, PAYLOAD_DEPTH_MAX, Priority, Problems, QueueName, StoredEvent,
};

/// Text with many characters that trip parsers.
fn any_text() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[ -~]{0,20}",
        "\\PC{250,260}",
        "[a\0\n\r\u{7f}\u{85}\u{2028}é]{0,8}",
    ]
}

/// A valid event.
fn new() -> NewEvent {
    NewEvent::new("order.paid", &7)
}

fn fields(problems: &Problems) -> Vec<&'static str> {
    problems.iter().map(Invalid::field).collect()
}

/// Text that is JSON, or nearly so.
fn json_like() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<String>(),
        "[\\[\\]{}\",:0-9.eE+\\\\utrfalsn -]{0,24}",
        any_json().prop_map(|value| value.to_string()),
    ]
}

fn any_json() -> impl Strategy<Value = serde_json::Value> {
    let leaf = prop_oneof![
        Just(serde_json::Value::Null),
        any::<bool>().prop_map(Into::into),
        any::<i64>().prop_map(Into::into),
        any::<String>().prop_map(Into::into),
    ];
    leaf.prop_recursive(6, 64, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Into::into),
            prop::collection::btree_map(any::<String>(), inner, 0..6)
                .prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

fn is_name(text: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&text.len()) && !text.chars().any(char::is_control)
}

/// An event as a store returns it.
fn stored(payload: &str, encoding: Option<Encoding>) -> Event {
    Event::from(StoredEvent {
        topic: "order.paid".to_owned(),
        payload: payload.to_owned(),
        encoding,
        event_id: uuid::Uuid::nil(),
        queue: QueueName::default(),
        priority: Priority::default(),
        ordering_key: None,
        headers: BTreeMap::new(),
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn an_accepted_topic_and_payload_are_kept_byte_for_byte(
        topic in any_text(),
        payload in json_like(),
    ) {
        match Event::from_json(&topic, payload.clone()) {
            Ok(event) => {
                prop_assert!(is_name(&topic));
                let parsed = serde_json::from_str::<&serde_json::value::RawValue>(&payload);
                prop_assert!(parsed.is_ok(), "{:?} is not JSON", payload);
                prop_assert_eq!(event.topic(), &topic);
                prop_assert_eq!(event.payload(), &payload);
                prop_assert_eq!(event.payload_bytes().unwrap(), payload.into_bytes());
                prop_assert_eq!(event.encoding(), None);
            }
            Err(problem) if problem.field() == "topic" => prop_assert!(!is_name(&topic)),
            Err(problem) => {
                prop_assert_eq!(problem.field(), "payload");
                let parsed: Result<serde_json::Value, _> = serde_json::from_str(&payload);
                prop_assert!(parsed.is_err(), "{:?} was refused: {}", payload, problem);
            }
        }
    }

    #[test]
    fn every_json_value_is_accepted(value in any_json()) {
        let event = Event::new("order.paid", &value).unwrap();
        let again: serde_json::Value = serde_json::from_str(event.payload()).unwrap();
        prop_assert_eq!(again, value);
    }

    #[test]
    fn a_binary_payload_is_returned_unchanged(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let event = Event::from_bytes("order.paid", &bytes).unwrap();
        prop_assert_eq!(event.payload_bytes().unwrap(), bytes);
        let stored = stored(event.payload(), event.encoding());
        prop_assert_eq!(stored.payload_bytes(), event.payload_bytes());
    }

    /// A store returns payloads unchecked, so a payload marked as base64 may have any content.
    #[test]
    fn invalid_base64_is_an_error_and_not_a_panic(payload in json_like()) {
        let answer = stored(&payload, Some(Encoding::Base64)).payload_bytes();
        prop_assert!(answer.is_ok() || answer.unwrap_err().field() == "payload");
    }

    #[test]
    fn exactly_the_documented_names_are_accepted(text in any_text()) {
        let answers = [
            new().queue(&text).build().map(|event| event.queue().to_string()),
            new().key(&text).build().map(|event| event.key().unwrap_or("").to_owned()),
            new().dedupe(&text).build().map(|event| event.dedupe().unwrap_or("").to_owned()),
            QueueName::new(&text).map(|queue| queue.as_str().to_owned()).map_err(Problems::from),
        ];
        for answer in answers {
            prop_assert_eq!(answer.ok(), is_name(&text).then(|| text.clone()));
        }
    }

    #[test]
    fn header_names_are_stored_in_lowercase_or_refused(
        name in prop_oneof![any_text(), "[A-Za-z0-9!#$%&'*+.^_`|~-]{1,12}"],
        value in any_text(),
    ) {
        match new().header(&name, &value).build() {
            Ok(event) => {
                prop_assert_eq!(event.headers().get(&name.to_ascii_lowercase()), Some(&value));
                prop_assert!(!value.chars().any(char::is_control));
                prop_assert!(name.is_ascii() && !name.contains([' ', ':', '"', '(', ',']));
            }
            Err(problems) if fields(&problems) == ["header value"] => {
                prop_assert!(value.chars().any(char::is_control));
            }
            Err(problems) => prop_assert_eq!(fields(&problems), ["header name"]),
        }
    }

    #[test]
    fn the_total_size_of_headers_is_limited(lengths in prop::collection::vec(0_usize..6000, 1..6)) {
        let mut event = new();
        let mut bytes = 0;
        for (n, length) in lengths.into_iter().enumerate() {
            bytes += length + 2;
            event = event.header(&format!("h{n}"), &"x".repeat(length));
            if let Err(problems) = event.clone().build() {
                prop_assert_eq!(fields(&problems), ["headers"]);
                prop_assert!(bytes > HEADERS_BYTES_MAX);
                return Ok(());
            }
        }
        prop_assert!(bytes <= HEADERS_BYTES_MAX);
    }

    #[test]
    fn a_delay_is_at_most_ten_years(seconds: u64) {
        let delay = Duration::from_secs(seconds);
        let answer = new().delay(delay).build().map(|event| event.delay());
        prop_assert_eq!(answer.ok(), (delay <= DELAY_MAX).then_some(delay));
    }

    #[test]
    fn a_priority_is_0_to_7(level: u8) {
        let answer = Priority::new(level).map(Priority::level);
        prop_assert_eq!(answer.ok(), (level <= 7).then_some(level));
    }

    /// Brackets within strings do not count, and no text makes the count overflow.
    #[test]
    fn depth_is_counted_outside_strings(
        levels in 1_usize..200,
        noise in "([\\[{}\\]a]|\\\\\"|\\\\\\\\){0,40}",
    ) {
        let (open, close) = ("[".repeat(levels), "]".repeat(levels));
        let answer = Event::from_json("t", format!("{open}\"{noise}\"{close}"));
        prop_assert_eq!(answer.is_ok(), levels <= PAYLOAD_DEPTH_MAX, "{:?}", answer);
    }
}

#[test]
fn a_payload_is_accepted_up_to_the_size_limit() {
    let text = |bytes: usize| format!("\"{}\"", "x".repeat(bytes - 2));
    assert!(Event::from_json("t", text(PAYLOAD_BYTES_MAX)).is_ok());
    assert!(Event::from_json("t", text(PAYLOAD_BYTES_MAX + 1)).is_err());
    assert!(Event::from_bytes("t", &vec![0; PAYLOAD_BYTES_MAX]).is_err());
}

/// Also covers unclosed strings and escapes, a hundred thousand of each.
#[test]
fn a_deeply_nested_payload_is_refused_without_a_stack_overflow() {
    for text in ["[", "{\"a\":", "[{\"a\":", "\"\\", "\\\"["] {
        let problem = Event::from_json("t", text.repeat(100_000)).unwrap_err();
        assert_eq!(problem.field(), "payload");
    }
}

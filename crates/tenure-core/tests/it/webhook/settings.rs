//! Settings of an endpoint: all problems are reported at once, and JSON preserves every setting.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use tenure_core::Timestamp;
use tenure_core::TopicPattern;
use tenure_core::store::ChangeEndpoint;
use tenure_core::webhook::{
    Endpoint, EndpointHealth, EndpointId, EndpointSettings, EndpointState, NewEndpoint, OnGone,
    RateLimit, Schedule,
};

fn good() -> EndpointSettings {
    EndpointSettings::new("https://example.com/hooks", vec![TopicPattern::any()])
}

fn problems(settings: &EndpointSettings) -> Vec<&'static str> {
    match settings.check() {
        Ok(()) => Vec::new(),
        Err(problems) => problems.iter().map(tenure_core::Invalid::field).collect(),
    }
}

/// An address may contain a secret in its path, and free text anywhere.
/// Proves: S2-062
#[test]
fn debug_output_has_neither_the_address_nor_the_sealed_text() {
    let settings = EndpointSettings {
        description: "canary".to_owned(),
        metadata: [("canary".to_owned(), "canary".to_owned())].into(),
        ..EndpointSettings::new("https://example.com/canary", vec![TopicPattern::any()])
    };
    let id = EndpointId::new("billing").unwrap();
    let sealed = "canary".to_owned();
    let new = NewEndpoint {
        id: id.clone(),
        settings: settings.clone(),
        sealed: sealed.clone(),
    };
    let change = ChangeEndpoint {
        id,
        version: 1,
        settings: settings.clone(),
        sealed,
        state: EndpointState::Enabled,
        now: None,
    };
    for printed in [
        format!("{settings:?}"),
        format!("{new:?}"),
        format!("{change:?}"),
    ] {
        assert!(printed.contains("concurrency"), "{printed}");
        assert!(!printed.contains("canary"), "{printed}");
    }
}

#[test]
fn every_problem_is_reported_at_once() {
    assert_eq!(problems(&good()), Vec::<&str>::new());
    let bad = EndpointSettings {
        url: String::new(),
        description: "a\nb".into(),
        topics: Vec::new(),
        timeout: Duration::ZERO,
        concurrency: 0,
        rate: Some(RateLimit {
            per_second: 0,
            burst: 1,
        }),
        schedule: Schedule::default(),
        no_retry: vec![400, 200],
        on_gone: OnGone::Bury,
        metadata: BTreeMap::from([(String::new(), "x".into())]),
    };
    let expected = [
        "url",
        "description",
        "topics",
        "timeout",
        "concurrency",
        "rate",
        "no_retry",
        "metadata",
    ];
    assert_eq!(problems(&bad), expected);
}

/// A change to valid settings, and the fields that it makes invalid.
type Case = (fn(&mut EndpointSettings), &'static [&'static str]);

#[test]
fn limits_are_exact() {
    let cases: [Case; 18] = [
        (|it| it.url = "u".repeat(2048), &[]),
        (|it| it.url = "u".repeat(2049), &["url"]),
        (|it| it.url = "https://a\0b".into(), &["url"]),
        (|it| it.description = "d".repeat(1024), &[]),
        (|it| it.description = "d".repeat(1025), &["description"]),
        (|it| it.topics = vec![TopicPattern::any(); 100], &[]),
        (|it| it.topics = vec![TopicPattern::any(); 101], &["topics"]),
        (|it| it.timeout = Duration::from_secs(1), &[]),
        (|it| it.timeout = Duration::from_millis(999), &["timeout"]),
        (|it| it.timeout = Duration::from_mins(15), &[]),
        (
            |it| it.timeout = Duration::from_millis(900_001),
            &["timeout"],
        ),
        (|it| it.concurrency = 10_000, &[]),
        (|it| it.concurrency = 10_001, &["concurrency"]),
        (
            |it| {
                it.rate = Some(RateLimit {
                    per_second: 1,
                    burst: 0,
                });
            },
            &["rate"],
        ),
        (|it| it.no_retry = vec![300, 599], &[]),
        (|it| it.no_retry = vec![600], &["no_retry"]),
        (
            |it| drop(it.metadata.insert("k".into(), "v".repeat(4095))),
            &[],
        ),
        (
            |it| drop(it.metadata.insert("k".into(), "v".repeat(4096))),
            &["metadata"],
        ),
    ];
    for (nth, (change, expected)) in cases.iter().enumerate() {
        let mut settings = good();
        change(&mut settings);
        assert_eq!(problems(&settings), *expected, "case {nth}");
    }
}

#[test]
fn tenures_own_topics_match_only_patterns_that_name_them() {
    let takes = |patterns: &[&str], topic: &str| {
        let patterns = patterns.iter().map(|text| TopicPattern::new(text));
        let patterns = patterns.collect::<Result<Vec<_>, _>>();
        let patterns = patterns.expect("patterns");
        EndpointSettings::new("https://example.com", patterns).takes(topic)
    };
    assert!(takes(&["*"], "order.paid") && takes(&["order.*"], "order.paid"));
    assert!(!takes(&["order.*"], "mail.sent") && !takes(&[], "order.paid"));
    for hidden in [&["*"][..], &["*.*"], &["*.endpoint.disabled", "order.*"]] {
        assert!(!takes(hidden, "tenure.endpoint.disabled"), "{hidden:?}");
    }
    for named in [&["tenure.*"][..], &["*", "tenure.endpoint.disabled"]] {
        assert!(takes(named, "tenure.endpoint.disabled"), "{named:?}");
    }
    assert!(takes(&["*"], "tenured.professor"), "another first segment");
}

#[test]
fn an_endpoint_prints_no_secret_and_receives_only_while_enabled() {
    let mut settings = good();
    settings.url = "https://user:hunter2@example.com/?key=hunter2".into();
    let endpoint = Endpoint {
        id: EndpointId::new("billing").expect("a name"),
        number: 7,
        settings,
        sealed: "hunter2".into(),
        state: EndpointState::Enabled,
        health: EndpointHealth::default(),
        version: 1,
        created_at: Timestamp::from_micros(0),
    };
    let printed = format!("{endpoint:?}");
    assert!(
        printed.contains("billing") && !printed.contains("hunter2"),
        "{printed}"
    );
    assert!(endpoint.receives("order.paid"));
    for state in [
        EndpointState::Disabled {
            why: tenure_core::webhook::Disabled::Gone,
            since: Timestamp::from_micros(0),
        },
        EndpointState::Removed {
            since: Timestamp::from_micros(0),
        },
    ] {
        let off = Endpoint {
            state,
            ..endpoint.clone()
        };
        assert!(!off.receives("order.paid"));
    }
}

fn any_settings() -> impl Strategy<Value = EndpointSettings> {
    let pattern = prop_oneof![
        Just(TopicPattern::any()),
        "[a-zä]{1,8}(\\.[a-z]{1,8}){0,3}"
            .prop_map(|text| { TopicPattern::new(&text).expect("a pattern") }),
    ];
    let rate = proptest::option::of(any::<(u32, u32)>());
    let rate =
        rate.prop_map(|rate| rate.map(|(per_second, burst)| RateLimit { per_second, burst }));
    let waits = vec(
        (1_000_u64..80_000_000).prop_map(Duration::from_millis),
        0..30,
    );
    let gone = prop_oneof![Just(OnGone::Bury), Just(OnGone::Keep)];
    (
        (any::<String>(), any::<String>(), vec(pattern, 0..4)),
        (0_u64..=1_000_000, any::<u32>(), rate, waits),
        (vec(any::<u16>(), 0..5), gone),
        btree_map(any::<String>(), any::<String>(), 0..4),
    )
        .prop_map(
            |(texts, pace, (no_retry, on_gone), metadata)| EndpointSettings {
                url: texts.0,
                description: texts.1,
                topics: texts.2,
                timeout: Duration::from_millis(pace.0),
                concurrency: pace.1,
                rate: pace.2,
                schedule: Schedule::new(pace.3).expect("a schedule"),
                no_retry,
                on_gone,
                metadata,
            },
        )
}

proptest! {
    #[test]
    fn settings_are_unchanged_after_a_round_trip_through_json(settings in any_settings()) {
        let read = EndpointSettings::from_json(&settings.to_json());
        prop_assert_eq!(read.expect("what was written"), settings);
    }

    #[test]
    fn broken_json_is_refused_without_quoting_it(text in ".*hunter2.*") {
        let problem = EndpointSettings::from_json(&text).expect_err("no settings");
        prop_assert!(!problem.to_string().contains("hunter2"));
    }
}

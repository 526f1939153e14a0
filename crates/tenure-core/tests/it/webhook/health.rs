//! Health of an endpoint: when it is paused or disabled, and when operators are warned.

use std::time::Duration;

use proptest::prelude::*;
use tenure_core::webhook::{Disabled, EndpointHealth, RecentCalls};
use tenure_core::{ItemId, Timestamp};

const START: Timestamp = Timestamp::from_micros(4_102_444_800_000_000);
const DAY: u64 = 24 * 3600;

fn at(seconds: u64) -> Timestamp {
    START.after(Duration::from_secs(seconds))
}

fn delivery(nth: i64) -> ItemId {
    ItemId::new(ItemId::FIRST_DELIVERY + nth)
}

/// An endpoint as one process sees it.
#[derive(Default)]
struct Watched {
    health: EndpointHealth,
    recent: RecentCalls,
}

impl Watched {
    fn fails(&mut self, nth: i64, now: Timestamp) {
        let requested = None;
        self.health = self
            .health
            .failed(&mut self.recent, delivery(nth), requested, now);
    }

    fn requests_pause(&mut self, seconds: u64, now: Timestamp) {
        let requested = Some(Duration::from_secs(seconds));
        self.health = self
            .health
            .failed(&mut self.recent, delivery(1), requested, now);
    }

    fn succeeds(&mut self, now: Timestamp) {
        self.health = self.health.succeeded(&mut self.recent, now);
    }

    fn paused_for(&self, now: Timestamp) -> Option<u64> {
        let until = self.health.paused_until.filter(|until| now < *until);
        until.map(|until| until.since(now).as_secs())
    }
}

/// An endpoint that was paused after ten failures at `at(0)`.
fn tripped() -> Watched {
    let mut watched = Watched::default();
    for nth in 0..10 {
        watched.fails(nth, at(0));
    }
    watched
}

#[test]
fn ten_failures_in_a_row_pause_an_endpoint() {
    let mut watched = Watched::default();
    for nth in 0..9 {
        watched.fails(nth, at(0));
    }
    assert_eq!(watched.paused_for(at(0)), None);
    watched.fails(9, at(0));
    assert_eq!(watched.paused_for(at(0)), Some(60));
    assert!(watched.health.is_paused(at(59)) && !watched.health.is_paused(at(60)));
}

#[test]
fn a_success_resets_the_failure_count() {
    let mut watched = Watched::default();
    for round in 0..5 {
        for nth in 0..9 {
            watched.fails(nth, at(1000 * round));
        }
        // With these three successes, less than 80 % of the calls have failed.
        for _ in 0..3 {
            watched.succeeds(at(1000 * round));
        }
        assert_eq!(watched.paused_for(at(1000 * round)), None);
        assert_eq!(watched.health, EndpointHealth::default());
    }
}

#[test]
fn a_failure_rate_of_80_percent_pauses_an_endpoint() {
    let mut watched = Watched::default();
    // One call of five succeeds.
    for nth in 0..19 {
        if nth % 5 == 0 {
            watched.succeeds(at(nth));
        } else {
            watched.fails(1, at(nth));
        }
        assert_eq!(watched.paused_for(at(nth)), None, "{nth}");
    }
    watched.fails(1, at(19));
    assert_eq!(watched.paused_for(at(19)), Some(60), "sixteen of twenty");
}

#[test]
fn old_calls_are_forgotten() {
    let mut watched = Watched::default();
    for nth in 0..30 {
        // Twenty calls take more than five minutes.
        let now = at(nth * 16);
        if nth % 5 == 0 {
            watched.succeeds(now);
        } else {
            watched.fails(1, now);
        }
        assert_eq!(watched.paused_for(now), None, "{nth}");
    }
}

/// One call probes the endpoint. Each failed probe doubles the pause, up to a quarter of an hour.
#[test]
fn a_failed_probe_doubles_the_pause() {
    let mut watched = tripped();
    let mut now = at(0);
    for expected in [60, 120, 240, 480, 900, 900, 900] {
        assert!(!watched.health.is_on_probe(now));
        assert_eq!(watched.paused_for(now), Some(expected));
        now = now.after(Duration::from_secs(expected));
        assert!(watched.health.is_on_probe(now));
        watched.fails(1, now);
    }
    // The number of pauses never overflows.
    watched.health.trips = u32::MAX;
    watched.fails(1, now.after(Duration::from_hours(1)));
    assert!(watched.health.paused_until.is_some());
}

#[test]
fn a_successful_probe_ends_the_pauses() {
    let mut watched = tripped();
    watched.succeeds(at(60));
    assert_eq!(watched.health, EndpointHealth::default());
    assert!(!watched.health.is_on_probe(at(60)));
    watched.fails(1, at(61));
    assert_eq!(
        watched.paused_for(at(61)),
        None,
        "earlier failures no longer count"
    );
}

/// Calls in progress at the start of a pause may fail during the pause.
#[test]
fn failures_during_a_pause_do_not_prolong_it() {
    let mut watched = tripped();
    for nth in 0..50 {
        watched.fails(nth, at(30));
    }
    assert_eq!(watched.health.paused_until, Some(at(60)));
    assert_eq!(watched.health.trips, 1);
}

#[test]
fn an_endpoint_may_request_a_pause() {
    let mut watched = Watched::default();
    watched.requests_pause(600, at(0));
    assert_eq!(watched.paused_for(at(0)), Some(600));
    assert_eq!(watched.health.trips, 0, "no probe follows");
    watched.requests_pause(30, at(1));
    assert_eq!(
        watched.paused_for(at(1)),
        Some(599),
        "never shorter than requested"
    );
    watched.succeeds(at(2));
    assert_eq!(
        watched.paused_for(at(2)),
        Some(598),
        "the requested pause continues"
    );
    assert_eq!(watched.health.failures, 0);
    watched.succeeds(at(601));
    assert_eq!(watched.health, EndpointHealth::default());
}

#[test]
fn a_longer_requested_pause_replaces_a_pause_after_failures() {
    let mut watched = tripped();
    watched.requests_pause(3600, at(1));
    assert_eq!(watched.paused_for(at(1)), Some(3600));
    watched.requests_pause(1, at(2));
    assert_eq!(watched.paused_for(at(2)), Some(3599));
}

#[test]
fn warnings_are_due_after_one_day_and_after_three_days() {
    let mut watched = Watched::default();
    assert_eq!(watched.health.warns(at(100 * DAY)), None, "nothing fails");
    watched.fails(1, at(0));
    assert_eq!(watched.health.warns(at(DAY - 1)), None);
    let first = watched.health.warns(at(DAY)).expect("a day");
    assert_eq!(first.failing, Duration::from_secs(DAY));
    assert_eq!(first.left, Duration::from_secs(4 * DAY));
    watched.health.warnings += 1;
    assert_eq!(watched.health.warns(at(3 * DAY - 1)), None, "only once");
    let second = watched.health.warns(at(3 * DAY)).expect("three days");
    assert_eq!(second.left, Duration::from_secs(2 * DAY));
    watched.health.warnings += 1;
    assert_eq!(watched.health.warns(at(9 * DAY)), None);
    watched.succeeds(at(9 * DAY));
    assert_eq!(watched.health.warnings, 0);
}

#[test]
fn five_days_of_failures_disable_an_endpoint() {
    let mut watched = Watched::default();
    for nth in 0..10 {
        watched.fails(nth, at(0));
    }
    assert_eq!(watched.health.disables(at(5 * DAY - 1)), None);
    assert_eq!(
        watched.health.disables(at(5 * DAY)),
        Some(Disabled::Failing)
    );
    watched.succeeds(at(5 * DAY));
    assert_eq!(watched.health.disables(at(50 * DAY)), None);
}

#[test]
fn an_endpoint_is_not_disabled_for_one_delivery_or_a_few_failures() {
    let mut one_message = Watched::default();
    for _ in 0..100 {
        one_message.fails(1, at(0));
    }
    assert_eq!(one_message.health.disables(at(9 * DAY)), None);
    one_message.fails(2, at(9 * DAY));
    assert!(one_message.health.disables(at(9 * DAY)).is_some());
    let mut few = Watched::default();
    for nth in 0..9 {
        few.fails(nth, at(0));
    }
    assert_eq!(few.health.disables(at(9 * DAY)), None);
}

#[test]
fn not_every_failure_is_stored() {
    let mut watched = Watched::default();
    let mut stored = EndpointHealth::default();
    let mut writes = 0;
    for nth in 0..1000 {
        watched.fails(1, at(0).after(Duration::from_millis(nth)));
        if watched.health.is_news(&stored) {
            stored = watched.health.clone();
            writes += 1;
        }
    }
    assert!(writes < 20, "{writes} writes for a thousand failures");
    assert!(stored.is_paused(at(1)), "the pause was stored");
    watched.succeeds(at(100));
    assert!(watched.health.is_news(&stored), "the success is stored");
    assert!(!watched.health.is_news(&watched.health));
}

#[test]
fn the_error_is_stored_truncated_until_a_call_succeeds() {
    let mut watched = Watched::default();
    watched.fails(1, at(0));
    watched.health = watched.health.with_error(&"ü".repeat(1_000));
    let stored = watched.health.last_error.clone().unwrap();
    assert_eq!(stored, "ü".repeat(200));
    watched.fails(2, at(1));
    assert_eq!(watched.health.last_error, Some(stored));
    watched.succeeds(at(2));
    assert_eq!(watched.health.last_error, None);
}

proptest! {
    #[test]
    fn health_is_unchanged_after_a_round_trip_through_json(
        (failures, trips, warnings) in any::<(u32, u32, u8)>(),
        (since, until) in any::<(Option<i64>, Option<i64>)>(),
        (failed, is_spread) in any::<(Option<i64>, bool)>(),
        (pause, last_error) in any::<(Option<String>, Option<String>)>(),
    ) {
        let health = EndpointHealth {
            failures,
            failing_since: since.map(Timestamp::from_micros),
            failed,
            is_spread,
            trips,
            paused_until: until.map(Timestamp::from_micros),
            pause,
            last_error,
            warnings,
        };
        prop_assert_eq!(EndpointHealth::from_json(&health.to_json()), health);
    }

    #[test]
    fn unreadable_text_counts_as_healthy(text in ".*") {
        // Any text is parsed without a panic.
        let _health = EndpointHealth::from_json(&text);
        prop_assert_eq!(EndpointHealth::from_json("{"), EndpointHealth::default());
    }
}

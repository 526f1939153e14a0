//! Health: when an endpoint is left alone, when somebody is warned, when it is given up.

use std::time::Duration;

use proptest::prelude::*;
use tenure_core::webhook::{Breaking, Disabled, Health};
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
    health: Health,
    lately: Breaking,
}

impl Watched {
    fn fails(&mut self, nth: i64, now: Timestamp) {
        let asked = None;
        self.health = self
            .health
            .failed(&mut self.lately, delivery(nth), asked, now);
    }

    fn asks(&mut self, seconds: u64, now: Timestamp) {
        let asked = Some(Duration::from_secs(seconds));
        self.health = self
            .health
            .failed(&mut self.lately, delivery(1), asked, now);
    }

    fn succeeds(&mut self, now: Timestamp) {
        self.health = self.health.succeeded(&mut self.lately, now);
    }

    fn paused_for(&self, now: Timestamp) -> Option<u64> {
        let until = self.health.paused_until.filter(|until| now < *until);
        until.map(|until| until.since(now).as_secs())
    }
}

/// One that was left alone after ten failures at `at(0)`.
fn tripped() -> Watched {
    let mut watched = Watched::default();
    for nth in 0..10 {
        watched.fails(nth, at(0));
    }
    watched
}

#[test]
fn ten_failures_in_a_row_are_enough() {
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
fn a_success_begins_the_count_anew() {
    let mut watched = Watched::default();
    for round in 0..5 {
        for nth in 0..9 {
            watched.fails(nth, at(1000 * round));
        }
        // With these, less than four of five fail.
        for _ in 0..3 {
            watched.succeeds(at(1000 * round));
        }
        assert_eq!(watched.paused_for(at(1000 * round)), None);
        assert_eq!(watched.health, Health::default());
    }
}

#[test]
fn four_of_five_failures_lately_are_enough() {
    let mut watched = Watched::default();
    // A success among every five.
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
fn what_is_long_ago_is_forgotten() {
    let mut watched = Watched::default();
    for nth in 0..30 {
        // Twenty calls take longer than five minutes.
        let now = at(nth * 16);
        if nth % 5 == 0 {
            watched.succeeds(now);
        } else {
            watched.fails(1, now);
        }
        assert_eq!(watched.paused_for(now), None, "{nth}");
    }
}

/// One call tells whether it is back. Each that fails doubles the pause, up to a quarter of an
/// hour.
#[test]
fn a_failed_trial_doubles_the_pause() {
    let mut watched = tripped();
    let mut now = at(0);
    for expected in [60, 120, 240, 480, 900, 900, 900] {
        assert!(!watched.health.is_on_trial(now));
        assert_eq!(watched.paused_for(now), Some(expected));
        now = now.after(Duration::from_secs(expected));
        assert!(watched.health.is_on_trial(now));
        watched.fails(1, now);
    }
    // However often, it never overflows.
    watched.health.trips = u32::MAX;
    watched.fails(1, now.after(Duration::from_hours(1)));
    assert!(watched.health.paused_until.is_some());
}

#[test]
fn a_good_trial_ends_it() {
    let mut watched = tripped();
    watched.succeeds(at(60));
    assert_eq!(watched.health, Health::default());
    assert!(!watched.health.is_on_trial(at(60)));
    watched.fails(1, at(61));
    assert_eq!(
        watched.paused_for(at(61)),
        None,
        "what was before is forgotten"
    );
}

/// Calls that were under way when it was left alone end while it is.
#[test]
fn what_fails_during_a_pause_does_not_prolong_it() {
    let mut watched = tripped();
    for nth in 0..50 {
        watched.fails(nth, at(30));
    }
    assert_eq!(watched.health.paused_until, Some(at(60)));
    assert_eq!(watched.health.trips, 1);
}

#[test]
fn an_endpoint_may_ask_to_be_left_alone() {
    let mut watched = Watched::default();
    watched.asks(600, at(0));
    assert_eq!(watched.paused_for(at(0)), Some(600));
    assert_eq!(watched.health.trips, 0, "that is no trial");
    watched.asks(30, at(1));
    assert_eq!(
        watched.paused_for(at(1)),
        Some(599),
        "never shorter than it asked"
    );
    watched.succeeds(at(2));
    assert_eq!(
        watched.paused_for(at(2)),
        Some(598),
        "what it asked for holds"
    );
    assert_eq!(watched.health.failures, 0);
    watched.succeeds(at(601));
    assert_eq!(watched.health, Health::default());
}

#[test]
fn a_longer_wish_counts_more_than_a_trip() {
    let mut watched = tripped();
    watched.asks(3600, at(1));
    assert_eq!(watched.paused_for(at(1)), Some(3600));
    watched.asks(1, at(2));
    assert_eq!(watched.paused_for(at(2)), Some(3599));
}

#[test]
fn warnings_are_due_after_a_day_and_after_three() {
    let mut watched = Watched::default();
    assert_eq!(watched.health.warns(at(100 * DAY)), None, "nothing fails");
    watched.fails(1, at(0));
    assert_eq!(watched.health.warns(at(DAY - 1)), None);
    let first = watched.health.warns(at(DAY)).expect("a day");
    assert_eq!(first.failing, Duration::from_secs(DAY));
    assert_eq!(first.left, Duration::from_secs(4 * DAY));
    watched.health.warnings += 1;
    assert_eq!(watched.health.warns(at(3 * DAY - 1)), None, "once");
    let second = watched.health.warns(at(3 * DAY)).expect("three days");
    assert_eq!(second.left, Duration::from_secs(2 * DAY));
    watched.health.warnings += 1;
    assert_eq!(watched.health.warns(at(9 * DAY)), None);
    watched.succeeds(at(9 * DAY));
    assert_eq!(watched.health.warnings, 0);
}

#[test]
fn five_days_without_a_success_are_the_end() {
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
fn an_endpoint_is_not_given_up_for_one_message_or_for_a_few_failures() {
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
fn not_every_failure_is_news() {
    let mut watched = Watched::default();
    let mut kept = Health::default();
    let mut writes = 0;
    for nth in 0..1000 {
        watched.fails(1, at(0).after(Duration::from_millis(nth)));
        if watched.health.is_news(&kept) {
            kept = watched.health.clone();
            writes += 1;
        }
    }
    assert!(writes < 20, "{writes} writes for a thousand failures");
    assert!(kept.is_paused(at(1)), "what counts was told");
    watched.succeeds(at(100));
    assert!(watched.health.is_news(&kept), "and that it is back");
    assert!(!watched.health.is_news(&watched.health));
}

#[test]
fn what_went_wrong_is_kept_in_short_until_a_call_succeeds() {
    let mut watched = Watched::default();
    watched.fails(1, at(0));
    watched.health = watched.health.because(&"ü".repeat(1_000));
    let kept = watched.health.last_error.clone().unwrap();
    assert_eq!(kept, "ü".repeat(200));
    watched.fails(2, at(1));
    assert_eq!(watched.health.last_error, Some(kept));
    watched.succeeds(at(2));
    assert_eq!(watched.health.last_error, None);
}

proptest! {
    #[test]
    fn health_is_kept_as_json(
        (failures, trips, warnings) in any::<(u32, u32, u8)>(),
        (since, until) in any::<(Option<i64>, Option<i64>)>(),
        (failed, is_spread) in any::<(Option<i64>, bool)>(),
        (pause, last_error) in any::<(Option<String>, Option<String>)>(),
    ) {
        let health = Health {
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
        prop_assert_eq!(Health::from_json(&health.to_json()), health);
    }

    #[test]
    fn what_cannot_be_read_is_no_illness(text in ".*") {
        // Whatever it is, it is read without a panic.
        let _health = Health::from_json(&text);
        prop_assert_eq!(Health::from_json("{"), Health::default());
    }
}

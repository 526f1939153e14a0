//! The schedule: the default is that of Standard Webhooks, and jitter stays within its bounds.

use std::time::Duration;

use proptest::prelude::*;
use tenure_core::webhook::Schedule;

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;

#[test]
fn the_default_schedule_is_that_of_standard_webhooks() {
    let steps = [
        5,
        5 * MINUTE,
        30 * MINUTE,
        2 * HOUR,
        5 * HOUR,
        10 * HOUR,
        14 * HOUR,
        20 * HOUR,
        24 * HOUR,
    ];
    let schedule = Schedule::default();
    assert_eq!(schedule.attempts(), 10);
    for (failures, step) in (0..).zip(steps) {
        let wait = schedule.delay(failures, 0.5);
        assert_eq!(wait, Some(Duration::from_secs(step)));
    }
    assert_eq!(schedule.delay(9, 0.5), None);
    assert_eq!(schedule.delay(u32::MAX, 0.5), None);
    let length: Duration = schedule.waits().iter().sum();
    let hours = length.as_secs_f64() / 3600.0;
    assert!((75.0..76.0).contains(&hours), "{hours}");
    assert!(Schedule::new(schedule.waits().to_vec()).is_ok());
}

#[test]
fn jitter_changes_a_delay_by_up_to_a_fifth_and_leaves_at_least_a_second() {
    let schedule = Schedule::new(vec![Duration::from_secs(100), Duration::from_secs(1)]);
    let schedule = schedule.expect("a schedule");
    assert_eq!(schedule.delay(0, 0.0), Some(Duration::from_secs(80)));
    assert_eq!(schedule.delay(0, 1.0), Some(Duration::from_mins(2)));
    assert_eq!(schedule.delay(1, 0.0), Some(Duration::from_secs(1)));
    assert_eq!(schedule.delay(1, 1.0), Some(Duration::from_millis(1200)));
    // An invalid random number does no harm.
    assert_eq!(schedule.delay(0, -7.0), Some(Duration::from_secs(80)));
    assert_eq!(schedule.delay(0, 7.0), Some(Duration::from_mins(2)));
    assert!(schedule.delay(0, f64::NAN).is_some());
}

#[test]
fn a_schedule_without_waits_has_one_attempt() {
    let schedule = Schedule::new(Vec::new()).expect("a schedule");
    assert_eq!((schedule.attempts(), schedule.delay(0, 0.5)), (1, None));
}

#[test]
fn a_schedule_beyond_its_limits_is_refused() {
    let second = Duration::from_secs(1);
    assert!(Schedule::new(vec![second; 30]).is_ok());
    let day = Duration::from_secs(24 * HOUR);
    assert!(Schedule::new(vec![day; 30]).is_ok());
    let mut too_long = vec![day; 29];
    too_long.push(day + Duration::from_millis(1));
    for bad in [
        vec![second; 31],
        vec![Duration::from_millis(999)],
        vec![Duration::ZERO],
        too_long,
        vec![Duration::MAX; 2],
    ] {
        let problem = Schedule::new(bad).expect_err("a limit is violated");
        assert_eq!(problem.field(), "retry schedule");
    }
}

proptest! {
    #[test]
    fn every_delay_is_within_a_fifth_of_its_step(
        waits in proptest::collection::vec(1_u64..80_000, 0..30),
        failures in 0_u32..40,
        chance in 0.0..=1.0,
    ) {
        let waits: Vec<Duration> = waits.into_iter().map(Duration::from_secs).collect();
        let schedule = Schedule::new(waits.clone()).expect("a schedule");
        let step = usize::try_from(failures).ok().and_then(|nth| waits.get(nth));
        match (schedule.delay(failures, chance), step) {
            (None, None) => {}
            (Some(wait), Some(step)) => {
                let tick = Duration::from_micros(1);
                prop_assert!(wait >= Duration::from_secs(1));
                prop_assert!(wait + tick >= step.mul_f64(0.8));
                prop_assert!(wait <= step.mul_f64(1.2) + tick);
            }
            (wait, step) => prop_assert!(false, "{wait:?} for {step:?}"),
        }
    }
}

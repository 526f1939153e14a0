//! Retry and lapse policies: budgets are exact, delays stay between their bounds, nothing
//! overflows.

use std::time::Duration;

use proptest::prelude::*;
use tenure_core::{Again, DELAY_MIN, Failure, LapsePolicy, Outcome, RetryPolicy, RetryRules};

fn failure(again: Again) -> Failure {
    Failure {
        error: "503".into(),
        again,
    }
}

fn any_span() -> impl Strategy<Value = Duration> {
    prop_oneof![
        8 => (0_u64..1_000_000).prop_map(Duration::from_millis),
        1 => Just(Duration::ZERO),
        1 => Just(Duration::MAX),
        2 => (any::<u64>(), 0_u32..1_000_000_000).prop_map(|(s, n)| Duration::new(s, n)),
    ]
}

fn any_policy() -> impl Strategy<Value = RetryPolicy> {
    (any::<u32>(), any_span(), any_span()).prop_map(|(max_retries, base, cap)| RetryPolicy {
        max_retries,
        base,
        cap,
    })
}

/// Number of attempts of an item that always fails.
fn tries(policy: &RetryPolicy) -> u32 {
    let is_last = |failures: &u32| {
        let outcome = policy.judge(*failures, &failure(Again::ByPolicy), 0.5);
        matches!(outcome, Outcome::Dead { .. })
    };
    (0..=policy.max_retries)
        .find(is_last)
        .expect("a budget ends")
        + 1
}

/// Method: counts the attempts of an item that always fails.
///
/// Proves: S4-041
#[test]
fn the_first_attempt_is_followed_by_max_retries_retries() {
    for max_retries in [0, 1, 2, 10, 1000] {
        let policy = RetryPolicy {
            max_retries,
            ..RetryPolicy::default()
        };
        assert_eq!(tries(&policy), max_retries + 1);
    }
}

#[test]
fn max_attempts_is_one_more_than_max_retries() {
    assert!(RetryPolicy::max_attempts(0).is_err());
    for attempts in [1, 2, 11] {
        let policy = RetryPolicy::max_attempts(attempts).unwrap();
        assert_eq!(policy.max_retries, attempts - 1);
        assert_eq!(tries(&policy), attempts);
    }
    let most = RetryPolicy::max_attempts(u32::MAX).unwrap();
    assert_eq!(most.max_retries, u32::MAX - 1);
}

proptest! {
    /// Proves: S4-040
    #[test]
    fn a_failure_is_a_retry_within_the_budget_and_dead_beyond(
        policy in any_policy(),
        failures: u32,
        chance in 0.0..=1.0,
    ) {
        match policy.judge(failures, &failure(Again::ByPolicy), chance) {
            Outcome::Retry { after, error } => {
                prop_assert!(failures < policy.max_retries);
                prop_assert_eq!(after, policy.delay(failures, chance));
                prop_assert_eq!(error, "503");
            }
            Outcome::Dead { reason, error } => {
                prop_assert!(failures >= policy.max_retries);
                prop_assert_eq!(reason, "failed");
                prop_assert_eq!(error, "503");
            }
            outcome @ (Outcome::Done | Outcome::Release { .. }) => {
                prop_assert!(false, "{outcome:?}");
            }
        }
    }

    #[test]
    fn a_permanent_failure_is_dead_at_once(policy in any_policy(), failures: u32) {
        let outcome = policy.judge(failures, &failure(Again::Never), 0.5);
        let is_rejected = matches!(&outcome, Outcome::Dead { reason, .. } if reason == "rejected");
        prop_assert!(is_rejected, "{:?}", outcome);
    }

    #[test]
    fn a_requested_delay_is_raised_to_the_minimum(failures in 0_u32..10, wish in any_span()) {
        let policy = RetryPolicy::default();
        let outcome = policy.judge(failures, &failure(Again::After(wish)), 0.5);
        let after = wish.max(DELAY_MIN);
        prop_assert_eq!(outcome, Outcome::Retry { after, error: "503".into() });
    }

    /// Holds for any policy, any number of failures and any random number, even an invalid one.
    #[test]
    fn a_delay_is_never_below_the_minimum_nor_above_the_cap(
        policy in any_policy(),
        failures: u32,
        chance in prop::num::f64::ANY,
    ) {
        let delay = policy.delay(failures, chance);
        prop_assert!(delay >= DELAY_MIN);
        prop_assert!(delay <= policy.cap.max(DELAY_MIN));
        prop_assert!(failures > 0 || delay <= policy.base.max(DELAY_MIN));
    }

    #[test]
    fn chance_spreads_a_delay_over_its_whole_range(policy in any_policy(), failures: u32) {
        let longest = policy.delay(failures, 1.0);
        prop_assert_eq!(policy.delay(failures, 0.0), DELAY_MIN);
        prop_assert_eq!(policy.delay(failures, 7.0), longest);
        prop_assert!(policy.delay(failures, 0.5) <= longest);
    }

    #[test]
    fn the_longest_delay_never_falls_with_more_failures(policy in any_policy(), failures: u32) {
        let (one, next) = (failures, failures.saturating_add(1));
        prop_assert!(policy.delay(one, 1.0) <= policy.delay(next, 1.0));
    }

    #[test]
    fn the_window_is_the_sum_of_the_longest_delays(
        mut policy in any_policy(),
        max_retries in 0_u32..100,
        failures in 0_u32..110,
    ) {
        policy.max_retries = max_retries;
        policy.base = policy.base.max(DELAY_MIN);
        policy.cap = policy.cap.max(DELAY_MIN);
        let delays = (failures..max_retries).map(|failures| policy.delay(failures, 1.0));
        let sum = delays.fold(Duration::ZERO, Duration::saturating_add);
        let slack = Duration::from_secs(sum.as_secs() >> 40) + Duration::from_millis(1);
        let window = policy.window(failures);
        prop_assert!(window.abs_diff(sum) <= slack, "{:?} {:?}", window, sum);
    }

    #[test]
    fn a_lapse_has_the_delay_of_the_list_until_the_crash_budget_is_used_up(
        max_crashes in LapsePolicy::MAX_CRASHES_MIN..100,
        delays in prop::collection::vec(any_span(), 1..12),
        crashes in prop_oneof![0_u32..120, any::<u32>()],
    ) {
        let policy = LapsePolicy::new(max_crashes, delays.clone()).unwrap();
        let nth = usize::try_from(crashes.max(1)).unwrap().min(delays.len()) - 1;
        let expected = (crashes <= max_crashes).then(|| delays[nth]);
        prop_assert_eq!(policy.fate(crashes), expected);
        prop_assert_eq!(policy.delays(), delays);
        prop_assert_eq!(policy.max_crashes(), max_crashes);
    }

    #[test]
    fn a_crash_budget_below_three_is_refused(max_crashes in 0_u32..3) {
        let problem = LapsePolicy::new(max_crashes, vec![DELAY_MIN]).unwrap_err();
        prop_assert_eq!(problem.field(), "max_crashes");
    }
}

#[test]
fn the_first_delays_double_up_to_the_cap() {
    let policy = RetryPolicy::default();
    let longest = |failures| policy.delay(failures, 1.0).as_secs();
    let delays: Vec<u64> = (0..11).map(longest).collect();
    assert_eq!(delays, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1_024]);
    let hours_12 = 12 * 3_600;
    assert_eq!(
        [14, 15, 16, 24].map(longest),
        [16_384, 32_768, hours_12, hours_12]
    );
}

/// The defaults retry for days: 2^16 - 1 s while the delays double, then nine times 12 h.
#[test]
fn the_default_window_is_five_days_at_most() {
    let policy = RetryPolicy::default();
    assert_eq!(policy.max_retries, 25);
    assert_eq!(policy.window(0), Duration::from_secs(65_535 + 9 * 43_200));
    assert_eq!(policy.window(24), Duration::from_hours(12));
    assert_eq!(policy.window(25), Duration::ZERO);
    assert_eq!(policy.window(u32::MAX), Duration::ZERO);
}

#[test]
fn the_rules_of_a_handler_come_before_those_of_its_queue_and_these_before_the_policy() {
    let span = Duration::from_secs;
    let handler = RetryRules {
        max_retries: Some(1),
        ..RetryRules::default()
    };
    let queue = RetryRules {
        max_retries: Some(2),
        base: Some(span(5)),
        cap: None,
    };
    let policy = RetryPolicy::default().with(handler.or(queue));
    assert_eq!(policy.max_retries, 1);
    assert_eq!(policy.base, span(5));
    assert_eq!(policy.cap, RetryPolicy::default().cap);
}

#[test]
fn rules_with_a_delay_out_of_range_or_a_cap_below_the_base_are_refused() {
    let rules = |base, cap| RetryRules {
        max_retries: None,
        base: Some(base),
        cap: Some(cap),
    };
    let (least, most) = RetryPolicy::DELAYS.into_inner();
    assert_eq!(rules(least, most).check(), Ok(()));
    let micro = Duration::from_micros(1);
    for (wrong, problem) in [
        (
            rules(Duration::from_micros(999), most),
            "retry_base is 999µs; expected 1ms to 30d",
        ),
        (
            rules(least, most + micro),
            "retry_cap is 720h 1µs; expected 1ms to 30d",
        ),
        (
            rules(most, least),
            "retry_cap is 1ms; expected at least retry_base (30d)",
        ),
    ] {
        assert_eq!(wrong.check().unwrap_err().to_string(), problem);
    }
}

#[test]
fn a_lapse_policy_needs_a_delay() {
    assert!(LapsePolicy::new(3, Vec::new()).is_err());
}

/// The delays are 100 ms after the first lapse, then 1 s, 2 s, 4 s, 8 s; the sixth lapse is final.
#[test]
fn the_default_lapse_policy_is_the_documented_one() {
    let policy = LapsePolicy::default();
    let fates: Vec<_> = (1..=6).map(|crashes| policy.fate(crashes)).collect();
    let millis = [100, 1_000, 2_000, 4_000, 8_000].map(Duration::from_millis);
    let expected: Vec<_> = millis.into_iter().map(Some).chain([None]).collect();
    assert_eq!(fates, expected);
    assert!(policy.delays().is_sorted());
    assert_eq!(LapsePolicy::ALONE_AFTER, 2);
}

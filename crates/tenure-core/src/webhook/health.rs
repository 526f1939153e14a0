//! Health of an endpoint: functions without I/O that decide when it is paused, when operators are
//! warned, and when it is disabled.

use std::collections::VecDeque;
use std::time::Duration;

use super::Disabled;
use crate::item::ItemId;
use crate::time::Timestamp;

/// Consecutive failures after which an endpoint is paused.
const FAILURES_IN_A_ROW: u32 = 10;
/// Time window for the failure rate.
const WINDOW: Duration = Duration::from_mins(5);
/// Minimum calls in the window for a failure rate.
const CALLS_MIN: usize = 20;
/// Failure rate in the window at which the endpoint is paused, in percent.
const FAILED_PERCENT: usize = 80;
/// First pause; doubled each time that a probe call fails.
const PAUSE: Duration = Duration::from_mins(1);
/// Maximum pause, unless the endpoint requests a longer one.
const PAUSE_MAX: Duration = Duration::from_mins(15);
const DAY: Duration = Duration::from_hours(24);
/// Time from the first failure after the last success until an endpoint is disabled. Disabling also
/// requires ten failures, of more than one delivery.
const DISABLED_AFTER: Duration = Duration::from_hours(5 * 24);
const SECOND_WARNING: Duration = Duration::from_hours(3 * 24);

/// Maximum length of the stored error text, in characters.
const ERROR_CHARS_MAX: usize = 200;

/// Health of an endpoint. Stores keep it as JSON; all processes share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct EndpointHealth {
    /// Failures since the last success.
    pub failures: u32,
    /// First failure since the last success.
    pub failing_since: Option<Timestamp>,
    /// A delivery that failed since the last success; a second one sets `is_spread`.
    pub failed: Option<i64>,
    /// More than one delivery failed since the last success.
    pub is_spread: bool,
    /// Consecutive pauses because of failures; a pause that the endpoint requested does not count.
    pub trips: u32,
    /// End of the current pause.
    pub paused_until: Option<Timestamp>,
    /// Reason for the pause.
    pub pause: Option<String>,
    /// Last stored error, for people. Not every failure is stored.
    pub last_error: Option<String>,
    /// Number of warnings given since the last success.
    pub warnings: u8,
}

/// Warning that an endpoint will be disabled if it keeps failing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// Time since the first failure after the last success.
    pub failing: Duration,
    /// Time until it is disabled.
    pub left: Duration,
}

/// Recent calls of this process to an endpoint. Together with the health they decide when to pause.
/// Not stored.
#[derive(Clone, Debug, Default)]
pub struct RecentCalls {
    calls: VecDeque<(Timestamp, bool)>,
}

impl RecentCalls {
    /// Maximum number of remembered calls.
    const CALLS_MAX: usize = 1000;

    fn record(&mut self, is_success: bool, now: Timestamp) {
        self.calls.push_back((now, is_success));
        let is_old = |at: Timestamp| now.since(at) > WINDOW;
        while self.calls.len() > Self::CALLS_MAX
            || self.calls.front().is_some_and(|(at, _)| is_old(*at))
        {
            self.calls.pop_front();
        }
    }

    fn is_bad(&self) -> bool {
        let failed = self
            .calls
            .iter()
            .filter(|(_, is_success)| !is_success)
            .count();
        let all = self.calls.len();
        all >= CALLS_MIN && failed * 100 >= all * FAILED_PERCENT
    }
}

impl EndpointHealth {
    /// Returns true while the endpoint is paused.
    pub fn is_paused(&self, now: Timestamp) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Returns true if only one call at a time may be made, as a probe.
    pub fn is_on_probe(&self, now: Timestamp) -> bool {
        self.trips > 0 && !self.is_paused(now)
    }

    /// Health after a successful call.
    #[must_use]
    pub fn succeeded(&self, recent: &mut RecentCalls, now: Timestamp) -> Self {
        recent.record(true, now);
        if self.trips > 0 {
            recent.calls.clear();
        }
        // A pause that the endpoint requested itself continues.
        let is_requested = self.trips == 0 && self.is_paused(now);
        Self {
            paused_until: self.paused_until.filter(|_| is_requested),
            pause: self.pause.clone().filter(|_| is_requested),
            ..Self::default()
        }
    }

    /// Health after a failed call of this delivery; `requested` is the pause that the endpoint
    /// requested.
    #[must_use]
    pub fn failed(
        &self,
        recent: &mut RecentCalls,
        delivery: ItemId,
        requested: Option<Duration>,
        now: Timestamp,
    ) -> Self {
        recent.record(false, now);
        let mut new = self.clone();
        new.failures = self.failures.saturating_add(1);
        new.failing_since = self.failing_since.or(Some(now));
        new.is_spread =
            self.is_spread || self.failed.is_some_and(|other| other != delivery.number());
        new.failed = Some(delivery.number());
        if self.is_on_probe(now) {
            new.trip(now, "the probe call failed");
        } else if !self.is_paused(now) && new.failures >= FAILURES_IN_A_ROW {
            new.trip(now, "ten calls in a row failed");
        } else if !self.is_paused(now) && recent.is_bad() {
            new.trip(now, "at least 80 % of the calls in 5 minutes failed");
        }
        if let Some(requested) = requested {
            let until = now.after(requested);
            if new.paused_until.is_none_or(|other| other < until) {
                new.paused_until = Some(until);
                new.pause = Some("it requested a pause".to_owned());
            }
        }
        new
    }

    /// Records the error of a failure, for operators.
    ///
    /// ```
    /// # use tenure_core::webhook::EndpointHealth;
    /// let health = EndpointHealth::default().with_error("it answered 500");
    /// assert_eq!(health.last_error.as_deref(), Some("it answered 500"));
    /// ```
    #[must_use]
    pub fn with_error(mut self, error: &str) -> Self {
        self.last_error = Some(error.chars().take(ERROR_CHARS_MAX).collect());
        self
    }

    fn trip(&mut self, now: Timestamp, why: &str) {
        let doubled = PAUSE.saturating_mul(2_u32.saturating_pow(self.trips));
        self.trips = self.trips.saturating_add(1);
        self.paused_until = Some(now.after(doubled.min(PAUSE_MAX)));
        self.pause = Some(why.to_owned());
    }

    /// Reason to disable the endpoint, if that is due.
    pub fn disables(&self, now: Timestamp) -> Option<Disabled> {
        let failing = now.since(self.failing_since?);
        let is_sure = self.failures >= FAILURES_IN_A_ROW && self.is_spread;
        (failing >= DISABLED_AFTER && is_sure).then_some(Disabled::Failing)
    }

    /// Warning that is due and not yet given; the caller increments `warnings`.
    pub fn warns(&self, now: Timestamp) -> Option<Warning> {
        let failing = now.since(self.failing_since?);
        let due = u8::from(failing >= DAY) + u8::from(failing >= SECOND_WARNING);
        (due > self.warnings).then(|| Warning {
            failing,
            left: DISABLED_AFTER.saturating_sub(failing),
        })
    }

    /// Returns true if the change should be stored; a single failure need not be.
    pub fn is_news(&self, stored: &Self) -> bool {
        let shared = |health: &Self| (health.paused_until, health.trips, health.warnings);
        shared(self) != shared(stored)
            || self.failing_since.is_some() != stored.failing_since.is_some()
            || self.is_spread != stored.is_spread
            || (self.failures != stored.failures && self.failures.is_power_of_two())
    }

    /// JSON for the store.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }

    /// Parses the JSON of a store; invalid text counts as healthy.
    pub fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

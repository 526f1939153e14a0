//! Health: how an endpoint fares. When it is left alone for a while, when somebody should look at
//! it, and when it is given up: pure functions of what was heard.

use std::collections::VecDeque;
use std::time::Duration;

use super::Disabled;
use crate::item::ItemId;
use crate::time::Timestamp;

/// Failures in a row after which an endpoint is left alone.
const FAILURES_IN_A_ROW: u32 = 10;
/// Within this time …
const WINDOW: Duration = Duration::from_mins(5);
/// … of at least so many calls …
const CALLS_MIN: usize = 20;
/// … so many of a hundred failed: left alone, too.
const FAILED_PERCENT: usize = 80;
/// How long it is left alone first; twice as long each time that a trial fails.
const PAUSE: Duration = Duration::from_mins(1);
/// Never longer, unless it asks for it.
const PAUSE_MAX: Duration = Duration::from_mins(15);
const DAY: Duration = Duration::from_hours(24);
/// Days without a success after which it is disabled, and of the two warnings before.
const DISABLED_AFTER: Duration = Duration::from_hours(5 * 24);
const SECOND_WARNING: Duration = Duration::from_hours(3 * 24);

/// So much is kept of what went wrong.
const ERROR_CHARS_MAX: usize = 200;

/// How an endpoint fares. A store keeps it as JSON; all processes share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Health {
    /// Failures since the last success.
    pub failures: u32,
    /// Since when nothing has succeeded.
    pub failing_since: Option<Timestamp>,
    /// A delivery that failed since then.
    pub failed: Option<i64>,
    /// Whether more than one delivery failed since then.
    pub is_spread: bool,
    /// How often in a row it was left alone.
    pub trips: u32,
    /// Until when it is left alone.
    pub paused_until: Option<Timestamp>,
    /// Why.
    pub pause: Option<String>,
    /// What the last failure that was worth a write was, for people.
    pub last_error: Option<String>,
    /// How many warnings were given since then.
    pub warnings: u8,
}

/// A warning that an endpoint will be disabled if it goes on like this.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warning {
    /// How long nothing has succeeded.
    pub failing: Duration,
    /// How long until it is disabled.
    pub left: Duration,
}

/// What a process has heard of an endpoint lately: it decides, with the health, when to leave it
/// alone. Not kept.
#[derive(Clone, Debug, Default)]
pub struct Breaking {
    lately: VecDeque<(Timestamp, bool)>,
}

impl Breaking {
    /// As many calls are remembered.
    const CALLS_MAX: usize = 1000;

    fn heard(&mut self, is_success: bool, now: Timestamp) {
        self.lately.push_back((now, is_success));
        let is_old = |at: Timestamp| now.since(at) > WINDOW;
        while self.lately.len() > Self::CALLS_MAX
            || self.lately.front().is_some_and(|(at, _)| is_old(*at))
        {
            self.lately.pop_front();
        }
    }

    fn is_bad(&self) -> bool {
        let failed = self
            .lately
            .iter()
            .filter(|(_, is_success)| !is_success)
            .count();
        let all = self.lately.len();
        all >= CALLS_MIN && failed * 100 >= all * FAILED_PERCENT
    }
}

impl Health {
    /// Whether it is left alone now.
    pub fn is_paused(&self, now: Timestamp) -> bool {
        self.paused_until.is_some_and(|until| now < until)
    }

    /// Whether only one call is tried, to see if it is back.
    pub fn is_on_trial(&self, now: Timestamp) -> bool {
        self.trips > 0 && !self.is_paused(now)
    }

    /// A call succeeded.
    #[must_use]
    pub fn succeeded(&self, lately: &mut Breaking, now: Timestamp) -> Self {
        lately.heard(true, now);
        if self.trips > 0 {
            lately.lately.clear();
        }
        // What it asked for itself still holds.
        let is_asked = self.trips == 0 && self.is_paused(now);
        Self {
            paused_until: self.paused_until.filter(|_| is_asked),
            pause: self.pause.clone().filter(|_| is_asked),
            ..Self::default()
        }
    }

    /// A call of this delivery failed; `asked` is how long the endpoint wants to be left alone.
    #[must_use]
    pub fn failed(
        &self,
        lately: &mut Breaking,
        delivery: ItemId,
        asked: Option<Duration>,
        now: Timestamp,
    ) -> Self {
        lately.heard(false, now);
        let mut new = self.clone();
        new.failures = self.failures.saturating_add(1);
        new.failing_since = self.failing_since.or(Some(now));
        new.is_spread =
            self.is_spread || self.failed.is_some_and(|other| other != delivery.number());
        new.failed = Some(delivery.number());
        if self.is_on_trial(now) {
            new.trip(now, "a trial failed");
        } else if !self.is_paused(now) && new.failures >= FAILURES_IN_A_ROW {
            new.trip(now, "ten calls in a row failed");
        } else if !self.is_paused(now) && lately.is_bad() {
            new.trip(now, "four of five calls failed lately");
        }
        if let Some(asked) = asked {
            let until = now.after(asked);
            if new.paused_until.is_none_or(|other| other < until) {
                new.paused_until = Some(until);
                new.pause = Some("it asked to be left alone".to_owned());
            }
        }
        new
    }

    /// What went wrong, beside a failure: an operator asks for that first.
    ///
    /// ```
    /// # use tenure_core::webhook::Health;
    /// let health = Health::default().because("it answered 500");
    /// assert_eq!(health.last_error.as_deref(), Some("it answered 500"));
    /// ```
    #[must_use]
    pub fn because(mut self, error: &str) -> Self {
        self.last_error = Some(error.chars().take(ERROR_CHARS_MAX).collect());
        self
    }

    fn trip(&mut self, now: Timestamp, why: &str) {
        let doubled = PAUSE.saturating_mul(2_u32.saturating_pow(self.trips));
        self.trips = self.trips.saturating_add(1);
        self.paused_until = Some(now.after(doubled.min(PAUSE_MAX)));
        self.pause = Some(why.to_owned());
    }

    /// Whether it is to be given up.
    pub fn disables(&self, now: Timestamp) -> Option<Disabled> {
        let failing = now.since(self.failing_since?);
        let is_sure = self.failures >= FAILURES_IN_A_ROW && self.is_spread;
        (failing >= DISABLED_AFTER && is_sure).then_some(Disabled::Failing)
    }

    /// The warning that is due and was not given; the caller adds one to `warnings`.
    pub fn warns(&self, now: Timestamp) -> Option<Warning> {
        let failing = now.since(self.failing_since?);
        let due = u8::from(failing >= DAY) + u8::from(failing >= SECOND_WARNING);
        (due > self.warnings).then(|| Warning {
            failing,
            left: DISABLED_AFTER.saturating_sub(failing),
        })
    }

    /// Whether all processes should know: not every failure is worth a write.
    pub fn is_news(&self, kept: &Self) -> bool {
        let told = |health: &Self| (health.paused_until, health.trips, health.warnings);
        told(self) != told(kept)
            || self.failing_since.is_some() != kept.failing_since.is_some()
            || self.is_spread != kept.is_spread
            || (self.failures != kept.failures && self.failures.is_power_of_two())
    }

    /// As a store keeps it.
    pub fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_else(|_| "{}".to_owned())
    }

    /// As a store kept it; what cannot be read is as if nothing was wrong.
    pub fn from_json(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_default()
    }
}

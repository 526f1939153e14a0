//! Settings: values that can be changed while workers run, and the constraints between them.
//!
//! A change is checked as a whole: an invalid set is refused with all of its problems, and the old
//! set stays in force. Unset values follow the term: the heartbeat is a quarter of it, the reaper
//! interval a third, the shutdown timeout five sixths, the maximum hold three times the term.

mod name;

use std::time::Duration;

pub use name::Setting;

use crate::invalid::Invalid;
use crate::lease::Term;
use crate::retry::{LapsePolicy, RetryPolicy, RetryRules};
use crate::store::Claim;
use crate::time::{duration_text, parse_duration};
use crate::turn::OnDead;

/// Settings of the workers of a cluster.
///
/// ```
/// use std::time::Duration;
/// use tenure_core::{Setting, Settings};
///
/// let mut settings = Settings::default();
/// assert_eq!(settings.heartbeat(), Duration::from_millis(7_500));
/// settings.set(Setting::Term, "60s")?;
/// assert_eq!(settings.heartbeat(), Duration::from_secs(15));
///
/// settings.set(Setting::Heartbeat, "20s")?;
/// assert!(settings.check().is_err(), "three heartbeats must fit into a term, with room to spare");
/// # Ok::<(), tenure_core::Invalid>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Length of a lease without renewal: 100 ms to 24 h. Default 30 s.
    pub term: Term,
    /// Renewal interval; `None`: a quarter of the term.
    pub heartbeat: Option<Duration>,
    /// Maximum time for working on one item; `None`: three times the term.
    pub max_hold: Option<Duration>,
    /// Interval of the search for lapsed leases; `None`: a third of the term.
    pub reaper_interval: Option<Duration>,
    /// Items that a process works on at once. Default 10.
    pub concurrency: u32,
    /// Maximum items of one claim. Default 100.
    pub batch: u32,
    /// Time that a stop waits for running work; `None`: five sixths of the term.
    pub shutdown_timeout: Option<Duration>,
    /// Maximum number of retries of an item; the next failure is final. Default 25.
    pub max_retries: u32,
    /// Maximum delay after the first failure of an item; it doubles with each further failure.
    /// Default 1 s.
    pub retry_base: Duration,
    /// Upper limit of the delays before retries. Default 12 h.
    pub retry_cap: Duration,
    /// Number of lapses that an item survives. Default 5, at least 3.
    pub max_crashes: u32,
    /// Effect of a dead event on the rest of its key. Default: the key goes on without it.
    pub on_dead: OnDead,
    /// Retention of events that are done. Default 7 days.
    pub retention_published: Duration,
    /// Retention of dead events. Default 30 days.
    pub retention_dead: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            term: Term::STANDARD,
            heartbeat: None,
            max_hold: None,
            reaper_interval: None,
            concurrency: 10,
            batch: 100,
            shutdown_timeout: None,
            max_retries: RetryPolicy::default().max_retries,
            retry_base: RetryPolicy::default().base,
            retry_cap: RetryPolicy::default().cap,
            max_crashes: LapsePolicy::default().max_crashes(),
            on_dead: OnDead::default(),
            retention_published: Duration::from_hours(7 * 24),
            retention_dead: Duration::from_hours(30 * 24),
        }
    }
}

/// Timing of one lease, fixed at the claim. Changed settings apply to later claims only, so the
/// heartbeat of a lease always fits its term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseTiming {
    /// Length of the lease.
    pub term: Term,
    /// Renewal interval; three of these are less than the term.
    pub heartbeat: Duration,
    /// Maximum time for working on one item.
    pub max_hold: Duration,
}

impl Settings {
    /// Reaper interval for high volume.
    pub const REAPER_HIGH_VOLUME: Duration = Duration::from_secs(5);
    /// Reaper interval for low volume; valid only with a term that is longer than this.
    pub const REAPER_LOW_VOLUME: Duration = Duration::from_secs(30);
    /// Maximum items that a process works on at once.
    pub const CONCURRENCY_MAX: u32 = 10_000;

    /// Renewal interval in force.
    pub fn heartbeat(&self) -> Duration {
        self.heartbeat.unwrap_or(self.term.length() / 4)
    }

    /// Maximum time in force for working on one item.
    pub fn max_hold(&self) -> Duration {
        self.max_hold
            .unwrap_or(self.term.length().saturating_mul(3))
    }

    /// Reaper interval in force.
    pub fn reaper_interval(&self) -> Duration {
        self.reaper_interval
            .unwrap_or_else(|| whole_millis(self.term.length() / 3))
    }

    /// Shutdown timeout in force.
    pub fn shutdown_timeout(&self) -> Duration {
        self.shutdown_timeout
            .unwrap_or_else(|| whole_millis(self.term.length().saturating_mul(5) / 6))
    }

    /// Timing of a lease with the term of these settings.
    pub fn timing(&self) -> LeaseTiming {
        LeaseTiming {
            term: self.term,
            heartbeat: self.heartbeat(),
            max_hold: self.max_hold(),
        }
    }

    /// Timing of a lease with a queue's own term. Heartbeat and maximum hold have the set values if
    /// these fit that term, otherwise the defaults for it.
    pub fn timing_of(&self, term: Term) -> LeaseTiming {
        let length = term.length();
        LeaseTiming {
            term,
            heartbeat: self
                .heartbeat
                .filter(|beat| is_within_a_third(*beat, length))
                .unwrap_or(length / 4),
            max_hold: self
                .max_hold
                .filter(|hold| *hold >= length)
                .unwrap_or(length.saturating_mul(3)),
        }
    }

    /// Policy for lapses.
    pub fn lapse_policy(&self) -> LapsePolicy {
        let standard = LapsePolicy::default();
        LapsePolicy::new(self.max_crashes, standard.delays().to_vec())
            .unwrap_or(standard)
            .with_on_dead(self.on_dead)
    }

    /// Policy for failures.
    pub fn retry_policy(&self) -> RetryPolicy {
        RetryPolicy {
            max_retries: self.max_retries,
            base: self.retry_base,
            cap: self.retry_cap,
        }
    }

    /// Returns these settings with the retry rules of a queue.
    #[must_use]
    pub fn with_retry(mut self, rules: RetryRules) -> Self {
        let policy = self.retry_policy().with(rules);
        self.max_retries = policy.max_retries;
        self.retry_base = policy.base;
        self.retry_cap = policy.cap;
        self
    }

    /// Sets one value from its text. Call [`Settings::check`] after the last value of a change: it
    /// checks the constraints.
    ///
    /// # Errors
    /// The text is not a valid value.
    pub fn set(&mut self, setting: Setting, text: &str) -> Result<(), Invalid> {
        let field = setting.as_str();
        let duration = || {
            parse_duration(text).map_err(|_no_duration| {
                Invalid::new(field, format!("{text:?}"), "a duration such as 30s or 5m")
            })
        };
        let number = || {
            text.parse().map_err(|cause| {
                Invalid::new(
                    field,
                    format!("{text:?} ({cause})"),
                    "a whole number such as 10",
                )
            })
        };
        match setting {
            Setting::Term => {
                let length = duration()?;
                self.term = Term::renewable(length).map_err(|_out_of_range| {
                    Invalid::new(field, duration_text(length), Term::renewable_range())
                })?;
            }
            Setting::Heartbeat => self.heartbeat = Some(duration()?),
            Setting::MaxHold => self.max_hold = Some(duration()?),
            Setting::ReaperInterval => self.reaper_interval = Some(duration()?),
            Setting::Concurrency => self.concurrency = number()?,
            Setting::Batch => self.batch = number()?,
            Setting::ShutdownTimeout => self.shutdown_timeout = Some(duration()?),
            Setting::MaxRetries => self.max_retries = number()?,
            Setting::RetryBase => self.retry_base = duration()?,
            Setting::RetryCap => self.retry_cap = duration()?,
            Setting::MaxCrashes => self.max_crashes = number()?,
            Setting::OnDead => {
                self.on_dead = OnDead::parse(text).map_err(|_unknown| {
                    Invalid::new(field, format!("{text:?}"), "skip or block")
                })?;
            }
            Setting::RetentionPublished => self.retention_published = duration()?,
            Setting::RetentionDead => self.retention_dead = duration()?,
        }
        Ok(())
    }

    /// Value in force, as text that [`Settings::set`] parses.
    pub fn get(&self, setting: Setting) -> String {
        match setting {
            Setting::Term => duration_text(self.term.length()),
            Setting::Heartbeat => duration_text(self.heartbeat()),
            Setting::MaxHold => duration_text(self.max_hold()),
            Setting::ReaperInterval => duration_text(self.reaper_interval()),
            Setting::Concurrency => self.concurrency.to_string(),
            Setting::Batch => self.batch.to_string(),
            Setting::ShutdownTimeout => duration_text(self.shutdown_timeout()),
            Setting::MaxRetries => self.max_retries.to_string(),
            Setting::RetryBase => duration_text(self.retry_base),
            Setting::RetryCap => duration_text(self.retry_cap),
            Setting::MaxCrashes => self.max_crashes.to_string(),
            Setting::OnDead => self.on_dead.to_string(),
            Setting::RetentionPublished => duration_text(self.retention_published),
            Setting::RetentionDead => duration_text(self.retention_dead),
        }
    }

    /// Returns true if a value is unset and follows the term.
    pub fn is_following(&self, setting: Setting) -> bool {
        let following = [
            (Setting::Heartbeat, self.heartbeat),
            (Setting::MaxHold, self.max_hold),
            (Setting::ReaperInterval, self.reaper_interval),
            (Setting::ShutdownTimeout, self.shutdown_timeout),
        ];
        following.contains(&(setting, None))
    }

    /// Returns these settings, overridden by the values of a cluster. Unknown names are ignored: a
    /// newer program may have set them.
    ///
    /// # Errors
    /// Every invalid value; if all values are valid, every violated constraint.
    pub fn overlaid(&self, values: &[(String, String)]) -> Result<Self, Vec<Invalid>> {
        let mut settings = self.clone();
        let mut problems = Vec::new();
        for (name, text) in values {
            if let Ok(setting) = Setting::parse(name)
                && let Err(problem) = settings.set(setting, text)
            {
                problems.push(problem);
            }
        }
        if problems.is_empty() {
            settings.check()?;
            return Ok(settings);
        }
        Err(problems)
    }

    /// Checks the constraints between the values.
    ///
    /// # Errors
    /// Every violated constraint, all at once.
    pub fn check(&self) -> Result<(), Vec<Invalid>> {
        let term = self.term.length();
        let mut problems = Vec::new();
        let mut require = |holds: bool, setting: Setting, expected: String| {
            if !holds {
                problems.push(Invalid::new(setting.as_str(), self.get(setting), expected));
            }
        };
        let text = duration_text(term);
        require(
            Term::renewable(term).is_ok(),
            Setting::Term,
            Term::renewable_range(),
        );
        require(
            is_within_a_third(self.heartbeat(), term),
            Setting::Heartbeat,
            format!(
                "more than 0s and less than {}: a third of lease.term ({text})",
                duration_text(whole_millis(term / 3))
            ),
        );
        require(
            self.max_hold() >= term,
            Setting::MaxHold,
            format!("at least lease.term ({text})"),
        );
        require(
            !self.reaper_interval().is_zero() && self.reaper_interval() < term,
            Setting::ReaperInterval,
            format!("more than 0s and less than lease.term ({text})"),
        );
        require(
            self.shutdown_timeout() <= term,
            Setting::ShutdownTimeout,
            format!("at most lease.term ({text})"),
        );
        require(
            (1..=Self::CONCURRENCY_MAX).contains(&self.concurrency),
            Setting::Concurrency,
            format!("1 to {}", Self::CONCURRENCY_MAX),
        );
        require(
            (1..=Claim::LIMIT_MAX).contains(&self.batch),
            Setting::Batch,
            format!("1 to {}", Claim::LIMIT_MAX),
        );
        require(
            self.max_crashes >= LapsePolicy::MAX_CRASHES_MIN,
            Setting::MaxCrashes,
            "3 or more: a lapse counts for every item of the lease".to_owned(),
        );
        self.check_delays(&mut require);
        if problems.is_empty() {
            return Ok(());
        }
        Err(problems)
    }

    fn check_delays(&self, require: &mut impl FnMut(bool, Setting, String)) {
        require(
            RetryPolicy::DELAYS.contains(&self.retry_base),
            Setting::RetryBase,
            "1ms to 30d".to_owned(),
        );
        let base = duration_text(self.retry_base);
        require(
            RetryPolicy::DELAYS.contains(&self.retry_cap) && self.retry_cap >= self.retry_base,
            Setting::RetryCap,
            format!("at least retry.base ({base}) and at most 30d"),
        );
    }
}

/// Truncates to whole milliseconds, for readable output; shorter durations stay unchanged.
fn whole_millis(length: Duration) -> Duration {
    let millis = u64::try_from(length.as_millis()).unwrap_or(u64::MAX);
    match millis {
        0 => length,
        millis => Duration::from_millis(millis),
    }
}

/// Returns true if `beat` is not zero and below a third of `term`. A division would round.
fn is_within_a_third(beat: Duration, term: Duration) -> bool {
    !beat.is_zero() && beat.checked_mul(3).is_some_and(|three| three < term)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(values: &[(Setting, &str)]) -> Result<Settings, Vec<Invalid>> {
        let values: Vec<_> = values
            .iter()
            .map(|(setting, text)| (setting.to_string(), (*text).to_owned()))
            .collect();
        Settings::default().overlaid(&values)
    }

    /// Proves: S1-018, S1-019
    #[test]
    fn three_heartbeats_are_strictly_less_than_a_term() {
        for (beat, is_legal) in [
            ("9999ms", true),
            ("9s 999ms 999us 999ns", true),
            ("10s", false),
            ("10000ms", false),
            ("10001ms", false),
            ("1ns", true),
            ("0s", false),
        ] {
            let answer = with(&[(Setting::Heartbeat, beat)]);
            assert_eq!(answer.is_ok(), is_legal, "{beat} with a term of 30s");
        }
        assert_eq!(
            Settings::default().heartbeat(),
            Duration::from_millis(7_500)
        );
    }

    /// Proves: S1-030, S1-031, S1-032, S1-033
    #[test]
    fn the_reaper_interval_is_less_than_the_term() {
        assert_eq!(
            Settings::default().reaper_interval(),
            Duration::from_secs(10)
        );
        let high = duration_text(Settings::REAPER_HIGH_VOLUME);
        let low = duration_text(Settings::REAPER_LOW_VOLUME);
        assert_eq!((high.as_str(), low.as_str()), ("5s", "30s"));
        assert!(with(&[(Setting::ReaperInterval, &high)]).is_ok());
        assert!(
            with(&[(Setting::ReaperInterval, &low)]).is_err(),
            "with a term of 30s"
        );
        assert!(with(&[(Setting::ReaperInterval, &low), (Setting::Term, "30001ms")]).is_ok());
        assert!(with(&[(Setting::ReaperInterval, "0s")]).is_err());
    }

    /// Proves: S1-041
    #[test]
    fn the_shutdown_timeout_may_equal_the_term() {
        assert_eq!(
            Settings::default().shutdown_timeout(),
            Duration::from_secs(25)
        );
        assert!(with(&[(Setting::ShutdownTimeout, "30s")]).is_ok());
        assert!(with(&[(Setting::ShutdownTimeout, "30001ms")]).is_err());
        assert!(with(&[(Setting::ShutdownTimeout, "0s")]).is_ok());
    }

    #[test]
    fn unset_values_follow_the_term() {
        let settings = with(&[(Setting::Term, "120s")]).unwrap();
        assert_eq!(settings.heartbeat(), Duration::from_secs(30));
        assert_eq!(settings.reaper_interval(), Duration::from_secs(40));
        assert_eq!(settings.shutdown_timeout(), Duration::from_secs(100));
        assert_eq!(settings.max_hold(), Duration::from_mins(6));
        for millis in [100, 101, 103, 107, 86_400_000] {
            let text = format!("{millis}ms");
            assert!(with(&[(Setting::Term, &text)]).is_ok(), "a term of {text}");
        }
    }

    #[test]
    fn a_term_too_short_for_a_heartbeat_is_refused_as_a_text_and_as_a_value() {
        let problems = with(&[(Setting::Term, "1ms"), (Setting::Batch, "many")]).unwrap_err();
        let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(messages[0], "lease.term is 1ms; expected 100ms to 24h");
        assert_eq!(messages.len(), 2, "{messages:?}");
        let settings = Settings {
            term: Term::new(Duration::from_millis(99)).unwrap(),
            concurrency: 0,
            ..Settings::default()
        };
        let problems = settings.check().unwrap_err();
        let messages: Vec<String> = problems.iter().map(ToString::to_string).collect();
        assert_eq!(messages[0], "lease.term is 99ms; expected 100ms to 24h");
        assert_eq!(messages.len(), 2, "{messages:?}");
    }

    #[test]
    fn every_problem_is_reported_at_once() {
        let problems = with(&[
            (Setting::Heartbeat, "10s"),
            (Setting::ReaperInterval, "30s"),
            (Setting::ShutdownTimeout, "31s"),
            (Setting::MaxHold, "29s"),
            (Setting::Concurrency, "0"),
            (Setting::Batch, "0"),
            (Setting::MaxCrashes, "2"),
        ])
        .unwrap_err();
        assert_eq!(problems.len(), 7, "{problems:?}");
        let problems = with(&[(Setting::Term, "soon"), (Setting::Batch, "-1")]).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
    }

    #[test]
    fn every_value_can_be_parsed_from_its_text_and_unknown_names_are_ignored() {
        let settings = Settings::default();
        let mut again = settings.clone();
        for setting in Setting::ALL {
            assert_eq!(Setting::parse(setting.as_str()), Ok(setting));
            again.set(setting, &settings.get(setting)).unwrap();
            assert_eq!(again.get(setting), settings.get(setting));
            assert!(!again.is_following(setting));
        }
        assert_eq!(again.check(), Ok(()));
        let newer = [("lease.colour".to_owned(), "blue".to_owned())];
        assert_eq!(settings.overlaid(&newer), Ok(settings));
    }

    #[test]
    fn heartbeat_and_maximum_hold_fit_the_own_term_of_a_queue() {
        let settings = with(&[(Setting::Heartbeat, "5s"), (Setting::MaxHold, "40s")]).unwrap();
        let short = settings.timing_of(Term::new(Duration::from_secs(12)).unwrap());
        assert_eq!(short.heartbeat, Duration::from_secs(3));
        assert_eq!(short.max_hold, Duration::from_secs(40));
        let long = settings.timing_of(Term::EXTERNAL);
        assert_eq!(long.heartbeat, Duration::from_secs(5));
        assert_eq!(long.max_hold, Duration::from_secs(270));
        assert_eq!(settings.timing_of(Term::STANDARD), settings.timing());
    }
}

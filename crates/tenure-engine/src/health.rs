//! Health of an engine: readiness checks and load.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::{TopicSet, WorkerId};
use tokio::time::Instant;

use crate::config::Duty;
use crate::settings_watcher::ActiveSettings;

/// Readiness checks and load of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Health {
    /// The worker's identity.
    pub worker: WorkerId,
    /// Topics that it claims; none for a worker on deliveries or rows.
    pub topics: TopicSet,
    /// The checks, independent of each other.
    pub checks: Vec<Check>,
    /// Items being worked on.
    pub running: u32,
    /// Items held, running or not.
    pub held: u32,
    /// True if nothing is held, running, being claimed or being released.
    pub is_idle: bool,
}

impl Health {
    /// True when no check has a problem.
    pub fn is_ready(&self) -> bool {
        self.checks.iter().all(|check| check.problem.is_none())
    }
}

/// Result of one readiness check.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Check {
    /// `claims`, `settings`, `heartbeat` or `reaper`.
    pub name: &'static str,
    /// Time since the last success; `None`: never.
    pub last: Option<Duration>,
    /// Description of the problem; `None`: healthy.
    pub problem: Option<String>,
}

/// Last successes and failures of each part of an engine.
#[derive(Debug)]
pub(crate) struct Vitals {
    started: Instant,
    signs: Mutex<Signs>,
}

#[derive(Debug, Default)]
struct Signs {
    settings: Option<Instant>,
    claim: Option<Instant>,
    beat: Option<Instant>,
    /// Last failed renewal and its reason; reset by the next success.
    missed_beat: Option<(Instant, String)>,
    reap: Option<Instant>,
    /// Last error of the store; reset by the next answer.
    store: Option<String>,
    /// Errors logged since the store last answered.
    logged: Vec<String>,
    /// Last answer of the store to a write.
    answered: Option<Instant>,
    /// First failure since then.
    failing_since: Option<Instant>,
    /// The failure was logged.
    is_told: bool,
    /// End and length of the last outage.
    outage: Option<(Instant, Duration)>,
}

/// Time after an outage in which a failure is logged only if it lasts: some connections may not be
/// renewed yet.
const RECOVERY_TIME: Duration = Duration::from_secs(10);
/// Length of a failure that counts as lasting.
const LASTING: Duration = Duration::from_secs(1);

/// Interval at which the reaper checks that the store answers again.
const AWAY_POLL: Duration = Duration::from_millis(500);

/// Number of intervals that the reaper may miss before the worker counts as not ready. A failed
/// renewal counts as a problem for the same number of intervals.
const MISSED_INTERVALS: u32 = 3;

/// Maximum number of distinct store failures that are logged before the store answers again.
const LOGGED_FAILURES: usize = 8;

impl Vitals {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            started: now,
            signs: Mutex::default(),
        }
    }

    fn signs(&self) -> MutexGuard<'_, Signs> {
        self.signs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn settings_read(&self, now: Instant) {
        self.signs().settings = Some(now);
    }

    pub(crate) fn claimed(&self, now: Instant) {
        self.signs().claim = Some(now);
    }

    pub(crate) fn beat(&self, now: Instant) {
        let mut signs = self.signs();
        signs.beat = Some(now);
        signs.missed_beat = None;
    }

    /// Records a failed renewal; its leases are lost.
    pub(crate) fn missed_beat(&self, now: Instant, reason: &str) {
        self.signs().missed_beat = Some((now, reason.to_owned()));
    }

    pub(crate) fn reaped(&self, now: Instant) {
        self.signs().reap = Some(now);
    }

    /// Records an answer of the store to a write. After a failure, returns the time since the last
    /// answer.
    pub(crate) fn store_answered(&self, now: Instant) -> Option<(Duration, bool)> {
        let mut signs = self.signs();
        let before = signs.answered.replace(now);
        let since = signs.failing_since.take()?;
        signs.logged.clear();
        signs.store = None;
        let away = now - before.unwrap_or(since);
        signs.outage = Some((now, away));
        Some((away, std::mem::take(&mut signs.is_told)))
    }

    /// True from a failure of the store until it accepts a write.
    pub(crate) fn is_store_failing(&self) -> bool {
        self.signs().failing_since.is_some()
    }

    /// Time until the next reap, if it must wait. While the store is unavailable, nothing is
    /// reaped: the reap could be the first call that is answered. After an outage of a heartbeat or
    /// more, the holders of lapsed leases have one heartbeat to release what no handler has begun.
    pub(crate) fn reap_delay(&self, now: Instant, heartbeat: Duration) -> Option<Duration> {
        let signs = self.signs();
        if signs.failing_since.is_some() {
            return Some(AWAY_POLL);
        }
        let (ended, away) = signs.outage?;
        let from = ended + heartbeat;
        (away >= heartbeat && now < from).then(|| from - now)
    }

    /// Records a store failure. Returns true if it should be logged: the first one of an outage, or
    /// another one that a retry cannot help.
    pub(crate) fn store_failed(&self, reason: &str, is_transient: bool) -> bool {
        let now = Instant::now();
        let mut signs = self.signs();
        signs.store = Some(reason.to_owned());
        let since = *signs.failing_since.get_or_insert(now);
        if is_transient {
            let ended = signs.outage.map(|(ended, _)| ended);
            let is_recovering = ended.is_some_and(|ended| now < ended + RECOVERY_TIME);
            let is_news = !signs.is_told && (!is_recovering || now >= since + LASTING);
            signs.is_told |= is_news;
            return is_news;
        }
        let core = reason.split_once(": ").map_or(reason, |(_verb, core)| core);
        let should_log = signs.logged.len() < LOGGED_FAILURES
            && !signs.logged.iter().any(|logged| logged == core);
        if should_log {
            signs.logged.push(core.to_owned());
            signs.is_told = true;
        }
        should_log
    }

    /// The checks, judged by the intervals of the active settings.
    pub(crate) fn checks(&self, now: Instant, live: &ActiveSettings, reaper: Duty) -> Vec<Check> {
        let signs = self.signs();
        let check = |name, last: Option<Instant>, problem| Check {
            name,
            last: last.map(|at| now - at),
            problem,
        };
        let unread = || "the settings were not read yet".to_owned();
        let mut checks = vec![
            check("claims", signs.claim, signs.store.clone()),
            check("settings", signs.settings, (!live.is_loaded).then(unread)),
            check("heartbeat", signs.beat, signs.renewal_problem(now, live)),
        ];
        if reaper == Duty::Done {
            let allowed = live.settings.reaper_interval();
            let allowed = allowed.saturating_mul(MISSED_INTERVALS);
            let since = now - signs.reap.unwrap_or(self.started);
            let is_missing = signs.reap.is_none() || since > allowed;
            let missing = || format!("no run for {}", text(since));
            checks.push(check("reaper", signs.reap, is_missing.then(missing)));
        }
        checks
    }
}

impl Signs {
    /// Reason of the last failed renewal. It counts for a few intervals only, because an idle
    /// worker renews nothing, so that no success would reset it.
    fn renewal_problem(&self, now: Instant, live: &ActiveSettings) -> Option<String> {
        let (at, reason) = self.missed_beat.as_ref()?;
        let is_recent = now - *at <= live.heartbeat().saturating_mul(MISSED_INTERVALS);
        is_recent.then(|| format!("a renewal failed: {reason}"))
    }
}

/// A duration in whole milliseconds.
fn text(span: Duration) -> String {
    let millis = u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
    tenure_core::duration_text(Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use tenure_core::Settings;
    use tokio::time::advance;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failed_renewal_counts_until_one_succeeds_or_for_three_intervals() {
        let now = Instant::now();
        let vitals = Vitals::new(now);
        let live = ActiveSettings::new(Settings::default());
        let problem = |now| {
            let checks = vitals.checks(now, &live, Duty::Left);
            let beat = checks.into_iter().find(|check| check.name == "heartbeat");
            beat.unwrap().problem
        };
        assert_eq!(problem(now), None);
        vitals.missed_beat(now, "no connection");
        let failed = Some("a renewal failed: no connection".to_owned());
        assert_eq!(problem(now), failed);
        vitals.beat(now);
        assert_eq!(problem(now), None);
        vitals.missed_beat(now, "no connection");
        let while_ago = live.heartbeat() * MISSED_INTERVALS;
        assert_eq!(problem(now + while_ago), failed);
        assert_eq!(problem(now + while_ago * 2), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_failing_store_is_logged_once_until_it_answers() {
        let vitals = Vitals::new(Instant::now());
        let fails = || vitals.store_failed("claim: the connection was closed", true);
        assert!(fails());
        assert!(!fails());
        assert!(vitals.store_failed("claim: the role does not exist", false));
        assert!(!vitals.store_failed("reap: the role does not exist", false));
        let answered = || vitals.store_answered(Instant::now());
        assert_eq!(answered(), Some((Duration::ZERO, true)));
        // Shortly after an outage, only a lasting failure is logged.
        assert!(!fails());
        assert_eq!(answered(), Some((Duration::ZERO, false)));
        assert!(!fails());
        advance(LASTING).await;
        assert!(fails());
        assert_eq!(answered(), Some((LASTING, true)));
        advance(RECOVERY_TIME).await;
        assert!(fails());
    }

    #[tokio::test(start_paused = true)]
    async fn the_reaper_waits_during_an_outage_and_for_one_heartbeat_after_it() {
        let heartbeat = Duration::from_secs(7);
        let vitals = Vitals::new(Instant::now());
        let delay = || vitals.reap_delay(Instant::now(), heartbeat);
        assert_eq!(vitals.store_answered(Instant::now()), None);
        assert_eq!(delay(), None);
        for (away, waits) in [(1, false), (7, true)] {
            let _is_news = vitals.store_failed("claim: the connection was closed", true);
            assert!(delay().is_some(), "the store is away");
            advance(Duration::from_secs(away)).await;
            let ended = vitals.store_answered(Instant::now());
            assert_eq!(ended.map(|(away, _)| away), Some(Duration::from_secs(away)));
            assert_eq!(delay(), waits.then_some(heartbeat));
            advance(heartbeat).await;
            assert_eq!(delay(), None);
            assert_eq!(vitals.store_answered(Instant::now()), None);
        }
    }

    #[test]
    fn a_store_that_fails_differently_each_time_does_not_fill_the_log() {
        let vitals = Vitals::new(Instant::now());
        let logged =
            (0..100).filter(|number| vitals.store_failed(&format!("claim: no. {number}"), false));
        assert_eq!(logged.count(), LOGGED_FAILURES);
    }
}

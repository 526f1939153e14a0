//! Health: what an engine says of itself, for readiness and for people.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::WorkerId;
use tokio::time::Instant;

use crate::config::Duty;
use crate::live::Live;

/// Where an engine stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Who.
    pub worker: WorkerId,
    /// What is looked at; each by itself.
    pub checks: Vec<Check>,
    /// How many items are being worked on.
    pub running: u32,
    /// How many are held, worked on or not.
    pub held: u32,
}

impl Health {
    /// Whether it does its work: every check holds.
    pub fn is_ready(&self) -> bool {
        self.checks.iter().all(|check| check.problem.is_none())
    }
}

/// One thing that is looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// What: `claims`, `settings`, `heartbeat`, `reaper`.
    pub name: &'static str,
    /// How long ago it was last seen to work, if ever.
    pub last: Option<Duration>,
    /// What is wrong; `None`: nothing.
    pub problem: Option<String>,
}

/// When each part of an engine was last seen to work.
#[derive(Debug)]
pub(crate) struct Vitals(Mutex<Signs>);

#[derive(Debug)]
struct Signs {
    started: Instant,
    settings: Option<Instant>,
    claim: Option<Instant>,
    beat: Option<Instant>,
    /// When a renewal failed last, and why; gone with the next that does not.
    missed_beat: Option<(Instant, String)>,
    reap: Option<Instant>,
    /// What the store said last, if it failed.
    store: Option<String>,
    /// What was told of it since it last answered.
    told: Vec<String>,
}

/// How many intervals a reaper may miss before the worker is not ready, and for how many a renewal
/// that failed counts.
const MISSED: u32 = 3;

/// So many different failures of a store are told before it answers again.
const TOLD: usize = 8;

impl Vitals {
    pub(crate) fn new(now: Instant) -> Self {
        Self(Mutex::new(Signs {
            started: now,
            settings: None,
            claim: None,
            beat: None,
            missed_beat: None,
            reap: None,
            store: None,
            told: Vec::new(),
        }))
    }

    fn signs(&self) -> MutexGuard<'_, Signs> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn saw_settings(&self, now: Instant) {
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

    /// A renewal failed, and what it was to renew is lost.
    pub(crate) fn missed_beat(&self, now: Instant, reason: &str) {
        self.signs().missed_beat = Some((now, reason.to_owned()));
    }

    pub(crate) fn reaped(&self, now: Instant) {
        self.signs().reap = Some(now);
        self.store_answered();
    }

    /// The store answered.
    pub(crate) fn store_answered(&self) {
        let mut signs = self.signs();
        signs.told.clear();
        if signs.store.take().is_some() {
            tracing::info!("the store answered again");
        }
    }

    /// The store failed; answers whether that is news: the first failure since it answered, or
    /// one for another reason, whichever verb met it.
    pub(crate) fn store_failed(&self, reason: &str) -> bool {
        let mut signs = self.signs();
        signs.store = Some(reason.to_owned());
        let core = reason.split_once(": ").map_or(reason, |(_verb, core)| core);
        let is_news = signs.told.len() < TOLD && !signs.told.iter().any(|told| told == core);
        if is_news {
            signs.told.push(core.to_owned());
        }
        is_news
    }

    /// The checks, by the settings in force.
    pub(crate) fn checks(&self, now: Instant, live: &Live, reaper: Duty) -> Vec<Check> {
        let signs = self.signs();
        let ago = |moment: Option<Instant>| moment.map(|moment| now - moment);
        let mut checks = vec![
            Check {
                name: "claims",
                last: ago(signs.claim),
                problem: signs.store.clone(),
            },
            Check {
                name: "settings",
                last: ago(signs.settings),
                problem: (!live.is_followed).then(|| "the cluster was not reached yet".to_owned()),
            },
            Check {
                name: "heartbeat",
                last: ago(signs.beat),
                problem: signs.unsteady(now, live),
            },
        ];
        if reaper == Duty::Done {
            let interval = live.settings.reaper_interval();
            let since = now - signs.reap.unwrap_or(signs.started);
            let is_missing = signs.reap.is_none() || since > interval.saturating_mul(MISSED);
            checks.push(Check {
                name: "reaper",
                last: ago(signs.reap),
                problem: is_missing
                    .then(|| format!("no run for {}", tenure_core::duration_text(round(since)))),
            });
        }
        checks
    }
}

impl Signs {
    /// Why renewals fail, if they do. A worker that holds nothing has none to renew, so a failure
    /// counts for a while only.
    fn unsteady(&self, now: Instant, live: &Live) -> Option<String> {
        let (at, reason) = self.missed_beat.as_ref()?;
        let is_recent = now - *at <= live.heartbeat().saturating_mul(MISSED);
        is_recent.then(|| format!("a renewal failed: {reason}"))
    }
}

/// Whole milliseconds, for people.
fn round(span: Duration) -> Duration {
    Duration::from_millis(u64::try_from(span.as_millis()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use tenure_core::Settings;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_renewal_that_failed_counts_until_one_is_kept_or_for_a_while() {
        let now = Instant::now();
        let vitals = Vitals::new(now);
        let live = Live::new(Settings::default());
        let problem = |now| {
            let checks = vitals.checks(now, &live, Duty::Left);
            let beat = checks.into_iter().find(|check| check.name == "heartbeat");
            beat.unwrap().problem
        };
        assert_eq!(problem(now), None);
        vitals.missed_beat(now, "no connection");
        let told = Some("a renewal failed: no connection".to_owned());
        assert_eq!(problem(now), told);
        vitals.beat(now);
        assert_eq!(problem(now), None);
        vitals.missed_beat(now, "no connection");
        let while_ago = live.heartbeat() * MISSED;
        assert_eq!(problem(now + while_ago), told);
        assert_eq!(problem(now + while_ago * 2), None);
    }

    #[test]
    fn a_failing_store_is_news_once_per_reason_until_it_answers() {
        let vitals = Vitals::new(Instant::now());
        assert!(vitals.store_failed("claim: the connection was closed"));
        assert!(!vitals.store_failed("reap: the connection was closed"));
        assert!(vitals.store_failed("claim: the database is read-only"));
        assert!(!vitals.store_failed("claim: the connection was closed"));
        vitals.store_answered();
        assert!(vitals.store_failed("claim: the connection was closed"));
        vitals.reaped(Instant::now());
        assert!(vitals.store_failed("claim: the connection was closed"));
    }

    #[test]
    fn a_store_that_fails_differently_each_time_does_not_fill_the_log() {
        let vitals = Vitals::new(Instant::now());
        let told = (0..100).filter(|number| vitals.store_failed(&format!("claim: no. {number}")));
        assert_eq!(told.count(), TOLD);
    }
}

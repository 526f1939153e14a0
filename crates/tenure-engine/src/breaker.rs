//! Circuit breaker of a publisher.
//!
//! While it is closed, every event passes. After a few consecutive *away* answers (the publisher is
//! unavailable) it opens for a delay, and nothing passes. After the delay one event passes as a
//! trial: if the publisher gives any other answer, the breaker closes; if the publisher is still
//! unavailable, the breaker opens for twice as long. A trial that is dropped without an answer
//! makes way for another.
//!
//! The breaker reads no clock: callers pass `now`.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::DELAY_MIN;
use tokio::time::Instant;

/// Thresholds and delays of the circuit breaker of a publisher.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// Consecutive *away* answers that open the breaker. Default 3, because one or two may be
    /// accidental.
    pub aways_max: u32,
    /// First delay; it doubles each time the publisher is still unavailable. Default 500 ms.
    pub delay: Duration,
    /// Longest delay, unless the receiver requests a longer one. Default 30 s, so that a receiver
    /// that works again soon gets events.
    pub delay_max: Duration,
}

impl Default for BreakerConfig {
    fn default() -> Self {
        Self {
            aways_max: 3,
            delay: Duration::from_millis(500),
            delay_max: Duration::from_secs(30),
        }
    }
}

#[derive(Debug)]
pub(crate) struct Breaker {
    config: BreakerConfig,
    state: Mutex<BreakerState>,
}

#[derive(Debug)]
struct BreakerState {
    phase: Phase,
    /// Consecutive *away* answers while closed.
    aways: u32,
    /// Number of openings since the breaker was last closed.
    openings: u32,
    /// Number of phase changes; identifies answers from an earlier phase.
    epoch: u64,
    /// Reason of the last *away* answer.
    reason: String,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    Closed,
    Open { until: Instant },
    Trial { since: Instant },
}

/// Effect of an answer on the breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BreakerChange {
    None,
    /// The breaker opened for this long.
    Opened(Duration),
    Closed,
}

impl Breaker {
    pub(crate) fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            state: Mutex::new(BreakerState {
                phase: Phase::Closed,
                aways: 0,
                openings: 0,
                epoch: 0,
                reason: String::new(),
            }),
        }
    }

    /// Reason to pause claiming, if any.
    pub(crate) fn away(&self, now: Instant) -> Option<String> {
        let state = self.state();
        match state.phase {
            Phase::Closed => None,
            Phase::Open { until } => (now < until).then(|| state.reason.clone()),
            Phase::Trial { .. } => Some(state.reason.clone()),
        }
    }

    /// Decides about one event; `Err`: retry it after this delay.
    pub(crate) fn admit(&self, now: Instant) -> Result<Pass<'_>, Duration> {
        let mut state = self.state();
        let is_trial = match state.phase {
            Phase::Closed => false,
            Phase::Open { until } if now < until => {
                return Err((until - now).max(DELAY_MIN));
            }
            Phase::Open { .. } => {
                state.enter(Phase::Trial { since: now });
                true
            }
            Phase::Trial { since } => return Err(self.trial_delay(now - since)),
        };
        Ok(Pass {
            breaker: self,
            epoch: state.epoch,
            is_trial,
        })
    }

    /// Delay of the `openings`-th consecutive opening.
    fn delay(&self, openings: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(openings.saturating_sub(1));
        self.config
            .delay
            .saturating_mul(doubled)
            .min(self.config.delay_max)
            .max(DELAY_MIN)
    }

    /// Delay of the other events while a trial has been running for `taken`: that same time, within
    /// the configured limits. With a short fixed delay, the worker would claim and release all
    /// other events over and over while a trial hangs.
    fn trial_delay(&self, taken: Duration) -> Duration {
        let least = self.config.delay.max(DELAY_MIN);
        taken.clamp(least, least.max(self.config.delay_max))
    }

    fn state(&self) -> MutexGuard<'_, BreakerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BreakerState {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.aways = 0;
        self.epoch += 1;
    }
}

/// Permission to send one event; consumed by the publisher's answer.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    breaker: &'a Breaker,
    epoch: u64,
    is_trial: bool,
}

impl Pass<'_> {
    /// True if other events wait for the answer to this event.
    pub(crate) fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// Records any answer of the publisher except *away*, even a refusal of the event.
    pub(crate) fn answered(self) -> BreakerChange {
        let mut state = self.breaker.state();
        if state.epoch != self.epoch {
            return BreakerChange::None;
        }
        state.aways = 0;
        if !self.is_trial {
            return BreakerChange::None;
        }
        state.openings = 0;
        state.enter(Phase::Closed);
        BreakerChange::Closed
    }

    /// Records that the publisher is unavailable. Returns the delay of the event: as requested by
    /// the receiver, but at least until the breaker admits the next trial.
    pub(crate) fn away(
        self,
        now: Instant,
        requested: Option<Duration>,
        reason: &str,
    ) -> (Duration, BreakerChange) {
        let breaker = self.breaker;
        let mut state = breaker.state();
        let requested = requested.unwrap_or_default();
        if state.epoch != self.epoch {
            // This event was sent before the breaker opened; other events have already reported
            // that the publisher is unavailable.
            let left = match state.phase {
                Phase::Open { until } => until.saturating_duration_since(now),
                Phase::Closed | Phase::Trial { .. } => breaker.config.delay,
            };
            return (left.max(requested).max(DELAY_MIN), BreakerChange::None);
        }
        state.aways = state.aways.saturating_add(1);
        if !self.is_trial && state.aways < breaker.config.aways_max {
            return (breaker.delay(1).max(requested), BreakerChange::None);
        }
        state.openings = state.openings.saturating_add(1);
        let delay = breaker.delay(state.openings).max(requested);
        reason.clone_into(&mut state.reason);
        state.enter(Phase::Open { until: now + delay });
        (delay, BreakerChange::Opened(delay))
    }
}

impl Drop for Pass<'_> {
    /// Ends a trial without an answer (its lease was lost, or the publisher panicked): the next
    /// event becomes the trial. After an answer the epoch differs, and nothing happens.
    fn drop(&mut self) {
        let mut state = self.breaker.state();
        if let Phase::Trial { since } = state.phase
            && state.epoch == self.epoch
        {
            state.enter(Phase::Open { until: since });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: BreakerConfig = BreakerConfig {
        aways_max: 3,
        delay: Duration::from_millis(500),
        delay_max: Duration::from_secs(2),
    };

    fn pass(breaker: &Breaker, now: Instant) -> Pass<'_> {
        match breaker.admit(now) {
            Ok(pass) => pass,
            Err(time) => panic!("held back for {time:?}"),
        }
    }

    fn wait(breaker: &Breaker, now: Instant) -> Duration {
        match breaker.admit(now) {
            Ok(_) => panic!("let through"),
            Err(time) => time,
        }
    }

    fn open(breaker: &Breaker, now: Instant) {
        for _ in 0..CONFIG.aways_max {
            pass(breaker, now).away(now, None, "down");
        }
        assert_eq!(breaker.away(now).as_deref(), Some("down"));
    }

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn three_consecutive_away_answers_open_the_breaker() {
        let (breaker, now) = (Breaker::new(CONFIG), Instant::now());
        for _ in 0..2 {
            let (time, change) = pass(&breaker, now).away(now, None, "down");
            assert_eq!((time, change), (ms(500), BreakerChange::None));
        }
        assert_eq!(pass(&breaker, now).answered(), BreakerChange::None);
        for _ in 0..2 {
            pass(&breaker, now).away(now, None, "down");
        }
        assert_eq!(breaker.away(now), None, "another answer came in between");

        let (time, change) = pass(&breaker, now).away(now, None, "down");
        assert_eq!((time, change), (ms(500), BreakerChange::Opened(ms(500))));
        assert_eq!(breaker.away(now).as_deref(), Some("down"));
        assert_eq!(wait(&breaker, now + ms(300)), ms(200));
        assert_eq!(wait(&breaker, now + ms(499)), DELAY_MIN);
        assert_eq!(breaker.away(now + ms(500)), None);
    }

    #[test]
    fn the_delay_doubles_up_to_its_maximum_and_restarts_after_an_answer() {
        let (breaker, mut now) = (Breaker::new(CONFIG), Instant::now());
        open(&breaker, now);
        now += ms(500);
        for expected in [1000, 2000, 2000, 2000] {
            let (_, change) = pass(&breaker, now).away(now, None, "down");
            assert_eq!(change, BreakerChange::Opened(ms(expected)));
            now += ms(expected);
        }
        assert_eq!(pass(&breaker, now).answered(), BreakerChange::Closed);
        open(&breaker, now);
        assert_eq!(wait(&breaker, now), ms(500));
    }

    #[test]
    fn one_trial_passes_and_the_others_wait_for_it() {
        let (breaker, now) = (Breaker::new(CONFIG), Instant::now());
        open(&breaker, now);
        let due = now + ms(500);
        let trial = pass(&breaker, due);
        assert!(trial.is_trial());
        assert_eq!(wait(&breaker, due), ms(500));
        assert!(breaker.away(due).is_some(), "claiming is paused");
        assert_eq!(trial.answered(), BreakerChange::Closed);
        assert!(!pass(&breaker, due).is_trial());
    }

    #[test]
    fn a_dropped_trial_makes_way_for_another() {
        let (breaker, now) = (Breaker::new(CONFIG), Instant::now());
        open(&breaker, now);
        let due = now + ms(500);
        drop(pass(&breaker, due));
        assert_eq!(breaker.away(due), None);
        assert!(pass(&breaker, due).is_trial());
    }

    #[test]
    fn answers_to_events_sent_before_the_breaker_opened_change_nothing() {
        let (breaker, now) = (Breaker::new(CONFIG), Instant::now());
        let (slow, slower) = (pass(&breaker, now), pass(&breaker, now));
        open(&breaker, now);
        let (time, change) = slow.away(now + ms(100), None, "down");
        assert_eq!((time, change), (ms(400), BreakerChange::None));
        assert_eq!(slower.answered(), BreakerChange::None);
        assert_eq!(wait(&breaker, now + ms(100)), ms(400));
    }

    #[test]
    fn the_breaker_stays_open_as_long_as_the_receiver_requested() {
        let (breaker, now) = (Breaker::new(CONFIG), Instant::now());
        let minute = Duration::from_mins(1);
        for expected in [
            BreakerChange::None,
            BreakerChange::None,
            BreakerChange::Opened(minute),
        ] {
            let (time, change) = pass(&breaker, now).away(now, Some(minute), "over its limit");
            assert_eq!((time, change), (minute, expected));
        }
        assert_eq!(wait(&breaker, now), minute);
    }

    #[tokio::test(start_paused = true)]
    async fn the_longer_a_trial_takes_the_longer_the_others_wait() {
        let now = Instant::now();
        let breaker = Breaker::new(CONFIG);
        open(&breaker, now);
        let now = now + CONFIG.delay;
        let _trial = pass(&breaker, now);
        for (taken, waits) in [(0, 500), (400, 500), (900, 900), (60_000, 2000)] {
            let later = now + Duration::from_millis(taken);
            assert_eq!(wait(&breaker, later), Duration::from_millis(waits));
        }
    }
}

//! Breaker: remembers that a publisher is away, so that it is left alone for a while.
//!
//! Closed, everything passes. After a few answers in a row that it is away, it opens for a delay,
//! and nothing passes. When the delay is over, one trial passes: if the publisher answers, it
//! closes; if it is still away, it opens again, for twice as long. A trial that is given up before
//! it has an answer makes room for another.
//!
//! It reads no clock: `now` is always told.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::DELAY_MIN;
use tokio::time::Instant;

/// When a publisher is left alone, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakerConfig {
    /// So many answers in a row that it is away. Default 3: one may be chance.
    pub aways_max: u32,
    /// For so long at first; it doubles each time it is still away. Default 500 ms.
    pub delay: Duration,
    /// Never for longer, unless the receiver asks for it. Default 30 s, so that a receiver that is
    /// back is not kept waiting.
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

/// Remembers that a publisher is away.
pub(crate) struct Breaker {
    config: BreakerConfig,
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// Answers in a row that it is away, while closed.
    aways: u32,
    /// How often it opened since it was last closed for good.
    openings: u32,
    /// Counts the changes of phase, so that an answer from an earlier one is known.
    epoch: u64,
    /// Why it is away.
    reason: String,
}

#[derive(Clone, Copy)]
enum Phase {
    Closed,
    Open { until: Instant },
    Trial { since: Instant },
}

/// Whether an event may be sent.
#[derive(Debug)]
pub(crate) enum Admission<'a> {
    /// It may.
    Pass(Pass<'a>),
    /// Not before this long.
    Wait(Duration),
}

/// What became of the breaker by an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is as it was.
    None,
    /// It opened, for this long.
    Opened(Duration),
    /// It closed.
    Closed,
}

impl Breaker {
    pub(crate) fn new(config: BreakerConfig) -> Self {
        Self {
            config,
            state: Mutex::new(State {
                phase: Phase::Closed,
                aways: 0,
                openings: 0,
                epoch: 0,
                reason: String::new(),
            }),
        }
    }

    /// Why nothing should be claimed now, if so.
    pub(crate) fn away(&self, now: Instant) -> Option<String> {
        let state = self.state();
        match state.phase {
            Phase::Closed => None,
            Phase::Open { until } => (now < until).then(|| state.reason.clone()),
            Phase::Trial { .. } => Some(state.reason.clone()),
        }
    }

    /// Asks for one event.
    pub(crate) fn admit(&self, now: Instant) -> Admission<'_> {
        let mut state = self.state();
        let is_trial = match state.phase {
            Phase::Closed => false,
            Phase::Open { until } if now < until => {
                return Admission::Wait((until - now).max(DELAY_MIN));
            }
            Phase::Open { .. } => {
                state.enter(Phase::Trial { since: now });
                true
            }
            Phase::Trial { since } => return Admission::Wait(self.patience(now - since)),
        };
        Admission::Pass(Pass {
            breaker: self,
            epoch: state.epoch,
            is_trial,
        })
    }

    /// How long it stays open for the `openings`-th time in a row.
    fn delay(&self, openings: u32) -> Duration {
        let doubled = 2_u32.saturating_pow(openings.saturating_sub(1));
        self.config
            .delay
            .saturating_mul(doubled)
            .min(self.config.delay_max)
            .max(DELAY_MIN)
    }

    /// How long the others wait for a trial that has taken so long already: as long again. Were it
    /// always the shortest, a trial that hangs would have all others claimed and given back, over
    /// and over.
    fn patience(&self, taken: Duration) -> Duration {
        let least = self.config.delay.max(DELAY_MIN);
        taken.clamp(least, least.max(self.config.delay_max))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Breaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Breaker")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl State {
    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.aways = 0;
        self.epoch += 1;
    }
}

/// Leave to send one event; it ends with the publisher's answer.
#[derive(Debug)]
pub(crate) struct Pass<'a> {
    breaker: &'a Breaker,
    epoch: u64,
    is_trial: bool,
}

impl Pass<'_> {
    /// Whether all others wait for what becomes of this one.
    pub(crate) fn is_trial(&self) -> bool {
        self.is_trial
    }

    /// The publisher answered, whatever it said of the event.
    pub(crate) fn answered(self) -> Change {
        let mut state = self.breaker.state();
        if state.epoch != self.epoch {
            return Change::None;
        }
        state.aways = 0;
        if !self.is_trial {
            return Change::None;
        }
        state.openings = 0;
        state.enter(Phase::Closed);
        Change::Closed
    }

    /// The publisher is away. Answers how long to keep the event back: as long as the receiver
    /// asked, if it did, and at least as long as the breaker is open.
    pub(crate) fn away(
        self,
        now: Instant,
        asked: Option<Duration>,
        reason: &str,
    ) -> (Duration, Change) {
        let breaker = self.breaker;
        let mut state = breaker.state();
        let asked = asked.unwrap_or_default();
        if state.epoch != self.epoch {
            // It was sent before the breaker opened; others have told the same already.
            let left = match state.phase {
                Phase::Open { until } => until.saturating_duration_since(now),
                Phase::Closed | Phase::Trial { .. } => breaker.config.delay,
            };
            return (left.max(asked).max(DELAY_MIN), Change::None);
        }
        state.aways = state.aways.saturating_add(1);
        if !self.is_trial && state.aways < breaker.config.aways_max {
            return (breaker.delay(1).max(asked), Change::None);
        }
        state.openings = state.openings.saturating_add(1);
        let delay = breaker.delay(state.openings).max(asked);
        reason.clone_into(&mut state.reason);
        state.enter(Phase::Open { until: now + delay });
        (delay, Change::Opened(delay))
    }
}

impl Drop for Pass<'_> {
    /// A trial without an answer (its hold was lost, or its publisher panicked): the next event is
    /// one. After an answer the phase is another.
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
            Admission::Pass(pass) => pass,
            Admission::Wait(time) => panic!("held back for {time:?}"),
        }
    }

    fn wait(breaker: &Breaker, now: Instant) -> Duration {
        match breaker.admit(now) {
            Admission::Pass(_) => panic!("let through"),
            Admission::Wait(time) => time,
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
    fn three_aways_in_a_row_open_it() {
        let (breaker, now) = (Breaker::new(CONFIG), Instant::now());
        for _ in 0..2 {
            let (time, change) = pass(&breaker, now).away(now, None, "down");
            assert_eq!((time, change), (ms(500), Change::None));
        }
        assert_eq!(pass(&breaker, now).answered(), Change::None);
        for _ in 0..2 {
            pass(&breaker, now).away(now, None, "down");
        }
        assert_eq!(breaker.away(now), None, "an answer came between");

        let (time, change) = pass(&breaker, now).away(now, None, "down");
        assert_eq!((time, change), (ms(500), Change::Opened(ms(500))));
        assert_eq!(breaker.away(now).as_deref(), Some("down"));
        assert_eq!(wait(&breaker, now + ms(300)), ms(200));
        assert_eq!(wait(&breaker, now + ms(499)), DELAY_MIN);
        assert_eq!(breaker.away(now + ms(500)), None);
    }

    #[test]
    fn the_delay_doubles_up_to_its_longest_and_begins_anew_after_an_answer() {
        let (breaker, mut now) = (Breaker::new(CONFIG), Instant::now());
        open(&breaker, now);
        now += ms(500);
        for expected in [1000, 2000, 2000, 2000] {
            let (_, change) = pass(&breaker, now).away(now, None, "down");
            assert_eq!(change, Change::Opened(ms(expected)));
            now += ms(expected);
        }
        assert_eq!(pass(&breaker, now).answered(), Change::Closed);
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
        assert!(breaker.away(due).is_some(), "no more are claimed meanwhile");
        assert_eq!(trial.answered(), Change::Closed);
        assert!(!pass(&breaker, due).is_trial());
    }

    #[test]
    fn a_trial_that_was_given_up_makes_room_for_another() {
        let (breaker, now) = (Breaker::new(CONFIG), Instant::now());
        open(&breaker, now);
        let due = now + ms(500);
        drop(pass(&breaker, due));
        assert_eq!(breaker.away(due), None);
        assert!(pass(&breaker, due).is_trial());
    }

    #[test]
    fn answers_to_what_was_sent_before_it_opened_change_nothing() {
        let (breaker, now) = (Breaker::new(CONFIG), Instant::now());
        let (slow, slower) = (pass(&breaker, now), pass(&breaker, now));
        open(&breaker, now);
        let (time, change) = slow.away(now + ms(100), None, "down");
        assert_eq!((time, change), (ms(400), Change::None));
        assert_eq!(slower.answered(), Change::None);
        assert_eq!(wait(&breaker, now + ms(100)), ms(400));
    }

    #[test]
    fn it_stays_open_as_long_as_the_receiver_asked() {
        let (breaker, now) = (Breaker::new(CONFIG), Instant::now());
        let minute = Duration::from_mins(1);
        for expected in [Change::None, Change::None, Change::Opened(minute)] {
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

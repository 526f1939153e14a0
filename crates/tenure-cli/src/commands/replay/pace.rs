//! Pace of a replay: small steps at even intervals, without a burst after a slow one.

use tenure::operate::ReplayRate;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::exit::Exit;
use crate::problem::Problem;

/// Maximum events in one step, which is one transaction.
const SIZE_MAX: u32 = 1_000;

/// The result of waiting for the next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PaceStep {
    Go,
    /// Ctrl-C was pressed.
    Stop,
}

#[derive(Debug)]
pub(super) struct Pace {
    /// Events in a step.
    pub(super) size: usize,
    ticks: Option<Interval>,
    interrupt: Signal,
}

impl Pace {
    /// Steps at this rate, or without a pause. From here on Ctrl-C stops between two steps.
    pub(super) fn new(rate: Option<ReplayRate>) -> Result<Self, Problem> {
        let interrupt = signal(SignalKind::interrupt())
            .map_err(|error| Problem::new(Exit::Failed, "cannot listen for Ctrl-C").cause(error))?;
        let ticks = rate.map(|rate| {
            let mut ticks = interval(rate.wait(rate.step(SIZE_MAX)));
            // No burst after a slow step.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        Ok(Self {
            size: usize::try_from(rate.map_or(SIZE_MAX, |rate| rate.step(SIZE_MAX)))
                .unwrap_or(usize::MAX),
            ticks,
            interrupt,
        })
    }

    /// Waits until the next step is due.
    pub(super) async fn next(&mut self) -> PaceStep {
        let due = async {
            if let Some(ticks) = &mut self.ticks {
                ticks.tick().await;
            }
        };
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => PaceStep::Stop,
            () = due => PaceStep::Go,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    /// Goal: the rate is kept. Method: paused time, which only the waiting advances.
    #[tokio::test(start_paused = true)]
    async fn twenty_steps_take_nineteen_intervals() {
        let mut pace = Pace::new(Some(ReplayRate::parse("50/s").unwrap())).unwrap();
        assert_eq!(pace.size, 5);
        let start = Instant::now();
        for _ in 0..20 {
            assert_eq!(pace.next().await, PaceStep::Go);
        }
        let took = start.elapsed();
        let expected = Duration::from_millis(1_900);
        assert!(took >= expected, "{took:?}");
        assert!(took < expected + Duration::from_millis(100), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_there_is_no_wait() {
        let mut pace = Pace::new(None).unwrap();
        let start = Instant::now();
        for _ in 0..20 {
            assert_eq!(pace.next().await, PaceStep::Go);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

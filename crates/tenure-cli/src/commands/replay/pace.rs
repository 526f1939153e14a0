//! How fast events are replayed: in small steps at even distances, and never faster afterwards to
//! make up for a slow one.

use tenure::Rate;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::exit::Exit;
use crate::problem::Problem;

/// Events in one step, and so in one transaction.
const SIZE_MAX: u32 = 1_000;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The next step.
    Go,
    /// Nothing: someone pressed Ctrl-C.
    Stop,
}

/// The steps of a replay.
#[derive(Debug)]
pub(super) struct Pace {
    /// Events in a step.
    pub(super) size: usize,
    ticks: Option<Interval>,
    interrupt: Signal,
}

impl Pace {
    /// Steps at this rate, or one after another. From here on Ctrl-C stops between two steps.
    pub(super) fn new(rate: Option<Rate>) -> Result<Self, Problem> {
        let interrupt = signal(SignalKind::interrupt()).map_err(|error| {
            Problem::new(Exit::Failed, "Ctrl-C cannot be listened for").cause(error)
        })?;
        let ticks = rate.map(|rate| {
            let mut ticks = interval(rate.wait(rate.step(SIZE_MAX)));
            // A step that took long is not followed by a burst.
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
    pub(super) async fn next(&mut self) -> Step {
        let due = async {
            if let Some(ticks) = &mut self.ticks {
                ticks.tick().await;
            }
        };
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => Step::Stop,
            () = due => Step::Go,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::*;

    /// Goal: the pace holds. Method: time that stands still but for the waiting itself.
    #[tokio::test(start_paused = true)]
    async fn twenty_steps_take_nineteen_distances() {
        let mut pace = Pace::new(Some(Rate::parse("50/s").unwrap())).unwrap();
        assert_eq!(pace.size, 5);
        let start = Instant::now();
        for _ in 0..20 {
            assert_eq!(pace.next().await, Step::Go);
        }
        let took = start.elapsed();
        let expected = Duration::from_millis(1_900);
        assert!(took >= expected, "{took:?}");
        assert!(took < expected + Duration::from_millis(100), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_rate_nothing_is_waited_for() {
        let mut pace = Pace::new(None).unwrap();
        let start = Instant::now();
        for _ in 0..20 {
            assert_eq!(pace.next().await, Step::Go);
        }
        assert_eq!(start.elapsed(), Duration::ZERO);
    }
}

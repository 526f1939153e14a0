//! How fast events are replayed: in small steps at even distances, and never faster afterwards to
//! make up for a slow one.

use std::time::Duration;

use tenure::Invalid;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::exit::Exit;
use crate::problem::Problem;

/// Events in one step, and so in one transaction.
const SIZE_MAX: u32 = 1_000;

/// Steps are about this far apart, unless single events are farther.
const DISTANCE: Duration = Duration::from_millis(100);

/// At most so many events in such a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rate {
    number: u32,
    per: Duration,
}

impl Rate {
    /// Reads `50/s` or `600/m`.
    pub(crate) fn parse(text: &str) -> Result<Self, Invalid> {
        let wrong = || Invalid::new("the rate", format!("{text:?}"), "one such as 50/s or 600/m");
        let (number, unit) = text.split_once('/').ok_or_else(wrong)?;
        let per = match unit.trim() {
            "s" => Duration::from_secs(1),
            "m" => Duration::from_mins(1),
            _ => return Err(wrong()),
        };
        match number.trim().parse() {
            Ok(number @ 1..=1_000_000) => Ok(Self { number, per }),
            Ok(_) | Err(_) => Err(wrong()),
        }
    }

    /// Events in a step.
    fn size(self) -> u32 {
        let number = u128::from(self.number) * DISTANCE.as_micros() / self.per.as_micros().max(1);
        u32::try_from(number).unwrap_or(SIZE_MAX).clamp(1, SIZE_MAX)
    }

    /// From one step to the next.
    fn distance(self) -> Duration {
        self.per.saturating_mul(self.size()) / self.number
    }
}

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
            let mut ticks = interval(rate.distance());
            // A step that took long is not followed by a burst.
            ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
            ticks
        });
        Ok(Self {
            size: usize::try_from(rate.map_or(SIZE_MAX, Rate::size)).unwrap_or(usize::MAX),
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
    use tokio::time::Instant;

    use super::*;

    #[test]
    fn a_rate_is_read_as_people_write_it() {
        for (text, number, seconds) in [
            ("1/s", 1, 1),
            ("50/s", 50, 1),
            ("600/m", 600, 60),
            ("1000000/s", 1_000_000, 1),
        ] {
            let per = Duration::from_secs(seconds);
            assert_eq!(Rate::parse(text), Ok(Rate { number, per }));
        }
        for text in ["", "50", "0/s", "-1/s", "50/h", "/s", "1.5/s", "1000001/s"] {
            let problem = Rate::parse(text).unwrap_err().to_string();
            assert!(problem.contains("50/s"), "{text:?}: {problem}");
        }
    }

    #[test]
    fn steps_are_small_and_even() {
        for (text, size, micros) in [
            ("1/s", 1, 1_000_000),
            ("15/s", 1, 66_666),
            ("50/s", 5, 100_000),
            ("600/m", 1, 100_000),
            ("1/m", 1, 60_000_000),
            ("10000/s", 1_000, 100_000),
            ("1000000/s", 1_000, 1_000),
        ] {
            let rate = Rate::parse(text).unwrap();
            assert_eq!(rate.size(), size, "{text}");
            assert_eq!(rate.distance().as_micros(), micros, "{text}");
        }
    }

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

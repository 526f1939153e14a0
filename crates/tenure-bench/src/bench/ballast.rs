//! A drain beside many events that it cannot take, alternating with one without them: those of
//! stuck keys (delayed, paused or blocked), and those of a topic that no worker takes.

use std::time::Duration;

use tenure::Outcome;

use super::drain::{Drain, Drained, failed, open};
use super::report::{Figures, Ratio, UntakenTopic};
use super::sides::{Side, compare};
use super::wait::{Headway, until};
use super::{Bench, LOOPS};
use crate::host::Steps;
use crate::stop::Stop;
use crate::yardstick::{Stopwatch, TOPIC, Yardstick};

/// Interval between two counts of the events that are set aside; a count is work for the database.
const COUNT: Duration = Duration::from_millis(250);
/// Number of keys of a drain, unless `--keyed` gives another.
pub(super) const KEYS: u32 = 10_000;

/// Measures what the arguments ask for.
pub(super) async fn measure(
    args: &Bench,
    url: &str,
    progress: &Steps,
    figures: &mut Figures,
) -> Result<(), Stop> {
    let unkeyed = Drain::of(args.events, args.batch);
    let keyed = unkeyed.keyed(args.keyed.unwrap_or(KEYS));
    if let Some(events) = args.blocked {
        let pair = Pair::open(url).await?;
        let done = pair
            .measure(
                Ballast::Blocked(events),
                [unkeyed, keyed],
                args.rounds,
                progress,
            )
            .await;
        let [blocked, blocked_keyed] = pair.close(done).await?;
        figures.blocked_vs_none = Some(blocked);
        figures.blocked_keyed_vs_none = Some(blocked_keyed);
    }
    if let Some(events) = args.hot_key {
        let pair = Pair::open(url).await?;
        let done = pair
            .measure(Ballast::Hot(events), [keyed], args.rounds, progress)
            .await;
        let [hot_key] = pair.close(done).await?;
        figures.hot_key_vs_none = Some(hot_key);
    }
    if let Some(events) = args.untaken {
        let pair = Pair::open(url).await?;
        let done = pair.untaken(events, args, progress).await;
        figures.untaken = Some(pair.close(done).await?);
    }
    Ok(())
}

/// Events that the drain cannot take.
#[derive(Clone, Copy, Debug)]
enum Ballast {
    /// This many events behind the heads of a thousand stuck keys.
    Blocked(u32),
    /// This many events behind the delayed head of one key.
    Hot(u32),
    /// This many events of a topic that no worker takes.
    Untaken(u32),
}

/// Two sets of scratch tables; `laden` gets the ballast.
struct Pair {
    none: Yardstick,
    laden: Yardstick,
}

impl Pair {
    async fn open(url: &str) -> Result<Self, Stop> {
        let none = Yardstick::open(url, "none").await?;
        match Yardstick::open(url, "laden").await {
            Ok(laden) => Ok(Self { none, laden }),
            Err(error) => {
                none.close().await?;
                Err(error.into())
            }
        }
    }

    /// The time of setting aside the events of a topic that no worker takes, then the ratio of
    /// drains beside them.
    async fn untaken(
        &self,
        events: u32,
        args: &Bench,
        progress: &Steps,
    ) -> Result<UntakenTopic, Stop> {
        self.fill(Ballast::Untaken(events), progress).await?;
        progress.step("setting aside");
        let set_aside_s = self.set_aside(events).await?;
        let drain = Drain::of(args.events, args.batch).of_topic();
        let [vs_none] = self.ratios([drain], args.rounds, progress).await?;
        Ok(UntakenTopic {
            events,
            set_aside_s,
            vs_none,
        })
    }

    /// Seconds until a worker of another topic has given all these events lanes of their own.
    async fn set_aside(&self, events: u32) -> Result<f64, Stop> {
        let tenure = open(&self.laden).await?;
        let watch = Stopwatch::start();
        let worker = tenure
            .worker()
            .on(TOPIC, |_, _| async { Ok(Outcome::Done) })
            .start()
            .await
            .map_err(|error| failed(&error))?;
        until("the events are set aside", COUNT, async || {
            let separate = self.laden.store().separate_topics(None).await?;
            let due: u64 = separate.iter().map(|topic| topic.due).sum();
            Ok(Headway::missing(u64::from(events).saturating_sub(due)))
        })
        .await?;
        let seconds = watch.elapsed().as_secs_f64();
        worker.stop().await;
        Ok(seconds)
    }

    async fn measure<const N: usize>(
        &self,
        ballast: Ballast,
        drains: [Drain; N],
        rounds: u32,
        progress: &Steps,
    ) -> Result<[Ratio; N], Stop> {
        self.fill(ballast, progress).await?;
        self.ratios(drains, rounds, progress).await
    }

    async fn fill(&self, ballast: Ballast, progress: &Steps) -> Result<(), Stop> {
        progress.step("filling");
        match ballast {
            Ballast::Blocked(events) => self.laden.block(events).await?,
            Ballast::Hot(events) => self.laden.heat(events).await?,
            Ballast::Untaken(events) => self.laden.fill_untaken(events, LOOPS).await?,
        }
        Ok(())
    }

    /// The ratio for each of the drains.
    async fn ratios<const N: usize>(
        &self,
        drains: [Drain; N],
        rounds: u32,
        progress: &Steps,
    ) -> Result<[Ratio; N], Stop> {
        let mut ratios = [0.0; N];
        for (drain, ratio) in drains.into_iter().zip(&mut ratios) {
            // The first drains bring the tables to their size and are not measured.
            for side in [Side::Without, Side::With] {
                self.run(side, drain, progress).await?;
            }
            let compared = compare(rounds, async |side| self.run(side, drain, progress).await);
            *ratio = compared.await?.drain;
        }
        Ok(ratios)
    }

    async fn run(&self, side: Side, drain: Drain, progress: &Steps) -> Result<Drained, Stop> {
        match side {
            Side::With => {
                progress.step("beside others");
                drain.run(&self.laden).await
            }
            Side::Without => {
                progress.step("beside none");
                drain.run(&self.none).await
            }
        }
    }

    /// Drops the tables, even if the measurement failed.
    async fn close<T>(self, measured: Result<T, Stop>) -> Result<T, Stop> {
        let closed = [self.none.close().await, self.laden.close().await];
        let measured = measured?;
        for answer in closed {
            answer?;
        }
        Ok(measured)
    }
}

/// Number of progress steps of these drains.
pub(super) fn steps(args: &Bench) -> u64 {
    let drains = u64::from(args.rounds) * 4 + 2;
    let blocked = u64::from(args.blocked.is_some()) * (2 * drains + 1);
    let hot = u64::from(args.hot_key.is_some()) * (drains + 1);
    let untaken = u64::from(args.untaken.is_some()) * (drains + 2);
    blocked + hot + untaken
}

//! A drain with many stuck keys (delayed, paused or blocked), alternating with one without them.

use super::Bench;
use super::drain::{Drain, Drained};
use super::report::{Figures, Ratio};
use super::sides::{Side, compare};
use crate::host::Steps;
use crate::stop::Stop;
use crate::yardstick::Yardstick;

/// Number of keys of a drain, unless `--keyed` gives another.
pub(super) const KEYS: u32 = 10_000;

/// Drains with stuck keys in the queue, alternating with drains without them.
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
    Ok(())
}

/// Events that cannot be claimed.
#[derive(Clone, Copy, Debug)]
enum Ballast {
    /// This many events behind the heads of a thousand stuck keys.
    Blocked(u32),
    /// This many events behind the delayed head of one key.
    Hot(u32),
}

/// Two sets of scratch tables; `blocked` gets the stuck keys.
struct Pair {
    none: Yardstick,
    blocked: Yardstick,
}

impl Pair {
    async fn open(url: &str) -> Result<Self, Stop> {
        let none = Yardstick::open(url, "none").await?;
        match Yardstick::open(url, "blocked").await {
            Ok(blocked) => Ok(Self { none, blocked }),
            Err(error) => {
                none.close().await?;
                Err(error.into())
            }
        }
    }

    /// The ratio for each of the drains.
    async fn measure<const N: usize>(
        &self,
        ballast: Ballast,
        drains: [Drain; N],
        rounds: u32,
        progress: &Steps,
    ) -> Result<[Ratio; N], Stop> {
        progress.step("filling");
        match ballast {
            Ballast::Blocked(events) => self.blocked.block(events).await?,
            Ballast::Hot(events) => self.blocked.heat(events).await?,
        }
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
                progress.step("beside stuck keys");
                drain.run(&self.blocked).await
            }
            Side::Without => {
                progress.step("beside none");
                drain.run(&self.none).await
            }
        }
    }

    /// Drops the tables, even if the measurement failed.
    async fn close<T>(self, measured: Result<T, Stop>) -> Result<T, Stop> {
        let closed = [self.none.close().await, self.blocked.close().await];
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
    blocked + hot
}

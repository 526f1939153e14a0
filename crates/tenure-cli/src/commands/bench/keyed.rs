//! Events with keys beside those without; and the work lease in process, which is order by key
//! without a database.

use std::time::Duration;

use tenure::bench::{Yardstick, work_lease_pairs};

use super::Bench;
use super::drain::Drain;
use super::report::Median;
use super::sides::{Compared, Side, compare};
use crate::problem::Stop;
use crate::progress::Steps;

/// How long the work lease is measured each time.
const PAIRS: Duration = Duration::from_millis(500);

/// Acquires and ends in process, on one core: pairs per second.
pub(super) async fn work_lease(rounds: u32) -> Result<f64, Stop> {
    let mut rates = Median::default();
    for _ in 0..rounds {
        // It keeps its thread busy, which must be none that others wait for.
        let pairs = tokio::task::spawn_blocking(|| work_lease_pairs(PAIRS)).await;
        let pairs = pairs.map_err(std::io::Error::other)?;
        rates.push(pairs.map_err(std::io::Error::other)?);
    }
    Ok(rates.median())
}

/// Events with keys, in turns with as many that have none.
pub(super) async fn keyed(
    args: &Bench,
    yardstick: &Yardstick,
    keys: u32,
    progress: &Steps,
) -> Result<Compared, Stop> {
    let drain = Drain::of(args.events, args.batch);
    compare(args.rounds, async |side| match side {
        Side::With => {
            progress.step("with keys");
            drain.keyed(keys).run(yardstick).await
        }
        Side::Without => {
            progress.step("without keys");
            drain.run(yardstick).await
        }
    })
    .await
}

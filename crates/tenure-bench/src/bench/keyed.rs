//! Events with keys compared with events without, and the in-process work lease, which orders by
//! domain without a database.

use std::time::Duration;

use super::Bench;
use super::drain::Drain;
use super::report::Median;
use super::sides::{Compared, Side, compare};
use crate::host::Steps;
use crate::stop::Stop;
use crate::yardstick::{Yardstick, work_lease_pairs};

/// Length of one measurement of the work lease.
const PAIRS: Duration = Duration::from_millis(500);

/// Acquires and ends offsets of a work lease in process, on one core; returns pairs per second.
pub(super) async fn work_lease(rounds: u32) -> Result<f64, Stop> {
    let mut rates = Median::default();
    for _ in 0..rounds {
        // The loop keeps its thread busy, so it gets a blocking thread.
        let pairs = tokio::task::spawn_blocking(|| work_lease_pairs(PAIRS)).await;
        let pairs = pairs.map_err(std::io::Error::other)?;
        rates.push(pairs.map_err(std::io::Error::other)?);
    }
    Ok(rates.median())
}

/// Drains events with keys, alternating with as many events without.
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

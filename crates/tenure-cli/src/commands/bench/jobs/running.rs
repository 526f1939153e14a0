//! Many jobs that run at once: what it costs to keep them.

use std::time::Duration;

use tenure::bench::Yardstick;
use tenure::job::NewJob;
use tenure::{Settings, Term};

use crate::commands::bench::calls::Calls;
use crate::commands::bench::drain::{LOOK, failed, open};
use crate::commands::bench::wait::{Headway, until};
use crate::problem::Stop;

/// So short that some heartbeats are soon seen.
const TERM: Duration = Duration::from_secs(8);
const HEARTBEAT: Duration = Duration::from_secs(2);
/// So many are looked at.
const TICKS: u32 = 8;
/// Jobs per enqueue.
const BULK: u32 = 1000;

/// What the keeper says to the store per heartbeat while so many jobs run.
pub(super) async fn statements_per_tick(
    yardstick: &Yardstick,
    jobs: u32,
    calls: &Calls,
) -> Result<f64, Stop> {
    let tenure = open(yardstick).await?;
    let bulk = vec![NewJob::new("bench", "{}")?; usize::try_from(BULK).unwrap_or(1)];
    for _ in 0..jobs.div_ceil(BULK) {
        tenure.jobs().enqueue_all(&bulk).await?;
    }
    let settings = Settings {
        shutdown_timeout: Some(Duration::ZERO),
        ..Settings::default()
    };
    let worker = tenure
        .jobs()
        .on("bench", |_| std::future::pending())
        .concurrency(jobs)
        .settings(settings)
        .rhythm(Term::new(TERM)?, HEARTBEAT)
        .start()
        .await
        .map_err(|error| failed(&error))?;
    until("the jobs run", LOOK, async || {
        let missing = jobs.saturating_sub(worker.health().running);
        Ok(Headway::missing(u64::from(missing)))
    })
    .await?;
    let kept = || calls.of(|verb| matches!(verb, "renew" | "report"));
    let before = kept();
    // The time that is measured.
    tokio::time::sleep(HEARTBEAT * TICKS).await;
    let count = u32::try_from(kept().saturating_sub(before)).unwrap_or(u32::MAX);
    worker.stop().await;
    Ok(f64::from(count) / f64::from(TICKS))
}

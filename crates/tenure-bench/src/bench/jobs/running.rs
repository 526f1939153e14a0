//! Many jobs at once: the cost of renewing them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tenure::job::{HeldJob, NewJob};
use tenure::{Outcome, Settings, Term};

use crate::bench::calls::Calls;
use crate::bench::drain::{POLL, failed, open};
use crate::bench::wait::{Headway, until};
use crate::stop::Stop;
use crate::yardstick::Yardstick;

/// Term of the leases, short so that several heartbeats come soon.
const TERM: Duration = Duration::from_secs(8);
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Number of counted heartbeats.
const TICKS: u32 = 8;
/// Jobs per enqueue.
const BULK: u32 = 1000;

/// Statements per heartbeat with which a worker renews its leases.
#[derive(Clone, Copy, Debug)]
pub(super) struct RenewalCost {
    /// For the jobs.
    pub(super) jobs: f64,
    /// For the chunks of the jobs.
    pub(super) chunks: f64,
}

/// Runs this many jobs, each with a chunk, and counts the statements that renew their leases.
pub(super) async fn statements_per_tick(
    yardstick: &Yardstick,
    jobs: u32,
    calls: &Calls<'_>,
) -> Result<RenewalCost, Stop> {
    let tenure = open(yardstick).await?;
    let bulk = vec![NewJob::new("bench", "{}")?; usize::try_from(BULK).unwrap_or(1)];
    for _ in 0..jobs.div_ceil(BULK) {
        tenure.jobs().enqueue_all(&bulk).await?;
    }
    let settings = Settings {
        shutdown_timeout: Some(Duration::ZERO),
        ..Settings::default()
    };
    let in_hand = Arc::new(AtomicU32::new(0));
    let taken = Arc::clone(&in_hand);
    let worker = tenure
        .jobs()
        .on("bench", move |job: HeldJob| {
            let taken = Arc::clone(&taken);
            async move {
                let chunk = job.chunk("only").claim().await?;
                taken.fetch_add(1, Ordering::Relaxed);
                std::future::pending::<()>().await;
                drop(chunk);
                Ok(Outcome::Done)
            }
        })
        .concurrency(jobs)
        .settings(settings)
        .timing(Term::new(TERM)?, HEARTBEAT)
        .chunk_timing(Term::new(TERM)?, HEARTBEAT)
        .start()
        .await
        .map_err(|error| failed(&error))?;
    until("the jobs run, each with its chunk", POLL, async || {
        let missing = jobs.saturating_sub(in_hand.load(Ordering::Relaxed));
        Ok(Headway::missing(u64::from(missing)))
    })
    .await?;
    let said = || {
        let jobs = calls.of(|verb| verb == "renew");
        (jobs, calls.of(|verb| verb == "renew_chunks"))
    };
    let before = said();
    // The measured time.
    tokio::time::sleep(HEARTBEAT * TICKS).await;
    let after = said();
    worker.stop().await;
    let per_tick = |before: u64, after: u64| {
        let count = u32::try_from(after.saturating_sub(before)).unwrap_or(u32::MAX);
        f64::from(count) / f64::from(TICKS)
    };
    Ok(RenewalCost {
        jobs: per_tick(before.0, after.0),
        chunks: per_tick(before.1, after.1),
    })
}

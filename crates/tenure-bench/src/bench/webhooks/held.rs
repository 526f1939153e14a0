//! Many open calls at once: their use of database connections and memory.

use std::collections::HashSet;
use std::time::Duration;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tenure::Worker;

use super::receivers::Receivers;
use super::report::HeldCalls;
use super::sending::{Sending, limit};
use super::{RECEIVERS, Webhooks};
use crate::bench::drain::POLL;
use crate::bench::wait::{Headway, until};
use crate::stop::{Failure, Stop};
use crate::yardstick::Yardstick;

/// Interval between two samples of connections and memory.
const SAMPLE: Duration = Duration::from_millis(250);
/// Number of open files besides the two ends of each call.
const FILES: u64 = 200;

/// Holds the calls open, and samples connections and memory.
pub(super) async fn measure(url: &str, args: &Webhooks) -> Result<HeldCalls, Stop> {
    allow_files(2 * u64::from(args.held_calls) + FILES)?;
    let yardstick = Yardstick::open(url, "held").await?;
    let measured = hold(&yardstick, args).await;
    let closed = yardstick.close().await;
    let held = measured?;
    closed?;
    Ok(held)
}

async fn hold(yardstick: &Yardstick, args: &Webhooks) -> Result<HeldCalls, Stop> {
    let calls = args.held_calls;
    let receivers = Receivers::slow(RECEIVERS, args.held_for).await?;
    let before = yardstick.sessions().await?;
    let rss_before_mb = rss_mb();
    let sending = Sending::open(yardstick, &receivers).await?;
    sending
        .register(|settings| {
            settings.timeout = limit(args.held_for);
            settings.concurrency = calls;
        })
        .await?;
    sending.owe(calls).await?;
    let sender = sending.sender_of(calls).await?;
    until("all calls are open", POLL, async || {
        let missing = calls.saturating_sub(receivers.taken());
        Ok(Headway::missing(u64::from(missing)))
    })
    .await?;
    let rss_open_mb = rss_mb();
    let (connections, rss_end_mb) = watch(yardstick, before, &receivers).await?;
    end(&sender, &receivers, calls).await?;
    sender.stop().await;
    Ok(HeldCalls {
        calls,
        seconds: args.held_for.as_secs_f64(),
        repeated: receivers.taken().saturating_sub(calls),
        connections,
        rss_before_mb,
        rss_open_mb,
        rss_end_mb,
    })
}

/// Samples until the first response: the most connections, and the memory at the end.
async fn watch(
    yardstick: &Yardstick,
    before: Option<Vec<i32>>,
    receivers: &Receivers,
) -> Result<(Option<u32>, Option<f64>), Stop> {
    let others: Option<HashSet<i32>> = before.map(HashSet::from_iter);
    let mut most = None;
    let mut rss = rss_mb();
    while receivers.answered() == 0 {
        let sessions = yardstick.sessions().await?;
        if let (Some(others), Some(sessions)) = (&others, sessions) {
            let ours = sessions.iter().filter(|pid| !others.contains(pid));
            most = most.max(Some(u32::try_from(ours.count()).unwrap_or(u32::MAX)));
        }
        rss = rss_mb();
        // The measured time.
        tokio::time::sleep(SAMPLE).await;
    }
    Ok((most, rss))
}

async fn end(sender: &Worker, receivers: &Receivers, calls: u32) -> Result<(), Stop> {
    until("all calls are answered and settled", POLL, async || {
        let missing = calls.saturating_sub(receivers.answered());
        let held = sender.health().held;
        Ok(Headway::missing(u64::from(missing) + u64::from(held)))
    })
    .await
}

/// Resident memory of this process in megabytes; `None` if the system does not report it.
fn rss_mb() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    let kb: u32 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(f64::from(kb) / 1024.0)
}

/// Raises the limit of open files: both ends of each call are in this process.
fn allow_files(wanted: u64) -> Result<(), Failure> {
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let raised = Rlimit {
        current: Some(wanted),
        ..limit
    };
    setrlimit(Resource::Nofile, raised).map_err(|cause| {
        let message = format!("{wanted} files must be open at once, and the system forbids it");
        Failure::new(message)
            .cause(cause)
            .hint("raise the limit (`ulimit -n`), or hold fewer calls (--held-calls)")
    })
}

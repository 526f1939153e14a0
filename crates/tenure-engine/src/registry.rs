//! Registry: reports this worker and its load to the cluster at each heartbeat, and each second
//! while the store fails.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::QueueName;
use tenure_core::store::WorkerReport;
use tokio::time::{Instant, sleep_until};

use crate::config::EngineConfig;
use crate::shared::Shared;

const STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval of the reports while the store fails: they show when it accepts writes again.
const AWAY_POLL: Duration = Duration::from_secs(1);

/// Reports until the engine stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        shared.set_topics(&shared.handler.topics().await);
        let report = report(&shared);
        let wait = report.next_within;
        let until = Instant::now() + STORE_TIMEOUT;
        let answer = shared.keeper_store.report(&report, None);
        // Informational: without reports, other processes see the worker as missing.
        drop(shared.call("report", until, answer).await);
        let next = Instant::now() + wait;
        loop {
            sleep_until(next.min(Instant::now() + AWAY_POLL)).await;
            if Instant::now() >= next || shared.vitals.is_store_failing() {
                break;
            }
        }
    }
}

/// Served queues for display; for a worker on rows, its table and kinds.
fn serves(config: &EngineConfig) -> String {
    if let Some(table) = &config.rows.table {
        return WorkerReport::on_rows(table, &config.rows.kinds);
    }
    let queues: Vec<_> = config.queues.iter().map(QueueName::as_str).collect();
    queues.join(",")
}

/// Host name of this machine, where the kernel tells it in a file.
fn host_name() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname");
    name.map_or_else(|_| "localhost".to_owned(), |name| name.trim().to_owned())
}

fn report(shared: &Shared) -> WorkerReport {
    let live = shared.live.borrow();
    let load = shared.held_leases.load();
    let host = shared.config.host.clone();
    WorkerReport {
        worker: shared.worker.clone(),
        host: host.unwrap_or_else(host_name),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        queues: serves(&shared.config),
        topics: shared.topics(),
        concurrency: live.settings.concurrency,
        running: load.running,
        held: load.held,
        settings_version: live.version,
        next_within: live.settings.heartbeat(),
    }
}

//! Registry: tells the cluster at each heartbeat that this worker is here and what it does.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::QueueName;
use tenure_core::store::WorkerReport;
use tokio::time::{sleep, timeout};

use crate::config::EngineConfig;
use crate::shared::Shared;

/// How long a report may take.
const WAIT: Duration = Duration::from_secs(5);

/// Reports for as long as the engine runs.
pub(crate) async fn run(shared: Arc<Shared>) {
    loop {
        let report = report(&shared);
        let wait = report.next_within;
        shared.metrics.call("report");
        match timeout(WAIT, shared.keeper_store.report(&report, None)).await {
            Ok(Ok(())) => {}
            // Nothing depends on it: others see a silent worker, which it is.
            Ok(Err(error)) => shared.metrics.store_error("report", &error),
            Err(_) => shared.metrics.store_silence("report"),
        }
        sleep(wait).await;
    }
}

/// The queues that it serves, for people; a worker on rows serves none, and names their table and
/// the kinds that it takes.
fn serves(config: &EngineConfig) -> String {
    if let Some(table) = &config.rows.table {
        return WorkerReport::on_rows(table, &config.rows.kinds);
    }
    let queues: Vec<_> = config.queues.iter().map(QueueName::as_str).collect();
    queues.join(",")
}

fn report(shared: &Shared) -> WorkerReport {
    let live = shared.live.borrow();
    let load = shared.desk.load();
    WorkerReport {
        worker: shared.worker.clone(),
        host: shared.config.host.clone(),
        pid: shared.config.pid,
        version: env!("CARGO_PKG_VERSION").to_owned(),
        queues: serves(&shared.config),
        concurrency: live.settings.concurrency,
        running: load.running,
        held: load.held,
        settings_version: live.version,
        next_within: live.settings.heartbeat(),
    }
}

//! `/v1/stats`: counts of items.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_core::store::Store;

use crate::problem::Problem;
use crate::wire::{JobStats, Stats};

pub(crate) async fn stats(State(store): State<Arc<dyn Store>>) -> Result<Json<Stats>, Problem> {
    let counts = store.count(None).await?;
    let queues = store.queues().await?;
    // The names of endpoints are needed only if deliveries wait.
    let endpoints = if counts.deliveries.endpoints.is_empty() {
        Vec::new()
    } else {
        // Including removed endpoints: their deliveries wait until a sender settles them as dead.
        store.webhooks().all_endpoints().await?
    };
    let mut stats = Stats::new(&counts, &queues, &endpoints);
    if let Some(jobs) = store.job_store() {
        stats = stats.jobs(JobStats::new(&jobs.job_operations().count(None).await?));
    }
    Ok(Json(stats))
}

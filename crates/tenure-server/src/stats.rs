//! `/v1/stats`: how many items stand where.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_core::store::Store;

use crate::problem::Problem;
use crate::wire::{JobStats, Stats};

pub(crate) async fn stats(State(store): State<Arc<dyn Store>>) -> Result<Json<Stats>, Problem> {
    let counts = store.count(None).await?;
    let queues = store.queues().await?;
    // Names are asked for only where something waits.
    let endpoints = if counts.deliveries.endpoints.is_empty() {
        Vec::new()
    } else {
        // Also removed ones: what is queued for one waits until a sender buries it.
        store.webhooks().all_endpoints().await?
    };
    let mut stats = Stats::new(&counts, &queues, &endpoints);
    if let Some(book) = store.job_book() {
        stats = stats.jobs(JobStats::new(&book.job_desk().count(None).await?));
    }
    Ok(Json(stats))
}

//! `/v1/stats`: how many items stand where.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_core::store::{Store, StoreError};
use tenure_core::webhook::{Endpoint, EndpointId};

use crate::problem::Problem;
use crate::wire::Stats;

/// So many endpoints are asked for at a time.
const PAGE: u32 = 1_000;

pub(crate) async fn stats(State(store): State<Arc<dyn Store>>) -> Result<Json<Stats>, Problem> {
    let counts = store.count(None).await?;
    let queues = store.queues().await?;
    // Names are asked for only where something waits.
    let endpoints = if counts.deliveries.endpoints.is_empty() {
        Vec::new()
    } else {
        endpoints(store.as_ref()).await?
    };
    Ok(Json(Stats::new(&counts, &queues, &endpoints)))
}

/// All of them, also removed ones: what is queued for one waits until a sender buries it.
async fn endpoints(store: &dyn Store) -> Result<Vec<Endpoint>, StoreError> {
    let mut all = Vec::new();
    let mut after: Option<EndpointId> = None;
    loop {
        let page = store.webhooks().endpoints(after.as_ref(), PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(all);
        };
        after = Some(last.id.clone());
        all.extend(page);
    }
}

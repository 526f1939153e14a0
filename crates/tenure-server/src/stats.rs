//! `/v1/stats`: how many items stand where.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use tenure_core::store::Store;

use crate::problem::Problem;
use crate::wire::Stats;

pub(crate) async fn stats(State(store): State<Arc<dyn Store>>) -> Result<Json<Stats>, Problem> {
    let counts = store.count(None).await?;
    let queues = store.queues().await?;
    Ok(Json(Stats::new(&counts, &queues)))
}

//! `/health/live`: the process answers. `/health/ready`: the process can do its work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tenure_core::store::Store;

use crate::sampled::{SAMPLE_TIMEOUT, Sample, Sampled};
use crate::wire::{self, CheckView, Live, Ready};

/// Maximum age of a store check that is used again, because several probes may come at once.
const STORE_CHECK_AGE_MAX: Duration = Duration::from_secs(1);

/// Result of one readiness check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// Name of the check.
    pub name: String,
    /// Description of the problem; `None` if the check passed.
    pub problem: Option<String>,
    /// Time since the check last passed; `None` if never or unknown.
    pub last_seen: Option<Duration>,
}

/// Combines the checks of the process with one of the store.
pub(crate) struct Readiness {
    store: Arc<dyn Store>,
    health: Arc<dyn Fn() -> Vec<HealthCheck> + Send + Sync>,
    store_check: Sampled<()>,
}

impl Readiness {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        health: Arc<dyn Fn() -> Vec<HealthCheck> + Send + Sync>,
    ) -> Self {
        Self {
            store,
            health,
            store_check: Sampled::new(STORE_CHECK_AGE_MAX),
        }
    }

    async fn checks(&self) -> Vec<HealthCheck> {
        let mut checks = (self.health)();
        checks.push(self.store().await);
        checks
    }

    /// Checks that the store answers a cheap query.
    async fn store(&self) -> HealthCheck {
        let query = async { self.store.queues().await.map(|_| ()) };
        let (sample, age) = self.store_check.get(query).await;
        let problem = match sample {
            Sample::Answer(()) => None,
            Sample::Timeout => Some(format!("no answer within {} s", SAMPLE_TIMEOUT.as_secs())),
            Sample::Error => Some("it returned an error; see the log".to_owned()),
        };
        HealthCheck {
            name: "store".to_owned(),
            last_seen: problem.is_none().then_some(age),
            problem,
        }
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness").finish_non_exhaustive()
    }
}

pub(crate) async fn live() -> Json<Live> {
    Json(Live { status: "live" })
}

pub(crate) async fn ready(State(readiness): State<Arc<Readiness>>) -> (StatusCode, Json<Ready>) {
    let checks = readiness.checks().await;
    let is_ready = checks.iter().all(|check| check.problem.is_none());
    let (status, text) = if is_ready {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "unready")
    };
    let checks = checks.into_iter().map(|check| CheckView {
        name: check.name,
        problem: check.problem,
        last_seen_ms: check.last_seen.map(wire::millis),
    });
    let body = Ready {
        status: text,
        checks: checks.collect(),
    };
    (status, Json(body))
}

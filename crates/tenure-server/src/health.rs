//! `/health/live` and `/health/ready`: whether the process answers, and whether it does its work.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use tenure_core::store::Store;

use crate::sampled::{Sample, Sampled, WAIT};
use crate::wire::{self, Check, Live, Ready};

/// Probes come from many sides; the store is asked at most this often.
const KEEP: Duration = Duration::from_secs(1);

/// One thing that is looked at to know whether the process does its work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What.
    pub name: String,
    /// What is wrong; `None`: nothing.
    pub problem: Option<String>,
    /// How long ago it was last seen to work, if ever.
    pub last_seen: Option<Duration>,
}

/// Looks at the process and at the store.
pub(crate) struct Readiness {
    store: Arc<dyn Store>,
    health: Arc<dyn Fn() -> Vec<HealthCheck> + Send + Sync>,
    answers: Sampled<()>,
}

impl Readiness {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        health: Arc<dyn Fn() -> Vec<HealthCheck> + Send + Sync>,
    ) -> Self {
        Self {
            store,
            health,
            answers: Sampled::new(KEEP),
        }
    }

    async fn checks(&self) -> Vec<HealthCheck> {
        let mut checks = (self.health)();
        checks.push(self.store().await);
        checks
    }

    /// Whether the store answers a cheap question.
    async fn store(&self) -> HealthCheck {
        let ask = async { self.store.queues().await.map(|_| ()) };
        let (sample, age) = self.answers.get(ask).await;
        let problem = match sample {
            Sample::Answer(()) => None,
            Sample::Silence => Some(format!("it does not answer within {} s", WAIT.as_secs())),
            Sample::Trouble => Some("it cannot be asked; the log says why".to_owned()),
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
    let (status, word) = if is_ready {
        (StatusCode::OK, "ready")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "unready")
    };
    let checks = checks.into_iter().map(|check| Check {
        name: check.name,
        problem: check.problem,
        last_seen_ms: check.last_seen.map(wire::millis),
    });
    let body = Ready {
        status: word,
        checks: checks.collect(),
    };
    (status, Json(body))
}

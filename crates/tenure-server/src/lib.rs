//! HTTP interface of Tenure: a router that you can mount in your own program, and the loop that
//! serves it. This crate chooses the status codes and JSON shapes of Tenure's responses. It reaches
//! the store through the ports of `tenure-core`, and the rest of the program through the closures
//! of [`Ports`].
//!
//! | route | answers |
//! |---|---|
//! | `GET /` | the paths below |
//! | `GET /health/live` | 200 while the process answers |
//! | `GET /health/ready` | 200 when every check passes, else 503; lists each check |
//! | `GET /metrics` | metrics in the Prometheus text format |
//! | `GET /v1/stats` | counts of items by state, queue and endpoint |
//!
//! Errors are returned as `application/problem+json` (RFC 9457) with a stable `code`.

mod health;
mod metrics;
mod problem;
mod sampled;
mod serve;
mod stats;
pub mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::FromRef;
use axum::http::StatusCode;
use axum::middleware::map_response;
use axum::routing::get;
use axum::{Json, Router};
use tenure_core::store::Store;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;

pub use health::HealthCheck;
pub use serve::serve;

use health::Readiness;
use metrics::Metrics;

/// Limit of a request body.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// Time limit for the response to a request.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// Parts of the program that the server needs.
#[derive(Clone)]
pub struct Ports {
    /// Store with the items.
    pub store: Arc<dyn Store>,
    /// Health checks of the process; must return at once.
    pub health: Arc<dyn Fn() -> Vec<HealthCheck> + Send + Sync>,
    /// Metrics of the process in the Prometheus text format.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

/// State shared by the routes.
#[derive(Clone)]
struct RouterState {
    store: Arc<dyn Store>,
    readiness: Arc<Readiness>,
    metrics: Arc<Metrics>,
}

impl FromRef<RouterState> for Arc<dyn Store> {
    fn from_ref(shared: &RouterState) -> Self {
        Self::clone(&shared.store)
    }
}

impl FromRef<RouterState> for Arc<Readiness> {
    fn from_ref(shared: &RouterState) -> Self {
        Self::clone(&shared.readiness)
    }
}

impl FromRef<RouterState> for Arc<Metrics> {
    fn from_ref(shared: &RouterState) -> Self {
        Self::clone(&shared.metrics)
    }
}

/// Builds the routes over these ports.
///
/// ```
/// use std::sync::Arc;
/// use tenure_server::{Ports, router, serve};
/// use tenure_store::memory::{MemoryStore, SystemClock};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> std::io::Result<()> {
/// let ports = Ports {
///     store: Arc::new(MemoryStore::new(Arc::new(SystemClock))),
///     health: Arc::new(Vec::new), // checks of your program
///     metrics: Arc::new(String::new),
/// };
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let shutdown = async {}; // a signal, say
/// serve(listener, router(ports), shutdown).await;
/// # Ok(())
/// # }
/// ```
pub fn router(ports: Ports) -> Router {
    let shared = RouterState {
        readiness: Arc::new(Readiness::new(Arc::clone(&ports.store), ports.health)),
        metrics: Arc::new(Metrics::new(Arc::clone(&ports.store), ports.metrics)),
        store: ports.store,
    };
    let routes = Router::new()
        .route("/", get(paths))
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(metrics::metrics))
        .route("/v1/stats", get(stats::stats))
        .fallback(problem::not_found)
        .with_state(shared);
    with_limits(routes)
}

/// Lists the paths, for a person who opens the address in a browser.
async fn paths() -> Json<wire::Paths> {
    Json(wire::Paths {
        paths: ["/health/live", "/health/ready", "/metrics", "/v1/stats"],
    })
}

/// Applies the same limits and the same error format to every route.
fn with_limits(routes: Router) -> Router {
    routes
        .layer(RequestBodyLimitLayer::new(BODY_BYTES_MAX))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            REQUEST_TIME_MAX,
        ))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .layer(map_response(problem::normalize))
}

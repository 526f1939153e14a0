//! The HTTP face of Tenure: a router that a program of yours can mount, and the loop that serves
//! it. The only crate that knows HTTP status codes and JSON shapes. It reaches the store through
//! the ports of `tenure-core` alone, and the rest of the program through the closures of
//! [`Ports`].
//!
//! | route | answers |
//! |---|---|
//! | `GET /health/live` | 200 while the process answers |
//! | `GET /health/ready` | 200 when everything that is looked at holds, else 503; each check by itself |
//! | `GET /metrics` | the figures, as Prometheus reads them |
//! | `GET /v1/stats` | how many items stand where |
//!
//! What goes wrong is answered as `application/problem+json` (RFC 9457) with a stable `code`.

mod figures;
mod health;
mod problem;
mod sampled;
mod serve;
mod stats;
pub mod wire;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::FromRef;
use axum::http::StatusCode;
use axum::middleware::map_response;
use axum::routing::get;
use tenure_core::store::Store;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::limit::RequestBodyLimitLayer;
use tower_http::timeout::TimeoutLayer;

pub use health::HealthCheck;
pub use serve::serve;

use figures::Figures;
use health::Readiness;

/// The longest body that is read.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The longest that a request may take.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(30);

/// What the server asks of the rest of the program.
#[derive(Clone)]
pub struct Ports {
    /// Where the items are.
    pub store: Arc<dyn Store>,
    /// What is looked at to know whether the process does its work; it answers at once.
    pub health: Arc<dyn Fn() -> Vec<HealthCheck> + Send + Sync>,
    /// The figures of the process in the text format of Prometheus.
    pub metrics: Arc<dyn Fn() -> String + Send + Sync>,
}

impl fmt::Debug for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ports").finish_non_exhaustive()
    }
}

/// What the routes share.
#[derive(Clone)]
struct Shared {
    store: Arc<dyn Store>,
    readiness: Arc<Readiness>,
    figures: Arc<Figures>,
}

impl FromRef<Shared> for Arc<dyn Store> {
    fn from_ref(shared: &Shared) -> Self {
        Self::clone(&shared.store)
    }
}

impl FromRef<Shared> for Arc<Readiness> {
    fn from_ref(shared: &Shared) -> Self {
        Self::clone(&shared.readiness)
    }
}

impl FromRef<Shared> for Arc<Figures> {
    fn from_ref(shared: &Shared) -> Self {
        Self::clone(&shared.figures)
    }
}

/// The routes over these ports.
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
///     health: Arc::new(Vec::new), // what your program looks at
///     metrics: Arc::new(String::new),
/// };
/// let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let shutdown = async {}; // a signal, say
/// serve(listener, router(ports), shutdown).await;
/// # Ok(())
/// # }
/// ```
pub fn router(ports: Ports) -> Router {
    let shared = Shared {
        readiness: Arc::new(Readiness::new(Arc::clone(&ports.store), ports.health)),
        figures: Arc::new(Figures::new(Arc::clone(&ports.store), ports.metrics)),
        store: ports.store,
    };
    let routes = Router::new()
        .route("/health/live", get(health::live))
        .route("/health/ready", get(health::ready))
        .route("/metrics", get(figures::metrics))
        .route("/v1/stats", get(stats::stats))
        .fallback(problem::not_found)
        .with_state(shared);
    guarded(routes)
}

/// The limits that hold for every route, and one shape for all that they refuse.
fn guarded(routes: Router) -> Router {
    routes
        .layer(RequestBodyLimitLayer::new(BODY_BYTES_MAX))
        .layer(TimeoutLayer::with_status_code(
            StatusCode::SERVICE_UNAVAILABLE,
            REQUEST_TIME_MAX,
        ))
        .layer(CatchPanicLayer::custom(problem::panicked))
        .layer(map_response(problem::dressed))
}

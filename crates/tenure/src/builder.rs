//! `TenureBuilder`: options for opening a store.

use std::fmt;

use tenure_core::WorkerId;
use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_store::config::StoreConfig;

use crate::tenure::{Tenure, new_worker_id};

/// Options for opening a store, created by [`Tenure::builder`].
///
/// ```
/// use tenure::Tenure;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tenure = Tenure::builder().url("memory:").name("billing").open().await?;
/// assert!(tenure.worker_id().as_str().starts_with("billing-"));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Default)]
#[must_use = "it opens nothing until `open`"]
pub struct TenureBuilder {
    url: Option<String>,
    #[cfg(feature = "postgres")]
    pool: Option<sqlx::PgPool>,
    config: StoreConfig,
    name: Option<String>,
    worker: Option<WorkerId>,
}

impl TenureBuilder {
    /// Sets the URL: `memory:`, `sqlite://path` or `postgres://…`.
    pub fn url(mut self, url: impl Into<String>) -> Self {
        self.url = Some(url.into());
        self
    }

    /// Uses the application's own pool instead of a separate one.
    ///
    /// A worker uses one connection of the pool while it claims or settles. Its heartbeat opens two
    /// connections of its own with the options of the pool. The statements are correct with any
    /// planner settings, and fastest with `plan_cache_mode = force_generic_plan`, `enable_seqscan =
    /// off` and `enable_bitmapscan = off`, which Tenure sets in its own pool.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = sqlx::PgPool::connect("postgres://localhost/shop").await?;
    /// let tenure = tenure::Tenure::builder().pool(pool.clone()).open().await?;
    /// # Ok(())
    /// # }
    /// ```
    #[cfg(feature = "postgres")]
    pub fn pool(mut self, pool: sqlx::PgPool) -> Self {
        self.pool = Some(pool);
        self
    }

    /// Sets the configuration. With [`pool`](Self::pool), only its field `schema` is used.
    pub fn config(mut self, config: StoreConfig) -> Self {
        self.config = config;
        self
    }

    /// Sets the worker name of this program: 1 to 64 of the characters `A-Z a-z 0-9 . _ -`;
    /// `tenure` by default.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the whole worker id, such as one from [`new_worker_id`]; the name is then ignored.
    pub fn worker_id(mut self, worker: WorkerId) -> Self {
        self.worker = Some(worker);
        self
    }

    /// Opens the store.
    ///
    /// # Errors
    /// As [`Tenure::open_with`], or the URL and the pool are both missing or both set.
    pub async fn open(self) -> Result<Tenure, StoreError> {
        let invalid = |problem| StoreError::invalid("open", &problem);
        let worker = match self.worker {
            Some(worker) => worker,
            None => new_worker_id(self.name.as_deref().unwrap_or("tenure")).map_err(invalid)?,
        };
        #[cfg(feature = "postgres")]
        if let Some(pool) = self.pool {
            if self.url.is_some() {
                return Err(unclear("an address and a pool were given"));
            }
            let connections = pool.options().get_max_connections();
            let store = tenure_store::postgres::PostgresStore::on_pool(pool, &self.config).await?;
            let opened = tenure_store::Opened::Postgres(std::sync::Arc::new(store));
            let connections = connections.saturating_add(crate::tenure::HEARTBEAT_CONNECTIONS);
            return Ok(Tenure::of(opened, worker, connections));
        }
        match self.url {
            Some(url) => Tenure::open_as(&url, &self.config, worker).await,
            None => Err(unclear("neither an address nor a pool was given")),
        }
    }
}

impl fmt::Debug for TenureBuilder {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TenureBuilder")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

fn unclear(message: &str) -> StoreError {
    StoreError::new("open", StoreErrorKind::Invalid, message).with_hint("give `url` or `pool`")
}

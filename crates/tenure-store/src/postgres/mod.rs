//! The PostgreSQL store, for many machines.
//!
//! The outbox uses the queue layout: `migrations/postgres/0001` defines its tables, and
//! `sql/postgres/queue/` has a file per operation. Only the database's clock decides whether a
//! lease is live.

mod adopt;
mod budget;
mod claim;
mod cluster;
mod cursor;
mod delays;
mod directory;
pub(crate) mod error;
mod examine;
mod fan_out;
mod hosts;
mod intake;
mod jobs;
mod keys;
pub(crate) mod migrate;
pub(crate) mod open;
mod operate;
mod pool;
mod promote;
mod prune;
mod queue;
mod replays;
pub(crate) mod row;
mod rows;
mod session;
mod set_aside;
mod settle;
mod sources;
pub(crate) mod statements;
mod table_facts;
mod webhooks;
mod work_lease;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sqlx::postgres::{PgPoolOptions, PgRow};
use sqlx::{PgConnection, PgPool};
use tenure_core::store::{StoreError, StoreErrorKind};
use tenure_core::{Identifier, QueueName, TopicSet};

pub use self::migrate::migration_sql;
pub use self::rows::PostgresRows;

use self::cursor::Cursors;
use self::directory::Directory;
use self::error::store_error;
use self::fan_out::Subscriptions;
use self::hosts::Hosts;
use self::jobs::JobStore;
use self::pool::{Borrow as _, Pool};
use self::promote::Promotion;
use self::session::{Sessions, share_a_session};
use self::statements::{QueueStatements, WebhookStatements, WorkLeaseStatements};
use crate::config::{Planner, StoreConfig};
use crate::lane::Lane;
use crate::messages::unknown_queue;
use crate::open::{Migrated, SchemaVersion};
use crate::render::as_written;

/// Timeout for acquiring a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// Time for the first connection before its failure is examined.
const REFUSAL_TIME: Duration = Duration::from_millis(250);

/// Planner settings of the store's own connections.
const PLANNER: [(&str, &str); 4] = [
    // Statements are planned once, and by index: replanning twenty steps costs more than running
    // them, and a plan made while a table was empty would scan it for ever.
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    // A bitmap plan made while the table was empty would collect and sort all of its rows for a
    // page.
    ("enable_bitmapscan", "off"),
    // The cost of a disabled scan is high enough to trigger JIT compilation on every execution.
    ("jit", "off"),
];

/// The outbox on PostgreSQL.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// use tenure_core::{Event, store::Intake};
/// use tenure_store::{config::StoreConfig, postgres::PostgresStore};
///
/// let url = "postgres://localhost/shop";
/// PostgresStore::migrate(url, &StoreConfig::default()).await?;
/// let store = PostgresStore::open(url, &StoreConfig::default()).await?;
/// store.enqueue(&[Event::new("order.paid", &7)?]).await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct PostgresStore {
    pool: Pool,
    /// Sessions of the connections on which callers enqueue.
    callers: Arc<Sessions>,
    /// Maximum connections of a process.
    connections: u32,
    schema: Option<Identifier>,
    statements: QueueStatements,
    work_lease: WorkLeaseStatements,
    webhook: WebhookStatements,
    jobs: JobStore,
    directory: RwLock<Directory>,
    /// Cached endpoint subscriptions; `None` until first used.
    subscriptions: RwLock<Option<Arc<Subscriptions>>>,
    cursors: Cursors,
    promotion: Promotion,
}

impl PostgresStore {
    /// Connects to a database that was migrated.
    ///
    /// # Errors
    /// The address is not valid, the database cannot be reached, or its tables are missing, older
    /// or too new for this program.
    pub async fn open(url: &str, config: &StoreConfig) -> Result<Self, StoreError> {
        let hosts = Arc::new(Hosts::parse(url, config)?);
        let own = config.connections.saturating_sub(config.companion);
        let pool = Pool::own(Arc::clone(&hosts), pool_options(own));
        first_connection(&pool, &hosts).await?;
        if hosts.sessions.is_doubtful() {
            vouch(&hosts).await?;
        }
        Self::checked(pool, config).await
    }

    /// Uses this pool and all of its connections; only the schema and the names of statements of
    /// the configuration apply. The planner settings are those of the pool's connections: the
    /// statements are correct with any, and fastest with those of [`Planner::Connection`].
    ///
    /// # Errors
    /// Same as [`PostgresStore::open`].
    pub async fn on_pool(pool: PgPool, config: &StoreConfig) -> Result<Self, StoreError> {
        let config = StoreConfig {
            connections: pool.options().get_max_connections(),
            ..config.clone()
        };
        let pool = Pool::of_application(pool, config.statements);
        Self::checked(pool, &config).await
    }

    /// Checks the tables and loads the queues.
    async fn checked(pool: Pool, config: &StoreConfig) -> Result<Self, StoreError> {
        let failed = |error| store_error("open", error);
        let mut lent = pool.borrow().await.map_err(failed)?;
        let schema = config.schema.as_ref();
        let version = migrate::read("open", lent.connection(), schema).await?;
        if !version.is_usable() {
            return Err(version.refused("open"));
        }
        let store = Self {
            jobs: JobStore::new(&pool, config.schema.as_ref())?,
            pool,
            callers: Arc::new(Sessions::of_application(Planner::Role, config.statements)),
            connections: config.connections,
            schema: config.schema.clone(),
            statements: QueueStatements::new(config.schema.as_ref(), &as_written),
            work_lease: WorkLeaseStatements::new(config.schema.as_ref(), &as_written),
            webhook: WebhookStatements::new(config.schema.as_ref(), &as_written),
            directory: RwLock::default(),
            subscriptions: RwLock::default(),
            cursors: Cursors::default(),
            promotion: Promotion::default(),
        };
        let queues = store.statements.queues.query();
        let queues = store.pool.run(queues, lent.connection()).await;
        lent.give_back(&queues);
        store.replace_directory("open", queues)?;
        Ok(store)
    }

    /// Opens the same database through a separate pool of at most `connections` connections. The
    /// pool connects on first use and never closes a connection for idleness or age, so it needs no
    /// maintenance task on another runtime.
    #[must_use]
    pub fn companion(&self, connections: u32) -> Self {
        let options = pool_options(connections)
            .idle_timeout(None)
            .max_lifetime(None);
        let pool = Pool::own(self.pool.hosts(), options);
        Self {
            connections,
            jobs: self.jobs.through(&pool),
            pool,
            callers: Arc::clone(&self.callers),
            schema: self.schema.clone(),
            statements: QueueStatements::new(self.schema.as_ref(), &as_written),
            work_lease: WorkLeaseStatements::new(self.schema.as_ref(), &as_written),
            webhook: WebhookStatements::new(self.schema.as_ref(), &as_written),
            directory: RwLock::default(),
            subscriptions: RwLock::default(),
            cursors: Cursors::default(),
            promotion: Promotion::default(),
        }
    }

    /// Creates the tables or upgrades them to the version of this program.
    ///
    /// # Errors
    /// Same as [`PostgresStore::open`]; also when the role may not create tables.
    pub async fn migrate(url: &str, config: &StoreConfig) -> Result<Migrated, StoreError> {
        let mut conn = Hosts::parse(url, config)?.connect("migrate").await?;
        migrate::migrate(&mut conn, config.schema.as_ref()).await
    }

    /// Reads the versions of the tables and of this program.
    ///
    /// # Errors
    /// The address is not valid, or the database cannot be reached.
    pub async fn schema_version(
        url: &str,
        config: &StoreConfig,
    ) -> Result<SchemaVersion, StoreError> {
        let mut conn = Hosts::parse(url, config)?.connect("migrate").await?;
        migrate::read("migrate", &mut conn, config.schema.as_ref()).await
    }

    /// Returns this store with its statement files changed by `edit`, which gets name and text.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn edited(mut self, edit: crate::render::Edit<'_>) -> Self {
        let schema = self.schema.as_ref();
        self.statements = QueueStatements::new(schema, edit);
        self.work_lease = WorkLeaseStatements::new(schema, edit);
        self.webhook = WebhookStatements::new(schema, edit);
        self.jobs = self.jobs.edited(schema, edit);
        self
    }

    /// Returns the text of every statement with its file name, for tests that prepare and explain
    /// each.
    #[cfg(feature = "testing")]
    pub fn statement_texts(&self) -> Vec<(&'static str, String)> {
        let all = self.statements.all().into_iter();
        all.chain(self.work_lease.all())
            .chain(self.webhook.all())
            .chain(self.jobs.statements().all())
            .map(|(name, statement)| (name, statement.text().to_owned()))
            .collect()
    }

    /// The connection pool of this store.
    pub fn pool(&self) -> &PgPool {
        self.pool.sqlx()
    }

    /// Prepares a connection of the caller for a statement.
    async fn meet(&self, verb: &'static str, conn: &mut PgConnection) -> Result<(), StoreError> {
        let met = self.callers.meet(conn).await;
        met.map_err(|error| store_error(verb, error))
    }

    fn statements(&self) -> &QueueStatements {
        &self.statements
    }

    fn webhook(&self) -> &WebhookStatements {
        &self.webhook
    }

    fn cursors(&self) -> &Cursors {
        &self.cursors
    }

    fn promotion(&self) -> &Promotion {
        &self.promotion
    }

    fn directory(&self) -> Directory {
        self.directory
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn reload_directory(&self, verb: &'static str) -> Result<Directory, StoreError> {
        let queues = self.statements.queues.query().all_from(&self.pool).await;
        self.replace_directory(verb, queues)
    }

    fn replace_directory(
        &self,
        verb: &'static str,
        rows: Result<Vec<PgRow>, sqlx::Error>,
    ) -> Result<Directory, StoreError> {
        let read = |row: &PgRow| {
            let name: String = row::get(row, 0)?;
            Ok((name, row::get::<String>(row, 4)?, row::get::<i32>(row, 1)?))
        };
        let queues = rows.and_then(|rows| rows.iter().map(read).collect::<Result<Vec<_>, _>>());
        let queues = queues.map_err(|error| store_error(verb, error))?;
        let named = queues
            .into_iter()
            .filter_map(|(name, topic, number)| Some((QueueName::new(&name).ok()?, topic, number)));
        let directory = Directory::new(named);
        let mut kept = self
            .directory
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *kept = directory.clone();
        Ok(directory)
    }

    /// Returns the number of a queue; reloads the directory before it fails.
    async fn queue_number(&self, verb: &'static str, queue: &QueueName) -> Result<i32, StoreError> {
        if let Some(number) = self.directory().number(queue) {
            return Ok(number);
        }
        let directory = self.reload_directory(verb).await?;
        directory
            .number(queue)
            .ok_or_else(|| unknown_queue(verb, queue))
    }

    /// Returns the numbers of a queue and of its separate topics.
    async fn queue_numbers(
        &self,
        verb: &'static str,
        queue: &QueueName,
    ) -> Result<Vec<i32>, StoreError> {
        self.queue_number(verb, queue).await?;
        let directory = self.reload_directory(verb).await?;
        Ok(directory.numbers(queue, &TopicSet::any()))
    }

    /// Returns a directory that knows the queues of all these lanes; reloads it if necessary.
    async fn directory_for(
        &self,
        verb: &'static str,
        mut lanes: impl Iterator<Item = Lane>,
    ) -> Result<Directory, StoreError> {
        let directory = self.directory();
        if lanes.all(|lane| directory.name(lane).is_some()) {
            return Ok(directory);
        }
        self.reload_directory(verb).await
    }
}

fn pool_options(connections: u32) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(connections.max(1))
        .acquire_timeout(CONNECTION_TIMEOUT)
        // A ping before each use would cost a round trip; a dead connection fails on first use.
        .test_before_acquire(false)
}

/// Opens the first connection of a pool. sqlx's pool tries again until its timeout if the server
/// refuses connections; a direct attempt reports that refusal after [`REFUSAL_TIME`].
async fn first_connection(pool: &Pool, hosts: &Hosts) -> Result<(), StoreError> {
    let mut first = Box::pin(pool.borrow());
    let lent = tokio::select! {
        lent = &mut first => lent,
        () = tokio::time::sleep(REFUSAL_TIME) => {
            Box::pin(hosts.connect("open")).await?;
            first.await
        }
    };
    let lent = lent.map_err(|error| store_error("open", error))?;
    lent.give_back(&Ok::<_, sqlx::Error>(()));
    Ok(())
}

/// Refuses named statements, which were asked for, on sessions that a pooler shares.
async fn vouch(hosts: &Hosts) -> Result<(), StoreError> {
    let mut one = hosts.connect("open").await?;
    let mut other = hosts.connect("open").await?;
    let is_shared = share_a_session(&mut one, &mut other).await;
    if !is_shared.map_err(|error| store_error("open", error))? {
        hosts.sessions.vouch();
        return Ok(());
    }
    let message = "the pooler shares its sessions and does not keep prepared statements apart";
    Err(
        StoreError::new("open", StoreErrorKind::Invalid, message).with_hint(
            "leave out store.statements = \"prepared\", or let the pooler keep them: \
             max_prepared_statements of PgBouncer 1.21 and later",
        ),
    )
}

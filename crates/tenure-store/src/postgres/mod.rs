//! The store on PostgreSQL, for many machines.
//!
//! The outbox is in the queue layout: see `migrations/postgres/0001_queue.sql` for its tables and
//! `sql/postgres/queue/` for a file per verb. The database's clock is the only judge of a lease.

mod adopt;
mod budget;
mod claim;
mod cluster;
mod cursor;
mod directory;
mod domains;
pub(crate) mod door;
pub(crate) mod error;
mod examine;
mod fan_out;
mod found;
mod intake;
mod jobs;
mod lend;
mod migrate;
mod operate;
mod place;
mod prune;
mod queue;
mod replays;
pub(crate) mod row;
mod rows;
mod settle;
mod sources;
pub(crate) mod statements;
mod webhooks;
mod work_lease;

use std::str::FromStr;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::{ConnectOptions, PgConnection, PgPool};
use tenure_core::store::StoreError;
use tenure_core::{Identifier, QueueName};

pub use self::migrate::migration_sql;
pub use self::rows::PostgresRows;

use self::cursor::Cursors;
use self::directory::Directory;
use self::error::store_error;
use self::fan_out::Subscriptions;
use self::jobs::JobBook;
use self::lend::Borrow as _;
use self::place::Bells;
use self::statements::{QueueStatements, WebhookStatements, WorkLeaseStatements};
use crate::complaint::unknown_queue;
use crate::config::{Planner, StoreConfig};
use crate::lane::Lane;
use crate::open::Migrated;

/// A verb waits this long for a connection.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);

/// The planner's settings that a connection of ours has, and their values.
const PLANNER: [(&str, &str); 4] = [
    // Our statements are planned once and by index: planned anew, twenty steps cost more than they
    // take; planned while a table was empty, they would scan it for ever.
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    // A page planned while its table was empty would be collected whole and sorted.
    ("enable_bitmapscan", "off"),
    // The price of a forbidden scan looks high enough to compile the plan each time.
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
    pool: PgPool,
    /// How many connections a process may have in all.
    connections: u32,
    schema: Option<Identifier>,
    statements: QueueStatements,
    work_lease: WorkLeaseStatements,
    webhook: WebhookStatements,
    jobs: JobBook,
    directory: RwLock<Directory>,
    /// What is owed to whom, once somebody has asked.
    subscriptions: RwLock<Option<Arc<Subscriptions>>>,
    cursors: Cursors,
    bells: Bells,
}

impl PostgresStore {
    /// Connects to a database that was migrated.
    ///
    /// # Errors
    /// The address is not valid, the database cannot be reached, or its tables are missing, older
    /// or newer.
    pub async fn open(url: &str, config: &StoreConfig) -> Result<Self, StoreError> {
        let options = connect_options(url, config)?;
        let own = config.connections.saturating_sub(config.companion);
        let pool = pool_options(own).connect_lazy_with(options.clone());
        // The first connection is made by hand: the pool would go on trying until its timeout.
        let mut conn = connect("open", &options).await?;
        migrate::check(&mut conn, config.schema.as_ref()).await?;
        let store = Self {
            jobs: JobBook::new(&pool, config.schema.as_ref())?,
            pool,
            connections: config.connections,
            schema: config.schema.clone(),
            statements: QueueStatements::new(config.schema.as_ref()),
            work_lease: WorkLeaseStatements::new(config.schema.as_ref()),
            webhook: WebhookStatements::new(config.schema.as_ref()),
            directory: RwLock::default(),
            subscriptions: RwLock::default(),
            cursors: Cursors::default(),
            bells: Bells::default(),
        };
        store.reload_directory("open").await?;
        Ok(store)
    }

    /// The same database through connections of its own, at most so many. None is made before it is
    /// used, and what is used is kept: there is no upkeep that another runtime would have to run.
    #[must_use]
    pub fn companion(&self, connections: u32) -> Self {
        let options = PgConnectOptions::clone(&self.pool.connect_options());
        let pool = pool_options(connections)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_lazy_with(options);
        Self {
            connections,
            jobs: self.jobs.through(&pool),
            pool,
            schema: self.schema.clone(),
            statements: QueueStatements::new(self.schema.as_ref()),
            work_lease: WorkLeaseStatements::new(self.schema.as_ref()),
            webhook: WebhookStatements::new(self.schema.as_ref()),
            directory: RwLock::default(),
            subscriptions: RwLock::default(),
            cursors: Cursors::default(),
            bells: Bells::default(),
        }
    }

    /// Creates the tables, or brings them to the version of this program.
    ///
    /// # Errors
    /// As [`PostgresStore::open`], and when the role may not create tables.
    pub async fn migrate(url: &str, config: &StoreConfig) -> Result<Migrated, StoreError> {
        let options = connect_options(url, config)?;
        let mut conn = connect("migrate", &options).await?;
        migrate::migrate(&mut conn, config.schema.as_ref()).await
    }

    /// This store with faults planted in its statements, to prove that the suite would notice.
    #[cfg(feature = "testing")]
    #[must_use]
    pub fn planted(mut self, faults: &[crate::Planted]) -> Self {
        self.statements = QueueStatements::planted(faults);
        self.work_lease = WorkLeaseStatements::planted(faults);
        self.webhook = WebhookStatements::planted(faults);
        self.jobs = self.jobs.planted(faults);
        self
    }

    /// The text of every statement with the name of its file, for tests that prepare and explain
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

    /// The connections of this store.
    pub fn pool(&self) -> &PgPool {
        &self.pool
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

    fn bells(&self) -> &Bells {
        &self.bells
    }

    fn directory(&self) -> Directory {
        self.directory
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    async fn reload_directory(&self, verb: &'static str) -> Result<Directory, StoreError> {
        let rows = self.statements.queues.query().all_from(&self.pool).await;
        let read = |row: &PgRow| Ok((row::get::<String>(row, 0)?, row::get::<i32>(row, 1)?));
        let queues = rows.and_then(|rows| rows.iter().map(read).collect::<Result<Vec<_>, _>>());
        let queues = queues.map_err(|error| store_error(verb, error))?;
        let named = queues
            .into_iter()
            .filter_map(|(name, number)| Some((QueueName::new(&name).ok()?, number)));
        let directory = Directory::new(named);
        let mut kept = self
            .directory
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *kept = directory.clone();
        Ok(directory)
    }

    /// The number of a queue; looks again before it says that there is none.
    async fn queue_number(&self, verb: &'static str, queue: &QueueName) -> Result<i32, StoreError> {
        if let Some(number) = self.directory().number(queue) {
            return Ok(number);
        }
        let directory = self.reload_directory(verb).await?;
        directory
            .number(queue)
            .ok_or_else(|| unknown_queue(verb, queue))
    }

    /// A directory that knows the queues of all these lanes.
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
        // The ping before each use would cost a round trip; a dead connection shows itself.
        .test_before_acquire(false)
}

/// A connection, within the time that a verb waits for one.
async fn connect(
    verb: &'static str,
    options: &PgConnectOptions,
) -> Result<PgConnection, StoreError> {
    match tokio::time::timeout(CONNECTION_TIMEOUT, options.connect()).await {
        Ok(connected) => connected.map_err(|error| store_error(verb, error)),
        Err(_) => Err(store_error(verb, sqlx::Error::PoolTimedOut)),
    }
}

fn connect_options(url: &str, config: &StoreConfig) -> Result<PgConnectOptions, StoreError> {
    let options = PgConnectOptions::from_str(url).map_err(|error| store_error("open", error))?;
    let options = options.application_name("tenure");
    Ok(match config.planner {
        Planner::Role => options,
        Planner::Connection => options.options(PLANNER),
    })
}

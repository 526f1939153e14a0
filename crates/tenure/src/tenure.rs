//! `Tenure`: an open store with a worker id; enqueue, claim, renew, settle and reap.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::store::{
    Claim, Reap, Reaped, Renew, Renewed, Rest, Rows, Settle, Settlement, Store, StoreError,
    StoreErrorKind, Tables,
};
use tenure_core::webhook::Caller;
use tenure_core::{Guarded, Held, Invalid, Token, Tokens, WorkerId};
use tenure_store::config::StoreConfig;
use tenure_store::{Companion, Opened, claim_in_turn, open};

use crate::builder::TenureBuilder;
use crate::chunk::ChunkHome;
use crate::jobs::Jobs;
use crate::worker::{DeliverySource, Watch, WorkerBuilder};

/// Connections to PostgreSQL that are reserved for the heartbeat.
pub(crate) const HEARTBEAT_CONNECTIONS: u32 = 2;
/// An open store, together with the worker id of this program.
///
/// Clones are cheap and share the worker id. The id has a random suffix, so two programs, or two
/// starts of one program, are different workers.
///
/// ```
/// use tenure::Tenure;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let tenure = Tenure::open("memory:").await?;
/// assert!(tenure.claim(10).await?.is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Tenure {
    inner: Arc<TenureInner>,
}

struct TenureInner {
    opened: Opened,
    worker: WorkerId,
    tokens: Arc<Tokens>,
    /// Number of started workers.
    workers: AtomicU64,
    /// Number of calls of [`Tenure::claim`].
    claims: AtomicU64,
    /// Maximum number of connections, including those of the heartbeat.
    connections: u32,
    /// Workers of this process, to wake after an enqueue.
    watches: Mutex<Vec<Watch>>,
    /// Chunks that this process holds.
    chunks: Arc<ChunkHome>,
}

impl Tenure {
    /// Minimum number of connections to PostgreSQL for a worker: two are kept for its heartbeat.
    pub const CONNECTIONS_MIN: u32 = HEARTBEAT_CONNECTIONS + 1;

    /// Opens the store at `url`: `memory:`, `sqlite://path` or `postgres://…`.
    ///
    /// Creates and migrates an SQLite file if needed. Migrate a PostgreSQL database with
    /// [`migrate`](crate::migrate) or `tenure migrate`.
    ///
    /// # Errors
    /// The URL is not supported or its feature is off, the database is unavailable, or its schema
    /// has another version.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, &StoreConfig::default(), "tenure").await
    }

    /// Creates a builder, to open a store with a configuration and a name, or on the application's
    /// own pool.
    pub fn builder() -> TenureBuilder {
        TenureBuilder::default()
    }

    /// Opens the store at `url` with this configuration, as a worker named `name`.
    ///
    /// On PostgreSQL, two of the connections are reserved for the heartbeat of a [`worker`], so a
    /// worker needs at least three.
    ///
    /// [`worker`]: Tenure::worker
    ///
    /// # Errors
    /// As [`Tenure::open`], or the name is not valid: 1 to 64 of the characters `A-Z a-z 0-9 . _ -`
    /// are allowed.
    pub async fn open_with(
        url: &str,
        config: &StoreConfig,
        name: &str,
    ) -> Result<Self, StoreError> {
        let worker =
            new_worker_id(name).map_err(|problem| StoreError::invalid("open", &problem))?;
        Self::open_as(url, config, worker).await
    }

    /// Opens the store at `url` with this configuration, under a worker id from [`new_worker_id`]:
    /// for programs that log the id before they open the store.
    ///
    /// # Errors
    /// As [`Tenure::open`].
    pub async fn open_as(
        url: &str,
        config: &StoreConfig,
        worker: WorkerId,
    ) -> Result<Self, StoreError> {
        let general = StoreConfig {
            companion: HEARTBEAT_CONNECTIONS,
            ..config.clone()
        };
        let opened = open(url, &general).await?;
        Ok(Self::of(opened, worker, config.connections))
    }

    /// Combines an open store with a worker id.
    pub(crate) fn of(opened: Opened, worker: WorkerId, connections: u32) -> Self {
        Self {
            inner: Arc::new(TenureInner {
                opened,
                worker,
                tokens: Arc::default(),
                workers: AtomicU64::new(0),
                claims: AtomicU64::new(0),
                connections,
                watches: Mutex::default(),
                chunks: Arc::default(),
            }),
        }
    }

    /// The store port that all methods here use.
    pub fn store(&self) -> &dyn Store {
        self.inner.opened.store()
    }

    /// The store port, shared; for code that outlives a borrow.
    pub fn shared(&self) -> Arc<dyn Store> {
        self.inner.opened.shared()
    }

    /// Creates the builder of a worker on events: register its handlers, then start or run it.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::events(self.clone())
    }

    /// Creates the builder of a sender: a worker that claims pending deliveries and makes the calls
    /// through `caller`, such as a
    #[cfg_attr(
        feature = "webhook",
        doc = "[`WebhookCaller`](crate::webhook::WebhookCaller)."
    )]
    #[cfg_attr(not(feature = "webhook"), doc = "`WebhookCaller`.")]
    pub fn sender(&self, caller: Arc<dyn Caller>) -> WorkerBuilder<DeliverySource> {
        WorkerBuilder::deliveries(self.clone(), caller)
    }

    /// Jobs of this store: long work, done in chunks. See [`Jobs`].
    pub fn jobs(&self) -> Jobs {
        Jobs::new(self.clone())
    }

    /// Worker id of this program: `<name>-<random part>`.
    pub fn worker_id(&self) -> &WorkerId {
        &self.inner.worker
    }

    /// Makes the workers of this process poll for work at once. Call it after the commit when you
    /// enqueue in your own transaction; otherwise the workers find the event at their next poll.
    pub fn wake(&self) {
        for watch in self.watches().iter() {
            watch.wake();
        }
    }

    /// Creates a new token, unique across all workers.
    pub fn token(&self) -> Token {
        self.token_of(&self.inner.worker)
    }

    /// Creates a new token for this worker.
    pub(crate) fn token_of(&self, worker: &WorkerId) -> Token {
        self.inner.tokens.issue(worker, rand::random())
    }

    /// The counter of this program's tokens.
    pub(crate) fn tokens(&self) -> Arc<Tokens> {
        Arc::clone(&self.inner.tokens)
    }

    /// Claims up to `limit` items of the default queue for the default term; `None` if no item is
    /// available.
    ///
    /// An item whose lease lapsed twice or more is claimed alone, so that its crashes affect no
    /// other item. Such items are claimed when nothing else is available, and first in every eighth
    /// call, so that a busy queue does not starve them.
    ///
    /// If the answer of the store is lost, this method releases the items by their token and then
    /// returns the error.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn claim(&self, limit: u32) -> Result<Option<Held>, StoreError> {
        let turn = self.inner.claims.fetch_add(1, Ordering::Relaxed) + 1;
        claim_in_turn(self.store(), turn, || Claim::new(self.token(), limit)).await
    }

    /// Claims with these options; take the token from [`Tenure::token`].
    ///
    /// If the answer is lost, do not repeat the claim: [`release`](Tenure::release) its token, and
    /// claim with a new one.
    ///
    /// # Errors
    /// The token was used before, a queue is unknown, or the database is unavailable.
    pub async fn claim_with(&self, claim: &Claim) -> Result<Option<Held>, StoreError> {
        self.store().claim(claim).await
    }

    /// Extends leases; returns a result for each token, in order. Safe to repeat.
    ///
    /// # Errors
    /// The database is unavailable. A lost or ended lease is reported as refused, not as an error.
    pub async fn renew(&self, renew: &Renew) -> Result<Vec<(Token, Guarded<Renewed>)>, StoreError> {
        self.store().renew(renew).await
    }

    /// Ends holds, each with its outcome. Safe to repeat: an item that was settled before gets the
    /// same answer again.
    ///
    /// # Errors
    /// An item is named twice, or the database is unavailable. A stale token is reported as
    /// refused, not as an error.
    pub async fn settle(&self, settle: &Settle) -> Result<Settlement, StoreError> {
        self.store().settle(settle).await
    }

    /// Releases all items still held under this token; returns their number.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn release(&self, token: &Token) -> Result<u32, StoreError> {
        let settle = Settle::new(token.clone()).rest(Rest::Release);
        Ok(self.settle(&settle).await?.rest)
    }

    /// Ends lapsed leases: their items become pending again, or dead if they lapsed too often.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn reap(&self, reap: &Reap) -> Result<Vec<Reaped>, StoreError> {
        self.store().reap(reap).await
    }

    /// The store through separate connections, for the heartbeat.
    pub(crate) fn companion(&self) -> Arc<dyn Store> {
        self.inner.opened.companion(HEARTBEAT_CONNECTIONS)
    }

    /// The store and these rows through separate connections, for the heartbeat.
    pub(crate) fn companion_of(&self, rows: &Arc<dyn Rows>) -> Result<Companion, StoreError> {
        self.inner.opened.companion_of(HEARTBEAT_CONNECTIONS, rows)
    }

    /// The port for the user's own tables.
    pub(crate) fn user_tables(&self) -> Result<&dyn Tables, StoreError> {
        self.inner.opened.tables().ok_or_else(|| {
            let message = "this store does not support adopted tables";
            StoreError::new("open", StoreErrorKind::Invalid, message)
                .with_hint("open the PostgreSQL or SQLite database that the table is in")
        })
    }

    /// Checks that there are enough connections for a worker.
    pub(crate) fn check_connections(&self) -> Result<(), Invalid> {
        let connections = self.inner.connections;
        if connections >= Self::CONNECTIONS_MIN {
            return Ok(());
        }
        let (found, least) = (connections.to_string(), Self::CONNECTIONS_MIN);
        let expected = format!("{least} or more: two are kept for the heartbeat");
        Err(Invalid::new("connections", found, expected))
    }

    /// Id of the next worker. The first worker on events has the id of this program, later ones
    /// share only its name; a worker on deliveries, jobs or rows has `trade` appended to the name.
    /// Each has its own record in the cluster, so that one can leave while another runs.
    pub(crate) fn next_worker_id(&self, trade: Option<&str>) -> Result<WorkerId, Invalid> {
        let own = &self.inner.worker;
        let name = own.as_str().rsplit_once('-').map_or("", |(name, _)| name);
        match trade {
            // Without the trade if the name would be too long with it.
            Some(trade) => {
                new_worker_id(&format!("{name}-{trade}")).or_else(|_long| new_worker_id(name))
            }
            None if self.inner.workers.fetch_add(1, Ordering::Relaxed) == 0 => Ok(own.clone()),
            None => new_worker_id(name),
        }
    }

    /// Chunks that this program holds.
    pub(crate) fn chunk_home(&self) -> &Arc<ChunkHome> {
        &self.inner.chunks
    }

    /// From now on [`Tenure::wake`] wakes this worker, too, until it stops.
    pub(crate) fn add_watch(&self, watch: Watch) {
        let mut watches = self.watches();
        watches.retain(|watch| !watch.is_over());
        watches.push(watch);
    }

    fn watches(&self) -> std::sync::MutexGuard<'_, Vec<Watch>> {
        self.inner
            .watches
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn opened(&self) -> &Opened {
        &self.inner.opened
    }
}

impl fmt::Debug for Tenure {
    /// Omits the URL, which may contain a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("worker", &self.inner.worker)
            .finish_non_exhaustive()
    }
}

/// Creates a worker id: this name with a random suffix, different at every start.
///
/// # Errors
/// The name is not valid: 1 to 64 of the characters `A-Z a-z 0-9 . _ -` are allowed.
pub fn new_worker_id(name: &str) -> Result<WorkerId, Invalid> {
    WorkerId::new(name, rand::random())
}

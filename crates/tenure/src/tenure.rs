//! `Tenure`: a store and a worker's identity put together; enqueue and the four verbs by hand.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tenure_core::store::{
    Claim, Enqueued, Reap, Reaped, Renew, Renewed, Rest, Rows, Settle, Settlement, Store,
    StoreError, StoreErrorKind, Tables,
};
use tenure_core::webhook::Caller;
use tenure_core::{Event, Guarded, Held, Invalid, Token, WorkerId};
use tenure_store::config::StoreConfig;
use tenure_store::{Companion, Opened, open};

use crate::chunk::ChunkHome;
use crate::claim;
use crate::jobs::Jobs;
use crate::sender::SenderBuilder;
use crate::worker::{Watch, WorkerBuilder};

/// Of the connections to PostgreSQL, those kept for the heartbeat.
const HEARTBEAT_CONNECTIONS: u32 = 2;
/// The fewest connections to PostgreSQL that a worker runs with.
const CONNECTIONS_MIN: u32 = HEARTBEAT_CONNECTIONS + 1;

/// An open store, and the worker that this program is to it.
///
/// Cloning is cheap; the clones are the same worker. Two programs, and two starts of one program,
/// are different workers: the id has a random part that is drawn here.
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
    inner: Arc<Inner>,
}

struct Inner {
    opened: Opened,
    worker: WorkerId,
    /// Tokens given out.
    tokens: AtomicU64,
    /// Workers started.
    workers: AtomicU64,
    /// Calls of [`Tenure::claim`].
    claims: AtomicU64,
    /// How many connections there may be in all.
    connections: u32,
    /// The workers of this process, to be woken after an enqueue.
    watches: Mutex<Vec<Watch>>,
    /// The chunks that this process has in hand.
    chunks: Arc<ChunkHome>,
}

impl Tenure {
    /// Opens the store at `url`: `memory:`, `sqlite://path`, `postgres://…`.
    ///
    /// An SQLite file is made and migrated when needed; a PostgreSQL database is migrated with
    /// [`migrate`](crate::migrate) or `tenure migrate`.
    ///
    /// # Errors
    /// The address is of no known kind or its feature is off; the database is away, or its schema
    /// is of another version.
    pub async fn open(url: &str) -> Result<Self, StoreError> {
        Self::open_with(url, &StoreConfig::default(), "tenure").await
    }

    /// Opens the store at `url` with these settings, as the worker `name`.
    ///
    /// On PostgreSQL, two of the connections are kept for the heartbeat of a [`worker`], which runs
    /// with three or more.
    ///
    /// [`worker`]: Tenure::worker
    ///
    /// # Errors
    /// As [`Tenure::open`], and when the name is not 1 to 64 of the characters `A-Z a-z 0-9 . _ -`.
    pub async fn open_with(
        url: &str,
        config: &StoreConfig,
        name: &str,
    ) -> Result<Self, StoreError> {
        let worker =
            new_worker_id(name).map_err(|problem| StoreError::invalid("open", &problem))?;
        Self::open_as(url, config, worker).await
    }

    /// Opens the store at `url` with these settings, as a worker whose id was drawn before, by
    /// [`new_worker_id`]: for programs that log under it before they reach the store.
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
        Ok(Self {
            inner: Arc::new(Inner {
                opened,
                worker,
                tokens: AtomicU64::new(0),
                workers: AtomicU64::new(0),
                claims: AtomicU64::new(0),
                connections: config.connections,
                watches: Mutex::default(),
                chunks: Arc::default(),
            }),
        })
    }

    /// The store, as the port that everything here goes through.
    pub fn store(&self) -> &dyn Store {
        self.inner.opened.store()
    }

    /// The store, to be shared with what outlives a borrow.
    pub fn shared(&self) -> Arc<dyn Store> {
        self.inner.opened.shared()
    }

    /// Begins a worker on this store: name its handlers, then start it or run it.
    pub fn worker(&self) -> WorkerBuilder {
        WorkerBuilder::new(self.clone())
    }

    /// Begins a sender on this store: it claims what is owed to endpoints and makes the calls
    /// through `caller`, such as a
    #[cfg_attr(
        feature = "webhook",
        doc = "[`WebhookCaller`](crate::webhook::WebhookCaller)."
    )]
    #[cfg_attr(not(feature = "webhook"), doc = "`WebhookCaller`.")]
    pub fn sender(&self, caller: Arc<dyn Caller>) -> SenderBuilder {
        SenderBuilder::new(self.clone(), caller)
    }

    /// Jobs on this store: long work, done chunk by chunk. See [`Jobs`].
    pub fn jobs(&self) -> Jobs {
        Jobs::new(self.clone())
    }

    /// Who this program is to the store: `<name>-<random part>`.
    pub fn worker_id(&self) -> &WorkerId {
        &self.inner.worker
    }

    /// Writes an event in a transaction of its own; it is committed when this answers.
    ///
    /// # Errors
    /// There is no such queue, or the database is away.
    pub async fn enqueue_now(&self, event: Event) -> Result<Enqueued, StoreError> {
        let answers = self.enqueue_all(std::slice::from_ref(&event)).await?;
        one(answers)
    }

    /// Writes all of these events or none, in a transaction of its own; answers in their order.
    ///
    /// # Errors
    /// As [`Tenure::enqueue_now`].
    pub async fn enqueue_all(&self, events: &[Event]) -> Result<Vec<Enqueued>, StoreError> {
        let answers = self.store().enqueue(events).await?;
        self.wake();
        Ok(answers)
    }

    /// Lets the workers of this process look for work at once. An enqueue in a transaction of your
    /// own cannot know when that is committed: call this then, or the event is found a little
    /// later.
    pub fn wake(&self) {
        for watch in self.watches().iter() {
            watch.wake();
        }
    }

    /// A token that was never given out before.
    pub fn token(&self) -> Token {
        self.token_of(&self.inner.worker)
    }

    /// One that was never given out before, for this worker.
    pub(crate) fn token_of(&self, worker: &WorkerId) -> Token {
        let claim = self.inner.tokens.fetch_add(1, Ordering::Relaxed) + 1;
        Token::new(worker, claim, rand::random())
    }

    /// Claims up to `limit` items of the default queue for the standard term; `None` when nothing
    /// may be claimed.
    ///
    /// An item whose lease lapsed twice is handed out alone, as the only item of its lease, so that
    /// it cannot take its neighbours with it. Such items are asked for when there is nothing else,
    /// and first at every eighth call: a busy queue does not keep them waiting.
    ///
    /// When the answer of the store was lost, the items are given back by the token before the
    /// error is handed on.
    ///
    /// # Errors
    /// The database is away.
    pub async fn claim(&self, limit: u32) -> Result<Option<Held>, StoreError> {
        let turn = self.inner.claims.fetch_add(1, Ordering::Relaxed) + 1;
        claim::in_turn(self.store(), turn, || Claim::new(self.token(), limit)).await
    }

    /// Claims as this ask says; take its token from [`Tenure::token`].
    ///
    /// When the answer was lost, do not repeat the ask: [`release`](Tenure::release) its token and
    /// claim anew.
    ///
    /// # Errors
    /// The token was used before, a queue is unknown, or the database is away.
    pub async fn claim_with(&self, claim: &Claim) -> Result<Option<Held>, StoreError> {
        self.store().claim(claim).await
    }

    /// Prolongs leases; answers for each token in order. May be repeated.
    ///
    /// # Errors
    /// The database is away. A lease that is lost or over is no error but an answer.
    pub async fn renew(&self, renew: &Renew) -> Result<Vec<(Token, Guarded<Renewed>)>, StoreError> {
        self.store().renew(renew).await
    }

    /// Ends holds, each with its outcome. May be repeated: what had taken effect is answered as it
    /// was.
    ///
    /// # Errors
    /// An item is named twice, or the database is away. A stale token is no error but an answer.
    pub async fn settle(&self, settle: &Settle) -> Result<Settlement, StoreError> {
        self.store().settle(settle).await
    }

    /// Gives back whatever is still held under this token, unworked; answers how many items.
    ///
    /// # Errors
    /// The database is away.
    pub async fn release(&self, token: &Token) -> Result<u32, StoreError> {
        let settlement = self
            .settle(&Settle::new(token.clone()).rest(Rest::Release))
            .await?;
        Ok(settlement.rest)
    }

    /// Ends lapsed leases: their items are pending again, or dead when they lapsed too often.
    ///
    /// # Errors
    /// The database is away.
    pub async fn reap(&self, reap: &Reap) -> Result<Vec<Reaped>, StoreError> {
        self.store().reap(reap).await
    }

    /// The store through connections of its own, for the heartbeat.
    pub(crate) fn companion(&self) -> Arc<dyn Store> {
        self.inner.opened.companion(HEARTBEAT_CONNECTIONS)
    }

    /// The store and these rows through connections of their own, for the heartbeat.
    pub(crate) fn companion_of(&self, rows: &Arc<dyn Rows>) -> Result<Companion, StoreError> {
        self.inner.opened.companion_of(HEARTBEAT_CONNECTIONS, rows)
    }

    /// The tables of the user's own in this database.
    pub(crate) fn user_tables(&self) -> Result<&dyn Tables, StoreError> {
        self.inner.opened.tables().ok_or_else(|| {
            let message = "this store has no tables but Tenure's own";
            StoreError::new("open", StoreErrorKind::Invalid, message)
                .hint("open the PostgreSQL or SQLite database that the table is in")
        })
    }

    /// Whether there are connections enough for a worker.
    pub(crate) fn check_connections(&self) -> Result<(), Invalid> {
        let connections = self.inner.connections;
        if connections >= CONNECTIONS_MIN {
            return Ok(());
        }
        let expected = format!("{CONNECTIONS_MIN} or more: two are kept for the heartbeat");
        Err(Invalid::new(
            "connections",
            connections.to_string(),
            expected,
        ))
    }

    /// Who the next worker is: this program itself; a later one shares its name alone. What one
    /// says of itself, that it has left for one, is not said of the other.
    pub(crate) fn next_worker_id(&self) -> Result<WorkerId, Invalid> {
        let own = &self.inner.worker;
        if self.inner.workers.fetch_add(1, Ordering::Relaxed) == 0 {
            return Ok(own.clone());
        }
        let name = own.as_str().rsplit_once('-').map_or("", |(name, _)| name);
        new_worker_id(name)
    }

    /// Who the next worker of this trade is: this program's name with a word behind it.
    pub(crate) fn worker_id_for(&self, trade: &str) -> Result<WorkerId, Invalid> {
        let own = self.inner.worker.as_str();
        let name = own.rsplit_once('-').map_or("", |(name, _)| name);
        // A name that has no room for the word is good enough.
        new_worker_id(&format!("{name}-{trade}")).or_else(|_long| new_worker_id(name))
    }

    /// Where the chunks are kept that this program has in hand.
    pub(crate) fn chunk_home(&self) -> &Arc<ChunkHome> {
        &self.inner.chunks
    }

    /// Wakes this worker after each enqueue, until it is gone.
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

    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn opened(&self) -> &Opened {
        &self.inner.opened
    }
}

impl fmt::Debug for Tenure {
    /// Shows no address: it may hold a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tenure")
            .field("worker", &self.inner.worker)
            .finish_non_exhaustive()
    }
}

/// Draws the id of a worker: this name and a random part, so that two starts are told apart.
///
/// # Errors
/// The name is not 1 to 64 of the characters `A-Z a-z 0-9 . _ -`.
pub fn new_worker_id(name: &str) -> Result<WorkerId, Invalid> {
    WorkerId::new(name, rand::random())
}

/// The only answer of an enqueue of one event.
pub(crate) fn one(mut answers: Vec<Enqueued>) -> Result<Enqueued, StoreError> {
    answers.pop().ok_or_else(|| {
        StoreError::new(
            "enqueue",
            StoreErrorKind::Corrupt,
            "the store answered for no event; expected one answer",
        )
    })
}

/// The refusal of a connection that is not one of the open store.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn wrong_connection(found: &'static str) -> StoreError {
    let hint = "`enqueue` takes a PgConnection (store opened with postgres://), `enqueue_on` a \
                rusqlite::Connection (sqlite://); `enqueue_now` works on every store";
    wrong_connection_to("enqueue", found).hint(hint)
}

/// The same for another verb.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
pub(crate) fn wrong_connection_to(verb: &'static str, found: &'static str) -> StoreError {
    let problem = Invalid::new("the connection", found, "one to the store that is open");
    StoreError::invalid(verb, &problem)
}

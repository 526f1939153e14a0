//! Engine: builds, starts, drains and stops every task of a worker.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_core::store::Store;
use tenure_core::{Invalid, WorkerId};
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{Instrument as _, error, info, warn};

use crate::config::{Duty, EngineConfig};
use crate::handler::Handler;
use crate::health::Health;
use crate::keeper::KeeperThread;
use crate::shared::Shared;
use crate::tally::Tallied;
use crate::tasks::{Tasks, Wrap};
use crate::{
    heartbeat, keeper, live, pruner, reaper, record, registry, replayer, watchdog, worker,
};

/// After the shutdown time, so long for what was cancelled to stop and be given back.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What an engine is made of.
pub struct Parts {
    /// Where it claims and settles.
    pub store: Arc<dyn Store>,
    /// The same database through connections of its own, for the heartbeat.
    pub keeper_store: Arc<dyn Store>,
    /// Who it is.
    pub worker: WorkerId,
    /// What it does with an item.
    pub handler: Arc<dyn Handler>,
    /// How it runs.
    pub config: EngineConfig,
    /// Stands around every task, for a simulation; `None`: nothing does.
    pub wrap: Option<Wrap>,
}

impl fmt::Debug for Parts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Parts")
            .field("worker", &self.worker)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

/// A running engine. Dropping it stops everything at once, as a crash would: what is held lapses.
///
/// ```
/// use std::sync::Arc;
/// use tenure_core::store::Intake as _;
/// use tenure_core::{Event, Outcome, WorkerId};
/// use tenure_engine::{Context, Engine, EngineConfig, EventFn, Parts};
/// use tenure_store::memory::{MemoryStore, SystemClock};
///
/// # #[tokio::main]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = Arc::new(MemoryStore::new(Arc::new(SystemClock)));
/// store.enqueue(&[Event::new("order.paid", &7)?]).await?;
///
/// let (said, mut heard) = tokio::sync::mpsc::channel(1);
/// let handler = EventFn::new(move |event: Event, _: Context| {
///     let said = said.clone();
///     async move {
///         said.send(event.topic().to_owned()).await?; // `?` is a retry, with backoff
///         Ok(Outcome::Done)
///     }
/// });
/// let engine = Engine::start(Parts {
///     store: store.clone(),
///     keeper_store: store,
///     worker: WorkerId::new("billing", rand::random())?,
///     handler: Arc::new(handler),
///     config: EngineConfig::default(),
///     wrap: None,
/// })
/// .expect("the defaults are valid");
///
/// assert_eq!(heard.recv().await.as_deref(), Some("order.paid"));
/// let ended = engine.stop().await; // finishes and settles what is in hand
/// assert_eq!(ended.left, 0);
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    shared: Arc<Shared>,
    tasks: Arc<Tasks>,
    keeper: Option<KeeperThread>,
}

/// Wakes an engine, for as long as there is one.
#[derive(Clone)]
pub struct Wake(Weak<Shared>);

impl Wake {
    /// Looks for work at once.
    pub fn wake(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.wake();
        }
    }
}

impl fmt::Debug for Wake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wake")
    }
}

/// How an engine ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Items whose handler could not be stopped, or that could not be given back: their leases
    /// lapse.
    pub left: u32,
    /// What became of the items that it held and settled, from its start on. What was reaped is not
    /// in it, by its reaper or for a claim: others may have held that. Nor is what it gave back
    /// after one of its tasks had failed.
    pub tallied: Tallied,
}

impl Engine {
    /// Starts every task on the current runtime, and the heartbeat where the configuration says.
    ///
    /// # Errors
    /// Every problem of the settings.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn start(parts: Parts) -> Result<Self, Vec<Invalid>> {
        let own = parts.config.own(&[]);
        parts.config.in_force(own).check()?;
        // As loud as a span can be: whatever is logged at all says of whom it is.
        let span = tracing::error_span!("worker", worker = %parts.worker);
        let tasks = Arc::new(Tasks::new(parts.wrap.clone(), span));
        let shared = Arc::new(Shared::new(parts, Instant::now()));
        let keeper = start_keeper(&shared, &tasks);
        tasks.spawn("live", live::follow(Arc::clone(&shared)));
        for _ in 0..worker::hands(&shared.config) {
            let hand = worker::run(Arc::clone(&shared), Arc::clone(&tasks));
            tasks.spawn("hand", hand);
        }
        let duties = shared.config.duties;
        if duties.reaper == Duty::Done {
            let reaper = reaper::run(Arc::clone(&shared), Arc::clone(&tasks));
            tasks.spawn("reaper", reaper);
        }
        if duties.pruner == Duty::Done {
            tasks.spawn("pruner", pruner::run(Arc::clone(&shared)));
        }
        if duties.replayer == Duty::Done {
            tasks.spawn("replayer", replayer::run(Arc::clone(&shared)));
        }
        tasks.span().in_scope(|| info!("started"));
        Ok(Self {
            shared,
            tasks,
            keeper,
        })
    }

    /// Who it is.
    pub fn worker(&self) -> &WorkerId {
        &self.shared.worker
    }

    /// Looks for work at once; called after an enqueue in the same process.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// A handle that wakes it, for whoever knows of work.
    pub fn waker(&self) -> Wake {
        Wake(Arc::downgrade(&self.shared))
    }

    /// Where it stands.
    pub fn health(&self) -> Health {
        let shared = &self.shared;
        let load = shared.desk.load();
        let live = Arc::clone(&shared.live.borrow());
        let reaper = shared.config.duties.reaper;
        Health {
            worker: shared.worker.clone(),
            checks: shared.vitals.checks(Instant::now(), &live, reaper),
            running: load.running,
            held: load.held,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> tenure_core::Settings {
        self.shared.live.borrow().settings.clone()
    }

    /// Waits until a task of the engine fails, which none ever should. What it held has been given
    /// back by then as far as possible, and the reaper has run; the engine is to be dropped.
    pub async fn failed(&self) -> String {
        let reason = self.tasks.failed().await;
        let last = self.give_up(&reason).instrument(self.tasks.span());
        last.await;
        reason
    }

    /// Gives back what it can without the tasks that may be gone.
    async fn give_up(&self, reason: &str) {
        let shared = &self.shared;
        shared.metrics.terminated("panic");
        error!(reason, "terminated");
        shared.desk.stop(Instant::now());
        shared.desk.cancel_running();
        let idle = until(shared, || shared.desk.running() == 0);
        drop(timeout(LAST_WORDS, idle).await);
        // One bound for all: a store that is gone answers none of them.
        let until = Instant::now() + LAST_WORDS;
        for mut ending in shared.desk.take_last(Instant::now()) {
            shared.metrics.call("settle");
            let settle = ending.sent_at(Instant::now());
            match timeout_at(until, shared.store.settle(settle)).await {
                Ok(Ok(settlement)) => {
                    shared.desk.settled(ending.no, &settlement, Instant::now());
                }
                Ok(Err(error)) => shared.metrics.store_error("settle", &error),
                Err(_) => shared.metrics.store_silence("settle"),
            }
        }
        let orphans = shared.desk.take_orphans();
        if !orphans.is_empty() {
            drop(timeout_at(until, record::write(shared, &orphans)).await);
            shared.desk.returned();
        }
        let left = shared.desk.load().held;
        if left > 0 {
            warn!(left, "could not give back all that was held; it lapses");
        }
        if shared.config.duties.reaper == Duty::Done {
            reaper::reap(shared, &self.tasks).await;
        }
    }

    /// Stops claiming, gives back what was not started, lets what runs finish within the shutdown
    /// time, cancels and gives back the rest, takes its leave. Heartbeats go on until the last
    /// settle was answered.
    pub async fn stop(self) -> Ended {
        let span = self.tasks.span();
        self.drain().instrument(span).await
    }

    async fn drain(mut self) -> Ended {
        let shared = Arc::clone(&self.shared);
        let within = shared.live.borrow().settings.shutdown_timeout();
        shared.desk.stop(Instant::now());
        info!(?within, "stopped claiming; what runs may finish");
        shared.hands.notify_waiters();
        shared.hands.notify_one();
        let cleared = || until(&shared, || shared.desk.is_clear());
        if timeout(within, cleared()).await.is_err() {
            let load = shared.desk.load();
            shared.desk.cancel_running();
            warn!(
                running = load.running,
                held = load.held,
                "cancelled what still ran: the shutdown time was over"
            );
            // What does not stop or cannot be given back in this time lapses.
            drop(timeout(LAST_WORDS, cleared()).await);
        }
        let left = shared.desk.load().held;
        shared.metrics.terminated("shutdown");
        if shared.config.duties.reaper == Duty::Done {
            // Once more, now: what lapsed while we stopped need not wait for another's reaper.
            drop(timeout(LAST_WORDS, reaper::reap(&shared, &self.tasks)).await);
        }
        take_leave(&shared).await;
        self.tasks.stop();
        drop(timeout(LAST_WORDS, self.tasks.ended()).await);
        if let Some(keeper) = self.keeper.take() {
            keeper.ended(LAST_WORDS).await;
        }
        worker::tell_load(&shared);
        info!(left, "stopped");
        Ended {
            left,
            tallied: shared.tally.read(),
        }
    }
}

/// Tells the cluster that this worker is gone. Nothing depends on it: one that does not say so
/// passes for silent, which it is.
async fn take_leave(shared: &Shared) {
    shared.metrics.call("leave");
    let leave = shared.store.leave(&shared.worker, None);
    match timeout(LAST_WORDS, leave).await {
        Ok(Ok(())) => return,
        Ok(Err(error)) => shared.metrics.store_error("leave", &error),
        Err(_) => shared.metrics.store_silence("leave"),
    }
    warn!("could not take leave of the cluster");
}

fn start_keeper(shared: &Arc<Shared>, tasks: &Arc<Tasks>) -> Option<KeeperThread> {
    let mut kept = vec![
        (
            "heartbeat",
            tasks.guard("heartbeat", heartbeat::run(Arc::clone(shared))),
        ),
        (
            "watchdog",
            tasks.guard("watchdog", watchdog::run(Arc::clone(shared))),
        ),
        (
            "registry",
            tasks.guard("registry", registry::run(Arc::clone(shared))),
        ),
    ];
    if let Some(chunks) = shared.config.chunks.clone() {
        let store = Arc::clone(&shared.keeper_store);
        let kept_alive = async move { chunks.run(store.as_ref()).await };
        kept.push(("chunks", tasks.guard("chunks", kept_alive)));
    }
    keeper::start(shared.config.keeper, tasks, kept)
}

/// Waits until this holds of what is in hand.
async fn until(shared: &Shared, holds: impl Fn() -> bool) {
    loop {
        let notified = shared.cleared.notified();
        tokio::pin!(notified);
        notified.as_mut().enable();
        if holds() {
            return;
        }
        notified.await;
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("worker", &self.shared.worker)
            .finish_non_exhaustive()
    }
}

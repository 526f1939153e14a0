//! Engine: builds, starts, drains and stops every task of a worker.

use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use tenure_core::store::Store;
use tenure_core::{Invalid, WorkerId};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{Instrument as _, error, info, warn};

use crate::config::{Duty, EngineConfig};
use crate::handler::Handler;
use crate::health::Health;
use crate::metrics::TERMINATED;
use crate::outcome_counts::OutcomeCounts;
use crate::shared::Shared;
use crate::tasks::{Tasks, Wrap};
use crate::{
    claim_loop, heartbeat, keeper, orphaned_calls, pruner, reaper, registry, replayer,
    settings_watcher, watchdog,
};

/// Grace period for cancelled handlers to stop and release their items, after the shutdown timeout.
const STOP_GRACE: Duration = Duration::from_secs(2);

/// Everything an engine needs to start.
pub struct Parts {
    /// The store of all tasks except the keeper's.
    pub store: Arc<dyn Store>,
    /// The same database through separate connections, for the keeper.
    pub keeper_store: Arc<dyn Store>,
    /// The worker's identity in tokens, logs and metrics.
    pub worker: WorkerId,
    /// The handler of every claimed item.
    pub handler: Arc<dyn Handler>,
    /// Settings, queues and duties.
    pub config: EngineConfig,
    /// Wraps every task; used by the simulation.
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

/// A running engine. Dropping it stops every task at once, like a crash: its leases lapse.
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
/// let (sender, mut topics) = tokio::sync::mpsc::channel(1);
/// let handler = EventFn::new(move |event: Event, _: Context| {
///     let sender = sender.clone();
///     async move {
///         sender.send(event.topic().to_owned()).await?; // `?` is a retry, with backoff
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
/// assert_eq!(topics.recv().await.as_deref(), Some("order.paid"));
/// let report = engine.stop().await; // finishes and settles running items
/// assert_eq!(report.left, 0);
/// # Ok(())
/// # }
/// ```
pub struct Engine {
    shared: Arc<Shared>,
    tasks: Arc<Tasks>,
    /// Completes when the keeper's thread has ended.
    keeper: Option<oneshot::Receiver<()>>,
}

/// Wakes an engine; does nothing once the engine is gone.
#[derive(Clone, Debug)]
pub struct Wake(Weak<Shared>);

impl Wake {
    /// Polls for work at once.
    pub fn wake(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.wake();
        }
    }

    /// Polls for work at once, because the store answers again.
    pub(crate) fn poll_again(&self) {
        if let Some(shared) = self.0.upgrade() {
            shared.poll_again();
        }
    }
}

/// Result of [`Engine::stop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct StopReport {
    /// Items whose handler did not stop, or that could not be released: their leases lapse.
    pub left: u32,
    /// Outcomes of the items that this engine settled since its start. Not included: reaped items,
    /// which another worker may have held, and items released after a task failed.
    pub outcomes: OutcomeCounts,
}

impl Engine {
    /// Starts every task on the current runtime, and the keeper as configured.
    ///
    /// # Errors
    /// All invalid settings.
    ///
    /// # Panics
    /// If called outside a tokio runtime.
    pub fn start(parts: Parts) -> Result<Self, Vec<Invalid>> {
        let own = parts.config.own(&[]);
        parts.config.in_force(own).check()?;
        // Spans of the error level pass every log filter, so that each line has the worker id.
        let span = tracing::error_span!("worker", worker = %parts.worker);
        let tasks = Arc::new(Tasks::new(parts.wrap.clone(), span));
        let shared = Arc::new(Shared::new(parts, Instant::now()));
        let keeper = start_keeper(&shared, &tasks);
        tasks.spawn("settings", settings_watcher::follow(Arc::clone(&shared)));
        for _ in 0..claim_loop::count(&shared.config) {
            let claim_loop = claim_loop::run(Arc::clone(&shared), Arc::clone(&tasks));
            tasks.spawn("claim loop", claim_loop);
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

    /// The worker's identity.
    pub fn worker(&self) -> &WorkerId {
        &self.shared.worker
    }

    /// Polls for work at once; called after an enqueue in the same process.
    pub fn wake(&self) {
        self.shared.wake();
    }

    /// Handle with which other tasks wake this engine.
    pub fn waker(&self) -> Wake {
        Wake(Arc::downgrade(&self.shared))
    }

    /// Readiness checks and load.
    pub fn health(&self) -> Health {
        let shared = &self.shared;
        let load = shared.held_leases.load();
        let live = Arc::clone(&shared.live.borrow());
        let reaper = shared.config.duties.reaper;
        Health {
            worker: shared.worker.clone(),
            checks: shared.vitals.checks(Instant::now(), &live, reaper),
            topics: shared.topics(),
            running: load.running,
            held: load.held,
            is_idle: shared.held_leases.is_clear(),
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> tenure_core::Settings {
        self.shared.live.borrow().settings.clone()
    }

    /// Waits until an internal task panics (a bug) or the keeper cannot start, and returns the
    /// reason. By then the engine has released its items as far as possible and, if reaping is its
    /// duty, has reaped once. Drop the engine afterwards.
    pub async fn failed(&self) -> String {
        let reason = self.tasks.failed().await;
        let last = self.give_up(&reason).instrument(self.tasks.span());
        last.await;
        reason
    }

    /// Releases items without the help of tasks that may have panicked.
    async fn give_up(&self, reason: &str) {
        let shared = &self.shared;
        shared.metrics.count(TERMINATED, &[("cause", "panic")], 1);
        error!(reason, "terminated");
        shared.held_leases.stop(Instant::now());
        shared.held_leases.cancel_running();
        let idle = until(shared, || shared.held_leases.running() == 0);
        drop(timeout(STOP_GRACE, idle).await);
        // One timeout for all settles: a store that cannot be reached answers none of them.
        let until = Instant::now() + STOP_GRACE;
        for mut pending in shared.held_leases.take_last(Instant::now()) {
            let settle = shared.leases().settle(pending.sent_at(Instant::now()));
            if let Ok(settlement) = shared.metrics.call("settle", until, settle).await {
                let now = Instant::now();
                shared.held_leases.settled(pending.no, &settlement, now);
            }
        }
        let orphans = shared.held_leases.take_orphans();
        if !orphans.is_empty() {
            drop(timeout_at(until, orphaned_calls::write(shared, &orphans)).await);
            shared.held_leases.returned();
        }
        let left = shared.held_leases.load().held;
        if left > 0 {
            warn!(left, "could not release all items; their leases lapse");
        }
        if self.must_reap() {
            reaper::reap(shared, &self.tasks).await;
        }
    }

    /// True if the engine reaps once more before it ends.
    fn must_reap(&self) -> bool {
        self.shared.config.duties.reaper == Duty::Done && self.shared.reap_delay().is_none()
    }

    /// Stops claiming, releases unstarted items, lets running ones finish within the shutdown
    /// timeout, then cancels and releases the rest and deregisters. Heartbeats continue until the
    /// last settle is answered.
    pub async fn stop(self) -> StopReport {
        let span = self.tasks.span();
        self.drain().instrument(span).await
    }

    async fn drain(mut self) -> StopReport {
        let shared = Arc::clone(&self.shared);
        let within = shared.live.borrow().settings.shutdown_timeout();
        shared.held_leases.stop(Instant::now());
        info!(timeout = ?within, "stopped claiming; running items may finish");
        shared.claim_loops.notify_waiters();
        shared.claim_loops.notify_one();
        let cleared = || until(&shared, || shared.held_leases.is_clear());
        if timeout(within, cleared()).await.is_err() {
            let load = shared.held_leases.load();
            shared.held_leases.cancel_running();
            warn!(
                running = load.running,
                held = load.held,
                "cancelled running items: the shutdown timeout passed"
            );
            // Items that are not released in this time lapse.
            drop(timeout(STOP_GRACE, cleared()).await);
        }
        let left = shared.held_leases.load().held;
        let cause = [("cause", "shutdown")];
        shared.metrics.count(TERMINATED, &cause, 1);
        if self.must_reap() {
            // Reap once more: leases that lapsed during the stop need not wait for another reaper.
            drop(timeout(STOP_GRACE, reaper::reap(&shared, &self.tasks)).await);
        }
        self.tasks.stop();
        drop(timeout(STOP_GRACE, self.tasks.finished()).await);
        if let Some(keeper) = self.keeper.take() {
            drop(timeout(STOP_GRACE, keeper).await);
        }
        // Deregister last: a report of the registry would register the worker again.
        deregister(&shared).await;
        claim_loop::report_load(&shared);
        info!(left, "stopped");
        StopReport {
            left,
            outcomes: *shared.outcomes(),
        }
    }
}

/// Marks this worker as stopped in the cluster. This is informational: without it, the worker shows
/// as missing.
async fn deregister(shared: &Shared) {
    let leave = shared.store.leave(&shared.worker, None);
    let until = Instant::now() + STOP_GRACE;
    if shared.metrics.call("leave", until, leave).await.is_err() {
        warn!("could not deregister the worker");
    }
}

fn start_keeper(shared: &Arc<Shared>, tasks: &Arc<Tasks>) -> Option<oneshot::Receiver<()>> {
    let mut keeper_tasks = vec![
        tasks.guard("heartbeat", heartbeat::run(Arc::clone(shared))),
        tasks.guard("watchdog", watchdog::run(Arc::clone(shared))),
        tasks.guard("registry", registry::run(Arc::clone(shared))),
    ];
    if let Some(chunks) = shared.config.chunks.clone() {
        let store = Arc::clone(&shared.keeper_store);
        let renewals = async move { chunks.run(store.as_ref()).await };
        keeper_tasks.push(tasks.guard("chunks", renewals));
    }
    keeper::start(shared.config.keeper, tasks, keeper_tasks)
}

/// Waits until the condition holds; `shared.cleared` triggers each check.
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

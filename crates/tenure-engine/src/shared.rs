//! State shared by all tasks of an engine.

use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tenure_core::store::{Answer, Jobs, LeaseStore, Store, StoreError};
use tenure_core::{ItemId, Outcome, QueueName, Token, Tokens, TopicSet, WorkerId};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::config::{EngineConfig, Leases};
use crate::handler::{Failed, Handler};
use crate::health::Vitals;
use crate::held::{HeldLeases, LostHold};
use crate::held_lease::{LeaseNo, LossReason};
use crate::metrics::{LOST, Metrics, SETTINGS_VERSION};
use crate::outcome_counts::OutcomeCounts;
use crate::rng::Rng;
use crate::settings_watcher::ActiveSettings;

/// Calls that write nothing.
const READS: [&str; 3] = ["settings", "choose", "find"];

/// State shared by all tasks of an engine.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keeper_store: Arc<dyn Store>,
    pub(crate) worker: WorkerId,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) config: EngineConfig,
    pub(crate) held_leases: HeldLeases,
    pub(crate) live: watch::Sender<Arc<ActiveSettings>>,
    pub(crate) metrics: Metrics,
    outcomes: Mutex<OutcomeCounts>,
    pub(crate) vitals: Vitals,
    pub(crate) rng: Rng,
    /// Wakes executors: items wait.
    pub(crate) executors: Notify,
    /// Wakes claim loops: there are outcomes to settle or capacity to claim.
    pub(crate) claim_loops: Notify,
    /// Wakes heartbeat and watchdog: the settings changed. A watch on `live` would wake its readers
    /// in an undefined order, so that simulated runs could not be repeated.
    pub(crate) tuned: Notify,
    /// Wakes the reaper early.
    pub(crate) reaper: Notify,
    /// Wakes tasks that wait for `HeldLeases::is_clear`.
    pub(crate) cleared: Notify,
    /// The handler is not ready; stored so that only changes are logged.
    pub(crate) is_claiming_paused: AtomicBool,
    /// Topics of the last claim.
    topics: Mutex<TopicSet>,
    tokens: Tokens,
}

impl Shared {
    pub(crate) fn new(parts: crate::engine::Parts, now: Instant) -> Self {
        let settings = parts.config.own(&[]);
        let mut live = ActiveSettings::new(parts.config.in_force(settings));
        live.is_choosing = parts.config.chooser.is_some();
        live.is_one_by_one = parts.config.is_one_by_one();
        let live = Arc::new(live);
        let metrics = Metrics::new(parts.worker.as_str());
        metrics.register();
        Self {
            metrics,
            outcomes: Mutex::default(),
            vitals: Vitals::new(now),
            rng: Rng::new(parts.config.seed),
            held_leases: HeldLeases::new(Arc::clone(&live), Arc::clone(&parts.handler), now),
            live: watch::Sender::new(live),
            store: parts.store,
            keeper_store: parts.keeper_store,
            worker: parts.worker,
            handler: parts.handler,
            config: parts.config,
            executors: Notify::new(),
            claim_loops: Notify::new(),
            tuned: Notify::new(),
            reaper: Notify::new(),
            cleared: Notify::new(),
            is_claiming_paused: AtomicBool::new(false),
            topics: Mutex::new(TopicSet::any()),
            tokens: Tokens::default(),
        }
    }

    /// Topics of the last claim; none for a worker on deliveries or rows.
    pub(crate) fn topics(&self) -> TopicSet {
        if self.config.chooser.is_some() || self.config.rows.table.is_some() {
            return TopicSet::from_iter([]);
        }
        self.lock_topics().clone()
    }

    pub(crate) fn set_topics(&self, topics: &TopicSet) {
        self.lock_topics().clone_from(topics);
    }

    fn lock_topics(&self) -> MutexGuard<'_, TopicSet> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lease operations on the items of this engine: events, jobs or the rows of a table.
    pub(crate) fn leases(&self) -> &dyn LeaseStore {
        match &self.config.rows.leases {
            Leases::Rows(rows, _) => rows.as_ref(),
            Leases::Events | Leases::Jobs => self.leases_of(self.store.as_ref()),
        }
    }

    /// The same operations through the keeper's own connections.
    pub(crate) fn keeper_leases(&self) -> &dyn LeaseStore {
        match &self.config.rows.leases {
            Leases::Rows(_, rows) => rows.as_ref(),
            Leases::Events | Leases::Jobs => self.leases_of(self.keeper_store.as_ref()),
        }
    }

    fn leases_of<'a>(&self, store: &'a dyn Store) -> &'a dyn LeaseStore {
        let jobs = store.job_store();
        let jobs = jobs.filter(|_| matches!(self.config.rows.leases, Leases::Jobs));
        jobs.map_or(store, Jobs::job_leases)
    }

    /// Calls the store as [`Metrics::call`] does; also logs a failure, once until the store answers
    /// again.
    pub(crate) async fn call<T>(
        &self,
        verb: &'static str,
        until: Instant,
        answer: Answer<'_, T>,
    ) -> Result<T, StoreError> {
        let answer = self.metrics.call(verb, until, answer).await;
        match &answer {
            // A store that is read-only or locked still answers these.
            Ok(_) if READS.contains(&verb) => {}
            Ok(_) => self.store_answered(),
            Err(error) => {
                let (text, hint) = (error.summary(), error.hint());
                let is_news = self.vitals.store_failed(&text, error.is_transient());
                if is_news {
                    tracing::warn!(verb, error = text, hint, "the store failed");
                } else {
                    tracing::debug!(verb, error = text, hint, "the store failed again");
                }
            }
        }
        answer
    }

    fn store_answered(&self) {
        let now = Instant::now();
        if let Some((away, is_told)) = self.vitals.store_answered(now) {
            let away = tenure_core::brief_duration(away);
            if is_told {
                tracing::info!(away, "the store answered again");
            } else {
                tracing::debug!(away, "the store answered again");
            }
            self.poll_again();
            if let Some(sender) = &self.config.sender {
                sender.poll_again();
            }
        }
    }

    /// Claims at once, although earlier claims failed.
    pub(crate) fn poll_again(&self) {
        self.held_leases.store_is_back(Instant::now());
        self.claim_loops.notify_one();
    }

    /// Time until the next reap, if it must wait because the store is or was unavailable.
    pub(crate) fn reap_delay(&self) -> Option<Duration> {
        let heartbeat = self.live.borrow().heartbeat();
        self.vitals.reap_delay(Instant::now(), heartbeat)
    }

    pub(crate) fn outcomes(&self) -> MutexGuard<'_, OutcomeCounts> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Creates a unique token.
    pub(crate) fn mint(&self) -> Token {
        self.tokens.issue(&self.worker, rand::random())
    }

    /// Puts these settings in force.
    pub(crate) fn tune(&self, live: Arc<ActiveSettings>) {
        let version = u32::try_from(live.version).unwrap_or(u32::MAX);
        let gauge = self.metrics.gauge(SETTINGS_VERSION, &[]);
        gauge.set(f64::from(version));
        let is_without_queues = self.config.is_without_queues();
        let queues = live.groups.iter().flat_map(|group| &group.queues);
        let queues = queues.filter(|_| !is_without_queues).map(QueueName::as_str);
        for queue in queues.chain(is_without_queues.then_some("")) {
            self.metrics.register_queue(queue);
        }
        self.held_leases.tune(Arc::clone(&live));
        self.live.send_replace(live);
        // Surplus executors exit, claim loops use the new capacity, and the reaper uses its new
        // interval.
        self.tuned.notify_waiters();
        self.executors.notify_waiters();
        self.claim_loops.notify_one();
        self.reaper.notify_one();
    }

    /// Polls for work at once.
    pub(crate) fn wake(&self) {
        self.held_leases.wake(Instant::now());
        self.claim_loops.notify_one();
    }

    /// Outcome of a failure, by the active retry policy.
    pub(crate) fn judge(&self, failed: &Failed<'_>) -> Outcome {
        let policy = self.live.borrow().settings.retry_policy();
        failed.judge(self.handler.as_ref(), policy)
    }

    /// Drops a lease, as [`HeldLeases::lose`] does; returns false if it has ended already.
    pub(crate) fn lose(&self, no: LeaseNo, loss: LossReason, error: Option<&str>) -> bool {
        let lost = self.held_leases.lose(no, loss, Instant::now());
        if let Some(lost) = &lost {
            self.report_loss(lost, error);
        }
        lost.is_some()
    }

    /// Logs and counts a lost lease; `error` is the store's error, if any.
    pub(crate) fn report_loss(&self, lost: &LostHold, error: Option<&str>) {
        let reason = lost.loss.as_str();
        self.metrics.count(LOST, &[("reason", reason)], lost.items);
        let refusal = match lost.loss {
            LossReason::Refused(refusal) => Some(refusal.as_str()),
            LossReason::Failed | LossReason::Late | LossReason::Buried => None,
        };
        let text = |ids: &[ItemId]| {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            ids.join(" ")
        };
        let running = text(&lost.running);
        let events = (!lost.events.is_empty()).then(|| text(&lost.events));
        tracing::warn!(
            reason,
            refusal,
            fence = lost.fence.number(),
            items = lost.items,
            running,
            events,
            error,
            "lost a lease; its work was cancelled and will not be settled"
        );
        self.claim_loops.notify_one();
        self.cleared.notify_waiters();
    }
}

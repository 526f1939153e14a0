//! What every task of an engine sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tenure_core::store::Store;
use tenure_core::{ItemId, Outcome, Token, WorkerId};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::config::EngineConfig;
use crate::desk::{Desk, Lost};
use crate::dice::Dice;
use crate::handler::{Failed, Handler};
use crate::health::Vitals;
use crate::hold::Loss;
use crate::live::Live;
use crate::metrics::Metrics;
use crate::tally::Tally;

/// What every task of an engine sees.
pub(crate) struct Shared {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) keeper_store: Arc<dyn Store>,
    pub(crate) worker: WorkerId,
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) config: EngineConfig,
    pub(crate) desk: Desk,
    pub(crate) live: watch::Sender<Arc<Live>>,
    pub(crate) metrics: Metrics,
    pub(crate) tally: Tally,
    pub(crate) vitals: Vitals,
    pub(crate) dice: Dice,
    /// Wakes slots: there is something to work on.
    pub(crate) work: Notify,
    /// Wakes hands: there is something to settle, or room to claim.
    pub(crate) hands: Notify,
    /// Wakes heartbeat and watchdog: other settings are in force. Not the watch of `live`, which
    /// wakes its readers in an order of its own, so that no run could be repeated.
    pub(crate) tuned: Notify,
    /// Wakes the reaper before its time.
    pub(crate) reaper: Notify,
    /// Wakes whoever waits for the desk to clear.
    pub(crate) cleared: Notify,
    /// Whether claiming is held back.
    pub(crate) is_held_back: AtomicBool,
    tokens: AtomicU64,
}

impl Shared {
    pub(crate) fn new(parts: crate::engine::Parts, now: Instant) -> Self {
        let settings = parts.config.own(&[]);
        let mut live = Live::new(parts.config.in_force(settings));
        live.is_choosing = parts.config.chooser.is_some();
        live.is_one_by_one = parts.config.is_one_by_one();
        let live = Arc::new(live);
        Self {
            metrics: Metrics::new(&parts.worker),
            tally: Tally::default(),
            vitals: Vitals::new(now),
            dice: Dice::new(parts.config.seed),
            desk: Desk::new(Arc::clone(&live), now),
            live: watch::Sender::new(live),
            store: parts.store,
            keeper_store: parts.keeper_store,
            worker: parts.worker,
            handler: parts.handler,
            config: parts.config,
            work: Notify::new(),
            hands: Notify::new(),
            tuned: Notify::new(),
            reaper: Notify::new(),
            cleared: Notify::new(),
            is_held_back: AtomicBool::new(false),
            tokens: AtomicU64::new(0),
        }
    }

    /// A token that was never given out before.
    pub(crate) fn mint(&self) -> Token {
        let claim = self.tokens.fetch_add(1, Ordering::Relaxed) + 1;
        Token::new(&self.worker, claim, rand::random())
    }

    /// From now on these settings are in force.
    pub(crate) fn tune(&self, live: Arc<Live>) {
        self.metrics
            .settings_version
            .set(f64::from(u32::try_from(live.version).unwrap_or(u32::MAX)));
        self.desk.tune(Arc::clone(&live));
        self.live.send_replace(live);
        // Surplus slots end, hands see the new room, the reaper its new interval.
        self.tuned.notify_waiters();
        self.work.notify_waiters();
        self.hands.notify_one();
        self.reaper.notify_one();
    }

    /// Looks for work at once.
    pub(crate) fn wake(&self) {
        self.desk.wake(Instant::now());
        self.hands.notify_one();
    }

    /// What follows a failure: as the handler says, else by the retry policy in force.
    pub(crate) fn judge(&self, failed: &Failed<'_>) -> Outcome {
        self.handler.judge(failed).unwrap_or_else(|| {
            let policy = self.live.borrow().settings.retry_policy();
            policy.judge(failed.failures, failed.failure, failed.chance)
        })
    }

    /// Tells of a hold that was taken away, in the log and the metric; `error` is what the store
    /// said, if it said anything.
    pub(crate) fn tell_loss(&self, lost: &Lost, error: Option<&str>) {
        self.metrics.lost(lost.loss, lost.items);
        let reason = lost.loss.as_str();
        let why = match lost.loss {
            Loss::Refused(refusal) => refusal.as_str(),
            Loss::Failed | Loss::Late | Loss::Buried => reason,
        };
        let text = |ids: &[ItemId]| {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            ids.join(" ")
        };
        let running = text(&lost.running);
        let events = (!lost.events.is_empty()).then(|| text(&lost.events));
        tracing::warn!(
            reason,
            why,
            fence = lost.fence.number(),
            items = lost.items,
            running,
            events,
            error,
            "lost a hold; its work was cancelled and will not be settled"
        );
        self.hands.notify_one();
        self.cleared.notify_waiters();
    }
}

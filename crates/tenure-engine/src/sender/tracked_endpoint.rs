//! An endpoint as a sender tracks it: the stored row and the local state of this process.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::webhook::{
    CallVerdict, Disabled, Endpoint, EndpointHealth, EndpointState, OnGone, RecentCalls, Warning,
};
use tenure_core::{ItemId, Outcome, Timestamp, reason};
use tokio::time::Instant;
use tracing::{info, warn};

use super::bucket::Bucket;

/// One moment on the store's clock and on this machine's.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClockPair {
    pub(super) store: Timestamp,
    pub(super) local: Instant,
}

/// An endpoint with the local state of this process.
#[derive(Debug)]
pub(super) struct TrackedEndpoint {
    pub(super) endpoint: Arc<Endpoint>,
    /// Health as known to this process.
    pub(super) health: EndpointHealth,
    /// Health as last stored.
    pub(super) stored_health: EndpointHealth,
    recent_calls: RecentCalls,
    bucket: Bucket,
    /// Calls of this process under way.
    pub(super) in_flight: u32,
    /// The metric shows it as paused.
    pub(super) is_paused_in_metrics: bool,
    /// This process cannot call the endpoint.
    is_refused: bool,
}

/// Current call policy of an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EndpointStatus {
    /// Calls are made.
    Open,
    /// One probe call is made.
    Trial,
    /// No calls are made.
    Closed,
    /// The endpoint was removed or is gone: its deliveries are dead, with this reason and error.
    Gone(&'static str, &'static str),
}

/// Changes caused by a call.
#[derive(Debug, Default)]
pub(super) struct CallEffects {
    /// New health, if other processes should know it.
    pub(super) changed_health: Option<EndpointHealth>,
    pub(super) warning: Option<Warning>,
    /// Reason to disable it.
    pub(super) disable: Option<Disabled>,
    /// Newly paused: for how long, and why.
    pub(super) paused: Option<(Duration, String)>,
    /// The endpoint was paused or warned about, and works again.
    pub(super) is_back: bool,
}

impl TrackedEndpoint {
    pub(super) fn new(endpoint: Endpoint, now: Instant) -> Self {
        Self {
            health: endpoint.health.clone(),
            stored_health: endpoint.health.clone(),
            endpoint: Arc::new(endpoint),
            recent_calls: RecentCalls::default(),
            bucket: Bucket::new(now),
            in_flight: 0,
            is_paused_in_metrics: false,
            is_refused: false,
        }
    }

    /// Records the reason `why` this process cannot call it, if any, and logs a change.
    pub(super) fn refuse(&mut self, why: Option<String>) {
        let endpoint = self.endpoint.id.as_str();
        match why {
            Some(reason) if !self.is_refused => {
                warn!(
                    endpoint,
                    reason, "cannot call an endpoint; its deliveries wait for another process"
                );
                self.is_refused = true;
            }
            None if self.is_refused => {
                info!(endpoint, "can call an endpoint again");
                self.is_refused = false;
            }
            Some(_) | None => {}
        }
    }

    /// Updates the stored row. A health written by another process replaces the local health;
    /// otherwise the local health stays, because it may be newer.
    pub(super) fn update(&mut self, endpoint: Endpoint) {
        if endpoint.health != self.stored_health {
            self.health = endpoint.health.clone();
            self.stored_health = endpoint.health.clone();
        }
        self.endpoint = Arc::new(endpoint);
    }

    pub(super) fn status(&self, now: Timestamp) -> EndpointStatus {
        match &self.endpoint.state {
            EndpointState::Removed { .. } => {
                EndpointStatus::Gone(reason::REMOVED, "its endpoint was removed")
            }
            EndpointState::Disabled {
                why: Disabled::Gone,
                ..
            } if self.endpoint.settings.on_gone == OnGone::Bury => EndpointStatus::Gone(
                reason::GONE,
                "its endpoint answered that it is gone for good",
            ),
            EndpointState::Disabled { .. } => EndpointStatus::Closed,
            EndpointState::Enabled if self.is_refused => EndpointStatus::Closed,
            EndpointState::Enabled if self.health.is_paused(now) => EndpointStatus::Closed,
            EndpointState::Enabled if self.health.is_on_probe(now) => EndpointStatus::Trial,
            EndpointState::Enabled => EndpointStatus::Open,
        }
    }

    /// True if recent calls failed, so that most of its deliveries are retries.
    pub(super) fn is_failing(&self) -> bool {
        self.health.failing_since.is_some()
    }

    /// Deliveries that may be claimed besides the `in_hand` unsettled ones.
    pub(super) fn room(&self, in_hand: u32, moment: ClockPair) -> u32 {
        match self.status(moment.store) {
            EndpointStatus::Closed => 0,
            EndpointStatus::Gone(..) => u32::MAX,
            EndpointStatus::Trial => 1_u32.saturating_sub(in_hand),
            EndpointStatus::Open => {
                let settings = &self.endpoint.settings;
                let free = settings.concurrency.saturating_sub(in_hand);
                let Some(rate) = settings.rate else {
                    return free;
                };
                // Claimed deliveries that are not sent yet will also take from the bucket.
                let unsent = in_hand.saturating_sub(self.in_flight);
                let ready = self.bucket.ready(rate, moment.local);
                free.min(ready.saturating_sub(unsent))
            }
        }
    }

    /// Records the start of a call.
    pub(super) fn start_call(&mut self, now: Instant) {
        self.in_flight += 1;
        if let Some(rate) = self.endpoint.settings.rate {
            self.bucket.take(rate, now);
        }
    }

    /// Records the verdict on a call and returns its effects.
    pub(super) fn record_verdict(
        &mut self,
        id: ItemId,
        verdict: &CallVerdict,
        now: Timestamp,
    ) -> CallEffects {
        let old = self.health.clone();
        let mut new = match verdict.is_success {
            Some(true) => old.succeeded(&mut self.recent_calls, now),
            Some(false) => {
                let new = old.failed(&mut self.recent_calls, id, verdict.pause, now);
                match &verdict.outcome {
                    Outcome::Retry { error, .. } | Outcome::Dead { error, .. } => {
                        new.with_error(error)
                    }
                    Outcome::Done | Outcome::Release { .. } => new,
                }
            }
            None => old.clone(),
        };
        if self.endpoint.state != EndpointState::Enabled {
            return CallEffects::default();
        }
        let warning = new.warns(now);
        new.warnings += u8::from(warning.is_some());
        let is_newly_paused = new.is_paused(now) && !old.is_paused(now);
        let pause = is_newly_paused.then(|| {
            let length = new
                .paused_until
                .map_or(Duration::ZERO, |until| until.since(now));
            (length, new.pause.clone().unwrap_or_default())
        });
        let effects = CallEffects {
            changed_health: new.is_news(&self.stored_health).then(|| new.clone()),
            warning,
            disable: verdict.disable.clone().or_else(|| new.disables(now)),
            paused: pause,
            is_back: new.failures == 0 && (old.trips > 0 || old.warnings > 0),
        };
        self.health = new;
        effects
    }
}

//! A line: an endpoint as a sender sees it, with what this process knows of it beside what is kept.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::webhook::{
    Breaking, Disabled, Endpoint, EndpointState, Health, OnGone, Verdict, Warning,
};
use tenure_core::{ItemId, Outcome, Timestamp, reason};
use tokio::time::Instant;
use tracing::{info, warn};

use super::bucket::Bucket;

/// One moment by the store's clock and by this machine's.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) store: Timestamp,
    pub(super) here: Instant,
}

/// An endpoint as a sender sees it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) endpoint: Arc<Endpoint>,
    /// How it fares, as this process has it.
    pub(super) health: Health,
    /// As it is kept.
    pub(super) kept: Health,
    lately: Breaking,
    bucket: Bucket,
    /// Calls that this process makes just now.
    pub(super) calling: u32,
    /// Whether the gauge says that it is left alone.
    pub(super) is_told_paused: bool,
    /// Whether this process cannot call it.
    is_refused: bool,
}

/// What may be done for an endpoint now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// It is called.
    Open,
    /// One call is made, to see if it is back.
    Trial,
    /// It is left alone.
    Closed,
    /// It is gone: what is owed to it is dead, for this reason and in these words.
    Gone(&'static str, &'static str),
}

/// What a call changed.
#[derive(Debug, Default)]
pub(super) struct Heard {
    /// How it fares now, if others should know.
    pub(super) keep: Option<Health>,
    pub(super) warning: Option<Warning>,
    /// Why nothing is to be sent to it any more.
    pub(super) disable: Option<Disabled>,
    /// It is left alone from now on, for so long and for this reason.
    pub(super) paused: Option<(Duration, String)>,
    /// It had been left alone or warned about, and takes what it is sent again.
    pub(super) is_back: bool,
}

impl Line {
    pub(super) fn new(endpoint: Endpoint, now: Instant) -> Self {
        Self {
            health: endpoint.health.clone(),
            kept: endpoint.health.clone(),
            endpoint: Arc::new(endpoint),
            lately: Breaking::default(),
            bucket: Bucket::new(now),
            calling: 0,
            is_told_paused: false,
            is_refused: false,
        }
    }

    /// Whether this process can call it, and if not, why; what has changed is told.
    pub(super) fn refuse(&mut self, why: Option<String>) {
        let endpoint = self.endpoint.id.as_str();
        match why {
            Some(why) if !self.is_refused => {
                warn!(
                    endpoint,
                    why, "cannot call an endpoint; its deliveries wait for others"
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

    /// It was read anew. What another process wrote of its health counts; else ours does, which
    /// may know more than is kept.
    pub(super) fn update(&mut self, endpoint: Endpoint) {
        if endpoint.health != self.kept {
            self.health = endpoint.health.clone();
            self.kept = endpoint.health.clone();
        }
        self.endpoint = Arc::new(endpoint);
    }

    pub(super) fn standing(&self, now: Timestamp) -> Standing {
        match &self.endpoint.state {
            EndpointState::Removed { .. } => {
                Standing::Gone(reason::REMOVED, "its endpoint was removed")
            }
            EndpointState::Disabled {
                why: Disabled::Gone,
                ..
            } if self.endpoint.settings.on_gone == OnGone::Bury => {
                Standing::Gone(reason::GONE, "its endpoint said that it is gone for good")
            }
            EndpointState::Disabled { .. } => Standing::Closed,
            EndpointState::Enabled if self.is_refused => Standing::Closed,
            EndpointState::Enabled if self.health.is_paused(now) => Standing::Closed,
            EndpointState::Enabled if self.health.is_on_trial(now) => Standing::Trial,
            EndpointState::Enabled => Standing::Open,
        }
    }

    /// Whether it has failed lately: what is owed to it are mostly retries.
    pub(super) fn is_failing(&self) -> bool {
        self.health.failing_since.is_some()
    }

    /// How many more may be taken in hand, of which there are `in_hand`.
    pub(super) fn room(&self, in_hand: u32, moment: Moment) -> u32 {
        match self.standing(moment.store) {
            Standing::Closed => 0,
            Standing::Gone(..) => u32::MAX,
            Standing::Trial => 1_u32.saturating_sub(in_hand),
            Standing::Open => {
                let settings = &self.endpoint.settings;
                let free = settings.concurrency.saturating_sub(in_hand);
                let Some(rate) = settings.rate else {
                    return free;
                };
                // What is in hand and has not left will take its share.
                let unsent = in_hand.saturating_sub(self.calling);
                let ready = self.bucket.ready(rate, moment.here);
                free.min(ready.saturating_sub(unsent))
            }
        }
    }

    /// A call leaves.
    pub(super) fn began(&mut self, now: Instant) {
        self.calling += 1;
        if let Some(rate) = self.endpoint.settings.rate {
            self.bucket.take(rate, now);
        }
    }

    /// A call of this delivery was judged so.
    pub(super) fn heard(&mut self, id: ItemId, verdict: &Verdict, now: Timestamp) -> Heard {
        let old = self.health.clone();
        let mut new = match verdict.is_success {
            Some(true) => old.succeeded(&mut self.lately, now),
            Some(false) => {
                let new = old.failed(&mut self.lately, id, verdict.pause, now);
                match &verdict.outcome {
                    Outcome::Retry { error, .. } | Outcome::Dead { error, .. } => {
                        new.because(error)
                    }
                    Outcome::Done | Outcome::Release { .. } => new,
                }
            }
            None => old.clone(),
        };
        if self.endpoint.state != EndpointState::Enabled {
            return Heard::default();
        }
        let warning = new.warns(now);
        new.warnings += u8::from(warning.is_some());
        let is_paused_anew = new.is_paused(now) && !old.is_paused(now);
        let pause = is_paused_anew.then(|| {
            let length = new
                .paused_until
                .map_or(Duration::ZERO, |until| until.since(now));
            (length, new.pause.clone().unwrap_or_default())
        });
        let heard = Heard {
            keep: new.is_news(&self.kept).then(|| new.clone()),
            warning,
            disable: verdict.disable.clone().or_else(|| new.disables(now)),
            paused: pause,
            is_back: new.failures == 0 && (old.trips > 0 || old.warnings > 0),
        };
        self.health = new;
        heard
    }
}

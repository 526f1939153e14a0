//! Effects of a call on its endpoint. The sender saves the endpoint's health for all processes, and
//! disables an endpoint that has failed for too long. It reports these changes in the log, and as
//! Tenure's own events to the endpoints that subscribe to them by name.
//!
//! Each step has a timeout and may fail: the delivery is settled anyway. The next call saves the
//! health or disables the endpoint again; a lost report is not repeated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Answer, ChangeEndpoint};
use tenure_core::webhook::{
    CallVerdict, Disabled, Endpoint, EndpointSettings, EndpointState, Request,
};
use tenure_core::{Guarded, NewEvent, Outcome, Refusal, duration_text};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::Sender;
use super::tracked_endpoint::{CallEffects, TrackedEndpoint};

const STORE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum attempts to disable an endpoint that another process changes at the same time.
const DISABLE_TRIES: u32 = 3;

impl Sender {
    pub(super) async fn apply_effects(&self, request: &Request<'_>, verdict: &CallVerdict) {
        let endpoint = request.endpoint;
        let Some(effects) = self.record_verdict(request, verdict) else {
            return;
        };
        if let Some(health) = &effects.changed_health {
            let saved = self.store.webhooks().keep_health(&endpoint.id, health);
            if self.bounded("keep_health", saved).await.is_some()
                && let Some(tracked) = self.state().tracked.get_mut(&endpoint.number)
            {
                tracked.stored_health = health.clone();
            }
        }
        self.report(endpoint, &effects).await;
        if let Some(why) = effects.disable {
            self.disable(endpoint, why).await;
        }
        self.report_dead(request, &verdict.outcome).await;
    }

    fn record_verdict(&self, request: &Request<'_>, verdict: &CallVerdict) -> Option<CallEffects> {
        let mut state = self.state();
        let now = state.moment(Instant::now()).store;
        let tracked = state.tracked.get_mut(&request.endpoint.number)?;
        Some(tracked.record_verdict(request.delivery, verdict, now))
    }

    async fn report(&self, endpoint: &Endpoint, effects: &CallEffects) {
        let id = endpoint.id.as_str();
        if let Some((length, reason)) = &effects.paused {
            let length = duration_text(*length);
            warn!(endpoint = id, reason, length, "paused an endpoint");
            let facts = [("why", reason.clone()), ("for", length)];
            self.enqueue(id, "tenure.endpoint.paused", &facts, None)
                .await;
        }
        if let Some(warning) = &effects.warning {
            let failing = duration_text(whole_seconds(warning.failing));
            let left = duration_text(whole_seconds(warning.left));
            warn!(
                endpoint = id,
                failing, left, "an endpoint keeps failing and will be disabled"
            );
            let facts = [("failing", failing), ("disabled_in", left)];
            self.enqueue(id, "tenure.endpoint.warning", &facts, None)
                .await;
        }
        if effects.is_back {
            info!(endpoint = id, "an endpoint recovered");
            self.enqueue(id, "tenure.endpoint.recovered", &[], None)
                .await;
        }
    }

    /// Disables an endpoint, unless its URL or state was just changed.
    async fn disable(&self, called: &Endpoint, why: Disabled) {
        let webhooks = self.store.webhooks();
        let mut endpoint = called.clone();
        for _ in 0..DISABLE_TRIES {
            let change = ChangeEndpoint {
                id: endpoint.id.clone(),
                version: endpoint.version,
                settings: endpoint.settings.clone(),
                sealed: endpoint.sealed.clone(),
                state: EndpointState::Disabled {
                    why: why.clone(),
                    since: self.state().moment(Instant::now()).store,
                },
                now: None,
            };
            let changed = webhooks.change_endpoint(&change);
            match self.bounded("change_endpoint", changed).await {
                Some(Guarded::Accepted(endpoint)) => {
                    self.report_disabled(endpoint, &why).await;
                    return;
                }
                Some(Guarded::Refused(Refusal::Changed)) => {}
                Some(Guarded::Refused(_)) | None => return,
            }
            let current = self
                .bounded("endpoint", webhooks.endpoint(&endpoint.id))
                .await;
            let Some(Some(current)) = current else {
                return;
            };
            let is_same_url = current.settings.url == called.settings.url;
            if current.state != EndpointState::Enabled || !is_same_url {
                return;
            }
            endpoint = current;
        }
    }

    async fn report_disabled(&self, endpoint: Endpoint, why: &Disabled) {
        let id = endpoint.id.clone();
        warn!(
            endpoint = id.as_str(),
            reason = why.as_str(),
            "disabled an endpoint"
        );
        if let Some(tracked) = self.state().tracked.get_mut(&endpoint.number) {
            tracked.endpoint = Arc::new(endpoint);
        }
        let facts = [("why", why.as_str().to_owned())];
        self.enqueue(id.as_str(), "tenure.endpoint.disabled", &facts, None)
            .await;
    }

    /// Reports a dead delivery, except for Tenure's own events: reports about those could cause
    /// further dead deliveries.
    async fn report_dead(&self, request: &Request<'_>, outcome: &Outcome) {
        let Outcome::Dead { reason, .. } = outcome else {
            return;
        };
        let topic = request.event.topic();
        if topic.split('.').next() == Some(EndpointSettings::OWN_TOPICS) {
            return;
        }
        let facts = [
            ("delivery", request.delivery.to_string()),
            ("event", request.message.to_string()),
            ("topic", topic.to_owned()),
            ("reason", reason.clone()),
            ("attempt", request.attempt.to_string()),
        ];
        // One report per claim; a delivery that is dead again after a replay has another fence.
        let dedupe = format!(
            "tenure.delivery.dead/{}/{}",
            request.delivery, request.fence
        );
        let endpoint = request.endpoint.id.as_str();
        self.enqueue(endpoint, "tenure.delivery.dead", &facts, Some(&dedupe))
            .await;
    }

    /// Enqueues one of Tenure's own events, if an endpoint subscribes to it.
    async fn enqueue(
        &self,
        endpoint: &str,
        topic: &str,
        facts: &[(&str, String)],
        dedupe: Option<&str>,
    ) {
        let is_wanted = |tracked: &TrackedEndpoint| tracked.endpoint.receives(topic);
        if !self.state().tracked.values().any(is_wanted) {
            return;
        }
        let mut payload: BTreeMap<&str, &str> = BTreeMap::new();
        payload.insert("endpoint", endpoint);
        payload.extend(facts.iter().map(|(name, text)| (*name, text.as_str())));
        let mut event = NewEvent::new(topic, &payload);
        if let Some(key) = dedupe {
            event = event.dedupe(key);
        }
        let Ok(event) = event.build() else {
            // Tenure's own names and texts are always valid.
            return;
        };
        let enqueued = self.store.enqueue(std::slice::from_ref(&event));
        let _enqueued = self.bounded("enqueue", enqueued).await;
    }

    /// Awaits the store's answer with a timeout.
    async fn bounded<T>(&self, verb: &'static str, answer: Answer<'_, T>) -> Option<T> {
        match timeout(STORE_TIMEOUT, answer).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => {
                warn!(verb, %error, "could not save the effects of a call on its endpoint");
            }
            Err(_) => warn!(
                verb,
                "timed out saving the effects of a call on its endpoint"
            ),
        }
        None
    }
}

fn whole_seconds(length: Duration) -> Duration {
    Duration::from_secs(length.as_secs())
}

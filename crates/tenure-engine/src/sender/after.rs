//! What follows a call for its endpoint: how it fares is kept for all processes, it is disabled
//! when it is to be, and people are told: in the log, and by events of Tenure's own to those
//! endpoints that ask for them by name.
//!
//! All of this is bounded and may fail: the delivery is settled all the same, and the next call
//! says again what could not be kept.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Answer, ChangeEndpoint};
use tenure_core::webhook::{Disabled, Endpoint, EndpointSettings, EndpointState, Request, Verdict};
use tenure_core::{Event, Guarded, Outcome, Refusal, duration_text};
use tokio::time::{Instant, timeout};
use tracing::{info, warn};

use super::Sender;
use super::line::Heard;

/// How long the store may take for each of these.
const WAIT: Duration = Duration::from_secs(2);
/// An endpoint that others change at the same time is disabled at the third try or not at all.
const TRIES: u32 = 3;

impl Sender {
    pub(super) async fn after(&self, request: &Request<'_>, verdict: &Verdict) {
        let endpoint = request.endpoint;
        let Some(heard) = self.hear(request, verdict) else {
            return;
        };
        if let Some(health) = &heard.keep {
            let kept = self.store.webhooks().keep_health(&endpoint.id, health);
            if self.bounded("keep_health", kept).await.is_some()
                && let Some(line) = self.state().lines.get_mut(&endpoint.number)
            {
                line.kept = health.clone();
            }
        }
        self.tell(endpoint, &heard).await;
        if let Some(why) = heard.disable {
            self.disable(endpoint, why).await;
        }
        self.tell_dead(request, &verdict.outcome).await;
    }

    fn hear(&self, request: &Request<'_>, verdict: &Verdict) -> Option<Heard> {
        let mut state = self.state();
        let now = state.moment(Instant::now()).store;
        let line = state.lines.get_mut(&request.endpoint.number)?;
        Some(line.heard(request.delivery, verdict, now))
    }

    async fn tell(&self, endpoint: &Endpoint, heard: &Heard) {
        let id = endpoint.id.as_str();
        if let Some((length, why)) = &heard.paused {
            let length = duration_text(*length);
            warn!(endpoint = id, why, length, "left an endpoint alone");
            let facts = [("why", why.clone()), ("for", length)];
            self.enqueue(id, "tenure.endpoint.paused", &facts, None)
                .await;
        }
        if let Some(warning) = &heard.warning {
            let failing = duration_text(whole_seconds(warning.failing));
            let left = duration_text(whole_seconds(warning.left));
            warn!(
                endpoint = id,
                failing, left, "an endpoint fails and will be disabled if it goes on"
            );
            let facts = [("failing", failing), ("disabled_in", left)];
            self.enqueue(id, "tenure.endpoint.warning", &facts, None)
                .await;
        }
        if heard.is_back {
            info!(endpoint = id, "an endpoint is back");
            self.enqueue(id, "tenure.endpoint.recovered", &[], None)
                .await;
        }
    }

    /// Sends nothing to an endpoint any more, unless somebody has just changed where it is or
    /// whether anything is sent to it.
    async fn disable(&self, seen: &Endpoint, why: Disabled) {
        let webhooks = self.store.webhooks();
        let mut endpoint = seen.clone();
        for _ in 0..TRIES {
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
                Some(Guarded::Kept(endpoint)) => {
                    self.tell_disabled(endpoint, &why).await;
                    return;
                }
                Some(Guarded::Refused(Refusal::Changed)) => {}
                Some(Guarded::Refused(_)) | None => return,
            }
            let found = self
                .bounded("endpoint", webhooks.endpoint(&endpoint.id))
                .await;
            let Some(Some(found)) = found else {
                return;
            };
            let is_as_it_was = found.settings.url == seen.settings.url;
            if found.state != EndpointState::Enabled || !is_as_it_was {
                return;
            }
            endpoint = found;
        }
    }

    async fn tell_disabled(&self, endpoint: Endpoint, why: &Disabled) {
        let id = endpoint.id.clone();
        warn!(
            endpoint = id.as_str(),
            why = why.word(),
            "disabled an endpoint"
        );
        if let Some(line) = self.state().lines.get_mut(&endpoint.number) {
            line.endpoint = Arc::new(endpoint);
        }
        let facts = [("why", why.word().to_owned())];
        self.enqueue(id.as_str(), "tenure.endpoint.disabled", &facts, None)
            .await;
    }

    /// Tells of a delivery that is given up. One of our own events is not told of: that would be
    /// told of, too.
    async fn tell_dead(&self, request: &Request<'_>, outcome: &Outcome) {
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
        // The settle follows; should it have to be made once more, this is told once.
        let dedupe = format!(
            "tenure.delivery.dead/{}/{}",
            request.delivery, request.fence
        );
        let endpoint = request.endpoint.id.as_str();
        self.enqueue(endpoint, "tenure.delivery.dead", &facts, Some(&dedupe))
            .await;
    }

    /// Enqueues an event of our own, if an endpoint asks for it.
    async fn enqueue(
        &self,
        endpoint: &str,
        topic: &str,
        facts: &[(&str, String)],
        dedupe: Option<&str>,
    ) {
        let is_asked_for = {
            let state = self.state();
            state
                .lines
                .values()
                .any(|line| line.endpoint.is_owed(topic))
        };
        if !is_asked_for {
            return;
        }
        let mut payload: BTreeMap<&str, &str> = BTreeMap::new();
        payload.insert("endpoint", endpoint);
        payload.extend(facts.iter().map(|(name, text)| (*name, text.as_str())));
        let event = Event::new(topic, &payload);
        let event = event.and_then(|event| match dedupe {
            Some(key) => event.dedupe(key),
            None => Ok(event),
        });
        let Ok(event) = event else {
            // Names and words of our own always make an event.
            return;
        };
        let enqueued = self.store.enqueue(std::slice::from_ref(&event));
        let _told = self.bounded("enqueue", enqueued).await;
    }

    /// The answer of the store, if it comes in time.
    async fn bounded<T>(&self, verb: &'static str, answer: Answer<'_, T>) -> Option<T> {
        match timeout(WAIT, answer).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => warn!(verb, %error, "could not keep what an endpoint did"),
            Err(_) => warn!(verb, "could not keep what an endpoint did in time"),
        }
        None
    }
}

fn whole_seconds(length: Duration) -> Duration {
    Duration::from_secs(length.as_secs())
}

//! Team: the workers of one process, the relay and the sender beside it.

use std::sync::Arc;

use tenure::server::HealthCheck;
use tenure::webhook::{Caller, Endpoint};
use tenure::{Health, Tallied, Watch, Worker};

/// The workers of one process.
#[derive(Debug)]
pub(crate) struct Team {
    relay: Worker,
    sender: Option<Sending>,
}

/// The worker that sends, and what it calls with.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) worker: Worker,
    pub(crate) caller: Arc<dyn Caller>,
}

impl Team {
    pub(crate) fn new(relay: Worker, sender: Option<Sending>) -> Self {
        Self { relay, sender }
    }

    /// Waits until one of them fails, which none ever should.
    pub(crate) async fn failed(&self) -> String {
        let sender = async {
            match &self.sender {
                Some(sender) => sender.worker.failed().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            why = self.relay.failed() => why,
            why = sender => why,
        }
    }

    /// Stops both at the same time; answers what became of what they worked on.
    pub(crate) async fn stop(self) -> Worked {
        let sender = async {
            match self.sender {
                Some(sender) => Some(sender.worker.stop().await.tallied),
                None => None,
            }
        };
        let (relay, sent) = tokio::join!(self.relay.stop(), sender);
        Worked {
            items: relay.tallied,
            deliveries: sent,
        }
    }

    pub(crate) fn watch(&self) -> TeamWatch {
        TeamWatch {
            relay: self.relay.watch(),
            sender: self.sender.as_ref().map(|sender| sender.worker.watch()),
            caller: self
                .sender
                .as_ref()
                .map(|sender| Arc::clone(&sender.caller)),
        }
    }
}

/// What became of what a team worked on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worked {
    /// Events, or rows of a table.
    pub(crate) items: Tallied,
    /// What was owed to endpoints, if it sends.
    pub(crate) deliveries: Option<Tallied>,
}

/// Looks at a team and keeps nothing of it alive.
#[derive(Clone, Debug)]
pub(crate) struct TeamWatch {
    relay: Watch,
    sender: Option<Watch>,
    caller: Option<Arc<dyn Caller>>,
}

impl TeamWatch {
    /// Whether one of them has something in hand, or is being stopped.
    pub(crate) fn is_holding(&self) -> bool {
        let busy = |watch: &Watch| watch.health().is_none_or(|health| health.held > 0);
        busy(&self.relay) || self.sends() && self.sender.as_ref().is_some_and(busy)
    }

    /// Whether there is one that sends.
    pub(crate) fn sends(&self) -> bool {
        self.sender.is_some()
    }

    /// Whether this process can call an endpoint.
    pub(crate) fn can_call(&self, endpoint: &Endpoint) -> bool {
        let refuses = |caller: &Arc<dyn Caller>| caller.refuses(endpoint).is_some();
        self.caller.as_ref().is_some_and(|caller| !refuses(caller))
    }

    /// What they say of themselves, in the server's words.
    pub(crate) fn health(&self) -> Vec<HealthCheck> {
        let mut checks = checks("", self.relay.health());
        if let Some(sender) = &self.sender {
            checks.extend(self::checks("sender ", sender.health()));
        }
        checks
    }
}

fn checks(whose: &str, health: Option<Health>) -> Vec<HealthCheck> {
    let Some(health) = health else {
        return vec![HealthCheck {
            name: format!("{whose}worker"),
            problem: Some("it is stopping".to_owned()),
            last_seen: None,
        }];
    };
    let checks = health.checks.into_iter();
    checks
        .map(|check| HealthCheck {
            name: format!("{whose}{}", check.name),
            problem: check.problem,
            last_seen: check.last,
        })
        .collect()
}

//! The workers of one process: the relay and, if the process sends, the sender.

use std::sync::Arc;

use tenure::Worker;
use tenure::operate::{Health, OutcomeCounts, Watch};
use tenure::publish::{ExecLines, TopicSet};
use tenure::server::HealthCheck;
use tenure::webhook::{Caller, Endpoint};

use crate::spans::Spans;

#[derive(Debug)]
pub(crate) struct Team {
    relay: Worker,
    sender: Option<Sending>,
    /// Publishers of the relay whose processes stay.
    processes: Vec<ExecLines>,
    spans: Spans,
}

/// The worker that sends, and its caller.
#[derive(Debug)]
pub(crate) struct Sending {
    pub(crate) worker: Worker,
    pub(crate) caller: Arc<dyn Caller>,
}

impl Team {
    pub(crate) fn new(
        relay: Worker,
        sender: Option<Sending>,
        processes: Vec<ExecLines>,
        spans: Spans,
    ) -> Self {
        Self {
            relay,
            sender,
            processes,
            spans,
        }
    }

    /// Waits until one of the workers fails, which is a bug; returns the reason.
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

    /// Stops both workers concurrently, then ends the processes that stayed and the export of
    /// spans, and returns the outcomes of the work.
    pub(crate) async fn stop(self) -> TeamOutcomes {
        let sender = async {
            match self.sender {
                Some(sender) => Some(sender.worker.stop().await.outcomes),
                None => None,
            }
        };
        let relay = async {
            let report = self.relay.stop().await;
            for processes in &self.processes {
                processes.stop().await;
            }
            report
        };
        let (relay, sent) = tokio::join!(relay, sender);
        self.spans.stop().await;
        TeamOutcomes {
            items: relay.outcomes,
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

/// Outcomes of everything a team worked on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TeamOutcomes {
    /// Events, or rows of a table.
    pub(crate) items: OutcomeCounts,
    /// `None` without a sender.
    pub(crate) deliveries: Option<OutcomeCounts>,
}

/// A weak view of a team: it keeps no worker alive.
#[derive(Clone, Debug)]
pub(crate) struct TeamWatch {
    relay: Watch,
    sender: Option<Watch>,
    caller: Option<Arc<dyn Caller>>,
}

impl TeamWatch {
    /// Returns true if a worker claims or holds something, or is stopping.
    pub(crate) fn is_busy(&self) -> bool {
        let is_busy = |watch: &Watch| watch.health().is_none_or(|health| !health.is_idle);
        is_busy(&self.relay) || self.sender.as_ref().is_some_and(is_busy)
    }

    /// Topics that the worker on events claims.
    pub(crate) fn topics(&self) -> TopicSet {
        let health = self.relay.health();
        health.map_or_else(TopicSet::any, |health| health.topics)
    }

    /// Returns true if the team has a sender.
    pub(crate) fn sends(&self) -> bool {
        self.sender.is_some()
    }

    pub(crate) fn can_call(&self, endpoint: &Endpoint) -> bool {
        let refuses = |caller: &Arc<dyn Caller>| caller.refuses(endpoint).is_some();
        self.caller.as_ref().is_some_and(|caller| !refuses(caller))
    }

    /// The health checks of both, as the server serves them.
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

//! `Inline`: runs a handler on one item in the caller's own task, for tests of handlers. It decides
//! outcomes as a worker does.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures_util::FutureExt as _;
use tenure_core::{Item, Lease, Outcome, RetryRules, Settings, TopicSet};
use tokio::time::Instant;

use crate::executor::{answered, fanned_out};
use crate::handler::{Context, Failed, Handler};

/// Fixed random number. It makes each backoff as long as possible, so that a test knows when a
/// retry is due.
const CHANCE: f64 = 1.0;

/// A handler, and the settings that turn its answers into outcomes.
#[derive(Clone, Debug)]
pub struct Inline {
    handler: Arc<dyn Handler>,
    settings: Settings,
}

/// Result of handling an item.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Handled {
    /// Outcome with which the item is settled.
    pub outcome: Outcome,
    /// Topic for the fan-out of the item once it is done; `None`: no fan-out.
    pub fan_out: Option<String>,
}

impl Inline {
    /// Creates a runner for this handler with these settings.
    pub fn new(handler: Arc<dyn Handler>, settings: Settings) -> Self {
        Self { handler, settings }
    }

    /// Topics that the handler takes.
    pub async fn topics(&self) -> TopicSet {
        self.handler.topics().await
    }

    /// The settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs the handler on an item that is held under this lease and whose queue has these retry
    /// rules. A panic is a failure.
    pub async fn handle(&self, item: Item, lease: &Lease, queue: RetryRules) -> Handled {
        let rules = self.handler.rules(&item);
        let max_hold = self.settings.max_hold();
        let max_hold = self
            .handler
            .max_hold(&item)
            .map_or(max_hold, |own| own.max(max_hold));
        let failures = item.counters.failures;
        let fan_out = fanned_out(self.handler.as_ref(), &item);
        let proof = (lease.token.clone(), lease.fence);
        let cx = Context::new(&item, proof, Instant::now() + max_hold);
        let work = AssertUnwindSafe(async { self.handler.handle(item, cx).await });
        let outcome = answered(work.catch_unwind().await).unwrap_or_else(|failure| {
            let failed = Failed {
                failures,
                endpoint: None,
                failure: &failure,
                retry: rules.retry.or(queue),
                chance: CHANCE,
            };
            failed.judge(self.handler.as_ref(), self.settings.retry_policy())
        });
        Handled { outcome, fan_out }
    }
}

//! `TestWorker`: claims, handles and settles one item after another, by the clock of the test.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{Claim, Reap, Rest, Settle, StoreError};
use tenure_core::{Clock as _, Event, Held, Outcome, QueueName, Settings, Timestamp};
use tenure_engine::{Handled, Handler, Inline};
use tenure_store::claim_in_turn;
use tenure_store::memory::SystemClock;

use crate::tenure::Tenure;

/// Maximum number of items per `work_until_idle`: a handler may enqueue its own topic forever.
const ITEMS_MAX: u32 = 10_000;
/// Maximum number of lapsed leases per reap.
const REAPED_MAX: u32 = 10_000;

/// A worker that runs only when the test steps it, created by
/// [`WorkerBuilder::test`](crate::WorkerBuilder::test) from the handlers of a real worker.
///
/// Its clock is the system's plus the time added by [`advance`](Self::advance), and is passed to
/// the store with every claim, settle and reap. A retry is due after the longest delay of its
/// backoff: 1 s after the first failure, then 2 s, 4 s, up to 12 hours, unless the handler, the
/// queue or the settings say otherwise. An item whose lease has lapsed is due at once.
#[derive(Debug)]
pub struct TestWorker {
    tenure: Tenure,
    inline: Inline,
    queues: Vec<QueueName>,
    ahead: Duration,
    fault: Option<Fault>,
    turn: u64,
}

/// A fault that occurs once, with the next item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The process dies after the handler has returned and before the settle. The item is available
    /// again once its lease has lapsed.
    CrashBeforeSettle,
    /// The handler takes longer than its lease: another worker works on the item, and the settle of
    /// the first one is refused. The clock moves past the end of the term.
    LeaseStolen,
    /// The answer to the claim is lost: the worker releases the items by their token and claims
    /// again.
    ClaimAnswerLost,
    /// The settle takes effect, but its answer is lost: the worker settles again.
    SettleAnswerLost,
}

/// Numbers of items by their outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Worked {
    /// Calls of handlers.
    pub handled: u32,
    /// Items that are done.
    pub done: u32,
    /// Items that failed and will be retried.
    pub retried: u32,
    /// Items that are dead.
    pub dead: u32,
    /// Items that were released.
    pub released: u32,
    /// Settles that were refused, because another worker held the item.
    pub refused: u32,
    /// Items whose worker died before the settle.
    pub crashed: u32,
}

impl TestWorker {
    pub(crate) fn new(
        tenure: Tenure,
        handler: Arc<dyn Handler>,
        settings: Settings,
        queues: Vec<QueueName>,
    ) -> Self {
        Self {
            tenure,
            inline: Inline::new(handler, settings),
            queues,
            ahead: Duration::ZERO,
            fault: None,
            turn: 0,
        }
    }

    /// Time of the test's clock.
    pub fn now(&self) -> Timestamp {
        SystemClock.now().after(self.ahead)
    }

    /// Moves the clock forward, without working on anything.
    pub fn advance(&mut self, span: Duration) {
        self.ahead += span;
    }

    /// Causes this fault with the next item.
    pub fn next(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// Works until nothing is due by the test's clock, including events enqueued meanwhile.
    ///
    /// # Errors
    /// The store failed.
    ///
    /// # Panics
    /// Over 10,000 items were worked on: a handler probably enqueues its own topic.
    pub async fn work_until_idle(&mut self) -> Result<Worked, StoreError> {
        let mut worked = Worked::default();
        while self.step(&mut worked).await? {
            assert!(
                worked.handled < ITEMS_MAX,
                "{ITEMS_MAX} items were worked on, and there are more: does a handler enqueue its \
                 own topic?"
            );
        }
        Ok(worked)
    }

    /// Works on the next due item, if there is one.
    ///
    /// # Errors
    /// The store failed.
    pub async fn work_one(&mut self) -> Result<Worked, StoreError> {
        let mut worked = Worked::default();
        self.step(&mut worked).await?;
        Ok(worked)
    }

    async fn step(&mut self, worked: &mut Worked) -> Result<bool, StoreError> {
        self.reap().await?;
        let Some(held) = self.claim().await? else {
            return Ok(false);
        };
        let fault = self.fault.take();
        if fault == Some(Fault::ClaimAnswerLost) {
            let release = Settle::new(held.lease.token.clone()).rest(Rest::Release);
            drop(self.tenure.settle(&release.at(self.now())).await?);
            return Ok(true);
        }
        let Some(handled) = self.handle(&held, worked).await? else {
            return Ok(false);
        };
        match fault {
            Some(Fault::CrashBeforeSettle) => worked.crashed += 1,
            Some(Fault::LeaseStolen) => self.steal(&held, handled, worked).await?,
            Some(Fault::SettleAnswerLost) => {
                self.settle(&held, &handled, &mut Worked::default()).await?;
                self.settle(&held, &handled, worked).await?;
            }
            Some(Fault::ClaimAnswerLost) | None => self.settle(&held, &handled, worked).await?,
        }
        Ok(true)
    }

    /// Lets another worker take the item over before the first one settles.
    async fn steal(
        &mut self,
        held: &Held,
        handled: Handled,
        worked: &mut Worked,
    ) -> Result<(), StoreError> {
        self.advance(self.inline.settings().term.length() + Duration::from_secs(1));
        self.reap().await?;
        let next = self.claim().await?;
        self.settle(held, &handled, worked).await?;
        if let Some(next) = next
            && let Some(handled) = self.handle(&next, worked).await?
        {
            self.settle(&next, &handled, worked).await?;
        }
        Ok(())
    }

    async fn handle(
        &self,
        held: &Held,
        worked: &mut Worked,
    ) -> Result<Option<Handled>, StoreError> {
        let Some(item) = held.items.first().cloned() else {
            return Ok(None);
        };
        worked.handled += 1;
        let queues = self.tenure.queues().await?;
        let queue = item.content.event().map(Event::queue);
        let queue = queues.iter().find(|other| Some(&other.name) == queue);
        let rules = queue.map(|queue| queue.rules.retry).unwrap_or_default();
        Ok(Some(self.inline.handle(item, &held.lease, rules).await))
    }

    async fn claim(&mut self) -> Result<Option<Held>, StoreError> {
        self.turn += 1;
        let mut queues = self.queues.clone();
        if queues.is_empty() {
            let all = self.tenure.queues().await?.into_iter();
            queues = all.map(|queue| queue.name).collect();
        }
        let topics = self.inline.topics().await;
        let now = self.now();
        let term = self.inline.settings().term;
        let ask = || {
            let claim = Claim::new(self.tenure.token(), 1).term(term);
            claim.queues(queues.clone()).topics(topics.clone()).at(now)
        };
        claim_in_turn(self.tenure.store(), self.turn, ask).await
    }

    /// Settles all items of a lease like its first one, and counts the outcome.
    async fn settle(
        &self,
        held: &Held,
        handled: &Handled,
        worked: &mut Worked,
    ) -> Result<(), StoreError> {
        let mut settle = Settle::new(held.lease.token.clone());
        for id in held.ids() {
            settle = settle.item(id, handled.outcome.clone());
            if let (Outcome::Done, Some(topic)) = (&handled.outcome, &handled.fan_out) {
                settle.fan_out.push((id, topic.clone()));
            }
        }
        settle.on_dead = self.inline.settings().on_dead;
        let settlement = self.tenure.settle(&settle.at(self.now())).await?;
        let count = match &handled.outcome {
            _ if settlement.refused().next().is_some() => &mut worked.refused,
            Outcome::Done => &mut worked.done,
            Outcome::Retry { .. } => &mut worked.retried,
            Outcome::Dead { .. } => &mut worked.dead,
            Outcome::Release { .. } => &mut worked.released,
        };
        *count += 1;
        Ok(())
    }

    /// Ends lapsed leases. Their items are due at once: a real reaper would have come earlier.
    async fn reap(&self) -> Result<(), StoreError> {
        let policy = self.inline.settings().lapse_policy().without_delays();
        let reap = Reap::new(REAPED_MAX, policy).at(self.now());
        self.tenure.reap(&reap).await.map(drop)
    }
}

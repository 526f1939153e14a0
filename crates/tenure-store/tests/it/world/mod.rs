//! A world: a store that tests can fill and dump completely. The checks are written once against
//! this trait, and each store implements it.
//!
//! Tests always pass the time. It starts at [`T0`], far in the future, so that everything written
//! by a database's own clock is due.

mod memory;
mod operator;
mod postgres;
mod sqlite;

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tenure_core::store::{
    Bury, Claim, LeaseStore, Operate, Reap, Reaped, Renew, Renewed, Replay, Rest, Settle,
    Settlement, Store,
};
use tenure_core::{
    Counters, Guarded, Held, ItemId, LapsePolicy, Outcome, Record, State, Term, Timestamp, Token,
};

pub(crate) use memory::{memory, planted, ranked_events};
pub(crate) use operator::{Operator, mismatch, no_lease, operator, out_of_order};
pub(crate) use postgres::{
    postgres_on, postgres_outbox, postgres_planted, postgres_processing, postgres_queue,
    postgres_sync_jobs, postgres_webhook,
};
pub(crate) use sqlite::{
    sqlite_on, sqlite_outbox, sqlite_processing, sqlite_queue, sqlite_sync_jobs, sqlite_webhook,
};
pub(crate) use tenure_core::testing::token;

/// The start of time in the tests: 2100-01-01.
pub(crate) const T0: Timestamp = Timestamp::from_micros(4_102_444_800_000_000);
/// The resolution of a store's time.
pub(crate) const TICK: Duration = Duration::from_micros(1);
/// The default term of a claim: 30 s.
pub(crate) const TERM: Duration = Duration::from_secs(30);

/// A token that no other claim of this process has.
pub(crate) fn fresh(worker: &str) -> Token {
    static CLAIMS: AtomicU64 = AtomicU64::new(1000);
    token(worker, CLAIMS.fetch_add(1, Ordering::Relaxed))
}

/// This many seconds after the start.
pub(crate) fn at(seconds: u64) -> Timestamp {
    T0.after(Duration::from_secs(seconds))
}

/// A pending answer of a world.
pub(crate) type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store that can be filled and dumped.
pub(crate) trait World: Send + Sync {
    fn lease(&self) -> &dyn LeaseStore;

    /// The operators' part of the store.
    fn operate(&self) -> &dyn Operate;

    /// The whole store, in the queue layout; `None` in the row layout.
    fn outbox(&self) -> Option<&dyn Store>;

    /// Adds an item per rank, with the payload `{"rank":…}`; an item with a smaller rank is older.
    fn add_ranked<'a>(&'a self, ranks: &'a [u32]) -> Soon<'a, Vec<ItemId>>;

    /// Returns true if a recovering claim makes lapsed items available first, without a delay.
    fn recovers_first(&self) -> bool {
        false
    }

    /// Every byte of every table.
    fn dump(&self) -> Soon<'_, String>;
}

/// A policy that makes lapsed items available at once.
pub(crate) fn at_once() -> LapsePolicy {
    LapsePolicy::new(5, vec![Duration::ZERO]).expect("the policy is well formed")
}

/// A retry after this many seconds.
pub(crate) fn retry(seconds: u64) -> Outcome {
    Outcome::Retry {
        after: Duration::from_secs(seconds),
        error: "503".into(),
    }
}

pub(crate) fn dead() -> Outcome {
    Outcome::Dead {
        reason: "rejected".into(),
        error: "no such address".into(),
    }
}

/// One outcome of each kind that a holder can report.
pub(crate) fn every_outcome() -> [Outcome; 4] {
    [Outcome::Done, retry(60), dead(), Outcome::RELEASE]
}

/// A claim at `now` that leaves lapsed leases to the reaper.
pub(crate) fn ask(token: &Token, limit: u32, now: Timestamp) -> Claim {
    Claim::new(token.clone(), limit).recovery(None).at(now)
}

impl dyn World + '_ {
    /// Adds `n` items, one after the other.
    pub(crate) async fn add(&self, n: u32) -> Vec<ItemId> {
        let ranks: Vec<u32> = (0..n).collect();
        self.add_ranked(&ranks).await
    }

    pub(crate) async fn try_claim(&self, claim: Claim) -> Option<Held> {
        self.lease().claim(&claim).await.expect("claim")
    }

    /// Claims up to `limit` items; there must be some.
    pub(crate) async fn claim(&self, token: &Token, limit: u32, now: Timestamp) -> Held {
        let held = self.try_claim(ask(token, limit, now)).await;
        held.expect("there are items to claim")
    }

    pub(crate) async fn settle(&self, settle: Settle) -> Settlement {
        self.lease().settle(&settle).await.expect("settle")
    }

    /// Settles one item; returns its answer.
    pub(crate) async fn settle_one(
        &self,
        token: &Token,
        id: ItemId,
        outcome: Outcome,
        now: Timestamp,
    ) -> Guarded {
        let settle = Settle::new(token.clone()).item(id, outcome).at(now);
        let answer = self.settle(settle).await;
        assert_eq!(answer.items.len(), 1, "one item was named");
        answer.items[0].1
    }

    /// Releases all items of a token; returns their number.
    pub(crate) async fn release(&self, token: &Token, now: Timestamp) -> u32 {
        let settle = Settle::new(token.clone()).rest(Rest::Release).at(now);
        self.settle(settle).await.rest
    }

    /// Renews one lease for the default term.
    pub(crate) async fn renew(&self, token: &Token, now: Timestamp) -> Guarded<Renewed> {
        let renew = Renew::new(vec![token.clone()], Term::STANDARD).at(now);
        let mut answers = self.lease().renew(&renew).await.expect("renew");
        assert_eq!(answers.len(), 1, "one token was named");
        let (of, answer) = answers.remove(0);
        assert_eq!(of, *token, "the answer names its token");
        answer
    }

    pub(crate) async fn reap(&self, reap: Reap) -> Vec<Reaped> {
        self.lease().reap(&reap).await.expect("reap")
    }

    /// Reaps with a policy that makes items available at once.
    pub(crate) async fn reap_at(&self, now: Timestamp) -> Vec<Reaped> {
        self.reap(Reap::new(1000, at_once()).at(now)).await
    }

    pub(crate) async fn replay(&self, id: ItemId, now: Timestamp) -> Guarded {
        let replay = Replay {
            ids: vec![id],
            now: Some(now),
        };
        let answers = self.operate().replay(&replay).await.expect("replay");
        assert_eq!(answers.len(), 1, "one item was named");
        assert_eq!(answers[0].0, id, "the answer names its item");
        answers[0].1
    }

    /// Buries an item under the `n`-th token of the operator.
    pub(crate) async fn bury(&self, id: ItemId, n: u64, now: Timestamp) -> Guarded {
        let bury = Bury {
            id,
            token: token("operator", n),
            reason: "the customer is gone".into(),
            now: Some(now),
        };
        self.operate().bury(&bury).await.expect("bury")
    }

    pub(crate) async fn record(&self, id: ItemId) -> Record {
        let mut records = self.operate().find(&[id]).await.expect("find");
        assert_eq!(records.len(), 1, "item {id} is known");
        records.remove(0)
    }

    pub(crate) async fn state(&self, id: ItemId) -> State {
        self.record(id).await.state
    }

    pub(crate) async fn counters(&self, id: ItemId) -> Counters {
        self.record(id).await.counters
    }

    /// Brings a fresh item into this state, through the first claim of `holder` at [`T0`].
    pub(crate) async fn item_in(&self, state: State) -> ItemId {
        self.item_by(&token("holder", 1), state).await
    }

    /// Brings a fresh item into this state, through a claim at [`T0`] with this token. No other
    /// item may be pending.
    pub(crate) async fn item_by(&self, holder: &Token, state: State) -> ItemId {
        let id = self.add(1).await[0];
        if state == State::Pending {
            return id;
        }
        assert_eq!(self.claim(holder, 1, T0).await.ids(), [id]);
        let outcome = match state {
            State::Pending | State::Claimed => return id,
            State::Done => Outcome::Done,
            State::Dead => dead(),
        };
        let answer = self.settle_one(holder, id, outcome, at(1)).await;
        assert_eq!(answer, Guarded::Accepted(()));
        id
    }

    /// Adds an item that is held since [`T0`] under its own token.
    pub(crate) async fn item_in_fresh_lease(&self) -> (Token, ItemId) {
        let holder = fresh("holder");
        let id = self.item_by(&holder, State::Claimed).await;
        (holder, id)
    }

    /// Claims all available items, together and one by one; returns the ids in order.
    pub(crate) async fn drain(&self, worker: &str, now: Timestamp) -> Vec<ItemId> {
        let mut ids = Vec::new();
        loop {
            let together = self.try_claim(ask(&fresh(worker), 100, now)).await;
            let held = match together {
                Some(held) => Some(held),
                None => self.try_claim(ask(&fresh(worker), 1, now).alone()).await,
            };
            match held {
                Some(held) => ids.extend(held.ids()),
                None => return ids,
            }
        }
    }

    /// Settles all available items as done, before the next step.
    pub(crate) async fn tidy(&self, now: Timestamp) {
        loop {
            let holder = fresh("tidy");
            let mut claim = ask(&holder, 100, now);
            if self.try_claim(claim.clone()).await.is_none() {
                claim = claim.alone();
                if self.try_claim(claim).await.is_none() {
                    return;
                }
            }
            let settle = Settle::new(holder).rest(Rest::Done).at(now);
            assert!(self.settle(settle).await.rest > 0);
        }
    }
}

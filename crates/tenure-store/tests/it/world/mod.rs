//! A world: a store with a way to fill it and a way to see every byte that it keeps. The checks
//! are written once against this trait; each backend makes one.
//!
//! Time is always given. It starts at [`T0`], far in the future, so that whatever a database's own
//! clock wrote at the start is due.

mod desk;
mod memory;
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

pub(crate) use desk::{Desk, desk, mismatch, no_lease, out_of_order};
pub(crate) use memory::{memory, planted, ranked_events};
pub(crate) use postgres::{
    postgres_on, postgres_outbox, postgres_planted, postgres_processing, postgres_queue,
    postgres_sync_checkpoints, postgres_sync_jobs, postgres_webhook,
};
pub(crate) use sqlite::{
    sqlite_on, sqlite_outbox, sqlite_processing, sqlite_queue, sqlite_sync_checkpoints,
    sqlite_sync_jobs, sqlite_webhook,
};
pub(crate) use tenure_core::testing::token;

/// The start of time in the tests: 2100-01-01.
pub(crate) const T0: Timestamp = Timestamp::from_micros(4_102_444_800_000_000);
/// The shortest span that a store can tell apart.
pub(crate) const TICK: Duration = Duration::from_micros(1);
/// The term of a claim unless a test says otherwise: 30 s.
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

/// The answer of a world, on its way.
pub(crate) type Soon<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A store, filled and watched.
pub(crate) trait World: Send + Sync {
    /// The verbs.
    fn lease(&self) -> &dyn LeaseStore;

    /// The operator's verbs.
    fn operate(&self) -> &dyn Operate;

    /// The whole store, in the queue layout; `None` in the row layout.
    fn outbox(&self) -> Option<&dyn Store>;

    /// Adds an item per rank; a smaller rank is older. Its payload is `{"rank":…}`.
    fn add_ranked<'a>(&'a self, ranks: &'a [u32]) -> Soon<'a, Vec<ItemId>>;

    /// Whether a claim that recovers puts back what has lapsed before it looks, without a delay.
    fn recovers_first(&self) -> bool {
        false
    }

    /// Every byte of every table.
    fn dump(&self) -> Soon<'_, String>;
}

/// A policy that puts lapsed items back at once.
pub(crate) fn at_once() -> LapsePolicy {
    LapsePolicy::new(5, vec![Duration::ZERO]).expect("the policy is well formed")
}

/// An outcome that tries again after this many seconds.
pub(crate) fn retry(seconds: u64) -> Outcome {
    Outcome::Retry {
        after: Duration::from_secs(seconds),
        error: "503".into(),
    }
}

/// An outcome that gives up.
pub(crate) fn dead() -> Outcome {
    Outcome::Dead {
        reason: "rejected".into(),
        error: "no such address".into(),
    }
}

/// One outcome of each word that a holder can say.
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

    /// Settles one item; the answer for it.
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

    /// Gives back all that is held under a token; how many items that were.
    pub(crate) async fn release(&self, token: &Token, now: Timestamp) -> u32 {
        let settle = Settle::new(token.clone()).rest(Rest::Release).at(now);
        self.settle(settle).await.rest
    }

    /// Renews one lease for the usual term.
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

    /// Reaps as the reaper does, with a policy that puts items back at once.
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

    /// A fresh item in this state, brought there by the first claim of `holder` at [`T0`].
    pub(crate) async fn item_in(&self, state: State) -> ItemId {
        self.item_by(&token("holder", 1), state).await
    }

    /// A fresh item in this state, brought there by a claim at [`T0`] under this token. Nothing
    /// else may be waiting.
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
        assert_eq!(answer, Guarded::Kept(()));
        id
    }

    /// A fresh item, held since [`T0`] under a token of its own.
    pub(crate) async fn item_in_fresh_lease(&self) -> (Token, ItemId) {
        let holder = fresh("holder");
        let id = self.item_by(&holder, State::Claimed).await;
        (holder, id)
    }

    /// Claims all that can be claimed, together and one by one; the ids in the order given out.
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

    /// Gets all that can be claimed done, out of the way of what follows.
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

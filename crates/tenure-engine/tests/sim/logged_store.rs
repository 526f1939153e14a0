//! The store of a world; logs every effect at the moment it happens.

use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use tenure_core::store::{
    Answer, Bury, Claim, ClusterSettings, Enqueued, Intake as _, KeyFilter, KeyState, Keys as _,
    LeaseStore as _, Operate as _, Reap, Reaped, Renew, Renewed, Replay, Settle, Settlement, Skip,
    StoreError,
};
use tenure_core::{Content, Event, Guarded, Held, ItemId, OutcomeKind, StoredEvent, Token};
use tenure_store::memory::MemoryStore;

use crate::log::{Fact, Log, Sort};

/// Planted faults of the network, the clock or the handlers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Renewals that the store refused are answered as accepted.
    RenewalsForged,
    /// Renewals are answered as accepted and never reach the store.
    RenewalsDropped,
    /// Settles are answered as accepted and never reach the store.
    SettlesDropped,
    /// Every seventh event is accepted and discarded.
    EventsDropped,
    /// The store's clock is three times as fast as the processes'.
    FastClock,
    /// Reaps end nothing.
    ReapsDropped,
    /// Claims omit the keys, so the engine starts all items of a run at once.
    KeysHidden,
    /// Releases are answered as accepted and never reach the store.
    ReleasesDropped,
    /// Failures are reported as done, so the engine starts the next item of the key.
    FailuresHidden,
}

/// The store of a world.
#[derive(Debug)]
pub(crate) struct LoggedStore {
    pub(crate) inner: MemoryStore,
    pub(crate) log: Arc<Log>,
    pub(crate) lie: Option<Lie>,
    cluster: Mutex<ClusterSettings>,
}

type Renewals = Vec<(Token, Guarded<Renewed>)>;

/// Returns the answer of the memory store, which never waits.
pub(crate) fn at_once<T>(answer: Answer<'_, T>) -> Result<T, StoreError> {
    answer.now_or_never().expect("the memory store never waits")
}

impl LoggedStore {
    pub(crate) fn new(inner: MemoryStore, log: Arc<Log>, lie: Option<Lie>) -> Self {
        Self {
            inner,
            log,
            lie,
            cluster: Mutex::default(),
        }
    }

    pub(crate) fn claim(
        &self,
        worker: &Arc<str>,
        claim: &Claim,
    ) -> Result<Option<Held>, StoreError> {
        let held = at_once(self.inner.claim(claim))?;
        self.log_claim(worker, claim, held.as_ref());
        Ok(held.map(|held| self.answer_of(held)))
    }

    /// Returns the answer of a claim as the engine receives it.
    fn answer_of(&self, mut held: Held) -> Held {
        if self.lie == Some(Lie::KeysHidden) {
            for item in &mut held.items {
                if let Content::Event(event) = &item.content {
                    item.content = Content::Event(without_key(event));
                }
            }
        }
        held
    }

    fn log_claim(&self, worker: &Arc<str>, claim: &Claim, held: Option<&Held>) {
        if let Some(held) = held {
            self.log.add(Fact::Claimed {
                worker: Arc::clone(worker),
                token: held.lease.token.clone(),
                fence: held.lease.fence,
                until: held.lease.until,
                limit: claim.most(),
                ids: held.ids(),
            });
        }
    }

    pub(crate) fn renew(&self, renew: &Renew) -> Result<Renewals, StoreError> {
        if self.lie == Some(Lie::RenewalsDropped) {
            return Ok(Self::forged_renewals(renew));
        }
        let answers = at_once(self.inner.renew(renew))?;
        for (token, answer) in &answers {
            self.log.add(Fact::Renewed {
                token: token.clone(),
                term: renew.term.length(),
                answer: match answer {
                    Guarded::Accepted(renewed) => Guarded::Accepted(renewed.until),
                    Guarded::Refused(why) => Guarded::Refused(*why),
                },
            });
        }
        if self.lie == Some(Lie::RenewalsForged) {
            return Ok(Self::forged_renewals(renew));
        }
        Ok(answers)
    }

    /// Returns answers that accept every renewal.
    fn forged_renewals(renew: &Renew) -> Renewals {
        let renewed = Renewed {
            until: tenure_core::Timestamp::from_micros(i64::MAX),
            fence: tenure_core::Fence::new(0),
            ids: (1..1000).map(ItemId::new).collect(),
        };
        let tokens = renew.tokens.iter().cloned();
        tokens
            .map(|token| (token, Guarded::Accepted(renewed.clone())))
            .collect()
    }

    pub(crate) fn settle(&self, settle: &Settle) -> Result<Settlement, StoreError> {
        let mut outcomes = settle.items.iter().map(|(_, outcome)| outcome.kind());
        let is_release = outcomes.all(|kind| kind == OutcomeKind::Release);
        let is_dropped = match self.lie {
            Some(Lie::SettlesDropped) => !settle.items.is_empty(),
            Some(Lie::ReleasesDropped) => is_release,
            _ => false,
        };
        if is_dropped {
            let ids = settle.items.iter().map(|(id, _)| *id);
            return Ok(Settlement {
                items: ids.map(|id| (id, Guarded::Accepted(()))).collect(),
                ..Settlement::default()
            });
        }
        let settlement = at_once(self.inner.settle(settle))?;
        self.log_settle(settle, &settlement);
        Ok(settlement)
    }

    fn log_settle(&self, settle: &Settle, settlement: &Settlement) {
        let settled = settle.items.iter().cloned().zip(&settlement.items);
        self.log.add(Fact::Settled {
            token: settle.token.clone(),
            items: settled
                .map(|((id, outcome), (_, answer))| (id, outcome, *answer))
                .collect(),
            rest: settle.rest,
            ended: settlement.rest,
            on_dead: settle.on_dead,
        });
    }

    pub(crate) fn settle_and_claim(
        &self,
        worker: &Arc<str>,
        settle: &Settle,
        claim: &Claim,
    ) -> Result<(Settlement, Option<Held>), StoreError> {
        if self.lie == Some(Lie::SettlesDropped) {
            return Ok((self.settle(settle)?, self.claim(worker, claim)?));
        }
        let (settlement, held) = at_once(self.inner.settle_and_claim(settle, claim))?;
        self.log_settle(settle, &settlement);
        self.log_claim(worker, claim, held.as_ref());
        Ok((settlement, held.map(|held| self.answer_of(held))))
    }

    pub(crate) fn reap(&self, reap: &Reap) -> Result<Vec<Reaped>, StoreError> {
        if self.lie == Some(Lie::ReapsDropped) {
            return Ok(Vec::new());
        }
        let reaped = at_once(self.inner.reap(reap))?;
        if !reaped.is_empty() {
            self.log.add(Fact::Reaped(reaped.clone()));
        }
        Ok(reaped)
    }

    pub(crate) fn enqueue(&self, event: Event, nth: u32) {
        let sort = Sort::of(event.topic());
        let key: Option<Arc<str>> = event.key().map(Into::into);
        let now = self.log.lines().last().map(|line| line.now);
        if self.lie == Some(Lie::EventsDropped) && nth % 7 == 6 {
            // An id that the store never uses.
            let id = ItemId::new(i64::from(nth) + 1_000_000);
            let available_at = now.unwrap_or(tenure_core::Timestamp::from_micros(0));
            return self.log.add(Fact::Enqueued {
                id,
                sort,
                key,
                available_at,
            });
        }
        let answers = at_once(self.inner.enqueue(&[event])).expect("the queue is there");
        let ids: Vec<ItemId> = answers.into_iter().map(Enqueued::id).collect();
        for record in at_once(self.inner.find(&ids)).expect("it answers") {
            let available_at = record.available_at.unwrap_or(record.created_at);
            self.log.add(Fact::Enqueued {
                id: record.id,
                sort,
                key: key.clone(),
                available_at,
            });
        }
    }

    pub(crate) fn bury(&self, id: ItemId, token: &Token) {
        let bury = Bury::new(id, token.clone(), "planted bury");
        let answer = at_once(self.inner.bury(&bury)).expect("it answers");
        self.log.add(Fact::Buried(id, token.clone(), answer));
    }

    pub(crate) fn replay(&self, id: ItemId) {
        let replay = Replay::new(vec![id]);
        for (id, answer) in at_once(self.inner.replay(&replay)).expect("it answers") {
            self.log.add(Fact::Replayed(id, answer));
        }
    }

    /// Skips the dead heads that block their keys.
    pub(crate) fn skip_blocked(&self, token: impl Fn() -> Token) {
        let stuck = at_once(self.inner.keys(KeyFilter::Stuck, 1000)).expect("it answers");
        let blocked = stuck.into_iter();
        for key in blocked.filter(|key| key.state == KeyState::Blocked) {
            let skip = Skip::new(key.name.clone(), token(), "planted skip");
            let answer = at_once(self.inner.skip(&skip)).expect("it answers");
            self.log.add(Fact::Skipped(key.name.into(), answer));
        }
    }

    /// Settings of the cluster.
    pub(crate) fn cluster(&self) -> ClusterSettings {
        let cluster = self.cluster.lock();
        cluster.unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn tune(&self, values: Vec<(String, String)>) {
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        cluster.version += 1;
        cluster.values = values;
    }
}

/// A copy without the key.
fn without_key(event: &Event) -> Event {
    Event::from(StoredEvent {
        topic: event.topic().to_owned(),
        payload: event.payload().to_owned(),
        encoding: event.encoding(),
        event_id: event.event_id().expect("a stored event has one"),
        queue: event.queue().clone(),
        priority: event.priority(),
        ordering_key: None,
        headers: event.headers().clone(),
    })
}

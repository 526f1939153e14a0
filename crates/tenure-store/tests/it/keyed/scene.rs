//! Scenes: one key with its items in every state, the operations on them, and the final state.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tenure_core::store::{
    Bury, Claim, Enqueued, KeyState, Pause, Reap, Renew, Replay, Rest, Settle, Skip, Store,
    StoreError,
};
use tenure_core::{
    Guarded, ItemId, NewEvent, OnDead, Outcome, Record, State, Term, Timestamp, Token,
};

use crate::world::{T0, ask, at, at_once, dead, fresh, retry};

/// States of the items of the key. Item 0 is always done and item 1 is always dead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    /// Items 2 and 3 are held as a run since [`T0`]; 4 and 5 wait.
    Held,
    /// Items 2 and 3 are held; no item waits.
    Last,
    /// Item 2 is available; 3, 4 and 5 wait.
    Ready,
    /// Item 2 is available; no item waits.
    Sole,
    /// Item 2 is dead and blocks the key; 3 and 4 wait.
    Blocked,
    /// Item 2 is dead and blocks the key; no item waits.
    BlockedSole,
    /// As `Held`, and the key is paused.
    PausedHeld,
    /// Items 2, 3 and 4 wait, and the key is paused.
    Paused,
    /// As `Blocked`, and the key is paused.
    PausedBlocked,
    /// No item is open.
    Idle,
    /// Items 2, 3 and 4 were enqueued, and their key has arrivals.
    Arrived,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Claim,
    ClaimRun,
    Renew,
    /// Settles all held items as done.
    Done,
    /// Settles all held items as done, without naming them.
    DoneRest,
    /// Settles the first held item as done and keeps the rest.
    DoneFirst,
    /// Settles the first held item as done and releases the second.
    ReleasePart,
    /// Releases all held items.
    ReleaseRest,
    /// Settles the first held item with a retry.
    RetryFirst,
    DeadSkip,
    DeadBlock,
    DoneAndClaim,
    RetryAndClaim,
    Reap,
    Replay(usize),
    Bury(usize),
    Enqueue,
    /// Promotes the first event.
    Promote,
    /// Enqueues, and promotes the first event.
    Arrive,
    Pause,
    Resume,
    Skip,
}

/// The name of an operation of a race, and in the results that of the event it enqueued.
pub(super) type Role = &'static str;

/// The items of one round and their holders.
#[derive(Clone, Debug)]
pub(super) struct Round {
    key: String,
    holder: Token,
    ids: Vec<ItemId>,
    /// Events enqueued in the round, by role.
    more: Arc<Mutex<Vec<(Role, ItemId)>>>,
}

/// The time of all operations: the leases have lapsed, but the items may still be settled.
const NOW: Timestamp = Timestamp::from_micros(T0.as_micros() + 60_000_000);

impl Round {
    /// Creates a separate key with its items in their states.
    pub(super) async fn start(store: &dyn Store, scene: Scene) -> Self {
        static KEYS: AtomicU64 = AtomicU64::new(0);
        let key = format!("key-{}", KEYS.fetch_add(1, Ordering::Relaxed));
        let mut round = Self {
            key,
            holder: fresh("holder"),
            ids: Vec::new(),
            more: Arc::default(),
        };
        round.add(store, 2).await;
        let settled = round.claim(store, &fresh("settler"), 2).await;
        let settle = Settle::new(settled).item(round.ids[0], Outcome::Done);
        let settle = settle.item(round.ids[1], dead()).at(T0);
        assert_eq!(store.settle(&settle).await.unwrap().refused().count(), 0);
        let count = match scene {
            Scene::Held | Scene::PausedHeld | Scene::Ready => 4,
            Scene::Blocked | Scene::PausedBlocked | Scene::Paused | Scene::Arrived => 3,
            Scene::Last => 2,
            Scene::Sole | Scene::BlockedSole => 1,
            Scene::Idle => 0,
        };
        round.add(store, count).await;
        if scene != Scene::Arrived {
            promote(store).await.unwrap();
        }
        match scene {
            Scene::Held | Scene::PausedHeld | Scene::Last => {
                let _token = round.claim(store, &round.holder, 2).await;
            }
            Scene::Blocked | Scene::BlockedSole | Scene::PausedBlocked => {
                let token = round.claim(store, &fresh("settler"), 1).await;
                let settle = Settle::new(token).item(round.ids[2], dead());
                let settle = settle.on_dead(OnDead::Block).at(T0);
                assert_eq!(store.settle(&settle).await.unwrap().refused().count(), 0);
            }
            Scene::Ready | Scene::Sole | Scene::Paused | Scene::Idle | Scene::Arrived => {}
        }
        if matches!(
            scene,
            Scene::PausedHeld | Scene::Paused | Scene::PausedBlocked
        ) {
            store.pause_key(&round.key, Pause::Begin).await.unwrap();
        }
        round
    }

    async fn add(&mut self, store: &dyn Store, count: usize) {
        let event = NewEvent::from_json("t", "1")
            .key(&self.key)
            .build()
            .unwrap();
        let answers = store.enqueue(&vec![event; count]).await.unwrap();
        self.ids.extend(answers.into_iter().map(Enqueued::id));
    }

    /// Claims a run of this length at [`T0`].
    async fn claim(&self, store: &dyn Store, token: &Token, count: usize) -> Token {
        let limit = u32::try_from(count).unwrap();
        let held = store.claim(&ask(token, limit, T0).min_parallel(1)).await;
        assert_eq!(held.unwrap().unwrap().items.len(), count);
        token.clone()
    }

    /// Runs an operation; returns its answer, with names in place of ids (see [`Round::named`]).
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all others are settles of the holder"
    )]
    pub(super) async fn run(
        &self,
        store: &dyn Store,
        verb: Verb,
        role: Role,
    ) -> Result<String, StoreError> {
        Ok(match verb {
            Verb::Claim => ids_of(store, &next(1)).await?,
            Verb::ClaimRun => ids_of(store, &next(4)).await?,
            Verb::Renew => self.renew(store).await?,
            Verb::Reap => {
                let reaped = store.reap(&Reap::new(100, at_once()).at(NOW)).await?;
                let of = reaped.iter().map(|item| (item.id, item.state));
                format!("{:?}", of.collect::<Vec<_>>())
            }
            Verb::DoneAndClaim | Verb::RetryAndClaim => {
                let settle = if verb == Verb::DoneAndClaim {
                    Verb::Done
                } else {
                    Verb::RetryFirst
                };
                let (settle, claim) = (self.settle(settle), next(4));
                let (settlement, held) = store.settle_and_claim(&settle, &claim).await?;
                format!("{settlement:?} {:?}", held.map(|held| held.ids()))
            }
            Verb::Replay(nth) => {
                let replay = Replay::new(vec![self.ids[nth]]).at(NOW);
                format!("{:?}", store.replay(&replay).await?)
            }
            Verb::Bury(nth) => {
                let bury = Bury::new(self.ids[nth], fresh("operator"), "gone");
                format!("{:?}", store.bury(&bury.at(NOW)).await?)
            }
            Verb::Enqueue => self.enqueue(store, role).await?,
            Verb::Promote => promote(store).await?,
            Verb::Arrive => {
                self.enqueue(store, role).await?;
                promote(store).await?
            }
            Verb::Pause => format!("{:?}", store.pause_key(&self.key, Pause::Begin).await?),
            Verb::Resume => format!("{:?}", store.pause_key(&self.key, Pause::End).await?),
            Verb::Skip => {
                let skip = Skip::new(self.key.as_str(), fresh("operator"), "gone").at(NOW);
                format!("{:?}", store.skip(&skip).await?)
            }
            _ => format!("{:?}", store.settle(&self.settle(verb)).await?),
        })
    }

    /// The settle of the holder.
    #[expect(clippy::wildcard_enum_match_arm, reason = "all others are not settles")]
    fn settle(&self, verb: Verb) -> Settle {
        let settle = Settle::new(self.holder.clone()).at(NOW);
        let [first, second] = [self.ids.get(2), self.ids.get(3)].map(|id| *id.unwrap());
        match verb {
            Verb::Done => settle.done([first, second]),
            Verb::DoneRest => settle.rest(Rest::Done),
            Verb::DoneFirst => settle.done([first]),
            Verb::ReleasePart => settle.done([first]).item(second, Outcome::RELEASE),
            Verb::ReleaseRest => settle.rest(Rest::Release),
            Verb::RetryFirst => settle.item(first, retry(0)),
            Verb::DeadSkip => settle.item(first, dead()),
            Verb::DeadBlock => settle.item(first, dead()).on_dead(OnDead::Block),
            _ => panic!("{verb:?} settles nothing"),
        }
    }

    async fn renew(&self, store: &dyn Store) -> Result<String, StoreError> {
        let renew = Renew::new(vec![self.holder.clone()], Term::HEAVY).at(at(10));
        Ok(match store.renew(&renew).await?.remove(0).1 {
            Guarded::Accepted(renewed) => format!("{:?}", (renewed.until, renewed.ids)),
            Guarded::Refused(why) => why.to_string(),
        })
    }

    async fn enqueue(&self, store: &dyn Store, role: Role) -> Result<String, StoreError> {
        let event = NewEvent::from_json("t", "1")
            .key(&self.key)
            .build()
            .unwrap();
        let answers = store.enqueue(&[event]).await?;
        self.more.lock().unwrap().push((role, answers[0].id()));
        Ok("enqueued".into())
    }

    /// All items with their names: numbers, and for events enqueued in the round the role.
    fn all(&self) -> Vec<(String, ItemId)> {
        let ids = self.ids.iter().enumerate();
        let mut all: Vec<_> = ids.map(|(nth, id)| (nth.to_string(), *id)).collect();
        let mut more = self.more.lock().unwrap().clone();
        more.sort_unstable();
        all.extend(more.into_iter().map(|(role, id)| (role.to_owned(), id)));
        all
    }

    /// Replaces ids by names, so that the text does not depend on the store.
    pub(super) fn named(&self, text: &str) -> String {
        let all = self.all().into_iter();
        all.fold(text.to_owned(), |text, (name, id)| {
            text.replace(&format!("ItemId({id})"), &format!("#{name}"))
        })
    }

    /// The states of the items, and the order in which the open items are worked.
    pub(super) async fn end(&self, store: &dyn Store) -> Vec<String> {
        let mut end = Vec::new();
        let mut open = 0;
        let (names, ids): (Vec<_>, Vec<_>) = self.all().into_iter().unzip();
        let records = store.find(&ids).await.unwrap();
        assert_eq!(records.len(), ids.len());
        for (name, record) in names.iter().zip(records) {
            open += usize::from(!record.state.is_terminal());
            let timeline = store.timeline(record.id).await.unwrap();
            let words: Vec<&str> = timeline.iter().map(|hold| hold.outcome.as_str()).collect();
            end.push(format!("{name}: {} {words:?}", observed(&record)));
        }
        let drained = self.drain(store).await;
        assert_eq!(
            drained.len(),
            open,
            "all that is open is worked once: {drained:?} {end:#?}"
        );
        end.push(self.named(&format!("{drained:?}")));
        end
    }

    /// Ends all leases, pauses and blocks, and works on the open items one by one.
    async fn drain(&self, store: &dyn Store) -> Vec<ItemId> {
        store.pause_key(&self.key, Pause::End).await.unwrap();
        let reap = Reap::new(1000, at_once()).at(at(10_000));
        store.reap(&reap).await.unwrap();
        let mut order = Vec::new();
        loop {
            let claim = ask(&fresh("drain"), 1, at(20_000));
            let mut held = store.claim(&claim).await.unwrap();
            if held.is_none() {
                held = store.claim(&claim.clone().alone()).await.unwrap();
            }
            if let Some(held) = held {
                order.extend(held.ids());
                let settle = Settle::new(claim.token).done(held.ids()).at(at(20_000));
                assert_eq!(store.settle(&settle).await.unwrap().refused().count(), 0);
                continue;
            }
            let key = store.key(&self.key).await.unwrap();
            if key.is_none_or(|key| key.state != KeyState::Blocked) {
                return order;
            }
            let skip = Skip::new(self.key.as_str(), fresh("operator"), "gone");
            assert!(
                store
                    .skip(&skip.at(at(20_000)))
                    .await
                    .unwrap()
                    .is_accepted()
            );
        }
    }
}

/// A claim of the next items, in runs of this length.
fn next(limit: u32) -> Claim {
    ask(&fresh("next"), limit, NOW).min_parallel(1)
}

async fn ids_of(store: &dyn Store, claim: &Claim) -> Result<String, StoreError> {
    let held = store.claim(claim).await?;
    Ok(format!("{:?}", held.map(|held| held.ids())))
}

/// Runs a claim when no item is due, which promotes heads for all arrivals.
async fn promote(store: &dyn Store) -> Result<String, StoreError> {
    let claim = ask(&fresh("promoter"), 1, Timestamp::from_micros(0));
    assert!(store.claim(&claim).await?.is_none());
    Ok("promoted".into())
}

fn observed(record: &Record) -> String {
    let hold = record
        .hold
        .as_ref()
        .map(|hold| (&hold.holder, hold.claimed_at, hold.until));
    let moved = record.available_at.filter(|moment| *moment >= T0);
    let moved = moved.filter(|_| record.state == State::Pending);
    format!(
        "{:?} {:?} {hold:?} {moved:?} {:?} {:?} {:?}",
        record.state, record.counters, record.last_error, record.dead_at, record.dead_reason
    )
}

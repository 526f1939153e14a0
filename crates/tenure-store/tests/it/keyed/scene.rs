//! Scenes: one key with its items in every place, what can be asked about them, and what becomes of
//! them in the end.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tenure_core::store::{
    Bury, Claim, DomainState, Enqueued, Pause, Reap, Renew, Replay, Rest, Settle, Skip, Store,
    StoreError,
};
use tenure_core::{Event, Guarded, ItemId, OnDead, Outcome, Record, State, Term, Timestamp, Token};

use crate::world::{T0, ask, at, at_once, dead, fresh, retry};

/// Where the items of the key are: 0 is done and 1 is dead, always.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scene {
    /// 2 and 3 are held as a run since [`T0`]; 4 and 5 wait.
    Held,
    /// 2 and 3 are held; nothing waits.
    Last,
    /// 2 may be claimed; 3, 4 and 5 wait.
    Ready,
    /// 2 may be claimed; nothing waits.
    Sole,
    /// 2 is dead and blocks; 3 and 4 wait.
    Blocked,
    /// 2 is dead and blocks; nothing waits.
    BlockedSole,
    /// As `Held`, and paused.
    PausedHeld,
    /// 2, 3 and 4 wait, and the key is paused.
    Paused,
    /// As `Blocked`, and paused.
    PausedBlocked,
    /// Nothing is open.
    Idle,
    /// 2, 3 and 4 were enqueued, and nobody has looked at them.
    Rung,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Claim,
    ClaimRun,
    Renew,
    /// All that is held is done.
    Done,
    /// All that is held is done, without naming it.
    DoneRest,
    /// The first that is held is done, and the rest is kept.
    DoneFirst,
    /// The first is done, the second given back.
    ReleasePart,
    /// All is given back.
    ReleaseRest,
    /// The first is to be tried again.
    RetryFirst,
    DeadSkip,
    DeadBlock,
    DoneAndClaim,
    RetryAndClaim,
    Reap,
    Replay(usize),
    Bury(usize),
    Enqueue,
    /// The bells are answered.
    Place,
    /// Enqueue, and the bells are answered.
    Arrive,
    Pause,
    Resume,
    Skip,
}

/// Whose event it is that was enqueued in a round.
pub(super) type Role = &'static str;

/// The items of one round and who holds what.
#[derive(Clone, Debug)]
pub(super) struct Round {
    key: String,
    holder: Token,
    ids: Vec<ItemId>,
    /// What was enqueued in the round, by role.
    more: Arc<Mutex<Vec<(Role, ItemId)>>>,
}

/// The moment of all verbs: what is held has lapsed, and may still be settled.
const NOW: Timestamp = Timestamp::from_micros(T0.as_micros() + 60_000_000);

impl Round {
    /// A key of its own, with its items in their places.
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
            Scene::Blocked | Scene::PausedBlocked | Scene::Paused | Scene::Rung => 3,
            Scene::Last => 2,
            Scene::Sole | Scene::BlockedSole => 1,
            Scene::Idle => 0,
        };
        round.add(store, count).await;
        if scene != Scene::Rung {
            place(store).await.unwrap();
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
            Scene::Ready | Scene::Sole | Scene::Paused | Scene::Idle | Scene::Rung => {}
        }
        if matches!(
            scene,
            Scene::PausedHeld | Scene::Paused | Scene::PausedBlocked
        ) {
            store.pause_domain(&round.key, Pause::Begin).await.unwrap();
        }
        round
    }

    async fn add(&mut self, store: &dyn Store, count: usize) {
        let event = Event::from_json("t", "1").unwrap().key(&self.key).unwrap();
        let answers = store.enqueue(&vec![event; count]).await.unwrap();
        self.ids.extend(answers.into_iter().map(Enqueued::id));
    }

    /// Claims the last so many at [`T0`], as a run.
    async fn claim(&self, store: &dyn Store, token: &Token, count: usize) -> Token {
        let limit = u32::try_from(count).unwrap();
        let held = store.claim(&ask(token, limit, T0).abreast(1)).await;
        assert_eq!(held.unwrap().unwrap().items.len(), count);
        token.clone()
    }

    /// Carries out a verb; its answer, in which [`Round::named`] puts names for ids.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "all others are what the holder says"
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
            Verb::Place => place(store).await?,
            Verb::Arrive => {
                self.enqueue(store, role).await?;
                place(store).await?
            }
            Verb::Pause => format!("{:?}", store.pause_domain(&self.key, Pause::Begin).await?),
            Verb::Resume => format!("{:?}", store.pause_domain(&self.key, Pause::End).await?),
            Verb::Skip => {
                let skip = Skip::new(self.key.as_str(), fresh("operator"), "gone").at(NOW);
                format!("{:?}", store.skip(&skip).await?)
            }
            _ => format!("{:?}", store.settle(&self.settle(verb)).await?),
        })
    }

    /// What the holder says.
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "whatever else there is is not for the holder to say"
    )]
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
            Guarded::Kept(renewed) => format!("{:?}", (renewed.until, renewed.ids)),
            Guarded::Refused(why) => why.to_string(),
        })
    }

    async fn enqueue(&self, store: &dyn Store, role: Role) -> Result<String, StoreError> {
        let event = Event::from_json("t", "1").unwrap().key(&self.key).unwrap();
        let answers = store.enqueue(&[event]).await?;
        self.more.lock().unwrap().push((role, answers[0].id()));
        Ok("enqueued".into())
    }

    /// All items with their names: numbers, and for what was enqueued in the round its role.
    fn all(&self) -> Vec<(String, ItemId)> {
        let ids = self.ids.iter().enumerate();
        let mut all: Vec<_> = ids.map(|(nth, id)| (nth.to_string(), *id)).collect();
        let mut more = self.more.lock().unwrap().clone();
        more.sort_unstable();
        all.extend(more.into_iter().map(|(role, id)| (role.to_owned(), id)));
        all
    }

    /// A text in words that do not depend on the store.
    pub(super) fn named(&self, text: &str) -> String {
        let all = self.all().into_iter();
        all.fold(text.to_owned(), |text, (name, id)| {
            text.replace(&format!("ItemId({id})"), &format!("#{name}"))
        })
    }

    /// What is known of the items, and the order in which the open ones are worked from now on.
    pub(super) async fn end(&self, store: &dyn Store) -> Vec<String> {
        let mut end = Vec::new();
        let mut open = 0;
        let (names, ids): (Vec<_>, Vec<_>) = self.all().into_iter().unzip();
        let records = store.find(&ids).await.unwrap();
        assert_eq!(records.len(), ids.len());
        for (name, record) in names.iter().zip(records) {
            open += usize::from(!record.state.is_terminal());
            let timeline = store.timeline(record.id).await.unwrap();
            let words: Vec<&str> = timeline.iter().map(|hold| hold.word.as_str()).collect();
            end.push(format!("{name}: {} {words:?}", seen(&record)));
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

    /// Ends all leases and all that holds the key back, and works what is open, one by one.
    async fn drain(&self, store: &dyn Store) -> Vec<ItemId> {
        store.pause_domain(&self.key, Pause::End).await.unwrap();
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
            let domain = store.domain(&self.key).await.unwrap();
            if domain.is_none_or(|domain| domain.state != DomainState::Blocked) {
                return order;
            }
            let skip = Skip::new(self.key.as_str(), fresh("operator"), "gone");
            assert!(store.skip(&skip.at(at(20_000))).await.unwrap().is_kept());
        }
    }
}

/// A claim of what comes next, as runs of so many.
fn next(limit: u32) -> Claim {
    ask(&fresh("next"), limit, NOW).abreast(1)
}

async fn ids_of(store: &dyn Store, claim: &Claim) -> Result<String, StoreError> {
    let held = store.claim(claim).await?;
    Ok(format!("{:?}", held.map(|held| held.ids())))
}

/// A claim for which nothing is due yet answers all bells.
async fn place(store: &dyn Store) -> Result<String, StoreError> {
    let claim = ask(&fresh("placer"), 1, Timestamp::from_micros(0));
    assert!(store.claim(&claim).await?.is_none());
    Ok("placed".into())
}

fn seen(record: &Record) -> String {
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

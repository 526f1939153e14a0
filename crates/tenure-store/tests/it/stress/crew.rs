//! The crew: workers that claim, settle in parts, let leases lapse, lose answers, repeat and reap,
//! together with an operator's replays, buries, pauses and skips. The crew records the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tenure_core::store::{
    Answer, Bury, Claim, Enqueued, Pause, Reap, Renew, Replay, Rest, Settle, Settlement, Skip,
    StoreErrorKind,
};
use tenure_core::testing::Extent;
use tenure_core::{Guarded, Held, ItemId, LapsePolicy, OnDead, Outcome, Term, Token};
use tenure_nemesis::Rng;
use tokio::time::{Instant, sleep};

use super::order::{Keys, Sent};

use crate::world::{World, fresh};

/// Maximum number of operations of each worker.
const ROUNDS: u32 = 400;
/// Timeout of a run.
const LONGEST: Duration = Duration::from_secs(12);
/// Items at the start.
const ITEMS: usize = 200;

/// With this policy a lapse never makes an item dead; other tests check that too many lapses do.
pub(super) static LAPSE: LazyLock<LapsePolicy> = LazyLock::new(|| {
    let delays = vec![Duration::from_millis(1)];
    LapsePolicy::new(1_000_000, delays).expect("the policy is well formed")
});

pub(super) struct Crew {
    pub(super) world: Arc<dyn World>,
    pub(super) seed: u64,
    pub(super) keys: Keys,
    start: Instant,
    is_stopped: AtomicBool,
    /// Number of answered operations.
    answers: AtomicU64,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    added: Vec<ItemId>,
    /// Events enqueued with a key.
    sent: Vec<Sent>,
    /// Tokens whose *done* was accepted, by item and generation.
    done: BTreeMap<(ItemId, u32), BTreeSet<Token>>,
    faults: Vec<String>,
}

/// A worker's lease: the items of one claim.
struct Worker {
    token: Token,
    /// The items of the claim with their generations.
    items: Vec<(ItemId, u32)>,
}

impl Crew {
    pub(super) async fn new(world: Arc<dyn World>, seed: u64, keys: Keys) -> Self {
        let added = world.add_ranked(&[0; ITEMS]).await;
        let log = Log {
            added,
            ..Log::default()
        };
        let crew = Self {
            world,
            seed,
            keys,
            start: Instant::now(),
            is_stopped: AtomicBool::new(false),
            answers: AtomicU64::new(0),
            log: Mutex::new(log),
        };
        let mut rng = Rng::new(seed, "start");
        for _ in 0..ITEMS / 10 {
            crew.enqueue(&mut rng).await;
        }
        crew
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_working(&self) -> bool {
        !self.is_stopped.load(Ordering::Relaxed)
    }

    /// Waits until this many more operations were answered, or the crew has stopped.
    pub(super) async fn wait_for_work(&self, more: u64) {
        let goal = self.answers.load(Ordering::Relaxed) + more;
        while self.is_working() && self.answers.load(Ordering::Relaxed) < goal {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Records enqueued events.
    pub(super) fn note_sent(&self, sent: impl IntoIterator<Item = Sent>) {
        let mut log = self.log.lock().unwrap();
        for sent in sent {
            log.added.push(sent.id);
            log.sent.extend(sent.key.is_some().then_some(sent));
        }
    }

    /// Events enqueued with a key.
    pub(super) fn sent(&self) -> Vec<Sent> {
        self.log.lock().unwrap().sent.clone()
    }

    pub(super) fn report(&self, faults: Vec<String>) {
        self.log.lock().unwrap().faults.extend(faults);
    }

    /// Number of items accepted as done.
    pub(super) fn done(&self) -> usize {
        self.log.lock().unwrap().done.len()
    }

    pub(super) fn note_done(&self, held: &Held) {
        for item in &held.items {
            self.accept(&held.lease.token, (item.id, item.counters.generation));
        }
    }

    /// Violations during the run, and violations of the final state.
    pub(super) async fn faults(&self) -> Vec<String> {
        let (added, mut faults) = {
            let mut log = self.log.lock().unwrap();
            (log.added.clone(), std::mem::take(&mut log.faults))
        };
        let records = self.world.operate().find(&added).await.expect("find");
        if records.len() != added.len() {
            faults.push(format!(
                "of {} items {} are left",
                added.len(),
                records.len()
            ));
        }
        for record in records {
            if !record.state.is_terminal() {
                faults.push(format!("item {} is {} in the end", record.id, record.state));
            }
        }
        for ((id, generation), tokens) in &self.log.lock().unwrap().done {
            if tokens.len() > 1 {
                faults.push(format!("item {id} was done by {tokens:?} in {generation}"));
            }
        }
        faults
    }

    fn accept(&self, token: &Token, item: (ItemId, u32)) {
        let mut log = self.log.lock().unwrap();
        log.done.entry(item).or_default().insert(token.clone());
    }

    /// The loop of one worker.
    pub(super) async fn work(self: Arc<Self>, worker: u64) {
        let name = format!("worker-{worker}");
        let mut rng = Rng::new(self.seed, &name);
        let mut hands: Vec<Worker> = Vec::new();
        for _ in 0..Extent::chosen().size(ROUNDS / 2, ROUNDS) {
            if self.start.elapsed() > LONGEST {
                return;
            }
            let nth = rng.below(hands.len().max(1));
            match rng.below(20) {
                0..=6 => hands.extend(self.claim(&name, &mut rng).await),
                7..=13 if !hands.is_empty() => {
                    let hand = hands.swap_remove(nth);
                    hands.extend(self.settle(hand, &name, &mut rng).await);
                }
                14 | 15 if !hands.is_empty() => {
                    let tokens = vec![hands[nth].token.clone()];
                    let renew = Renew::new(tokens, term(&mut rng));
                    self.lossy(self.world.lease().renew(&renew), &mut rng).await;
                }
                // The worker dies and drops its items.
                16 if !hands.is_empty() => drop(hands.swap_remove(nth)),
                17 => {
                    let reap = Reap::new(20, LAPSE.clone());
                    self.lossy(self.world.lease().reap(&reap), &mut rng).await;
                }
                18 => self.operate(&mut rng).await,
                _ => self.enqueue(&mut rng).await,
            }
        }
    }

    async fn claim(&self, name: &str, rng: &mut Rng) -> Option<Worker> {
        let claim = claim(name, rng);
        let Some(held) = self.lossy(self.world.lease().claim(&claim), rng).await else {
            self.release(&claim.token).await;
            return None;
        };
        held.map(Worker::of)
    }

    /// Settles some of the held items, sometimes with a claim; returns the leases.
    async fn settle(&self, mut hand: Worker, name: &str, rng: &mut Rng) -> Vec<Worker> {
        let settle = say(&hand, rng);
        if rng.below(4) == 0 {
            let claim = claim(name, rng);
            let both = self.world.lease().settle_and_claim(&settle, &claim);
            let Some((settlement, held)) = self.lossy(both, rng).await else {
                self.release(&claim.token).await;
                self.repeat(&mut hand, &settle, rng).await;
                return vec![hand];
            };
            self.note(&mut hand, &settle, &settlement);
            let more = held.map(Worker::of);
            return std::iter::once(hand).chain(more).collect();
        }
        match self.lossy(self.world.lease().settle(&settle), rng).await {
            Some(settlement) => self.note(&mut hand, &settle, &settlement),
            None => self.repeat(&mut hand, &settle, rng).await,
        }
        hand.items.is_empty().then(Vec::new).unwrap_or(vec![hand])
    }

    /// Repeats a settle whose answer was lost, or gives up the work.
    async fn repeat(&self, hand: &mut Worker, settle: &Settle, rng: &mut Rng) {
        if rng.below(4) == 0 {
            hand.items.clear();
            return;
        }
        let settlement = self
            .until_answered(|| self.world.lease().settle(settle))
            .await;
        self.note(hand, settle, &settlement);
        // A repeat gets the same answer, unless the row layout has forgotten the first settle.
        let again = self
            .until_answered(|| self.world.lease().settle(settle))
            .await;
        let differs = settlement
            .items
            .iter()
            .zip(&again.items)
            .any(|(first, second)| first.1.is_accepted() && !second.1.is_accepted());
        if differs && self.world.outbox().is_some() {
            self.report(vec![format!("a repeat got {again:?}, not {settlement:?}")]);
        }
    }

    fn note(&self, hand: &mut Worker, settle: &Settle, settlement: &Settlement) {
        let named: BTreeSet<ItemId> = settle.items.iter().map(|(id, _)| *id).collect();
        let rest = hand.items.iter().filter(|(id, _)| !named.contains(id));
        let rest: Vec<(ItemId, u32)> = rest.copied().collect();
        for ((id, outcome), (_, answer)) in settle.items.iter().zip(&settlement.items) {
            let item = hand.items.iter().find(|(held, _)| held == id).copied();
            if let (Outcome::Done, Guarded::Accepted(()), Some(item)) = (outcome, answer, item) {
                self.accept(&settle.token, item);
            }
        }
        if settle.rest == Rest::Done && usize::try_from(settlement.rest) == Ok(rest.len()) {
            for item in &rest {
                self.accept(&settle.token, *item);
            }
        }
        hand.items = if settle.rest == Rest::Keep {
            rest
        } else {
            Vec::new()
        };
    }

    /// Releases the items of a claim by its token, because the answer of the claim may be lost.
    pub(super) async fn release(&self, token: &Token) {
        let settle = Settle::new(token.clone()).rest(Rest::Release);
        let _settlement = self
            .until_answered(|| self.world.lease().settle(&settle))
            .await;
    }

    async fn operate(&self, rng: &mut Rng) {
        let key = self.keys.any(rng);
        if let (Some(key), Some(outbox), 0) = (key, self.world.outbox(), rng.below(2)) {
            match rng.below(6) {
                0 => drop(self.lossy(outbox.pause_key(&key, Pause::Begin), rng).await),
                1..=3 => drop(self.lossy(outbox.pause_key(&key, Pause::End), rng).await),
                _ => {
                    let skip = Skip::new(key, fresh("operator"), "gone");
                    self.lossy(outbox.skip(&skip), rng).await;
                }
            }
            return;
        }
        let id = {
            let log = self.log.lock().unwrap();
            log.added[rng.below(log.added.len())]
        };
        if rng.below(8) == 0 {
            let bury = Bury {
                id,
                token: fresh("operator"),
                reason: "gone".into(),
                now: None,
            };
            self.lossy(self.world.operate().bury(&bury), rng).await;
        } else {
            let replay = Replay {
                ids: vec![id],
                now: None,
            };
            self.lossy(self.world.operate().replay(&replay), rng).await;
        }
    }

    async fn enqueue(&self, rng: &mut Rng) {
        let Some(outbox) = self.world.outbox() else {
            return;
        };
        let count = rng.below(5);
        let events: Vec<_> = (0..count).map(|_| self.keys.event(rng)).collect();
        let began = Instant::now();
        if let Some(answers) = self.lossy(outbox.enqueue(&events), rng).await {
            let ids = answers.into_iter().map(Enqueued::id);
            self.note_sent(Sent::of(&events, ids, began));
        }
    }

    /// Returns the answer, unless it is lost: the caller stops waiting, or the database is
    /// unavailable.
    async fn lossy<T>(&self, answer: Answer<'_, T>, rng: &mut Rng) -> Option<T> {
        let patience = match rng.below(8) {
            0 => Duration::from_micros(u64::try_from(rng.below(3000)).unwrap_or(0)),
            _ => Duration::from_mins(1),
        };
        let answer = tokio::time::timeout(patience, answer).await.ok()?;
        self.answers.fetch_add(1, Ordering::Relaxed);
        match answer {
            Ok(answer) => Some(answer),
            Err(error) if error.is_transient() => None,
            Err(error) => {
                self.report(vec![format!("{error:?}")]);
                None
            }
        }
    }

    /// Repeats a call until it is answered.
    pub(super) async fn until_answered<'a, T>(&self, ask: impl Fn() -> Answer<'a, T>) -> T {
        loop {
            match ask().await {
                Ok(answer) => return answer,
                Err(error) if error.kind() == StoreErrorKind::Unavailable => {
                    sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("seed {}: {error:?}", self.seed),
            }
        }
    }
}

impl Worker {
    fn of(held: Held) -> Self {
        let items = held.items.iter();
        Self {
            items: items
                .map(|item| (item.id, item.counters.generation))
                .collect(),
            token: held.lease.token,
        }
    }
}

/// A claim of some items for a short time.
fn claim(name: &str, rng: &mut Rng) -> Claim {
    let limit = u32::try_from(1 + rng.below(12)).unwrap_or(1);
    let recovery = (rng.below(3) == 0).then(|| LAPSE.clone());
    let min_parallel = u32::try_from(1 + rng.below(4)).unwrap_or(1);
    let claim = Claim::new(fresh(name), limit)
        .min_parallel(if rng.below(3) == 0 {
            limit
        } else {
            min_parallel
        })
        .term(term(rng))
        .recovery(recovery);
    if rng.below(3) == 0 {
        claim.alone()
    } else {
        claim
    }
}

/// Draws a term; some terms end before the worker's next operation.
fn term(rng: &mut Rng) -> Term {
    let millis = [2, 10, 50, 5000][rng.below(4)];
    Term::new(Duration::from_millis(millis)).expect("the term is well formed")
}

/// A settle of some of the held items.
fn say(hand: &Worker, rng: &mut Rng) -> Settle {
    let mut settle = Settle::new(hand.token.clone());
    for (id, _) in &hand.items {
        let after = Duration::from_millis(u64::try_from(rng.below(4)).unwrap_or(0));
        settle = match rng.below(20) {
            0..=4 => settle,
            5..=12 => settle.done([*id]),
            13..=15 => settle.item(
                *id,
                Outcome::Retry {
                    after,
                    error: "503".into(),
                },
            ),
            16..=18 => settle.item(*id, Outcome::Release { after }),
            _ => settle.item(*id, crate::world::dead()),
        };
    }
    settle = settle.rest([Rest::Keep, Rest::Keep, Rest::Done, Rest::Release][rng.below(4)]);
    settle = settle.on_dead([OnDead::Skip, OnDead::Block][rng.below(2)]);
    if rng.below(3) == 0 {
        settle.strict()
    } else {
        settle
    }
}

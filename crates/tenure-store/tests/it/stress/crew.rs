//! The crew: workers that claim, settle in parts, let leases lapse, lose answers, repeat, reap, and
//! an operator's replays, buries, pauses and skips among them. It notes what it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex};
use std::time::Duration;

use tenure_core::store::{
    Answer, Bury, Claim, Enqueued, Pause, Reap, Renew, Replay, Rest, Settle, Settlement, Skip,
    StoreErrorKind,
};
use tenure_core::{Guarded, Held, ItemId, LapsePolicy, OnDead, Outcome, Term, Token};
use tokio::time::{Instant, sleep};

use super::order::{Keys, Sent};

use crate::world::{World, fresh};

/// What each worker tries at most.
const ROUNDS: u32 = 400;
/// No run takes longer, whatever the machine.
const LONGEST: Duration = Duration::from_secs(12);
/// Items that are there at the start.
const ITEMS: usize = 200;

/// Lapses cost nothing here: that they kill is shown elsewhere.
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
    /// Verbs that were answered.
    answers: AtomicU64,
    log: Mutex<Log>,
}

#[derive(Default)]
struct Log {
    added: Vec<ItemId>,
    /// What was enqueued with a key.
    sent: Vec<Sent>,
    /// Whose word *done* was accepted, by item and generation.
    done: BTreeMap<(ItemId, u32), BTreeSet<Token>>,
    faults: Vec<String>,
}

/// What a worker has in hand.
struct Hand {
    token: Token,
    /// The items with their generations.
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
        let mut dice = Dice(seed);
        for _ in 0..ITEMS / 10 {
            crew.enqueue(&mut dice).await;
        }
        crew
    }

    pub(super) fn stop(&self) {
        self.is_stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_working(&self) -> bool {
        !self.is_stopped.load(Ordering::Relaxed)
    }

    /// Waits until so many more verbs were answered, or the crew has stopped.
    pub(super) async fn wait_for_work(&self, more: u64) {
        let goal = self.answers.load(Ordering::Relaxed) + more;
        while self.is_working() && self.answers.load(Ordering::Relaxed) < goal {
            sleep(Duration::from_millis(1)).await;
        }
    }

    /// Notes what was enqueued.
    pub(super) fn note_sent(&self, sent: impl IntoIterator<Item = Sent>) {
        let mut log = self.log.lock().unwrap();
        for sent in sent {
            log.added.push(sent.id);
            log.sent.extend(sent.key.is_some().then_some(sent));
        }
    }

    /// What was enqueued with a key.
    pub(super) fn sent(&self) -> Vec<Sent> {
        self.log.lock().unwrap().sent.clone()
    }

    pub(super) fn report(&self, faults: Vec<String>) {
        self.log.lock().unwrap().faults.extend(faults);
    }

    /// How often something was accepted as done.
    pub(super) fn done(&self) -> usize {
        self.log.lock().unwrap().done.len()
    }

    pub(super) fn note_done(&self, held: &Held) {
        for item in &held.items {
            self.accept(&held.lease.token, (item.id, item.counters.generation));
        }
    }

    /// What was seen while it ran, and what is wrong now that nothing runs any more.
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

    /// One worker's life.
    pub(super) async fn work(self: Arc<Self>, worker: u64) {
        let name = format!("worker-{worker}");
        let mut dice = Dice(self.seed ^ (worker << 32));
        let mut hands: Vec<Hand> = Vec::new();
        for _ in 0..ROUNDS {
            if self.start.elapsed() > LONGEST {
                return;
            }
            let nth = dice.below(hands.len().max(1));
            match dice.below(20) {
                0..=6 => hands.extend(self.claim(&name, &mut dice).await),
                7..=13 if !hands.is_empty() => {
                    let hand = hands.swap_remove(nth);
                    hands.extend(self.settle(hand, &name, &mut dice).await);
                }
                14 | 15 if !hands.is_empty() => {
                    let tokens = vec![hands[nth].token.clone()];
                    let renew = Renew::new(tokens, term(&mut dice));
                    self.lossy(self.world.lease().renew(&renew), &mut dice)
                        .await;
                }
                // The worker dies with what it holds.
                16 if !hands.is_empty() => drop(hands.swap_remove(nth)),
                17 => {
                    let reap = Reap::new(20, LAPSE.clone());
                    self.lossy(self.world.lease().reap(&reap), &mut dice).await;
                }
                18 => self.operate(&mut dice).await,
                _ => self.enqueue(&mut dice).await,
            }
        }
    }

    async fn claim(&self, name: &str, dice: &mut Dice) -> Option<Hand> {
        let claim = claim(name, dice);
        let Some(held) = self.lossy(self.world.lease().claim(&claim), dice).await else {
            self.release(&claim.token).await;
            return None;
        };
        held.map(Hand::of)
    }

    /// Settles some of what is in hand, and claims more with it at times; what is still in hand.
    async fn settle(&self, mut hand: Hand, name: &str, dice: &mut Dice) -> Vec<Hand> {
        let settle = say(&hand, dice);
        if dice.below(4) == 0 {
            let claim = claim(name, dice);
            let both = self.world.lease().settle_and_claim(&settle, &claim);
            let Some((settlement, held)) = self.lossy(both, dice).await else {
                self.release(&claim.token).await;
                self.repeat(&mut hand, &settle, dice).await;
                return vec![hand];
            };
            self.note(&mut hand, &settle, &settlement);
            let more = held.map(Hand::of);
            return std::iter::once(hand).chain(more).collect();
        }
        match self.lossy(self.world.lease().settle(&settle), dice).await {
            Some(settlement) => self.note(&mut hand, &settle, &settlement),
            None => self.repeat(&mut hand, &settle, dice).await,
        }
        hand.items.is_empty().then(Vec::new).unwrap_or(vec![hand])
    }

    /// The answer of a settle was lost: it is asked for again, or the work is given up.
    async fn repeat(&self, hand: &mut Hand, settle: &Settle, dice: &mut Dice) {
        if dice.below(4) == 0 {
            hand.items.clear();
            return;
        }
        let settlement = self
            .until_answered(|| self.world.lease().settle(settle))
            .await;
        self.note(hand, settle, &settlement);
        // Once it was told, it is told the same again, unless the row layout has forgotten it.
        let again = self
            .until_answered(|| self.world.lease().settle(settle))
            .await;
        let differs = settlement
            .items
            .iter()
            .zip(&again.items)
            .any(|(first, second)| first.1.is_kept() && !second.1.is_kept());
        if differs && self.world.outbox().is_some() {
            self.report(vec![format!(
                "a repeat was told {again:?}, not {settlement:?}"
            )]);
        }
    }

    fn note(&self, hand: &mut Hand, settle: &Settle, settlement: &Settlement) {
        let named: BTreeSet<ItemId> = settle.items.iter().map(|(id, _)| *id).collect();
        let rest = hand.items.iter().filter(|(id, _)| !named.contains(id));
        let rest: Vec<(ItemId, u32)> = rest.copied().collect();
        for ((id, outcome), (_, answer)) in settle.items.iter().zip(&settlement.items) {
            let item = hand.items.iter().find(|(held, _)| held == id).copied();
            if let (Outcome::Done, Guarded::Kept(()), Some(item)) = (outcome, answer, item) {
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

    /// Gives back by its token what a claim may have got whose answer was lost.
    pub(super) async fn release(&self, token: &Token) {
        let settle = Settle::new(token.clone()).rest(Rest::Release);
        let _settlement = self
            .until_answered(|| self.world.lease().settle(&settle))
            .await;
    }

    async fn operate(&self, dice: &mut Dice) {
        let key = self.keys.any(dice);
        if let (Some(key), Some(outbox), 0) = (key, self.world.outbox(), dice.below(2)) {
            match dice.below(6) {
                0 => drop(
                    self.lossy(outbox.pause_domain(&key, Pause::Begin), dice)
                        .await,
                ),
                1..=3 => drop(
                    self.lossy(outbox.pause_domain(&key, Pause::End), dice)
                        .await,
                ),
                _ => {
                    let skip = Skip::new(key, fresh("operator"), "gone");
                    self.lossy(outbox.skip(&skip), dice).await;
                }
            }
            return;
        }
        let id = {
            let log = self.log.lock().unwrap();
            log.added[dice.below(log.added.len())]
        };
        if dice.below(8) == 0 {
            let bury = Bury {
                id,
                token: fresh("operator"),
                reason: "gone".into(),
                now: None,
            };
            self.lossy(self.world.operate().bury(&bury), dice).await;
        } else {
            let replay = Replay {
                ids: vec![id],
                now: None,
            };
            self.lossy(self.world.operate().replay(&replay), dice).await;
        }
    }

    async fn enqueue(&self, dice: &mut Dice) {
        let Some(outbox) = self.world.outbox() else {
            return;
        };
        let count = dice.below(5);
        let events: Vec<_> = (0..count).map(|_| self.keys.event(dice)).collect();
        let began = Instant::now();
        if let Some(answers) = self.lossy(outbox.enqueue(&events), dice).await {
            let ids = answers.into_iter().map(Enqueued::id);
            self.note_sent(Sent::of(&events, ids, began));
        }
    }

    /// The answer, unless it is lost: the caller stops waiting, or the database is away.
    async fn lossy<T>(&self, answer: Answer<'_, T>, dice: &mut Dice) -> Option<T> {
        let patience = match dice.below(8) {
            0 => Duration::from_micros(u64::try_from(dice.below(3000)).unwrap_or(0)),
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

    /// Asks until there is an answer.
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

impl Hand {
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

/// A claim of some items for a moment.
fn claim(name: &str, dice: &mut Dice) -> Claim {
    let limit = u32::try_from(1 + dice.below(12)).unwrap_or(1);
    let recovery = (dice.below(3) == 0).then(|| LAPSE.clone());
    let abreast = u32::try_from(1 + dice.below(4)).unwrap_or(1);
    let claim = Claim::new(fresh(name), limit)
        .abreast(if dice.below(3) == 0 { limit } else { abreast })
        .term(term(dice))
        .recovery(recovery);
    if dice.below(3) == 0 {
        claim.alone()
    } else {
        claim
    }
}

/// Some are over before the next verb.
fn term(dice: &mut Dice) -> Term {
    let millis = [2, 10, 50, 5000][dice.below(4)];
    Term::new(Duration::from_millis(millis)).expect("the term is well formed")
}

/// A settle of some of what is in hand.
fn say(hand: &Hand, dice: &mut Dice) -> Settle {
    let mut settle = Settle::new(hand.token.clone());
    for (id, _) in &hand.items {
        let after = Duration::from_millis(u64::try_from(dice.below(4)).unwrap_or(0));
        settle = match dice.below(20) {
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
    settle = settle.rest([Rest::Keep, Rest::Keep, Rest::Done, Rest::Release][dice.below(4)]);
    settle = settle.on_dead([OnDead::Skip, OnDead::Block][dice.below(2)]);
    if dice.below(3) == 0 {
        settle.strict()
    } else {
        settle
    }
}

/// Chance that a seed repeats (`SplitMix64`).
pub(super) struct Dice(pub(super) u64);

impl Dice {
    /// A number below `end`.
    pub(super) fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(mixed % end).unwrap_or(0)
    }
}

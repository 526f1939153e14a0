//! A pair of worlds that run the same steps.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use tenure_core::store::{Bury, Claim, Pause, Prune, Reap, Renew, Replay, Rest, Skip};
use tenure_core::testing::token;
use tenure_core::{Guarded, Held, LapsePolicy, Record, State, Term, Timestamp, Token};

use super::script::{Lapse, New, OutcomeKind, Say, Step, Take, Verb};
use super::side::{Claimed, Resolved, Twin, Way, key_name, since_start};
use crate::world::{T0, World};

/// Two worlds that run the same steps.
pub(super) struct Pair {
    way: Way,
    now: Timestamp,
    one: Twin,
    other: Twin,
    /// All claims, oldest first.
    claims: Vec<Claimed>,
    settles: Vec<Resolved>,
    /// The ordering key of each item.
    keys: Vec<Option<u8>>,
    buries: u64,
}

impl Pair {
    pub(super) fn new(one: Box<dyn World>, other: Box<dyn World>, way: Way) -> Self {
        Self {
            way,
            now: T0,
            one: Twin::new(one),
            other: Twin::new(other),
            claims: Vec::new(),
            settles: Vec::new(),
            keys: Vec::new(),
            buries: 0,
        }
    }

    /// Runs a step in both worlds; returns their answers and the states of all items.
    pub(super) async fn run(&mut self, step: &Step) -> (String, String) {
        self.now = self.now.after(step.wait);
        let (mut left, mut right) = self.take(&step.verb).await;
        let (one, other) = (
            self.one.state(self.way).await,
            self.other.state(self.way).await,
        );
        left += &one;
        right += &other;
        (left, right)
    }

    async fn take(&mut self, verb: &Verb) -> (String, String) {
        match verb {
            Verb::Add(new) => self.add(new).await,
            Verb::Claim(take) => self.claim(take).await,
            Verb::ClaimAgain(nth) => self.claim_again(*nth).await,
            Verb::Renew { tokens, seconds } => self.renew(tokens, *seconds).await,
            Verb::Settle(say) => match self.resolve(say) {
                None => Default::default(),
                Some(settle) => self.settle(settle).await,
            },
            Verb::Repeat(nth) => match last(&self.settles, *nth).cloned() {
                None => Default::default(),
                Some(settle) => self.settle(settle).await,
            },
            Verb::SettleAndClaim(say, take) => self.settle_and_claim(say, take).await,
            Verb::Reap { inline, lapse } => self.reap(*inline, *lapse).await,
            Verb::Replay(items) => self.replay(items).await,
            Verb::Bury(item) => self.bury(*item).await,
            Verb::Pause(key) => self.pause(*key, Pause::Begin).await,
            Verb::Resume(key) => self.pause(*key, Pause::End).await,
            Verb::Skip(key) => self.skip(*key).await,
            Verb::Prune { done, dead } => self.prune(*done, *dead).await,
        }
    }

    /// Adds items. Their ranks rise over the whole script, so that the order does not depend on the
    /// clock. A lease table has no keys.
    async fn add(&mut self, new: &[New]) -> (String, String) {
        let first = u32::try_from(self.keys.len()).expect("a script is short");
        let mut new = new.to_vec();
        if !self.has_keys() {
            for item in &mut new {
                item.key = None;
            }
        }
        for twin in [&mut self.one, &mut self.other] {
            twin.add(first, &new).await;
        }
        self.keys.extend(new.iter().map(|item| item.key));
        Default::default()
    }

    fn has_keys(&self) -> bool {
        self.way == Way::Queue
    }

    async fn claim(&mut self, take: &Take) -> (String, String) {
        if self.is_ambiguous(take).await {
            return Default::default();
        }
        let claim = self.ask(take);
        let one = self.one.world.lease().claim(&claim).await;
        let other = self.other.world.lease().claim(&claim).await;
        self.note_claim(&claim.token, one.as_ref().ok().and_then(Option::as_ref));
        (
            self.one.held(one, self.way, &self.keys),
            self.other.held(other, self.way, &self.keys),
        )
    }

    async fn claim_again(&mut self, nth: usize) -> (String, String) {
        let Some(claimed) = last(&self.claims, nth).cloned() else {
            return Default::default();
        };
        // The check is made only with a token that has a lease, as after a lost answer. Only that
        // token is certainly known to both stores.
        if !self.one.holds_any(&claimed).await {
            return Default::default();
        }
        let claim = Claim::new(claimed.token, 3).recovery(None).at(self.now);
        let one = self.one.world.lease().claim(&claim).await;
        let other = self.other.world.lease().claim(&claim).await;
        (
            self.one.held(one, self.way, &self.keys),
            self.other.held(other, self.way, &self.keys),
        )
    }

    async fn renew(&mut self, tokens: &[usize], seconds: u64) -> (String, String) {
        let named = tokens.iter().filter_map(|nth| last(&self.claims, *nth));
        let tokens: Vec<Token> = named.map(|claimed| claimed.token.clone()).collect();
        let renew = Renew::new(tokens, term(seconds)).at(self.now);
        let mut answers = Vec::new();
        for twin in [&mut self.one, &mut self.other] {
            let answer = twin.world.lease().renew(&renew).await.expect("renew");
            let mut text = String::new();
            for (token, answer) in answer {
                let answer = match answer {
                    Guarded::Refused(why) => why.to_string(),
                    Guarded::Accepted(renewed) => format!(
                        "{} {} {:?}",
                        renewed.until,
                        twin.fence(renewed.fence),
                        twin.numbers(&renewed.ids)
                    ),
                };
                writeln!(text, "{token}: {answer}").expect("text");
            }
            answers.push(text);
        }
        pair(answers)
    }

    async fn settle(&mut self, settle: Resolved) -> (String, String) {
        let skipped = self.forgotten(&settle).await;
        let token = &self.claims[settle.claim].token;
        let mut answers = Vec::new();
        for twin in [&self.one, &self.other] {
            let ask = twin.settle(token, &settle, self.now);
            let answer = twin.world.lease().settle(&ask).await.expect("settle");
            answers.push(twin.settlement(&answer, &skipped));
        }
        self.settles.push(settle);
        pair(answers)
    }

    /// Settles and claims. Items that the settle would make available are left out, because the
    /// claim may or may not take them.
    async fn settle_and_claim(&mut self, say: &Say, take: &Take) -> (String, String) {
        let Some(mut settle) = self.resolve(say) else {
            return Default::default();
        };
        let waits = |word: &OutcomeKind| match word {
            OutcomeKind::Done | OutcomeKind::Dead => true,
            OutcomeKind::Retry(seconds) | OutcomeKind::Release(seconds) => *seconds > 0,
        };
        settle.items.retain(|(_, word)| waits(word));
        // Items with a key are left out, too, because the settle may promote others behind them.
        settle.items.retain(|(item, _)| self.keys[*item].is_none());
        let given = &self.claims[settle.claim].items;
        let has_key = given.iter().any(|item| self.keys[*item].is_some());
        if settle.rest == Rest::Release || has_key {
            settle.rest = Rest::Keep;
        }
        if self.is_ambiguous(take).await {
            return Default::default();
        }
        let skipped = self.forgotten(&settle).await;
        let claim = self.ask(take);
        let token = self.claims[settle.claim].token.clone();
        let mut answers = Vec::new();
        let mut given = None::<Held>;
        for (nth, twin) in [&mut self.one, &mut self.other].into_iter().enumerate() {
            let ask = twin.settle(&token, &settle, self.now);
            let answer = twin.world.lease().settle_and_claim(&ask, &claim).await;
            let (settlement, held) = answer.expect("settle and claim");
            if nth == 0 {
                given.clone_from(&held);
            }
            let settled = twin.settlement(&settlement, &skipped);
            // A store may read the state of a refused item before the claim or after it.
            let settled = settled.replace("(NotClaimed)", "(Lost)");
            answers.push(settled + &twin.held(Ok(held), self.way, &self.keys));
        }
        self.note_claim(&claim.token, given.as_ref());
        pair(answers)
    }

    async fn reap(&mut self, inline: bool, lapse: Lapse) -> (String, String) {
        let mut reap = Reap::new(10_000, policy(lapse)).at(self.now);
        if inline {
            reap = reap.inline();
        }
        let mut answers = Vec::new();
        for twin in [&mut self.one, &mut self.other] {
            let mut text = String::new();
            for item in twin.world.lease().reap(&reap).await.expect("reap") {
                let (number, fence) = (twin.number(item.id), twin.fence(item.fence));
                let state = (item.state, item.available_at.and_then(since_start));
                let line = (number, &item.holder, fence, item.stale, state);
                writeln!(text, "reaped {line:?}").expect("text");
            }
            answers.push(text);
        }
        pair(answers)
    }

    async fn replay(&mut self, items: &[usize]) -> (String, String) {
        if self.keys.is_empty() {
            return Default::default();
        }
        let mut named: Vec<usize> = Vec::new();
        for nth in items.iter().map(|nth| nth % self.keys.len()) {
            if !named.contains(&nth) {
                named.push(nth);
            }
        }
        let mut answers = Vec::new();
        for twin in [&self.one, &self.other] {
            let replay = Replay {
                ids: named.iter().map(|nth| twin.ids[*nth]).collect(),
                now: Some(self.now),
            };
            let answer = twin.world.operate().replay(&replay).await.expect("replay");
            let answer = answer
                .iter()
                .map(|(id, answer)| (twin.number(*id), *answer));
            answers.push(format!("replayed {:?}\n", answer.collect::<Vec<_>>()));
        }
        pair(answers)
    }

    async fn bury(&mut self, nth: usize) -> (String, String) {
        if self.keys.is_empty() {
            return Default::default();
        }
        self.buries += 1;
        let mut answers = Vec::new();
        for twin in [&self.one, &self.other] {
            let bury = Bury {
                id: twin.ids[nth % self.keys.len()],
                token: token("operator", self.buries),
                reason: "gone".into(),
                now: Some(self.now),
            };
            let answer = twin.world.operate().bury(&bury).await.expect("bury");
            answers.push(format!("buried {answer:?}\n"));
        }
        pair(answers)
    }

    /// Pauses or resumes a key; a lease table has no keys.
    async fn pause(&mut self, key: u8, pause: Pause) -> (String, String) {
        for twin in [&self.one, &self.other] {
            if let Some(outbox) = twin.world.outbox().filter(|_| self.has_keys()) {
                let answer = outbox.pause_key(&key_name(key), pause).await;
                answer.expect("pause");
            }
        }
        Default::default()
    }

    async fn skip(&mut self, key: u8) -> (String, String) {
        if !self.has_keys() {
            return Default::default();
        }
        self.buries += 1;
        let token = token("operator", self.buries);
        let skip = Skip::new(key_name(key), token, "gone").at(self.now);
        let mut answers = Vec::new();
        for twin in [&self.one, &self.other] {
            let outbox = twin.world.outbox().expect("the queue layout");
            let answer = match outbox.skip(&skip).await.expect("skip") {
                Guarded::Accepted(id) => Ok(twin.number(id)),
                Guarded::Refused(why) => Err(why),
            };
            answers.push(format!("skipped {answer:?}\n"));
        }
        pair(answers)
    }

    /// Prunes until nothing is left to delete; a lease table is not pruned.
    async fn prune(&mut self, done: u64, dead: u64) -> (String, String) {
        let mut prune = Prune::new(Duration::from_secs(done), Duration::from_secs(dead));
        prune.now = Some(self.now);
        let mut answers = Vec::new();
        for twin in [&self.one, &self.other] {
            let mut sum = (0, 0);
            while let (Way::Queue, Some(store)) = (self.way, twin.world.outbox()) {
                let pruned = store.prune(&prune).await.expect("prune");
                sum = (sum.0 + pruned.done, sum.1 + pruned.dead);
                if !pruned.more {
                    break;
                }
            }
            let counts = twin.world.operate().count(Some(self.now)).await;
            let counts = counts.expect("count");
            let mut timelines = Vec::new();
            for record in twin.records().await {
                let lines = twin.world.operate().timeline(record.id).await;
                let words = lines
                    .expect("timeline")
                    .into_iter()
                    .map(|line| line.outcome);
                timelines.push(words.collect::<Vec<_>>());
            }
            timelines.retain(|_| self.way == Way::Queue);
            let places = (counts.pending(), counts.claimed, counts.done, counts.dead);
            answers.push(format!("pruned {sum:?} {places:?} {timelines:?}\n"));
        }
        pair(answers)
    }

    fn ask(&self, take: &Take) -> Claim {
        let worker = format!("worker-{}", take.worker);
        let number = u64::try_from(self.claims.len()).expect("a script is short");
        let limit = if self.way == Way::Mixed {
            10_000
        } else {
            take.limit
        };
        let mut claim = Claim::new(token(&worker, number), limit)
            .term(term(take.seconds))
            .recovery(take.recovery.map(policy))
            .at(self.now);
        if self.has_keys() {
            claim = claim.min_parallel(take.min_parallel);
        }
        if take.alone {
            claim = claim.alone();
        }
        claim
    }

    /// Returns true if the two stores may choose different items: several items have crashed, and
    /// one store chooses by age, the other by availability.
    async fn is_ambiguous(&self, take: &Take) -> bool {
        self.way == Way::Mixed && take.alone && {
            let records = self.one.records().await;
            let lonely = |record: &&Record| record.counters.crashes > 0;
            records.iter().filter(lonely).count() > 1
        }
    }

    fn note_claim(&mut self, token: &Token, held: Option<&Held>) {
        self.claims.push(Claimed {
            token: token.clone(),
            fence: held.map(|held| held.lease.fence),
            items: held
                .map(|held| self.one.numbers(&held.ids()))
                .unwrap_or_default(),
        });
    }

    /// A settle that names each item once; `None` before the first claim.
    fn resolve(&self, say: &Say) -> Option<Resolved> {
        let claim = self.claims.len().checked_sub(1)? - say.token % self.claims.len();
        let given = &self.claims[claim].items;
        let mut items: Vec<(usize, OutcomeKind)> = Vec::new();
        let held = say.held.iter().filter_map(|(at, word)| {
            let item = given.get(at % given.len().max(1))?;
            Some((*item, *word))
        });
        let stranger = say.stranger.filter(|_| !self.keys.is_empty());
        let stranger = stranger.map(|(at, word)| (at % self.keys.len(), word));
        for (item, word) in held.chain(stranger) {
            if items.iter().all(|(known, _)| *known != item) {
                items.push((item, word));
            }
        }
        Some(Resolved {
            claim,
            items,
            rest: say.rest,
            strict: say.strict,
            on_dead: say.on_dead,
        })
    }

    /// Items for which the row layout may have forgotten the settle by this token: a row records
    /// only its last settle, until it is claimed again.
    async fn forgotten(&self, settle: &Resolved) -> BTreeSet<usize> {
        let mut items = BTreeSet::new();
        if self.way != Way::Mixed {
            return items;
        }
        let fence = self.claims[settle.claim].fence;
        for (nth, _) in &settle.items {
            let record = self.one.record(*nth).await;
            if fence.is_some() && record.hold.as_ref().map(|hold| hold.fence) == fence {
                continue;
            }
            let timeline = self.one.world.operate().timeline(record.id).await;
            let timeline = timeline.expect("timeline");
            let is_last = timeline.last().map(|line| line.fence) == fence;
            let was_ever = timeline.iter().any(|line| Some(line.fence) == fence);
            let is_replayed = record.counters.generation > 0;
            if record.state == State::Claimed || is_replayed || (was_ever && !is_last) {
                items.insert(*nth);
            }
        }
        items
    }
}

fn policy(lapse: Lapse) -> LapsePolicy {
    LapsePolicy::new(3, vec![Duration::from_secs(lapse.seconds)])
        .expect("the policy is well formed")
        .with_on_dead(lapse.on_dead)
}

fn term(seconds: u64) -> Term {
    Term::new(Duration::from_secs(seconds)).expect("the term is well formed")
}

/// The `nth` element from the end, modulo the length; `None` if there are none.
fn last<T>(all: &[T], nth: usize) -> Option<&T> {
    let back = nth % all.len().max(1);
    all.iter().rev().nth(back)
}

fn pair(mut answers: Vec<String>) -> (String, String) {
    let other = answers.pop().expect("two answers");
    (answers.pop().expect("two answers"), other)
}

//! Checkers: what must hold of every log, whatever the seed did.
//!
//! Self-defence, exactly: at each step of a handler the store holds the item for it under the fence
//! that the handler was given, and the term is not over. Two exceptions, and no others:
//!
//! - The very moment of a resume. Time moves only when every task that can run has run, so within
//!   that moment each task of the process is polled for the first time after the pause, in any
//!   order: a handler may take one step before the watchdog stops it. Afterwards none may.
//! - A bury takes an item from its live holder, who learns of it at its next renewal, at most a
//!   term later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::Reaped;
use tenure_core::{Fence, Guarded, ItemId, OnDead, Outcome, State, Word, reason};

use crate::log::{Answered, Cause, Fact, Line, Run, Sort};
use crate::order::Arrivals;
use crate::plan::Plan;
use crate::shadow::{Claimed, Said, Shadow};
use crate::world::Remains;

/// What is known of one boot of a process.
#[derive(Debug, Default)]
struct Life {
    /// When something befell it that can cost it a lease.
    harms: Vec<Duration>,
    resumed_at: Option<Duration>,
    is_paused: bool,
    is_dead: bool,
    is_stopping: bool,
    /// What it works on; whether that had lapsed twice.
    runs: BTreeMap<(ItemId, Fence), bool>,
}

struct Checker<'a> {
    plan: &'a Plan,
    shadow: Shadow,
    lives: BTreeMap<Arc<str>, Life>,
    /// When each hold's handler began, and what it said.
    begun: BTreeMap<(ItemId, Fence), Duration>,
    answers: BTreeMap<(ItemId, Fence), Answered>,
    arrivals: Arrivals,
    healed_at: Option<Duration>,
}

/// Everything that is wrong with a world; nothing is, if all is well.
pub(crate) fn check(remains: &Remains) -> Vec<String> {
    let mut checker = Checker {
        plan: &remains.plan,
        shadow: Shadow::default(),
        lives: BTreeMap::new(),
        begun: BTreeMap::new(),
        answers: BTreeMap::new(),
        arrivals: Arrivals::default(),
        healed_at: None,
    };
    for line in &remains.lines {
        checker.read(line);
    }
    let mut violations = std::mem::take(&mut checker.shadow.violations);
    violations.extend(checker.arrivals.check(&checker.shadow));
    violations.extend(end(remains, &checker.shadow));
    violations
}

impl Checker<'_> {
    fn life(&mut self, worker: &Arc<str>) -> &mut Life {
        self.lives.entry(Arc::clone(worker)).or_default()
    }

    fn read(&mut self, line: &Line) {
        match &line.fact {
            Fact::Enqueued {
                id,
                key,
                available_at,
                ..
            } => self.shadow.enqueued(*id, key.clone(), *available_at),
            Fact::Claimed {
                worker,
                token,
                fence,
                until,
                limit,
                ids,
            } => {
                let (fence, until, limit) = (*fence, *until, *limit);
                let claimed = Claimed {
                    worker,
                    token,
                    fence,
                    until,
                    limit,
                    ids,
                };
                self.shadow.claimed(line, &claimed);
            }
            Fact::Renewed {
                token,
                term,
                answer,
            } => self.shadow.renewed(line, (token, *term), *answer),
            Fact::Settled {
                token,
                items,
                rest,
                ended,
                on_dead,
            } => {
                self.settles_are_meant(line, items, token);
                let said = Said {
                    token,
                    items,
                    rest: *rest,
                    ended: *ended,
                    on_dead: *on_dead,
                };
                self.shadow.settled(line, &said);
            }
            Fact::Reaped(reaped) => self.read_reap(line, reaped),
            Fact::Skipped(key, answer) => self.shadow.skipped(line, key, *answer),
            Fact::Buried(id, token, answer) => self.shadow.buried(line, *id, token, *answer),
            Fact::Replayed(id, answer) => self.shadow.replayed(line, *id, *answer),
            Fact::Started(..) | Fact::Stepped(_) | Fact::Answered(..) | Fact::Dropped(_) => {
                self.read_run(line);
            }
            _ => self.read_life(line),
        }
    }

    fn read_reap(&mut self, line: &Line, reaped: &[Reaped]) {
        let crashed = self.shadow.crashed(reaped);
        let settings = &self.plan.settings;
        let budget = (settings.max_crashes, settings.on_dead);
        for item in reaped {
            self.lapse_is_explained(line, item.id);
            self.reap_is_prompt(line, item.stale);
            let budget = crashed.contains(&item.id).then_some(budget);
            self.shadow.reaped(line, item, budget);
        }
    }

    fn read_life(&mut self, line: &Line) {
        match &line.fact {
            Fact::Crashed(worker, _) => {
                let life = self.life(worker);
                life.is_dead = true;
                life.harms.push(line.at);
            }
            Fact::Paused(worker) => {
                let life = self.life(worker);
                life.is_paused = true;
                life.harms.push(line.at);
            }
            Fact::Resumed(worker) => {
                let life = self.life(worker);
                life.is_paused = false;
                life.resumed_at = Some(line.at);
                life.harms.push(line.at);
            }
            Fact::Slipped(worker, ..) => self.life(worker).harms.push(line.at),
            Fact::Stopping(worker) => self.life(worker).is_stopping = true,
            Fact::Stopped(worker, left) => {
                let life = self.life(worker);
                life.is_dead = true;
                if *left > 0 && life.harms.is_empty() {
                    self.shadow
                        .wrong(line, "a stop left something for no reason");
                }
            }
            Fact::Broke(..) => self.shadow.wrong(line, "an engine broke"),
            Fact::Healed => self.healed_at = Some(line.at),
            _ => {}
        }
    }

    fn read_run(&mut self, line: &Line) {
        match &line.fact {
            Fact::Started(run, crashes) => {
                self.self_defence(line, run);
                self.starts_in_turn(line, run);
                let key = (run.id, run.fence);
                if self.begun.insert(key, line.at).is_some() {
                    self.shadow.wrong(line, "two handlers under one hold");
                }
                let is_lonely = *crashes >= 2;
                let life = self.life(&run.worker);
                let has_lonely = life.runs.values().any(|is_lonely| *is_lonely);
                life.runs.insert(key, is_lonely);
                if is_lonely && has_lonely {
                    let law = "two items that lapsed twice are worked on in one process";
                    self.shadow.wrong(line, law);
                }
            }
            Fact::Stepped(run) => self.self_defence(line, run),
            Fact::Answered(run, answered) => {
                self.self_defence(line, run);
                self.answers.insert((run.id, run.fence), *answered);
                if *answered == Answered::Done {
                    self.arrivals.add(run);
                }
                self.life(&run.worker).runs.remove(&(run.id, run.fence));
            }
            Fact::Dropped(run) => {
                self.life(&run.worker).runs.remove(&(run.id, run.fence));
            }
            _ => {}
        }
    }

    /// Of a domain nothing is begun before what stands before it under the same lease has ended.
    fn starts_in_turn(&mut self, line: &Line, run: &Run) {
        let Some(key) = self.shadow.key(run.id).cloned() else {
            return;
        };
        let is_of_key = |id: &ItemId| self.shadow.key(*id) == Some(&key);
        let runs = self.lives.get(&run.worker).map(|life| &life.runs);
        let others = runs.into_iter().flat_map(BTreeMap::keys);
        let mut others = others.filter(|(id, fence)| *fence == run.fence && is_of_key(id));
        let is_alone = others.next().is_none();
        let mut grips = self.shadow.grips.values();
        let grip = grips.find(|grip| grip.fence == run.fence);
        let held = grip.into_iter().flat_map(|grip| &grip.ids);
        let mut before = held.filter(|id| **id < run.id && is_of_key(id));
        let is_next = before.all(|id| self.has_ended(*id, run.fence));
        if !is_alone {
            self.shadow
                .wrong(line, "law 1: two items of a domain are worked at once");
        }
        if !is_next {
            self.shadow
                .wrong(line, "law 7: begun before the one before it had ended");
        }
    }

    /// Whether the handler said what makes way for the next one.
    fn has_ended(&self, id: ItemId, fence: Fence) -> bool {
        let skips = self.plan.settings.on_dead == OnDead::Skip;
        match self.answers.get(&(id, fence)) {
            Some(Answered::Done) => true,
            Some(Answered::Rejected) => skips,
            Some(Answered::Failed | Answered::Panicked) => skips && self.is_spent(id),
            Some(Answered::Released) | None => false,
        }
    }

    /// Whether one more failure is the last.
    fn is_spent(&self, id: ItemId) -> bool {
        let thing = self.shadow.things.get(&id);
        let failures = thing.map_or(0, |thing| thing.counters.failures);
        failures >= self.plan.settings.max_retries
    }

    /// Whether an item before it in its domain was begun under the same lease and did not end.
    fn is_behind(&self, id: ItemId, fence: Fence) -> bool {
        let Some(key) = self.shadow.key(id) else {
            return false;
        };
        let begun = self.begun.keys();
        let mut before = begun.filter(|(before, of)| *of == fence && *before < id);
        before.any(|(before, _)| {
            self.shadow.key(*before) == Some(key) && !self.has_ended(*before, fence)
        })
    }

    fn self_defence(&mut self, line: &Line, run: &Run) {
        let life = self.life(&run.worker);
        if life.is_dead || life.is_paused {
            return self.shadow.wrong(line, "a dead or stopped process works");
        }
        if life.resumed_at == Some(line.at) {
            return;
        }
        let Some(thing) = self.shadow.things.get(&run.id) else {
            return self.shadow.wrong(line, "work on what was never written");
        };
        let grip = thing
            .holder
            .as_ref()
            .and_then(|token| self.shadow.grips.get(token));
        let is_his = grip.is_some_and(|grip| grip.fence == run.fence && line.now < grip.until);
        let term = self.plan.term_max();
        let is_buried = thing.ended.iter().any(|ended| {
            ended.fence == run.fence && ended.word == Word::Buried && line.at <= ended.at + term
        });
        if !is_his && !is_buried {
            self.shadow
                .wrong(line, "self-defence: work without a live lease");
        }
    }

    /// A settle says what the handler said, or what the engine may say by itself.
    fn settles_are_meant(
        &mut self,
        line: &Line,
        items: &[(ItemId, Outcome, Guarded)],
        token: &tenure_core::Token,
    ) {
        let Some(grip) = self.shadow.grips.get(token) else {
            return;
        };
        let fence = grip.fence;
        let life = self.lives.get(&grip.worker);
        let has_reason = life.is_some_and(|life| life.is_stopping || !life.harms.is_empty());
        let mut laws = Vec::new();
        // What was said before and is said again was judged then.
        for (id, outcome, _) in items.iter().filter(|(id, ..)| grip.ids.contains(id)) {
            let said = self.answers.get(&(*id, fence)).copied();
            let begun = self.begun.get(&(*id, fence));
            let is_overdue = begun.is_some_and(|begun| line.at >= *begun + self.plan.hold_min());
            let has_only_waited =
                begun.is_none() && line.at >= grip.claimed_at + self.plan.line_min();
            let is_spent = self.is_spent(*id);
            let goes_back = begun.is_none() && self.is_behind(*id, fence);
            let has_failed = matches!(said, Some(Answered::Failed | Answered::Panicked));
            let is_right = match outcome {
                Outcome::Done => said == Some(Answered::Done),
                Outcome::Retry { .. } => (has_failed || is_overdue) && !is_spent,
                Outcome::Dead { reason, .. } if reason == reason::REJECTED => {
                    said == Some(Answered::Rejected)
                }
                Outcome::Dead { .. } => (has_failed || is_overdue) && is_spent,
                Outcome::Release { .. } => {
                    said == Some(Answered::Released) || has_reason || has_only_waited || goes_back
                }
            };
            if !is_right {
                laws.push(format!("a settle that nobody meant, of item {id}"));
            }
        }
        for law in laws {
            self.shadow.wrong(line, &law);
        }
    }

    /// A lease lapses only when something befell its holder.
    fn lapse_is_explained(&mut self, line: &Line, id: ItemId) {
        let holder = self.shadow.things.get(&id).and_then(|t| t.holder.as_ref());
        let Some(grip) = holder.and_then(|token| self.shadow.grips.get(token)) else {
            return;
        };
        let since = grip.claimed_at.saturating_sub(self.plan.term_max() * 2);
        let life = self.lives.get(&grip.worker);
        let is_explained = life.is_some_and(|life| life.harms.iter().any(|at| *at >= since));
        if !is_explained {
            self.shadow
                .wrong(line, "a lease lapsed for no reason (unexplained repeat)");
        }
    }

    /// Once healed, nothing that lapsed waits longer than the reaper's interval and a restart.
    fn reap_is_prompt(&mut self, line: &Line, stale: Duration) {
        let interval = self.plan.term_max() / 3;
        let most = interval.max(Duration::from_secs(1)) + Duration::from_secs(3);
        let stale_since = line.at.saturating_sub(stale);
        if self.healed_at.is_some_and(|healed| stale_since > healed) && stale > most {
            self.shadow
                .wrong(line, "liveness: a lapsed lease was reaped too late");
        }
    }
}

/// What must hold in the end.
fn end(remains: &Remains, shadow: &Shadow) -> Vec<String> {
    let mut violations = Vec::new();
    if !remains.is_quiet {
        violations.push("liveness: something was never settled".to_owned());
    }
    if let Some((sum, right)) = remains.sums.iter().find(|(sum, right)| sum != right) {
        violations.push(format!("conservation: {sum} items instead of {right}"));
    }
    let there: BTreeSet<ItemId> = remains
        .records
        .iter()
        .map(|(record, _)| record.id)
        .collect();
    for id in shadow.things.keys().filter(|id| !there.contains(id)) {
        violations.push(format!("loss: item {id} is gone"));
    }
    for (record, holds) in &remains.records {
        let id = record.id;
        let Some(thing) = shadow.things.get(&id) else {
            violations.push(format!("ghost: item {id} was never written"));
            continue;
        };
        if record.state != thing.state {
            let (is, should) = (record.state, thing.state);
            violations.push(format!("item {id} is {is:?} and should be {should:?}"));
        }
        if record.counters != thing.counters {
            let (are, should) = (record.counters, thing.counters);
            violations.push(format!("counters of item {id}: {are:?}, not {should:?}"));
        }
        let told = holds
            .iter()
            .map(|hold| (hold.fence, hold.word, hold.settled_at));
        let seen = thing.ended.iter().map(|e| (e.fence, e.word, e.settled_at));
        if !told.eq(seen) {
            violations.push(format!("the timeline of item {id} is not what happened"));
        }
        if remains.is_quiet {
            violations.extend(fate(remains, record));
        }
        let fences: Vec<Fence> = holds.iter().map(|hold| hold.fence).collect();
        if fences.windows(2).any(|pair| pair[0] >= pair[1]) {
            violations.push(format!("the fences of item {id} do not rise"));
        }
    }
    violations
}

/// Each item ended as its sort must, and is dead only for a reason.
fn fate(remains: &Remains, record: &tenure_core::Record) -> Option<String> {
    let id = record.id;
    let sort = Sort::of(record.content.event().expect("only events").topic());
    let settings = &remains.plan.settings;
    let counters = record.counters;
    let why = record.dead_reason.as_deref();
    let is_harmless = !remains.lines.iter().any(|line| {
        matches!(
            line.fact,
            Fact::Crashed(_, Cause::Killed) | Fact::Paused(_) | Fact::Slipped(..)
        )
    });
    let is_right = match (record.state, why) {
        (State::Done, _) => sort == Sort::Plain,
        (State::Dead, Some(reason::BURIED)) => remains.plan.kinds.operator,
        (State::Dead, Some(reason::CRASH_LOOP)) => {
            counters.crashes == settings.max_crashes + 1
                // A neighbour of a poison item never dies with it.
                && (sort == Sort::Poison || !is_harmless)
        }
        (State::Dead, Some(reason::FAILED)) => {
            counters.failures == settings.max_retries + 1
                && (sort == Sort::Hopeless || remains.plan.is_moody)
        }
        (State::Dead, Some(reason::REJECTED)) => {
            sort == Sort::Bad || sort == Sort::Plain && remains.plan.is_moody
        }
        (State::Pending | State::Claimed | State::Dead, _) => false,
    };
    (!is_right).then(|| {
        format!(
            "item {id} ({sort:?}) is {:?}: {why:?}, {counters:?}",
            record.state
        )
    })
}

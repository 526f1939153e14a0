//! Checkers: rules that the log of every seed must obey.
//!
//! Self-defence: at each step of a handler, its item is claimed under the handler's fence, and that
//! lease is not over. There are only two exceptions:
//!
//! - The moment of a resume. Simulated time moves only when every task that can run has run. So
//!   within that moment each task of the process is polled for the first time after the pause, in
//!   any order: a handler may take one step before the watchdog stops it, but no step later.
//! - A bury takes an item from its live holder. The holder learns of it at its next renewal, at
//!   most a term later.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::Reaped;
use tenure_core::{Fence, Guarded, ItemId, OnDead, Outcome, OutcomeKind, State, reason};

use crate::arrivals::Arrivals;
use crate::log::{Answered, Cause, Fact, Line, Run, Sort};
use crate::model::{Claimed, Model, SettleFact};
use crate::plan::{Plan, Quality};
use crate::world::RunResult;

/// State of one boot of a process.
#[derive(Debug, Default)]
struct ProcessState {
    /// Times of faults that can cost it a lease.
    harms: Vec<Duration>,
    resumed_at: Option<Duration>,
    is_paused: bool,
    is_dead: bool,
    is_stopping: bool,
    /// Running items; true for those that had lapsed twice or more.
    runs: BTreeMap<(ItemId, Fence), bool>,
}

struct Checker<'a> {
    plan: &'a Plan,
    model: Model,
    processes: BTreeMap<Arc<str>, ProcessState>,
    /// Start of the handler, by item and fence.
    begun: BTreeMap<(ItemId, Fence), Duration>,
    /// Answer of the handler, by item and fence.
    answers: BTreeMap<(ItemId, Fence), Answered>,
    arrivals: Arrivals,
    healed_at: Option<Duration>,
    /// Start of the last outage.
    outage_at: Option<Duration>,
    booted_at: Duration,
}

/// All violations of a run.
pub(crate) fn check(result: &RunResult) -> Vec<String> {
    let mut checker = Checker {
        plan: &result.plan,
        model: Model::default(),
        processes: BTreeMap::new(),
        begun: BTreeMap::new(),
        answers: BTreeMap::new(),
        arrivals: Arrivals::default(),
        healed_at: None,
        outage_at: None,
        booted_at: Duration::ZERO,
    };
    for line in &result.lines {
        checker.read(line);
    }
    let mut violations = std::mem::take(&mut checker.model.violations);
    violations.extend(checker.arrivals.check(&checker.model));
    violations.extend(end(result, &checker.model));
    violations
}

impl Checker<'_> {
    fn process(&mut self, worker: &Arc<str>) -> &mut ProcessState {
        self.processes.entry(Arc::clone(worker)).or_default()
    }

    fn read(&mut self, line: &Line) {
        match &line.fact {
            Fact::Enqueued {
                id,
                key,
                available_at,
                ..
            } => self.model.enqueued(*id, key.clone(), *available_at),
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
                self.model.claimed(line, &claimed);
            }
            Fact::Renewed {
                token,
                term,
                answer,
            } => self.model.renewed(line, (token, *term), *answer),
            Fact::Settled {
                token,
                items,
                rest,
                ended,
                on_dead,
            } => {
                self.settles_match_answers(line, items, token);
                let settle = SettleFact {
                    token,
                    items,
                    rest: *rest,
                    ended: *ended,
                    on_dead: *on_dead,
                };
                self.model.settled(line, &settle);
            }
            Fact::Reaped(reaped) => self.read_reap(line, reaped),
            Fact::Skipped(key, answer) => self.model.skipped(line, key, *answer),
            Fact::Buried(id, token, answer) => self.model.buried(line, *id, token, *answer),
            Fact::Replayed(id, answer) => self.model.replayed(line, *id, *answer),
            Fact::Started(..) | Fact::Stepped(_) | Fact::Answered(..) | Fact::Dropped(_) => {
                self.read_run(line);
            }
            _ => self.read_life(line),
        }
    }

    fn read_reap(&mut self, line: &Line, reaped: &[Reaped]) {
        let crashed = self.model.crashed(reaped);
        let settings = &self.plan.settings;
        let budget = (settings.max_crashes, settings.on_dead);
        for item in reaped {
            self.lapse_has_cause(line, item.id);
            self.reap_is_prompt(line, item.stale);
            if crashed.contains(&item.id) {
                self.crash_is_no_outage(line, item);
            }
            let budget = crashed.contains(&item.id).then_some(budget);
            self.model.reaped(line, item, budget);
        }
    }

    fn read_life(&mut self, line: &Line) {
        match &line.fact {
            Fact::Crashed(worker, _) => {
                let process = self.process(worker);
                process.is_dead = true;
                process.harms.push(line.at);
            }
            Fact::Paused(worker) => {
                let process = self.process(worker);
                process.is_paused = true;
                process.harms.push(line.at);
            }
            Fact::Resumed(worker) => {
                let process = self.process(worker);
                process.is_paused = false;
                process.resumed_at = Some(line.at);
                process.harms.push(line.at);
            }
            Fact::Slipped(worker, ..) => self.process(worker).harms.push(line.at),
            Fact::Stopping(worker) => self.process(worker).is_stopping = true,
            Fact::Stopped(worker, left) => {
                let process = self.process(worker);
                process.is_dead = true;
                if *left > 0 && process.harms.is_empty() {
                    self.model
                        .violation(line, "a stop without a fault left items");
                }
            }
            Fact::Broke(..) => self.model.violation(line, "an engine panicked or spun"),
            Fact::Healed => self.healed_at = Some(line.at),
            Fact::OutageBegan => self.outage_at = Some(line.at),
            Fact::Booted(_) => self.booted_at = line.at,
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
                    self.model.violation(line, "two handlers under one claim");
                }
                let is_lonely = *crashes >= 2;
                let process = self.process(&run.worker);
                let has_lonely = process.runs.values().any(|is_lonely| *is_lonely);
                process.runs.insert(key, is_lonely);
                if is_lonely && has_lonely {
                    let law = "two items that lapsed twice are worked on in one process";
                    self.model.violation(line, law);
                }
            }
            Fact::Stepped(run) => self.self_defence(line, run),
            Fact::Answered(run, answered) => {
                self.self_defence(line, run);
                self.answers.insert((run.id, run.fence), *answered);
                if *answered == Answered::Done {
                    self.arrivals.add(run);
                }
                self.process(&run.worker).runs.remove(&(run.id, run.fence));
            }
            Fact::Dropped(run) => {
                self.process(&run.worker).runs.remove(&(run.id, run.fence));
            }
            _ => {}
        }
    }

    /// Checks that an item starts after the earlier items of its key under the same lease ended.
    fn starts_in_turn(&mut self, line: &Line, run: &Run) {
        let Some(key) = self.model.key(run.id).cloned() else {
            return;
        };
        let is_of_key = |id: &ItemId| self.model.key(*id) == Some(&key);
        let runs = self.processes.get(&run.worker).map(|process| &process.runs);
        let others = runs.into_iter().flat_map(BTreeMap::keys);
        let mut others = others.filter(|(id, fence)| *fence == run.fence && is_of_key(id));
        let is_alone = others.next().is_none();
        let mut leases = self.model.leases.values();
        let lease = leases.find(|lease| lease.fence == run.fence);
        let held = lease.into_iter().flat_map(|lease| &lease.ids);
        let mut before = held.filter(|id| **id < run.id && is_of_key(id));
        let is_next = before.all(|id| self.has_ended(*id, run.fence));
        if !is_alone {
            self.model
                .violation(line, "law 1: two items of a key are worked on at once");
        }
        if !is_next {
            self.model
                .violation(line, "law 7: begun before an earlier item had ended");
        }
    }

    /// Returns true if the handler's answer lets the next item of the key start.
    fn has_ended(&self, id: ItemId, fence: Fence) -> bool {
        let skips = self.plan.settings.on_dead == OnDead::Skip;
        match self.answers.get(&(id, fence)) {
            Some(Answered::Done) => true,
            Some(Answered::Rejected) => skips,
            Some(Answered::Failed | Answered::Panicked) => skips && self.is_spent(id),
            Some(Answered::Released) | None => false,
        }
    }

    /// Returns true if the next failure of the item is final.
    fn is_spent(&self, id: ItemId) -> bool {
        let item = self.model.items.get(&id);
        let failures = item.map_or(0, |item| item.counters.failures);
        failures >= self.plan.settings.max_retries
    }

    /// Returns true if an earlier item of its key started under the same lease and has not freed
    /// the key for the next item.
    fn is_behind(&self, id: ItemId, fence: Fence) -> bool {
        let Some(key) = self.model.key(id) else {
            return false;
        };
        let begun = self.begun.keys();
        let mut before = begun.filter(|(before, of)| *of == fence && *before < id);
        before.any(|(before, _)| {
            self.model.key(*before) == Some(key) && !self.has_ended(*before, fence)
        })
    }

    fn self_defence(&mut self, line: &Line, run: &Run) {
        let process = self.process(&run.worker);
        if process.is_dead || process.is_paused {
            return self.model.violation(line, "a dead or paused process works");
        }
        if process.resumed_at == Some(line.at) {
            return;
        }
        let Some(item) = self.model.items.get(&run.id) else {
            return self
                .model
                .violation(line, "work on an item that was never written");
        };
        let lease = item
            .holder
            .as_ref()
            .and_then(|token| self.model.leases.get(token));
        let is_held = lease.is_some_and(|lease| lease.fence == run.fence && line.now < lease.until);
        let term = self.plan.term_max();
        let is_buried = item.past_holds.iter().any(|past| {
            past.fence == run.fence
                && past.outcome == OutcomeKind::Buried
                && line.at <= past.at + term
        });
        if !is_held && !is_buried {
            self.model
                .violation(line, "self-defence: work without a live lease");
        }
    }

    /// Checks that a settle matches the handler's answer, or that the engine may decide it itself.
    fn settles_match_answers(
        &mut self,
        line: &Line,
        items: &[(ItemId, Outcome, Guarded)],
        token: &tenure_core::Token,
    ) {
        let Some(lease) = self.model.leases.get(token) else {
            return;
        };
        let fence = lease.fence;
        let process = self.processes.get(&lease.worker);
        let has_reason =
            process.is_some_and(|process| process.is_stopping || !process.harms.is_empty());
        let mut laws = Vec::new();
        // Items that were settled before were checked the first time.
        for (id, outcome, _) in items.iter().filter(|(id, ..)| lease.ids.contains(id)) {
            let answer = self.answers.get(&(*id, fence)).copied();
            let begun = self.begun.get(&(*id, fence));
            let is_overdue = begun.is_some_and(|begun| line.at >= *begun + self.plan.hold_min());
            let has_only_waited =
                begun.is_none() && line.at >= lease.claimed_at + self.plan.unstarted_min();
            let is_spent = self.is_spent(*id);
            let goes_back = begun.is_none() && self.is_behind(*id, fence);
            let has_failed = matches!(answer, Some(Answered::Failed | Answered::Panicked));
            let is_right = match outcome {
                Outcome::Done => answer == Some(Answered::Done),
                Outcome::Retry { .. } => (has_failed || is_overdue) && !is_spent,
                Outcome::Dead { reason, .. } if reason == reason::REJECTED => {
                    answer == Some(Answered::Rejected)
                }
                Outcome::Dead { .. } => (has_failed || is_overdue) && is_spent,
                Outcome::Release { .. } => {
                    answer == Some(Answered::Released) || has_reason || has_only_waited || goes_back
                }
            };
            if !is_right {
                laws.push(format!("the settle of item {id} does not fit its handler"));
            }
        }
        for law in laws {
            self.model.violation(line, &law);
        }
    }

    /// Checks that a lease lapses only after a fault of its holder.
    fn lapse_has_cause(&mut self, line: &Line, id: ItemId) {
        let holder = self.model.items.get(&id).and_then(|t| t.holder.as_ref());
        let Some(lease) = holder.and_then(|token| self.model.leases.get(token)) else {
            return;
        };
        let since = lease.claimed_at.saturating_sub(self.plan.term_max() * 2);
        let process = self.processes.get(&lease.worker);
        let is_explained =
            process.is_some_and(|process| process.harms.iter().any(|at| *at >= since));
        if !is_explained {
            self.model
                .violation(line, "a lease lapsed without a fault of its holder");
        }
    }

    /// Checks that an outage alone does not count as a crash of an item that no handler had begun.
    /// A process that started after the outage began does not know that holders need time.
    fn crash_is_no_outage(&mut self, line: &Line, item: &Reaped) {
        let kinds = self.plan.kinds;
        let has_others = kinds.crashes || kinds.pauses || kinds.cuts || kinds.deploys;
        let is_known = self.outage_at.is_some_and(|began| self.booted_at < began);
        if has_others || !is_known || self.plan.quality != Quality::Clear {
            return;
        }
        let holder = self
            .model
            .items
            .get(&item.id)
            .and_then(|t| t.holder.as_ref());
        let Some(lease) = holder.and_then(|token| self.model.leases.get(token)) else {
            return;
        };
        let is_begun = self.begun.contains_key(&(item.id, lease.fence));
        let process = self.processes.get(&lease.worker);
        let is_alive = process.is_some_and(|process| !process.is_dead && !process.is_stopping);
        if is_alive && !is_begun {
            let law = "outage: an item that no handler had begun has crashed";
            self.model.violation(line, law);
        }
    }

    /// Checks that, after the faults, a lapsed lease waits at most a reaper interval and a restart.
    fn reap_is_prompt(&mut self, line: &Line, stale: Duration) {
        let interval = self.plan.term_max() / 3;
        let most = interval.max(Duration::from_secs(1)) + Duration::from_secs(3);
        let stale_since = line.at.saturating_sub(stale);
        if self.healed_at.is_some_and(|healed| stale_since > healed) && stale > most {
            self.model
                .violation(line, "liveness: a lapsed lease was reaped too late");
        }
    }
}

/// Rules about the final state.
fn end(result: &RunResult, model: &Model) -> Vec<String> {
    let mut violations = Vec::new();
    if !result.is_quiet {
        violations.push("liveness: an item was never settled".to_owned());
    }
    if let Some((sum, right)) = result.sums.iter().find(|(sum, right)| sum != right) {
        violations.push(format!("conservation: {sum} items instead of {right}"));
    }
    let there: BTreeSet<ItemId> = result.records.iter().map(|(record, _)| record.id).collect();
    for id in model.items.keys().filter(|id| !there.contains(id)) {
        violations.push(format!("loss: item {id} is gone"));
    }
    for (record, holds) in &result.records {
        let id = record.id;
        let Some(item) = model.items.get(&id) else {
            violations.push(format!("ghost: item {id} was never written"));
            continue;
        };
        if record.state != item.state {
            let (is, should) = (record.state, item.state);
            violations.push(format!("item {id} is {is:?} and should be {should:?}"));
        }
        if record.counters != item.counters {
            let (are, should) = (record.counters, item.counters);
            violations.push(format!("counters of item {id}: {are:?}, not {should:?}"));
        }
        let stored = holds
            .iter()
            .map(|hold| (hold.fence, hold.outcome, hold.settled_at));
        let expected = item
            .past_holds
            .iter()
            .map(|e| (e.fence, e.outcome, e.settled_at));
        if !stored.eq(expected) {
            violations.push(format!("the timeline of item {id} differs from the log"));
        }
        if result.is_quiet {
            violations.extend(fate(result, record));
        }
        let fences: Vec<Fence> = holds.iter().map(|hold| hold.fence).collect();
        if fences.windows(2).any(|pair| pair[0] >= pair[1]) {
            violations.push(format!("the fences of item {id} do not rise"));
        }
    }
    violations
}

/// Checks that each item has the final state that its behaviour demands, and is dead only for a
/// reason.
fn fate(result: &RunResult, record: &tenure_core::Record) -> Option<String> {
    let id = record.id;
    let sort = Sort::of(record.content.event().expect("only events").topic());
    let settings = &result.plan.settings;
    let counters = record.counters;
    let why = record.dead_reason.as_deref();
    let is_harmless = !result.lines.iter().any(|line| {
        matches!(
            line.fact,
            Fact::Crashed(_, Cause::Killed) | Fact::Paused(_) | Fact::Slipped(..)
        )
    });
    let is_right = match (record.state, why) {
        (State::Done, _) => sort == Sort::Plain,
        (State::Dead, Some(reason::BURIED)) => result.plan.kinds.operator,
        (State::Dead, Some(reason::CRASH_LOOP)) => {
            counters.crashes == settings.max_crashes + 1
                // A poison item never makes its neighbours dead.
                && (sort == Sort::Poison || !is_harmless)
        }
        (State::Dead, Some(reason::FAILED)) => {
            counters.failures == settings.max_retries + 1
                && (sort == Sort::Hopeless || result.plan.is_flaky)
        }
        (State::Dead, Some(reason::REJECTED)) => {
            sort == Sort::Bad || sort == Sort::Plain && result.plan.is_flaky
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

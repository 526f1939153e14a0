//! Bulk replays.

use std::ops::Bound::{Excluded, Included};
use std::time::Duration;

use tenure_core::store::{
    Answer, NewReplay, ProvidesReplays, ReplayOperation, ReplayState, Replays, StepReplay, Stepped,
};
use tenure_core::{Guarded, ItemId, Refusal, Timestamp};

use super::operate::is_asked_for;
use super::rules::Rules;
use super::{MemoryState, MemoryStore};
use crate::messages::unknown_queue;
use crate::replay_step::{Progress, stepped};

impl tenure_core::store::ProvidesJobs for MemoryStore {}

impl ProvidesReplays for MemoryStore {
    fn replay_operations(&self) -> &dyn Replays {
        self
    }
}

impl Replays for MemoryStore {
    fn start_replay<'a>(&'a self, replay: &'a NewReplay) -> Answer<'a, ReplayOperation> {
        Box::pin(async move {
            let now = self.moment(replay.now);
            let mut state = self.state();
            match &replay.filter().queue {
                Some(queue) if !state.queues.contains_key(queue) => {
                    Err(unknown_queue("start replay", queue))
                }
                _ => Ok(state.start_replay(replay, now)),
            }
        })
    }

    fn step_replay<'a>(&'a self, step: &'a StepReplay) -> Answer<'a, Stepped> {
        Box::pin(async move {
            let now = self.moment(step.now);
            Ok(self.state().step_replay(step, &self.rules, now))
        })
    }

    fn replays(&self, limit: u32) -> Answer<'_, Vec<ReplayOperation>> {
        Box::pin(async move {
            let limit = usize::try_from(limit).unwrap_or(usize::MAX);
            let state = self.state();
            Ok(state.replays.values().rev().take(limit).cloned().collect())
        })
    }

    fn replay_operation(&self, id: u64) -> Answer<'_, Option<ReplayOperation>> {
        Box::pin(async move { Ok(self.state().replays.get(&id).cloned()) })
    }

    fn cancel_replay(
        &self,
        id: u64,
        now: Option<Timestamp>,
    ) -> Answer<'_, Guarded<ReplayOperation>> {
        Box::pin(async move {
            let now = self.moment(now);
            let mut state = self.state();
            Ok(match state.replays.get_mut(&id) {
                None => Guarded::Refused(Refusal::NotFound),
                Some(operation) if !operation.is_running() => {
                    Guarded::Refused(Refusal::AlreadySettled)
                }
                Some(operation) => {
                    operation.state = ReplayState::Cancelled;
                    operation.ended_at = Some(now);
                    Guarded::Accepted(operation.clone())
                }
            })
        })
    }
}

impl MemoryState {
    fn start_replay(&mut self, replay: &NewReplay, now: Timestamp) -> ReplayOperation {
        let kept_since = now.before(ReplayOperation::RETENTION_MIN);
        let last_id = self.replays.last_key_value().map_or(0, |(id, _)| *id);
        self.replays
            .retain(|_, old| old.ended_at.is_none_or(|ended| ended >= kept_since));
        let (behind, last) = replay.span();
        let newest = span(behind, last).and_then(|ids| self.items.range(ids).next_back());
        let mut filter = replay.filter().clone();
        filter.before = None;
        let operation = ReplayOperation {
            id: last_id + 1,
            filter,
            rate: replay.rate,
            expected: replay.expected,
            reached: behind,
            last: newest.map_or(behind, |(id, _)| *id),
            replayed: 0,
            refused: 0,
            state: ReplayState::Running,
            created_at: now,
            next_at: now,
            ended_at: None,
        };
        self.replays.insert(operation.id, operation.clone());
        operation
    }

    fn step_replay(&mut self, step: &StepReplay, rules: &Rules, now: Timestamp) -> Stepped {
        let asked = |operation: &&ReplayOperation| {
            operation.is_running() && step.only.is_none_or(|only| operation.id == only)
        };
        let first = |operation: &&ReplayOperation| (operation.next_at, operation.id);
        let running = self.replays.values().filter(asked);
        let due = running.filter(|operation| operation.next_at <= now);
        let due = due.min_by_key(first).cloned();
        let taken = due.as_ref().map(|operation| operation.id);
        let others = self.replays.values().filter(asked);
        let others = others.filter(|operation| Some(operation.id) != taken);
        let others: Option<Duration> = others.map(|other| other.next_at.since(now)).min();
        let Some(mut operation) = due else {
            return Stepped {
                operation: None,
                next_in: others,
            };
        };
        let size = operation.step(step.limit);
        let found = self.to_replay(&operation, size);
        let put_back = found.iter();
        let put_back = put_back.filter(|id| self.replay(**id, rules, now).is_accepted());
        let replayed = put_back.count();
        let progress = Progress::new(&operation, (&found, size), operation.last, replayed);
        operation.reached = progress.reached;
        operation.replayed += u64::from(progress.replayed);
        operation.refused += u64::from(progress.refused);
        operation.next_at = now.after(progress.wait);
        if progress.is_all {
            operation.state = ReplayState::Done;
            operation.ended_at = Some(now);
        }
        self.replays.insert(operation.id, operation.clone());
        stepped(operation, progress.wait, others)
    }

    /// Returns the next items that the operation replays.
    fn to_replay(&self, operation: &ReplayOperation, size: u32) -> Vec<ItemId> {
        let Some(ids) = span(operation.reached, operation.last) else {
            return Vec::new();
        };
        let matching = self.items.range(ids);
        let matching = matching.filter(|(id, kept)| is_asked_for(&operation.filter, **id, kept));
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        matching.map(|(id, _)| *id).take(size).collect()
    }
}

/// Returns the range after the first id up to the last; `None` if it is empty.
fn span(
    behind: ItemId,
    last: ItemId,
) -> Option<(std::ops::Bound<ItemId>, std::ops::Bound<ItemId>)> {
    (behind < last).then_some((Excluded(behind), Included(last)))
}

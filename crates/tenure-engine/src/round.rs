//! Round: the order in which a worker polls its queues. A round polls each group of queues once.
//! Every second round of an idle worker, and every eighth round of a busy one, also polls for items
//! that must run isolated. The queues rotate, so that no queue starves the others.

use tenure_core::store::Isolation;
use tenure_core::{LeaseTiming, QueueName};

/// Interval, in rounds, of polls for isolated items while the worker is busy.
const ISOLATED_ROUND: u64 = 8;
/// The same for an idle worker. Isolated items have waited for a second or more since their lease
/// lapsed, so every second round is enough and saves a statement in the others.
const IDLE_ISOLATED_ROUND: u64 = 2;

/// Queues with the same lease timing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct QueueGroup {
    pub(crate) timing: LeaseTiming,
    pub(crate) queues: Vec<QueueName>,
}

/// Queues and isolation of one claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ClaimTarget {
    pub(crate) timing: LeaseTiming,
    pub(crate) queues: Vec<QueueName>,
    pub(crate) isolation: Isolation,
}

/// Progress of a worker through its round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Rounds started.
    rounds: u64,
    /// Remaining polls of this round, in reverse order.
    ahead: Vec<(usize, Isolation)>,
    has_work: bool,
}

/// State of the worker that decides what to poll.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RoundInput {
    /// The worker has capacity for an isolated item.
    pub(crate) has_isolated_room: bool,
    /// Recent claims were empty.
    pub(crate) is_idle: bool,
}

impl Round {
    /// Returns the next poll; starts a new round when this one is over. `None` when there are no
    /// queues.
    pub(crate) fn next(&mut self, groups: &[QueueGroup], input: RoundInput) -> Option<ClaimTarget> {
        // The remaining polls may be skipped; then the next round starts.
        self.pull(groups, input).or_else(|| {
            self.begin(groups.len(), input);
            self.pull(groups, input)
        })
    }

    fn pull(&mut self, groups: &[QueueGroup], input: RoundInput) -> Option<ClaimTarget> {
        while let Some((nth, isolation)) = self.ahead.pop() {
            if isolation == Isolation::Isolated && (self.has_work || !input.has_isolated_room) {
                continue;
            }
            // The groups may have changed since the round began.
            if let Some(group) = groups.get(nth) {
                return Some(self.target(group, isolation));
            }
        }
        None
    }

    fn begin(&mut self, groups: usize, input: RoundInput) {
        self.rounds = self.rounds.wrapping_add(1);
        self.has_work = false;
        let polls = |isolation| (0..groups).rev().map(move |nth| (nth, isolation));
        let is_isolated_round = self.rounds.is_multiple_of(ISOLATED_ROUND);
        let is_idle_round = input.is_idle && self.rounds.is_multiple_of(IDLE_ISOLATED_ROUND);
        let mut ahead = Vec::new();
        if input.has_isolated_room && is_idle_round && !is_isolated_round {
            ahead.extend(polls(Isolation::Isolated));
        }
        ahead.extend(polls(Isolation::Shared));
        if input.has_isolated_room && is_isolated_round {
            ahead.extend(polls(Isolation::Isolated));
        }
        self.ahead = ahead;
    }

    fn target(&self, group: &QueueGroup, isolation: Isolation) -> ClaimTarget {
        let mut queues = group.queues.clone();
        let shift = usize::try_from(self.rounds).unwrap_or(0) % queues.len().max(1);
        queues.rotate_left(shift);
        ClaimTarget {
            timing: group.timing,
            queues,
            isolation,
        }
    }

    /// Records that a claim of this round brought items.
    pub(crate) fn record_work(&mut self) {
        self.has_work = true;
    }

    /// Returns true if the round is over and brought nothing.
    pub(crate) fn is_without_work(&self) -> bool {
        self.ahead.is_empty() && !self.has_work
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Settings;

    use super::*;

    fn groups(names: &[&[&str]]) -> Vec<QueueGroup> {
        let group = |queues: &&[&str]| QueueGroup {
            timing: Settings::default().timing(),
            queues: queues
                .iter()
                .map(|name| QueueName::new(name).unwrap())
                .collect(),
        };
        names.iter().map(group).collect()
    }

    #[test]
    fn every_queue_is_polled_first_equally_often() {
        let groups = groups(&[&["a", "b", "c"]]);
        let input = RoundInput {
            has_isolated_room: true,
            is_idle: false,
        };
        let mut round = Round::default();
        let mut first = std::collections::BTreeMap::new();
        for _ in 0..24 {
            let target = round.next(&groups, input).unwrap();
            *first.entry(target.queues[0].to_string()).or_insert(0) += 1;
            assert_eq!(target.queues.len(), 3);
        }
        assert!(first.values().all(|times| *times >= 7), "{first:?}");
    }

    #[test]
    fn isolated_items_are_polled_in_every_second_round_if_idle_otherwise_in_every_eighth() {
        let groups = groups(&[&["a"]]);
        let busy = RoundInput {
            has_isolated_room: true,
            is_idle: false,
        };
        let mut round = Round::default();
        let isolated = |target: &ClaimTarget| target.isolation == Isolation::Isolated;
        let polls: Vec<ClaimTarget> = (0..18)
            .map(|_| round.next(&groups, busy).unwrap())
            .collect();
        assert_eq!(polls.iter().filter(|target| isolated(target)).count(), 2);

        let idle = RoundInput {
            is_idle: true,
            ..busy
        };
        let mut round = Round::default();
        assert!(!isolated(&round.next(&groups, idle).unwrap()), "round 1");
        assert!(!isolated(&round.next(&groups, idle).unwrap()), "round 2");
        assert!(isolated(&round.next(&groups, idle).unwrap()));
        assert!(round.is_without_work());
        assert!(!isolated(&round.next(&groups, idle).unwrap()), "round 3");
        assert!(!isolated(&round.next(&groups, idle).unwrap()));
        round.record_work();
        assert!(
            !isolated(&round.next(&groups, idle).unwrap()),
            "after work, a new round starts without the isolated poll"
        );
        let full = RoundInput {
            has_isolated_room: false,
            ..idle
        };
        assert!((0..32).all(|_| !isolated(&round.next(&groups, full).unwrap())));
    }
}

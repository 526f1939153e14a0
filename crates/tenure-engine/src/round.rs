//! Round: in what order a worker looks for work. A round looks at each group of queues once; when
//! nothing is found and the worker is idle, each second one also looks for items that must be
//! worked alone; so does each eighth. The queues take turns at being first, so none starves the
//! others.

use std::sync::Arc;

use tenure_core::store::Company;
use tenure_core::{QueueName, Rhythm};

/// Of this many rounds one also looks for items that must be worked alone, however busy it is.
const ALONE_TURN: u64 = 8;
/// Of this many rounds of an idle worker one looks for them: they have waited for a second or more
/// since their lease lapsed, and a look each second round is one statement less per second.
const IDLE_TURN: u64 = 2;

/// Queues whose leases are kept alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) rhythm: Rhythm,
    pub(crate) queues: Vec<QueueName>,
}

/// One look: which queues, and for which items.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Look {
    pub(crate) rhythm: Rhythm,
    pub(crate) queues: Vec<QueueName>,
    pub(crate) company: Company,
}

/// Where a worker is in its round.
#[derive(Debug, Default)]
pub(crate) struct Round {
    /// Rounds begun.
    turn: u64,
    /// Looks of this one that are still to come, the last one first.
    ahead: Vec<(usize, Company)>,
    has_found: bool,
}

/// What a worker may look for just now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    /// Whether it has room for an item that must be worked alone.
    pub(crate) is_free_for_alone: bool,
    /// Whether it has found nothing for a while.
    pub(crate) is_idle: bool,
}

impl Round {
    /// The next look; a new round begins when this one is over. `None` when there are no queues.
    pub(crate) fn next(&mut self, groups: &Arc<[Group]>, wish: Wish) -> Option<Look> {
        // What is left of a round may be passed over; then the next one begins.
        self.pull(groups, wish).or_else(|| {
            self.begin(groups.len(), wish);
            self.pull(groups, wish)
        })
    }

    fn pull(&mut self, groups: &Arc<[Group]>, wish: Wish) -> Option<Look> {
        while let Some((nth, company)) = self.ahead.pop() {
            if company == Company::Alone && (self.has_found || !wish.is_free_for_alone) {
                continue;
            }
            // The groups may have changed since the round began.
            if let Some(group) = groups.get(nth) {
                return Some(self.look(group, company));
            }
        }
        None
    }

    fn begin(&mut self, groups: usize, wish: Wish) {
        self.turn = self.turn.wrapping_add(1);
        self.has_found = false;
        let looks = |company| (0..groups).rev().map(move |nth| (nth, company));
        let is_turn = self.turn.is_multiple_of(ALONE_TURN);
        let is_idle_turn = wish.is_idle && self.turn.is_multiple_of(IDLE_TURN);
        let mut ahead = Vec::new();
        if wish.is_free_for_alone && is_idle_turn && !is_turn {
            ahead.extend(looks(Company::Alone));
        }
        ahead.extend(looks(Company::Together));
        if wish.is_free_for_alone && is_turn {
            ahead.extend(looks(Company::Alone));
        }
        self.ahead = ahead;
    }

    fn look(&self, group: &Group, company: Company) -> Look {
        let mut queues = group.queues.clone();
        let shift = usize::try_from(self.turn).unwrap_or(0) % queues.len().max(1);
        queues.rotate_left(shift);
        Look {
            rhythm: group.rhythm,
            queues,
            company,
        }
    }

    /// A look found something.
    pub(crate) fn found(&mut self) {
        self.has_found = true;
    }

    /// Whether the round is over and nothing was found in it.
    pub(crate) fn is_fruitless(&self) -> bool {
        self.ahead.is_empty() && !self.has_found
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::Settings;

    use super::*;

    fn groups(names: &[&[&str]]) -> Arc<[Group]> {
        let group = |queues: &&[&str]| Group {
            rhythm: Settings::default().rhythm(),
            queues: queues
                .iter()
                .map(|name| QueueName::new(name).unwrap())
                .collect(),
        };
        names.iter().map(group).collect()
    }

    #[test]
    fn every_queue_is_first_in_its_turn() {
        let groups = groups(&[&["a", "b", "c"]]);
        let wish = Wish {
            is_free_for_alone: true,
            is_idle: false,
        };
        let mut round = Round::default();
        let mut first = std::collections::BTreeMap::new();
        for _ in 0..24 {
            let look = round.next(&groups, wish).unwrap();
            *first.entry(look.queues[0].to_string()).or_insert(0) += 1;
            assert_eq!(look.queues.len(), 3);
        }
        assert!(first.values().all(|times| *times >= 7), "{first:?}");
    }

    #[test]
    fn lone_items_are_looked_for_when_idle_and_at_every_eighth_round() {
        let groups = groups(&[&["a"]]);
        let busy = Wish {
            is_free_for_alone: true,
            is_idle: false,
        };
        let mut round = Round::default();
        let alone = |look: &Look| look.company == Company::Alone;
        let looks: Vec<Look> = (0..18)
            .map(|_| round.next(&groups, busy).unwrap())
            .collect();
        assert_eq!(looks.iter().filter(|look| alone(look)).count(), 2);

        let idle = Wish {
            is_idle: true,
            ..busy
        };
        let mut round = Round::default();
        assert!(!alone(&round.next(&groups, idle).unwrap()), "the first");
        assert!(!alone(&round.next(&groups, idle).unwrap()), "the second");
        assert!(alone(&round.next(&groups, idle).unwrap()));
        assert!(round.is_fruitless());
        assert!(!alone(&round.next(&groups, idle).unwrap()), "the third");
        assert!(!alone(&round.next(&groups, idle).unwrap()));
        round.found();
        assert!(
            !alone(&round.next(&groups, idle).unwrap()),
            "found something: a new round"
        );
        let full = Wish {
            is_free_for_alone: false,
            ..idle
        };
        assert!((0..32).all(|_| !alone(&round.next(&groups, full).unwrap())));
    }
}

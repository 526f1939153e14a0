//! Order by key: which keys there are, who enqueued what when, and whether it ended in that order.

use std::collections::BTreeMap;

use tenure_core::{Event, ItemId, Priority};
use tokio::time::Instant;

use super::crew::Dice;

/// Which keys the events of a run have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    /// None, one of few that are busy, or one of many.
    Mixed,
}

impl Keys {
    /// A key, if there are any.
    pub(super) fn any(self, dice: &mut Dice) -> Option<String> {
        if self == Self::None {
            return None;
        }
        Some(match dice.below(3) {
            0 => format!("cold-{}", dice.below(40)),
            _ => format!("hot-{}", dice.below(3)),
        })
    }

    /// All keys that there can be.
    pub(super) fn all(self) -> Vec<String> {
        if self == Self::None {
            return Vec::new();
        }
        let hot = (0..3).map(|nth| format!("hot-{nth}"));
        hot.chain((0..40).map(|nth| format!("cold-{nth}")))
            .collect()
    }

    /// An event with one of them or none; strict at times, and at times more urgent.
    pub(super) fn event(self, dice: &mut Dice) -> Event {
        let mut event = Event::from_json("order.paid", "1").expect("the event is well formed");
        if dice.below(8) == 0 && self == Self::Mixed {
            event = event.priority(Priority::MAX);
        }
        let Some(key) = self.any(dice).filter(|_| dice.below(3) > 0) else {
            return event;
        };
        let event = event.key(&key).expect("the key is well formed");
        if dice.below(4) == 0 {
            event.strict()
        } else {
            event
        }
    }
}

/// An event that was enqueued, and when: its transaction began and ended between the two moments.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) id: ItemId,
    pub(super) key: Option<String>,
    is_strict: bool,
    began: Instant,
    ended: Instant,
}

impl Sent {
    /// What was enqueued in one call, which has been answered this moment.
    pub(super) fn of(
        events: &[Event],
        ids: impl Iterator<Item = ItemId>,
        began: Instant,
    ) -> Vec<Self> {
        let ended = Instant::now();
        let sent = |(event, id): (&Event, ItemId)| Self {
            id,
            key: event.ordering_key().map(str::to_owned),
            is_strict: event.is_strict(),
            began,
            ended,
        };
        events.iter().zip(ids).map(sent).collect()
    }

    /// Whether this one must end before the other one of its key: it was there before the other one
    /// began, or they came together in this order, or both were strict.
    fn is_before(&self, other: &Self) -> bool {
        let is_together = (self.began, self.ended) == (other.began, other.ended);
        self.ended < other.began
            || (self.id < other.id && (is_together || self.is_strict && other.is_strict))
    }
}

/// How an event ended that was never replayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// In microseconds.
    pub(super) at: i64,
    /// An operator's bury does not wait for its turn.
    pub(super) is_buried: bool,
}

/// What did not end in the order in which it was enqueued.
pub(super) fn out_of_order(sent: &[Sent], ends: &BTreeMap<ItemId, End>) -> Vec<String> {
    let mut faults = Vec::new();
    for later in sent {
        let Some(end) = ends.get(&later.id).filter(|end| !end.is_buried) else {
            continue;
        };
        for earlier in sent.iter().filter(|other| other.key == later.key) {
            let first = ends.get(&earlier.id);
            if earlier.is_before(later) && first.is_some_and(|first| first.at > end.at) {
                let key = later.key.as_deref().unwrap_or_default();
                faults.push(format!("{key}: {} ended before {}", later.id, earlier.id));
            }
        }
    }
    faults
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_ends_out_of_order_is_noticed() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let sent = |id, began, ended, is_strict| Sent {
            id: ItemId::new(id),
            key: Some("a".into()),
            is_strict,
            began: at(began),
            ended: at(ended),
        };
        let ends = |moments: [i64; 2]| -> BTreeMap<ItemId, End> {
            let end = |(id, at)| {
                (
                    ItemId::new(id),
                    End {
                        at,
                        is_buried: false,
                    },
                )
            };
            (1..).zip(moments).map(end).collect()
        };
        let after = [sent(1, 0, 1, false), sent(2, 2, 3, false)];
        assert_eq!(out_of_order(&after, &ends([5, 5])).len(), 0);
        assert_eq!(out_of_order(&after, &ends([6, 5])).len(), 1);
        let overlapping = [sent(1, 0, 3, false), sent(2, 2, 4, true)];
        assert_eq!(out_of_order(&overlapping, &ends([6, 5])).len(), 0);
        let strict = [sent(1, 0, 3, true), sent(2, 2, 4, true)];
        assert_eq!(out_of_order(&strict, &ends([6, 5])).len(), 1);
        let together = [sent(1, 0, 3, false), sent(2, 0, 3, false)];
        assert_eq!(out_of_order(&together, &ends([6, 5])).len(), 1);
    }
}

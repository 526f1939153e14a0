//! Order by key: the keys of a run, the times of the enqueues, and a check of the order in which
//! events were settled.

use std::collections::BTreeMap;

use tenure_core::{Event, ItemId, NewEvent, Priority};
use tenure_nemesis::Rng;
use tokio::time::Instant;

/// The keys of a run's events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keys {
    None,
    /// Events have no key, one of a few busy keys, or one of many keys.
    Mixed,
}

impl Keys {
    /// Draws a key, if there are any.
    pub(super) fn any(self, rng: &mut Rng) -> Option<String> {
        if self == Self::None {
            return None;
        }
        Some(match rng.below(3) {
            0 => format!("cold-{}", rng.below(40)),
            _ => format!("hot-{}", rng.below(3)),
        })
    }

    /// All possible keys.
    pub(super) fn all(self) -> Vec<String> {
        if self == Self::None {
            return Vec::new();
        }
        let hot = (0..3).map(|nth| format!("hot-{nth}"));
        hot.chain((0..40).map(|nth| format!("cold-{nth}")))
            .collect()
    }

    /// Draws an event with one of the keys or none; some are strict, some have a high priority.
    pub(super) fn event(self, rng: &mut Rng) -> Event {
        let mut event = NewEvent::from_json("order.paid", "1");
        if rng.below(8) == 0 && self == Self::Mixed {
            event = event.priority(Priority::MAX.level());
        }
        if let Some(key) = self.any(rng).filter(|_| rng.below(3) > 0) {
            event = event.key(&key);
            if rng.below(4) == 0 {
                event = event.strict();
            }
        }
        event.build().expect("the event is well formed")
    }
}

/// An enqueued event. Its transaction began and ended between the two times.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) id: ItemId,
    pub(super) key: Option<String>,
    is_strict: bool,
    began: Instant,
    ended: Instant,
}

impl Sent {
    /// The events of a call that was answered just now.
    pub(super) fn of(
        events: &[Event],
        ids: impl Iterator<Item = ItemId>,
        began: Instant,
    ) -> Vec<Self> {
        let ended = Instant::now();
        let sent = |(event, id): (&Event, ItemId)| Self {
            id,
            key: event.key().map(str::to_owned),
            is_strict: event.is_strict(),
            began,
            ended,
        };
        events.iter().zip(ids).map(sent).collect()
    }

    /// Returns true if this event must be settled before the other one of the same key: it was
    /// committed before the other enqueue began, both were enqueued together in this order, or both
    /// were strict.
    fn is_before(&self, other: &Self) -> bool {
        let is_together = (self.began, self.ended) == (other.began, other.ended);
        self.ended < other.began
            || (self.id < other.id && (is_together || self.is_strict && other.is_strict))
    }
}

/// The final settle of an event that was never replayed.
#[derive(Clone, Copy, Debug)]
pub(super) struct End {
    /// The time of the settle in microseconds.
    pub(super) at: i64,
    /// True for a bury, which does not wait for its turn.
    pub(super) is_buried: bool,
}

/// Finds events that were not settled in the order of their enqueues.
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
    fn events_that_end_out_of_order_are_noticed() {
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

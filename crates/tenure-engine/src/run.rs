//! Runs: items of one key under one lease. The worker works on them in order: the turn of an item
//! comes when the previous item is answered with done, or with dead under `OnDead::Skip`.
//!
//! Only runs of two or more items are stored; a single item of a key waits for nothing.

use std::collections::hash_map::{Entry, HashMap};
use std::collections::{BTreeMap, VecDeque};

use tenure_core::{Event, Item, ItemId};

/// The runs under one lease.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    /// Index of an item's run.
    of: BTreeMap<ItemId, usize>,
    all: Vec<Run>,
    /// Items whose turn has not come.
    behind: usize,
}

#[derive(Debug)]
struct Run {
    /// All items, in order.
    ids: Vec<ItemId>,
    /// Items whose turn has not come, in order.
    behind: VecDeque<Item>,
}

impl Runs {
    /// Splits claimed items into those that may be started and those that wait for their turn.
    pub(crate) fn line_up(items: Vec<Item>) -> (Vec<Item>, Self) {
        let mut in_line = Vec::with_capacity(items.len());
        let mut firsts = HashMap::new();
        let mut runs: Vec<Run> = Vec::new();
        let mut behind = 0;
        for item in items {
            let key = item.content.event().and_then(Event::key);
            // Deliveries of one key are ordered per endpoint.
            let endpoint = item.content.delivery().map(|delivery| delivery.endpoint);
            let nth = match key.map(|key| firsts.entry((endpoint, key.to_owned()))) {
                None => None,
                Some(Entry::Vacant(first)) => {
                    first.insert(runs.len());
                    runs.push(Run {
                        ids: vec![item.id],
                        behind: VecDeque::new(),
                    });
                    None
                }
                Some(Entry::Occupied(nth)) => runs.get_mut(*nth.get()),
            };
            match nth {
                None => in_line.push(item),
                Some(run) => {
                    run.ids.push(item.id);
                    run.behind.push_back(item);
                    behind += 1;
                }
            }
        }
        runs.retain(|run| run.ids.len() > 1);
        let members = runs.iter().enumerate();
        let of = members
            .flat_map(|(nth, run)| run.ids.iter().map(move |id| (*id, nth)))
            .collect();
        let runs = Self {
            of,
            all: runs,
            behind,
        };
        (in_line, runs)
    }

    /// True if the lease was claimed without a run of two or more items.
    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Items whose turn has not come.
    pub(crate) fn behind(&self) -> usize {
        self.behind
    }

    /// Index of an item's run.
    pub(crate) fn of(&self, id: ItemId) -> Option<usize> {
        self.of.get(&id).copied()
    }

    /// Items before this one in its run.
    pub(crate) fn before(&self, id: ItemId) -> &[ItemId] {
        self.split_at(id).0
    }

    /// Items after this one in its run.
    pub(crate) fn after(&self, id: ItemId) -> &[ItemId] {
        self.split_at(id).1
    }

    fn split_at(&self, id: ItemId) -> (&[ItemId], &[ItemId]) {
        let run = self.of(id).and_then(|nth| self.all.get(nth));
        let ids = run.map_or(&[][..], |run| &run.ids);
        let mut parts = ids.split(|each| *each == id);
        (
            parts.next().unwrap_or_default(),
            parts.next().unwrap_or_default(),
        )
    }

    /// Takes the next waiting item of this item's run, if there is one: its turn has come.
    pub(crate) fn next(&mut self, id: ItemId) -> Option<Item> {
        let nth = self.of(id)?;
        let item = self.all.get_mut(nth)?.behind.pop_front()?;
        self.behind -= 1;
        Some(item)
    }

    /// Drops the waiting items of this item's run.
    pub(crate) fn stop(&mut self, id: ItemId) {
        if let Some(run) = self.of(id).and_then(|nth| self.all.get_mut(nth)) {
            self.behind -= run.behind.len();
            run.behind.clear();
        }
    }

    /// Drops all waiting items.
    pub(crate) fn stop_all(&mut self) {
        self.behind = 0;
        for run in &mut self.all {
            run.behind.clear();
        }
    }

    /// Removes a waiting item that was buried.
    pub(crate) fn forget(&mut self, id: ItemId) {
        if let Some(run) = self.of(id).and_then(|nth| self.all.get_mut(nth)) {
            let before = run.behind.len();
            run.behind.retain(|item| item.id != id);
            self.behind -= before - run.behind.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use tenure_core::webhook::Delivery;
    use tenure_core::{Content, Counters, NewEvent, Timestamp};

    use super::*;

    fn item(number: i64, key: Option<&str>) -> Item {
        let event = Event::new("order.paid", &number).unwrap();
        let event = match key {
            Some(key) => NewEvent::from(event).key(key).build().unwrap(),
            None => event,
        };
        Item {
            id: ItemId::new(number),
            content: Content::Event(event),
            available_at: Timestamp::from_micros(0),
            counters: Counters::default(),
        }
    }

    fn ids(numbers: &[i64]) -> Vec<ItemId> {
        numbers.iter().copied().map(ItemId::new).collect()
    }

    #[test]
    fn only_the_first_item_of_each_key_may_be_started() {
        let a = Some("a");
        let items = vec![
            item(1, a),
            item(2, None),
            item(3, Some("b")),
            item(4, a),
            item(6, None),
            item(9, a),
        ];
        let (in_line, mut runs) = Runs::line_up(items);
        let started: Vec<ItemId> = in_line.iter().map(|item| item.id).collect();
        assert_eq!(started, ids(&[1, 2, 3, 6]));
        assert_eq!(runs.behind(), 2);
        assert_eq!(runs.of(ItemId::new(3)), None, "the only item of its key");
        assert_eq!(runs.before(ItemId::new(9)), ids(&[1, 4]));
        assert_eq!(runs.after(ItemId::new(1)), ids(&[4, 9]));
        assert!(runs.after(ItemId::new(9)).is_empty());
        assert!(runs.before(ItemId::new(2)).is_empty());
        runs.forget(ItemId::new(4));
        let next = runs.next(ItemId::new(1)).map(|item| item.id);
        assert_eq!(next, Some(ItemId::new(9)), "4 is gone");
        assert_eq!((runs.next(ItemId::new(9)), runs.behind()), (None, 0));
    }

    #[test]
    fn deliveries_of_one_key_to_two_endpoints_do_not_wait_for_each_other() {
        let delivery = |number: i64, endpoint: u32| {
            let item = item(number, Some("a"));
            let event = item.content.event().unwrap().clone();
            Item {
                content: Content::Delivery(Delivery {
                    endpoint,
                    source: ItemId::new(1),
                    event: event.into(),
                }),
                ..item
            }
        };
        let items = vec![delivery(1, 7), delivery(2, 8), delivery(3, 7)];
        let (in_line, runs) = Runs::line_up(items);
        let started: Vec<ItemId> = in_line.iter().map(|item| item.id).collect();
        assert_eq!(started, ids(&[1, 2]));
        assert_eq!(runs.before(ItemId::new(3)), ids(&[1]));
    }

    #[test]
    fn a_stopped_run_has_no_next_item() {
        let items = (1..5).map(|number| item(number, Some("a"))).collect();
        let (_, mut runs) = Runs::line_up(items);
        runs.stop(ItemId::new(1));
        assert_eq!((runs.next(ItemId::new(1)), runs.behind()), (None, 0));
        assert_eq!(runs.after(ItemId::new(1)).len(), 3, "still known");
    }
}

//! The offsets that wait behind the current one of a domain: first in, first out, none twice.

use std::collections::{HashSet, VecDeque};

/// The backlog of a domain. Whether an offset waits is known without a look at all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    order: VecDeque<i64>,
    /// The same offsets, to be asked.
    members: HashSet<i64>,
}

/// A backlog that had fewer places than this keeps them when it runs empty.
const PLACES_KEPT: usize = 32;

impl Backlog {
    /// The next to be acquired.
    pub fn head(&self) -> Option<i64> {
        self.order.front().copied()
    }

    /// Whether this offset waits.
    pub fn contains(&self, offset: i64) -> bool {
        // Most backlogs are empty most of the time.
        !self.order.is_empty() && self.members.contains(&offset)
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Appends an offset at the tail; one that waits already stays where it is.
    pub fn push(&mut self, offset: i64) {
        if self.members.insert(offset) {
            self.order.push_back(offset);
        }
    }

    /// Takes the head out.
    pub fn pop(&mut self) -> Option<i64> {
        let head = self.order.pop_front()?;
        self.members.remove(&head);
        if self.order.is_empty() && self.order.capacity() > PLACES_KEPT {
            // What a burst needed is given back when it is over.
            *self = Self::default();
        }
        Some(head)
    }

    /// All of them, from the head on.
    pub fn iter(&self) -> impl Iterator<Item = i64> {
        self.order.iter().copied()
    }

    /// The bytes that it holds beside itself, about.
    pub fn footprint(&self) -> usize {
        let place = size_of::<i64>();
        // A hash set keeps an eighth of its places free and a byte beside each.
        let set = self.members.capacity() * (place + 1) * 8 / 7;
        self.order.capacity() * place + set
    }
}

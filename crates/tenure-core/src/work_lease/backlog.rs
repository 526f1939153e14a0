//! The offsets that wait behind a domain's offset in flight: first in, first out, none twice.

use std::collections::{HashSet, VecDeque};

/// The backlog of a domain, with a constant-time membership test.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backlog {
    order: VecDeque<i64>,
    /// The same offsets, for `contains`.
    members: HashSet<i64>,
}

/// Maximum capacity, in offsets, that an empty backlog keeps.
const PLACES_KEPT: usize = 32;

impl Backlog {
    /// Returns the next offset to acquire.
    pub fn head(&self) -> Option<i64> {
        self.order.front().copied()
    }

    /// Returns whether this offset is in the backlog.
    pub fn contains(&self, offset: i64) -> bool {
        // Most backlogs are empty most of the time.
        !self.order.is_empty() && self.members.contains(&offset)
    }

    /// Returns the number of offsets.
    pub fn len(&self) -> usize {
        self.order.len()
    }

    /// Returns whether the backlog is empty.
    pub fn is_empty(&self) -> bool {
        self.order.is_empty()
    }

    /// Appends an offset at the tail; an offset that is already in the backlog keeps its position.
    pub fn push(&mut self, offset: i64) {
        if self.members.insert(offset) {
            self.order.push_back(offset);
        }
    }

    /// Removes and returns the head.
    pub fn pop(&mut self) -> Option<i64> {
        let head = self.order.pop_front()?;
        self.members.remove(&head);
        if self.order.is_empty() && self.order.capacity() > PLACES_KEPT {
            // Release the memory of a burst when it is over.
            *self = Self::default();
        }
        Some(head)
    }

    /// Iterates over the offsets from the head.
    pub fn iter(&self) -> impl Iterator<Item = i64> {
        self.order.iter().copied()
    }

    /// Returns the approximate size of the heap memory in bytes.
    pub fn footprint(&self) -> usize {
        let place = size_of::<i64>();
        // A hash set keeps an eighth of its slots free and one byte of metadata per slot.
        let set = self.members.capacity() * (place + 1) * 8 / 7;
        self.order.capacity() * place + set
    }
}

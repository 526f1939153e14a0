//! A set of offsets stored as ranges: adjacent offsets share one range.

use std::collections::BTreeMap;

/// A set of offsets over the whole of `i64`. Adjacent offsets form one range, which takes 16 bytes
/// at any length.
///
/// ```
/// use tenure_core::work_lease::Offsets;
///
/// let mut offsets = Offsets::default();
/// for offset in [1, 3, 2, 7] {
///     offsets.insert(offset);
/// }
/// assert_eq!(offsets.ranges().collect::<Vec<_>>(), [(1, 3), (7, 7)]);
/// offsets.forget_below(3);
/// assert!(!offsets.contains(2) && offsets.contains(3));
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offsets {
    /// First → last, both inclusive. Ranges never touch: at least one offset lies between two.
    ranges: BTreeMap<i64, i64>,
}

impl Offsets {
    /// Returns whether the offset is in the set.
    pub fn contains(&self, offset: i64) -> bool {
        self.range_of(offset).is_some()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Returns the number of offsets; the whole of `i64` has one more than a `u64` can hold.
    pub fn count(&self) -> u128 {
        self.ranges()
            .map(|(first, last)| u128::from(last.abs_diff(first)) + 1)
            .sum()
    }

    /// Iterates over the ranges in order, each with its first and last offset.
    pub fn ranges(&self) -> impl Iterator<Item = (i64, i64)> {
        self.ranges.iter().map(|(first, last)| (*first, *last))
    }

    /// Inserts an offset; returns whether it was new.
    pub fn insert(&mut self, offset: i64) -> bool {
        let mut grown = None;
        if let Some((first, last)) = self.ranges.range_mut(..=offset).next_back() {
            if *last >= offset {
                return false;
            }
            // No overflow: `last` is smaller than another offset.
            if *last + 1 == offset {
                *last = offset;
                grown = Some(*first);
            }
        }
        let first = grown.unwrap_or(offset);
        let following = offset
            .checked_add(1)
            .and_then(|next| self.ranges.remove(&next));
        if let Some(last) = following {
            self.ranges.insert(first, last);
        } else if grown.is_none() {
            self.ranges.insert(first, offset);
        }
        true
    }

    /// Removes an offset; returns whether it was in the set.
    pub fn remove(&mut self, offset: i64) -> bool {
        let Some((first, last)) = self.range_of(offset) else {
            return false;
        };
        self.ranges.remove(&first);
        // No overflow: `first` is below the offset in one case, `last` above it in the other.
        if first < offset {
            self.ranges.insert(first, offset - 1);
        }
        if offset < last {
            self.ranges.insert(offset + 1, last);
        }
        true
    }

    /// Removes every offset below this one.
    pub fn forget_below(&mut self, offset: i64) {
        while let Some(range) = self.ranges.first_entry() {
            let (first, last) = (*range.key(), *range.get());
            if first >= offset {
                return;
            }
            range.remove();
            if last >= offset {
                self.ranges.insert(offset, last);
                return;
            }
        }
    }

    /// Returns the approximate size of the heap memory in bytes: tree nodes are at least half full.
    pub fn footprint(&self) -> usize {
        self.ranges.len() * 2 * size_of::<(i64, i64)>()
    }

    /// Returns the range that contains an offset.
    fn range_of(&self, offset: i64) -> Option<(i64, i64)> {
        let (first, last) = self.ranges.range(..=offset).next_back()?;
        (*last >= offset).then_some((*first, *last))
    }
}

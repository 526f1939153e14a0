//! A set of offsets that is kept as ranges: neighbours cost nothing.

use std::collections::BTreeMap;

/// A set of offsets, the whole of `i64`. A run of neighbours is one range of 16 bytes, however
/// long it is.
///
/// ```
/// use tenure_core::domain::Offsets;
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
    /// First → last, both within. Two ranges never touch: at least one offset is between them.
    ranges: BTreeMap<i64, i64>,
}

impl Offsets {
    /// Whether it is in the set.
    pub fn contains(&self, offset: i64) -> bool {
        self.range_of(offset).is_some()
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many are in the set; the whole of `i64` is one more than a `u64` holds.
    pub fn count(&self) -> u128 {
        self.ranges()
            .map(|(first, last)| u128::from(last.abs_diff(first)) + 1)
            .sum()
    }

    /// The ranges in order, each with its first and its last offset.
    pub fn ranges(&self) -> impl Iterator<Item = (i64, i64)> {
        self.ranges.iter().map(|(first, last)| (*first, *last))
    }

    /// Puts an offset in; whether it was new.
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

    /// Takes an offset out; whether it was in.
    pub fn remove(&mut self, offset: i64) -> bool {
        let Some((first, last)) = self.range_of(offset) else {
            return false;
        };
        self.ranges.remove(&first);
        // No overflow: on each side lies another offset.
        if first < offset {
            self.ranges.insert(first, offset - 1);
        }
        if offset < last {
            self.ranges.insert(offset + 1, last);
        }
        true
    }

    /// Takes out every offset below this one.
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

    /// The bytes that it holds beside itself, about: a tree's nodes are at least half full.
    pub fn footprint(&self) -> usize {
        self.ranges.len() * 2 * size_of::<(i64, i64)>()
    }

    /// The range that an offset is in.
    fn range_of(&self, offset: i64) -> Option<(i64, i64)> {
        let (first, last) = self.ranges.range(..=offset).next_back()?;
        (*last >= offset).then_some((*first, *last))
    }
}

//! Terminal offsets as a database stores them: rows of ranges. [`NearRanges`] has the rows near one
//! offset and computes the changes to them.

use crate::work_lease::view::{Terminal, TerminalChange};

/// A row of a store: a range of offsets with the same final state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TerminalRange {
    /// First offset of the range.
    pub first: i64,
    /// Last offset of the range; not below the first.
    pub last: i64,
    /// Final state of all offsets of the range.
    pub terminal: Terminal,
}

impl TerminalRange {
    /// Returns whether it contains an offset.
    pub const fn contains(&self, offset: i64) -> bool {
        self.first <= offset && offset <= self.last
    }
}

/// The ranges of a domain that contain an offset or one of its two neighbours, in any order. Other
/// ranges may be present; they are ignored.
///
/// ```
/// use tenure_core::work_lease::{NearRanges, Terminal, TerminalChange, TerminalRange};
///
/// let range = |first, last| TerminalRange { first, last, terminal: Terminal::Processed };
/// let near = NearRanges(vec![range(1, 3), range(5, 9)]);
/// assert_eq!(near.terminal(4), None);
/// let change = near.change(TerminalChange::Add(4, Terminal::Processed));
/// assert_eq!(change.gone, [range(1, 3), range(5, 9)]);
/// assert_eq!(change.come, [range(1, 9)]);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NearRanges(pub Vec<TerminalRange>);

/// Rows to delete and rows to insert.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangesChange {
    /// Rows to delete.
    pub gone: Vec<TerminalRange>,
    /// Rows to insert.
    pub come: Vec<TerminalRange>,
}

impl NearRanges {
    /// Returns the final state of an offset, if one of these ranges contains it.
    pub fn terminal(&self, offset: i64) -> Option<Terminal> {
        self.range_of(offset).map(|range| range.terminal)
    }

    /// Computes the row changes for this change: an added offset merges with neighbours of the same
    /// final state, a removed one splits its range.
    pub fn change(&self, change: TerminalChange) -> RangesChange {
        match change {
            TerminalChange::Keep => RangesChange::default(),
            TerminalChange::Add(offset, terminal) => self.add(offset, terminal),
            TerminalChange::Remove(offset) => self.remove(offset),
        }
    }

    fn add(&self, offset: i64, terminal: Terminal) -> RangesChange {
        if self.range_of(offset).is_some() {
            return RangesChange::default();
        }
        let joined = |neighbour: Option<i64>| {
            let range = neighbour.and_then(|neighbour| self.range_of(neighbour));
            range.filter(|range| range.terminal == terminal)
        };
        let before = joined(offset.checked_sub(1));
        let after = joined(offset.checked_add(1));
        RangesChange {
            gone: before.into_iter().chain(after).collect(),
            come: vec![TerminalRange {
                first: before.map_or(offset, |range| range.first),
                last: after.map_or(offset, |range| range.last),
                terminal,
            }],
        }
    }

    fn remove(&self, offset: i64) -> RangesChange {
        let Some(range) = self.range_of(offset) else {
            return RangesChange::default();
        };
        let mut come = Vec::new();
        // No overflow: `first` is below the offset in one case, `last` above it in the other.
        if range.first < offset {
            come.push(TerminalRange {
                last: offset - 1,
                ..range
            });
        }
        if offset < range.last {
            come.push(TerminalRange {
                first: offset + 1,
                ..range
            });
        }
        RangesChange {
            gone: vec![range],
            come,
        }
    }

    fn range_of(&self, offset: i64) -> Option<TerminalRange> {
        let mut ranges = self.0.iter().copied();
        ranges.find(|range| range.contains(offset))
    }
}

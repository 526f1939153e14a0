//! Terminal offsets as a database keeps them: rows of ranges, of which a decision sees those near
//! one offset, and what a change does to these rows.

use crate::domain::view::{Terminal, TerminalChange};

/// A range of offsets that ended alike: a row of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TerminalRange {
    /// Its first offset.
    pub first: i64,
    /// Its last offset; not below the first.
    pub last: i64,
    /// How all of them ended.
    pub terminal: Terminal,
}

impl TerminalRange {
    /// Whether an offset lies in it.
    pub const fn contains(&self, offset: i64) -> bool {
        self.first <= offset && offset <= self.last
    }
}

/// The ranges of a domain that hold an offset or one of its two neighbours, in any order. Others
/// may be among them; they are left alone.
///
/// ```
/// use tenure_core::domain::{NearRanges, Terminal, TerminalChange, TerminalRange};
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

/// Rows that go and rows that come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RangesChange {
    /// These are no longer kept.
    pub gone: Vec<TerminalRange>,
    /// These are kept from now on.
    pub come: Vec<TerminalRange>,
}

impl NearRanges {
    /// How an offset ended, as far as these ranges tell.
    pub fn terminal(&self, offset: i64) -> Option<Terminal> {
        self.range_of(offset).map(|range| range.terminal)
    }

    /// What becomes of the rows when this is changed: an offset that comes joins its neighbours of
    /// the same kind, one that goes leaves what is left and right of it.
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
        // No overflow: on each side lies another offset.
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

//! Rows of ranges compared with the set that they represent.

use proptest::collection::vec;
use proptest::prelude::*;
use tenure_core::work_lease::{
    NearRanges, Offsets, RangesChange, Terminal, TerminalChange, TerminalRange,
};

/// The rows of a domain, changed as a store does it: the store reads the first two rows that end at
/// the offset's left neighbour or later.
#[derive(Default)]
struct Rows(Vec<TerminalRange>);

impl Rows {
    fn near(&self, offset: i64) -> NearRanges {
        let mut near: Vec<TerminalRange> = self.0.clone();
        near.retain(|range| range.last >= offset.saturating_sub(1));
        near.sort_by_key(|range| range.last);
        near.truncate(2);
        NearRanges(near)
    }

    fn change(&mut self, offset: i64, change: TerminalChange) {
        let RangesChange { gone, come } = self.near(offset).change(change);
        for range in gone {
            let at = self.0.iter().position(|kept| *kept == range);
            self.0.remove(at.expect("a deleted row existed"));
        }
        self.0.extend(come);
        self.0.sort();
    }

    fn ranges(&self, terminal: Terminal) -> Vec<(i64, i64)> {
        let ranges = self.0.iter().filter(|range| range.terminal == terminal);
        ranges.map(|range| (range.first, range.last)).collect()
    }
}

fn offset() -> impl Strategy<Value = i64> {
    prop_oneof![
        8 => -6..6_i64,
        1 => i64::MIN..i64::MIN + 4,
        1 => i64::MAX - 4..=i64::MAX,
    ]
}

proptest! {
    /// Proves: S3-014, S3-018, S3-019
    #[test]
    fn rows_changed_near_an_offset_still_represent_the_sets(
        steps in vec((offset(), 0..3_u8), 1..60)
    ) {
        let mut rows = Rows::default();
        let (mut processed, mut failed) = (Offsets::default(), Offsets::default());
        for (offset, what) in steps {
            let is_terminal = processed.contains(offset) || failed.contains(offset);
            let change = match (what, is_terminal) {
                (0, false) => {
                    processed.insert(offset);
                    TerminalChange::Add(offset, Terminal::Processed)
                }
                (1, false) => {
                    failed.insert(offset);
                    TerminalChange::Add(offset, Terminal::Failed)
                }
                // An offset that is in one set is not added to the other.
                (0 | 1, true) => TerminalChange::Add(offset, Terminal::Processed),
                _ => {
                    processed.remove(offset);
                    failed.remove(offset);
                    TerminalChange::Remove(offset)
                }
            };
            rows.change(offset, change);
            let expected: Vec<_> = processed.ranges().collect();
            prop_assert_eq!(rows.ranges(Terminal::Processed), expected);
            let expected: Vec<_> = failed.ranges().collect();
            prop_assert_eq!(rows.ranges(Terminal::Failed), expected);
            for asked in [offset.saturating_sub(1), offset, offset.saturating_add(1)] {
                let told = rows.near(asked).terminal(asked);
                let is = if processed.contains(asked) {
                    Some(Terminal::Processed)
                } else {
                    failed.contains(asked).then_some(Terminal::Failed)
                };
                prop_assert_eq!(told, is);
            }
        }
    }
}

//! A work-lease domain as loaded from a database, and the rows to write for a change of it.

use tenure_core::Timestamp;
use tenure_core::store::DomainAsk;
use tenure_core::work_lease::{
    BacklogChange, Change, DomainView, NearRanges, OffsetView, RangesChange, Reservation,
    ReservationChange, Terminal, TerminalChange,
};

use crate::work_lease::inputs::DecisionInputs;

/// A domain, loaded in one snapshot. `N` is the database's type for the number of a space.
#[derive(Debug)]
pub(crate) struct LoadedDomain<N> {
    pub(crate) now: Timestamp,
    /// Number of the space; `None` if it does not exist yet.
    pub(crate) space: Option<N>,
    pub(crate) watermark: i64,
    /// Failed offsets below both this one and the watermark are *forgiven*: they count as
    /// processed.
    pub(crate) forgiven: i64,
    /// Number and version of the domain; `None` if it does not exist yet.
    pub(crate) stands: Option<(i64, i64)>,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) waiting: u64,
    pub(crate) head: Option<i64>,
    pub(crate) is_queued: bool,
    pub(crate) near: NearRanges,
}

/// A change as rows to write.
#[derive(Debug)]
pub(crate) struct DomainRows<'a> {
    pub(crate) reservation: Option<&'a Reservation>,
    pub(crate) popped: Option<i64>,
    pub(crate) pushed: Option<i64>,
    pub(crate) ranges: RangesChange,
}

impl<N> LoadedDomain<N> {
    /// Inputs of a decision on this offset, or on the offset in flight.
    pub(crate) fn inputs<'a>(
        &'a self,
        ask: &'a DomainAsk,
        offset: Option<i64>,
    ) -> DecisionInputs<'a> {
        let current = self.reservation.as_ref().map(|held| held.offset);
        // If nothing is in flight, this value does not matter: operations without an offset do not
        // read it.
        let offset = offset.or(current).unwrap_or(i64::MIN);
        DecisionInputs {
            view: DomainView {
                domain: &ask.domain,
                reservation: self.reservation.as_ref(),
                head: self.head,
                waiting: self.waiting,
                watermark: self.watermark,
            },
            at: OffsetView {
                offset,
                terminal: self.terminal(offset),
                is_queued: self.is_queued,
            },
            rules: &ask.rules,
            now: self.now,
        }
    }

    /// The rows to write for a change decided from this domain.
    pub(crate) fn rows<'a>(&'a self, change: &'a Change) -> DomainRows<'a> {
        let (popped, pushed) = match change.backlog {
            BacklogChange::Keep => (None, None),
            BacklogChange::Pop => (self.head, None),
            BacklogChange::Push(offset) => (None, Some(offset)),
        };
        DomainRows {
            reservation: match &change.reservation {
                ReservationChange::Keep => self.reservation.as_ref(),
                ReservationChange::Set(reservation) => Some(reservation),
                ReservationChange::Clear => None,
            },
            popped,
            pushed,
            ranges: self.near.change(self.terminal_change(change)),
        }
    }

    /// Returns the stored terminal state of an offset. A forgiven failure has none, even before its
    /// range is deleted: the watermark implies that the offset is processed.
    fn terminal(&self, offset: i64) -> Option<Terminal> {
        let is_forgiven = offset < self.watermark.min(self.forgiven);
        let terminal = self.near.terminal(offset);
        terminal.filter(|terminal| *terminal == Terminal::Processed || !is_forgiven)
    }

    /// Returns the change of the stored ranges. An offset that becomes terminal below the watermark
    /// is saved all the same, because pruning finds the domains to evict by their ranges. An offset
    /// that becomes pending again is removed from a range below the watermark if it is still there.
    fn terminal_change(&self, change: &Change) -> TerminalChange {
        match (change.terminal, change.backlog, &self.reservation) {
            (TerminalChange::Keep, BacklogChange::Push(offset), _) => {
                TerminalChange::Remove(offset)
            }
            (TerminalChange::Keep, _, Some(ended))
                if change.reservation == ReservationChange::Clear =>
            {
                TerminalChange::Add(ended.offset, Terminal::Processed)
            }
            _ => change.terminal,
        }
    }
}

/// Reads the stored name of a kind of range.
pub(crate) fn terminal_of(word: &str) -> Option<Terminal> {
    [Terminal::Processed, Terminal::Failed]
        .into_iter()
        .find(|terminal| terminal.as_str() == word)
}

/// Maximum ranges deleted by one round of pruning.
pub(crate) const PRUNE_LIMIT: u32 = 1000;

/// Maximum rounds of pruning after one move of a watermark; the rest waits for the next move.
pub(crate) const PRUNE_ROUNDS: u32 = 100;

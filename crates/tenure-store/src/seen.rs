//! A domain of a work lease as a database showed it, and what is to be written for a change of it.

use tenure_core::Timestamp;
use tenure_core::domain::{
    BacklogChange, Change, DomainView, NearRanges, OffsetView, RangesChange, Reservation,
    ReservationChange, Terminal, TerminalChange,
};
use tenure_core::store::DomainAsk;

use crate::sight::Sight;

/// A domain as a database showed it, in one snapshot. `N` is how the database numbers spaces.
#[derive(Debug)]
pub(crate) struct Seen<N> {
    pub(crate) now: Timestamp,
    /// The number of the space; `None`: there is no such space yet.
    pub(crate) space: Option<N>,
    pub(crate) watermark: i64,
    /// What was given up below it and below the watermark counts as processed.
    pub(crate) forgiven: i64,
    /// Number and version of the domain; `None`: there is no such domain yet.
    pub(crate) stands: Option<(i64, i64)>,
    pub(crate) reservation: Option<Reservation>,
    pub(crate) waiting: u64,
    pub(crate) head: Option<i64>,
    pub(crate) is_queued: bool,
    pub(crate) near: NearRanges,
}

/// A change as rows: what the domain is from now on, and what comes and goes beside it.
#[derive(Debug)]
pub(crate) struct Rows<'a> {
    pub(crate) reservation: Option<&'a Reservation>,
    pub(crate) popped: Option<i64>,
    pub(crate) pushed: Option<i64>,
    pub(crate) ranges: RangesChange,
}

impl<N> Seen<N> {
    /// What a decision about this offset sees; without one, about the offset in flight.
    pub(crate) fn sight<'a>(&'a self, ask: &'a DomainAsk, offset: Option<i64>) -> Sight<'a> {
        let current = self.reservation.as_ref().map(|held| held.offset);
        // Where nothing is in flight, the verbs that take no offset look at none.
        let offset = offset.or(current).unwrap_or(i64::MIN);
        Sight {
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

    /// What is to be written for a change that was decided from this.
    pub(crate) fn rows<'a>(&'a self, change: &'a Change) -> Rows<'a> {
        let (popped, pushed) = match change.backlog {
            BacklogChange::Keep => (None, None),
            BacklogChange::Pop => (self.head, None),
            BacklogChange::Push(offset) => (None, Some(offset)),
        };
        Rows {
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

    /// How an offset ended. Ranges are deleted some time after the watermark has passed them; what
    /// it says holds at once.
    fn terminal(&self, offset: i64) -> Option<Terminal> {
        let is_forgiven = offset < self.watermark.min(self.forgiven);
        let terminal = self.near.terminal(offset);
        terminal.filter(|terminal| *terminal == Terminal::Processed || !is_forgiven)
    }

    /// An offset that ends below the watermark is written down all the same: prune finds a domain
    /// that is to be evicted by its ranges. And one that waits again is taken out of a range that
    /// the watermark has passed, if it is still there.
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

/// The word of a kind of range, as the databases keep it.
pub(crate) fn terminal_of(word: &str) -> Option<Terminal> {
    [Terminal::Processed, Terminal::Failed]
        .into_iter()
        .find(|terminal| terminal.as_str() == word)
}

/// Ranges that one round of pruning deletes.
pub(crate) const PRUNE_LIMIT: u32 = 1000;

/// Rounds of pruning that follow one move of a watermark; what is left is for the next move.
pub(crate) const PRUNE_ROUNDS: u32 = 100;

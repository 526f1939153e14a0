//! A domain in memory: provides the view for the decisions and applies their changes.

use crate::work_lease::view::{
    BacklogChange, Change, DomainView, OffsetView, Reservation, ReservationChange, Terminal,
    TerminalChange,
};
use crate::work_lease::{Backlog, DomainName, Offsets};

/// One domain: the offset in flight, the backlog and the terminal offsets. It makes no decisions.
///
/// ```
/// use tenure_core::work_lease::{Domain, try_acquire};
/// use tenure_core::{AcquireResult, DomainName, DomainRules, Timestamp, Token, WorkerId};
///
/// let mut domain = Domain::new(DomainName::new("A")?);
/// let worker = WorkerId::new("orders", 7)?;
/// let fresh = || Token::new(&worker, 1, 0xfeed);
/// let (view, at) = domain.look(1, i64::MIN);
/// let now = Timestamp::from_micros(0);
/// let (answer, change) = try_acquire(&view, at, &DomainRules::default(), now, &fresh)?;
/// domain.apply(change);
/// assert_eq!(answer, AcquireResult::Acquired(fresh()));
/// assert_eq!(domain.reservation().map(|held| held.offset), Some(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Domain {
    name: DomainName,
    reservation: Option<Reservation>,
    backlog: Backlog,
    processed: Offsets,
    failed: Offsets,
}

impl Domain {
    /// Creates an empty domain.
    pub fn new(name: DomainName) -> Self {
        Self {
            name,
            reservation: None,
            backlog: Backlog::default(),
            processed: Offsets::default(),
            failed: Offsets::default(),
        }
    }

    /// Returns the name.
    pub fn name(&self) -> &DomainName {
        &self.name
    }

    /// Returns the view for a decision.
    pub fn view(&self, watermark: i64) -> DomainView<'_> {
        DomainView {
            domain: &self.name,
            reservation: self.reservation.as_ref(),
            head: self.backlog.head(),
            waiting: u64::try_from(self.backlog.len()).unwrap_or(u64::MAX),
            watermark,
        }
    }

    /// Returns the view of the domain and of one offset.
    pub fn look(&self, offset: i64, watermark: i64) -> (DomainView<'_>, OffsetView) {
        let terminal = if self.processed.contains(offset) {
            Some(Terminal::Processed)
        } else if self.failed.contains(offset) {
            Some(Terminal::Failed)
        } else {
            None
        };
        let at = OffsetView {
            offset,
            terminal,
            is_queued: self.backlog.contains(offset),
        };
        (self.view(watermark), at)
    }

    /// Applies the change of a decision.
    pub fn apply(&mut self, change: Change) {
        match change.reservation {
            ReservationChange::Keep => {}
            ReservationChange::Set(reservation) => self.reservation = Some(reservation),
            ReservationChange::Clear => self.reservation = None,
        }
        match change.backlog {
            BacklogChange::Keep => {}
            BacklogChange::Pop => {
                self.backlog.pop();
            }
            BacklogChange::Push(offset) => self.backlog.push(offset),
        }
        match change.terminal {
            TerminalChange::Keep => {}
            TerminalChange::Add(offset, Terminal::Processed) => {
                self.processed.insert(offset);
            }
            TerminalChange::Add(offset, Terminal::Failed) => {
                self.failed.insert(offset);
            }
            TerminalChange::Remove(offset) => {
                self.processed.remove(offset);
                self.failed.remove(offset);
            }
        }
    }

    /// Forgets the processed offsets below the watermark, which implies them. Failed offsets stay,
    /// so that the answer is still `AlreadyFailed`.
    pub fn prune(&mut self, watermark: i64) {
        self.processed.forget_below(watermark);
    }

    /// Forgets the failed offsets below both this one and the watermark: a forgotten offset above
    /// the watermark could be acquired again.
    pub fn forget_failed_below(&mut self, offset: i64, watermark: i64) {
        self.failed.forget_below(offset.min(watermark));
    }

    /// Returns whether nothing is in flight, queued or remembered, as in a new domain.
    pub fn is_blank(&self) -> bool {
        self.reservation.is_none()
            && self.backlog.is_empty()
            && self.processed.is_empty()
            && self.failed.is_empty()
    }

    /// Returns the reservation of the offset in flight.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// Returns the backlog.
    pub fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// Returns the offsets that succeeded and are still remembered.
    pub fn processed(&self) -> &Offsets {
        &self.processed
    }

    /// Returns the offsets that were given up and are still remembered.
    pub fn failed(&self) -> &Offsets {
        &self.failed
    }

    /// Returns the approximate size of the heap memory in bytes, without the name.
    pub fn footprint(&self) -> usize {
        self.backlog.footprint() + self.processed.footprint() + self.failed.footprint()
    }
}

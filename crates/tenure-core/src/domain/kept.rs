//! A domain in memory: what the decisions see, and how a change is applied to it.

use crate::domain::view::{
    BacklogChange, Change, DomainView, OffsetView, Reservation, ReservationChange, Terminal,
    TerminalChange,
};
use crate::domain::{Backlog, DomainName, Offsets};

/// One domain: what is in flight, what waits, what is over. It decides nothing.
///
/// ```
/// use tenure_core::domain::{Domain, try_acquire};
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
    /// A domain of which nothing is known yet.
    pub fn new(name: DomainName) -> Self {
        Self {
            name,
            reservation: None,
            backlog: Backlog::default(),
            processed: Offsets::default(),
            failed: Offsets::default(),
        }
    }

    /// Which one it is.
    pub fn name(&self) -> &DomainName {
        &self.name
    }

    /// The domain as the decisions see it.
    pub fn view(&self, watermark: i64) -> DomainView<'_> {
        DomainView {
            domain: &self.name,
            reservation: self.reservation.as_ref(),
            head: self.backlog.head(),
            waiting: u64::try_from(self.backlog.len()).unwrap_or(u64::MAX),
            watermark,
        }
    }

    /// The same, and one offset of it.
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

    /// Does what a decision says.
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

    /// Forgets the processed offsets below the watermark, which says the same of them. Those that
    /// were given up stay, so that `AlreadyFailed` is still the answer.
    pub fn prune(&mut self, watermark: i64) {
        self.processed.forget_below(watermark);
    }

    /// Forgets the offsets below this one that were given up, as far as they are below the
    /// watermark: one above it would be acquired again.
    pub fn forget_failed_below(&mut self, offset: i64, watermark: i64) {
        self.failed.forget_below(offset.min(watermark));
    }

    /// Whether nothing is in flight, waits or is remembered: a new domain would be the same.
    pub fn is_blank(&self) -> bool {
        self.reservation.is_none()
            && self.backlog.is_empty()
            && self.processed.is_empty()
            && self.failed.is_empty()
    }

    /// What is in flight.
    pub fn reservation(&self) -> Option<&Reservation> {
        self.reservation.as_ref()
    }

    /// What waits.
    pub fn backlog(&self) -> &Backlog {
        &self.backlog
    }

    /// The offsets that succeeded, as far as they are remembered.
    pub fn processed(&self) -> &Offsets {
        &self.processed
    }

    /// The offsets that were given up, as far as they are remembered.
    pub fn failed(&self) -> &Offsets {
        &self.failed
    }

    /// The bytes that it holds beside itself, about; its name is not among them.
    pub fn footprint(&self) -> usize {
        self.backlog.footprint() + self.processed.footprint() + self.failed.footprint()
    }
}

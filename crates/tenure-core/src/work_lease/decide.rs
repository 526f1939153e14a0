//! The decisions of the work lease. Each takes a view and returns an answer with a change; an error
//! changes nothing.

use crate::time::Timestamp;
use crate::token::Token;
use crate::work_lease::answer::{AcquireResult, FailResult, ReplayResult, SucceedResult};
use crate::work_lease::view::{
    BacklogChange, Change, DomainView, OffsetView, Reservation, ReservationChange, Terminal,
    TerminalChange,
};
use crate::work_lease::{DomainRules, WorkLeaseError};

/// An answer with its change, or the caller's mistake, which changes nothing.
pub type Decided<T> = Result<(T, Change), WorkLeaseError>;

/// Acquires an offset, or queues it behind the one in flight.
///
/// Calls `fresh` only when it needs a token; `fresh` must never return the same token twice.
///
/// # Errors
/// Nothing is in flight, the backlog is not empty, and the offset is not its head; or the offset
/// must be queued, and the backlog is at its limit.
pub fn try_acquire(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    let ask = Ask {
        view,
        at,
        rules,
        now,
        fresh,
    };
    let expected = view.head.filter(|head| *head != at.offset);
    match (unacquired(view, at), view.reservation, expected) {
        (Some(answer), _, _) => Ok((answer, Change::default())),
        (None, Some(current), _) => ask.while_in_flight(current),
        (None, None, Some(expected)) => Err(WorkLeaseError::BacklogOrdering {
            domain: view.domain.clone(),
            expected,
            got: at.offset,
        }),
        (None, None, None) => Ok(ask.acquire()),
    }
}

/// Acquires an offset if nothing is ahead of it, otherwise queues it. For producers, which cannot
/// know whether another caller is about to acquire the head.
///
/// # Errors
/// The offset must be queued, and the backlog is at its limit.
pub fn submit(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    match try_acquire(view, at, rules, now, fresh) {
        Err(WorkLeaseError::BacklogOrdering { .. }) => {
            Ok((AcquireResult::Enqueued, queue(view, at, rules)?))
        }
        decided => decided,
    }
}

/// Marks the offset in flight as processed and returns the head of the backlog, which the caller
/// must acquire.
///
/// A holder whose term is over stays the holder until another caller takes over.
///
/// # Errors
/// Nothing is in flight, or the offset in flight has another token.
pub fn succeed(view: &DomainView<'_>, token: &Token) -> Decided<SucceedResult> {
    let current = held(view, token)?;
    let answer = match view.head {
        None => SucceedResult::NoBacklog,
        Some(head) => SucceedResult::NextHint(head),
    };
    Ok((answer, ended(view, current, Terminal::Processed)))
}

/// Counts a failure of the offset in flight: it stays for a retry under the same token, or is given
/// up after `max_retries` retries. A retry restarts the term, because the holder is alive.
///
/// # Errors
/// Nothing is in flight, or the offset in flight has another token.
pub fn fail(
    view: &DomainView<'_>,
    token: &Token,
    rules: &DomainRules,
    now: Timestamp,
) -> Decided<FailResult> {
    let current = held(view, token)?;
    if current.retry_count >= rules.max_retries {
        let answer = match view.head {
            None => FailResult::GiveUpNoBacklog,
            Some(head) => FailResult::GiveUpNextHint(head),
        };
        return Ok((answer, ended(view, current, Terminal::Failed)));
    }
    let retry_count = current.retry_count.saturating_add(1);
    let kept = Reservation {
        retry_count,
        until: prolonged(current, rules, now),
        ..current.clone()
    };
    Ok((FailResult::RetryScheduled(retry_count), set(kept)))
}

/// Extends the term of the offset in flight and returns its end; rules without a term leave the end
/// unchanged. A late holder may renew until another caller takes over.
///
/// # Errors
/// Nothing is in flight, or the offset in flight has another token.
pub fn renew(
    view: &DomainView<'_>,
    token: &Token,
    rules: &DomainRules,
    now: Timestamp,
) -> Decided<Option<Timestamp>> {
    let current = held(view, token)?;
    let until = prolonged(current, rules, now);
    if until == current.until {
        return Ok((until, Change::default()));
    }
    let kept = Reservation {
        until,
        ..current.clone()
    };
    Ok((until, set(kept)))
}

/// Takes a terminal offset out of its set and queues it at the tail, on an operator's request.
///
/// # Errors
/// The backlog is at its limit.
pub fn replay(view: &DomainView<'_>, at: OffsetView, rules: &DomainRules) -> Decided<ReplayResult> {
    if terminal(view, at).is_none() {
        return Ok((ReplayResult::NotTerminal, Change::default()));
    }
    let change = Change {
        terminal: match at.terminal {
            Some(_) => TerminalChange::Remove(at.offset),
            // Only the watermark makes it terminal; a queued offset is not terminal.
            None => TerminalChange::Keep,
        },
        ..queue(view, at, rules)?
    };
    Ok((ReplayResult::Enqueued, change))
}

/// Returns the final state of an offset, by its set or by the watermark. The watermark does not
/// apply to an offset that is still in flight or queued.
fn terminal(view: &DomainView<'_>, at: OffsetView) -> Option<Terminal> {
    let is_current = || {
        view.reservation
            .is_some_and(|current| current.offset == at.offset)
    };
    match at.terminal {
        Some(terminal) => Some(terminal),
        None if at.offset < view.watermark && !at.is_queued && !is_current() => {
            Some(Terminal::Processed)
        }
        None => None,
    }
}

/// Returns the answer for a terminal offset.
fn unacquired(view: &DomainView<'_>, at: OffsetView) -> Option<AcquireResult> {
    match terminal(view, at)? {
        Terminal::Processed => Some(AcquireResult::AlreadyProcessed),
        Terminal::Failed => Some(AcquireResult::AlreadyFailed),
    }
}

/// A request for an offset, with everything that the answer depends on.
struct Ask<'a> {
    view: &'a DomainView<'a>,
    at: OffsetView,
    rules: &'a DomainRules,
    now: Timestamp,
    fresh: &'a dyn Fn() -> Token,
}

impl Ask<'_> {
    /// Answers while `current` is in flight: for the same offset, or for one to be queued behind
    /// it.
    fn while_in_flight(&self, current: &Reservation) -> Decided<AcquireResult> {
        if current.offset != self.at.offset {
            let change = queue(self.view, self.at, self.rules)?;
            return Ok((AcquireResult::Enqueued, change));
        }
        if !current.lapsed(self.now) {
            let token = current.token.clone();
            return Ok((AcquireResult::AlreadyAcquired(token), Change::default()));
        }
        // The holder died or is late: keep the offset and its history under a new token, so that
        // the old holder gets a token mismatch.
        let token = (self.fresh)();
        let taken = Reservation {
            token: token.clone(),
            until: prolonged(current, self.rules, self.now),
            ..current.clone()
        };
        Ok((AcquireResult::Acquired(token), set(taken)))
    }

    /// Puts the offset in flight and removes it from the backlog if it was the head.
    fn acquire(&self) -> (AcquireResult, Change) {
        let token = (self.fresh)();
        let term = self.rules.term;
        let change = Change {
            backlog: match self.view.head {
                None => BacklogChange::Keep,
                Some(_) => BacklogChange::Pop,
            },
            ..set(Reservation::new(
                self.at.offset,
                token.clone(),
                term,
                self.now,
            ))
        };
        (AcquireResult::Acquired(token), change)
    }
}

/// Queues the offset at the tail; if it is queued already, it keeps its position.
fn queue(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
) -> Result<Change, WorkLeaseError> {
    if at.is_queued {
        return Ok(Change::default());
    }
    match rules.backlog_limit {
        Some(limit) if view.waiting >= limit => Err(WorkLeaseError::BacklogFull {
            domain: view.domain.clone(),
            limit,
            got: at.offset,
        }),
        _ => Ok(Change {
            backlog: BacklogChange::Push(at.offset),
            ..Change::default()
        }),
    }
}

/// The guard: returns the reservation if it is held under this token.
fn held<'a>(view: &DomainView<'a>, token: &Token) -> Result<&'a Reservation, WorkLeaseError> {
    let domain = || view.domain.clone();
    match view.reservation {
        None => Err(WorkLeaseError::LeaseNotFound { domain: domain() }),
        Some(current) if current.token != *token => {
            Err(WorkLeaseError::TokenMismatch { domain: domain() })
        }
        Some(current) => Ok(current),
    }
}

/// Makes the offset in flight terminal. Stores nothing that the watermark implies.
fn ended(view: &DomainView<'_>, current: &Reservation, terminal: Terminal) -> Change {
    let is_known = terminal == Terminal::Processed && current.offset < view.watermark;
    Change {
        reservation: ReservationChange::Clear,
        backlog: BacklogChange::Keep,
        terminal: if is_known {
            TerminalChange::Keep
        } else {
            TerminalChange::Add(current.offset, terminal)
        },
    }
}

/// Returns the new end of a reservation whose holder was alive at `now`; never earlier than before.
/// A caller without a term leaves the end unchanged: removing it would prevent any takeover.
fn prolonged(current: &Reservation, rules: &DomainRules, now: Timestamp) -> Option<Timestamp> {
    let Some(term) = rules.term else {
        return current.until;
    };
    let asked = now.after(term.length());
    Some(current.until.map_or(asked, |until| until.max(asked)))
}

fn set(reservation: Reservation) -> Change {
    Change {
        reservation: ReservationChange::Set(reservation),
        ..Change::default()
    }
}

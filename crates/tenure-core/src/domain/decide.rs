//! The decisions of the work lease. Each looks at a view and answers with a change; an error
//! changes nothing.

use crate::domain::answer::{AcquireResult, FailResult, ReplayResult, SucceedResult};
use crate::domain::view::{
    BacklogChange, Change, DomainView, OffsetView, Reservation, ReservationChange, Terminal,
    TerminalChange,
};
use crate::domain::{DomainRules, WorkLeaseError};
use crate::time::Timestamp;
use crate::token::Token;

/// An answer and what it changes, or the caller's mistake, which changes nothing.
pub type Decided<T> = Result<(T, Change), WorkLeaseError>;

/// Acquires an offset, or queues it behind the one in flight.
///
/// `fresh` is asked for a token only when one is needed; it must never give the same one twice.
///
/// # Errors
/// Nothing is in flight, and the offset is not the head of a backlog that is not empty; or it had
/// to be queued, and the backlog is at its limit.
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
        (None, Some(current), _) => ask.beside(current),
        (None, None, Some(expected)) => Err(WorkLeaseError::BacklogOrdering {
            domain: view.domain.clone(),
            expected,
            got: at.offset,
        }),
        (None, None, None) => Ok(ask.acquire()),
    }
}

/// Acquires an offset if nothing is ahead of it, and else queues it: what a producer calls that
/// cannot know whether a hint is on its way.
///
/// # Errors
/// It had to be queued, and the backlog is at its limit.
pub fn submit(
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
    let is_behind = view.head.is_some_and(|head| head != at.offset);
    match (unacquired(view, at), view.reservation) {
        (Some(answer), _) => Ok((answer, Change::default())),
        (None, Some(current)) => ask.beside(current),
        (None, None) if is_behind => Ok((AcquireResult::Enqueued, queue(view, at, rules)?)),
        (None, None) => Ok(ask.acquire()),
    }
}

/// Ends the offset in flight as processed. The next head is only told, never handed off.
///
/// A holder whose term is over but whom nobody has replaced is still the holder.
///
/// # Errors
/// Nothing is in flight, or it is so under another token.
pub fn succeed(view: &DomainView<'_>, token: &Token) -> Decided<SucceedResult> {
    let current = held(view, token)?;
    let answer = match view.head {
        None => SucceedResult::NoBacklog,
        Some(head) => SucceedResult::NextHint(head),
    };
    Ok((answer, ended(view, current, Terminal::Processed)))
}

/// Counts a failure of the offset in flight: it is kept for a retry under the same token, or given
/// up when it had `max_retries` of them. A retry begins the term anew: its holder was there.
///
/// # Errors
/// Nothing is in flight, or it is so under another token.
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

/// Prolongs the term of the offset in flight and tells until when it stands; rules without a term
/// leave that as it is. A late holder whom nobody has replaced may renew.
///
/// # Errors
/// Nothing is in flight, or it is so under another token.
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

/// Takes a terminal offset out of its set and queues it at the tail: an operator's order.
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
            // Only the watermark says that it is terminal; queued, it is no longer.
            None => TerminalChange::Keep,
        },
        ..queue(view, at, rules)?
    };
    Ok((ReplayResult::Enqueued, change))
}

/// How an offset ended, by its set or by the watermark. What is still in flight or queued below
/// the watermark is not ended by it.
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

/// The answer for an offset that is terminal.
fn unacquired(view: &DomainView<'_>, at: OffsetView) -> Option<AcquireResult> {
    match terminal(view, at)? {
        Terminal::Processed => Some(AcquireResult::AlreadyProcessed),
        Terminal::Failed => Some(AcquireResult::AlreadyFailed),
    }
}

/// One question for an offset, with all that an answer needs.
struct Ask<'a> {
    view: &'a DomainView<'a>,
    at: OffsetView,
    rules: &'a DomainRules,
    now: Timestamp,
    fresh: &'a dyn Fn() -> Token,
}

impl Ask<'_> {
    /// The answer while `current` is in flight: the same offset, or one to be queued behind it.
    fn beside(&self, current: &Reservation) -> Decided<AcquireResult> {
        if current.offset != self.at.offset {
            let change = queue(self.view, self.at, self.rules)?;
            return Ok((AcquireResult::Enqueued, change));
        }
        if !current.lapsed(self.now) {
            let token = current.token.clone();
            return Ok((AcquireResult::AlreadyAcquired(token), Change::default()));
        }
        // Its holder died or is late: the same offset with the same history under a new token, so
        // that the old holder is told of it.
        let token = (self.fresh)();
        let taken = Reservation {
            token: token.clone(),
            until: prolonged(current, self.rules, self.now),
            ..current.clone()
        };
        Ok((AcquireResult::Acquired(token), set(taken)))
    }

    /// The offset is in flight from now on; if it was the head of the backlog, it leaves it.
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

/// The offset waits at the tail; where it waits already, it stays.
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

/// The guard: the reservation, if it stands under this token.
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

/// The offset in flight is terminal from now on. What the watermark says is not said twice.
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

/// Until when a reservation stands whose holder was there at `now`; never sooner than it did. A
/// caller without a term leaves the end as it is: if he took it off, nobody could take the offset
/// over from him.
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

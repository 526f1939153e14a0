//! Planted faults: work leases that break one rule each, to prove that the suite notices.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::work_lease::{
    BacklogChange, Change, Decided, Domain, DomainView, OffsetView, ReservationChange, Terminal,
    TerminalChange, fail, renew, replay, submit, succeed, try_acquire,
};
use tenure_core::{
    AcquireResult, DomainRules, FailResult, Reservation, SucceedResult, Timestamp, Token, WorkerId,
};
use tenure_store::memory::{Decisions, WorkLease};

/// A rule that a planted work lease breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// A success removes the next offset from the backlog, as if it had been handed off.
    PopOnHint,
    /// One retry less than the rules allow.
    RetryTooFew,
    /// One retry more than the rules allow.
    RetryTooMany,
    /// The reservation is checked before the terminal offsets.
    LeaseBeforeTerminal,
    /// `succeed` does not compare the token.
    SucceedByDomain,
    /// `fail` does not compare the token.
    FailByDomain,
    /// A retry draws a new token.
    RetryNewToken,
    /// A retry counts as a first acquisition.
    RetryNewTime,
    /// A given-up offset is stored as processed.
    FailedAsProcessed,
    /// A given-up offset is forgotten.
    FailedForgotten,
    /// A success keeps the reservation.
    LeaseNotCleared,
    /// A new offset that is out of order is silently queued.
    OrderingSilent,
    /// A new offset that is out of order is acquired.
    OrderingIgnored,
    /// An acquired head stays in the backlog.
    HeadNotPopped,
    /// An offset in flight is acquired again, under a new token.
    AcquiredTwice,
    /// `submit` refuses a new offset that is out of order.
    SubmitRefuses,
    /// A term ends one microsecond too late.
    LapseTooLate,
    /// An offset that is taken over loses its history.
    TakenOverAnew,
    /// The watermark ends offsets that are in flight or queued.
    WatermarkEnds,
    /// The offset at the watermark counts as below it.
    WatermarkTooHigh,
    /// The limit of the backlog is ignored.
    BacklogUnlimited,
    /// Replay queues an offset but leaves it terminal.
    ReplayStaysTerminal,
    /// Renew does not extend the term.
    RenewIdle,
    /// Eviction ignores references to the record.
    EvictReferenced,
    /// Eviction removes a domain whose finished offsets are above the watermark.
    EvictRemembered,
}

impl Fault {
    pub(super) const ALL: [Self; 25] = [
        Self::PopOnHint,
        Self::RetryTooFew,
        Self::RetryTooMany,
        Self::LeaseBeforeTerminal,
        Self::SucceedByDomain,
        Self::FailByDomain,
        Self::RetryNewToken,
        Self::RetryNewTime,
        Self::FailedAsProcessed,
        Self::FailedForgotten,
        Self::LeaseNotCleared,
        Self::OrderingSilent,
        Self::OrderingIgnored,
        Self::HeadNotPopped,
        Self::AcquiredTwice,
        Self::SubmitRefuses,
        Self::LapseTooLate,
        Self::TakenOverAnew,
        Self::WatermarkEnds,
        Self::WatermarkTooHigh,
        Self::BacklogUnlimited,
        Self::ReplayStaysTerminal,
        Self::RenewIdle,
        Self::EvictReferenced,
        Self::EvictRemembered,
    ];

    /// A work lease that breaks this rule.
    pub(super) fn lease(self, rules: DomainRules) -> WorkLease {
        WorkLease::with_decisions(rules, self.decisions())
    }

    fn decisions(self) -> Decisions {
        let mut decisions = Decisions::default();
        match self {
            Self::PopOnHint => decisions.succeed = pop_on_hint,
            Self::RetryTooFew => decisions.fail = retry_too_few,
            Self::RetryTooMany => decisions.fail = retry_too_many,
            Self::LeaseBeforeTerminal => decisions.try_acquire = lease_before_terminal,
            Self::SucceedByDomain => {
                decisions.succeed = |view, token| succeed(view, any_token(view, token));
            }
            Self::FailByDomain => {
                decisions.fail =
                    |view, token, rules, now| fail(view, any_token(view, token), rules, now);
            }
            Self::RetryNewToken => decisions.fail = retry_new_token,
            Self::RetryNewTime => decisions.fail = retry_new_time,
            Self::FailedAsProcessed => decisions.fail = failed_as_processed,
            Self::FailedForgotten => decisions.fail = failed_forgotten,
            Self::LeaseNotCleared => decisions.succeed = lease_not_cleared,
            Self::OrderingSilent => decisions.try_acquire = submit,
            Self::OrderingIgnored => decisions.try_acquire = ordering_ignored,
            Self::HeadNotPopped => decisions.try_acquire = head_not_popped,
            Self::AcquiredTwice => decisions.try_acquire = acquired_twice,
            Self::SubmitRefuses => decisions.submit = try_acquire,
            Self::LapseTooLate => decisions.try_acquire = lapse_too_late,
            Self::TakenOverAnew => decisions.try_acquire = taken_over_anew,
            Self::WatermarkEnds => decisions.try_acquire = watermark_ends,
            Self::WatermarkTooHigh => decisions.try_acquire = watermark_too_high,
            Self::BacklogUnlimited => decisions.try_acquire = backlog_unlimited,
            Self::ReplayStaysTerminal => {
                decisions.replay = |view, at, rules| {
                    let (answer, change) = replay(view, at, rules)?;
                    let terminal = TerminalChange::Keep;
                    Ok((answer, Change { terminal, ..change }))
                };
            }
            Self::RenewIdle => {
                decisions.renew = |view, token, rules, now| {
                    Ok((renew(view, token, rules, now)?.0, Change::default()))
                };
            }
            Self::EvictReferenced => decisions.may_evict = evict_referenced,
            Self::EvictRemembered => decisions.may_evict = evict_remembered,
        }
        decisions
    }
}

fn evict_referenced(record: &mut Arc<Mutex<Domain>>, prune: &dyn Fn(&mut Domain)) -> bool {
    let mut kept = record.lock().unwrap();
    prune(&mut kept);
    kept.is_blank()
}

fn evict_remembered(record: &mut Arc<Mutex<Domain>>, _: &dyn Fn(&mut Domain)) -> bool {
    let is_alone = Arc::strong_count(record) == 1;
    let kept = record.lock().unwrap();
    is_alone && kept.reservation().is_none() && kept.backlog().is_empty()
}

fn retry_too_few(
    view: &DomainView<'_>,
    token: &Token,
    rules: &DomainRules,
    now: Timestamp,
) -> Decided<FailResult> {
    let max_retries = rules.max_retries.saturating_sub(1);
    let rules = DomainRules {
        max_retries,
        ..*rules
    };
    fail(view, token, &rules, now)
}

fn retry_too_many(
    view: &DomainView<'_>,
    token: &Token,
    rules: &DomainRules,
    now: Timestamp,
) -> Decided<FailResult> {
    let max_retries = rules.max_retries.saturating_add(1);
    let rules = DomainRules {
        max_retries,
        ..*rules
    };
    fail(view, token, &rules, now)
}

fn lapse_too_late(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    let now = now.before(Duration::from_micros(1));
    try_acquire(view, at, rules, now, fresh)
}

fn watermark_too_high(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    let watermark = view.watermark.saturating_add(1);
    try_acquire(&DomainView { watermark, ..*view }, at, rules, now, fresh)
}

fn backlog_unlimited(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    let backlog_limit = None;
    let rules = DomainRules {
        backlog_limit,
        ..*rules
    };
    try_acquire(view, at, &rules, now, fresh)
}

/// The current token, in place of the caller's.
fn any_token<'a>(view: &DomainView<'a>, token: &'a Token) -> &'a Token {
    view.reservation.map_or(token, |current| &current.token)
}

fn pop_on_hint(view: &DomainView<'_>, token: &Token) -> Decided<SucceedResult> {
    let (answer, change) = succeed(view, token)?;
    let backlog = BacklogChange::Pop;
    Ok((answer, Change { backlog, ..change }))
}

fn lease_not_cleared(view: &DomainView<'_>, token: &Token) -> Decided<SucceedResult> {
    let (answer, change) = succeed(view, token)?;
    let reservation = ReservationChange::Keep;
    Ok((
        answer,
        Change {
            reservation,
            ..change
        },
    ))
}

/// Changes the reservation of a decided retry.
fn retry(
    decided: Decided<FailResult>,
    change_it: impl FnOnce(&mut Reservation),
) -> Decided<FailResult> {
    let (answer, mut change) = decided?;
    if let ReservationChange::Set(kept) = &mut change.reservation {
        change_it(kept);
    }
    Ok((answer, change))
}

fn retry_new_token(
    view: &DomainView<'_>,
    token: &Token,
    rules: &DomainRules,
    now: Timestamp,
) -> Decided<FailResult> {
    retry(fail(view, token, rules, now), |kept| {
        let worker = WorkerId::new("planted", 1).expect("`planted` is a worker's name");
        kept.token = Token::new(&worker, u64::from(kept.retry_count), 1);
    })
}

fn retry_new_time(
    view: &DomainView<'_>,
    token: &Token,
    rules: &DomainRules,
    now: Timestamp,
) -> Decided<FailResult> {
    retry(fail(view, token, rules, now), |kept| kept.acquired_at = now)
}

fn failed_as_processed(
    view: &DomainView<'_>,
    token: &Token,
    rules: &DomainRules,
    now: Timestamp,
) -> Decided<FailResult> {
    let (answer, mut change) = fail(view, token, rules, now)?;
    if let TerminalChange::Add(_, terminal) = &mut change.terminal {
        *terminal = Terminal::Processed;
    }
    Ok((answer, change))
}

fn failed_forgotten(
    view: &DomainView<'_>,
    token: &Token,
    rules: &DomainRules,
    now: Timestamp,
) -> Decided<FailResult> {
    let (answer, change) = fail(view, token, rules, now)?;
    let terminal = TerminalChange::Keep;
    Ok((answer, Change { terminal, ..change }))
}

fn lease_before_terminal(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    let terminal = at.terminal.filter(|_| view.reservation.is_none());
    try_acquire(view, OffsetView { terminal, ..at }, rules, now, fresh)
}

fn ordering_ignored(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    let head = view.head.filter(|head| *head == at.offset);
    try_acquire(&DomainView { head, ..*view }, at, rules, now, fresh)
}

fn head_not_popped(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    let (answer, mut change) = try_acquire(view, at, rules, now, fresh)?;
    if change.backlog == BacklogChange::Pop {
        change.backlog = BacklogChange::Keep;
    }
    Ok((answer, change))
}

fn acquired_twice(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    match view.reservation {
        Some(current) if current.offset == at.offset => {
            try_acquire(&without_anything(view), at, rules, now, fresh)
        }
        _ => try_acquire(view, at, rules, now, fresh),
    }
}

fn taken_over_anew(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    match view.reservation {
        Some(current) if current.lapsed(now) => acquired_twice(view, at, rules, now, fresh),
        _ => try_acquire(view, at, rules, now, fresh),
    }
}

fn watermark_ends(
    view: &DomainView<'_>,
    at: OffsetView,
    rules: &DomainRules,
    now: Timestamp,
    fresh: &dyn Fn() -> Token,
) -> Decided<AcquireResult> {
    if at.terminal.is_none() && at.offset < view.watermark {
        return Ok((AcquireResult::AlreadyProcessed, Change::default()));
    }
    try_acquire(view, at, rules, now, fresh)
}

/// The view without the offset in flight and the backlog.
fn without_anything<'a>(view: &DomainView<'a>) -> DomainView<'a> {
    DomainView {
        reservation: None,
        head: None,
        ..*view
    }
}

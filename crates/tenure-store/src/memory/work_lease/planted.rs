//! Planted faults: work leases that break one rule each, to prove that the suite would notice.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure_core::domain::{
    BacklogChange, Change, Decided, Domain, DomainView, OffsetView, ReservationChange, Terminal,
    TerminalChange, fail, renew, replay, submit, succeed, try_acquire,
};
use tenure_core::{
    AcquireResult, DomainRules, FailResult, Reservation, SucceedResult, Timestamp, Token, WorkerId,
};

use super::WorkLease;
use super::decisions::Decisions;
use super::shards::lock;

/// A rule that a planted work lease breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkLeaseFault {
    /// A success takes the next offset out of the backlog, as if it handed it off.
    PopOnHint,
    /// A retry less than allowed.
    RetryTooFew,
    /// A retry more than allowed.
    RetryTooMany,
    /// The reservation is looked at before the terminal offsets.
    LeaseBeforeTerminal,
    /// `succeed` does not compare the token.
    SucceedByDomain,
    /// `fail` does not compare the token.
    FailByDomain,
    /// A retry draws a new token.
    RetryNewToken,
    /// A retry counts as a first acquisition.
    RetryNewTime,
    /// What is given up is kept as processed.
    FailedAsProcessed,
    /// What is given up is forgotten.
    FailedForgotten,
    /// A success leaves the reservation.
    LeaseNotCleared,
    /// A newcomer that is out of order is queued in silence.
    OrderingSilent,
    /// A newcomer that is out of order is acquired.
    OrderingIgnored,
    /// An acquired head stays in the backlog.
    HeadNotPopped,
    /// An offset in flight is acquired again, under a new token.
    AcquiredTwice,
    /// `submit` refuses a newcomer that is out of order.
    SubmitRefuses,
    /// A term is over one moment too late.
    LapseTooLate,
    /// An offset that is taken over starts anew.
    TakenOverAnew,
    /// What is in flight or queued is ended by the watermark.
    WatermarkEnds,
    /// The offset at the watermark counts as below it.
    WatermarkTooHigh,
    /// The limit of the backlog is not looked at.
    BacklogUnlimited,
    /// Replay queues an offset but leaves it terminal.
    ReplayStaysTerminal,
    /// Renew does not prolong.
    RenewIdle,
    /// Eviction does not ask whether anybody refers to the record.
    EvictReferenced,
    /// Eviction takes what is still remembered.
    EvictRemembered,
}

impl WorkLeaseFault {
    /// All of them.
    pub const ALL: [Self; 25] = [
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

impl WorkLease {
    /// A work lease that breaks one rule.
    pub fn planted(rules: DomainRules, fault: WorkLeaseFault) -> Self {
        Self::with_decisions(rules, fault.decisions())
    }
}

fn evict_referenced(record: &mut Arc<Mutex<Domain>>, prune: &dyn Fn(&mut Domain)) -> bool {
    let mut kept = lock(record);
    prune(&mut kept);
    kept.is_blank()
}

fn evict_remembered(record: &mut Arc<Mutex<Domain>>, _: &dyn Fn(&mut Domain)) -> bool {
    let is_alone = Arc::strong_count(record) == 1;
    let kept = lock(record);
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

/// The token that stands, whichever was shown.
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

/// `fail` with the reservation of a retry changed.
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

/// As if nothing were in flight and nothing waited.
fn without_anything<'a>(view: &DomainView<'a>) -> DomainView<'a> {
    DomainView {
        reservation: None,
        head: None,
        ..*view
    }
}

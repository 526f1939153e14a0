//! Planted faults: memory stores that break one rule each, to prove that the suite notices.

mod turn;
mod webhook;

use std::sync::Arc;

use tenure_core::store::Rest;
use tenure_core::{
    Clock, Counters, Guarded, Lateness, OutcomeKind, Refusal, State, may_renew, may_settle,
};
use tenure_store::memory::{MemoryStore, Rules};

pub(crate) use self::turn::TurnFault;
pub(crate) use self::webhook::WebhookFault;

/// A rule that a planted store breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Settle checks only the id, not the token.
    SettleById,
    /// Settle checks the worker, not the claim.
    SettleByHolder,
    /// Settle accepts a late answer although the call forbids it.
    SettleLate,
    /// Reap ends leases that are still live.
    ReapUnguarded,
    /// The reaper takes a lease exactly at the end of its term, not only after it.
    ReapTooSoon,
    /// Renew revives a lease that has lapsed.
    RenewLapsed,
    /// Renew sets the end of the term, even if that is earlier.
    RenewShortens,
    /// Claim takes one item more than the limit.
    ClaimBeyondLimit,
    /// Claim takes items that are not due yet.
    ClaimTooSoon,
    /// Claim accepts a token that already has a lease.
    TokenReused,
    /// Each claim gets the same fence.
    FenceRepeated,
    /// Replay accepts an item that is not settled.
    ReplayUnsettled,
    /// Bury turns a done item into a dead one.
    BurySettled,
    /// Items that a settle does not name are silently done.
    RestLost,
    /// A repeated settle is not recognised.
    RepeatForgotten,
    /// A settle with another outcome passes for a repeat.
    RepeatByToken,
    /// A lapse is not counted, so a poison item never dies.
    LapseUncounted,
    /// A release counts as a failure, so a deploy can kill an item.
    ReleaseCharged,
    /// An item that lapsed twice is claimed together with others.
    NeverAlone,
    /// Prune uses the first time at which an item was done, not its current state.
    PruneReplayed,
    /// Prune deletes an item exactly at the end of its retention, not only after it.
    PruneTooSoon,
    /// The order of a key is broken.
    Turn(TurnFault),
    /// The deliveries to endpoints are wrong.
    Webhook(WebhookFault),
}

impl Fault {
    /// All except those of [`WebhookFault::ALL`].
    pub(crate) const ALL: [Self; 33] = [
        Self::SettleById,
        Self::SettleByHolder,
        Self::SettleLate,
        Self::ReapUnguarded,
        Self::ReapTooSoon,
        Self::RenewLapsed,
        Self::RenewShortens,
        Self::ClaimBeyondLimit,
        Self::ClaimTooSoon,
        Self::TokenReused,
        Self::FenceRepeated,
        Self::ReplayUnsettled,
        Self::BurySettled,
        Self::RestLost,
        Self::RepeatForgotten,
        Self::RepeatByToken,
        Self::LapseUncounted,
        Self::ReleaseCharged,
        Self::NeverAlone,
        Self::PruneReplayed,
        Self::PruneTooSoon,
        Self::Turn(TurnFault::OnDeadIgnored),
        Self::Turn(TurnFault::OutOfTurnAccepted),
        Self::Turn(TurnFault::RunNotPutBack),
        Self::Turn(TurnFault::TwoHeads),
        Self::Turn(TurnFault::PromotionForgotten),
        Self::Turn(TurnFault::LastPromoted),
        Self::Turn(TurnFault::RunAcrossGap),
        Self::Turn(TurnFault::RunUnasked),
        Self::Turn(TurnFault::RunBehindSetback),
        Self::Turn(TurnFault::LapseChargedToAll),
        Self::Turn(TurnFault::ReplayedToFront),
        Self::Turn(TurnFault::PauseIgnored),
    ];

    /// A store that breaks this rule.
    pub(crate) fn store(self, clock: Arc<dyn Clock>) -> MemoryStore {
        MemoryStore::with_rules(clock, self.rules())
    }

    fn rules(self) -> Rules {
        let mut rules = Rules::default();
        match self {
            Self::SettleById => {
                rules.may_settle = |lease, _, lateness, now| match lease {
                    Some(lease) => may_settle(Some(lease), &lease.token, lateness, now),
                    None => Guarded::Refused(Refusal::NotClaimed),
                };
            }
            Self::SettleByHolder => {
                rules.may_settle = |lease, token, lateness, now| match lease {
                    Some(lease) if lease.token.holder() == token.holder() => {
                        may_settle(Some(lease), &lease.token, lateness, now)
                    }
                    _ => may_settle(lease, token, lateness, now),
                };
            }
            Self::SettleLate => {
                rules.may_settle =
                    |lease, token, _, now| may_settle(lease, token, Lateness::Accept, now);
            }
            Self::ReapUnguarded => rules.may_reap = |_, _, _| true,
            Self::ReapTooSoon => rules.may_reap = |until, _, now| until <= now,
            Self::RenewLapsed => {
                rules.may_renew = |lease, token, _| match lease {
                    Some(lease) => may_renew(Some(lease), token, lease.claimed_at),
                    None => Guarded::Refused(Refusal::Lost),
                };
            }
            Self::RenewShortens => rules.prolong = |_, asked| asked,
            Self::ClaimBeyondLimit => rules.most = |claim| claim.limit.saturating_add(1),
            Self::ClaimTooSoon => rules.is_due = |_, _| true,
            Self::TokenReused => rules.is_fresh = |_| true,
            Self::FenceRepeated => rules.next_fence = |_| 1,
            Self::ReplayUnsettled => rules.may_replay = |_| true,
            Self::BurySettled => rules.may_bury = |state| state != State::Dead,
            Self::RestLost => rules.rest = |_| Rest::Done,
            Self::RepeatForgotten => rules.is_repeat = |_, _| false,
            Self::RepeatByToken => rules.is_repeat = |line, settle| line.0 == settle.0,
            Self::LapseUncounted => {
                rules.count = |counters, word| {
                    count(
                        counters,
                        mistaken(word, OutcomeKind::Lapsed, OutcomeKind::Release),
                    )
                };
            }
            Self::ReleaseCharged => {
                rules.count = |counters, word| {
                    count(
                        counters,
                        mistaken(word, OutcomeKind::Release, OutcomeKind::Retry),
                    )
                };
            }
            Self::NeverAlone => rules.is_lonely = |_| false,
            Self::PruneReplayed => {
                rules.settled = |now, first_done| first_done.map(|at| (State::Done, at)).or(now);
            }
            Self::PruneTooSoon => rules.is_past = |settled_at, before| settled_at <= before,
            Self::Turn(fault) => fault.plant(&mut rules),
            Self::Webhook(fault) => fault.plant(&mut rules),
        }
        rules
    }
}

/// The correct count, for planted rules that change only one case.
fn count(counters: Counters, word: OutcomeKind) -> Counters {
    (Rules::default().count)(counters, word)
}

/// Replaces one outcome by another.
fn mistaken(word: OutcomeKind, this: OutcomeKind, other: OutcomeKind) -> OutcomeKind {
    if word == this { other } else { word }
}

//! Planted faults: memory stores that break one rule each, to prove that the suite would notice.

use std::sync::Arc;

use tenure_core::store::Rest;
use tenure_core::{
    Clock, Counters, Guarded, Lateness, Refusal, State, Word, may_renew, may_settle,
};

use super::MemoryStore;
use super::misplaced::TurnFault;
use super::misrouted::WebhookFault;
use super::rules::Rules;
use super::spaces::Space;

/// A rule that a planted store breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Settle looks at the id alone, not at the token.
    SettleById,
    /// Settle looks at the worker, not at the claim.
    SettleByHolder,
    /// Settle accepts a late answer although it was told to refuse it.
    SettleLate,
    /// Reap ends leases that are still live.
    ReapUnguarded,
    /// The reaper takes a lease at the very end of its term, and not only after it.
    ReapTooSoon,
    /// Renew revives a lease that has lapsed.
    RenewLapsed,
    /// Renew sets the end of the term, even if that is sooner.
    RenewShortens,
    /// Claim takes one item more than it was asked for.
    ClaimBeyondLimit,
    /// Claim does not wait until an item is available.
    ClaimTooSoon,
    /// Claim accepts a token that has a lease already.
    TokenReused,
    /// Each claim gets the same fence.
    FenceRepeated,
    /// Replay puts back what is not settled.
    ReplayUnsettled,
    /// Bury turns what is done into dead.
    BurySettled,
    /// What a settle does not name is done in silence.
    RestLost,
    /// A repeated settle is not known as one.
    RepeatForgotten,
    /// A settle with another word passes for a repeat.
    RepeatByToken,
    /// A lapse costs nothing, so a poison item never dies.
    LapseUncounted,
    /// A release costs a failure, so a deploy can kill an item.
    ReleaseCharged,
    /// An item that lapsed twice is claimed with others.
    NeverAlone,
    /// Prune goes by the first time that an item was done, not by where it is now.
    PruneReplayed,
    /// Prune deletes an item at the very end of its retention, and not only after it.
    PruneTooSoon,
    /// The order of a domain is broken.
    Turn(TurnFault),
    /// What is owed to endpoints is wrong.
    Webhook(WebhookFault),
}

impl Fault {
    /// All of them, but for those of [`WebhookFault::ALL`].
    pub const ALL: [Self; 33] = [
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
                rules.count =
                    |counters, word| count(counters, mistaken(word, Word::Lapsed, Word::Release));
            }
            Self::ReleaseCharged => {
                rules.count =
                    |counters, word| count(counters, mistaken(word, Word::Release, Word::Retry));
            }
            Self::NeverAlone => rules.is_lonely = |_| false,
            Self::PruneReplayed => {
                rules.settled = |kept| {
                    let done = kept.journal.iter().find(|line| line.word == Word::Done);
                    let first = done.map(|line| (State::Done, line.settled_at));
                    first.or_else(|| (Rules::default().settled)(kept))
                };
            }
            Self::PruneTooSoon => rules.is_past = |settled_at, before| settled_at <= before,
            Self::Turn(fault) => fault.plant(&mut rules),
            Self::Webhook(fault) => fault.plant(&mut rules),
        }
        rules
    }
}

/// As it should be.
fn count(counters: Counters, word: Word) -> Counters {
    (Rules::default().count)(counters, word)
}

/// A word, taken for another if it is this one.
fn mistaken(word: Word, this: Word, other: Word) -> Word {
    if word == this { other } else { word }
}

impl MemoryStore {
    /// A store that breaks one rule.
    pub fn planted(clock: Arc<dyn Clock>, fault: Fault) -> Self {
        Self::with_rules(clock, fault.rules())
    }

    /// Everything that is kept, as text: two dumps are equal if and only if nothing changed.
    pub fn dump(&self) -> String {
        let shelf = self.shelf();
        let mut lines = vec![format!("{:#?}", *shelf)];
        // What `Debug` hides.
        for kept in shelf.items.values() {
            lines.push(kept.event.payload().to_owned());
            lines.push(format!("{:?}", kept.event.headers()));
            let tokens = kept.journal.iter().map(|line| line.token.expose());
            lines.extend(tokens.map(str::to_owned));
        }
        lines.extend(shelf.leases.keys().map(|token| token.expose().to_owned()));
        let held = shelf.spaces.values().flat_map(Space::tokens);
        lines.extend(held.map(|token| token.expose().to_owned()));
        lines.join("\n")
    }
}

//! Planted faults in the order of a key.

use tenure_core::{Fate, OnDead, OutcomeKind, lapse_run, settle_run};
use tenure_store::memory::{Fates, Rules};

/// A rule about keys that a planted store breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TurnFault {
    /// A dead head never blocks its key.
    OnDeadIgnored,
    /// Settle accepts an item although an earlier one of its run is not settled.
    OutOfTurnAccepted,
    /// Items behind one that becomes pending again stay held.
    RunNotPutBack,
    /// An item becomes the head of its key although the key has one.
    TwoHeads,
    /// After a head was settled, no item becomes the new head.
    PromotionForgotten,
    /// After a head was settled, the last item of the key becomes the new head.
    LastPromoted,
    /// A run continues behind an item that it must stop at.
    RunAcrossGap,
    /// A claim takes runs although it did not ask for them.
    RunUnasked,
    /// A run is claimed behind a head with an earlier attempt.
    RunBehindSetback,
    /// A lapse counts for every item of a run.
    LapseChargedToAll,
    /// A replayed item becomes the next of its key.
    ReplayedToFront,
    /// A paused key continues.
    PauseIgnored,
}

impl TurnFault {
    pub(super) fn plant(self, rules: &mut Rules) {
        match self {
            Self::OnDeadIgnored => {
                rules.settle_run = |said, _| settle_run(said, OnDead::Skip);
                rules.lapse_run = |length, is_dead, _| lapse_run(length, is_dead, OnDead::Skip);
            }
            Self::OutOfTurnAccepted => rules.settle_run = accept_all,
            Self::RunNotPutBack => {
                rules.settle_run = |said, on_dead| {
                    let (mut fates, standing) = settle_run(said, on_dead);
                    for fate in &mut fates {
                        if *fate == Fate::Behind {
                            *fate = Fate::Held;
                        }
                    }
                    (fates, standing)
                };
            }
            Self::TwoHeads => rules.is_idle = |is_paused| is_paused != Some(true),
            Self::PromotionForgotten => rules.next = |_| None,
            Self::LastPromoted => rules.next = |backlog| backlog.last().copied(),
            Self::RunAcrossGap => {
                rules.run = |behind| {
                    let run = behind.iter().filter(|(_, may_follow)| *may_follow);
                    run.map(|(id, _)| *id).collect()
                };
            }
            Self::RunUnasked => rules.run_length = |claim| claim.most(),
            Self::RunBehindSetback => rules.may_lead = |_| true,
            Self::LapseChargedToAll => rules.lapse_counts = |_| OutcomeKind::Lapsed,
            Self::ReplayedToFront => rules.replay_turn = |last| -last,
            Self::PauseIgnored => rules.is_held_back = |_| false,
        }
    }
}

fn accept_all(said: &[Option<OutcomeKind>], on_dead: OnDead) -> Fates {
    let (mut fates, standing) = settle_run(said, on_dead);
    for (fate, word) in fates.iter_mut().zip(said) {
        if fate.is_refused() {
            *fate = match word {
                Some(OutcomeKind::Done | OutcomeKind::Dead) => Fate::Ended,
                _ => Fate::Head,
            };
        }
    }
    (fates, standing)
}

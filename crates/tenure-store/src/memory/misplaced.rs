//! Planted faults in the order of a domain.

use tenure_core::{Fate, OnDead, Word, lapse_run, settle_run};

use super::rules::{Fates, Rules};

/// A rule about domains that a planted store breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnFault {
    /// A dead head never blocks its domain.
    OnDeadIgnored,
    /// Settle takes what is said of an item although one before it is not settled.
    OutOfTurnAccepted,
    /// What follows an item that goes back stays held.
    RunNotPutBack,
    /// An item is the head of its domain although there is one.
    TwoHeads,
    /// Nobody gets the turn of a head that has ended.
    PromotionForgotten,
    /// The last one gets the turn of a head that has ended.
    LastPromoted,
    /// A run goes on behind an item that may not follow.
    RunAcrossGap,
    /// A claim takes runs although it did not ask for them.
    RunUnasked,
    /// A run is claimed behind a head that was tried before.
    RunBehindSetback,
    /// A lapse is charged to every item of a run.
    LapseChargedToAll,
    /// What is replayed is the next of its domain.
    ReplayedToFront,
    /// A domain goes on although it is paused.
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
            Self::TwoHeads => rules.is_idle = |domain| domain.is_none_or(|of| !of.is_paused),
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
            Self::LapseChargedToAll => rules.lapse_counts = |_| Word::Lapsed,
            Self::ReplayedToFront => rules.replay_turn = |last| -last,
            Self::PauseIgnored => rules.is_held_back = |_| false,
        }
    }
}

fn accept_all(said: &[Option<Word>], on_dead: OnDead) -> Fates {
    let (mut fates, standing) = settle_run(said, on_dead);
    for (fate, word) in fates.iter_mut().zip(said) {
        if fate.is_refused() {
            *fate = match word {
                Some(Word::Done | Word::Dead) => Fate::Ended,
                _ => Fate::Head,
            };
        }
    }
    (fates, standing)
}

//! Planted faults: worlds with a store or a network that breaks one rule. A checker that never
//! failed proves nothing.
//!
//! Not planted here, because no engine can come across them: `SettleLate` (it never settles
//! strictly), `TokenReused` (it never uses a token twice), `RenewShortens` (it renews a lease for
//! the same term each time).

use tenure_store::memory::Fault;

use crate::checkers::check;
use crate::ledger::Lie;
use crate::world::{Planted, run};

/// A fault must be noticed within this many seeds.
const SEEDS: u64 = 1000;

/// `hint` is a seed that noticed it; looked at first, so that the suite stays quick. It may go
/// stale when the engine changes.
fn assert_noticed(planted: Planted, hint: u64) {
    let mut seeds = std::iter::once(hint).chain(0..SEEDS);
    let is_noticed = seeds.any(|seed| !check(&run(seed, planted)).is_empty());
    assert!(is_noticed, "{planted:?} was not noticed in {SEEDS} seeds");
}

#[test]
fn every_planted_fault_of_the_store_is_noticed() {
    for (fault, hint) in [
        (Fault::SettleById, 39),
        (Fault::SettleByHolder, 39),
        (Fault::ReapUnguarded, 0),
        (Fault::ReapTooSoon, 436),
        (Fault::RenewLapsed, 41),
        (Fault::ClaimBeyondLimit, 0),
        (Fault::ClaimTooSoon, 0),
        (Fault::FenceRepeated, 0),
        (Fault::ReplayUnsettled, 5),
        (Fault::BurySettled, 5),
        (Fault::RestLost, 2),
        (Fault::RepeatForgotten, 3),
        (Fault::RepeatByToken, 9),
        (Fault::LapseUncounted, 2),
        (Fault::ReleaseCharged, 0),
        (Fault::NeverAlone, 6),
    ] {
        assert_noticed(Planted::Store(fault), hint);
    }
}

#[test]
fn every_lie_of_the_network_is_noticed() {
    for (lie, hint) in [
        (Lie::RenewalsKept, 131),
        (Lie::RenewalsDropped, 0),
        (Lie::SettlesDropped, 0),
        (Lie::EventsDropped, 0),
        (Lie::FastClock, 39),
        (Lie::ReapsDropped, 2),
    ] {
        assert_noticed(Planted::Lie(lie), hint);
    }
}

/// Each of these breaks other laws as well; that of the order is noticed by itself.
#[test]
fn an_engine_that_does_not_keep_the_order_is_noticed_as_such() {
    for (lie, law, hint) in [
        (
            Lie::KeysHidden,
            "law 1: two items of a domain are worked",
            1,
        ),
        (Lie::KeysHidden, "law 7: begun before", 1),
        (Lie::KeysHidden, "law 7: a settle out of turn", 10),
        (Lie::KeysHidden, "order: ", 1),
        (Lie::FailuresHidden, "law 7: begun before", 9),
    ] {
        let mut seeds = std::iter::once(hint).chain(0..SEEDS);
        let noticing = seeds.find(|seed| {
            let violations = check(&run(*seed, Planted::Lie(lie)));
            violations
                .iter()
                .any(|violation| violation.starts_with(law))
        });
        assert!(noticing.is_some(), "{lie:?} was not noticed: {law}");
    }
}

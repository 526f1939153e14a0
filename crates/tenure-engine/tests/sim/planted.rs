//! Planted faults: the checkers must notice a store or network that breaks one rule.
//!
//! Not planted here, because an engine cannot encounter them: `SettleLate` (none of its settles
//! demands to be refused if late), `TokenReused` (it never uses a token twice), `RenewShortens` (it
//! renews a lease by the same term each time).

use tenure_core::testing::Extent;

use crate::checkers::check;
use crate::faults::Fault;
use crate::logged_store::Lie;
use crate::world::{Planted, run};

/// Number of seeds within which a fault must be noticed.
const SEEDS: u64 = 1000;

/// Asserts that the checkers notice the fault. `hint` is a seed that showed it earlier and is tried
/// first, so that the suite stays quick; the hint may become stale when the engine changes.
fn assert_noticed(planted: Planted, hint: u64) {
    let mut seeds = std::iter::once(hint).chain(0..SEEDS);
    let is_noticed = seeds.any(|seed| !check(&run(seed, planted)).is_empty());
    assert!(is_noticed, "{planted:?} was not noticed in {SEEDS} seeds");
}

#[test]
fn every_planted_fault_of_the_store_is_noticed() {
    let faults = [
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
    ];
    for (fault, hint) in Extent::chosen().of(&faults, 3) {
        assert_noticed(Planted::Store(fault), hint);
    }
}

#[test]
fn every_lie_of_the_network_is_noticed() {
    let lies = [
        (Lie::RenewalsForged, 2138),
        (Lie::RenewalsDropped, 0),
        (Lie::SettlesDropped, 0),
        (Lie::EventsDropped, 0),
        (Lie::FastClock, 39),
        (Lie::ReapsDropped, 2),
    ];
    for (lie, hint) in Extent::chosen().of(&lies, 2) {
        assert_noticed(Planted::Lie(lie), hint);
    }
}

/// Dropped releases also leave leases to lapse; the rule about outages must notice them by itself.
#[test]
fn an_outage_that_is_counted_as_a_crash_is_noticed() {
    let law = "outage: ";
    let mut seeds = std::iter::once(304).chain(0..SEEDS);
    let is_noticed = seeds.any(|seed| {
        let violations = check(&run(seed, Planted::Lie(Lie::ReleasesDropped)));
        violations.iter().any(|violation| violation.contains(law))
    });
    assert!(is_noticed, "not noticed in {SEEDS} seeds");
}

/// Each fault also breaks other rules; the rules of the order must notice it by themselves.
#[test]
fn an_engine_that_breaks_the_order_is_noticed_by_the_law_of_order() {
    let lies = [
        (
            Lie::KeysHidden,
            "law 1: two items of a key are worked on",
            1,
        ),
        (Lie::KeysHidden, "law 7: begun before", 1),
        (Lie::KeysHidden, "law 7: a settle out of turn", 10),
        (Lie::KeysHidden, "order: ", 1),
        (Lie::FailuresHidden, "law 7: begun before", 9),
    ];
    for (lie, law, hint) in Extent::chosen().of(&lies, 2) {
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

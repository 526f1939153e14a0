//! The checks must catch each planted fault, because a checker that never failed proves nothing.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::faults::Fault;
use super::{Check, World, beyond, ending, eviction, order, scenarios, watermark};

fn all() -> impl Iterator<Item = Check> {
    [
        scenarios::CHECKS,
        order::CHECKS,
        ending::CHECKS,
        beyond::CHECKS,
        watermark::CHECKS,
        eviction::CHECKS,
    ]
    .into_iter()
    .flatten()
    .copied()
}

/// Each fault with the check that must notice it; other checks may notice it, too.
const EXPECTED: [(Fault, &str); Fault::ALL.len() - 1] = [
    (
        Fault::PopOnHint,
        "scenario_2_queue_then_orchestrated_hand_off",
    ),
    (Fault::RetryTooFew, "the_number_of_retries_is_exact"),
    (Fault::RetryTooMany, "the_number_of_retries_is_exact"),
    (
        Fault::LeaseBeforeTerminal,
        "a_terminal_offset_is_found_before_the_reservation_is_checked",
    ),
    (
        Fault::SucceedByDomain,
        "another_token_is_an_error_and_changes_nothing",
    ),
    (
        Fault::FailByDomain,
        "another_token_is_an_error_and_changes_nothing",
    ),
    (Fault::RetryNewToken, "scenario_4_retry"),
    (Fault::RetryNewTime, "scenario_4_retry"),
    (Fault::FailedAsProcessed, "scenario_6_idempotence"),
    (Fault::FailedForgotten, "scenario_6_idempotence"),
    (
        Fault::LeaseNotCleared,
        "a_success_ends_the_reservation_and_keeps_the_backlog",
    ),
    (Fault::OrderingSilent, "scenario_3_out_of_order_acquire"),
    (Fault::OrderingIgnored, "scenario_3_out_of_order_acquire"),
    (
        Fault::HeadNotPopped,
        "scenario_2_queue_then_orchestrated_hand_off",
    ),
    (
        Fault::AcquiredTwice,
        "an_offset_in_flight_is_answered_with_its_token",
    ),
    (
        Fault::SubmitRefuses,
        "a_new_offset_between_hint_and_acquisition_is_queued",
    ),
    (Fault::LapseTooLate, "a_lapsed_reservation_is_taken_over"),
    (Fault::TakenOverAnew, "a_lapsed_reservation_is_taken_over"),
    (
        Fault::WatermarkEnds,
        "the_watermark_does_not_end_offsets_in_flight_or_queued",
    ),
    (
        Fault::WatermarkTooHigh,
        "offsets_below_the_watermark_are_terminal_and_the_one_at_it_is_not",
    ),
    (
        Fault::BacklogUnlimited,
        "a_full_backlog_is_an_error_and_accepts_nothing",
    ),
    (
        Fault::ReplayStaysTerminal,
        "a_replayed_offset_waits_at_the_end_of_the_backlog",
    ),
    (
        Fault::RenewIdle,
        "a_renewal_extends_the_term_and_never_shortens_it",
    ),
    (Fault::EvictRemembered, "only_an_empty_domain_is_evicted"),
];

/// `EvictReferenced` is left out here: it needs a race, and has its own test.
#[test]
fn the_checks_catch_every_planted_fault() {
    for fault in Fault::ALL {
        if fault == Fault::EvictReferenced {
            continue;
        }
        let check = EXPECTED.iter().find(|(of, _)| *of == fault);
        let (_, name) = check.unwrap_or_else(|| panic!("no check is made for {fault:?}"));
        let check = all().find(|check| check.name == *name);
        let run = check
            .unwrap_or_else(|| panic!("no check is called {name}"))
            .run;
        let attempt = catch_unwind(AssertUnwindSafe(|| run(&World::new(Some(fault)))));
        assert!(attempt.is_err(), "{name} does not notice {fault:?}");
    }
}

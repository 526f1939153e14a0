//! The suite must catch each planted fault, because a checker that never failed proves nothing.

use std::panic::AssertUnwindSafe;

use tenure_core::testing::Extent;

use crate::conformance;
use crate::faults::{Fault, Planted, TurnFault, WebhookFault};
use crate::world;

/// The checks that fail on a store with this fault.
async fn caught_by(fault: Fault) -> Vec<&'static str> {
    let mut names = Vec::new();
    for check in conformance::all() {
        let world = world::planted(fault);
        // The check runs in a separate task, so that a failure ends only that task.
        let attempt = tokio::spawn(async move {
            let world = AssertUnwindSafe(world);
            (check.run)(&**world).await;
        });
        if attempt.await.is_err_and(|error| error.is_panic()) {
            names.push(check.name);
        }
    }
    names
}

/// Each fault with the check that must notice it; other checks may notice it, too.
const EXPECTED: [(Fault, &str); Fault::ALL.len()] = [
    (
        Fault::SettleById,
        "law_3_any_token_but_the_current_one_is_refused",
    ),
    (
        Fault::SettleByHolder,
        "an_earlier_token_of_the_same_worker_is_refused",
    ),
    (
        Fault::SettleLate,
        "a_strict_settle_is_refused_at_the_end_of_the_term",
    ),
    (
        Fault::ReapUnguarded,
        "law_5_only_its_holder_or_a_bury_ends_a_live_lease",
    ),
    (
        Fault::ReapTooSoon,
        "the_reaper_waits_until_the_term_is_past",
    ),
    (
        Fault::RenewLapsed,
        "a_lease_can_be_renewed_before_its_end_but_not_at_it",
    ),
    (Fault::RenewShortens, "a_renewal_never_shortens_a_lease"),
    (
        Fault::ClaimBeyondLimit,
        "a_claim_never_takes_more_than_its_limit",
    ),
    (
        Fault::ClaimTooSoon,
        "an_item_is_not_claimed_before_it_is_available",
    ),
    (
        Fault::TokenReused,
        "law_2_a_token_is_never_issued_twice_and_a_fence_only_rises",
    ),
    (
        Fault::FenceRepeated,
        "law_2_a_token_is_never_issued_twice_and_a_fence_only_rises",
    ),
    (
        Fault::ReplayUnsettled,
        "law_6_only_the_six_transitions_exist",
    ),
    (
        Fault::BurySettled,
        "law_4_done_and_dead_are_final_but_for_a_replay",
    ),
    (Fault::RestLost, "law_8_an_added_item_is_never_lost"),
    (
        Fault::RepeatForgotten,
        "law_9_a_repeated_settle_gives_the_same_answer",
    ),
    (
        Fault::RepeatByToken,
        "a_repeat_with_another_outcome_is_refused",
    ),
    (
        Fault::LapseUncounted,
        "an_item_with_more_crashes_than_allowed_is_dead",
    ),
    (Fault::ReleaseCharged, "a_release_counts_only_an_attempt"),
    (
        Fault::NeverAlone,
        "a_poison_item_dies_and_the_others_become_done",
    ),
    (Fault::PruneReplayed, "a_replayed_item_is_not_pruned"),
    (
        Fault::PruneTooSoon,
        "an_item_is_pruned_after_the_end_of_its_retention_but_not_at_it",
    ),
    (
        Fault::Turn(TurnFault::OnDeadIgnored),
        "a_dead_head_blocks_its_key_if_the_settle_asks_for_it",
    ),
    (
        Fault::Turn(TurnFault::OutOfTurnAccepted),
        "an_outcome_out_of_turn_is_refused",
    ),
    (
        Fault::Turn(TurnFault::RunNotPutBack),
        "the_rest_of_a_run_returns_to_the_backlog",
    ),
    (
        Fault::Turn(TurnFault::TwoHeads),
        "law_1_one_lease_holds_all_held_items_of_a_key",
    ),
    (
        Fault::Turn(TurnFault::PromotionForgotten),
        "law_7_in_a_key_items_are_settled_in_order",
    ),
    (
        Fault::Turn(TurnFault::LastPromoted),
        "law_7_in_a_key_items_are_settled_in_order",
    ),
    (
        Fault::Turn(TurnFault::RunAcrossGap),
        "a_run_stops_before_an_item_that_is_not_due",
    ),
    (
        Fault::Turn(TurnFault::RunUnasked),
        "only_the_head_of_a_key_is_claimed",
    ),
    (
        Fault::Turn(TurnFault::RunBehindSetback),
        "a_head_that_was_claimed_before_is_claimed_without_a_run",
    ),
    (
        Fault::Turn(TurnFault::LapseChargedToAll),
        "a_lapse_of_a_run_counts_a_crash_of_its_first_item_only",
    ),
    (
        Fault::Turn(TurnFault::ReplayedToFront),
        "a_replayed_item_goes_to_the_end_of_its_key",
    ),
    (
        Fault::Turn(TurnFault::PauseIgnored),
        "held_items_of_a_paused_key_can_be_settled",
    ),
];

/// Each fault of deliveries with the check that must notice it.
const DELIVERY_FAULTS: [(WebhookFault, &str); WebhookFault::ALL.len()] = [
    (
        WebhookFault::DeliveryForUndone,
        "a_refused_settle_creates_no_delivery",
    ),
    (
        WebhookFault::DeliveryUnsubscribed,
        "an_event_gets_a_delivery_for_each_subscribed_endpoint",
    ),
    (
        WebhookFault::DeliveryTwice,
        "a_replayed_event_gets_no_second_delivery",
    ),
    (
        WebhookFault::KeyShared,
        "deliveries_of_a_key_keep_their_order_per_endpoint",
    ),
    (WebhookFault::LaneLimitIgnored, "each_lane_has_its_limit"),
    (
        WebhookFault::SupersededNotMarked,
        "the_call_of_a_refused_delivery_is_superseded",
    ),
    (
        WebhookFault::SourcePruned,
        "an_event_is_kept_as_long_as_it_has_deliveries",
    ),
];

#[tokio::test]
async fn the_suite_catches_every_planted_fault() {
    assert_eq!(EXPECTED.map(|(fault, _)| fault), Fault::ALL);
    assert_eq!(DELIVERY_FAULTS.map(|(fault, _)| fault), WebhookFault::ALL);
    let owed = DELIVERY_FAULTS.map(|(fault, check)| (Fault::Webhook(fault), check));
    for (fault, check) in EXPECTED.into_iter().chain(owed) {
        let names = caught_by(fault).await;
        assert!(
            names.contains(&check),
            "{fault:?} was caught by {names:?}, not by {check}"
        );
    }
}

/// A fault in the statements of the PostgreSQL store, with the check that must notice it.
#[derive(Clone, Copy)]
struct Broken {
    check: &'static str,
    faults: &'static [Planted],
}

pub(crate) const fn planted(file: &'static str, from: &'static str, to: &'static str) -> Planted {
    Planted { file, from, to }
}

/// The check of a sweep, which moves more events than the claim reads.
const SWEPT: &str = "events_beyond_the_limit_of_a_claim_are_set_aside_as_they_were";

const BROKEN: [Broken; 44] = [
    Broken {
        // A claimed item can be claimed again.
        check: "law_1_an_item_has_at_most_one_live_lease",
        faults: &[planted(
            "claim",
            "where ctid = any",
            "where false and ctid = any",
        )],
    },
    Broken {
        // Both statements that settle compare only the id.
        check: "law_3_any_token_but_the_current_one_is_refused",
        faults: &[
            planted(
                "settle",
                "where token = $2",
                "where ids && ($3::bigint[] || $4::bigint[] || $7::bigint[] || $10::bigint[])",
            ),
            planted(
                "settle_done_and_claim",
                "where token = $2 and ids = $3::bigint[]",
                "where ids && $3::bigint[] and $2 <> ''",
            ),
        ],
    },
    Broken {
        // The reap has no guard.
        check: "law_5_only_its_holder_or_a_bury_ends_a_live_lease",
        faults: &[planted(
            "reap",
            "where locked_until < coalesce($1::timestamptz, statement_timestamp())",
            "where true",
        )],
    },
    Broken {
        // The renewal accepts a lapsed lease.
        check: "a_lease_can_be_renewed_before_its_end_but_not_at_it",
        faults: &[planted(
            "renew",
            "and locked_until > coalesce($1::timestamptz, statement_timestamp())",
            "",
        )],
    },
    Broken {
        // The claim takes one item more than its limit.
        check: "a_claim_never_takes_more_than_its_limit",
        faults: &[
            planted("claim", "limit $9", "limit $9 + 1"),
            planted("claim", "limit c.most", "limit c.most + 1"),
        ],
    },
    Broken {
        // A token gets a second lease.
        check: "law_2_a_token_is_never_issued_twice_and_a_fence_only_rises",
        faults: &[planted(
            "claim",
            "having count(*) > 0",
            "having count(*) > 0 \
             on conflict (token) do update set ids = tenure_leases.ids || excluded.ids",
        )],
    },
    Broken {
        check: "a_renewal_never_shortens_a_lease",
        faults: &[planted(
            "renew",
            "greatest(\n        l.locked_until,",
            "coalesce(null,",
        )],
    },
    Broken {
        check: "an_item_is_not_claimed_before_it_is_available",
        faults: &[planted(
            "claim",
            "and available_at <= coalesce($1::timestamptz, statement_timestamp())",
            "",
        )],
    },
    Broken {
        // The replay accepts a held item.
        check: "law_6_only_the_six_transitions_exist",
        faults: &[planted(
            "replay",
            "not in (select i.id",
            "not in (select -i.id",
        )],
    },
    Broken {
        // The settle does not read the journal.
        check: "law_9_a_repeated_settle_gives_the_same_answer",
        faults: &[planted(
            "look",
            "where j.token = $1",
            "where j.token = $1 and false",
        )],
    },
    Broken {
        // Items that a settle does not name are deleted with their lease.
        check: "law_8_an_added_item_is_never_lost",
        faults: &[
            planted("settle", "and rest.n = 0", ""),
            planted("settle", "and rest.n > 0", "and false"),
        ],
    },
    Broken {
        check: "an_item_with_more_crashes_than_allowed_is_dead",
        faults: &[planted(
            "reap",
            "crashes = s.crashes + excluded.crashes,",
            "crashes = s.crashes,",
        )],
    },
    Broken {
        check: "a_strict_settle_is_refused_at_the_end_of_the_term",
        faults: &[planted(
            "settle",
            "where not (is_late and $13::boolean)",
            "where true",
        )],
    },
    Broken {
        // The store accepts a change based on another version.
        check: "a_change_of_settings_based_on_another_version_is_refused",
        faults: &[planted(
            "change_settings",
            "where singleton = 1 and version = $1",
            "where singleton = 1 and $1::bigint >= 0",
        )],
    },
    Broken {
        // A late report makes a worker that has left active again.
        check: "a_worker_leaves_once_and_for_good",
        faults: &[planted(
            "report",
            "reported_at = excluded.reported_at",
            "reported_at = excluded.reported_at, left_at = null",
        )],
    },
    Broken {
        // An old journal row deletes an item that was replayed and is done again.
        check: "the_retention_of_a_replayed_item_starts_at_its_last_settle",
        faults: &[planted(
            "prune",
            "when s.replayed_at is not null",
            "when false",
        )],
    },
    Broken {
        // The prune ignores that an item is pending or held again.
        check: "a_replayed_item_is_not_pruned",
        faults: &[
            planted("prune", "where (select r.id", "where true or (select r.id"),
            planted("prune", "when s.replayed_at is not null", "when false"),
        ],
    },
    Broken {
        // The prune deletes a journal row that names a kept item.
        check: "a_journal_row_stays_while_one_of_its_items_is_kept",
        faults: &[planted(
            "prune",
            "where ids is null or (",
            "where true or (",
        )],
    },
    Broken {
        check: "a_dedupe_key_is_free_again_after_a_prune",
        faults: &[planted(
            "prune",
            "delete from tenure_dedupe\n    where",
            "delete from tenure_dedupe\n    where false and",
        )],
    },
    Broken {
        // The last arrival becomes the head.
        check: "the_backlog_keeps_the_order_of_arrival_and_has_no_duplicates",
        faults: &[planted(
            "work_lease_change",
            "1 + coalesce(\n               (select b.queue_position",
            "-1 + coalesce(\n               (select -b.queue_position",
        )],
    },
    Broken {
        // The acquired head stays in the backlog.
        check: "queue_then_orchestrated_hand_off",
        faults: &[planted(
            "work_lease_change",
            "and b.log_offset = $11::bigint\n),",
            "and b.log_offset = $11::bigint and false\n),",
        )],
    },
    Broken {
        // The statement does not see the neighbours of an offset.
        check: "terminal_offsets_are_joined_in_any_order",
        faults: &[planted(
            "work_lease_view",
            "-9223372036854775807) - 1",
            "-9223372036854775807) + 1",
        )],
    },
    Broken {
        check: "a_lapsed_reservation_is_taken_over_and_its_late_holder_gets_an_error",
        faults: &[planted(
            "work_lease_lapsed",
            "r.locked_until <= coalesce",
            "r.locked_until < coalesce",
        )],
    },
    Broken {
        // The watermark moves back.
        check: "below_the_watermark_everything_is_processed",
        faults: &[planted(
            "work_lease_advance",
            "watermark = greatest(s.watermark, excluded.watermark)",
            "watermark = excluded.watermark",
        )],
    },
    Broken {
        // A domain is deleted while an offset is in flight.
        check: "a_domain_without_offsets_is_deleted",
        faults: &[planted(
            "work_lease_prune",
            "r.current_offset is null and r.backlog_length = 0 and",
            "r.backlog_length = 0 and",
        )],
    },
    Broken {
        // The search returns domains that are being worked.
        check: "idle_domains_with_a_backlog_are_found",
        faults: &[planted(
            "work_lease_idle_with_backlog",
            "and r.current_offset is null",
            "",
        )],
    },
    Broken {
        // Events that another transaction settled get deliveries.
        check: "a_repeated_settle_creates_no_further_delivery",
        faults: &[planted(
            "webhook_fan_out",
            "and j.xmin = pg_current_xact_id()::xid",
            "",
        )],
    },
    Broken {
        // Every named event gets deliveries.
        check: "only_a_done_event_gets_deliveries",
        faults: &[planted(
            "webhook_fan_out",
            "where (o.id in (select id from done)) is true",
            "where true",
        )],
    },
    Broken {
        // An event gets a second delivery for the same endpoint.
        check: "a_replayed_event_gets_no_second_delivery",
        faults: &[planted(
            "webhook_fan_out",
            "on conflict (source, (lane >> 4)) where source is not null do nothing",
            "on conflict (source, (lane >> 4)) where source is not null \
             do update set available_at = excluded.available_at",
        )],
    },
    Broken {
        // The statement trusts the cached subscriptions.
        check: "a_replayed_event_gets_deliveries_for_new_endpoints",
        faults: &[planted(
            "webhook_fan_out",
            "v.rules_version = $3::bigint as is_current",
            "true or v.rules_version = $3::bigint as is_current",
        )],
    },
    Broken {
        check: "a_delivery_gets_no_deliveries_of_its_own",
        faults: &[planted("webhook_fan_out", "and e.source is null", "")],
    },
    Broken {
        // The last event becomes the first of its key.
        check: "deliveries_of_a_run_keep_its_order",
        faults: &[planted(
            "webhook_fan_out",
            "order by o.nth",
            "order by -o.nth",
        )],
    },
    Broken {
        check: "each_lane_has_its_limit",
        faults: &[planted("claim", "limit c.most", "limit $9")],
    },
    Broken {
        // Lanes without a due delivery are reported.
        check: "lanes_with_due_deliveries_are_listed",
        faults: &[planted(
            "webhook_due_deliveries",
            "and r.available_at <= coalesce($1::timestamptz, statement_timestamp())",
            "",
        )],
    },
    Broken {
        // The turn of a replayed delivery is drawn from the sequence of events, whose numbers are
        // lower, so the delivery comes before all others of its key.
        check: "a_replayed_delivery_goes_to_the_end_of_its_key",
        faults: &[planted(
            "replay",
            "then nextval('tenure_delivery_id')",
            "then nextval('tenure_event_id')",
        )],
    },
    Broken {
        // An event with deliveries is pruned.
        check: "an_open_delivery_is_never_pruned",
        faults: &[planted(
            "prune",
            "where x.source = p.id and",
            "where x.source = p.id and false and",
        )],
    },
    Broken {
        check: "a_prune_deletes_a_delivery_with_its_calls",
        faults: &[planted(
            "prune",
            "where delivery = any",
            "where false and delivery = any",
        )],
    },
    Broken {
        // The store accepts a change based on another version.
        check: "a_change_of_an_endpoint_based_on_an_outdated_version_is_refused",
        faults: &[planted(
            "webhook_change_endpoint",
            "where id = $2 and version = $3",
            "where id = $2 and $3::bigint >= 0",
        )],
    },
    Broken {
        // A swept event stays where it was, too.
        check: SWEPT,
        faults: &[planted(
            "sweep",
            "where ctid = any",
            "where false and ctid = any",
        )],
    },
    Broken {
        // The new lane of a swept event is forgotten.
        check: SWEPT,
        faults: &[planted(
            "sweep",
            "select id, lane\n    from stray",
            "select id, lane from stray where false",
        )],
    },
    Broken {
        // A sweep moves heads without their key.
        check: SWEPT,
        faults: &[planted("sweep", "where r.key_hash is null", "where true")],
    },
    Broken {
        // A swept event loses its priority.
        check: SWEPT,
        faults: &[planted("sweep", "+ d.lane % 16", "+ 7")],
    },
    Broken {
        check: "due_topics_are_those_of_due_events",
        faults: &[planted("due_topics", "where not q.is_paused", "where true")],
    },
    Broken {
        check: "due_topics_are_those_of_due_events",
        faults: &[planted(
            "due_topics",
            "and r.available_at <= coalesce($1::timestamptz, statement_timestamp())",
            "",
        )],
    },
];

/// Returns true if a check of the suite passes without these faults in the statements, and fails
/// with them.
pub(crate) async fn is_noticed_by(check: &str, faults: &'static [Planted]) -> bool {
    let found = conformance::all().find(|known| known.name == check);
    let run = found.unwrap().run;
    run(&*world::postgres_queue().await).await;
    let world = AssertUnwindSafe(world::postgres_planted(faults).await);
    let attempt = tokio::spawn(async move {
        let world = world;
        run(&**world).await;
    });
    attempt.await.is_err_and(|error| error.is_panic())
}

#[tokio::test]
async fn the_suite_catches_every_fault_planted_in_postgresql() {
    for Broken { check, faults } in Extent::chosen().of(&BROKEN, 3) {
        let is_caught = is_noticed_by(check, faults).await;
        assert!(is_caught, "{check} does not notice {faults:?}");
    }
}

//! Planted faults in PostgreSQL's statements on keys. Each must be noticed, by a check of the suite
//! or by two concurrent operations.

use tenure_core::testing::Extent;

use super::races::is_noticed;
use super::scene::{Scene, Verb};
use crate::arena::First;
use crate::faults::Planted;
use crate::planted::{is_noticed_by, planted};

/// Faults, each with the name of the check that must notice it.
const CHECKED: [(&str, &[Planted]); 19] = [
    (
        // A run must stop before its first item that is not due; with this fault it skips that
        // item.
        "a_run_stops_before_an_item_that_is_not_due",
        &[planted("claim", "and b.is_next", "")],
    ),
    (
        "a_run_stays_in_its_lane",
        &[planted("claim", "b.lane = l.lane and", "")],
    ),
    (
        "a_run_stops_before_a_replayed_item",
        &[planted("claim", "b.id = b.turn and b.id > l.id", "true")],
    ),
    (
        "a_head_that_was_claimed_before_is_claimed_without_a_run",
        &[planted(
            "claim",
            "and (select s.id from tenure_setbacks s where s.id = l.id) is null",
            "",
        )],
    ),
    (
        // The rest of a run stays held when its head becomes pending again.
        "the_rest_of_a_run_returns_to_the_backlog",
        &[planted(
            "settle",
            "case when outcome = 'release' or not stays_held then 'release' end",
            "case when outcome = 'release' then 'release' end",
        )],
    ),
    (
        // The items behind a released one stay held, and overtake it.
        "items_behind_a_released_item_return_with_it",
        &[planted("settle", "coalesce(id < cut, true)", "true")],
    ),
    (
        // The rest of a run is lost.
        "the_rest_of_a_run_returns_to_the_backlog",
        &[planted("settle", "where is_behind", "where false")],
    ),
    (
        "an_outcome_out_of_turn_is_refused",
        &[planted(
            "settle",
            "coalesce(outcome <> 'release', false) and not is_unnamed",
            "false",
        )],
    ),
    (
        // A done item stays the head of its key.
        "a_replayed_item_is_the_head_of_an_idle_key",
        &[planted(
            "settle",
            "set head = n.head,",
            "set head = coalesce(n.head, k.head),",
        )],
    ),
    (
        "a_replayed_item_is_the_head_of_an_idle_key",
        &[planted(
            "replay",
            "where not is_blocker and not is_ready",
            "where false",
        )],
    ),
    (
        // The replayed item comes to the front of its key.
        "a_replayed_item_goes_to_the_end_of_its_key",
        &[planted(
            "replay",
            "else nextval('tenure_event_id')",
            "else null::bigint",
        )],
    ),
    (
        "a_blocking_item_is_the_head_again_after_its_replay",
        &[planted(
            "replay",
            "and k.is_blocked and k.head = s.id",
            "and false",
        )],
    ),
    (
        "a_dead_head_blocks_its_key_if_the_settle_asks_for_it",
        &[planted(
            "settle",
            "($14::boolean and",
            "($14::boolean and false and",
        )],
    ),
    (
        "a_head_that_crashed_too_often_can_block_its_key",
        &[planted(
            "reap",
            "length = 1 and not $7::boolean",
            "length = 1",
        )],
    ),
    (
        "a_lapse_of_a_run_counts_a_crash_of_its_first_item_only",
        &[planted(
            "reap",
            "select id, 1, is_first::int,",
            "select id, 1, 1,",
        )],
    ),
    (
        // A paused key gets a head.
        "a_key_without_events_can_be_paused",
        &[planted(
            "promote",
            "or k.is_paused as is_busy",
            "as is_busy",
        )],
    ),
    (
        "a_paused_key_is_not_claimed",
        &[planted("pause_key", "and r.id = e.id", "and r.id = -e.id")],
    ),
    (
        "a_paused_key_is_not_claimed",
        &[planted("resume_key", "where head is null", "where false")],
    ),
    (
        "held_items_of_a_paused_key_can_be_settled",
        &[planted(
            "settle",
            "where is_paused)) is true as is_held_back",
            "where false)) is true as is_held_back",
        )],
    ),
];

/// A fault, and two concurrent operations that show it.
#[derive(Clone, Copy)]
struct Astray {
    faults: &'static [Planted],
    scene: Scene,
    verbs: (Verb, Verb),
}

const MET: [Astray; 10] = [
    Astray {
        // A key with a new event stays idle, because it has no arrival.
        faults: &[planted(
            "settle_done_and_claim",
            "where not is_paused and (key_hash in (select key_hash from promoted)) is not true",
            "where false",
        )],
        scene: Scene::Last,
        verbs: (Verb::Done, Verb::Arrive),
    },
    Astray {
        faults: &[planted(
            "settle",
            "where is_open and not is_paused and (key_hash in (select key_hash from promoted))",
            "where false and (key_hash in (select key_hash from promoted))",
        )],
        scene: Scene::Last,
        verbs: (Verb::DoneRest, Verb::Arrive),
    },
    Astray {
        faults: &[planted(
            "bury",
            "where not is_paused and not exists (select from promoted)",
            "where false",
        )],
        scene: Scene::Sole,
        verbs: (Verb::Bury(2), Verb::Arrive),
    },
    Astray {
        faults: &[planted(
            "skip_blocked",
            "where not is_paused and not exists (select from promoted)",
            "where false",
        )],
        scene: Scene::BlockedSole,
        verbs: (Verb::Skip, Verb::Arrive),
    },
    Astray {
        // The statement deletes the arrival of a key that another statement has locked.
        faults: &[planted(
            "promote",
            "select key_hash from known where is_busy",
            "select key_hash from known where not is_new",
        )],
        scene: Scene::Arrived,
        verbs: (Verb::Bury(3), Verb::Promote),
    },
    Astray {
        // An operator skips a head that no longer blocks its key.
        faults: &[planted("skip_blocked", "and k.is_blocked and", "and")],
        scene: Scene::Blocked,
        verbs: (Verb::Replay(2), Verb::Skip),
    },
    Astray {
        // A pause does not see that another transaction has just promoted a head.
        faults: &[planted(
            "lock_key",
            "do update set ordering_key = k.ordering_key",
            "do nothing",
        )],
        scene: Scene::Held,
        verbs: (Verb::RetryFirst, Verb::Pause),
    },
    Astray {
        // A settle does not see that the key has just been paused.
        faults: &[planted(
            "settle",
            "where k.key_hash = r.key_hash\n        for update",
            "where k.key_hash = r.key_hash",
        )],
        scene: Scene::Held,
        verbs: (Verb::Pause, Verb::ReleasePart),
    },
    Astray {
        // A paused key continues.
        faults: &[planted(
            "settle_done_and_claim",
            "where b.key_hash = o.key_hash and not o.is_paused",
            "where b.key_hash = o.key_hash",
        )],
        scene: Scene::PausedHeld,
        verbs: (Verb::Done, Verb::Replay(0)),
    },
    Astray {
        // A claim takes an item that was buried meanwhile.
        faults: &[planted(
            "claim",
            "    from followed\n",
            "    from chosen where is_follower\n",
        )],
        scene: Scene::Ready,
        verbs: (Verb::Bury(3), Verb::ClaimRun),
    },
];

#[tokio::test]
async fn the_suite_catches_every_planted_fault_in_the_order_of_keys() {
    for (check, faults) in Extent::chosen().of(&CHECKED, 4) {
        let is_caught = is_noticed_by(check, faults).await;
        assert!(is_caught, "{check} does not notice {faults:?}");
    }
}

#[tokio::test]
async fn two_concurrent_operations_show_every_planted_fault() {
    for Astray {
        faults,
        scene,
        verbs,
    } in Extent::chosen().of(&MET, 3)
    {
        assert!(!is_noticed(&[], scene, verbs, First::Commits).await);
        // On a busy machine, an operation that polls may come too late to meet the other.
        let mut is_caught = false;
        for _ in 0..3 {
            is_caught |= is_noticed(faults, scene, verbs, First::Commits).await;
        }
        assert!(is_caught, "{scene:?} {verbs:?} do not notice {faults:?}");
    }
}

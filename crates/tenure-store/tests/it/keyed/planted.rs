//! Planted faults in what the statements of PostgreSQL do with keys: each must be noticed, by a
//! check of the suite or by two verbs that meet.

use tenure_store::Planted;

use super::races::is_noticed;
use super::scene::{Scene, Verb};
use crate::arena::First;
use crate::planted::{is_noticed_by, planted};

/// A fault, and the check that is made for it.
const CHECKED: [(&str, &[Planted]); 19] = [
    (
        // The first of a run that may not be claimed ends it; without that rule it is left out.
        "a_run_stops_before_what_is_not_due",
        &[planted("claim", "and b.is_next", "")],
    ),
    (
        "a_run_stays_in_its_lane",
        &[planted("claim", "b.lane = l.lane and", "")],
    ),
    (
        "a_run_stops_before_what_was_replayed",
        &[planted("claim", "b.id = b.turn and b.id > l.id", "true")],
    ),
    (
        "a_head_that_was_tried_before_leads_nobody",
        &[planted(
            "claim",
            "and (select s.id from tenure_setbacks s where s.id = l.id) is null",
            "",
        )],
    ),
    (
        // The rest of a run stays held when its head goes back.
        "what_is_left_of_a_run_goes_back_behind_its_head",
        &[planted(
            "settle",
            "case when outcome = 'release' or not stays_held then 'release' end",
            "case when outcome = 'release' then 'release' end",
        )],
    ),
    (
        // What follows a release stays held, and overtakes it.
        "what_follows_a_release_goes_back_with_it",
        &[planted("settle", "coalesce(id < cut, true)", "true")],
    ),
    (
        // The rest of a run gets lost.
        "what_is_left_of_a_run_goes_back_behind_its_head",
        &[planted("settle", "where is_behind", "where false")],
    ),
    (
        "what_is_said_out_of_turn_is_refused",
        &[planted(
            "settle",
            "coalesce(outcome <> 'release', false) and not is_unnamed",
            "false",
        )],
    ),
    (
        // A domain keeps the head that is done.
        "a_replay_is_the_head_of_an_idle_domain",
        &[planted(
            "settle",
            "set head = n.head,",
            "set head = coalesce(n.head, d.head),",
        )],
    ),
    (
        "a_replay_is_the_head_of_an_idle_domain",
        &[planted(
            "replay",
            "where not is_blocker and not is_ready",
            "where false",
        )],
    ),
    (
        // To the front.
        "a_replay_goes_to_the_tail_of_its_domain",
        &[planted(
            "replay",
            "else nextval('tenure_event_id')",
            "else null::bigint",
        )],
    ),
    (
        "the_one_that_blocks_is_the_head_again_when_it_is_replayed",
        &[planted(
            "replay",
            "and d.blocked and d.head = s.id",
            "and false",
        )],
    ),
    (
        "a_dead_head_blocks_its_domain_if_that_is_asked_for",
        &[planted(
            "settle",
            "($14::boolean and",
            "($14::boolean and false and",
        )],
    ),
    (
        "a_head_that_lapsed_once_too_often_can_block",
        &[planted(
            "reap",
            "length = 1 and not $7::boolean",
            "length = 1",
        )],
    ),
    (
        "a_lapse_is_charged_to_the_first_of_a_run",
        &[planted(
            "reap",
            "select id, 1, is_first::int,",
            "select id, 1, 1,",
        )],
    ),
    (
        // A head is made of a paused domain.
        "a_pause_is_kept_without_events",
        &[planted("place", "or d.paused as is_busy", "as is_busy")],
    ),
    (
        "a_paused_domain_is_not_claimed",
        &[planted(
            "pause_domain",
            "and r.id = e.id",
            "and r.id = -e.id",
        )],
    ),
    (
        "a_paused_domain_is_not_claimed",
        &[planted(
            "resume_domain",
            "where head is null",
            "where false",
        )],
    ),
    (
        "what_is_held_of_a_paused_domain_goes_on",
        &[planted(
            "settle",
            "where paused)) is true as is_held_back",
            "where false)) is true as is_held_back",
        )],
    ),
];

/// A fault, and two verbs that it leads astray when they meet.
struct Astray {
    faults: &'static [Planted],
    scene: Scene,
    verbs: (Verb, Verb),
}

const MET: [Astray; 10] = [
    Astray {
        // A domain is left idle and nobody is rung for, although something has come.
        faults: &[planted(
            "settle_done_and_claim",
            "where not paused and (domain in (select domain from promoted)) is not true",
            "where false",
        )],
        scene: Scene::Last,
        verbs: (Verb::Done, Verb::Arrive),
    },
    Astray {
        faults: &[planted(
            "settle",
            "where is_open and not paused and (domain in (select domain from promoted))",
            "where false and (domain in (select domain from promoted))",
        )],
        scene: Scene::Last,
        verbs: (Verb::DoneRest, Verb::Arrive),
    },
    Astray {
        faults: &[planted(
            "bury",
            "where not paused and not exists (select from promoted)",
            "where false",
        )],
        scene: Scene::Sole,
        verbs: (Verb::Bury(2), Verb::Arrive),
    },
    Astray {
        faults: &[planted(
            "skip_blocked",
            "where not paused and not exists (select from promoted)",
            "where false",
        )],
        scene: Scene::BlockedSole,
        verbs: (Verb::Skip, Verb::Arrive),
    },
    Astray {
        // The bell of a domain that somebody has in hand is taken off.
        faults: &[planted(
            "place",
            "select domain from known where is_busy",
            "select domain from known where not is_new",
        )],
        scene: Scene::Rung,
        verbs: (Verb::Bury(3), Verb::Place),
    },
    Astray {
        // What does not block any more is skipped.
        faults: &[planted("skip_blocked", "and d.blocked and", "and")],
        scene: Scene::Blocked,
        verbs: (Verb::Replay(2), Verb::Skip),
    },
    Astray {
        // A pause does not see the head that was made before it.
        faults: &[planted(
            "lock_domain",
            "do update set ordering_key = d.ordering_key",
            "do nothing",
        )],
        scene: Scene::Held,
        verbs: (Verb::RetryFirst, Verb::Pause),
    },
    Astray {
        // A settle does not see the pause before it.
        faults: &[planted(
            "settle",
            "where d.domain = r.domain\n        for update",
            "where d.domain = r.domain",
        )],
        scene: Scene::Held,
        verbs: (Verb::Pause, Verb::ReleasePart),
    },
    Astray {
        // A paused domain goes on.
        faults: &[planted(
            "settle_done_and_claim",
            "where b.domain = o.domain and not o.paused",
            "where b.domain = o.domain",
        )],
        scene: Scene::PausedHeld,
        verbs: (Verb::Done, Verb::Replay(0)),
    },
    Astray {
        // What was buried meanwhile is claimed.
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
async fn the_suite_catches_every_fault_planted_in_what_keeps_order() {
    for (check, faults) in CHECKED {
        let is_caught = is_noticed_by(check, faults).await;
        assert!(is_caught, "{check} does not notice {faults:?}");
    }
}

#[tokio::test]
async fn two_verbs_that_meet_catch_every_fault_planted_between_them() {
    for Astray {
        faults,
        scene,
        verbs,
    } in MET
    {
        assert!(!is_noticed(&[], scene, verbs, First::Commits).await);
        let is_caught = is_noticed(faults, scene, verbs, First::Commits).await;
        assert!(is_caught, "{scene:?} {verbs:?} do not notice {faults:?}");
    }
}

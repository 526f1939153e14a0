//! Why an event with a key is not being worked on: which event of its key comes first, and why that
//! one is not done.

use tenure_core::store::{DomainRecord, DomainState, Presence};
use tenure_core::{Content, Event, Facts, ItemId, Record, State, Timestamp, reason, why};

use super::{claimed, counters, due, here, now, says, seconds, with, worker};

/// The record as event number `id` of the key `customer-7`.
fn keyed(id: i64, record: Record) -> Record {
    let event = Event::new("a", &1).unwrap().queue("mail").unwrap();
    Record {
        id: ItemId::new(id),
        content: Content::Event(event.key("customer-7").unwrap()),
        ..record
    }
}

/// Workers are here, and the key stands so.
fn facts(state: DomainState, head: Option<Record>) -> Facts {
    Facts {
        domain: Some(DomainRecord {
            key: "customer-7".to_owned(),
            state,
            since: Some(now().before(seconds(120))),
            head,
            waiting: 3,
        }),
        ..here()
    }
}

fn dead() -> Record {
    Record {
        state: State::Dead,
        dead_at: Some(now().before(seconds(60))),
        dead_reason: Some(reason::FAILED.to_owned()),
        last_error: Some("503".to_owned()),
        counters: counters(11, 0),
        ..due()
    }
}

fn later(moment: Timestamp) -> Record {
    Record {
        available_at: Some(moment),
        ..due()
    }
}

#[test]
fn what_is_behind_says_which_event_comes_first_and_why_it_is_not_done() {
    let soon = now().after(seconds(20));
    let failed = Record {
        counters: counters(3, 0),
        last_error: Some("503".to_owned()),
        ..later(soon)
    };
    let silent = with(vec![worker("", 3, Presence::Silent)]);
    let cases = [
        (
            DomainState::Held,
            claimed(soon),
            here(),
            "MAILER has been at work on it for 10s, under a lease for another 20s",
            "`tenure domains show customer-7`",
        ),
        (
            DomainState::Held,
            claimed(now().before(seconds(5))),
            silent,
            "MAILER held it, but that lease lapsed 5s ago, and no worker is here to reap it",
            "`tenure reap`",
        ),
        (
            DomainState::Delayed,
            failed,
            here(),
            "it failed 3 times (10 are allowed), last with \"503\"; it is tried again in 20s",
            "`tenure domains skip customer-7 --reason WHY` goes on without event 9",
        ),
        (
            DomainState::Delayed,
            later(soon),
            here(),
            "its producer held it back: it is due in 20s",
            "`tenure domains show customer-7`",
        ),
        (
            DomainState::Due,
            due(),
            with(vec![]),
            "it is due, but no worker is here",
            "tenure serve",
        ),
        (
            DomainState::Due,
            due(),
            here(),
            "it is the only one that is due in the queue mail; the workers there run 3 of 10",
            "`tenure domains show customer-7`",
        ),
    ];
    for (state, head, around, cause, hint) in cases {
        let facts = Facts {
            workers: around.workers,
            ..facts(state, Some(keyed(9, head)))
        };
        says(
            &why(&keyed(17, due()), &facts, now()),
            "behind",
            &format!(
                "it comes after event 9 of its key \"customer-7\", which is not done, because \
                 {cause}"
            ),
            hint,
        );
    }
}

#[test]
fn a_paused_key_comes_before_every_other_reason() {
    let mut facts = facts(DomainState::Paused, None);
    // Also before a paused queue: resuming that would not help.
    facts.is_paused = true;
    says(
        &why(&keyed(17, due()), &facts, now()),
        "key_paused",
        "its key \"customer-7\" is paused, for 2m",
        "`tenure domains resume customer-7`",
    );
    let domain = facts.domain.as_mut().unwrap();
    domain.head = Some(keyed(9, claimed(now().after(seconds(20)))));
    domain.since = None;
    says(
        &why(&keyed(17, due()), &facts, now()),
        "key_paused",
        "its key \"customer-7\" is paused; event 9 is still held",
        "`tenure domains resume customer-7`",
    );
}

#[test]
fn a_key_that_a_dead_event_blocks_says_of_what_it_died_and_how_to_go_on() {
    let head = keyed(9, dead());
    let facts = facts(DomainState::Blocked, Some(head.clone()));
    let answer = why(&keyed(17, due()), &facts, now());
    says(
        &answer,
        "key_blocked",
        "event 9 of its key \"customer-7\" is dead and blocks it: it died 1m ago, because it \
         failed 11 times: 503",
        "`tenure domains skip customer-7 --reason WHY` goes on without it",
    );
    assert!(answer.hint.unwrap().contains("`tenure replay 9`"));
    let answer = why(&head, &facts, now());
    says(
        &answer,
        "dead",
        "it died 1m ago, because it failed 11 times: 503; it blocks its key \"customer-7\", and 3 \
         wait behind it",
        "`tenure domains skip customer-7 --reason WHY` goes on without it",
    );
    // One that died before it, and was skipped, blocks nothing.
    let other = why(&keyed(8, dead()), &facts, now());
    assert!(other.hint.unwrap().contains("counters at zero"));
}

/// Resuming such a key would not help, and neither would a replay alone.
#[test]
fn a_key_that_is_paused_and_blocked_says_both() {
    let head = keyed(9, dead());
    let facts = facts(DomainState::Paused, Some(head.clone()));
    let answer = why(&keyed(17, due()), &facts, now());
    says(
        &answer,
        "key_paused",
        "its key \"customer-7\" is paused, for 2m, and blocked by dead event 9: it died 1m ago, \
         because it failed 11 times: 503",
        "`tenure domains skip customer-7 --reason WHY` goes on without it; then `tenure domains \
         resume customer-7`",
    );
    assert!(answer.hint.unwrap().contains("`tenure replay 9`"));
    says(
        &why(&head, &facts, now()),
        "dead",
        "it died 1m ago, because it failed 11 times: 503; it blocks its key \"customer-7\", which \
         is paused, and 3 wait behind it",
        "`tenure domains resume customer-7`",
    );
}

#[test]
fn the_head_of_a_key_has_the_reasons_of_any_event() {
    let head = keyed(17, due());
    let at_head = facts(DomainState::Due, Some(head.clone()));
    assert_eq!(why(&head, &at_head, now()).code, "waiting");
    let later = keyed(17, later(now().after(seconds(20))));
    let at_head = facts(DomainState::Delayed, Some(later.clone()));
    assert_eq!(why(&later, &at_head, now()).code, "delayed");
}

#[test]
fn what_has_no_place_yet_waits_for_a_claim() {
    let event = keyed(17, due());
    let idle = |waiting| {
        let mut facts = facts(DomainState::Idle, None);
        facts.domain.as_mut().unwrap().waiting = waiting;
        facts
    };
    // Which of several is the first is not known before they have their places.
    for (waiting, sentence) in [
        (
            1,
            "it is due, and its key has no event before it: the next claim finds it its place",
        ),
        (
            2,
            "it is due, and no event of its key has a place yet: the next claim finds them theirs",
        ),
    ] {
        says(
            &why(&event, &idle(waiting), now()),
            "unplaced",
            sentence,
            "",
        );
        // Without a worker there is no claim.
        let facts = Facts {
            workers: Vec::new(),
            ..idle(waiting)
        };
        assert_eq!(why(&event, &facts, now()).code, "no_worker");
    }
    // It was placed, claimed or settled while its key was looked at.
    assert_eq!(why(&event, &idle(0), now()).code, "waiting");
    // An event without a key has its place.
    assert_eq!(why(&due(), &here(), now()).code, "waiting");
}

#[test]
fn what_is_held_behind_another_of_its_key_says_which_is_worked_on_first() {
    let until = now().after(seconds(20));
    let head = keyed(9, claimed(until));
    let facts = facts(DomainState::Held, Some(head.clone()));
    says(
        &why(&keyed(17, claimed(until)), &facts, now()),
        "claimed",
        "MAILER has held it for 10s, under a lease for another 20s, and works on event 9 of the \
         same key first",
        "",
    );
    says(
        &why(&head, &facts, now()),
        "claimed",
        "MAILER has been at work on it for 10s, under a lease for another 20s",
        "",
    );
}

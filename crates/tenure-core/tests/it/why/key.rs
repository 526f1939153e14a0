//! Explanations for events with a key: the head of the key, and why it is not done.

use tenure_core::store::{KeyRecord, KeyState, Presence};
use tenure_core::{Content, Facts, ItemId, NewEvent, Record, State, Timestamp, reason, why};

use super::{assert_why, claimed, counters, due, here, now, seconds, with, worker};

/// Turns the record into event number `id` of the key `customer-7`.
fn keyed(id: i64, record: Record) -> Record {
    let event = NewEvent::new("a", &1).queue("mail").key("customer-7");
    Record {
        id: ItemId::new(id),
        content: Content::Event(event.build().unwrap()),
        ..record
    }
}

/// Running workers, and a key in this state.
fn facts(state: KeyState, head: Option<Record>) -> Facts {
    Facts {
        key: Some(KeyRecord {
            name: "customer-7".to_owned(),
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

/// The warning is in the explanation of the head and of those behind it.
#[test]
fn a_head_that_is_retried_for_over_an_hour_is_a_warning() {
    let head = |failures| Record {
        counters: counters(failures, 0),
        ..later(now().after(seconds(20)))
    };
    let around = |failures, age: u64| {
        let mut facts = facts(KeyState::Delayed, Some(keyed(9, head(failures))));
        if let Some(key) = &mut facts.key {
            key.since = Some(now().before(seconds(age)));
        }
        facts
    };
    let warning = "; it has been the head of its key for 2h, and 3 wait behind it";
    let hint = "`tenure keys skip customer-7 --reason WHY` continues the key without it; `tenure \
                queues add mail --max-retries N` gives up sooner";
    for (id, code) in [(9, "backoff"), (17, "behind")] {
        let record = keyed(id, if id == 9 { head(2) } else { due() });
        let warned = why(&record, &around(2, 7_200), now());
        assert_eq!(warned.code, code);
        assert!(warned.sentence.ends_with(warning), "{warned}");
        assert_eq!(warned.hint.as_deref(), Some(hint));
        // Not for long, or not retried yet.
        for (failures, age) in [(2, 3_600), (1, 7_200)] {
            let record = keyed(id, if id == 9 { head(failures) } else { due() });
            let calm = why(&record, &around(failures, age), now());
            assert!(!calm.sentence.contains("it has been the head"), "{calm}");
        }
    }
}

#[test]
fn an_event_behind_the_head_names_the_head_and_its_reason() {
    let soon = now().after(seconds(20));
    let failed = Record {
        counters: counters(3, 0),
        last_error: Some("503".to_owned()),
        ..later(soon)
    };
    let silent = with(vec![worker("", 3, Presence::Silent)]);
    let cases = [
        (
            KeyState::Held,
            claimed(soon),
            here(),
            "MAILER has been at work on it for 10s, under a lease for another 20s",
            "`tenure keys show customer-7`",
        ),
        (
            KeyState::Held,
            claimed(now().before(seconds(5))),
            silent,
            "MAILER held it, but that lease lapsed 5s ago, and no worker is running to reap it",
            "`tenure reap`",
        ),
        (
            KeyState::Delayed,
            failed,
            here(),
            "it failed 3 times (25 are allowed), last with \"503\"; it is retried in 20s, and at \
             most for another 5d 6h",
            "`tenure keys skip customer-7 --reason WHY` skips event 9",
        ),
        (
            KeyState::Delayed,
            later(soon),
            here(),
            "its producer delayed it: it is due in 20s",
            "`tenure keys show customer-7`",
        ),
        (
            KeyState::Due,
            due(),
            with(vec![]),
            "it is due, but no worker is running",
            "tenure serve",
        ),
        (
            KeyState::Due,
            due(),
            here(),
            "it is the only due item in the queue mail; its workers run 3 of 10",
            "`tenure keys show customer-7`",
        ),
    ];
    for (state, head, around, cause, hint) in cases {
        let facts = Facts {
            workers: around.workers,
            ..facts(state, Some(keyed(9, head)))
        };
        assert_why(
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
    let mut facts = facts(KeyState::Paused, None);
    // The paused key takes precedence over the paused queue: resuming the queue would not help.
    facts.is_paused = true;
    assert_why(
        &why(&keyed(17, due()), &facts, now()),
        "key_paused",
        "its key \"customer-7\" is paused, for 2m",
        "`tenure keys resume customer-7`",
    );
    let key = facts.key.as_mut().unwrap();
    key.head = Some(keyed(9, claimed(now().after(seconds(20)))));
    key.since = None;
    assert_why(
        &why(&keyed(17, due()), &facts, now()),
        "key_paused",
        "its key \"customer-7\" is paused; event 9 is still held",
        "`tenure keys resume customer-7`",
    );
}

#[test]
fn a_blocked_key_names_the_cause_and_the_ways_out() {
    let head = keyed(9, dead());
    let facts = facts(KeyState::Blocked, Some(head.clone()));
    let answer = why(&keyed(17, due()), &facts, now());
    assert_why(
        &answer,
        "key_blocked",
        "event 9 of its key \"customer-7\" is dead and blocks it: it died 1m ago, because it \
         failed 11 times: 503",
        "`tenure keys skip customer-7 --reason WHY` skips it",
    );
    assert!(answer.hint.unwrap().contains("`tenure replay 9`"));
    let answer = why(&head, &facts, now());
    assert_why(
        &answer,
        "dead",
        "it died 1m ago, because it failed 11 times: 503; it blocks its key \"customer-7\", and 3 \
         wait behind it",
        "`tenure keys skip customer-7 --reason WHY` skips it",
    );
    // A dead event that was skipped blocks nothing.
    let other = why(&keyed(8, dead()), &facts, now());
    assert!(other.hint.unwrap().contains("counters at zero"));
}

/// Resuming such a key would not help, nor would a replay alone.
#[test]
fn a_paused_and_blocked_key_names_both_reasons() {
    let head = keyed(9, dead());
    let facts = facts(KeyState::Paused, Some(head.clone()));
    let answer = why(&keyed(17, due()), &facts, now());
    assert_why(
        &answer,
        "key_paused",
        "its key \"customer-7\" is paused, for 2m, and blocked by dead event 9: it died 1m ago, \
         because it failed 11 times: 503",
        "`tenure keys skip customer-7 --reason WHY` skips it; then `tenure keys \
         resume customer-7`",
    );
    assert!(answer.hint.unwrap().contains("`tenure replay 9`"));
    assert_why(
        &why(&head, &facts, now()),
        "dead",
        "it died 1m ago, because it failed 11 times: 503; it blocks its key \"customer-7\", which \
         is paused, and 3 wait behind it",
        "`tenure keys resume customer-7`",
    );
}

#[test]
fn the_head_of_a_key_has_the_reasons_of_any_event() {
    let head = keyed(17, due());
    let at_head = facts(KeyState::Due, Some(head.clone()));
    assert_eq!(why(&head, &at_head, now()).code, "waiting");
    let later = keyed(17, later(now().after(seconds(20))));
    let at_head = facts(KeyState::Delayed, Some(later.clone()));
    assert_eq!(why(&later, &at_head, now()).code, "delayed");
}

#[test]
fn a_key_without_a_head_waits_for_a_claim() {
    let event = keyed(17, due());
    let idle = |waiting| {
        let mut facts = facts(KeyState::Idle, None);
        facts.key.as_mut().unwrap().waiting = waiting;
        facts
    };
    // The first of several events is unknown before a claim makes it the head.
    for (waiting, sentence) in [
        (
            1,
            "it is due and the first of its key: the next claim makes it the head",
        ),
        (
            2,
            "it is due, and its key has no head yet: the next claim makes its first event the head",
        ),
    ] {
        assert_why(
            &why(&event, &idle(waiting), now()),
            "not_promoted",
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
    // The event became the head, or was claimed or settled, while its key was read.
    assert_eq!(why(&event, &idle(0), now()).code, "waiting");
    // An event without a key needs no head.
    assert_eq!(why(&due(), &here(), now()).code, "waiting");
}

#[test]
fn a_held_event_names_the_one_worked_on_first() {
    let until = now().after(seconds(20));
    let head = keyed(9, claimed(until));
    let facts = facts(KeyState::Held, Some(head.clone()));
    assert_why(
        &why(&keyed(17, claimed(until)), &facts, now()),
        "claimed",
        "MAILER has held it for 10s, under a lease for another 20s, and works on event 9 of the \
         same key first",
        "",
    );
    assert_why(
        &why(&head, &facts, now()),
        "claimed",
        "MAILER has been at work on it for 10s, under a lease for another 20s",
        "",
    );
}

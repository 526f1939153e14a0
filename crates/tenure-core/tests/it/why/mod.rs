//! Explanations for items: one sentence and one code for every state.

mod delivery;
mod job;
mod key;

use std::time::Duration;

use tenure_core::store::{Presence, QueueCounts, WorkerRecord, WorkerReport};
use tenure_core::{
    Content, Counters, Facts, Fence, Hold, ItemId, NewEvent, Record, State, Timestamp, Why,
    WorkerId, reason, why,
};

const fn seconds(number: u64) -> Duration {
    Duration::from_secs(number)
}

fn now() -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000)
}

/// A due event of the queue `mail`.
fn due() -> Record {
    Record {
        id: ItemId::new(17),
        state: State::Pending,
        content: Content::Event(NewEvent::new("a", &1).queue("mail").build().unwrap()),
        counters: Counters::default(),
        created_at: now().before(seconds(60)),
        available_at: Some(now()),
        hold: None,
        last_error: None,
        done_at: None,
        dead_at: None,
        dead_reason: None,
    }
}

fn worker(queues: &str, running: u32, presence: Presence) -> (WorkerRecord, Presence) {
    let record = WorkerRecord {
        report: WorkerReport {
            worker: WorkerId::new("mailer", 7).unwrap(),
            host: "h".to_owned(),
            pid: 1,
            version: "0.1.0".to_owned(),
            queues: queues.to_owned(),
            topics: tenure_core::TopicSet::any(),
            concurrency: 10,
            running,
            held: running,
            settings_version: 0,
            next_within: seconds(5),
        },
        started_at: now().before(seconds(3_600)),
        reported_at: now().before(seconds(40)),
        left_at: None,
    };
    (record, presence)
}

fn with(workers: Vec<(WorkerRecord, Presence)>) -> Facts {
    Facts {
        workers,
        ..Facts::default()
    }
}

fn here() -> Facts {
    with(vec![worker("", 3, Presence::Active)])
}

/// An event that `mailer` claimed 10 s ago, under a lease that ends at `until`.
fn claimed(until: Timestamp) -> Record {
    Record {
        state: State::Claimed,
        hold: Some(Hold {
            holder: WorkerId::new("mailer", 7).unwrap().to_string(),
            fence: Fence::new(1),
            claimed_at: now().before(seconds(10)),
            until,
        }),
        ..due()
    }
}

fn counters(failures: u32, crashes: u32) -> Counters {
    Counters {
        attempts: failures + crashes,
        failures,
        crashes,
        generation: 0,
    }
}

#[track_caller]
fn assert_why(answer: &Why, code: &str, sentence: &str, hint: &str) {
    assert_eq!(answer.code, code, "{answer:?}");
    let holder = WorkerId::new("mailer", 7).unwrap().to_string();
    assert_eq!(answer.sentence.replace(&holder, "MAILER"), sentence);
    match &answer.hint {
        None => assert_eq!(hint, "", "{answer:?}"),
        Some(advice) => assert!(!hint.is_empty() && advice.contains(hint), "{answer:?}"),
    }
}

#[test]
fn a_published_item_names_the_time() {
    let record = Record {
        state: State::Done,
        done_at: Some(now().before(seconds(185))),
        ..due()
    };
    let answer = why(&record, &here(), now());
    assert_why(
        &answer,
        "published",
        "it was published 3m 5s ago",
        "tenure replay 17",
    );
}

#[test]
fn a_dead_item_names_its_cause_and_the_replay() {
    let dead = |reason: Option<&str>, error: Option<&str>, counters: Counters| Record {
        state: State::Dead,
        dead_at: Some(now().before(seconds(60))),
        dead_reason: reason.map(str::to_owned),
        last_error: error.map(str::to_owned),
        counters,
        ..due()
    };
    let cases = [
        (
            dead(Some(reason::FAILED), Some("503"), counters(11, 0)),
            "it died 1m ago, because it failed 11 times: 503",
        ),
        (
            dead(Some(reason::REJECTED), Some("unknown"), counters(1, 0)),
            "it died 1m ago, because its holder reported that a retry cannot help: unknown",
        ),
        (
            dead(Some(reason::CRASH_LOOP), None, counters(0, 6)),
            "it died 1m ago, because its lease lapsed 6 times",
        ),
        (
            dead(Some(reason::BURIED), Some("a test"), counters(0, 0)),
            "it died 1m ago, because an operator buried it: a test",
        ),
        (
            dead(Some("too_old"), None, counters(0, 0)),
            "it died 1m ago (too_old)",
        ),
        (dead(None, None, counters(0, 0)), "it died 1m ago"),
    ];
    for (record, sentence) in cases {
        assert_why(
            &why(&record, &here(), now()),
            "dead",
            sentence,
            "tenure replay 17",
        );
    }
}

#[test]
fn a_held_item_names_its_holder_and_its_presence() {
    let record = claimed(now().after(seconds(20)));
    let at_work = "MAILER has been at work on it for 10s, under a lease for another 20s";
    assert_why(&why(&record, &here(), now()), "claimed", at_work, "");
    // A program that claims directly does not report.
    assert_why(&why(&record, &with(vec![]), now()), "claimed", at_work, "");
    let silent = with(vec![worker("", 3, Presence::Silent)]);
    assert_why(
        &why(&record, &silent, now()),
        "silent",
        "MAILER holds it but has not reported for 40s; its lease runs for another 20s",
        "wait",
    );
    let left = with(vec![worker("", 3, Presence::Left)]);
    assert_why(
        &why(&record, &left, now()),
        "silent",
        "MAILER holds it but has stopped; its lease runs for another 20s",
        "wait",
    );
    let unknown = Record {
        hold: None,
        ..record
    };
    assert_eq!(why(&unknown, &here(), now()).code, "claimed");
}

#[test]
fn a_held_item_names_its_earlier_lapses_and_a_poison_item_its_holders() {
    let at_work = "MAILER has been at work on it for 10s, under a lease for another 20s";
    let silent = "MAILER holds it but has not reported for 40s; its lease runs for another 20s";
    for (crashes, lapses, hint, silent_hint) in [
        (1, "once", "", "wait"),
        (2, "twice", "tenure show 17", "tenure show 17"),
    ] {
        let record = Record {
            counters: counters(0, crashes),
            ..claimed(now().after(seconds(20)))
        };
        let before = format!("; before, its lease lapsed {lapses} (5 are allowed)");
        let answer = why(&record, &here(), now());
        assert_why(&answer, "claimed", &format!("{at_work}{before}"), hint);
        let facts = with(vec![worker("", 3, Presence::Silent)]);
        let answer = why(&record, &facts, now());
        assert_why(&answer, "silent", &format!("{silent}{before}"), silent_hint);
    }
}

#[test]
fn a_lapsed_item_waits_for_a_reaper() {
    let record = claimed(now().before(seconds(5)));
    assert_why(
        &why(&record, &here(), now()),
        "lapsed",
        "MAILER held it, but that lease lapsed 5s ago; it waits for a reaper, which runs \
         every 10s",
        "",
    );
    assert_why(
        &why(&record, &with(vec![worker("", 3, Presence::Silent)]), now()),
        "lapsed",
        "MAILER held it, but that lease lapsed 5s ago, and no worker is running to reap it",
        "tenure reap",
    );
    // Exactly at its end a lease is no longer live.
    assert_eq!(why(&claimed(now()), &here(), now()).code, "lapsed");
}

#[test]
fn a_paused_queue_comes_before_every_other_reason() {
    let facts = Facts {
        is_paused: true,
        ..with(vec![])
    };
    assert_why(
        &why(&due(), &facts, now()),
        "paused",
        "the queue mail is paused",
        "tenure queues resume mail",
    );
    let later = Record {
        available_at: Some(now().after(seconds(300))),
        counters: counters(3, 2),
        ..due()
    };
    assert_why(
        &why(&later, &facts, now()),
        "paused",
        "the queue mail is paused, and it is not due for 5m",
        "tenure queues resume mail",
    );
}

#[test]
fn a_delayed_item_names_the_cause() {
    let later = |counters: Counters, error: Option<&str>| Record {
        available_at: Some(now().after(seconds(20))),
        counters,
        last_error: error.map(str::to_owned),
        ..due()
    };
    let released = Counters {
        attempts: 1,
        ..Counters::default()
    };
    let cases = [
        (
            later(counters(0, 0), None),
            "delayed",
            "its producer delayed it: it is due in 20s",
        ),
        (
            later(released, None),
            "delayed",
            "it was released without a result once: it is due in 20s",
        ),
        (
            later(counters(3, 0), Some("503")),
            "backoff",
            "it failed 3 times (25 are allowed), last with \"503\"; it is retried in 20s, and at \
             most for another 5d 6h",
        ),
        (
            later(counters(25, 0), None),
            "backoff",
            "it failed 25 times (25 are allowed); it is retried in 20s, for the last time",
        ),
        (
            later(counters(0, 1), None),
            "backoff",
            "its lease lapsed once (5 are allowed); it is retried in 20s",
        ),
        (
            later(counters(1, 2), None),
            "backoff",
            "it failed once (25 are allowed) and its lease lapsed twice (5 are allowed) and must \
             be worked alone; it is retried in 20s, and at most for another 5d 6h",
        ),
    ];
    for (record, code, sentence) in cases {
        let hint = if sentence.contains("released") {
            "publisher is unavailable"
        } else {
            ""
        };
        assert_why(&why(&record, &here(), now()), code, sentence, hint);
    }
}

#[test]
fn a_repeatedly_released_item_has_advice() {
    let given = Record {
        counters: Counters {
            attempts: 4,
            ..counters(1, 0)
        },
        ..due()
    };
    let answer = why(&given, &here(), now());
    assert!(
        answer
            .sentence
            .ends_with("; it was released without a result 3 times"),
        "{answer}"
    );
    assert!(answer.hint.unwrap().contains("publisher is unavailable"));
}

#[test]
fn a_due_item_without_a_worker_has_advice() {
    let absent = [
        vec![],
        vec![
            worker("", 0, Presence::Silent),
            worker("mail", 0, Presence::Left),
        ],
    ];
    for workers in absent {
        assert_why(
            &why(&due(), &with(workers), now()),
            "no_worker",
            "it is due, but no worker is running",
            "tenure serve",
        );
    }
    let elsewhere = with(vec![
        worker("default, mailing", 0, Presence::Active),
        worker("mail", 0, Presence::Left),
    ]);
    assert_why(
        &why(&due(), &elsewhere, now()),
        "unserved",
        "it is due, but no running worker serves the queue mail",
        "tenure work --queue mail",
    );
}

#[test]
fn an_item_that_lapsed_twice_is_worked_alone() {
    let record = Record {
        counters: counters(0, 2),
        ..due()
    };
    assert_why(
        &why(&record, &here(), now()),
        "alone",
        "it is due, but its lease lapsed twice (5 are allowed), so it must be worked alone: it \
         waits for a claim that takes nothing else",
        "tenure show 17",
    );
    let once = Record {
        counters: counters(9, 1),
        ..due()
    };
    assert_eq!(why(&once, &here(), now()).code, "waiting");
}

#[test]
fn a_waiting_item_names_the_number_of_due_items_and_the_load() {
    let mut facts = with(vec![
        worker("mail", 3, Presence::Active),
        worker("default,mail", 10, Presence::Active),
        worker("default", 10, Presence::Active),
        worker("mail", 10, Presence::Silent),
    ]);
    assert_why(
        &why(&due(), &facts, now()),
        "waiting",
        "it is the only due item in the queue mail; its workers run 13 of 20",
        "",
    );
    facts.counts = QueueCounts {
        behind: 0,
        due: 40,
        delayed: 0,
        oldest_due: Some(seconds(185)),
    };
    facts.workers.remove(0);
    assert_why(
        &why(&due(), &facts, now()),
        "waiting",
        "it is one of 40 due items in the queue mail, the oldest for 3m 5s; its workers \
         run 10 of 10",
        "start another worker",
    );
}

#[test]
fn a_worker_serves_the_queues_that_it_names_or_all_if_it_names_none() {
    let mail = due().content.event().unwrap().queue().clone();
    for (queues, serves) in [
        ("", true),
        ("mail", true),
        ("default, mail", true),
        ("default,mail,audit", true),
        ("default", false),
        ("mailing", false),
    ] {
        let (worker, _) = worker(queues, 0, Presence::Active);
        assert_eq!(worker.report.serves(&mail), serves, "{queues:?}");
    }
}

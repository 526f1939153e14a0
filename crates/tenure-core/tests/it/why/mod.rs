//! Why an item is not being worked on: one sentence, one word, for every standing it can have.

mod delivery;
mod job;
mod key;

use std::time::Duration;

use tenure_core::store::{Presence, QueueCounts, WorkerRecord, WorkerReport};
use tenure_core::{
    Content, Counters, Event, Facts, Fence, Hold, ItemId, Record, State, Timestamp, Why, WorkerId,
    reason, why,
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
        content: Content::Event(Event::new("a", &1).unwrap().queue("mail").unwrap()),
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
            concurrency: 10,
            running,
            held: running,
            settings_version: 0,
            next_within: seconds(5),
        },
        started_at: now().before(seconds(3_600)),
        seen_at: now().before(seconds(40)),
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
    with(vec![worker("", 3, Presence::Here)])
}

/// An event that `mailer` claimed 10 s ago until `seconds` from now, or before it.
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
fn says(answer: &Why, code: &str, sentence: &str, hint: &str) {
    assert_eq!(answer.code, code, "{answer:?}");
    let holder = WorkerId::new("mailer", 7).unwrap().to_string();
    assert_eq!(answer.sentence.replace(&holder, "MAILER"), sentence);
    match &answer.hint {
        None => assert_eq!(hint, "", "{answer:?}"),
        Some(found) => assert!(!hint.is_empty() && found.contains(hint), "{answer:?}"),
    }
}

#[test]
fn what_is_published_says_when() {
    let record = Record {
        state: State::Done,
        done_at: Some(now().before(seconds(185))),
        ..due()
    };
    let answer = why(&record, &here(), now());
    says(
        &answer,
        "published",
        "it was published 3m 5s ago",
        "tenure replay 17",
    );
}

#[test]
fn what_is_dead_says_why_and_how_it_comes_back() {
    let dead = |word: Option<&str>, error: Option<&str>, counters: Counters| Record {
        state: State::Dead,
        dead_at: Some(now().before(seconds(60))),
        dead_reason: word.map(str::to_owned),
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
            "it died 1m ago, because its holder said that trying again is no use: unknown",
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
        says(
            &why(&record, &here(), now()),
            "dead",
            sentence,
            "tenure replay 17",
        );
    }
}

#[test]
fn what_is_held_says_by_whom_and_whether_that_worker_still_speaks() {
    let record = claimed(now().after(seconds(20)));
    let at_work = "MAILER has been at work on it for 10s, under a lease for another 20s";
    says(&why(&record, &here(), now()), "claimed", at_work, "");
    // A program that claims by hand is no worker that reports.
    says(&why(&record, &with(vec![]), now()), "claimed", at_work, "");
    let silent = with(vec![worker("", 3, Presence::Silent)]);
    says(
        &why(&record, &silent, now()),
        "silent",
        "MAILER holds it but has said nothing for 40s; its lease runs for another 20s",
        "wait",
    );
    let left = with(vec![worker("", 3, Presence::Left)]);
    says(
        &why(&record, &left, now()),
        "silent",
        "MAILER holds it but has left; its lease runs for another 20s",
        "wait",
    );
    let unknown = Record {
        hold: None,
        ..record
    };
    assert_eq!(why(&unknown, &here(), now()).code, "claimed");
}

#[test]
fn what_lapsed_waits_for_a_reaper() {
    let record = claimed(now().before(seconds(5)));
    says(
        &why(&record, &here(), now()),
        "lapsed",
        "MAILER held it, but that lease lapsed 5s ago; it waits for a reaper, and workers look \
         every 10s",
        "",
    );
    says(
        &why(&record, &with(vec![worker("", 3, Presence::Silent)]), now()),
        "lapsed",
        "MAILER held it, but that lease lapsed 5s ago, and no worker is here to reap it",
        "tenure reap",
    );
    // At the very moment of its end a lease is no longer live.
    assert_eq!(why(&claimed(now()), &here(), now()).code, "lapsed");
}

#[test]
fn a_paused_queue_comes_before_every_other_reason() {
    let facts = Facts {
        is_paused: true,
        ..with(vec![])
    };
    says(
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
    says(
        &why(&later, &facts, now()),
        "paused",
        "the queue mail is paused, and it is not due for 5m",
        "tenure queues resume mail",
    );
}

#[test]
fn what_is_not_due_says_who_made_it_wait() {
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
            "its producer held it back: it is due in 20s",
        ),
        (
            later(released, None),
            "delayed",
            "it was given back unworked once: it is due in 20s",
        ),
        (
            later(counters(3, 0), Some("503")),
            "backoff",
            "it failed 3 times (10 are allowed), last with \"503\"; it is tried again in 20s",
        ),
        (
            later(counters(0, 1), None),
            "backoff",
            "its lease lapsed once (5 are allowed); it is tried again in 20s",
        ),
        (
            later(counters(1, 2), None),
            "backoff",
            "it failed once (10 are allowed) and its lease lapsed twice (5 are allowed) and must \
             be worked alone; it is tried again in 20s",
        ),
    ];
    for (record, code, sentence) in cases {
        let hint = if sentence.contains("given back") {
            "publisher was away"
        } else {
            ""
        };
        says(&why(&record, &here(), now()), code, sentence, hint);
    }
}

#[test]
fn what_is_given_back_again_and_again_says_where_to_look() {
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
            .ends_with("; it was given back unworked 3 times"),
        "{answer}"
    );
    assert!(answer.hint.unwrap().contains("publisher was away"));
}

#[test]
fn what_is_due_without_a_worker_says_how_to_get_one() {
    let absent = [
        vec![],
        vec![
            worker("", 0, Presence::Silent),
            worker("mail", 0, Presence::Left),
        ],
    ];
    for workers in absent {
        says(
            &why(&due(), &with(workers), now()),
            "no_worker",
            "it is due, but no worker is here",
            "tenure serve",
        );
    }
    let elsewhere = with(vec![
        worker("default, mailing", 0, Presence::Here),
        worker("mail", 0, Presence::Left),
    ]);
    says(
        &why(&due(), &elsewhere, now()),
        "unserved",
        "it is due, but none of the workers here serves the queue mail",
        "tenure work --queue mail",
    );
}

#[test]
fn what_lapsed_twice_is_worked_alone() {
    let record = Record {
        counters: counters(0, 2),
        ..due()
    };
    says(
        &why(&record, &here(), now()),
        "alone",
        "it is due, but its lease lapsed twice (5 are allowed), so that it is worked alone: it \
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
fn what_waits_its_turn_says_how_long_the_line_is_and_how_busy_the_workers() {
    let mut facts = with(vec![
        worker("mail", 3, Presence::Here),
        worker("default,mail", 10, Presence::Here),
        worker("default", 10, Presence::Here),
        worker("mail", 10, Presence::Silent),
    ]);
    says(
        &why(&due(), &facts, now()),
        "waiting",
        "it is the only one that is due in the queue mail; the workers there run 13 of 20",
        "",
    );
    facts.counts = QueueCounts {
        behind: 0,
        due: 40,
        delayed: 0,
        oldest_due: Some(seconds(185)),
    };
    facts.workers.remove(0);
    says(
        &why(&due(), &facts, now()),
        "waiting",
        "it is one of 40 that are due in the queue mail, the first for 3m 5s; the workers there \
         run 10 of 10",
        "start another worker",
    );
}

#[test]
fn a_worker_serves_what_it_names_and_everything_when_it_names_nothing() {
    let mail = due().content.event().unwrap().queue_name().clone();
    for (queues, serves) in [
        ("", true),
        ("mail", true),
        ("default, mail", true),
        ("default,mail,audit", true),
        ("default", false),
        ("mailing", false),
    ] {
        let (worker, _) = worker(queues, 0, Presence::Here);
        assert_eq!(worker.report.serves(&mail), serves, "{queues:?}");
    }
}

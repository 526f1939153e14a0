//! Planted histories: a sound one passes, and each broken promise in it is called by its name.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::{LapsePolicy, State, Timestamp, Word};
use uuid::Uuid;

use super::checker::{Violation, check};
use super::history::{About, Bounds, Fault, Harm, History, Receipt, Span, Stored, Told};

/// So many milliseconds after the start.
fn at(millis: i64) -> Timestamp {
    Timestamp::from_micros(millis * 1000)
}

fn span(holder: &str, fence: i64, word: Word, from: i64, to: i64) -> Span {
    Span {
        holder: holder.to_owned(),
        fence,
        word,
        from: at(from),
        to: at(to),
    }
}

fn receipt(id: i64, fence: i64, attempt: usize) -> Receipt {
    Receipt {
        id,
        event_id: event_id(id),
        fence,
        attempt,
    }
}

fn event_id(id: i64) -> Uuid {
    Uuid::from_u128(u128::try_from(id).unwrap())
}

fn event(id: i64, holds: Vec<Span>) -> Stored {
    Stored {
        id,
        serial: u64::try_from(id).unwrap() + 100,
        event_id: event_id(id),
        key: None,
        state: State::Done,
        dead_reason: None,
        holds,
    }
}

fn fault(what: Harm, from: i64, to: i64) -> Fault {
    Fault {
        what,
        from: at(from),
        to: at(to),
    }
}

/// Event 1 was done at once. Event 2 was in the hands of a worker that was killed, event 3 of one
/// that was stopped for three terms; both had published it. Event 4 fell into an outage, and its
/// enqueue was never answered.
fn sound() -> History {
    let delays = LapsePolicy::default().delays().to_vec();
    let killed = || Harm::Killed("killed".to_owned());
    let paused = || Harm::Paused("paused".to_owned());
    History {
        bounds: Bounds {
            term: Duration::from_secs(2),
            reaper: Duration::from_millis(667),
            lapse: LapsePolicy::new(3, delays).unwrap(),
        },
        written: BTreeMap::from([(101, 1), (102, 2), (103, 3)]),
        unknown: BTreeSet::from([104, 105]),
        events: vec![
            event(1, vec![span("well", 1, Word::Done, 0, 100)]),
            event(
                2,
                vec![
                    span("killed", 2, Word::Lapsed, 1_000, 3_500),
                    span("well", 5, Word::Done, 3_700, 3_800),
                ],
            ),
            event(
                3,
                vec![
                    span("paused", 3, Word::Lapsed, 1_000, 3_600),
                    span("well", 6, Word::Done, 3_800, 3_900),
                ],
            ),
            event(
                4,
                vec![
                    span("well", 7, Word::Lapsed, 20_000, 22_500),
                    span("well", 8, Word::Done, 23_000, 23_100),
                ],
            ),
        ],
        received: vec![
            receipt(1, 1, 1),
            receipt(2, 2, 1),
            receipt(2, 5, 2),
            receipt(3, 6, 2),
            receipt(3, 3, 1),
            receipt(4, 8, 2),
        ],
        faults: vec![
            fault(killed(), 1_200, 1_201),
            fault(paused(), 1_300, 7_300),
            fault(Harm::Outage, 20_100, 21_000),
        ],
        told: vec![Told {
            holder: "paused".to_owned(),
            about: About::Lease(3),
        }],
        until: BTreeMap::from([((2, 2), at(3_200)), ((3, 3), at(3_300))]),
        unreceived: BTreeSet::new(),
        failed: BTreeSet::new(),
        ended: Vec::new(),
    }
}

/// An event under the key `k`.
fn keyed(id: i64, holds: Vec<Span>) -> Stored {
    Stored {
        key: Some("k".to_owned()),
        ..event(id, holds)
    }
}

/// The sound history with a key beside: events 11, 12 and 13 were a run in the hands of the worker
/// that was killed, which had published the first two. The next holder worked them again; the last
/// thing to come is what the killed one had sent for 12.
fn ordered() -> History {
    let mut history = sound();
    let lapsed = || span("killed", 4, Word::Lapsed, 1_000, 3_500);
    let done = |to| span("well", 9, Word::Done, 3_700, to);
    history.events.extend([
        keyed(11, vec![lapsed(), done(3_800)]),
        keyed(12, vec![lapsed(), done(3_900)]),
        keyed(13, vec![lapsed(), done(3_900)]),
    ]);
    history.written.extend([(111, 11), (112, 12), (113, 13)]);
    history.received.extend([
        receipt(11, 4, 1),
        receipt(11, 9, 2),
        receipt(12, 9, 2),
        receipt(13, 9, 2),
        receipt(12, 4, 1),
    ]);
    history
}

/// What the checker says once this was changed in the sound history.
fn after(change: impl FnOnce(&mut History)) -> Vec<Violation> {
    let mut history = sound();
    change(&mut history);
    check(&history).0
}

/// The change breaks exactly this promise.
#[track_caller]
fn assert_breaks(violation: Violation, change: impl FnOnce(&mut History)) {
    assert_eq!(after(change), [violation]);
}

/// The change breaks this promise among others.
#[track_caller]
fn assert_also_breaks(violation: &Violation, change: impl FnOnce(&mut History)) {
    let violations = after(change);
    assert!(violations.contains(violation), "{violations:?}");
}

#[test]
fn a_sound_history_has_no_violation() {
    let (violations, summary) = check(&sound());
    assert_eq!(violations, []);
    assert_eq!((summary.kills, summary.pauses, summary.outages), (1, 1, 1));
    assert_eq!(
        (summary.duplicates, summary.lapses, summary.hits),
        (2, 3, 2)
    );
    assert_eq!(summary.worst_recovery, Duration::from_millis(2_500));
}

#[test]
fn what_was_written_must_be_there_once_and_nothing_else() {
    assert_also_breaks(&Violation::Lost(101), |h| drop(h.events.remove(0)));
    assert_also_breaks(&Violation::Lost(101), |h| {
        h.written.insert(101, 9);
    });
    assert_also_breaks(&Violation::Doubled(101), |h| h.events[3].serial = 101);
    assert_breaks(Violation::Ghost(104), |h| h.unknown.clear());
    assert_breaks(Violation::GhostReceived(9), |h| {
        h.received.push(receipt(9, 1, 1));
    });
}

#[test]
fn everything_must_be_settled_for_a_reason() {
    assert_breaks(Violation::Unsettled(2, "pending"), |h| {
        h.events[1].state = State::Pending;
    });
    assert_breaks(Violation::Died(2, "crash_loop".to_owned()), |h| {
        h.events[1].state = State::Dead;
        h.events[1].dead_reason = Some("crash_loop".to_owned());
    });
    assert_also_breaks(&Violation::NotDoneOnce(1, 2), |h| {
        h.events[0]
            .holds
            .push(span("well", 4, Word::Done, 200, 300));
    });
    assert_also_breaks(&Violation::NotDoneOnce(1, 0), |h| h.events[0].holds.clear());
}

#[test]
fn what_is_done_must_have_been_received_before() {
    assert_breaks(Violation::DoneUnreceived(2), |h| {
        h.received.retain(|receipt| receipt.fence != 5);
    });
    assert_breaks(Violation::DoneTooSoon(1), |h| {
        h.unreceived.insert(1);
    });
    assert_breaks(Violation::NoSuchHold(receipt(1, 4, 1)), |h| {
        h.received.push(receipt(1, 4, 1));
    });
    let stranger = Receipt {
        event_id: event_id(9),
        ..receipt(1, 1, 1)
    };
    assert_breaks(Violation::OtherEventId(stranger), |h| {
        h.received[0] = stranger;
    });
    for attempt in [1, 3] {
        assert_breaks(Violation::WrongAttempt(receipt(2, 5, attempt)), |h| {
            h.received[2].attempt = attempt;
        });
    }
    assert_breaks(Violation::ReceivedTwice(receipt(1, 1, 1)), |h| {
        h.received.push(receipt(1, 1, 1));
    });
}

#[test]
fn a_replaced_holder_must_have_no_word() {
    // The stopped worker was the one whose word counted.
    assert_also_breaks(&Violation::StaleSettle(3, 3), |h| {
        h.events[2].holds[0].word = Word::Done;
        h.events[2].holds[1].word = Word::Release;
    });
    // Its hold was ended, and then settled by it all the same.
    assert_also_breaks(&Violation::StaleSettle(3, 3), |h| {
        h.events[2]
            .holds
            .push(span("paused", 3, Word::Retry, 1_000, 7_400));
    });
    // Nobody ended its lease for three terms.
    assert_breaks(Violation::StaleSettle(3, 3), |h| {
        h.events[2].holds = vec![span("paused", 3, Word::Done, 1_000, 7_400)];
        h.received.retain(|receipt| receipt.fence != 6);
    });
    assert_breaks(Violation::Unnoticed(3, 3), |h| h.told.clear());
    // It was stopped before it came to work on it.
    assert_eq!(
        after(|h| {
            h.told.clear();
            h.received.retain(|receipt| receipt.fence != 3);
        }),
        []
    );
}

#[test]
fn holds_must_follow_each_other() {
    assert_also_breaks(&Violation::FenceNotRising(2, 1), |h| {
        h.events[1].holds[1].fence = 1;
    });
    assert_breaks(Violation::Overlap(2, 5), |h| {
        h.events[1].holds[1].from = at(3_400);
    });
    // Earlier than a term after its claim, and earlier than an end that was seen.
    assert_breaks(Violation::EndedEarly(2, 2), |h| {
        h.until.clear();
        h.events[1].holds[0].to = at(2_900);
    });
    assert_breaks(Violation::EndedEarly(2, 2), |h| {
        h.events[1].holds[0].to = at(3_100);
    });
}

#[test]
fn every_repeat_must_be_explained() {
    assert_breaks(Violation::Unexplained(2, 2, "lapsed"), |h| {
        h.faults.remove(0);
    });
    assert_breaks(Violation::Unexplained(4, 7, "lapsed"), |h| {
        h.faults.pop();
    });
    assert_breaks(Violation::Unexplained(1, 4, "release"), |h| {
        h.events[0].holds[0] = span("well", 4, Word::Release, 0, 100);
        h.events[0]
            .holds
            .push(span("well", 5, Word::Done, 200, 300));
        h.received[0].fence = 5;
    });
    // A claim that was asked for before a pause came too late, and was given back.
    assert_eq!(
        after(|h| {
            h.events[0].holds[0] = span("paused", 4, Word::Release, 7_302, 7_306);
            h.events[0]
                .holds
                .push(span("well", 9, Word::Done, 7_400, 7_500));
            h.received[0].fence = 9;
        }),
        []
    );
    // A worker that says itself that it was too late explains it as well.
    assert_eq!(
        after(|h| {
            h.faults.pop();
            h.told.push(Told {
                holder: "well".to_owned(),
                about: About::Lease(7),
            });
        }),
        []
    );
    // So does a receiver that said no.
    let failed = |h: &mut History| {
        h.events[0].holds[0] = span("well", 4, Word::Retry, 0, 100);
        let done = span("well", 5, Word::Done, 200, 300);
        h.events[0].holds.push(done);
        h.received[0].fence = 4;
        h.received.push(receipt(1, 5, 2));
    };
    assert_breaks(Violation::Unexplained(1, 4, "retry"), failed);
    assert_eq!(
        after(|h| {
            failed(h);
            h.failed.insert((1, 4));
        }),
        []
    );
    assert_breaks(Violation::WorkerEnded("well".to_owned()), |h| {
        h.ended.push("well".to_owned());
    });
}

#[test]
fn what_a_dead_worker_held_must_run_again_in_time() {
    let late = Duration::from_millis(3_700);
    assert_breaks(Violation::SlowRecovery(2, late), |h| {
        h.events[1].holds[1].from = at(4_900);
        h.events[1].holds[1].to = at(5_000);
    });
    // An outage in between may take its time.
    assert_eq!(
        after(|h| {
            h.events[1].holds[1].from = at(4_900);
            h.events[1].holds[1].to = at(5_000);
            h.faults.push(fault(Harm::Outage, 4_000, 4_500));
        }),
        []
    );
}

#[test]
fn what_is_behind_another_of_its_key_may_wait_for_it() {
    let mut history = ordered();
    history.events[6].holds[1] = span("well", 9, Word::Done, 9_000, 9_100);
    assert!(
        !check(&history)
            .0
            .contains(&Violation::SlowRecovery(13, Duration::from_millis(7_800)))
    );
    history.events[6].key = None;
    let (violations, _) = check(&history);
    let is_slow = |violation: &Violation| matches!(violation, Violation::SlowRecovery(13, _));
    assert!(violations.iter().any(is_slow), "{violations:?}");
}

#[test]
fn a_key_must_be_held_by_one_lease_and_keep_its_order() {
    let broken = |change: fn(&mut History)| {
        let mut history = ordered();
        change(&mut history);
        check(&history).0
    };
    assert_eq!(broken(|_| {}), []);
    assert_eq!(check(&ordered()).1.followers, 4);
    // The next one was claimed while the others were still held by another lease.
    let violations = broken(|h| h.events[6].holds[1] = span("well", 10, Word::Done, 3_800, 3_950));
    assert!(
        violations.contains(&Violation::KeyHeldTwice(13, 10, Duration::from_millis(100))),
        "{violations:?}"
    );
    let violations = broken(|h| h.events[5].holds[1].to = at(3_950));
    assert_eq!(violations, [Violation::DoneOutOfOrder(13)]);
    // A receiver that looks at fences would have taken it, too.
    let violations = broken(|h| h.received.swap(8, 9));
    let late = receipt(12, 9, 2);
    let expected = [
        Violation::TakenOutOfOrder(late),
        Violation::CameOutOfOrder(late),
    ];
    assert_eq!(violations, expected);
    // It would not have, but nobody had the late one before.
    let violations = broken(|h| {
        h.received.remove(8);
    });
    let late = receipt(12, 4, 1);
    assert!(
        violations.contains(&Violation::CameOutOfOrder(late)),
        "{violations:?}"
    );
}

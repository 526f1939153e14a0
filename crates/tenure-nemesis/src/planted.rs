//! Planted histories: sound ones pass, and every rule has at least one history that breaks it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure_core::{LapsePolicy, OutcomeKind, State, Timestamp};
use uuid::Uuid;

use crate::history::{About, Bounds, Effect, Fault, FaultKind, History, Hold, Loss, Work};
use crate::notes::Notes;
use crate::rules::{RULES, check};

/// Milliseconds after the start.
fn at(millis: i64) -> Timestamp {
    Timestamp::from_micros(millis * 1000)
}

fn hold(holder: &str, fence: i64, word: OutcomeKind, from: i64, to: i64) -> Hold {
    Hold {
        holder: holder.to_owned(),
        fence,
        outcome: word,
        from: at(from),
        to: at(to),
    }
}

fn effect(id: i64, fence: i64, attempt: usize) -> Effect {
    Effect {
        id,
        event_id: Some(event_id(id)),
        fence,
        attempt: Some(attempt),
    }
}

fn event_id(id: i64) -> Uuid {
    Uuid::from_u128(u128::try_from(id).unwrap())
}

fn work(id: i64, holds: Vec<Hold>) -> Work {
    Work {
        id,
        serial: u64::try_from(id).unwrap() + 100,
        event_id: Some(event_id(id)),
        state: Some(State::Done),
        holds,
        ..Work::default()
    }
}

fn fault(kind: FaultKind, from: i64, to: i64) -> Fault {
    Fault {
        kind,
        from: at(from),
        to: at(to),
    }
}

fn loss(holder: &str, fence: i64) -> Loss {
    Loss {
        holder: holder.to_owned(),
        about: About::Lease(fence),
    }
}

/// Work 1 is done at once. The holder of work 2 is killed, and that of work 3 is paused for three
/// terms; both lost leases had an effect. Work 4 meets an outage; the producer got no answer to its
/// write.
fn sound() -> History {
    let delays = LapsePolicy::default().delays().to_vec();
    let lapsed = |holder, fence, from, to| hold(holder, fence, OutcomeKind::Lapsed, from, to);
    let done = |fence, from, to| hold("well", fence, OutcomeKind::Done, from, to);
    History {
        bounds: Bounds {
            term: Duration::from_secs(2),
            reaper: Duration::from_millis(667),
            lapse: LapsePolicy::new(3, delays).unwrap(),
            resumption: Some(Duration::from_secs(3)),
        },
        written: BTreeMap::from([(101, 1), (102, 2), (103, 3)]),
        unknown: BTreeSet::from([104, 105]),
        works: vec![
            work(1, vec![done(1, 0, 100)]),
            work(
                2,
                vec![lapsed("killed", 2, 1_000, 3_500), done(5, 3_700, 3_800)],
            ),
            work(
                3,
                vec![lapsed("paused", 3, 1_000, 3_600), done(6, 3_800, 3_900)],
            ),
            work(
                4,
                vec![lapsed("well", 7, 20_000, 22_500), done(8, 23_000, 23_100)],
            ),
        ],
        effects: vec![
            effect(1, 1, 1),
            effect(2, 2, 1),
            effect(2, 5, 2),
            effect(3, 6, 2),
            effect(3, 3, 1),
            effect(4, 8, 2),
        ],
        faults: vec![
            fault(FaultKind::Killed("killed".to_owned()), 1_200, 1_201),
            fault(FaultKind::Paused("paused".to_owned()), 1_300, 7_300),
            fault(FaultKind::Outage, 20_100, 21_000),
        ],
        losses: vec![loss("paused", 3)],
        until: BTreeMap::from([((2, 2), at(3_200)), ((3, 3), at(3_300))]),
        ..History::default()
    }
}

/// The sound history with a key: works 11, 12 and 13 are a run of the killed worker, which caused
/// the effects of the first two. The effect that the killed worker sent for 12 arrives last.
fn ordered() -> History {
    let mut history = sound();
    for (id, to) in [(11, 3_800), (12, 3_900), (13, 3_900)] {
        let lapsed = hold("killed", 4, OutcomeKind::Lapsed, 1_000, 3_500);
        let mut work = work(
            id,
            vec![lapsed, hold("well", 9, OutcomeKind::Done, 3_700, to)],
        );
        work.key = Some("k".to_owned());
        history.written.insert(work.serial, id);
        history.works.push(work);
    }
    history.effects.extend([
        effect(11, 4, 1),
        effect(11, 9, 2),
        effect(12, 9, 2),
        effect(13, 9, 2),
        effect(12, 4, 1),
    ]);
    history
}

/// A row that is done at once, a row that a kill interrupts and another worker does, a row that a
/// statement settles while a worker holds it, a chunk that is done twice and then for good, and a
/// chunk that a worker leaves because its row was settled.
const NOTED: &str = "begin row-1 hand-1 10\nend row-1 hand-1 20\n\
    begin row-2 ours-2/2 10\nkilled - ours-2 15\nend row-2 ours-2/2 30\n\
    begin row-2 hand-1 40\nend row-2 hand-1 50\n\
    begin row-3 ours-3/3 10\nrobbed row-3 ours-3/3 15\nfinal row-3 - 15\nend row-3 ours-3/3 20\n\
    begin chunk-a hand-1 10\nend chunk-a hand-1 20\n\
    begin chunk-a ours-3/3 20\nend chunk-a ours-3/3 30\nfinal chunk-a ours-3/3 40\n\
    begin chunk-b ours-3/3 12\nbegin chunk-b hand-1 40\nend chunk-b hand-1 50\n";

/// The history of the notes with additional lines and ends.
fn noted(more: &str, ends: &[(&str, Option<&str>)]) -> History {
    let usual = ["row-1", "row-2", "row-3", "chunk-a"].map(|name| (name, Some("completed")));
    let ends = usual.iter().chain(ends);
    let ends = ends.map(|(name, end)| ((*name).to_owned(), end.map(str::to_owned)));
    Notes::parse(&format!("{NOTED}{more}")).history(ends.collect())
}

/// The names of the rules that a history breaks.
fn broken(history: &History) -> BTreeSet<&'static str> {
    let violations = check(history).0.into_iter();
    violations.map(|violation| violation.rule).collect()
}

type PlantedChange = fn(&mut History);

macro_rules! planted {
    ($($rule:literal $($more:ident)?: |$h:ident| $change:expr;)*) => {
        /// Changes of a sound history, each with the rule that it breaks; `more` if it breaks other
        /// rules, too.
        const PLANTED: &[(&str, &str, PlantedChange)] = &[
            $(($rule, concat!($(stringify!($more))?), |$h| { let _done = $change; })),*
        ];
    };
}

planted! {
    "a confirmed write is stored" more: |h| h.works.remove(0);
    "a confirmed write is stored": |h| h.written.insert(101, 9);
    "a write is stored once" more: |h| h.works[3].serial = 101;
    "only written work is stored": |h| h.unknown.clear();
    "an effect has its work": |h| h.effects.push(effect(9, 1, 1));
    "an effect has its hold": |h| h.effects.push(effect(1, 4, 1));
    "a hold has one effect": |h| h.effects.push(effect(1, 1, 1));
    "repeats have one id": |h| h.effects[0].event_id = Some(event_id(9));
    "attempts are counted": |h| h.effects[2].attempt = Some(1);
    "attempts are counted": |h| h.effects[2].attempt = Some(3);
    "all work ends": |h| h.works[1].state = Some(State::Pending);
    "work dies only by the crash limit": |h| {
        h.works[1].state = Some(State::Dead);
        h.works[1].dead_reason = Some("crash_loop".to_owned());
    };
    "work is done once" more: |h| {
        h.works[0].holds.push(hold("well", 4, OutcomeKind::Done, 200, 300));
    };
    "work is done once" more: |h| h.works[0].holds.clear();
    "done work has its effect": |h| h.effects.retain(|effect| effect.fence != 5);
    "the effect comes before done": |h| h.too_soon.insert(1);
    // The settle of the paused worker took effect.
    "a stale settle is refused" more: |h| {
        h.works[2].holds[0].outcome = OutcomeKind::Done;
        h.works[2].holds[1].outcome = OutcomeKind::Release;
    };
    // The lease of the paused worker was reaped, and its settle still took effect.
    "a stale settle is refused" more: |h| {
        h.works[2].holds.push(hold("paused", 3, OutcomeKind::Retry, 1_000, 7_400));
    };
    // No reaper ended the lease of the paused worker for three terms.
    "a stale settle is refused": |h| {
        h.works[2].holds = vec![hold("paused", 3, OutcomeKind::Done, 1_000, 7_400)];
        h.effects.retain(|effect| effect.fence != 6);
    };
    "a resumed worker notices": |h| h.losses.clear();
    "fences rise" more: |h| h.works[1].holds[1].fence = 1;
    "one holder at a time": |h| h.works[1].holds[1].from = at(3_400);
    // The lease ended before its first term was over; in the next case, before an end that the
    // store showed.
    "no lease is cut short": |h| {
        h.until.clear();
        h.works[1].holds[0].to = at(2_900);
    };
    "no lease is cut short": |h| h.works[1].holds[0].to = at(3_100);
    "a lost hold is explained": |h| h.faults.remove(0);
    "a lost hold is explained": |h| h.faults.pop();
    "a lost hold is explained": |h| {
        let done = hold("well", 5, OutcomeKind::Done, 200, 300);
        h.works[0].holds = vec![hold("well", 4, OutcomeKind::Release, 0, 100), done];
        h.effects[0].fence = 5;
    };
    "a lost hold is explained": |h| refused(h);
    "work goes on after an outage": |h| h.works[3].holds[1].to = at(24_100);
    "work goes on after an outage" more: |h| h.works.truncate(3);
    "workers stay up": |h| h.exits.push("well".to_owned());
    "recovery is in time": |h| late(h);
    "nothing begins after its end": |h| h.works[1].final_at = Some(at(3_600));
    "a key has one lease": |h| h.torn_keys.insert("k".to_owned());
    // The next work of the key was claimed while another lease still held the others.
    "a key has one lease" more: |h| {
        *h = ordered();
        h.works[6].holds[1] = hold("well", 10, OutcomeKind::Done, 3_800, 3_950);
    };
    "a key is done in order": |h| {
        *h = ordered();
        h.works[5].holds[1].to = at(3_950);
    };
    // Even a receiver that checks fences accepts this effect out of order.
    "a fenced receiver is in order" more: |h| {
        *h = ordered();
        h.effects.swap(8, 9);
    };
    // A receiver that checks fences refuses the late effect; other receivers get it, and it is not
    // a repeat.
    "only repeats come late" more: |h| {
        *h = ordered();
        h.effects.remove(8);
    };
    // Without its key, the third work of the run waits for nothing.
    "recovery is in time": |h| {
        *h = ordered();
        h.works[6].holds[1] = hold("well", 9, OutcomeKind::Done, 9_000, 9_100);
        h.works[6].key = None;
    };
    // Notes of two workers at once: at a row, at a row on which the command of a killed worker
    // still runs, and at a chunk.
    "one holder at a time" more: |h| *h = noted("begin row-1 o-9/1 15\nleft row-1 o-9/1 16\n", &[]);
    "one holder at a time": |h| *h = noted("begin row-2 o-9/2 20\nleft row-2 o-9/2 22\n", &[]);
    "one holder at a time": |h| *h = noted("begin chunk-a o-9 15\nend chunk-a o-9 17\n", &[]);
    "a lost hold is explained" more: |h| *h = noted("begin row-9 ours-9/9 60\n", &[]);
    "a stale settle is refused" more: |h| *h = noted("begin row-1 o-9 60\nend row-1 o-9 70\n", &[]);
    "nothing begins after its end": |h| *h = noted("begin row-3 o-9 60\nleft row-3 o-9 61\n", &[]);
    "nothing begins after its end": |h| {
        *h = noted("begin chunk-a hand-1 60\nend chunk-a hand-1 61\n", &[]);
    };
    // A row without a worker, a row done only by the command of a killed worker, a row with two
    // final states, and a row whose final state disappears.
    "done work has its effect" more: |h| *h = noted("", &[("row-4", Some("completed"))]);
    "done work has its effect" more: |h| {
        let orphan = "begin row-5 ours-2/5 10\nend row-5 ours-2/5 30\n";
        *h = noted(orphan, &[("row-5", Some("completed"))]);
    };
    "a final state never changes": |h| *h = noted("", &[("row-2", Some("failed"))]);
    "a final state never changes": |h| *h = noted("", &[("row-3", None)]);
}

/// A recovery that took too long.
fn late(h: &mut History) {
    h.works[1].holds[1].from = at(7_000);
    h.works[1].holds[1].to = at(7_100);
}

/// Makes the receiver refuse the first attempt, without a record of the refusal.
fn refused(h: &mut History) {
    let done = hold("well", 5, OutcomeKind::Done, 200, 300);
    h.works[0].holds = vec![hold("well", 4, OutcomeKind::Retry, 0, 100), done];
    h.effects[0].fence = 4;
    h.effects.push(effect(1, 5, 2));
}

/// Changes that leave a history sound.
const SOUND: &[PlantedChange] = &[
    |_| {},
    |h| *h = ordered(),
    |h| *h = noted("", &[]),
    // The worker was paused before it started the work.
    |h| {
        h.losses.clear();
        h.effects.retain(|effect| effect.fence != 3);
    },
    // A claim sent before a pause was answered too late and released.
    |h| {
        let done = hold("well", 9, OutcomeKind::Done, 7_400, 7_500);
        h.works[0].holds = vec![hold("paused", 4, OutcomeKind::Release, 7_302, 7_306), done];
        h.effects[0].fence = 9;
    },
    // The worker itself reports that it was too late.
    |h| {
        h.faults.pop();
        h.losses.push(loss("well", 7));
    },
    |h| {
        refused(h);
        h.failed.insert((1, 4));
    },
    // A recovery during which an outage occurred.
    |h| {
        late(h);
        h.faults.push(fault(FaultKind::Outage, 4_000, 4_500));
    },
    // A work waits for an earlier work of its key.
    |h| {
        *h = ordered();
        h.works[6].holds[1] = hold("well", 14, OutcomeKind::Done, 9_000, 9_100);
        h.effects[9].fence = 14;
    },
];

#[test]
fn sound_histories_break_no_rule() {
    for (nth, change) in SOUND.iter().enumerate() {
        let mut history = sound();
        change(&mut history);
        let (violations, _) = check(&history);
        assert_eq!(violations, [], "history {nth}");
    }
}

#[test]
fn every_planted_violation_is_noticed() {
    for (nth, (rule, more, change)) in PLANTED.iter().enumerate() {
        let mut history = sound();
        change(&mut history);
        let broken = broken(&history);
        assert!(broken.contains(rule), "{nth}: {rule} not in {broken:?}");
        assert_eq!(broken.len() > 1, *more == "more", "{nth}: {broken:?}");
    }
}

#[test]
fn every_rule_has_a_planted_violation_and_a_promise() {
    for rule in RULES {
        let is_planted = PLANTED.iter().any(|(name, ..)| *name == rule.name);
        assert!(is_planted, "nothing is planted for {:?}", rule.name);
        assert!(rule.promise.contains(": "), "{rule:?}");
    }
}

#[test]
fn faults_and_their_cost_are_counted() {
    let (_, summary) = check(&sound());
    assert_eq!((summary.kills, summary.pauses, summary.outages), (1, 1, 1));
    assert_eq!(
        (summary.duplicates, summary.lapses, summary.hits),
        (2, 3, 2)
    );
    assert_eq!(summary.recovery, Duration::from_millis(2_500));
    assert_eq!(check(&ordered()).1.followers, 4);
    let (_, summary) = check(&noted("", &[]));
    assert_eq!((summary.kills, summary.hits, summary.lapses), (1, 1, 3));
}

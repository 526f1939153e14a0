//! Races on one key: every operation against every other. The first transaction is held open at its
//! commit while the second operation runs. The answers, the items and the order of the remaining
//! work must be those of one of the two orders in the memory store, and no item of the key may be
//! stuck.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::testing::{Extent, ManualClock};
use tenure_store::memory::MemoryStore;
use tenure_store::postgres::PostgresStore;

use super::faults::faults;
use super::scene::{Role, Round, Scene, Verb};
use crate::arena::{Arena, First, Waits};
use crate::faults::Planted;
use crate::world::T0;

/// The answer of the first operation, unless it was cancelled; the answer of the second; and the
/// final items.
type Ending = (Option<String>, String, Vec<String>);

const HELD: &[Verb] = &[
    Verb::ClaimRun,
    Verb::Renew,
    Verb::Done,
    Verb::DoneFirst,
    Verb::ReleasePart,
    Verb::ReleaseRest,
    Verb::RetryFirst,
    Verb::DeadSkip,
    Verb::DeadBlock,
    Verb::DoneAndClaim,
    Verb::RetryAndClaim,
    Verb::Reap,
    Verb::Replay(0),
    Verb::Replay(1),
    Verb::Bury(2),
    Verb::Bury(3),
    Verb::Bury(4),
    Verb::Arrive,
    Verb::Promote,
    Verb::Pause,
    Verb::Skip,
];
const LAST: &[Verb] = &[
    Verb::Done,
    Verb::DoneRest,
    Verb::DoneFirst,
    Verb::ReleasePart,
    Verb::RetryFirst,
    Verb::DeadSkip,
    Verb::DeadBlock,
    Verb::DoneAndClaim,
    Verb::Reap,
    Verb::Replay(0),
    Verb::Bury(2),
    Verb::Bury(3),
    Verb::Enqueue,
    Verb::Arrive,
    Verb::Pause,
    Verb::Skip,
];
const READY: &[Verb] = &[
    Verb::Claim,
    Verb::ClaimRun,
    Verb::Replay(0),
    Verb::Replay(1),
    Verb::Bury(2),
    Verb::Bury(3),
    Verb::Arrive,
    Verb::Pause,
    Verb::Resume,
    Verb::Skip,
];
const SOLE: &[Verb] = &[
    Verb::ClaimRun,
    Verb::Replay(0),
    Verb::Bury(2),
    Verb::Enqueue,
    Verb::Arrive,
    Verb::Pause,
    Verb::Skip,
];
const BLOCKED: &[Verb] = &[
    Verb::ClaimRun,
    Verb::Replay(0),
    Verb::Replay(2),
    Verb::Bury(3),
    Verb::Arrive,
    Verb::Pause,
    Verb::Skip,
];
const BLOCKED_SOLE: &[Verb] = &[Verb::Replay(2), Verb::Arrive, Verb::Pause, Verb::Skip];
const PAUSED_HELD: &[Verb] = &[
    Verb::ClaimRun,
    Verb::Done,
    Verb::ReleasePart,
    Verb::RetryFirst,
    Verb::DeadBlock,
    Verb::Reap,
    Verb::Replay(0),
    Verb::Bury(2),
    Verb::Bury(3),
    Verb::Arrive,
    Verb::Pause,
    Verb::Resume,
    Verb::Skip,
];
const PAUSED: &[Verb] = &[
    Verb::ClaimRun,
    Verb::Replay(0),
    Verb::Bury(2),
    Verb::Arrive,
    Verb::Pause,
    Verb::Resume,
    Verb::Skip,
];
const PAUSED_BLOCKED: &[Verb] = &[
    Verb::Replay(0),
    Verb::Replay(2),
    Verb::Arrive,
    Verb::Pause,
    Verb::Resume,
    Verb::Skip,
];
const IDLE: &[Verb] = &[
    Verb::ClaimRun,
    Verb::Replay(0),
    Verb::Replay(1),
    Verb::Enqueue,
    Verb::Arrive,
    Verb::Pause,
    Verb::Resume,
    Verb::Skip,
];
const ARRIVED: &[Verb] = &[
    Verb::ClaimRun,
    Verb::Replay(0),
    Verb::Bury(2),
    Verb::Bury(3),
    Verb::Enqueue,
    Verb::Promote,
    Verb::Pause,
    Verb::Skip,
];

/// One allowed way to execute an operation: the equivalent operations in sequence, and the answer.
#[derive(Clone)]
struct Way {
    verbs: Vec<Verb>,
    answer: fn(&[String]) -> String,
}

/// Returns the allowed ways to execute an operation. A claim and a reap skip locked rows and find
/// them the next time: the second operation, and also the first one if the key has no head yet,
/// because the claim then makes the head in a separate transaction. The claim of a combined
/// statement may miss the items that its settle makes available, and does not wait for the locks
/// that the settle waits for.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "every other operation has one allowed way"
)]
fn ways(scene: Scene, verb: Verb, role: Role) -> Vec<Way> {
    let way = |verbs: &[Verb], answer| Way {
        verbs: verbs.to_vec(),
        answer,
    };
    let mut ways = vec![way(&[verb], |answers| answers[0].clone())];
    let is_second = role == TWO;
    match verb {
        Verb::Claim | Verb::ClaimRun if is_second || scene == Scene::Arrived => {
            ways.push(way(&[], |_| "None".into()));
        }
        Verb::Reap if is_second => ways.push(way(&[], |_| "[]".into())),
        Verb::DoneAndClaim | Verb::RetryAndClaim => {
            let settle = if verb == Verb::DoneAndClaim {
                Verb::Done
            } else {
                Verb::RetryFirst
            };
            ways.push(way(&[settle], |answers| format!("{} None", answers[0])));
            ways.push(way(&[Verb::ClaimRun, settle], |answers| {
                format!("{} {}", answers[1], answers[0])
            }));
        }
        _ => {}
    }
    ways
}

const ONE: Role = "one";
const TWO: Role = "two";

/// Every interleaving of these two sequences.
fn orders(one: &[Verb], two: &[Verb]) -> Vec<Vec<(Role, Verb)>> {
    let next = |role, verbs: &[Verb], rest: Vec<Vec<(Role, Verb)>>| {
        let first = (role, verbs[0]);
        let orders = rest.into_iter();
        orders
            .map(|order| std::iter::once(first).chain(order).collect())
            .collect::<Vec<_>>()
    };
    match (one, two) {
        ([], []) => vec![Vec::new()],
        ([], [_, rest @ ..]) => next(TWO, two, orders(&[], rest)),
        ([_, rest @ ..], []) => next(ONE, one, orders(rest, &[])),
        ([_, one_rest @ ..], [_, two_rest @ ..]) => {
            let mut all = next(ONE, one, orders(one_rest, two));
            all.extend(next(TWO, two, orders(one, two_rest)));
            all
        }
    }
}

/// Runs these operations in sequence in the memory store; returns the answers and the final state.
async fn in_order(scene: Scene, verbs: &[(Role, Verb)]) -> (Vec<(Role, String)>, Vec<String>) {
    let clock = ManualClock::new(T0.before(Duration::from_hours(24)));
    let store = MemoryStore::new(Arc::new(clock));
    let round = Round::start(&store, scene).await;
    let mut answers = Vec::new();
    for (role, verb) in verbs {
        let answer = round.run(&store, *verb, role).await.unwrap();
        answers.push((*role, round.named(&answer)));
    }
    (answers, round.end(&store).await)
}

/// Checks that the result of the two operations is allowed; the error lists the allowed results.
async fn is_allowed(
    scene: Scene,
    (first, second): (Verb, Verb),
    ending: &Ending,
) -> Result<(), Vec<Ending>> {
    let mut all = Vec::new();
    let none = Way {
        verbs: Vec::new(),
        answer: |_| String::new(),
    };
    let commits = ending.0.is_some();
    let firsts = if commits {
        ways(scene, first, ONE)
    } else {
        vec![none]
    };
    for one in &firsts {
        for two in ways(scene, second, TWO) {
            for order in orders(&one.verbs, &two.verbs) {
                let (answers, end) = in_order(scene, &order).await;
                let of = |role: Role| -> Vec<String> {
                    let own = answers.iter().filter(|(of, _)| *of == role);
                    own.map(|(_, answer)| answer.clone()).collect()
                };
                let one = commits.then(|| (one.answer)(&of(ONE)));
                let allowed = (one, (two.answer)(&of(TWO)), end);
                if allowed == *ending {
                    return Ok(());
                }
                all.push(allowed);
            }
        }
    }
    Err(all)
}

/// Runs two operations concurrently; returns the violations.
pub(super) async fn meet(
    arena: &mut Arena,
    scene: Scene,
    (first, second): (Verb, Verb),
    end: First,
) -> Result<(), String> {
    let round = Round::start(arena.free.as_ref(), scene).await;
    let run = |store: &Arc<PostgresStore>, verb, role| {
        let (round, store) = (round.clone(), Arc::clone(store));
        async move { round.run(store.as_ref(), verb, role).await }
    };
    let one = run(&arena.held, first, ONE);
    let two = run(&arena.free, second, TWO);
    let waits = if matches!(second, Verb::Bury(_) | Verb::Skip) {
        Waits::Asking
    } else {
        Waits::AtLocks
    };
    let (one, two) = arena.race(one, two, waits, end).await;
    let pair = format!("{scene:?}: {first:?} beside {second:?}");
    let two = two.map_err(|error| format!("{pair}: {error}"))?;
    if let (First::Commits, Err(error)) = (end, &one) {
        return Err(format!("{pair}: {error}"));
    }
    let found = faults(&mut arena.conn).await;
    if !found.is_empty() {
        return Err(format!("{pair}: {found:#?}"));
    }
    let one = one.ok().map(|answer| round.named(&answer));
    let (two, items) = (round.named(&two), round.end(arena.free.as_ref()).await);
    let ending = (one, two, items);
    let found = faults(&mut arena.conn).await;
    if !found.is_empty() {
        return Err(format!("{pair}, drained: {found:#?}"));
    }
    is_allowed(scene, (first, second), &ending)
        .await
        .map_err(|all| format!("{pair} ended in {ending:#?}; expected one of {all:#?}"))
}

/// Deletes settled items, which would slow down the checks of the tables.
const CLEAR: &str = "truncate tenure_events, tenure_settled, tenure_dead, tenure_setbacks, \
                     tenure_keys, tenure_arrivals, tenure_ready, tenure_backlog, tenure_leases";

/// Races each operation against all operations; a short run takes only one as the first.
async fn race_all(scene: Scene, verbs: &[Verb]) {
    let mut arena = Arena::new().await;
    let mut wrong = Vec::new();
    for first in Extent::chosen().of(verbs, 1) {
        for second in verbs {
            for end in [First::Commits, First::IsCancelled] {
                let met = meet(&mut arena, scene, (first, *second), end).await;
                if let Err(why) = met {
                    wrong.push(format!("{end:?} {why}"));
                    // The next race gets a new arena, without the rows of this one.
                    arena = Arena::new().await;
                }
            }
        }
        sqlx::raw_sql(CLEAR).execute(&mut arena.conn).await.unwrap();
    }
    assert!(wrong.is_empty(), "{} {}", wrong.len(), wrong.join("\n"));
}

/// Returns true if two concurrent operations show these faults.
pub(super) async fn is_noticed(
    faults: &[Planted],
    scene: Scene,
    verbs: (Verb, Verb),
    end: First,
) -> bool {
    let mut arena = Arena::planted(faults).await;
    let met = tokio::spawn(async move { meet(&mut arena, scene, verbs, end).await });
    !matches!(met.await, Ok(Ok(())))
}

/// Proves: S3-001, S3-007, S4-051
#[tokio::test]
async fn two_operations_on_a_held_run_end_as_in_sequence() {
    race_all(Scene::Held, HELD).await;
}

#[tokio::test]
async fn two_operations_on_the_last_held_items_end_as_in_sequence() {
    race_all(Scene::Last, LAST).await;
}

#[tokio::test]
async fn two_operations_on_a_claimable_head_end_as_in_sequence() {
    race_all(Scene::Ready, READY).await;
    race_all(Scene::Sole, SOLE).await;
}

#[tokio::test]
async fn two_operations_on_a_blocked_key_end_as_in_sequence() {
    race_all(Scene::Blocked, BLOCKED).await;
    race_all(Scene::BlockedSole, BLOCKED_SOLE).await;
    race_all(Scene::PausedBlocked, PAUSED_BLOCKED).await;
}

#[tokio::test]
async fn two_operations_on_a_paused_key_end_as_in_sequence() {
    race_all(Scene::PausedHeld, PAUSED_HELD).await;
    race_all(Scene::Paused, PAUSED).await;
}

#[tokio::test]
async fn two_operations_on_a_key_without_a_head_end_as_in_sequence() {
    race_all(Scene::Idle, IDLE).await;
    race_all(Scene::Arrived, ARRIVED).await;
}

//! Races: every operation against every other on PostgreSQL. The first transaction is held open at
//! its commit while the second operation runs. The result must be that of one of the two orders in
//! the memory store.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::store::{
    Bury, Enqueued, Prune, Pruned, Reap, Renew, Replay, Rest, Settle, Store, StoreError,
};
use tenure_core::testing::{Extent, ManualClock};
use tenure_core::{Event, Guarded, ItemId, Outcome, Record, Term, Timestamp, Token};
use tenure_store::memory::MemoryStore;
use tenure_store::postgres::PostgresStore;

use crate::arena::{Arena, First, Waits};
use crate::world::{T0, ask, at, at_once, dead, fresh, retry};

/// Operations on items 0 and 1 (held by one lease since [`T0`]), 2 (pending), 3 (dead) and 4
/// (done).
#[derive(Clone, Copy, Debug, PartialEq)]
enum Verb {
    Claim,
    Renew,
    SettleDone,
    SettleEach,
    SettleStrict,
    ReleaseRest,
    SettleAndClaim,
    SettleEachAndClaim,
    Reap,
    Replay(usize),
    Bury(usize),
    PruneDone,
    PruneDead,
}

const VERBS: [Verb; 15] = [
    Verb::Claim,
    Verb::Renew,
    Verb::SettleDone,
    Verb::SettleEach,
    Verb::SettleStrict,
    Verb::ReleaseRest,
    Verb::SettleAndClaim,
    Verb::SettleEachAndClaim,
    Verb::Reap,
    Verb::Replay(3),
    Verb::Replay(4),
    Verb::Bury(0),
    Verb::Bury(2),
    Verb::PruneDone,
    Verb::PruneDead,
];

/// The answer of the first operation, unless it was cancelled; the answer of the second; and the
/// final items.
type Ending = (Option<String>, String, Vec<String>);

/// The items of one round, the holder of the first two, and the time of all operations.
#[derive(Clone, Debug)]
struct Round {
    ids: Vec<ItemId>,
    holder: Token,
    now: Timestamp,
}

impl Round {
    /// Creates five items in the states that [`Verb`] names.
    async fn start(store: &dyn Store, now: Timestamp) -> Self {
        let events = vec![Event::from_json("t", "1").unwrap(); 5];
        let answers = store.enqueue(&events).await.unwrap();
        let ids: Vec<ItemId> = answers.into_iter().map(Enqueued::id).collect();
        let first = fresh("settler");
        let held = store.claim(&ask(&first, 5, T0)).await.unwrap().unwrap();
        assert_eq!(held.ids(), ids);
        let settle = Settle::new(first.clone())
            .item(ids[4], Outcome::Done)
            .item(ids[3], dead());
        assert_eq!(
            store
                .settle(&settle.rest(Rest::Release).at(T0))
                .await
                .unwrap()
                .rest,
            3
        );
        let holder = fresh("holder");
        let held = store.claim(&ask(&holder, 2, T0)).await.unwrap().unwrap();
        assert_eq!(held.ids(), ids[..2]);
        Self { ids, holder, now }
    }

    /// Runs an operation; returns its answer in a form common to all stores.
    async fn run(&self, store: &dyn Store, verb: Verb) -> Result<String, StoreError> {
        let next = fresh("next");
        let settle = Settle::new(self.holder.clone()).at(self.now);
        let claim = ask(&next, 1, self.now);
        let done = settle.clone().done(self.ids[..2].iter().copied());
        let each = settle
            .clone()
            .item(self.ids[0], retry(5))
            .item(self.ids[1], dead());
        let answer = match verb {
            Verb::Claim => format!("{:?}", store.claim(&claim).await?.map(|held| held.ids())),
            Verb::Renew => self.renew(store).await?,
            Verb::SettleDone => format!("{:?}", store.settle(&done).await?),
            Verb::SettleEach => format!("{:?}", store.settle(&each).await?),
            Verb::SettleStrict => format!("{:?}", store.settle(&done.strict()).await?),
            Verb::ReleaseRest => {
                let settle = settle.item(self.ids[1], Outcome::Done).rest(Rest::Release);
                format!("{:?}", store.settle(&settle).await?)
            }
            Verb::SettleAndClaim | Verb::SettleEachAndClaim => {
                let settle = if verb == Verb::SettleAndClaim {
                    done
                } else {
                    each
                };
                let (settlement, held) = store.settle_and_claim(&settle, &claim).await?;
                format!("{settlement:?} {:?}", held.map(|held| held.ids()))
            }
            Verb::Reap => {
                let reaped = store.reap(&Reap::new(100, at_once()).at(self.now)).await?;
                format!(
                    "{:?}",
                    reaped
                        .iter()
                        .map(|item| (item.id, item.state))
                        .collect::<Vec<_>>()
                )
            }
            Verb::Replay(nth) => {
                let replay = Replay {
                    ids: vec![self.ids[nth]],
                    now: Some(self.now),
                };
                format!("{:?}", store.replay(&replay).await?)
            }
            Verb::Bury(nth) => {
                let bury = Bury {
                    id: self.ids[nth],
                    token: fresh("operator"),
                    reason: "gone".into(),
                    now: Some(self.now),
                };
                format!("{:?}", store.bury(&bury).await?)
            }
            Verb::PruneDone | Verb::PruneDead => self.prune(store, verb).await?,
        };
        Ok(self
            .ids
            .iter()
            .enumerate()
            .fold(answer, |answer, (nth, id)| {
                answer.replace(&format!("ItemId({id})"), &format!("#{nth}"))
            }))
    }

    async fn prune(&self, store: &dyn Store, verb: Verb) -> Result<String, StoreError> {
        let (short, long) = (Duration::from_secs(5), Duration::from_hours(1));
        let prune = if verb == Verb::PruneDone {
            Prune::new(short, long)
        } else {
            Prune::new(long, short)
        };
        Ok(format!("{:?}", store.prune(&prune.at(self.now)).await?))
    }

    async fn renew(&self, store: &dyn Store) -> Result<String, StoreError> {
        let renew = Renew::new(vec![self.holder.clone()], Term::HEAVY).at(self.now);
        Ok(match store.renew(&renew).await?.remove(0).1 {
            Guarded::Accepted(renewed) => format!("{:?}", (renewed.until, renewed.ids)),
            Guarded::Refused(why) => why.to_string(),
        })
    }

    /// The items in a form common to all stores.
    async fn end(&self, store: &dyn Store) -> Vec<String> {
        let mut end = Vec::new();
        for record in store.find(&self.ids).await.unwrap() {
            let words: Vec<&str> = store
                .timeline(record.id)
                .await
                .unwrap()
                .iter()
                .map(|hold| hold.outcome.as_str())
                .collect();
            end.push(format!("{} {words:?}", observed(&record)));
        }
        end
    }
}

fn observed(record: &Record) -> String {
    let hold = record
        .hold
        .as_ref()
        .map(|hold| (&hold.holder, hold.claimed_at, hold.until));
    let moved = record.available_at.filter(|moment| *moment >= T0);
    format!(
        "{:?} {:?} {hold:?} {moved:?} {:?} {:?} {:?} {:?}",
        record.state,
        record.counters,
        record.last_error,
        record.done_at,
        record.dead_at,
        record.dead_reason
    )
}

/// Runs the operations in sequence; returns their answers and the final items.
async fn in_order(now: Timestamp, verbs: &[Verb]) -> (Vec<String>, Vec<String>) {
    let clock = ManualClock::new(T0.before(Duration::from_hours(24)));
    let store = MemoryStore::new(Arc::new(clock));
    let round = Round::start(&store, now).await;
    let mut answers = Vec::new();
    for verb in verbs {
        answers.push(round.run(&store, *verb).await.unwrap());
    }
    (answers, round.end(&store).await)
}

/// Counts ids that are in more than one place, twice in a lease, or without an event.
const DOUBLES: &str = "
    select count(*) from (
        select id from (select id from tenure_ready union all select id from tenure_dead
            union all select i.id from tenure_leases l, unnest(l.ids) as i(id)) as place
        group by id
        having count(*) > 1
            or not exists (select from tenure_events e where e.id = place.id)
    ) as doubled";

/// Runs `second` while the transaction of `first` is held open, and then commits or cancels that
/// transaction.
async fn race(
    arena: &mut Arena,
    round: &Round,
    (first, second): (Verb, Verb),
    commits: bool,
) -> (Option<String>, String) {
    let run = |store: &Arc<PostgresStore>, verb| {
        let (round, store) = (round.clone(), Arc::clone(store));
        async move { round.run(store.as_ref(), verb).await }
    };
    let waits = if matches!(second, Verb::Bury(_)) {
        Waits::Asking
    } else {
        Waits::AtLocks
    };
    let end = if commits {
        First::Commits
    } else {
        First::IsCancelled
    };
    let (one, two) = (run(&arena.held, first), run(&arena.free, second));
    let (one, two) = arena.race(one, two, waits, end).await;
    let two = two.unwrap_or_else(|error| panic!("{first:?} {second:?}: {error}"));
    (one.ok(), two)
}

/// Allowed results of two concurrent operations: both answers, and the final items.
async fn allowed(now: Timestamp, (first, second): (Verb, Verb), commits: bool) -> Vec<Ending> {
    let before: &[Verb] = if commits { &[first] } else { &[] };
    let one = |answers: &[String]| commits.then(|| answers[0].clone());
    let mut all = Vec::new();
    let (answers, end) = in_order(now, &[before, &[second]].concat()).await;
    all.push((one(&answers), answers[before.len()].clone(), end));
    if commits {
        let (answers, end) = in_order(now, &[second, first]).await;
        all.push((Some(answers[1].clone()), answers[0].clone(), end));
    }
    // A claim, a reap and a prune skip locked rows and find them the next time.
    let none = format!("{:?}", Pruned::default());
    let skipping = [
        (Verb::Claim, None, "None"),
        (Verb::Reap, None, "[]"),
        (Verb::PruneDone, None, none.as_str()),
        (Verb::PruneDead, None, none.as_str()),
        (Verb::SettleAndClaim, Some(Verb::SettleDone), " None"),
        (Verb::SettleEachAndClaim, Some(Verb::SettleEach), " None"),
    ];
    let Some((_, settle, nothing)) = skipping.into_iter().find(|(verb, ..)| *verb == second) else {
        return all;
    };
    let verbs: Vec<Verb> = before.iter().copied().chain(settle).collect();
    let (answers, end) = in_order(now, &verbs).await;
    let settled = settle
        .and_then(|_| answers.last().cloned())
        .unwrap_or_default();
    all.push((one(&answers), settled + nothing, end));
    // The claim of a combined statement does not wait for the locks that its settle waits for.
    if let (Some(settle), true) = (settle, commits) {
        let (answers, end) = in_order(now, &[Verb::Claim, first, settle]).await;
        all.push((
            Some(answers[1].clone()),
            format!("{} {}", answers[2], answers[0]),
            end,
        ));
    }
    all
}

async fn race_all(now: Timestamp, commits: bool) {
    let mut arena = Arena::new().await;
    let firsts = Extent::chosen().of(&VERBS, 2).into_iter();
    for (first, second) in firsts.flat_map(|first| VERBS.map(|second| (first, second))) {
        let round = Round::start(arena.free.as_ref(), now).await;
        let (one, two) = race(&mut arena, &round, (first, second), commits).await;
        let ending = (one, two, round.end(arena.free.as_ref()).await);
        // An operation that changed nothing is not held open, so it cannot be cancelled.
        let allowed = allowed(now, (first, second), ending.0.is_some()).await;
        assert!(
            allowed.contains(&ending),
            "{first:?} beside {second:?} ended in {ending:#?}; expected one of {allowed:#?}"
        );
        assert_eq!(arena.ask(DOUBLES).await, 0, "{first:?} beside {second:?}");
        // Deletes all rows of this round before the next one.
        let clear = "truncate tenure_events, tenure_ready, tenure_leases, tenure_settled, \
                     tenure_dead, tenure_setbacks";
        sqlx::raw_sql(clear).execute(&mut arena.conn).await.unwrap();
    }
}

#[tokio::test]
async fn two_operations_on_live_leases_end_as_in_sequence() {
    race_all(at(10), true).await;
}

#[tokio::test]
async fn two_operations_on_lapsed_leases_end_as_in_sequence() {
    race_all(at(60), true).await;
}

#[tokio::test]
async fn a_cancelled_operation_does_not_affect_a_concurrent_one() {
    race_all(at(60), false).await;
}

//! Chunks in hand: all are renewed by one statement per tick, and one that is lost or late is
//! cancelled by itself.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::job::{ChunkKey, ChunkName, MatrixName};
use tenure_core::store::{ChunkHold, Store};
use tenure_core::testing::token;
use tenure_core::{Event, Outcome, Term};
use tenure_engine::{ChunkKeeper, Context, EventFn, RowStore};
use tokio::time::{Instant, sleep, timeout};

use crate::faulty::{Ask, Fault};
use crate::rows;
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);
const JOBS: u32 = 1000;

/// The hold of a chunk with this number.
fn hold(no: u64) -> ChunkHold {
    ChunkHold {
        key: ChunkKey {
            matrix: MatrixName::new("m").unwrap(),
            chunk: ChunkName::new(&format!("c{no}")).unwrap(),
        },
        token: token("a", no),
    }
}

fn renewals(asks: &[Ask]) -> usize {
    let is_renewal = |ask: &&Ask| matches!(ask, Ask::RenewChunks(_));
    asks.iter().filter(is_renewal).count()
}

/// Goal: what a heartbeat costs does not grow with what is held. Method: 1,000 jobs with two chunks
/// each; every call of the keeper in ten minutes is counted, and how many there are in any tick.
///
/// Proves: S5-044
#[tokio::test(start_paused = true)]
async fn a_thousand_jobs_and_their_chunks_are_renewed_by_two_statements_per_tick() {
    let world = World::new();
    world.enqueue(JOBS).await;
    let keeper = Arc::new(ChunkKeeper::default());
    let held = Arc::clone(&keeper);
    let handler = EventFn::new(move |event: Event, _: Context| {
        let held = Arc::clone(&held);
        async move {
            let job: u64 = event.payload().parse()?;
            let now = Instant::now();
            let first = held.keep(hold(2 * job), now);
            let second = held.keep(hold(2 * job + 1), now);
            let (first, second) = (first.unwrap(), second.unwrap());
            sleep(12 * MINUTE).await;
            assert!(!first.is_cancelled() && !second.is_cancelled());
            Ok(Outcome::Done)
        }
    });
    let store: Arc<dyn Store> = Arc::new(RowStore::of_jobs(&world.store()).unwrap());
    let mut config = rows::config(JOBS);
    config.chunks = Some(Arc::clone(&keeper));
    let engine = World::start_on(store, handler, config);
    crate::probe::until(|| keeper.in_hand() == 2 * 1000).await;
    let began = Instant::now();
    sleep(10 * MINUTE).await;
    let is_renewal = |ask: &Ask| matches!(ask, Ask::Renew(_) | Ask::RenewChunks(_));
    let calls = world.faulty.calls();
    let at: Vec<Instant> = calls
        .iter()
        .filter(|(at, ask)| *at >= began && is_renewal(ask))
        .map(|(at, _)| *at)
        .collect();
    let tick = keeper.heartbeat() / 4;
    let busiest = at
        .iter()
        .map(|first| {
            at.iter()
                .filter(|at| *at >= first && **at < *first + tick)
                .count()
        })
        .max();
    assert_eq!(busiest, Some(2), "one for the jobs, one for the chunks");
    let of_all = |ask: &Ask| matches!(ask, Ask::RenewChunks(renew) if renew.holds.len() == 2000);
    assert_eq!(
        world.faulty.count(of_all),
        renewals(&world.faulty.since(began))
    );
    // Jobs each minute, a tick early at most; chunks each half minute.
    let chunks = renewals(&world.faulty.since(began));
    assert!((19..=20).contains(&chunks), "{chunks} in ten minutes");
    let jobs = at.len() - chunks;
    assert!((9..=14).contains(&jobs), "{jobs} in ten minutes");
    sleep(4 * MINUTE).await;
    assert_eq!(keeper.in_hand(), 0, "what is dropped is not renewed");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_chunk_whose_renewal_is_refused_is_cancelled_and_no_other() {
    let world = World::new();
    let keeper = Arc::new(ChunkKeeper::default());
    let [lost, stays, ended] = [1, 2, 3].map(|no| {
        let kept = keeper.keep(hold(no), Instant::now());
        kept.unwrap()
    });
    let (run, store) = (Arc::clone(&keeper), world.store());
    let running = tokio::spawn(async move { run.run(store.as_ref()).await });
    sleep(MINUTE).await;
    world.faulty.take_chunk(&token("a", 1));
    world.faulty.take_chunk(&token("a", 3));
    ended.ends();
    timeout(MINUTE, lost.cancelled()).await.unwrap();
    assert!(!ended.is_cancelled(), "it was ended by ourselves");
    timeout(MINUTE, ended.cancelled()).await.unwrap();
    sleep(10 * MINUTE).await;
    assert!(!stays.is_cancelled());
    running.abort();
}

/// Goal: a row that is in somebody's transaction costs its own holder alone, and that one only when
/// its own time is over. Method: of three chunks one is held up for less than its term, one for
/// good, one not at all.
#[tokio::test(start_paused = true)]
async fn a_chunk_in_a_transaction_is_asked_for_again_until_its_own_deadline() {
    let world = World::new();
    let keeper = Arc::new(ChunkKeeper::default());
    let began = Instant::now();
    let [for_a_while, for_good, free] = [1, 2, 3].map(|no| keeper.keep(hold(no), began).unwrap());
    world.faulty.hold_up(&token("a", 1));
    world.faulty.hold_up(&token("a", 2));
    let (run, store) = (Arc::clone(&keeper), world.store());
    let running = tokio::spawn(async move { run.run(store.as_ref()).await });
    sleep(MINUTE + MINUTE / 2).await;
    assert!(!for_a_while.is_cancelled() && !for_good.is_cancelled());
    world.faulty.let_go(&token("a", 1));
    timeout(MINUTE, for_good.cancelled()).await.unwrap();
    assert!(
        began.elapsed() < keeper.term().length(),
        "before another can have it"
    );
    sleep(10 * MINUTE).await;
    assert!(!for_a_while.is_cancelled() && !free.is_cancelled());
    running.abort();
}

/// Proves: S5-007
#[tokio::test(start_paused = true)]
async fn a_chunk_that_cannot_be_renewed_is_cancelled_before_another_can_have_it() {
    let world = World::new();
    for fault in [Fault::Hang, Fault::Before, Fault::Bad] {
        world.faulty.mend();
        world
            .faulty
            .rule(move |ask| matches!(ask, Ask::RenewChunks(_)).then_some(fault));
        let keeper = Arc::new(ChunkKeeper::default());
        let began = Instant::now();
        let kept = keeper.keep(hold(1), began).unwrap();
        let (run, store) = (Arc::clone(&keeper), world.store());
        let running = tokio::spawn(async move { run.run(store.as_ref()).await });
        kept.cancelled().await;
        assert!(began.elapsed() < keeper.term().length() * 9 / 10 + Duration::from_secs(1));
        assert_eq!(keeper.in_hand(), 0);
        running.abort();
    }
}

/// The keeper's own clock decides, also when nothing is heard of the renewals for another reason:
/// nobody runs them.
#[tokio::test(start_paused = true)]
async fn a_chunk_that_nobody_renewed_in_time_is_cancelled_by_who_comes_next() {
    let world = World::new();
    let keeper = Arc::new(ChunkKeeper::default());
    let kept = keeper.keep(hold(1), Instant::now()).unwrap();
    sleep(2 * MINUTE).await;
    let (run, store) = (Arc::clone(&keeper), world.store());
    let running = tokio::spawn(async move { run.run(store.as_ref()).await });
    timeout(Duration::from_secs(1), kept.cancelled())
        .await
        .unwrap();
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn of_several_who_renew_one_does_and_the_next_takes_over() {
    let world = World::new();
    let slow = Fault::Slow(Duration::from_secs(1));
    world
        .faulty
        .rule(move |ask| matches!(ask, Ask::RenewChunks(_)).then_some(slow));
    let keeper = Arc::new(ChunkKeeper::default());
    let kept = keeper.keep(hold(1), Instant::now()).unwrap();
    let drive = || {
        let (run, store) = (Arc::clone(&keeper), world.store());
        tokio::spawn(async move { run.run(store.as_ref()).await })
    };
    let (first, second) = (drive(), drive());
    let began = Instant::now();
    sleep(10 * MINUTE).await;
    let alone = renewals(&world.faulty.since(began));
    assert!((19..=20).contains(&alone), "{alone}");
    first.abort();
    let went_on = Instant::now();
    sleep(10 * MINUTE).await;
    assert!(renewals(&world.faulty.since(went_on)) >= 19);
    assert!(!kept.is_cancelled());
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_answered_too_late_is_not_kept() {
    let keeper = Arc::new(ChunkKeeper::new(Term::STANDARD, Duration::from_secs(9)).unwrap());
    let sent_at = Instant::now();
    sleep(Duration::from_secs(25)).await;
    assert!(keeper.keep(hold(1), sent_at).is_none());
    assert_eq!(keeper.in_hand(), 0);
}

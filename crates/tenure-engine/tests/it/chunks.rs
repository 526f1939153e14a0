//! Held chunks: one statement per tick renews all of them, and the loss or delay of one chunk
//! cancels only that chunk.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::job::{ChunkKey, ChunkName, MatrixName};
use tenure_core::store::ChunkHold;
use tenure_core::testing::token;
use tenure_core::{Event, Outcome, Term};
use tenure_engine::{ChunkRenewer, Context, EventFn};
use tokio::time::{Instant, sleep, timeout};

use crate::faulty_store::{Fault, Verb};
use crate::rows;
use crate::world::World;

const MINUTE: Duration = Duration::from_mins(1);
const JOBS: u32 = 1000;

/// Returns the proof of the lease on the chunk with this number.
fn hold(no: u64) -> ChunkHold {
    ChunkHold {
        key: ChunkKey {
            matrix: MatrixName::new("m").unwrap(),
            chunk: ChunkName::new(&format!("c{no}")).unwrap(),
        },
        token: token("a", no),
    }
}

fn renewals(calls: &[Verb]) -> usize {
    let is_renewal = |call: &&Verb| matches!(call, Verb::RenewChunks(_));
    calls.iter().filter(is_renewal).count()
}

/// Goal: the cost of a heartbeat does not grow with the number of held items. Method: 1,000 jobs
/// with two chunks each; counts the keeper's calls in ten minutes and in each tick.
///
/// Proves: S5-044
#[tokio::test(start_paused = true)]
async fn a_thousand_jobs_and_their_chunks_are_renewed_by_two_statements_per_tick() {
    let world = World::new();
    world.enqueue(JOBS).await;
    let keeper = Arc::new(ChunkRenewer::default());
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
    let mut config = rows::config(JOBS);
    config.chunks = Some(Arc::clone(&keeper));
    let engine = world.start(handler, config);
    crate::probe::until(|| keeper.in_hand() == 2 * 1000).await;
    let began = Instant::now();
    sleep(10 * MINUTE).await;
    let is_renewal = |call: &Verb| matches!(call, Verb::Renew(_) | Verb::RenewChunks(_));
    let calls = world.faulty.calls();
    let at: Vec<Instant> = calls
        .iter()
        .filter(|(at, call)| *at >= began && is_renewal(call))
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
    let of_all =
        |call: &Verb| matches!(call, Verb::RenewChunks(renew) if renew.holds.len() == 2000);
    assert_eq!(
        world.faulty.count(of_all),
        renewals(&world.faulty.since(began))
    );
    // Jobs are renewed each minute, at most a tick early; chunks each half minute.
    let chunks = renewals(&world.faulty.since(began));
    assert!((19..=20).contains(&chunks), "{chunks} in ten minutes");
    let jobs = at.len() - chunks;
    assert!((9..=14).contains(&jobs), "{jobs} in ten minutes");
    sleep(4 * MINUTE).await;
    assert_eq!(keeper.in_hand(), 0, "no dropped chunk is renewed");
    engine.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_refused_renewal_cancels_its_own_chunk_and_no_other() {
    let world = World::new();
    let keeper = Arc::new(ChunkRenewer::default());
    let [lost, stays, ended] = [1, 2, 3].map(|no| {
        let chunk = keeper.keep(hold(no), Instant::now());
        chunk.unwrap()
    });
    let (run, store) = (Arc::clone(&keeper), world.store());
    let running = tokio::spawn(async move { run.run(store.as_ref()).await });
    sleep(MINUTE).await;
    world.faulty.take_chunk(&token("a", 1));
    world.faulty.take_chunk(&token("a", 3));
    ended.ends();
    timeout(MINUTE, lost.cancelled()).await.unwrap();
    assert!(!ended.is_cancelled(), "its own worker ended it");
    timeout(MINUTE, ended.cancelled()).await.unwrap();
    sleep(10 * MINUTE).await;
    assert!(!stays.is_cancelled());
    running.abort();
}

/// Goal: a row locked by a transaction affects its own holder only, and only after its own
/// deadline. Method: of three chunks one is locked for less than its term, one for good, one not at
/// all.
#[tokio::test(start_paused = true)]
async fn a_locked_chunk_is_retried_until_its_own_deadline() {
    let world = World::new();
    let keeper = Arc::new(ChunkRenewer::default());
    let began = Instant::now();
    let [for_a_while, for_good, free] = [1, 2, 3].map(|no| keeper.keep(hold(no), began).unwrap());
    world.faulty.lock_row(&token("a", 1));
    world.faulty.lock_row(&token("a", 2));
    let (run, store) = (Arc::clone(&keeper), world.store());
    let running = tokio::spawn(async move { run.run(store.as_ref()).await });
    sleep(MINUTE + MINUTE / 2).await;
    assert!(!for_a_while.is_cancelled() && !for_good.is_cancelled());
    world.faulty.unlock_row(&token("a", 1));
    timeout(MINUTE, for_good.cancelled()).await.unwrap();
    assert!(
        began.elapsed() < keeper.term().length(),
        "before another worker can claim it"
    );
    sleep(10 * MINUTE).await;
    assert!(!for_a_while.is_cancelled() && !free.is_cancelled());
    running.abort();
}

/// Proves: S5-007
#[tokio::test(start_paused = true)]
async fn a_chunk_that_cannot_be_renewed_is_cancelled_before_another_worker_can_claim_it() {
    let world = World::new();
    for fault in [Fault::Hang, Fault::Before, Fault::Bad] {
        world.faulty.heal();
        world
            .faulty
            .rule(move |call| matches!(call, Verb::RenewChunks(_)).then_some(fault));
        let keeper = Arc::new(ChunkRenewer::default());
        let began = Instant::now();
        let chunk = keeper.keep(hold(1), began).unwrap();
        let (run, store) = (Arc::clone(&keeper), world.store());
        let running = tokio::spawn(async move { run.run(store.as_ref()).await });
        chunk.cancelled().await;
        assert!(began.elapsed() < keeper.term().length() * 9 / 10 + Duration::from_secs(1));
        assert_eq!(keeper.in_hand(), 0);
        running.abort();
    }
}

/// The deadline also passes while no task runs the renewer.
#[tokio::test(start_paused = true)]
async fn a_chunk_that_was_not_renewed_in_time_is_cancelled_by_the_next_task() {
    let world = World::new();
    let keeper = Arc::new(ChunkRenewer::default());
    let chunk = keeper.keep(hold(1), Instant::now()).unwrap();
    sleep(2 * MINUTE).await;
    let (run, store) = (Arc::clone(&keeper), world.store());
    let running = tokio::spawn(async move { run.run(store.as_ref()).await });
    timeout(Duration::from_secs(1), chunk.cancelled())
        .await
        .unwrap();
    running.abort();
}

#[tokio::test(start_paused = true)]
async fn only_one_of_several_tasks_renews_and_another_takes_over_when_it_ends() {
    let world = World::new();
    let slow = Fault::Slow(Duration::from_secs(1));
    world
        .faulty
        .rule(move |call| matches!(call, Verb::RenewChunks(_)).then_some(slow));
    let keeper = Arc::new(ChunkRenewer::default());
    let chunk = keeper.keep(hold(1), Instant::now()).unwrap();
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
    assert!(!chunk.is_cancelled());
    second.abort();
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_was_answered_too_late_is_not_renewed() {
    let keeper = Arc::new(ChunkRenewer::new(Term::STANDARD, Duration::from_secs(9)).unwrap());
    let sent_at = Instant::now();
    sleep(Duration::from_secs(25)).await;
    assert!(keeper.keep(hold(1), sent_at).is_none());
    assert_eq!(keeper.in_hand(), 0);
}

//! Stress: many concurrent workers on one store, with random partial settles, retries, lapses, lost
//! answers, cut connections and killed servers. The invariants are read from the tables, during the
//! run and at its end.
//!
//! The machine decides the interleaving. The seed is printed when a run fails, and repeats the
//! calls of each worker.

mod crew;
mod order;
mod producers;
mod tables;

use std::sync::Arc;
use std::time::Duration;

use tenure_core::LeaseTable;
use tenure_core::store::{Claim, KeyFilter, KeyState, Pause, Reap, Settle, Skip};
use tenure_nemesis::Schedule;
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Server};

use crate::world::{self, T0, World, fresh};
use crew::{Crew, LAPSE};
use order::{Keys, out_of_order};
use producers::produce;
use tables::Tables;

/// Number of workers of a run on PostgreSQL.
const WORKERS: u64 = 8;
/// Number of producers, in layouts with keys.
const PRODUCERS: u64 = 2;

/// Runs the crew on a world with faults, then settles everything and checks the result.
async fn run(world: Box<dyn World>, tables: Tables, workers: u64, trouble: Trouble) {
    let seed = Schedule::from_environment().seed;
    let crew = Arc::new(Crew::new(Arc::from(world), seed, tables.keys()).await);
    let watch = tokio::spawn(watch(Arc::clone(&crew), tables.clone()));
    let trouble = tokio::spawn(trouble.make(Arc::clone(&crew), tables.clone()));
    let mut producers = tokio::task::JoinSet::new();
    if let Tables::PostgresQueue(url) = &tables {
        for producer in 0..PRODUCERS {
            producers.spawn(produce(Arc::clone(&crew), url.clone(), producer));
        }
    }
    let mut tasks = tokio::task::JoinSet::new();
    for worker in 0..workers {
        tasks.spawn(Arc::clone(&crew).work(worker));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    crew.stop();
    producers.join_all().await;
    trouble.await.expect("the trouble ends");
    let looks = watch.await.expect("the watch ends");
    assert!(looks > 0, "seed {seed}: the tables were never checked");
    quiet(&crew).await;
    let mut faults = crew.faults().await;
    faults.extend(tables.faults_while_running().await.expect("the tables"));
    faults.extend(tables.faults_when_quiet().await.expect("the tables"));
    let ends = tables.ends().await.expect("the tables");
    faults.extend(out_of_order(&crew.sent(), &ends));
    assert!(faults.is_empty(), "seed {seed}: {faults:#?}");
    assert!(crew.done() > 0, "seed {seed}: nothing was done");
}

/// Faults during the work.
enum Trouble {
    None,
    /// Cuts connections.
    Cuts,
    /// Cuts connections, and kills and restarts the server twice.
    Kills(Arc<Server>),
}

impl Trouble {
    async fn make(self, crew: Arc<Crew>, tables: Tables) {
        if let Self::Kills(server) = &self {
            for _ in 0..2 {
                crew.wait_for_work(150).await;
                server.kill().await;
                server.restart().await;
            }
        }
        while crew.is_working() && !matches!(self, Self::None) {
            // The connection that cuts others may itself be cut.
            drop(tables.cut().await);
            crew.wait_for_work(20).await;
        }
    }
}

/// Checks the tables while the crew works; returns the number of checks.
async fn watch(crew: Arc<Crew>, tables: Tables) -> u32 {
    let mut looks = 0;
    while crew.is_working() {
        // A connection may be cut, or the server may be down.
        if let Ok(faults) = tables.faults_while_running().await {
            looks += 1;
            crew.report(faults);
        }
        crew.wait_for_work(10).await;
    }
    looks
}

/// Ends all pauses and blocks of keys.
async fn let_go(crew: &Crew) {
    let Some(outbox) = crew.world.outbox().filter(|_| crew.keys == Keys::Mixed) else {
        return;
    };
    for key in crew.keys.all() {
        crew.until_answered(|| outbox.pause_key(&key, Pause::End))
            .await;
    }
    let stuck = || outbox.keys(KeyFilter::Stuck, 1000);
    for key in crew.until_answered(stuck).await {
        if key.state == KeyState::Blocked {
            let skip = Skip::new(key.name, fresh("operator"), "gone");
            let _skipped = crew.until_answered(|| outbox.skip(&skip)).await;
        }
    }
}

/// Ends all leases and works on all remaining items, at a much later time.
async fn quiet(crew: &Crew) {
    let_go(crew).await;
    let lease = crew.world.lease();
    let reap = Reap::new(1000, LAPSE.clone()).at(T0);
    // The reaped items are due by this time.
    let then = T0.after(Duration::from_mins(1));
    while !crew.until_answered(|| lease.reap(&reap)).await.is_empty() {}
    loop {
        let token = fresh("last");
        let claim = Claim::new(token.clone(), 1000).recovery(None).at(then);
        let answer = match lease.claim(&claim).await {
            Ok(None) => lease.claim(&claim.alone()).await,
            answer => answer,
        };
        let held = match answer {
            Ok(Some(held)) => held,
            Ok(None) => return,
            Err(_) => {
                crew.release(&token).await;
                continue;
            }
        };
        let settle = Settle::new(token).done(held.ids()).at(then);
        let settlement = crew.until_answered(|| lease.settle(&settle)).await;
        if settlement.refused().count() == 0 {
            crew.note_done(&held);
        }
    }
}

/// Proves: S1-047, S4-052, S4-053, S4-055, S4-057, S4-058
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_workers_with_cut_connections_keep_the_invariants_of_postgres_rows() {
    for table in [LeaseTable::outbox(), LeaseTable::outbox_processing()] {
        let database = testing::migrated().await;
        let world = world::postgres_on(&database.url, Some(table)).await;
        let tables = Tables::PostgresRows(database.url.clone());
        run(world, tables, WORKERS, Trouble::Cuts).await;
    }
}

/// Proves: S4-037, S4-047, S4-052, S4-053, S4-055, S4-056, S4-057, S4-058
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn eight_workers_keep_the_invariants_while_postgres_is_killed() {
    let server = Arc::new(Server::start().await);
    let database = server.database().await;
    PostgresStore::migrate(&database.url, &StoreConfig::default())
        .await
        .unwrap();
    let world = world::postgres_on(&database.url, None).await;
    let tables = Tables::PostgresQueue(database.url.clone());
    run(world, tables, WORKERS, Trouble::Kills(Arc::clone(&server))).await;
}

/// Proves: S4-052, S4-055, S4-057, S4-058
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_workers_keep_the_invariants_of_the_sqlite_queue() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("tenure.db");
    let world = world::sqlite_on(&path).await;
    run(world, Tables::SqliteQueue(path), 4, Trouble::None).await;
}

/// The crew runs on the memory store, where a violation is a bug in the crew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn four_workers_keep_the_invariants_in_memory() {
    let world = world::memory().await;
    run(world, Tables::None, 4, Trouble::None).await;
}

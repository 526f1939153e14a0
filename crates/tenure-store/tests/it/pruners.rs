//! Concurrent prunes on PostgreSQL: choices that are outdated at the delete, and pruners, replays,
//! workers and producers at the same time.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection, PgConnection};
use tenure_core::store::{
    Claim, Enqueued, Intake, LeaseStore, Operate, Prune, Pruner, Replay, Rest, Settle,
};
use tenure_core::{Event, ItemId, NewEvent};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database};

use crate::world::fresh;

async fn open(database: &Database, connections: u32) -> PostgresStore {
    let config = StoreConfig {
        connections,
        ..StoreConfig::default()
    };
    PostgresStore::open(&database.url, &config).await.unwrap()
}

async fn number(conn: &mut PgConnection, text: &str) -> i64 {
    let query = sqlx::query_scalar(AssertSqlSafe(text.to_owned()));
    query.fetch_one(conn).await.unwrap()
}

async fn enqueue(store: &PostgresStore, events: &[Event]) -> Vec<ItemId> {
    let answers = store.enqueue(events).await.unwrap();
    answers.into_iter().map(Enqueued::id).collect()
}

fn event() -> Event {
    Event::from_json("t", "1").unwrap()
}

/// A prune of all settled items.
fn at_once() -> Prune {
    Prune::new(Duration::ZERO, Duration::ZERO)
}

async fn work(store: &PostgresStore, limit: u32) -> u32 {
    let token = fresh("worker");
    let claim = Claim::new(token.clone(), limit);
    if store.claim(&claim).await.unwrap().is_none() {
        return 0;
    }
    let settle = Settle::new(token).rest(Rest::Done);
    store.settle(&settle).await.unwrap().rest
}

/// The choice of items may be outdated when the delete runs, because a replay may commit between
/// the snapshot of the choice and its locks. Here the delete gets every id, and must check each of
/// them.
#[tokio::test]
async fn the_delete_of_a_prune_checks_its_choice_again() {
    let database = testing::migrated().await;
    let store = open(&database, 4).await;
    let ids = enqueue(&store, &vec![event(); 6]).await;
    assert_eq!(work(&store, 4).await, 4);
    let replayed = store.replay(&Replay::new(vec![ids[0], ids[1]])).await;
    assert!(
        replayed
            .unwrap()
            .iter()
            .all(|(_, answer)| answer.is_accepted())
    );
    // The first replayed item is held. The other replayed item, and the two that were never
    // settled, are pending.
    let mut held = Vec::new();
    while !held.contains(&ids[0]) {
        let claim = Claim::new(fresh("holder"), 1);
        held.extend(store.claim(&claim).await.unwrap().unwrap().ids());
    }
    let texts = store.statement_texts();
    let (_, text) = texts.iter().find(|(name, _)| *name == "prune").unwrap();
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let all: Vec<i64> = ids.iter().map(|id| id.number()).collect();
    let query = sqlx::query_as(AssertSqlSafe(text.clone()))
        .bind("infinity")
        .bind(0_i64)
        .bind(0_i64)
        .bind(100_i64)
        .bind(all)
        .bind(None::<Vec<String>>)
        .bind(None::<Vec<i64>>);
    let (done, dead, _, _): (i64, i64, i64, bool) = query.fetch_one(&mut conn).await.unwrap();
    assert_eq!((done, dead), (2, 0));
    let left = store.find(&ids).await.unwrap();
    let left: Vec<ItemId> = left.iter().map(|record| record.id).collect();
    assert_eq!(left, [ids[0], ids[1], ids[4], ids[5]]);
}

/// The second statement of a prune must not use the snapshot of the first.
#[tokio::test]
async fn a_prune_runs_at_read_committed_whatever_the_default_is() {
    let database = testing::migrated().await;
    drop(open(&database, 1).await);
    let sign = if database.url.contains('?') { '&' } else { '?' };
    let option = "options[default_transaction_isolation]=repeatable%20read";
    let url = format!("{}{sign}{option}", database.url);
    let store = PostgresStore::open(&url, &StoreConfig::default())
        .await
        .unwrap();
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let spy = "create table seen (level text);
        create function spy() returns trigger language plpgsql as $$ begin
            insert into seen values (current_setting('transaction_isolation'));
            return null;
        end $$;
        create trigger spy after delete on tenure_events for each row execute function spy();";
    sqlx::raw_sql(spy).execute(&mut conn).await.unwrap();
    enqueue(&store, &[event()]).await;
    assert_eq!(work(&store, 1).await, 1);
    assert_eq!(store.prune(&at_once()).await.unwrap().done, 1);
    let levels = "select count(*) from seen where level = 'read committed'";
    assert_eq!(number(&mut conn, levels).await, 1);
}

/// The prune does not wait for a producer that has not committed yet and uses the same dedupe key.
#[tokio::test]
async fn a_dedupe_key_that_a_producer_uses_keeps_its_event_for_a_round() {
    let database = testing::migrated().await;
    let store = open(&database, 4).await;
    let keyed = |key: &str| NewEvent::from(event()).dedupe(key).build().unwrap();
    let ids = enqueue(&store, &[keyed("a"), keyed("b")]).await;
    assert_eq!(work(&store, 2).await, 2);
    let mut tx = store.pool().begin().await.unwrap();
    let answers = store.enqueue_on(&mut tx, &[keyed("a")]).await.unwrap();
    assert_eq!(answers[0].id(), ids[0]);
    let pruned = store.prune(&at_once()).await.unwrap();
    assert_eq!((pruned.done, pruned.more), (1, false));
    tx.commit().await.unwrap();
    assert_eq!(store.prune(&at_once()).await.unwrap().done, 1);
    let answers = store.enqueue(&[keyed("a"), keyed("b")]).await.unwrap();
    assert!(answers.into_iter().all(Enqueued::is_fresh));
}

/// Counters of the workers, pruners and producers while they run.
#[derive(Default)]
struct PruneCounts {
    enqueued: AtomicU64,
    pruned: AtomicU64,
    replayed: AtomicU64,
    is_over: AtomicBool,
}

impl PruneCounts {
    fn goes_on(&self) -> bool {
        !self.is_over.load(Ordering::Relaxed)
    }
}

async fn produce(store: Arc<PostgresStore>, tally: Arc<PruneCounts>, rounds: u64) {
    for round in 0..rounds {
        let keyed = NewEvent::from(event())
            .dedupe(&format!("key-{}", round % 7))
            .build()
            .unwrap();
        let events = [event(), keyed, event(), event()];
        let answers = store.enqueue(&events).await.unwrap();
        let fresh = answers.iter().filter(|answer| answer.is_fresh()).count();
        let fresh = u64::try_from(fresh).unwrap();
        tally.enqueued.fetch_add(fresh, Ordering::Relaxed);
        // Replays some of the newest items, as an operator does, whether or not they are settled or
        // pruned.
        let newest = answers[0].id().number();
        let ids = (newest - 20..newest).map(ItemId::new).collect();
        let replayed = store.replay(&Replay::new(ids)).await.unwrap();
        let kept = replayed.iter().filter(|(_, answer)| answer.is_accepted());
        let kept = u64::try_from(kept.count()).unwrap();
        tally.replayed.fetch_add(kept, Ordering::Relaxed);
    }
}

async fn consume(store: Arc<PostgresStore>, tally: Arc<PruneCounts>) {
    while work(&store, 5).await > 0 || tally.goes_on() {}
}

async fn prune(store: Arc<PostgresStore>, tally: Arc<PruneCounts>) {
    while tally.goes_on() {
        let ask = Prune {
            limit: 7,
            ..at_once()
        };
        let pruned = store.prune(&ask).await.unwrap();
        let sum = pruned.done + pruned.dead;
        tally.pruned.fetch_add(sum, Ordering::Relaxed);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_pruners_and_replays_lose_no_event_and_count_each_once() {
    let database = testing::migrated().await;
    let store = Arc::new(open(&database, 8).await);
    let tally = Arc::new(PruneCounts::default());
    let mut producers = tokio::task::JoinSet::new();
    let mut others = tokio::task::JoinSet::new();
    for _ in 0..2 {
        producers.spawn(produce(Arc::clone(&store), Arc::clone(&tally), 150));
        others.spawn(consume(Arc::clone(&store), Arc::clone(&tally)));
        others.spawn(prune(Arc::clone(&store), Arc::clone(&tally)));
    }
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    // One statement is one snapshot, in which every pending or held item must have its event.
    let orphans = "select count(*) from (
            select id from tenure_ready union all
            select i.id from tenure_leases l, unnest(l.ids) as i(id)) as place
        where not exists (select from tenure_events e where e.id = place.id)";
    while !producers.is_empty() {
        if let Some(ended) = producers.try_join_next() {
            ended.unwrap();
        }
        assert_eq!(number(&mut conn, orphans).await, 0);
    }
    tally.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = others.join_next().await {
        ended.unwrap();
    }
    assert_eq!(number(&mut conn, orphans).await, 0);
    let counts = store.count(None).await.unwrap();
    assert_eq!((counts.pending(), counts.claimed, counts.dead), (0, 0, 0));
    let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
    assert_eq!(load(&tally.enqueued), counts.done + load(&tally.pruned));
    assert!(load(&tally.replayed) > 0 && load(&tally.pruned) > 0);
    let strays = "select (select count(*) from tenure_setbacks s
            where not exists (select from tenure_events e where e.id = s.id))
        + (select count(*) from tenure_dedupe d
            where not exists (select from tenure_events e where e.id = d.id))";
    assert_eq!(number(&mut conn, strays).await, 0);
    // At the end nothing is left, not even in the journal.
    while store.prune(&at_once()).await.unwrap().more {}
    let left =
        "select (select count(*) from tenure_events) + (select count(*) from tenure_settled)";
    assert_eq!(number(&mut conn, left).await, 0);
}

//! Bulk replays on PostgreSQL: a step is atomic, wherever it fails, and skips locked rows.

use sqlx::{Connection, PgConnection};
use tenure_core::store::{
    Claim, Enqueued, Filter, Intake, LeaseStore, NewReplay, Operate, ReplayOperation, Replays,
    Rest, Settle, StepReplay,
};
use tenure_core::{Event, ItemId, State};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database};

use crate::world::fresh;

/// A store with four done events, and a bulk replay of them.
async fn scene() -> (Database, PostgresStore, Vec<ItemId>, ReplayOperation) {
    let database = testing::migrated().await;
    let config = StoreConfig::default();
    let store = PostgresStore::open(&database.url, &config).await.unwrap();
    let events = vec![Event::from_json("t", "1").unwrap(); 4];
    let ids = store.enqueue(&events).await.unwrap();
    let ids = ids.into_iter().map(Enqueued::id).collect();
    let token = fresh("worker");
    store.claim(&Claim::new(token.clone(), 10)).await.unwrap();
    let settle = Settle::new(token).rest(Rest::Done);
    assert_eq!(store.settle(&settle).await.unwrap().rest, 4);
    let done = Filter {
        state: Some(State::Done),
        ..Filter::default()
    };
    let started = store.start_replay(&NewReplay::new(done).unwrap()).await;
    (database, store, ids, started.unwrap())
}

async fn waiting(store: &PostgresStore, ids: &[ItemId]) -> usize {
    let found = store.find(ids).await.unwrap();
    let waiting = found.iter().filter(|record| record.state == State::Pending);
    waiting.count()
}

/// Goal: items are replayed if and only if the step is recorded. Method: the last statement of a
/// step fails once.
#[tokio::test]
async fn a_step_that_fails_at_its_end_replays_nothing() {
    let (database, store, ids, started) = scene().await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let trap = "create function trap() returns trigger language plpgsql as $$ begin
            raise exception 'trapped';
        end $$;
        create trigger trap before update on tenure_replays for each row execute function trap();";
    sqlx::raw_sql(trap).execute(&mut conn).await.unwrap();
    let step = StepReplay::new(3);
    store.step_replay(&step).await.unwrap_err();
    assert_eq!(waiting(&store, &ids).await, 0);
    let now = store.replay_operation(started.id).await.unwrap();
    assert_eq!(now, Some(started));
    let free = "drop trigger trap on tenure_replays";
    sqlx::raw_sql(free).execute(&mut conn).await.unwrap();
    let stepped = store.step_replay(&step).await.unwrap();
    assert_eq!(stepped.operation.unwrap().replayed, 3);
    assert_eq!(waiting(&store, &ids).await, 3);
}

#[tokio::test]
async fn a_locked_replay_is_skipped_without_waiting() {
    let (database, store, ids, started) = scene().await;
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let mut tx = conn.begin().await.unwrap();
    let lock = "select from tenure_replays for update";
    sqlx::raw_sql(lock).execute(&mut *tx).await.unwrap();
    let stepped = store.step_replay(&StepReplay::new(3)).await.unwrap();
    assert_eq!(stepped.operation, None);
    assert!(stepped.next_in.is_some(), "it is still running");
    assert_eq!(waiting(&store, &ids).await, 0);
    tx.rollback().await.unwrap();
    let stepped = store.step_replay(&StepReplay::new(10)).await.unwrap();
    let ended = stepped.operation.unwrap();
    assert_eq!((ended.id, ended.replayed), (started.id, 4));
    assert!(!ended.is_running());
}

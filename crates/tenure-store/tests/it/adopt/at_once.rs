//! Two concurrent adoptions of one table, or an adoption and its undoing: one of them may be
//! refused with an error, and the table ends as if they had run in sequence.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_core::store::{StoreError, StoreErrorKind, Tables, WhileHeld};
use tenure_core::{LeaseTable, Plan};
use tenure_store::config::StoreConfig;
use tenure_store::sqlite::SqliteStore;
use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::block_in_place;

use super::Place;

const ROWS: i64 = 2_500;

/// A table whose adoption takes every kind of step.
async fn table(place: &Place) -> LeaseTable {
    let make = format!(
        "create table sync_jobs (id text primary key, priority integer not null default 0);
         with recursive n (n) as (select 1 union all select n + 1 from n where n < {ROWS})
         insert into sync_jobs (id) select 'k' || n from n"
    );
    place.execute(&make).await;
    LeaseTable::sync_jobs()
}

/// Opens the same file as another process would.
async fn another(place: &Place) -> SqliteStore {
    let Place::Sqlite { path, .. } = place else {
        panic!("a SQLite test: PostgreSQL has an advisory lock");
    };
    let store = SqliteStore::open(path, &StoreConfig::default()).await;
    store.unwrap()
}

/// Adopts the table; returns the number of steps.
async fn steps(place: &Place, table: &LeaseTable) -> usize {
    let steps = AtomicUsize::new(0);
    let count = |_: &str| {
        steps.fetch_add(1, Ordering::Relaxed);
    };
    let plan = place.plan(table).await.unwrap();
    place.tables().adopt(&plan, &count).await.unwrap();
    let all = steps.into_inner();
    assert!(all > 4, "{all} steps");
    all
}

/// Calls `act` before the nth step.
fn before_step(nth: usize, act: impl Fn() + Sync) -> impl Fn(&str) + Sync {
    let told = AtomicUsize::new(0);
    move |_: &str| {
        if told.fetch_add(1, Ordering::Relaxed) + 1 == nth {
            act();
        }
    }
}

/// Adopts the table in its current state. If no plan can be made now, follows the plan of the other
/// adoption.
async fn adopt_late(
    store: &SqliteStore,
    table: &LeaseTable,
    plan: &Plan,
) -> Result<(), StoreError> {
    let found = store.inspect(table).await.unwrap();
    let mut adopted = store.adopted().await.unwrap().into_iter();
    let recorded = adopted.find(|adopted| adopted.table.name == table.name);
    let now = table.plan(&found, recorded.as_ref());
    let plan = now.as_ref().unwrap_or(plan);
    store.adopt(plan, &|_| {}).await
}

fn assert_refused(answer: Result<(), StoreError>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("another adoption of sync_jobs"));
}

/// Asserts that one of the two succeeded, and that the other succeeded or was refused.
fn assert_one_did(first: Result<(), StoreError>, second: Result<(), StoreError>, nth: usize) {
    let any = first.is_ok() || second.is_ok();
    assert!(any, "at step {nth}: {first:?} {second:?}");
    for answer in [first, second].into_iter().filter(Result::is_err) {
        assert_refused(answer);
    }
}

/// Undoes the adoption; asserts the original state.
async fn assert_given_back(place: &Place, table: &LeaseTable, before: &BTreeSet<String>) {
    let recorded = place.recorded(&table.name).await.unwrap();
    let undone = place.tables().undo(&recorded, WhileHeld::Refuse).await;
    assert_eq!(undone.unwrap(), 0);
    assert_eq!(place.catalogue().await, *before);
}

async fn assert_whole(place: &Place, table: &LeaseTable) {
    let plan = place.plan(table).await.unwrap();
    assert!(plan.is_done, "{plan:#?}");
    let numbered = "select count(distinct tenure_id) from sync_jobs";
    assert_eq!(place.number(numbered).await, ROWS);
}

#[tokio::test]
async fn the_second_of_two_adoptions_with_the_same_plan_is_refused() {
    let place = Place::sqlite().await;
    let table = table(&place).await;
    let second = another(&place).await;
    let plan = place.plan(&table).await.unwrap();
    place.tables().adopt(&plan, &|_| {}).await.unwrap();
    assert_refused(second.adopt(&plan, &|_| {}).await);
    assert_whole(&place, &table).await;
}

/// Goal: another adoption at any step does no harm. Method: before each step of an adoption,
/// another process does the remaining steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adoption_between_two_steps_of_another_gives_the_result_of_one() {
    let place = Place::sqlite().await;
    let table = table(&place).await;
    let other = another(&place).await;
    let before = place.catalogue().await;
    let all = steps(&place, &table).await;
    assert_given_back(&place, &table, &before).await;
    for nth in 1..=all {
        let plan = place.plan(&table).await.unwrap();
        let answer = Mutex::new(None);
        let adopt = || {
            let late = adopt_late(&other, &table, &plan);
            let told = block_in_place(|| Handle::current().block_on(late));
            *answer.lock().unwrap() = Some(told);
        };
        let tables = place.tables();
        let first = tables.adopt(&plan, &before_step(nth, adopt)).await;
        let second = answer.into_inner().unwrap().unwrap();
        assert_one_did(first, second, nth);
        assert_whole(&place, &table).await;
        assert_given_back(&place, &table, &before).await;
    }
}

/// Goal: two concurrent adoptions do no harm. Method: before each step of an adoption,
/// another process begins one, and neither waits for the other.
#[tokio::test]
async fn two_concurrent_adoptions_give_the_result_of_one() {
    let place = Place::sqlite().await;
    let table = table(&place).await;
    let other = another(&place).await;
    let before = place.catalogue().await;
    let all = steps(&place, &table).await;
    assert_given_back(&place, &table, &before).await;
    for nth in 1..=all {
        let plan = place.plan(&table).await.unwrap();
        let started = Notify::new();
        let tell = before_step(nth, || started.notify_one());
        let late = async {
            started.notified().await;
            adopt_late(&other, &table, &plan).await
        };
        let (first, second) = tokio::join!(place.tables().adopt(&plan, &tell), late);
        assert_one_did(first, second, nth);
        assert_whole(&place, &table).await;
        assert_given_back(&place, &table, &before).await;
    }
}

/// Goal: an undone adoption stays undone. Method: before each step after the first, another process
/// undoes the adoption.
#[tokio::test]
async fn an_adoption_that_is_undone_half_way_leaves_nothing_behind() {
    let place = Place::sqlite().await;
    let Place::Sqlite { path, .. } = &place else {
        return;
    };
    let table = table(&place).await;
    let before = place.catalogue().await;
    place.adopt(&table).await;
    let recorded = place.recorded(&table.name).await.unwrap();
    let undo = place.tables().undo_sql(&recorded).unwrap();
    let undone = place.tables().undo(&recorded, WhileHeld::Refuse).await;
    assert_eq!(undone.unwrap(), 0);
    let all = steps(&place, &table).await;
    // The record of the first adoption is outdated.
    let stale = place.tables().undo(&recorded, WhileHeld::Refuse).await;
    assert_refused(stale.map(drop));
    place.execute(&undo).await;
    for stop in 2..=all {
        let give_back = before_step(stop, || {
            let conn = rusqlite::Connection::open(path).unwrap();
            conn.execute_batch(&undo).unwrap();
        });
        let plan = place.plan(&table).await.unwrap();
        assert_refused(place.tables().adopt(&plan, &give_back).await);
        assert_eq!(place.catalogue().await, before, "at step {stop}");
        assert!(place.recorded(&table.name).await.is_none());
    }
}

//! Two adoptions of one table at once, or an adoption and its undoing: one of them is refused and
//! says so, and the table ends as if they had come one after the other.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::store::{StoreError, StoreErrorKind, Tables, WhileHeld};
use tenure_core::{LeaseTable, Plan};
use tenure_store::config::StoreConfig;
use tenure_store::sqlite::SqliteStore;

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

/// The same file as another process has it open.
async fn another(place: &Place) -> SqliteStore {
    let Place::Sqlite { path, .. } = place else {
        panic!("PostgreSQL has locks for that");
    };
    let store = SqliteStore::open(path, &StoreConfig::default()).await;
    store.unwrap()
}

fn assert_refused(answer: Result<(), StoreError>) {
    let error = answer.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Conflict, "{error}");
    assert!(error.to_string().contains("another adoption of sync_jobs"));
}

async fn assert_whole(place: &Place, table: &LeaseTable) {
    let plan = place.plan(table).await.unwrap();
    assert!(plan.is_done, "{plan:#?}");
    let numbered = "select count(distinct tenure_id) from sync_jobs";
    assert_eq!(place.number(numbered).await, ROWS);
}

#[tokio::test]
async fn the_second_of_two_adoptions_that_began_alike_is_refused() {
    let place = Place::sqlite().await;
    let table = table(&place).await;
    let second = another(&place).await;
    let plan = place.plan(&table).await.unwrap();
    place.tables().adopt(&plan, &|_| {}).await.unwrap();
    assert_refused(second.adopt(&plan, &|_| {}).await);
    assert_whole(&place, &table).await;
}

/// Goal: whoever comes while an adoption runs does no harm, at whatever step that is.
/// Method: two processes adopt a table that neither has begun, again and again; at times the second
/// finds half of it done, and goes on beside the first.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_adoptions_at_once_end_like_one() {
    let place = Place::sqlite().await;
    let table = table(&place).await;
    let second = another(&place).await;
    let before = place.catalogue().await;
    let late = async |plan: &Plan, wait: u64| {
        // Any moment will do: there are many rounds.
        tokio::time::sleep(Duration::from_millis(wait)).await;
        let found = second.look(&table).await.unwrap();
        let recorded = place.recorded(&table.name).await;
        let now = table.plan(&found, recorded.as_ref());
        let plan = now.as_ref().unwrap_or(plan);
        second.adopt(plan, &|_| {}).await
    };
    for wait in 0..12 {
        let plan = place.plan(&table).await.unwrap();
        let first = place.tables().adopt(&plan, &|_| {});
        let (first, second) = tokio::join!(first, late(&plan, wait));
        assert!(first.is_ok() || second.is_ok(), "{first:?} {second:?}");
        for answer in [first, second].into_iter().filter(Result::is_err) {
            assert_refused(answer);
        }
        assert_whole(&place, &table).await;
        let recorded = place.recorded(&table.name).await.unwrap();
        let undone = place.tables().undo(&recorded, WhileHeld::Refuse).await;
        assert_eq!(undone.unwrap(), 0);
        assert_eq!(place.catalogue().await, before);
    }
}

/// Goal: what was given back stays given back. Method: between each two steps of an adoption,
/// another process undoes it.
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
    let steps = AtomicUsize::new(0);
    let count = |_: &str| {
        steps.fetch_add(1, Ordering::Relaxed);
    };
    let plan = place.plan(&table).await.unwrap();
    place.tables().adopt(&plan, &count).await.unwrap();
    let all = steps.into_inner();
    assert!(all > 4, "{all} steps");
    // What was looked at before that is no longer what there is.
    let stale = place.tables().undo(&recorded, WhileHeld::Refuse).await;
    assert_refused(stale.map(drop));
    place.execute(&undo).await;
    for stop in 2..=all {
        let nth = AtomicUsize::new(0);
        let give_back = |_: &str| {
            if nth.fetch_add(1, Ordering::Relaxed) + 1 == stop {
                let conn = rusqlite::Connection::open(path).unwrap();
                conn.execute_batch(&undo).unwrap();
            }
        };
        let plan = place.plan(&table).await.unwrap();
        assert_refused(place.tables().adopt(&plan, &give_back).await);
        assert_eq!(place.catalogue().await, before, "at step {stop}");
        assert!(place.recorded(&table.name).await.is_none());
    }
}

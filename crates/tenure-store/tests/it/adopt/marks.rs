//! An undo removes only Tenure's own parts, even if the table or its name has changed.

use sqlx::{Connection, Executor, PgConnection};
use tenure_core::store::{StoreErrorKind, Tables, WhileHeld};
use tenure_core::{LeaseTable, TableLocation};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;

use super::{Place, identifier};

fn jobs() -> LeaseTable {
    LeaseTable::sync_jobs().named(identifier("jobs"))
}

async fn undo(place: &Place, table: &LeaseTable) {
    let recorded = place.recorded(&table.name).await.unwrap();
    let undone = place.tables().undo(&recorded, WhileHeld::Refuse).await;
    assert_eq!(undone.unwrap(), 0, "{}", place.name());
    assert!(place.recorded(&table.name).await.is_none());
}

const MAKE: &str = "create table jobs (id KEY, created_at MOMENT not null default NOW)";
const MAKE_WITH_FENCE: &str = "create table jobs (
    id KEY, created_at MOMENT not null default NOW, fence bigint not null default 0
)";

/// The application drops a table and creates it again with columns of its own that have the names
/// of Tenure's columns. They stay, whether the table is adopted again or the adoption is only
/// undone.
#[tokio::test]
async fn a_recreated_table_keeps_its_own_columns() {
    for is_adopted_again in [true, false] {
        for place in Place::both().await {
            place.execute(MAKE).await;
            place.adopt(&jobs()).await;
            place.execute("drop table jobs").await;
            place.execute(MAKE_WITH_FENCE).await;
            place.execute("insert into jobs (fence) values (77)").await;
            let before = place.catalogue().await;
            let recorded = place.recorded(&jobs().name).await.unwrap();
            assert_eq!(recorded.left, ["fence"], "{}", place.name());
            assert!(recorded.columns.is_empty() && recorded.indexes.is_empty());
            if is_adopted_again {
                place.adopt(&jobs()).await;
            }
            undo(&place, &jobs()).await;
            assert_eq!(place.catalogue().await, before, "{}", place.name());
            assert_eq!(place.number("select fence from jobs").await, 77);
        }
    }
}

#[tokio::test]
async fn a_table_of_another_schema_is_not_taken_for_the_adopted_one() {
    let place = Place::postgres().await;
    let Place::Postgres { database, .. } = &place else {
        panic!("the place is PostgreSQL's");
    };
    place.execute(MAKE).await;
    place.adopt(&jobs()).await;
    place
        .execute(
            "create schema app;
             create table app.jobs (
                 id bigint primary key, created_at timestamptz not null, error_message text
             );
             insert into app.jobs values (1, now(), 'mine')",
        )
        .await;
    let mark = if database.url.contains('?') { '&' } else { '?' };
    let url = format!(
        "{}{mark}options=-c%20search_path%3Dapp,public",
        database.url
    );
    let store = PostgresStore::open(&url, &StoreConfig::default())
        .await
        .unwrap();
    let recorded = store.adopted().await.unwrap().pop().unwrap();
    assert_eq!(recorded.location, TableLocation::Elsewhere);
    let found = store.inspect(&jobs()).await.unwrap();
    assert_eq!(found.schema.as_deref(), Some("app"));
    let obstacles = jobs().plan(&found, Some(&recorded)).unwrap_err();
    assert!(obstacles[0].what.contains("in the schema public"));
    let undone = store.undo(&recorded, WhileHeld::Refuse).await.unwrap_err();
    assert_eq!(undone.kind(), StoreErrorKind::Invalid);
    assert!(store.undo_sql(&recorded).is_err());
    let kept = "select count(*) from app.jobs where error_message = 'mine'";
    assert_eq!(place.number(kept).await, 1);
    // The undo succeeds where the name resolves to the adopted table.
    undo(&place, &jobs()).await;
    assert_eq!(place.number(kept).await, 1);
}

/// If another index has the name of Tenure's index, the adoption is refused, and that index stays.
#[tokio::test]
async fn an_index_name_in_use_is_an_obstacle() {
    for place in Place::both().await {
        place.execute(MAKE).await;
        let other = "create table other (id KEY); create index jobs_claimable on other (id)";
        place.execute(other).await;
        let obstacles = place.plan(&jobs()).await.unwrap_err();
        assert_eq!(obstacles.len(), 1, "{}: {obstacles:?}", place.name());
        assert!(obstacles[0].what.contains("jobs_claimable is in use"));
        place.execute("drop index jobs_claimable").await;
        place.adopt(&jobs()).await;
        // Index names are cut to 63 bytes, so tables whose names agree so far share index names.
        let long = "a".repeat(60);
        for end in ["b", "c"] {
            let make = MAKE.replace("table jobs", &format!("table {long}{end}"));
            place.execute(&make).await;
        }
        let named = |end: &str| LeaseTable::sync_jobs().named(identifier(&format!("{long}{end}")));
        place.adopt(&named("b")).await;
        let obstacles = place.plan(&named("c")).await.unwrap_err();
        assert_eq!(obstacles.len(), 3, "{}: {obstacles:?}", place.name());
    }
}

#[tokio::test]
async fn a_sequence_or_trigger_name_in_use_is_an_obstacle() {
    let make = "create table jobs (id text primary key, created_at MOMENT not null default NOW)";
    let place = Place::postgres().await;
    place.execute(make).await;
    place.execute("create sequence jobs_tenure_id_seq").await;
    let obstacles = place.plan(&jobs()).await.unwrap_err();
    assert!(obstacles[0].what.contains("jobs_tenure_id_seq is in use"));
    let place = Place::sqlite().await;
    place.execute(make).await;
    let trigger = "create trigger jobs_adopted after insert on jobs begin select 1; end";
    place.execute(trigger).await;
    let obstacles = place.plan(&jobs()).await.unwrap_err();
    assert!(obstacles[0].what.contains("jobs_adopted is in use"));
}

#[tokio::test]
async fn the_adoption_of_a_dropped_or_renamed_table_can_be_undone() {
    for place in Place::both().await {
        for end in ["drop table jobs", "alter table jobs rename to tasks"] {
            place.execute(MAKE).await;
            place.adopt(&jobs()).await;
            place.execute(end).await;
            let recorded = place.recorded(&jobs().name).await.unwrap();
            assert_eq!(recorded.location, TableLocation::Gone, "{}", place.name());
            let printed = place.tables().undo_sql(&recorded).unwrap();
            assert!(!printed.contains("alter table"), "{printed}");
            undo(&place, &jobs()).await;
        }
    }
}

/// Two concurrent adoptions of one table would drop each other's indexes.
#[tokio::test]
async fn a_second_adoption_at_the_same_time_is_refused() {
    let place = Place::postgres().await;
    let Place::Postgres { database, .. } = &place else {
        panic!("the place is PostgreSQL's");
    };
    place.execute(MAKE).await;
    let mut first = PgConnection::connect(&database.url).await.unwrap();
    let turn = "select pg_advisory_lock(hashtextextended('tenure adopt jobs', 7407170002))";
    first.execute(turn).await.unwrap();
    let plan = place.plan(&jobs()).await.unwrap();
    let refused = place.tables().adopt(&plan, &|_told| {}).await.unwrap_err();
    assert!(
        refused.to_string().contains("another adoption"),
        "{refused}"
    );
    first.close().await.unwrap();
    place.adopt(&jobs()).await;
    undo(&place, &jobs()).await;
}

//! Two concurrent changes of the settings on PostgreSQL: the first transaction is held open while
//! the second starts.

use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use tenure_core::store::{ChangeSettings, Cluster, ClusterSettings};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing;

use crate::faults::{Plant as _, Planted};

/// Waits until some statement waits for another transaction.
async fn someone_waits(pool: &PgPool) {
    let question = "select exists (
        select from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'
    )";
    while !sqlx::query_scalar::<_, bool>(question)
        .fetch_one(pool)
        .await
        .unwrap()
    {
        tokio::task::yield_now().await;
    }
}

/// Ends the first transaction with `end`; returns the answer to the second change, and the
/// resulting settings.
async fn second_after(end: &'static str, faults: &[Planted]) -> (Option<u64>, ClusterSettings) {
    let database = testing::migrated().await;
    let config = StoreConfig::default();
    let store = PostgresStore::open(&database.url, &config).await.unwrap();
    let texts = store.statement_texts();
    let text = texts
        .into_iter()
        .find(|(name, _)| *name == "change_settings");
    let mut first = PgConnection::connect(&database.url).await.unwrap();
    sqlx::raw_sql("begin").execute(&mut first).await.unwrap();
    sqlx::query(AssertSqlSafe(text.unwrap().1))
        .bind(0_i64)
        .bind(vec!["batch", "term"])
        .bind(vec![Some("1"), Some("first")])
        .fetch_one(&mut first)
        .await
        .unwrap();
    let store = store.planted(faults);
    let pool = store.pool().clone();
    let change = ChangeSettings {
        version: 0,
        values: vec![("term".into(), Some("second".into()))],
    };
    let (answer, ()) = tokio::join!(store.change_settings(&change), async {
        someone_waits(&pool).await;
        sqlx::raw_sql(end).execute(&mut first).await.unwrap();
    });
    (answer.unwrap(), store.settings().await.unwrap())
}

fn settings(version: u64, values: &[(&str, &str)]) -> ClusterSettings {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    ClusterSettings {
        version,
        values: values.iter().map(owned).collect(),
    }
}

#[tokio::test]
async fn the_second_of_two_changes_to_the_same_version_is_refused() {
    let (answer, found) = second_after("commit", &[]).await;
    assert_eq!(answer, None);
    assert_eq!(found, settings(1, &[("batch", "1"), ("term", "first")]));
}

#[tokio::test]
async fn after_a_change_is_rolled_back_the_next_one_succeeds() {
    let (answer, found) = second_after("rollback", &[]).await;
    assert_eq!(answer, Some(1));
    assert_eq!(found, settings(1, &[("term", "second")]));
}

#[tokio::test]
async fn a_statement_that_reads_the_version_before_it_waits_is_caught() {
    let too_soon = Planted {
        file: "change_settings",
        from: "where singleton = 1 and version = $1",
        to: "where singleton = 1 and (select version from tenure_settings_version) = $1",
    };
    let (answer, found) = second_after("commit", &[too_soon]).await;
    assert_eq!(answer, Some(2), "two changes took effect");
    assert_eq!(found, settings(2, &[("batch", "1"), ("term", "second")]));
}

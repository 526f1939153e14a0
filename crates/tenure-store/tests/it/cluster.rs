//! Two changes of the settings at once on PostgreSQL, on two connections: the first one's
//! transaction is held open while the second asks.

use sqlx::{AssertSqlSafe, Connection, PgConnection, PgPool};
use tenure_core::store::{ChangeSettings, Cluster};
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing;

/// Waits until a statement waits for another one's transaction.
async fn someone_waits(pool: &PgPool) {
    let question = "select exists (select from pg_stat_activity
                                   where datname = current_database() and wait_event_type = 'Lock')";
    while !sqlx::query_scalar::<_, bool>(question)
        .fetch_one(pool)
        .await
        .unwrap()
    {
        tokio::task::yield_now().await;
    }
}

/// What the second change is answered, and what is set, when the first one ends like this.
async fn second_after(end: &'static str) -> (Option<u64>, Vec<(String, String)>) {
    let database = testing::postgres().await;
    let config = StoreConfig::default();
    PostgresStore::migrate(&database.url, &config)
        .await
        .unwrap();
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
    let pool = store.pool().clone();
    let change = ChangeSettings {
        version: 0,
        values: vec![("term".into(), Some("second".into()))],
    };
    let (answer, ()) = tokio::join!(store.change_settings(&change), async {
        someone_waits(&pool).await;
        sqlx::raw_sql(end).execute(&mut first).await.unwrap();
    });
    let settings = store.settings().await.unwrap();
    assert_eq!(settings.version, 1, "one change took effect");
    (answer.unwrap(), settings.values)
}

fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

#[tokio::test]
async fn of_two_changes_that_saw_the_same_version_the_second_is_refused() {
    let (answer, values) = second_after("commit").await;
    assert_eq!(answer, None);
    assert_eq!(values, [pair("batch", "1"), pair("term", "first")]);
}

#[tokio::test]
async fn a_change_that_is_rolled_back_leaves_the_way_free_for_the_next() {
    let (answer, values) = second_after("rollback").await;
    assert_eq!(answer, Some(1));
    assert_eq!(values, [pair("term", "second")]);
}

//! `tenure migrate`: once, again, and on paper.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::program::{Place, postgres, sqlite};

/// The two places, without any tables.
async fn bare() -> [Place; 2] {
    [sqlite(), postgres().await]
}

#[tokio::test]
async fn a_second_migration_has_nothing_to_do() {
    for place in bare().await {
        let said = place.run(&["migrate", "--json"]).succeeded();
        assert_eq!(said.field("from"), "0");
        let version = said.field("to");
        let said = place.run(&["migrate"]).succeeded();
        let expected = format!("the schema is at version {version}: nothing to do\n");
        assert_eq!(said.out, expected);
        place.enqueue("a");
        place.run(&["migrate"]).succeeded();
        place.run(&["show", "1"]).succeeded();
    }
}

/// Goal: what `--print` prints is what `migrate` does. Method: an administrator applies it by hand,
/// and the program works on it.
#[tokio::test]
async fn the_printed_sql_makes_the_same_tables() {
    let [file, server] = bare().await;

    let said = file.run(&["migrate", "--print"]).succeeded();
    assert!(!file.file().exists(), "printing made a database");
    let conn = rusqlite::Connection::open(file.file()).unwrap();
    conn.execute_batch(&said.out).unwrap();
    drop(conn);

    let said = server.run(&["migrate", "--print"]).succeeded();
    let mut conn = PgConnection::connect(&server.url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(said.out))
        .execute(&mut conn)
        .await
        .unwrap();

    for place in [file, server] {
        place.enqueue("a");
        let said = place.run(&["migrate"]).succeeded();
        assert!(said.out.contains("nothing to do"), "{said:?}");
    }
}

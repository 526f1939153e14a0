//! `tenure migrate`: first run, repeated run, and `--print`.

use sqlx::{AssertSqlSafe, Connection, PgConnection};

use crate::program::{Place, postgres, sqlite};

/// Both databases, without any tables.
async fn bare() -> [Place; 2] {
    [sqlite(), postgres().await]
}

#[tokio::test]
async fn a_second_migration_has_nothing_to_do() {
    for place in bare().await {
        let output = place.run(&["migrate", "--json"]).succeeded();
        assert_eq!(output.field("from"), "0");
        assert_eq!(output.field("program"), output.field("to"));
        let version = output.field("to");
        let output = place.run(&["migrate"]).succeeded();
        let expected = format!("the schema is at version {version}: nothing to do\n");
        assert_eq!(output.out, expected);
        place.enqueue("a");
        place.run(&["migrate"]).succeeded();
        place.run(&["show", "1"]).succeeded();
    }
}

/// Goal: `--print` prints the statements that `migrate` runs. Method: the test applies the printed
/// SQL without the program, and then uses the program on the result.
#[tokio::test]
async fn the_printed_sql_makes_the_same_tables() {
    let [file, server] = bare().await;

    let output = file.run(&["migrate", "--print"]).succeeded();
    assert!(!file.file().exists(), "`--print` created a database");
    let conn = rusqlite::Connection::open(file.file()).unwrap();
    conn.execute_batch(&output.out).unwrap();
    drop(conn);

    let output = server.run(&["migrate", "--print"]).succeeded();
    let mut conn = PgConnection::connect(&server.url).await.unwrap();
    sqlx::raw_sql(AssertSqlSafe(output.out))
        .execute(&mut conn)
        .await
        .unwrap();

    for place in [file, server] {
        place.enqueue("a");
        let output = place.run(&["migrate"]).succeeded();
        assert!(output.out.contains("nothing to do"), "{output:?}");
    }
}

//! The plans of the statements use an index, on an empty table and on a full one.

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, Row};
use tenure_core::{LeaseTable, State};
use tenure_store::postgres::PostgresRows;
use tenure_store::sqlite::SqliteRows;

use super::{Bench, Checks, kinds};

/// Number of rows. They are in every state, most of them done, as in a table in use.
const ROWS: u32 = 100_000;

#[tokio::test]
async fn postgres_uses_an_index_on_an_empty_and_on_a_full_table() {
    for table in kinds() {
        postgres_goes_by_index(&table).await;
    }
}

async fn postgres_goes_by_index(table: &LeaseTable) {
    let bench = Bench::postgres(table, Checks::Kept).await;
    let Bench::Postgres { pool, database } = &bench else {
        panic!("the bench is PostgreSQL's");
    };
    let mut conn = PgConnection::connect(&database.url).await.unwrap();
    let settings =
        "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off";
    conn.execute(settings).await.unwrap();
    for what in ["empty", "full"] {
        if what == "full" {
            pool.execute(sqlx::raw_sql(AssertSqlSafe(fill(table, "now()"))))
                .await
                .unwrap();
            pool.execute("analyze").await.unwrap();
        }
        for (name, text) in PostgresRows::statements(table).unwrap() {
            // A count may read every row.
            if name == "create" || name == "count" {
                continue;
            }
            let plan = postgres_plan(&mut conn, name, &text).await;
            assert!(
                !plan.contains("Seq Scan"),
                "{name} on the {what} table:\n{plan}"
            );
            for ending in postgres_indexes(name) {
                let index = format!("{}_{ending}", table.name);
                assert!(
                    plan.contains(&index),
                    "{name} on the {what} table does not use {index}:\n{plan}"
                );
            }
            assert!(
                !plan.contains("Hash Join") && !plan.contains("Merge Join"),
                "{name} on the {what} table reads a whole table to join it:\n{plan}"
            );
        }
    }
}

/// The indexes that a statement must use, by the ends of their names.
fn postgres_indexes(name: &str) -> &'static [&'static str] {
    match name {
        "claim" => &["claimable", "alone", "claimed"],
        "renew" | "settle" | "lapsed" => &["claimed"],
        "reap" => &["claimed", "pkey"],
        "look" | "replay" | "bury" | "find" | "page" => &["pkey"],
        _ => &[],
    }
}

async fn postgres_plan(conn: &mut PgConnection, name: &str, text: &str) -> String {
    let most = (1..=9)
        .rev()
        .find(|n| text.contains(&format!("${n}")))
        .unwrap_or(0);
    let nulls = vec!["null"; most].join(", ");
    let arguments = if most == 0 {
        String::new()
    } else {
        format!("({nulls})")
    };
    conn.execute(sqlx::raw_sql(AssertSqlSafe(format!(
        "prepare {name} as {text}"
    ))))
    .await
    .unwrap();
    let explain = sqlx::raw_sql(AssertSqlSafe(format!("explain execute {name}{arguments}")));
    let lines = conn.fetch_all(explain).await.unwrap();
    conn.execute(sqlx::raw_sql(AssertSqlSafe(format!("deallocate {name}"))))
        .await
        .unwrap();
    let lines: Vec<String> = lines.iter().map(|line| line.get(0)).collect();
    lines.join("\n")
}

/// Returns SQL that fills a table; `now` is an expression for the current time.
fn fill(table: &LeaseTable, now: &str) -> String {
    let columns = &table.columns;
    let (status, word) = match table.states.status() {
        None => (String::new(), String::new()),
        Some(status) => {
            let [pending, claimed, done, dead] =
                State::ALL.map(|state| status.words.word(state).quoted());
            let word = format!(
                "case s when 'pending' then {pending} when 'claimed' then {claimed}
                        when 'dead' then {dead} else {done} end,"
            );
            (format!("{},", status.column.quoted()), word)
        }
    };
    format!(
        "insert into {table} (topic, payload, {status} {holder}, {token}, {claimed_at}, {until},
                              {done_at}, {dead_at})
         with recursive n (n) as (select 1 union all select n + 1 from n where n < {ROWS}),
              s as (select n, case when n % 10 < 2 then 'pending' when n % 100 = 5 then 'claimed'
                                   when n % 100 = 6 then 'dead' else 'done' end as s from n)
         select 'order.paid', '{{}}', {word}
                case when s = 'claimed' then 'w' end,
                case when s = 'claimed' then 'w.' || n / 50 end,
                case when s = 'claimed' then {now} end, case when s = 'claimed' then {now} end,
                case when s = 'done' then {now} end, case when s = 'dead' then {now} end
         from s",
        table = table.name.quoted(),
        holder = columns.holder.quoted(),
        token = columns.token.quoted(),
        claimed_at = columns.claimed_at.quoted(),
        until = columns.until.quoted(),
        done_at = columns.done_at.quoted(),
        dead_at = columns.dead_at.quoted(),
    )
}

#[tokio::test]
async fn sqlite_uses_an_index_on_an_empty_and_on_a_full_table() {
    for table in kinds() {
        sqlite_goes_by_index(&table).await;
    }
}

async fn sqlite_goes_by_index(table: &LeaseTable) {
    let bench = Bench::sqlite(table, Checks::Kept).await;
    let Bench::Sqlite { path, .. } = &bench else {
        panic!("the bench is SQLite's");
    };
    let conn = rusqlite::Connection::open(path).unwrap();
    for what in ["empty", "full"] {
        if what == "full" {
            bench.execute(&fill(table, "1")).await;
            bench.execute("analyze").await;
        }
        for (file, name, text) in SqliteRows::statements(table).unwrap() {
            if file == "create" || file == "count" {
                continue;
            }
            let plan = sqlite_plan(&conn, &text);
            let scans = plan.iter().any(|line| line == "SCAN t");
            assert!(
                !scans,
                "{file}: {name} on the {what} table scans it: {plan:#?}"
            );
            let sorts = plan.iter().any(|line| line.contains("TEMP B-TREE"));
            assert!(
                !(sorts && name.starts_with("claimable")),
                "{name} on the {what} table sorts the pending rows: {plan:#?}"
            );
        }
    }
}

fn sqlite_plan(conn: &rusqlite::Connection, text: &str) -> Vec<String> {
    let mut explain = conn.prepare(&format!("explain query plan {text}")).unwrap();
    // Unbound parameters are null, which is enough for a plan.
    let mut lines = explain.raw_query();
    let mut plan = Vec::new();
    while let Some(line) = lines.next().unwrap() {
        plan.push(line.get(3).unwrap());
    }
    plan
}

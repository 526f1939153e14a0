//! A large table is adopted while an application writes to it, and no writer waits for long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::{Executor, PgPool};
use tenure_core::LeaseTable;
use tenure_core::testing::Extent;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::Place;

const WRITERS: i64 = 4;

/// State shared by the writers.
#[derive(Default)]
struct Hall {
    rows: i64,
    is_over: AtomicBool,
    writes: AtomicU64,
    longest: AtomicU64,
}

impl Hall {
    /// Inserts, updates and deletes one row after the other, as an application does.
    async fn write(&self, pool: &PgPool, nth: i64) {
        let mut turn = nth;
        while !self.is_over.load(Ordering::Relaxed) {
            turn += WRITERS;
            let began = Instant::now();
            let done = match turn % 3 {
                0 => {
                    let sql = "insert into outbox (id, payload) values ($1, 'new')";
                    let id = format!("new-{nth}-{turn}");
                    sqlx::query(sql).bind(id).execute(pool).await
                }
                1 => {
                    let sql = "update outbox set payload = 'touched' where id = $1";
                    let id = format!("k{}", (turn * 7_919) % self.rows);
                    sqlx::query(sql).bind(id).execute(pool).await
                }
                _ => {
                    let sql = "delete from outbox where id = $1";
                    let id = format!("new-{nth}-{}", turn - 2 * WRITERS);
                    sqlx::query(sql).bind(id).execute(pool).await
                }
            };
            done.unwrap();
            let waited = u64::try_from(began.elapsed().as_micros()).unwrap();
            self.longest.fetch_max(waited, Ordering::Relaxed);
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Goal: no writer waits a second for the adoption, even if the adoption waits for another
/// transaction. Method: PostgreSQL aborts a writer's statement that waits a second for a lock. A
/// short run shares the machine with other tests, so only a full run checks times.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn while_a_large_table_is_adopted_no_writer_waits_a_second() {
    let (rows, writes_min) = Extent::chosen().size((50_000, 50), (1_000_000, 500));
    let place = Place::postgres().await;
    let Place::Postgres { pool, .. } = &place else {
        return;
    };
    place
        .execute(&format!(
            "create table outbox (
                 id text primary key, payload text, status text not null default 'PENDING',
                 created_at timestamptz not null default now()
             );
             insert into outbox (id, payload)
             select 'k' || n, 'p' from generate_series(0, {rows} - 1) n;
             analyze outbox"
        ))
        .await;
    let hall = Arc::new(Hall {
        rows,
        ..Hall::default()
    });
    let mut writers = JoinSet::new();
    let options = pool.connect_options().as_ref().clone();
    let impatient = PgPoolOptions::new().connect_with(options.options([("lock_timeout", "1s")]));
    let impatient = impatient.await.unwrap();
    for nth in 0..WRITERS {
        let (hall, pool) = (Arc::clone(&hall), impatient.clone());
        writers.spawn(async move { hall.write(&pool, nth).await });
    }
    // This transaction locks the table for a while at the start, as a report does.
    let mut report = pool.begin().await.unwrap();
    report.execute("select count(*) from outbox").await.unwrap();
    let let_go = tokio::spawn(async move {
        tokio::time::sleep(Duration::from_secs(2)).await;
        report.rollback().await.unwrap();
    });
    let began = Instant::now();
    let table = LeaseTable::outbox_processing();
    let plan = place.plan(&table).await.unwrap();
    place.tables().adopt(&plan, &say).await.unwrap();
    let took = began.elapsed();
    hall.is_over.store(true, Ordering::Relaxed);
    while let Some(ended) = writers.join_next().await {
        ended.unwrap();
    }
    let_go.await.unwrap();
    let longest = Duration::from_micros(hall.longest.load(Ordering::Relaxed));
    let writes = hall.writes.load(Ordering::Relaxed);
    say(&format!(
        "{rows} rows in {took:?}, {writes} writes beside it; the longest took {longest:?}"
    ));
    let longest_max = Extent::chosen().size(Duration::MAX, Duration::from_secs(1));
    assert!(longest < longest_max, "a writer waited {longest:?}");
    assert!(
        writes > writes_min,
        "only {writes} writes during the adoption"
    );
    assert!(place.plan(&table).await.unwrap().is_done);
    let lacking = "select count(*) from outbox where tenure_id is null";
    assert_eq!(place.number(lacking).await, 0);
}

/// Prints a line, visible with `--nocapture`.
fn say(text: &str) {
    #[expect(clippy::print_stderr, reason = "the figures of a run")]
    {
        eprintln!("{text}");
    }
}

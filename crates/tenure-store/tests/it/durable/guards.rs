//! The guards of the statements on PostgreSQL, one by one: what was decided from a view that no
//! longer holds is not written.

use std::time::Duration;

use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tenure_store::Planted;
use tenure_store::config::StoreConfig;
use tenure_store::postgres::PostgresStore;
use tenure_store::testing::{self, Database};

use super::tables::faults;
use crate::world::{Desk, T0};

/// A store, and a stranger who has our statements.
struct Bench {
    store: PostgresStore,
    stranger: PgConnection,
    database: Database,
}

impl Bench {
    async fn new() -> Self {
        Self::planted(&[]).await
    }

    /// With statements that are wrong in these places.
    async fn planted(faults: &[Planted]) -> Self {
        let database = testing::postgres().await;
        let config = StoreConfig::default();
        PostgresStore::migrate(&database.url, &config)
            .await
            .unwrap();
        let store = PostgresStore::open(&database.url, &config).await.unwrap();
        let store = store.planted(faults);
        let mut stranger = PgConnection::connect(&database.url).await.unwrap();
        for (name, text) in store.statement_texts() {
            if name.starts_with("work_lease_") {
                run(&mut stranger, &format!("prepare {name} as {text}")).await;
            }
        }
        Self {
            store,
            stranger,
            database,
        }
    }

    fn desk(&self) -> Desk<'_> {
        Desk::new(&self.store)
    }

    /// Number and version of the domain A.
    async fn stands(&self) -> (i64, i64) {
        let seen = "select number, version from tenure_reservations where domain = 'A'";
        sqlx::query_as(seen)
            .fetch_one(self.store.pool())
            .await
            .unwrap()
    }

    /// Writes that offset 7 of the domain A is in flight, as decided from what was seen.
    async fn write(&mut self, watermark: i64, stands: Option<(i64, i64)>) -> Written {
        let stands = stands.map_or("null, null".to_owned(), |(number, version)| {
            format!("{number}, {version}")
        });
        let call = format!(
            "execute work_lease_change(1, {watermark}, 'A', {stands}, 7, \
             'stranger-0000000000000001.1.0', now(), 0, null, null, null, '{{}}', '{{}}', '{{}}', \
             '{{}}')"
        );
        let call = sqlx::raw_sql(AssertSqlSafe(call)).fetch_all(&mut self.stranger);
        let rows = tokio::time::timeout(Duration::from_mins(1), call).await;
        let rows = rows.expect("it waits for nobody").unwrap();
        if rows.is_empty() {
            Written::Nothing
        } else {
            Written::Change
        }
    }

    async fn is_sound(&self) {
        assert_eq!(faults(self.store.pool()).await, Vec::<String>::new());
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Written {
    Change,
    Nothing,
}

async fn run(connection: &mut PgConnection, text: &str) {
    sqlx::raw_sql(AssertSqlSafe(text.to_owned()))
        .execute(connection)
        .await
        .unwrap();
}

/// Writes twice what was decided from one view of the domain.
async fn write_twice(bench: &mut Bench) -> [Written; 2] {
    bench.desk().process("A", 1).await;
    let seen = Some(bench.stands().await);
    let first = bench.write(i64::MIN, seen).await;
    [first, bench.write(i64::MIN, seen).await]
}

/// Writes that A is made, as decided before it came, ended and was evicted.
async fn write_what_is_over(bench: &mut Bench) -> Written {
    bench.desk().process("A", 7).await;
    bench.desk().advance_watermark(8).await;
    bench.write(i64::MIN, None).await
}

/// Writes what was decided from a view of the domain that was there before this one.
async fn write_to_the_next(bench: &mut Bench) -> Written {
    bench.desk().process("A", 1).await;
    let seen = bench.stands().await;
    bench.desk().advance_watermark(2).await;
    bench.desk().process("A", 3).await;
    let next = bench.stands().await;
    assert_eq!(
        next.1, seen.1,
        "the version alone would not tell them apart"
    );
    bench.write(2, Some(seen)).await
}

/// Proves: S3-033, S3-046, S3-054, S3-072, S3-073
#[tokio::test]
async fn of_two_changes_that_were_decided_from_one_view_one_is_written() {
    let mut bench = Bench::new().await;
    let written = write_twice(&mut bench).await;
    assert_eq!(written, [Written::Change, Written::Nothing]);
    bench.is_sound().await;
}

/// Proves: S3-071
#[tokio::test]
async fn of_two_that_make_a_domain_one_does() {
    let mut bench = Bench::new().await;
    bench.desk().process("B", 1).await;
    assert_eq!(bench.write(i64::MIN, None).await, Written::Change);
    assert_eq!(bench.write(i64::MIN, None).await, Written::Nothing);
    bench.is_sound().await;
}

/// A domain may come, end and be evicted between a look and the write that follows: whoever saw
/// none then must look again, or an offset would be worked twice.
///
/// Proves: S3-030, S3-032
#[tokio::test]
async fn a_domain_is_made_only_under_the_watermark_that_was_seen() {
    let mut bench = Bench::new().await;
    assert_eq!(write_what_is_over(&mut bench).await, Written::Nothing);
    assert_eq!(bench.write(8, None).await, Written::Change);
    bench.is_sound().await;
}

/// Proves: S3-032
#[tokio::test]
async fn a_change_does_not_reach_a_domain_that_was_made_anew() {
    let mut bench = Bench::new().await;
    assert_eq!(write_to_the_next(&mut bench).await, Written::Nothing);
    let next = bench.stands().await;
    assert_eq!(bench.write(2, Some(next)).await, Written::Change);
    bench.is_sound().await;
}

/// Each guard, taken away: what it keeps out is written.
#[tokio::test]
async fn a_guard_that_is_missing_is_noticed() {
    let without = |from, to| Planted {
        file: "work_lease_change",
        from,
        to,
    };
    let by_number = without("and r.version = $5::bigint", "and $5::bigint > 0");
    let mut bench = Bench::planted(&[by_number]).await;
    let written = write_twice(&mut bench).await;
    assert_eq!(written, [Written::Change, Written::Change]);

    let any_watermark = without("and s.watermark = $2::bigint", "and $2::bigint < 0");
    let mut bench = Bench::planted(&[any_watermark]).await;
    assert_eq!(write_what_is_over(&mut bench).await, Written::Change);

    let by_name = without(
        "where r.number = $4::bigint and",
        "where r.domain = $3::text and $4::bigint > 0 and",
    );
    let mut bench = Bench::planted(&[by_name]).await;
    assert_eq!(write_to_the_next(&mut bench).await, Written::Change);
}

/// And if the watermark is just being moved, it neither waits nor makes the domain.
#[tokio::test]
async fn a_domain_is_not_made_while_the_watermark_moves() {
    let mut bench = Bench::new().await;
    bench.desk().process("B", 1).await;
    let mut mover = PgConnection::connect(&bench.database.url).await.unwrap();
    run(
        &mut mover,
        "begin; update tenure_watermarks set watermark = 8",
    )
    .await;
    assert_eq!(bench.write(i64::MIN, None).await, Written::Nothing);
    run(&mut mover, "rollback").await;
    assert_eq!(bench.write(i64::MIN, None).await, Written::Change);
}

/// Whoever prunes passes by a domain that is just being changed, and it is pruned the next time.
#[tokio::test]
async fn a_domain_that_is_being_changed_is_not_evicted() {
    let bench = Bench::new().await;
    bench.desk().process("A", 1).await;
    let mut writer = PgConnection::connect(&bench.database.url).await.unwrap();
    run(
        &mut writer,
        "begin; update tenure_reservations set version = version + 1",
    )
    .await;
    let moved = tokio::time::timeout(Duration::from_mins(1), async {
        bench.desk().advance_watermark(2).await
    });
    assert_eq!(moved.await.expect("it waits for nobody"), 2);
    assert_eq!(bench.stands().await, (1, 2));
    run(&mut writer, "commit").await;
    bench.desk().advance_watermark(2).await;
    let left: i64 = sqlx::query_scalar("select count(*) from tenure_reservations")
        .fetch_one(bench.store.pool())
        .await
        .unwrap();
    assert_eq!(left, 0);
    bench.is_sound().await;
}

/// Ranges go in rounds; the domain goes with its last one.
#[tokio::test]
async fn many_ranges_are_pruned_in_rounds() {
    let bench = Bench::new().await;
    bench.desk().process("A", 0).await;
    let fill = "insert into tenure_offsets (reservation, space, lo, hi, kind)
                select 1, 1, n * 2, n * 2, 'processed' from generate_series(1, 2500) as n";
    sqlx::query(fill).execute(bench.store.pool()).await.unwrap();
    bench.desk().at(T0).advance_watermark(10_000).await;
    for table in ["tenure_offsets", "tenure_reservations"] {
        let count = format!("select count(*) from {table}");
        let left: i64 = sqlx::query_scalar(AssertSqlSafe(count))
            .fetch_one(bench.store.pool())
            .await
            .unwrap();
        assert_eq!(left, 0, "{table}");
    }
}
